"""Probes read back from recordings of real collectives: torch's, ours, and hand-written ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import chunkscope
from chunkscope.errors import ChunkscopeError
from chunkscope.sim.probing import check_probes
from chunkscope.traces.check import Code
from chunkscope.traces.columns import Column
from chunkscope.traces.record.ranks import Ranks
from chunkscope.traces.schema import Type
from chunkscope.traces.trace import Trace, encode

pytestmark = pytest.mark.ranks

N = 4
HERE = Path(__file__).name


def ring(bug: str | None) -> None:
    """An all_reduce as users write them, with a bug if wanted."""
    rank, n = dist.get_rank(), dist.get_world_size()
    tensor = chunkscope.probe(rank, n, 12)
    if bug == "no probe" and rank == 1:
        tensor[0] = 5
    chunks = list(tensor.chunk(n))
    following, before = (rank + 1) % n, (rank - 1) % n
    for step in range(n - 1):
        mine = chunks[(rank - step - 1) % n]
        there = torch.zeros_like(mine)
        sent = dist.isend(chunks[(rank - step) % n], following)
        dist.irecv(there, before).wait()
        sent.wait()
        if bug == "forget" and rank == 2 and step == 1:
            mine.copy_(there)
        else:
            mine += there
        if bug == "twice" and rank == 1 and step == 0:
            mine += there
    for step in range(n - 1):
        place = (rank - step) % n
        if bug == "place" and rank == 2 and step == 0:
            place = (place + 1) % n
        if bug == "stop" and step == n - 2:
            return
        sent = dist.isend(chunks[(rank + 1 - step) % n], following)
        dist.irecv(chunks[place], before).wait()
        sent.wait()


def direct(name: str, root: int, bug: str | None) -> None:
    """A collective that only moves, by sends from everybody to everybody who is due something."""
    rank, n = dist.get_rank(), dist.get_world_size()
    mine = chunkscope.probe(rank, n, 8)
    for src in range(n):
        for dst in range(n):
            if src == dst or (name in ("broadcast", "scatter") and src != root):
                continue
            if name == "gather" and dst != root:
                continue
            if bug == "skip" and (src, dst) == (root, 3):
                continue
            whole = name in ("broadcast", "gather", "all_gather")
            part = mine if whole else mine.chunk(n)[dst]
            if rank == src:
                dist.send(part.clone(), dst)
            elif rank == dst:
                dist.recv(torch.zeros_like(part), src)


def native(name: str, dtype: torch.dtype) -> None:
    """One of torch's own collectives on probes."""
    rank, n = dist.get_rank(), dist.get_world_size()
    tensor = chunkscope.probe(rank, n, 8, dtype=dtype)
    part = torch.zeros(2, dtype=dtype)
    everything = [torch.zeros(8, dtype=dtype) for _ in range(n)]
    if name == "all_reduce":
        dist.all_reduce(tensor)
    elif name == "max":
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    elif name == "reduce":
        dist.reduce(tensor, 1)
    elif name == "broadcast":
        dist.broadcast(tensor, 2)
    elif name == "all_gather":
        dist.all_gather(everything, tensor)
    elif name == "gather":
        dist.gather(tensor, everything if rank == 1 else None, dst=1)
    elif name == "scatter":
        dist.scatter(part, list(tensor.chunk(n)) if rank == 1 else None, src=1)
    elif name == "reduce_scatter":
        dist.reduce_scatter(part, list(tensor.chunk(n)))
    elif name == "all_to_all":
        dist.all_to_all([part.clone() for _ in range(n)], list(tensor.chunk(n)))
    elif name == "uneven":
        sizes = [1, 2, 2, 3]
        out = torch.zeros(sizes[rank] * n, dtype=dtype)
        dist.all_to_all_single(out, tensor, [sizes[rank]] * n, sizes)


NATIVE = {
    "all_reduce": "all_reduce",
    "max": "all_reduce",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "all_gather": "all_gather",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "uneven": "all_to_all",
}


class Recorder:
    """Runs functions on four ranks and returns what was recorded."""

    def __init__(self, ranks: Ranks, folder: Path) -> None:
        self.ranks = ranks
        self.folder = folder
        self.count = 0

    def __call__(self, function: Any, *args: Any) -> Trace:
        self.count += 1
        path = self.folder / str(self.count)
        self.ranks.run(function, *args, record=path)
        return chunkscope.read(path)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    with Ranks(N) as ranks:
        yield Recorder(ranks, tmp_path_factory.mktemp("probes"))


def edited(trace: Trace, state: int, values: Any) -> Trace:
    """Return a trace with other values in one state."""
    cells = trace.states["data"].to_list()
    cells[state] = encode(values, trace.states["dtype"][state])
    column = Column.build(Type.BYTES, cells, len(cells))
    return Trace(trace.events, trace.states.replace(data=column), trace.meta)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64], ids=str)
@pytest.mark.parametrize("name", NATIVE)
def test_torch_s_own_collectives_pass_and_a_wrong_output_does_not(
    recorded: Recorder, name: str, dtype: torch.dtype
) -> None:
    trace = recorded(native, name, dtype)
    report = check_probes(trace, NATIVE[name])
    assert report.ok, report.to_text()
    # The last output of a rank that has one, with two elements swapped.
    (row,) = trace.where(kind="collective", rank=1)
    state = int(trace.states_of(int(row), when="after", role="output")[-1])
    values = np.ravel(trace.values(state)).copy()
    values[:2] = values[1::-1]
    wrong = check_probes(edited(trace, state, values), NATIVE[name])
    assert not wrong.ok
    assert {finding.ranks for finding in wrong.findings} == {(1,)}
    if name != "max":
        assert {finding.code for finding in wrong.findings} == {Code.MISPLACED}
        assert "hold what belongs 1 elements further on" in wrong.to_text()


