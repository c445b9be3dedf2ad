"""Schedules on real ranks: the results of native gloo, and the trace that was simulated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import chunkscope
from chunkscope.errors import RanksError, ScheduleError
from chunkscope.sim.contributors import derive_contributors
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.run import run_collective
from chunkscope.sim.spec import Spec
from chunkscope.traces.record.ranks import Ranks

pytestmark = pytest.mark.ranks

SIZES = (0, 1, 2, 3, 7, 1000)
GROUPS = (2, 3, 4, 5)


def executable(collective: str | None, n: int) -> list[tuple[str, str]]:
    """Algorithms that can do a group size without a switch's help."""
    return [
        (entry.collective, entry.name)
        for entry in algorithms(collective, n)
        if not build(entry.collective, entry.name, n).helpers
    ]


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, Ranks]]:
    """Pools of 2 to 5 ranks, each started when it is first asked for."""

    class Pools(dict[int, Ranks]):
        def __missing__(self, n: int) -> Ranks:
            self[n] = Ranks(n, preload=("chunkscope.sim.execute",))
            return self[n]

    found = Pools()
    yield found
    for pool in found.values():
        pool.close()


# These run in the ranks. Each compares with native gloo there and returns what differed.


def numbers(rank: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers that differ by rank, so that their sums are exact in every dtype."""
    generator = torch.Generator().manual_seed(100 * rank + size)
    return torch.randint(1, 4, (size,), generator=generator).to(dtype)


def all_reduce_by(name: str, sizes: tuple[int, ...]) -> list[str]:
    schedule = build("all_reduce", name, dist.get_world_size())
    wrong = []
    for size in sizes:
        tensor = numbers(dist.get_rank(), size, torch.int64)
        expected = tensor.clone()
        dist.all_reduce(expected)
        if chunkscope.execute(schedule, tensor) is not tensor:
            wrong.append(f"{size}: not in place")
        if not torch.equal(tensor, expected):
            wrong.append(f"{size}: {tensor[:8]} is not {expected[:8]}")
    return wrong


def all_reduce_in_lanes(name: str) -> list[str]:
    """Chunks of several megabytes are cut into parts that are under way at once."""
    import chunkscope.sim.plan as plan

    usual, plan.SEGMENT_BYTES = plan.SEGMENT_BYTES, 64 << 10
    plan.plan_call.cache_clear()
    try:
        return all_reduce_by(name, (300_000, 300_007))
    finally:
        plan.SEGMENT_BYTES = usual
        plan.plan_call.cache_clear()


def operations() -> list[str]:
    """Every operation in every dtype, against gloo or, where it has none, against float64."""
    ring = build("all_reduce", "ring", dist.get_world_size())
    rank, n = dist.get_rank(), dist.get_world_size()
    dtypes = (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
    )
    wrong = []
    for dtype in dtypes:
        for op in ("SUM", "AVG", "PRODUCT", "MIN", "MAX"):
            tensor = numbers(rank, 37, dtype)
            exact = tensor.to(torch.float64, copy=True)
            native = dist.ReduceOp.SUM if op == "AVG" else getattr(dist.ReduceOp, op)
            dist.all_reduce(exact, native)
            expected = (exact / n if op == "AVG" else exact).to(dtype)  # rounds towards zero
            chunkscope.execute(ring, tensor, op)
            if not torch.equal(tensor, expected):
                wrong.append(f"{op} of {dtype}: {tensor} is not {expected}")
    return wrong


def rounding() -> list[str]:
    """Numbers that do not sum up exactly: the same as gloo's but for rounding, on all ranks."""
    ring = build("all_reduce", "ring", dist.get_world_size())
    wrong = []
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        tensor = torch.randn(1003, generator=torch.Generator().manual_seed(dist.get_rank()))
        tensor = tensor.to(dtype)
        expected = tensor.clone()
        dist.all_reduce(expected)
        chunkscope.execute(ring, tensor)
        eps = torch.finfo(dtype).eps
        if not torch.allclose(tensor, expected, rtol=4 * eps, atol=8 * eps):
            wrong.append(f"{dtype}: off by {(tensor - expected).abs().max()}")
        first = tensor.clone()
        dist.broadcast(first, 0)
        if not torch.equal(first, tensor):
            wrong.append(f"{dtype}: ranks differ")
    return wrong


def shapes() -> list[str]:
    """Tensors of any shape and layout, also where the memory between their elements is not ours."""
    ring = build("all_reduce", "ring", dist.get_world_size())
    rank, wrong = dist.get_rank(), []
    for name, view in (
        ("matrix", lambda t: t.view(8, 5)),
        ("transposed", lambda t: t.view(8, 5).t()),
        ("every other", lambda t: t[::2]),
        ("column", lambda t: t.view(8, 5)[:, 2]),
        ("scalar", lambda t: t[3]),
    ):
        whole = numbers(rank, 40, torch.float32)
        expected_whole = whole.clone()
        expected = view(expected_whole).contiguous()
        dist.all_reduce(expected)
        view(expected_whole).copy_(expected)
        tensor = view(whole)
        if chunkscope.execute(ring, tensor) is not tensor or not torch.equal(whole, expected_whole):
            wrong.append(f"{name}: {whole} is not {expected_whole}")
    leaf = torch.ones(5, requires_grad=True)
    if chunkscope.execute(ring, leaf) is not leaf or leaf.tolist() != [dist.get_world_size()] * 5:
        wrong.append("a tensor that requires grad")
    return wrong


def other_collectives(root: int) -> list[str]:
    """Each one, by each algorithm, against gloo's own; blocks of three columns."""
    rank, n, wrong = dist.get_rank(), dist.get_world_size(), []

    def compare(what: str, found: torch.Tensor | None, expected: torch.Tensor | None) -> None:
        same = found is None if expected is None else found is not None
        if not same or (expected is not None and not torch.equal(found, expected)):
            wrong.append(f"{what}: {found} is not {expected}")

    for rows in (0, 1, 2, 5):
        mine = numbers(rank, rows * 3, torch.int32).view(rows, 3)
        for entry in algorithms("all_gather", n):
            parts = [torch.empty_like(mine) for _ in range(n)]
            dist.all_gather(parts, mine)
            found = chunkscope.execute(build("all_gather", entry.name, n), mine)
            compare(f"all_gather {entry.name}", found, torch.cat(parts))
        for entry in algorithms("reduce_scatter", n):
            whole = numbers(rank, rows * 3 * n, torch.int32).view(rows * n, 3)
            kept, expected = whole.clone(), torch.empty_like(mine)
            dist.reduce_scatter(expected, list(whole.clone().chunk(n)) if rows else [mine] * n)
            found = chunkscope.execute(build("reduce_scatter", entry.name, n), whole)
            compare(f"reduce_scatter {entry.name}", found, expected)
            compare("reduce_scatter's input", whole, kept)
        for entry in algorithms("broadcast", n):
            tensor, expected = mine.clone(), mine.clone()
            dist.broadcast(expected, root)
            chunkscope.execute(build("broadcast", entry.name, n, root=root), tensor)
            compare(f"broadcast {entry.name}", tensor, expected)
        for entry in algorithms("reduce", n):
            tensor, expected = mine.clone(), mine.clone()
            dist.reduce(expected, root)
            found = chunkscope.execute(build("reduce", entry.name, n, root=root), tensor)
            compare(f"reduce {entry.name}", found, expected if rank == root else None)
            compare("reduce's input", tensor, expected if rank == root else mine)
    return wrong


def outputs_and_splits() -> list[str]:
    """A given output, and blocks of different sizes."""
    rank, n, wrong = dist.get_rank(), dist.get_world_size(), []
    ring = build("all_reduce", "ring", n)
    tensor, output = torch.ones(10), torch.zeros(20)[::2]
    if chunkscope.execute(ring, tensor, output=output) is not output:
        wrong.append("output is not returned")
    if output.tolist() != [n] * 10 or tensor.tolist() != [1.0] * 10:
        wrong.append(f"output {output}, input {tensor}")
    splits = [3, 0, 5, 1, 2][:n]
    gather = build("all_gather", "ring", n)
    mine = torch.full((splits[rank],), rank)
    expected = torch.cat([torch.full((size,), k) for k, size in enumerate(splits)])
    found = chunkscope.execute(gather, mine, splits=splits)
    if found is None or not torch.equal(found, expected):
        wrong.append(f"{found} is not {expected}")
    return wrong


def in_subgroup() -> list[str]:
    """A group whose ranks are numbered otherwise than the world's."""
    members = [1, 2, 3]
    group = dist.new_group(members)
    rank = dist.get_rank()
    tensor = numbers(rank, 11, torch.int32)
    expected = tensor.clone()
    found = chunkscope.execute(build("all_reduce", "ring", 3), tensor, group=group)
    if rank not in members:
        return [] if found is None and torch.equal(tensor, expected) else ["an outsider took part"]
    dist.all_reduce(expected, group=group)
    wrong = [] if torch.equal(tensor, expected) else [f"{tensor} is not {expected}"]
    source = dist.get_global_rank(group, 1)
    expected = tensor * (rank + 1)
    tensor = expected.clone()
    dist.broadcast(expected, source, group=group)
    chunkscope.execute(build("broadcast", "tree", 3, root=1), tensor, group=group)
    return wrong if torch.equal(tensor, expected) else [*wrong, f"{tensor} is not {expected}"]


def batched() -> list[str]:
    """The loop for backends that must issue a step's messages together."""
    import chunkscope.sim.execute as execute

    plan_call = execute.plan_call
    execute.plan_call = lambda *args, **how: plan_call(*args, **{**how, "is_batched": True})
    try:
        wrong = other_collectives(0)
        for _, name in executable("all_reduce", dist.get_world_size()):
            wrong += all_reduce_by(name, SIZES)
        return wrong
    finally:
        execute.plan_call = plan_call


def beside_own_messages() -> list[str]:
    """A message of the program that is under way meanwhile is left alone."""
    rank, n = dist.get_rank(), dist.get_world_size()
    own = torch.full((4,), float(rank))
    got = torch.empty(4)
    receive = dist.irecv(got, (rank - 1) % n, tag=5)
    tensor = torch.ones(7)
    for _ in range(3):
        chunkscope.execute(build("all_reduce", "ring", n), tensor)
    send = dist.isend(own, (rank + 1) % n, tag=5)
    receive.wait()
    send.wait()
    wrong = [] if got.tolist() == [(rank - 1) % n] * 4 else [f"got {got}"]
    return wrong if tensor.tolist() == [float(n**3)] * 7 else [*wrong, f"reduced {tensor}"]


def refused() -> list[str]:
    """Return the messages for calls that cannot work; none of them reaches a peer."""
    n = dist.get_world_size()
    ring = build("all_reduce", "ring", n)
    messages = []
    for call in (
        lambda: chunkscope.execute(build("all_reduce", "ring", n + 1), torch.ones(4)),
        lambda: chunkscope.execute(ring, torch.ones(4), "MEDIAN"),
        lambda: chunkscope.execute(ring, torch.ones(4), output=torch.ones(5)),
        lambda: chunkscope.execute(ring, torch.ones(4).to_sparse()),
        lambda: chunkscope.execute(build("reduce_scatter", "ring", n), torch.ones(n + 1)),
        lambda: chunkscope.execute(build("all_gather", "ring", n), torch.ones(4), splits=[1] * n),
        lambda: chunkscope.execute(lossy_ring(n), torch.ones(4)),
    ):
        try:
            call()
            messages.append("")
        except ScheduleError as error:
            messages.append(str(error))
    return messages


def lossy_ring(n: int) -> chunkscope.Schedule:
    ring = build("all_reduce", "ring", n)
    return chunkscope.Schedule.of(
        "all_reduce", "lossy", n, ring.transfers[1:], input=range(n), output=range(n)
    )


# The tests.


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_all_reduce_equals_native_gloo(pools: dict[int, Ranks], n: int) -> None:
    for _, name in executable("all_reduce", n):
        assert pools[n].run(all_reduce_by, name, SIZES) == [[]] * n, name
        assert pools[n].run(all_reduce_in_lanes, name) == [[]] * n, name


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_other_collectives_equal_native_gloo(pools: dict[int, Ranks], n: int) -> None:
    for root in {0, n - 1}:
        assert pools[n].run(other_collectives, root) == [[]] * n


@pytest.mark.parametrize(
    "situation",
    [operations, rounding, shapes, outputs_and_splits, batched, beside_own_messages],
    ids=lambda situation: situation.__name__,
)
def test_situation(pools: dict[int, Ranks], situation: Any) -> None:
    assert pools[3].run(situation) == [[]] * 3


def test_groups_of_some_ranks(pools: dict[int, Ranks]) -> None:
    assert pools[4].run(in_subgroup) == [[]] * 4


def test_one_rank_alone() -> None:
    with Ranks(1) as alone:
        for _, name in executable("all_reduce", 1):
            assert alone.run(all_reduce_by, name, SIZES) == [[]]
        assert alone.run(other_collectives, 0) == [[]]


def test_what_cannot_work_is_refused_before_anything_is_sent(pools: dict[int, Ranks]) -> None:
    messages = pools[2].run(refused)[0]
    expected = [
        "ring is a schedule for 3 ranks, the group has 2",
        "unknown operation 'MEDIAN'; known: SUM, AVG, PRODUCT, MIN, MAX",
        "all_reduce: output has 5 elements of torch.float32, expected 4 of torch.float32",
        "tensor is torch.sparse_coo, expected a dense one",
        "reduce_scatter: 3 elements cannot be divided equally among 2 ranks",
        "all_gather: tensor of rank 0 has 4 elements, the splits ask for 1",
        "POSTCONDITION: slot 1 of rank 0",
    ]
    for message, start in zip(messages, expected, strict=True):
        assert message.startswith(start), message


def test_outside_of_a_job_it_says_what_is_missing() -> None:
    with pytest.raises(ScheduleError, match="call init_process_group first"):
        chunkscope.execute(build("all_reduce", "ring", 2), torch.ones(4))


# The recorded run is the simulated one.


def executed_default(collective: str, name: str, op: str, root: int | None) -> None:
    from chunkscope.sim.rank import run_with_default_inputs

    spec = Spec(collective, name, ranks=dist.get_world_size(), op=op, root=root)
    run_with_default_inputs(spec.bound(), op)


@pytest.mark.parametrize(
    ("collective", "name", "n"), [(*one, n) for n in GROUPS for one in executable(None, n)]
)
def test_recorded_run_equals_the_simulated_one(
    pools: dict[int, Ranks], tmp_path: Path, collective: str, name: str, n: int
) -> None:
    rooted = collective in ("broadcast", "reduce")
    spec = Spec(collective, name, ranks=n, root=n - 1 if rooted else None)
    folder = tmp_path / "recording"
    pools[n].run(executed_default, collective, name, "SUM", spec.root, record=folder)
    simulated, recorded = spec.trace(values=True), chunkscope.read(folder)
    found = chunkscope.diff(simulated, derive_contributors(recorded), values="exact")
    assert found.same, found.to_text()
    assert "contributors of states: not compared" not in found.to_text()
    assert len(recorded) == len(simulated)
    assert set(recorded.events["provenance"]) == {"executed"}
    assert set(recorded.events["status"]) == {"ok"}


def test_diff_would_see_a_changed_value(pools: dict[int, Ranks], tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    pools[2].run(executed_default, "all_reduce", "ring", "MAX", None, record=folder)
    simulated = Spec("all_reduce", "ring", ranks=2).trace(values=True)
    assert not chunkscope.diff(simulated, chunkscope.read(folder)).same


def in_lanes_recorded() -> None:
    import chunkscope.sim.plan as plan

    usual, plan.SEGMENT_BYTES = plan.SEGMENT_BYTES, 16 << 10
    plan.plan_call.cache_clear()
    try:
        executed_sized("all_reduce", "ring", 40_000)
    finally:
        plan.SEGMENT_BYTES = usual
        plan.plan_call.cache_clear()


def executed_sized(collective: str, name: str, size_bytes: int) -> None:
    from chunkscope.sim.rank import run_with_default_inputs

    n = dist.get_world_size()
    run_with_default_inputs(Spec(collective, name, n, size_bytes=4 * size_bytes).bound(), "SUM")


def test_a_message_in_lanes_is_one_row(pools: dict[int, Ranks], tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    pools[2].run(in_lanes_recorded, record=folder)
    simulated = Spec("all_reduce", "ring", 2, size_bytes=160_000).trace(values=True)
    found = chunkscope.diff(simulated, chunkscope.read(folder))
    assert found.same, found.to_text()


def test_caller_and_times_are_recorded(pools: dict[int, Ranks], tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    pools[2].run(all_reduce_by, "ring", (6,), record=folder)
    trace = chunkscope.read(folder)
    call = trace.where(kind="collective", provenance="executed")
    assert len(call) == 2
    site = trace.meta.sites[trace.events["site"][call[0]]]
    assert "chunkscope.execute(schedule, tensor)" in site.source[site.line - site.first_line]
    assert not len(trace.where(kind="send", provenance="called"))  # the hooks keep still inside
    for row in trace.where(kind="send").tolist():
        begun, ended = trace.events["t_start_ns"][row], trace.events["t_end_ns"][row]
        assert begun <= ended
        parent = trace.events["parent"][row]
        assert trace.events["t_start_ns"][parent] <= begun
        assert ended <= trace.events["t_end_ns"][parent]


def dies_inside() -> None:
    import os

    ring = build("all_reduce", "ring", dist.get_world_size())
    if dist.get_rank() == 1:
        os._exit(3)
    chunkscope.execute(ring, torch.ones(8))


def test_failed_run_shows_what_had_begun(pools: dict[int, Ranks], tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    with pytest.raises(RanksError, match="rank 1 of 2 exited with 3"):
        pools[2].run(dies_inside, record=folder)
    trace = chunkscope.read(folder)
    statuses = set(trace.events["status"].take(trace.where(kind="send")).to_list())
    assert statuses <= {"begun", "ok"}
    (call,) = trace.where(kind="collective", rank=0)
    assert trace.events["status"][call] in ("error", "begun")


def test_run_collective_records_into_the_folder(tmp_path: Path) -> None:
    spec = Spec("broadcast", "chain", ranks=2, dtype="bfloat16", root=1)
    assert run_collective(spec, tmp_path / "run") is True
    found = chunkscope.diff(spec.trace(values=True), chunkscope.read(tmp_path / "run"))
    assert found.same, found.to_text()


def test_run_collective_checks_before_it_starts_anything(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match="cannot be divided equally among 3 ranks"):
        run_collective(Spec("all_gather", ranks=3, size_bytes=16), tmp_path / "run")
    with pytest.raises(ScheduleError, match="unknown operation 'sum'"):
        run_collective(Spec("all_reduce", op="sum"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_inside_torchrun_it_uses_the_group_that_is_there(tmp_path: Path) -> None:
    import os
    import socket
    import subprocess
    import sys

    script = tmp_path / "job.py"
    script.write_text(
        "import sys\n"
        "from chunkscope.sim.run import run_collective\n"
        "from chunkscope.sim.spec import Spec\n"
        "folder = sys.argv[1]\n"
        "print(run_collective(Spec('all_reduce', 'tree'), folder))\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path / f"named-by-{rank}")],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        printed = [process.communicate(timeout=90)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert printed == ["True\n", "False\n"]
    found = chunkscope.diff(
        Spec("all_reduce", "tree", ranks=2).trace(values=True),
        chunkscope.read(tmp_path / "named-by-0"),
    )
    assert found.same, found.to_text()
    assert not (tmp_path / "named-by-1").exists()
