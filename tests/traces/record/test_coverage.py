"""Every way to call torch.distributed: the recorder sees as many operations as torch's profiler.

python tests/traces/record/test_coverage.py     # prints the table
"""

from __future__ import annotations

import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import chunkscope
from chunkscope.traces.record.ops import plans
from chunkscope.traces.record.ranks import Ranks
from chunkscope.traces.trace import Trace

pytestmark = pytest.mark.ranks

Seen = dict[str, int]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def train(net: nn.Module, optimizer: Any) -> None:
    for step in range(2):
        optimizer.zero_grad()
        net(torch.ones(4, 8) * (step + dist.get_rank())).square().mean().backward()
        optimizer.step()


def ddp() -> None:
    net = nn.parallel.DistributedDataParallel(model())
    train(net, torch.optim.SGD(net.parameters(), lr=0.1))


def zero() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = nn.parallel.DistributedDataParallel(model())
    train(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1))


def mesh() -> Any:
    return dist.device_mesh.init_device_mesh("cpu", (2,))


def fsdp2() -> None:
    from torch.distributed.fsdp import fully_shard

    net = model()
    fully_shard(net, mesh=mesh())
    train(net, torch.optim.SGD(net.parameters(), lr=0.1))


def dtensor() -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    sharded = distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh(), [Shard(0)])
    sharded.redistribute(placements=[Replicate()]).to_local()
    sharded.redistribute(placements=[Shard(1)]).to_local()
    sharded.sum().full_tensor()


def functional() -> None:
    import torch.distributed._functional_collectives as calls

    group = dist.group.WORLD
    total = calls.all_reduce(torch.ones(4), "sum", group)
    (total + 1).sum()
    calls.all_gather_tensor(torch.ones(2), 0, group).sum()
    calls.reduce_scatter_tensor(torch.ones(4), "sum", 0, group).sum()
    calls.all_to_all_single(torch.ones(4), None, None, group).sum()
    calls.broadcast(torch.ones(3), 0, group).sum()


def compiled() -> None:
    import torch.distributed._functional_collectives as calls

    @torch.compile(backend="aot_eager")
    def whole(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        return calls.all_reduce(x + 1, "sum", dist.group.WORLD) * 2

    whole(torch.ones(4))


def gradients() -> None:
    from torch.distributed.nn import functional as calls

    x = torch.ones(3, requires_grad=True)
    calls.all_reduce(x * 2).sum().backward()
    torch.cat(calls.all_gather(x * 3)).sum().backward()


def objects() -> None:
    found: list[Any] = [None, None]
    dist.all_gather_object(found, {"rank": dist.get_rank()})
    sent = ["hello"]
    dist.broadcast_object_list(sent, 0)
    dist.gather_object(1, found if dist.get_rank() == 0 else None, 0)


def coalesced() -> None:
    dist.all_reduce_coalesced([torch.ones(2), torch.ones(3)])


def batched() -> None:
    mine, theirs, peer = torch.ones(2), torch.zeros(2), 1 - dist.get_rank()
    both = [dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, theirs, peer)]
    for work in dist.batch_isend_irecv(both):
        work.wait()


def threads() -> None:
    workers = [threading.Thread(target=dist.all_reduce, args=(torch.ones(2),)) for _ in range(3)]
    for worker in workers:  # one after the other: their order must be the same on both ranks
        worker.start()
        worker.join()


def subgroups() -> None:
    both, alone = (
        dist.new_group([0, 1]),
        dist.new_group([dist.get_rank()], use_local_synchronization=True),
    )
    dist.all_reduce(torch.ones(1), group=both)
    dist.all_reduce(torch.ones(1), group=alone)
    dist.destroy_process_group(both)
    dist.destroy_process_group(alone)


def dtypes() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.int64, torch.bool):
        dist.all_reduce(torch.ones(2, dtype=dtype))
    dist.broadcast(torch.ones(2, dtype=torch.complex64), 0)
    dist.all_reduce(torch.eye(3).to_sparse())
    with torch.inference_mode():
        dist.all_reduce(torch.ones(2))


