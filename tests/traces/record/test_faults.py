"""What goes wrong in real jobs: everything up to that moment opens, and the program ends as bare.

One program does all the faults side by side, each on two forked ranks. It runs once bare and once
recorded; exit codes and output must be the same.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chunkscope

pytest.importorskip("torch")
pytestmark = pytest.mark.ranks

LIMIT_S = 120
PROGRAM = """
import ctypes, datetime, json, multiprocessing, os, signal, sys, tempfile, time
import torch, torch.distributed as dist

WAIT_S = 4


def join(rank, store):
    limit = datetime.timedelta(seconds=WAIT_S)
    place = {"init_method": "file://" + store, "rank": rank, "world_size": 2}
    dist.init_process_group("gloo", timeout=limit, **place)
    for value in (1.0, 2.0):
        dist.all_reduce(torch.full((3,), value + rank))


def dies(rank, how):
    if rank == 0:
        how()
    try:
        dist.all_reduce(torch.ones(3))
    except RuntimeError:
        sys.exit(5)


def killed(rank):
    dies(rank, lambda: os.kill(os.getpid(), signal.SIGKILL))


def segfault(rank):
    dies(rank, lambda: ctypes.string_at(0))


def left(rank):
    dies(rank, lambda: os._exit(3))


def raised(rank):
    def fail():
        raise ZeroDivisionError("the program's own")
    dies(rank, fail)


def exits(rank):
    sys.exit(4 + rank)


def absent(rank):
    if rank == 1:
        time.sleep(WAIT_S + 2)
        os._exit(0)
    try:
        dist.all_reduce(torch.ones(3))
    except RuntimeError:
        os._exit(6)


def deadlock(rank):
    try:
        dist.send(torch.ones(3), 1 - rank)
    except RuntimeError:
        os._exit(7)


def mismatch(rank):
    try:
        if rank == 0:
            dist.all_reduce(torch.ones(3))
        else:
            dist.broadcast(torch.ones(3), 0)
    except RuntimeError:
        os._exit(8)
    os._exit(9)


def leaves_work(rank):
    works = [dist.all_reduce(torch.ones(1 << 16), async_op=True) for _ in range(8)]
    if rank == 0:  # what nobody sends to, and what nobody reduces with
        works.append(dist.irecv(torch.ones(3), 1))
        works.append(dist.all_reduce(torch.ones(3), async_op=True))
    works[0].get_future().then(lambda future: future.value())
    sys.exit(11 + rank)


def never_joins(rank, store):
    if rank == 1:
        sys.exit(0)
    limit = datetime.timedelta(seconds=WAIT_S)
    try:
        place = {"init_method": "file://" + store, "rank": 0, "world_size": 2}
        dist.init_process_group("gloo", timeout=limit, **place)
    except RuntimeError:
        sys.exit(10)


