"""Operations of a GPU, whose wait returns before they are over: told by a device that is made up.

Its events are passed when the test says so, and what was copied is there only then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import chunkscope
from chunkscope.traces.record import cuda, start
from chunkscope.traces.record.options import Options
from chunkscope.traces.record.recorder import Recorder


class FakeDevice:
    """A device that works when told to: `finish` passes all events and makes all copies whole."""

    def __init__(self) -> None:
        self.is_capture = False
        self.lag_ns = 0
        self.marks: list[dict[str, int]] = []
        self.copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.is_broken = False

    def has(self, tensor: torch.Tensor) -> bool:
        return True

    def is_capturing(self) -> bool:
        return self.is_capture

    def mark(self, where: torch.device) -> dict[str, int]:
        assert not self.is_capture, "an event in a graph"
        self.marks.append({"at": time.monotonic_ns() + self.lag_ns, "done": False})
        return self.marks[-1]

    def is_done(self, mark: Any) -> bool:
        assert not self.is_capture, "a question while a graph is captured"
        if self.is_broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return bool(mark["done"])

    def between_ns(self, earlier: Any, later: Any) -> int:
        assert all(mark["done"] for mark in (earlier, later)), "asked before the device was there"
        return int(later["at"] - earlier["at"])

    def fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        assert not self.is_capture, "a copy in a graph"
        room = torch.full(tensor.shape, 77).to(tensor.dtype)
        self.copies.append((room, tensor.clone()))
        return room

    def finish(self) -> None:
        """Do all that was asked for."""
        for room, values in self.copies:
            room.copy_(values)
        for mark in self.marks:
            mark["done"] = True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    """One rank, whose tensors all lie on a device of our own."""
    found = FakeDevice()
    monkeypatch.setattr("chunkscope.traces.record.hooks.built_for", lambda: found)
    monkeypatch.setattr(start, "problem", lambda active: None)  # it has no GPU either
    monkeypatch.setattr(start, "PATIENCE_S", 0.05)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield found
    dist.destroy_process_group()


def read_one(folder: Path) -> tuple[Any, list[Any], list[Any]]:
    """Return the first call's row, and the values that its tensors had before and after."""
    trace = chunkscope.read(folder)
    row = trace.where(kind="collective", collective="all_reduce")[0]
    found = []
    for when in ("before", "after"):
        states = [trace.values(state) for state in trace.states_of(row, when=when)]
        found.append([None if each is None else each.tolist() for each in states])
    return trace.events.row(row), *found


def test_values_are_those_of_the_stream_and_not_of_the_program(
    fake: FakeDevice, tmp_path: Path
) -> None:
    tensor = torch.tensor([1.0, 2.0])
    with chunkscope.record(tmp_path / "run", state="full"):
        dist.all_reduce(tensor)
        tensor.fill_(5.0)  # by the time the copies are there
        fake.finish()
    row, before, after = read_one(tmp_path / "run")
    assert (row["status"], before, after) == ("ok", [[1.0, 2.0]], [[1.0, 2.0]])


def test_end_is_the_time_of_the_device(fake: FakeDevice, tmp_path: Path) -> None:
    with chunkscope.record(tmp_path / "run", state="full"):
        dist.all_reduce(torch.ones(2))
        before = time.monotonic_ns()
        fake.lag_ns = 50_000_000
        work = dist.all_reduce(torch.ones(2), async_op=True)
        work.wait()
        after = time.monotonic_ns()
        fake.finish()
    trace = chunkscope.read(tmp_path / "run")
    row = trace.events.row(trace.where(kind="collective")[-1])
    assert before + fake.lag_ns <= row["t_end_ns"] <= after + fake.lag_ns


@pytest.mark.parametrize("state", [None, "none"])
def test_nothing_is_copied_unless_asked_for(
    state: str | None, fake: FakeDevice, tmp_path: Path
) -> None:
    with chunkscope.record(tmp_path / "run", **({} if state is None else {"state": state})):
        dist.all_reduce(torch.ones(2))
        fake.finish()
    row, before, after = read_one(tmp_path / "run")
    assert fake.copies == []
    assert (row["status"], before, after) == ("ok", [None], [None])