def test_input_that_is_no_probe_is_named(recorded: Recorder) -> None:
    trace = recorded(native, "all_reduce", torch.int64)
    (row,) = trace.where(kind="collective", rank=2)
    state = int(trace.states_of(int(row), when="before")[0])
    report = check_probes(edited(trace, state, [7] * 8), "all_reduce")
    assert report.findings[0].code is Code.NO_PROBE
    assert "rank 2, all_reduce #0" in report.findings[0].message
    assert "its input is no probe, as others' are: element 0 is 7" in report.findings[0].message


def test_ring_of_one_s_own_passes(recorded: Recorder) -> None:
    report = check_probes(recorded(ring, None), "all_reduce")
    assert report.ok, report.to_text()
    assert report.looked_at == "the probes of 48 sends and recvs"


def test_part_that_was_added_twice_names_the_first_message(recorded: Recorder) -> None:
    (finding,) = check_probes(recorded(ring, "twice"), "all_reduce").findings
    assert finding.code is Code.TWICE
    assert finding.message.startswith(f"message 1 from rank 1 to rank 2 (sent at {HERE}:")
    assert finding.message.endswith(
        "carries {0,0,1} in elements 0 to 2: rank 0's part is in it twice"
    )
    assert finding.ranks == (1,)
    assert any("it received {0} in message 0 from rank 0" in line for line in finding.look)


def test_part_that_was_forgotten_names_the_message_that_lacks_it(recorded: Recorder) -> None:
    (finding,) = check_probes(recorded(ring, "forget"), "all_reduce").findings
    assert finding.code is Code.MISSING
    assert finding.message.startswith(f"message 2 from rank 2 to rank 3 (sent at {HERE}:")
    assert "carries {0,1} in elements 0 to 2: rank 2's own part is not in" in finding.message
    assert finding.look[0].startswith("ranks 0, 1, 2 and 3 end with {0,1,3} in elements 0 to 2")


def test_chunk_in_the_wrong_place_is_named(recorded: Recorder) -> None:
    findings = check_probes(recorded(ring, "place"), "all_reduce").findings
    assert findings[0].code is Code.MISPLACED
    assert "elements 6 to 8 are received into the place of elements 9 to 11" in findings[0].message


def test_ring_that_stops_early_tells_what_each_rank_lacks(recorded: Recorder) -> None:
    findings = check_probes(recorded(ring, "stop"), "all_reduce").findings
    assert {finding.ranks for finding in findings} == {(0,), (1,), (2,), (3,)}
    assert all(finding.code is Code.MISSING for finding in findings)
    assert any("rank 2 ends with {0,1,2} in elements 0 to 2" in f.message for f in findings)


def test_number_that_is_no_probe_is_found_in_the_first_message(recorded: Recorder) -> None:
    findings = check_probes(recorded(ring, "no probe"), "all_reduce").findings
    assert findings[0].code is Code.NO_PROBE
    assert "message 1 from rank 1 to rank 2" in findings[0].message
    assert "no sum of probes of one element at element 0 of the message" in findings[0].message


@pytest.mark.parametrize("name", ["broadcast", "gather", "scatter", "all_gather", "all_to_all"])
def test_hand_written_moves(recorded: Recorder, name: str) -> None:
    root = 2 if name in ("broadcast", "gather", "scatter") else 0
    report = check_probes(recorded(direct, name, root, None), name, root=root)
    assert report.ok, report.to_text()
    if name == "gather":
        return
    report = check_probes(recorded(direct, name, root, "skip"), name, root=root)
    (finding,) = report.findings
    assert finding.code is Code.MISSING
    assert finding.ranks == (3,)
    assert f"of rank {root}'s part" in finding.message


def test_end_is_not_judged_without_the_root(recorded: Recorder) -> None:
    report = check_probes(recorded(direct, "broadcast", 2, "skip"), "broadcast")
    assert report.ok
    assert any("--root" in note for note in report.notes)


def test_schedule_that_ran_for_real_is_read_message_by_message(recorded: Recorder) -> None:
    def run() -> None:
        plan = chunkscope.build("all_reduce", "ring", dist.get_world_size())
        tensor = chunkscope.probe(dist.get_rank(), dist.get_world_size(), 16)
        chunkscope.execute(plan, tensor)

    trace = recorded(run)
    assert check_probes(trace, "all_reduce").ok
    rows = trace.where(kind="send", provenance="executed", rank=2)
    state = int(trace.states_of(int(rows[1]), role="payload")[0])
    values = np.ravel(trace.values(state)) + np.ravel(chunkscope.probe(2, N, 16)[: 16 // N].numpy())
    report = check_probes(edited(trace, state, values), "all_reduce")
    assert not report.ok
    assert "from rank 2 to rank 3, step 1" in report.findings[0].message


def test_trace_without_probes_is_refused() -> None:
    trace = chunkscope.simulate(
        chunkscope.build("all_reduce", "ring", 2).bind(4, "int64"), chunkscope.topology("star", 2)
    ).trace()
    with pytest.raises(ChunkscopeError, match=r"carries a probe.*chunkscope\.probe"):
        check_probes(trace, "all_reduce")
    with pytest.raises(ChunkscopeError, match="unknown collective"):
        check_probes(trace, "all_reduces")
