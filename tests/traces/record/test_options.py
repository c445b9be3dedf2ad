"""What a recording keeps: only some calls, the last ones, so many bytes, frames of the program."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

import chunkscope
from chunkscope.traces.record.options import COLLECTIVES, KINDS, STATES, VARIABLES, Options
from chunkscope.traces.record.ranks import Ranks
from chunkscope.traces.trace import Trace

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="module")
def pool() -> Iterator[Ranks]:
    with Ranks(2) as ranks:
        yield ranks


@pytest.fixture
def run(pool: Ranks, tmp_path: Path) -> Callable[..., Trace]:
    """Run a function on two ranks, recorded with these options."""

    def run(function: Callable[[], None], **options: Any) -> Trace:
        pool.run(function, record=tmp_path / "run", options=Options(**options))
        return chunkscope.read(tmp_path / "run")

    return run


def rows(trace: Trace, *columns: str, rank: int = 0) -> list[tuple[Any, ...]]:
    """Return cells of a rank's rows."""
    found = zip(*(trace.events[name].to_list() for name in ("rank", *columns)), strict=True)
    return [tuple(cells) for of_rank, *cells in found if of_rank == rank]


# The value itself.

OPTIONS = st.builds(
    Options,
    state=st.none() | st.sampled_from(STATES),
    stack=st.integers(0, 9),
    only=st.lists(st.sampled_from(COLLECTIVES + KINDS), max_size=3).map(tuple),
    keep_last=st.none() | st.integers(1, 10**9),
    max_bytes=st.none() | st.integers(0, 10**12),
    wire=st.none() | st.sampled_from(["digest", "whole", "0", "64"]),
)


@given(OPTIONS)
def test_options_survive_the_environment(options: Options) -> None:
    environment = options.to_environment()
    assert Options.from_environment(environment) == options
    assert set(environment) <= set(VARIABLES.values())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"state": "all"}, "'all' is none of none, sample, full"),
        ({"only": ("allreduce",)}, "cannot record only 'allreduce'; known are all_reduce,"),
        ({"keep_last": 0}, "keep_last is 0, expected 1 or more"),
        ({"max_bytes": -1}, "max_bytes is -1, expected 0 or more"),
        ({"stack": -1}, "stack is -1, expected 0 or more"),
        ({"wire": "some"}, "'some' is neither digest nor whole nor a number of bytes"),
    ],
)
def test_option_that_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Options(**given)


def test_variable_that_is_no_number_is_named() -> None:
    with pytest.raises(ValueError, match="CHUNKSCOPE_KEEP_LAST is 'ten', expected a whole number"):
        Options.from_environment({"CHUNKSCOPE_KEEP_LAST": "ten"})


# Only some calls.


def mixed() -> None:
    tensor = torch.ones(2)
    for _ in range(2):
        dist.all_reduce(tensor)
        dist.broadcast(tensor, 0)
        dist.barrier()
        (dist.send if dist.get_rank() == 0 else dist.recv)(tensor, 1 - dist.get_rank(), tag=4)


def test_calls_left_out_still_count(run: Callable[..., Trace]) -> None:
    trace = run(mixed, only=("broadcast", "send"))
    found = rows(trace, "kind", "collective", "coll_seq", "message")
    assert found == [
        ("collective", "broadcast", 1, None),
        ("send", None, None, 0),
        ("collective", "broadcast", 4, None),
        ("send", None, None, 1),
    ]
    assert [each[2] for each in rows(trace, "kind", "collective", "coll_seq", rank=1)] == [1, 4]
    assert trace.meta.notes == ("nothing but broadcast, send was recorded",)
    assert [group.ranks for group in trace.meta.groups] == [(0, 1)]


def test_call_that_is_left_out_writes_nothing(pool: Ranks, tmp_path: Path) -> None:
    pool.run(mixed, record=tmp_path / "run", options=Options(only=("reduce_scatter",)))
    for path in (tmp_path / "run").glob("*.rec.jsonl"):
        kinds = [line.split('"')[3] for line in path.read_text().splitlines()]
        assert kinds == ["header", "group", "close"]


def test_async_call_that_is_left_out_has_no_wait(run: Callable[..., Trace]) -> None:
    def work() -> None:
        for _ in range(2):
            dist.all_reduce(torch.ones(1), async_op=True).wait()

    assert len(run(work, only=("barrier",))) == 0


# Frames of the program.


def outermost() -> None:
    middle()
    middle()


def middle() -> None:
    for _ in range(2):
        innermost()


def innermost() -> None:
    dist.all_reduce(torch.ones(1))


def test_outer_frames_are_kept_innermost_first(run: Callable[..., Trace]) -> None:
    trace = run(outermost, stack=2)
    sites = [trace.meta.sites[site] for (site,) in rows(trace, "site")]
    assert [site.function for site in sites] == ["innermost"] * 4
    frames = [[frame.rpartition(" ")[2] for frame in site.stack] for site in sites]
    assert frames == [["middle", "outermost"]] * 4
    first, last = sites[0].stack, sites[-1].stack
    assert first[0] == last[0]
    assert first[1] != last[1], "two lines of the same function"
    assert str(Path(__file__).name) in first[0]
    assert len({site for (site,) in rows(trace, "site")}) == 2, "equal stacks are one site"


def test_no_frames_unless_asked_for(run: Callable[..., Trace]) -> None:
    assert [site.stack for site in run(outermost).meta.sites] == [()]