def test_large_tensor_is_picked_from_before_it_is_copied(fake: FakeDevice, tmp_path: Path) -> None:
    tensor = torch.arange(100_000.0)
    with chunkscope.record(tmp_path / "run", state="full"):
        dist.all_reduce(tensor)
        fake.finish()
    with chunkscope.record(tmp_path / "other", state="full") as recorder:
        call = recorder.begin("collective", collective="all_reduce")
        recorder.state(call, "after", "output", 0, tensor)
    assert sum(room.nbytes for room, _ in fake.copies) < 2 * 64 * 1024
    found, wanted = chunkscope.read(tmp_path / "run"), chunkscope.read(tmp_path / "other")
    for column in ("digest", "digest_of", "first", "min", "max", "mean", "nan"):
        assert found.states[column][1] == wanted.states[column][0] is not None


def test_what_the_device_has_not_done_stays_open(fake: FakeDevice, tmp_path: Path) -> None:
    begun = time.monotonic()
    with chunkscope.record(tmp_path / "run", state="full"):
        dist.all_reduce(torch.ones(2))
    assert time.monotonic() - begun < 5.0
    row, before, after = read_one(tmp_path / "run")
    assert (row["status"], row.get("t_end_ns"), before, after) == ("begun", None, [None], [])


def test_records_are_written_at_later_calls(fake: FakeDevice, tmp_path: Path) -> None:
    with chunkscope.record(tmp_path / "run", state="full"):
        dist.all_reduce(torch.ones(2))
        _, *early = read_one(tmp_path / "run")
        fake.finish()
        dist.all_reduce(torch.ones(2))
        _, *late = read_one(tmp_path / "run")
    assert early == [[], []]
    assert late == [[[1.0, 1.0]], [[1.0, 1.0]]]


def test_graph_gets_no_copies_and_the_trace_says_so(fake: FakeDevice, tmp_path: Path) -> None:
    with chunkscope.record(tmp_path / "run", state="full"):
        dist.all_reduce(torch.ones(2))
        fake.finish()
        fake.is_capture = True
        for _ in range(3):
            dist.all_reduce(torch.ones(2), async_op=True)
        fake.is_capture = False
    trace = chunkscope.read(tmp_path / "run")
    assert trace.events["status"].to_list() == ["ok"] * 4
    assert len(fake.copies) == 2
    assert sum("replays are not recorded" in note for note in trace.meta.notes) == 1


def test_device_that_fails_is_one_warning(
    fake: FakeDevice, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fake_tensor = torch.ones(2)
    with chunkscope.record(tmp_path / "run", state="full"):
        dist.all_reduce(fake_tensor)
        fake.is_broken = True
        for _ in range(3):
            dist.all_reduce(fake_tensor)
        fake.is_broken = False
    assert capfd.readouterr().err.count("illegal memory access") <= 1
    assert len(chunkscope.read(tmp_path / "run").where(kind="collective")) == 4


def test_copies_that_wait_have_a_bound(
    fake: FakeDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "HELD_BYTES", 1000)
    with chunkscope.record(tmp_path / "run", state="full"):
        for _ in range(10):
            dist.all_reduce(torch.ones(100))
        fake.finish()
    assert len(fake.copies) == 3
    trace = chunkscope.read(tmp_path / "run")
    assert trace.events["status"].to_list() == ["ok"] * 10


def test_odd_tensors_are_copied(fake: FakeDevice, tmp_path: Path) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    odd = [whole.t(), whole[1:, 1], torch.ones(0), torch.tensor(3.0), torch.tensor([True])]
    recorder = Recorder(tmp_path / "run", Options(state="full"))
    queued = cuda.Queued(fake, lambda error: pytest.fail(str(error)))
    event = cuda.OnDevice(recorder, recorder.begin("collective"), odd, b"output", False)
    queued.take(event, torch.device("cpu"), b"input", odd)
    event.end()
    fake.finish()
    queued.poll()
    recorder.close()
    trace = chunkscope.read(tmp_path / "run")
    found = [trace.values(state) for state in trace.states_of(0, when="after")]
    assert [None if each is None else each.tolist() for each in found] == [
        each.tolist() for each in odd
    ]


def test_clock_takes_the_moment_when_the_device_was_idle() -> None:
    fake = FakeDevice()
    times = {"first": 1_000, "second": 5_000, "third": 20_000}
    marks = {name: {"at": at, "done": 1} for name, at in times.items()}
    clock = cuda.DeviceClock(fake, marks["first"], 700)  # the device was 300 behind
    assert clock.host_ns(marks["second"], 4_990) == 4_990
    assert clock.host_ns(marks["third"], 12_000) == 19_990