def start(fault, rank, store):
    descriptor = os.open(f"{store}-{rank}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    if fault is never_joins:
        return fault(rank, store)
    join(rank, store)
    print("joined", flush=True)
    fault(rank)


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    context = multiprocessing.get_context("fork")
    faults = (killed, segfault, left, raised, exits, absent, deadlock, mismatch)
    faults += (leaves_work, never_joins)
    ranks = {
        (fault.__name__, rank): context.Process(
            target=start,
            args=(fault, rank, f"{folder}/{fault.__name__}"),
        )
        for fault in faults
        for rank in (0, 1)
    }
    for process in ranks.values():
        process.start()
    found = []
    for (fault, rank), process in ranks.items():
        process.join()
        with open(f"{folder}/{fault}-{rank}.out") as out:
            found.append([fault, rank, process.pid, process.exitcode, out.read()])
    json.dump(found, sys.stdout)
"""
RUN = "import sys; from chunkscope.__main__ import main; main(sys.argv[1:])"


class Ends:
    """How each rank of each fault ended, and what its file of the recording holds."""

    def __init__(self, bare: list[Any], recorded: list[Any], trace: chunkscope.Trace) -> None:
        self.bare = {(fault, rank): rest for fault, rank, _, *rest in bare}
        self.recorded = {(fault, rank): rest for fault, rank, _, *rest in recorded}
        self.pids = {(fault, rank): pid for fault, rank, pid, *_ in recorded}
        self.trace = trace

    def process(self, fault: str, rank: int) -> Any:
        """Return what the trace says of a process; None where it wrote nothing."""
        pid = self.pids[fault, rank]
        return next((one for one in self.trace.meta.processes if one.pid == pid), None)

    def statuses(self, fault: str, rank: int, kind: str = "collective") -> list[str]:
        """Return the status of a rank's rows of a kind, in order."""
        process = self.process(fault, rank)
        rows = self.trace.where(file=process.file, kind=kind)
        return [self.trace.events["status"][int(row)] for row in rows]


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Ends:
    folder = tmp_path_factory.mktemp("faults")
    program = folder / "faults.py"
    program.write_text(PROGRAM)
    record = [sys.executable, "-c", RUN, "record", "-o", str(folder / "run"), str(program)]
    found = []
    for command in ([sys.executable, str(program)], record):
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    return Ends(found[0], found[1], chunkscope.read(folder / "run"))


def test_ranks_end_as_they_do_bare(ends: Ends) -> None:
    assert ends.recorded == ends.bare
    assert {fault: ends.bare[fault, 0][0] for fault, _ in ends.bare} == {
        "killed": -signal.SIGKILL,
        "segfault": -signal.SIGSEGV,
        "left": 3,
        "raised": 1,
        "exits": 4,
        "absent": 6,
        "deadlock": 7,
        "mismatch": ends.bare["mismatch", 0][0],  # gloo decides: 8 or 9
        "leaves_work": 11,
        "never_joins": 10,
    }


@pytest.mark.parametrize("fault", ["killed", "segfault", "left", "raised"])
def test_rank_that_died_left_what_it_had_done(ends: Ends, fault: str) -> None:
    assert ends.statuses(fault, 0) == ["ok", "ok"]
    assert ends.process(fault, 0).closed == (fault == "raised")
    assert ends.statuses(fault, 1) == ["ok", "ok", "error"]
    rows = ends.trace.where(file=ends.process(fault, 1).file, status="error")
    assert "RuntimeError: " in ends.trace.events["error"][int(rows[0])]


def test_rank_that_left_in_order_closed_its_file(ends: Ends) -> None:
    assert ends.statuses("exits", 0) == ends.statuses("exits", 1) == ["ok", "ok"]
    assert ends.process("exits", 0).closed
    assert ends.process("exits", 1).closed


def test_collective_that_a_rank_never_reached_is_an_error_on_the_one_that_waited(
    ends: Ends,
) -> None:
    assert ends.statuses("absent", 0) == ["ok", "ok", "error"]
    assert ends.statuses("absent", 1) == ["ok", "ok"]
    assert not ends.process("absent", 1).closed


def test_work_that_nobody_waited_for_neither_aborts_nor_is_lost(ends: Ends) -> None:
    for rank in (0, 1):
        assert ends.recorded["leaves_work", rank] == [11 + rank, "joined\n"]
        assert ends.process("leaves_work", rank).closed
        assert len(ends.statuses("leaves_work", rank)) == (11, 10)[rank]
    assert len(ends.statuses("leaves_work", 0, "recv")) == 1


def test_both_sends_of_a_deadlock_are_there(ends: Ends) -> None:
    for rank in (0, 1):
        assert ends.statuses("deadlock", rank, "send") == ["error"]


def test_rank_that_never_joins_leaves_a_group_that_began(ends: Ends) -> None:
    assert ends.process("never_joins", 1) is None
    assert ends.statuses("never_joins", 0, "group") == ["error"]


def test_values_up_to_a_sigkill_are_there(ends: Ends) -> None:
    rows = ends.trace.where(file=ends.process("killed", 0).file, kind="collective")
    states = [ends.trace.states_of(int(row)) for row in rows]
    values = [[ends.trace.values(int(state)) for state in pair] for pair in states]
    np.testing.assert_array_equal(values, [[[1.0] * 3, [3.0] * 3], [[2.0] * 3, [5.0] * 3]])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


FILLS = """
import sys
import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
tensor = torch.zeros(8000)
for turn in range(40):
    tensor += 1
    dist.all_reduce(tensor)
print(tensor.sum().item())
sys.exit(12)
"""


def test_full_disk_ends_the_recording_and_not_the_program(small_disk: Path, tmp_path: Path) -> None:
    program = tmp_path / "fills.py"
    program.write_text(FILLS)
    command = [sys.executable, "-c", RUN, "record", "-o", str(small_disk / "run"), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.stdout == "320000.0\n"
    assert done.returncode == 12
    assert done.stderr.count("loses records: No space left on device") == 1
    trace = chunkscope.read(small_disk / "run")
    rows = trace.where(kind="collective", status="ok")
    assert 1 <= len(rows) <= 40
    first = trace.states_of(int(rows[0]), when="after")
    np.testing.assert_array_equal(trace.values(int(first[0])), np.ones(8000))


def test_folder_that_cannot_be_written_is_a_warning_in_the_program(tmp_path: Path) -> None:
    program = tmp_path / "fills.py"
    program.write_text(FILLS)
    site = Path(chunkscope.__file__).parent / "traces" / "record" / "site"
    found = {**os.environ, "PYTHONPATH": str(site), "CHUNKSCOPE_RECORD": "/proc/run"}
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=found,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("320000.0\n", 12)
    assert "this process is not recorded" in done.stderr
    assert "/proc/run" in done.stderr


@pytest.fixture
def alone() -> Iterator[Any]:
    """torch.distributed with a group of this process alone."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist
    dist.destroy_process_group()


def test_ten_thousand_small_collectives(alone: Any, tmp_path: Path) -> None:
    import torch

    tensor = torch.zeros(1, dtype=torch.int64)
    with chunkscope.record(tmp_path / "run"):
        for _ in range(10_000):
            tensor += 1
            alone.all_reduce(tensor)
    trace = chunkscope.read(tmp_path / "run")
    rows = trace.where(kind="collective", status="ok")
    assert trace.events["coll_seq"].take(rows).to_list() == list(range(10_000))
    after = np.flatnonzero(trace.states["when"].where("after"))
    assert [trace.values(int(state)).item() for state in after] == list(range(1, 10_001))
    # What is the same each time is written once.
    assert sum(path.stat().st_size for path in (tmp_path / "run").iterdir()) < 2_500_000


def test_two_hundred_groups(alone: Any, tmp_path: Path) -> None:
    import torch

    with chunkscope.record(tmp_path / "run"):
        groups = [alone.new_group([0]) for _ in range(200)]
        for number, group in enumerate(groups):
            alone.all_reduce(torch.tensor([number]), group=group)
        for group in groups:
            alone.destroy_process_group(group)
    trace = chunkscope.read(tmp_path / "run")
    rows = trace.where(kind="collective", status="ok")
    assert trace.events["coll_seq"].take(rows).to_list() == [0] * 200
    found = [trace.meta.groups[group] for group in trace.events["group"].take(rows).to_list()]
    assert [group.ranks for group in found] == [(0,)] * 200
    assert len({group.ordinal for group in found}) == 200
    made = [trace.events["collective"][int(row)] for row in trace.where(kind="group")]
    assert made == ["new_group"] * 200 + ["destroy_process_group"] * 200