# The last calls.


def many() -> None:
    tensor = torch.zeros(100)
    for number in range(25):
        tensor.fill_(number)
        dist.all_reduce(tensor, async_op=number % 2 == 1) if number % 5 else dist.barrier()
        if dist.get_rank() == 0:
            dist.send(tensor, 1, tag=number % 2)
        else:
            dist.recv(tensor, None if number % 3 == 0 else 0, tag=number % 2)


def test_last_calls_are_what_they_were_in_the_whole_run(pool: Ranks, tmp_path: Path) -> None:
    pool.run(many, record=tmp_path / "all")
    pool.run(many, record=tmp_path / "last", options=Options(keep_last=7))
    whole, last = chunkscope.read(tmp_path / "all"), chunkscope.read(tmp_path / "last")
    columns = "kind", "collective", "coll_seq", "message", "tag", "peer", "api", "status", "group"
    for rank in (0, 1):
        kept = rows(last, *columns, rank=rank)
        assert 7 <= len(kept) <= 14
        assert kept == rows(whole, *columns, rank=rank)[-len(kept) :]
    assert {site.line for site in last.meta.sites} == {site.line for site in whole.meta.sites}
    values = [last.values(state) for state in range(len(last.states))]
    assert any(value is not None and value.tolist() == [24.0] * 100 for value in values)
    assert len(last.meta.processes) == 2
    assert all(process.closed for process in last.meta.processes)
    notes = [note for note in last.meta.notes if "calls are not kept any more" in note]
    assert len(notes) == 2
    assert "missing" not in str(last.meta.notes)
    assert "damaged" not in str(last.meta.notes)


ONE_RANK = """
import os, sys, torch, torch.distributed as dist
import chunkscope
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
tensor = torch.zeros(100)  # 400 bytes: beside the records
early = dist.all_reduce(tensor, async_op=True)
with chunkscope.record(sys.argv[1], keep_last=100):
    late = dist.all_reduce(tensor, async_op=True)
    for number in range(int(sys.argv[2])):
        tensor.fill_(number)
        dist.all_reduce(tensor)
        if number == 150:
            late.wait()
            early.wait()
    if len(sys.argv) > 3:
        os.kill(os.getpid(), int(sys.argv[3]))
"""


def one_rank(*args: str) -> int:
    command = [sys.executable, "-c", ONE_RANK, *args]
    return subprocess.run(command, timeout=120, check=False).returncode


def test_long_job_has_small_files_and_the_last_calls(tmp_path: Path) -> None:
    assert one_rank(str(tmp_path / "run"), "10000") == 0
    files = [path for path in (tmp_path / "run").iterdir() if path.name != "run.json"]
    assert len(files) == 5, "the first, emptied, and two segments with their tensor bytes"
    assert sum(path.stat().st_size for path in files) < 300_000
    trace = chunkscope.read(tmp_path / "run")
    seqs = trace.events["coll_seq"].to_list()
    assert seqs[-1] == 10_000
    assert seqs == list(range(seqs[0], 10_001))
    assert 100 <= len(seqs) <= 200
    assert set(trace.events["status"].to_list()) == {"ok"}
    for row in range(len(trace.states)):
        number = float(seqs[trace.states["event"][row]] - 1)
        values = trace.values(row)
        assert values is not None
        assert values.tolist() == [number] * 100
    assert trace.meta.notes == (
        f"{trace.meta.processes[0].file}: the first {seqs[0]} calls are not kept any more",
    )


def test_what_ends_after_its_segment_is_gone_is_said(tmp_path: Path) -> None:
    one_rank(str(tmp_path / "run"), "295")
    trace = chunkscope.read(tmp_path / "run")
    assert trace.events["coll_seq"].to_list() == list(range(100, 296))
    assert trace.events["kind"].to_list() == ["collective"] * 196
    assert "not kept any more" in str(trace.meta.notes)


def test_kill_leaves_the_last_calls(tmp_path: Path) -> None:
    assert one_rank(str(tmp_path / "run"), "1234", str(int(signal.SIGKILL))) == -signal.SIGKILL
    trace = chunkscope.read(tmp_path / "run")
    assert trace.events["coll_seq"].to_list() == list(range(1100, 1235))
    assert trace.meta.processes[0].closed is False
    assert trace.meta.world_size == 1


def test_few_calls_are_all_there(tmp_path: Path) -> None:
    one_rank(str(tmp_path / "run"), "20")
    trace = chunkscope.read(tmp_path / "run")
    assert trace.events["coll_seq"].to_list() == list(range(21))
    assert trace.meta.notes == ()


def test_recording_begins_while_operations_of_the_one_before_are_under_way(
    pool: Ranks, tmp_path: Path
) -> None:
    def work(folder: Path) -> None:
        with chunkscope.record(folder / "first", run="1"):
            if dist.get_rank() == 0:
                under_way = dist.isend(torch.ones(1), 1)
        with chunkscope.record(folder / "second", run="2"):
            if dist.get_rank() == 1:
                dist.recv(torch.ones(1), 0)
            else:
                under_way.wait()
            dist.barrier()

    pool.run(work, tmp_path)
    kinds = chunkscope.read(tmp_path / "second").events["kind"].to_list()
    assert kinds.count("collective") == 2
    assert chunkscope.read(tmp_path / "first").events["kind"].to_list()[0] == "send"