def below_python() -> None:
    group: Any = dist.group.WORLD
    group.allreduce([torch.ones(2)]).wait()
    group.broadcast([torch.ones(2)], dist.BroadcastOptions()).wait()


def everything_plain() -> None:
    rank, x = dist.get_rank(), torch.arange(4.0)
    outs = [torch.zeros(4), torch.zeros(4)]
    dist.all_gather(outs, x)
    dist.all_gather_into_tensor(torch.zeros(8), x)
    dist.reduce(x, 1)
    dist.reduce_scatter(torch.zeros(4), outs)
    dist.reduce_scatter_tensor(torch.zeros(2), x)
    dist.all_to_all([torch.zeros(4), torch.zeros(4)], outs)
    dist.all_to_all_single(torch.zeros(4), x)
    dist.gather(x, outs if rank == 0 else None, 0)
    dist.scatter(x, outs if rank == 0 else None, 0)
    dist.barrier()
    dist.monitored_barrier()
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x)


SITUATIONS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        everything_plain, ddp, zero, fsdp2, dtensor, functional, compiled, gradients, objects,
        coalesced, batched, threads, subgroups, dtypes, below_python,
    )
}  # fmt: skip


def profiled(situation: Callable[[], None]) -> Seen:
    """Run a situation in a rank and return how often the profiler saw each c10d operation."""
    warnings.simplefilter("ignore")
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        situation()
    counts = {event.key: event.count for event in profile.key_averages()}
    return {name.removeprefix("c10d::"): n for name, n in counts.items() if name[:6] == "c10d::"}


def by_kind(profiler: Seen) -> Seen:
    """Return the profiler's counts by what the recorder calls the operations."""
    counts: Counter[str] = Counter()
    for name, n in profiler.items():
        plan, _ = plans()[name]
        counts[plan.collective or plan.kind] += n
    return dict(counts)


def recorded(trace: Trace, rank: int) -> Seen:
    """Return how many operations of each kind a rank's recording has."""
    rows = [
        trace.events.row(int(row))
        for kind in ("collective", "send", "recv")
        for row in trace.where(kind=kind, rank=rank)
    ]
    return dict(Counter(str(row.get("collective") or row["kind"]) for row in rows))


@pytest.fixture(scope="module")
def pool() -> Iterator[Ranks]:
    with Ranks(2) as ranks:
        yield ranks


def run(pool: Ranks, name: str, folder: Path) -> tuple[list[Seen], Trace]:
    seen = pool.run(profiled, SITUATIONS[name], record=folder, timeout=120)
    return seen, chunkscope.read(folder)


@pytest.mark.parametrize("name", SITUATIONS)
def test_recorder_sees_what_the_profiler_sees(pool: Ranks, tmp_path: Path, name: str) -> None:
    seen, trace = run(pool, name, tmp_path / "run")
    for rank in (0, 1):
        # The profiler looks at one thread alone.
        expected = {"all_reduce": 3} if name == "threads" else by_kind(seen[rank])
        assert recorded(trace, rank) == expected
    table = trace.events
    open_ended = {
        (table["collective"][row], table["status"][row])
        for row in map(int, trace.where(provenance="called"))
        if table["status"][row] != "ok" and table["kind"][row] in ("collective", "send", "recv")
    }
    # gloo's reduce_scatter gives no future, and functional collectives wait for it in C++.
    unseen = {("reduce_scatter", "unobserved")} if name == "functional" else set()
    assert open_ended == unseen


def main() -> None:
    """Print the table: situation, operations that the profiler saw and that were recorded."""
    with Ranks(2) as ranks, tempfile.TemporaryDirectory() as folder:
        print(f"{'situation':18}{'profiler':>9}{'recorded':>9}  operations")
        for name in SITUATIONS:
            seen, trace = run(ranks, name, Path(folder) / name)
            profiler, rows = by_kind(seen[0]), recorded(trace, 0)
            what = ", ".join(f"{n} {kind}" for kind, n in sorted(rows.items()))
            print(f"{name:18}{sum(profiler.values()):9}{sum(rows.values()):9}  {what}")


if __name__ == "__main__":
    sys.exit(main())
