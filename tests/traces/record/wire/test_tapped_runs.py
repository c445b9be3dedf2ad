"""Real programs through the tap: they behave as without it, and every message is there."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chunkscope
from chunkscope.traces.trace import Trace

pytestmark = pytest.mark.ranks
LIMIT_S = 100

RUN = """
import sys
from pathlib import Path
from chunkscope.traces.record.launch import run_recorded
from chunkscope.traces.record.options import Options
if __name__ == "__main__":
    folder, wire, *argv = sys.argv[1:]
    sys.exit(run_recorded(argv, Path(folder), options=Options(wire=wire)))
"""

PROGRAM = """
import os, signal, sys, time
import torch, torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, n):
{body}

def start(rank, n, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{{folder}}/store", rank=rank, world_size=n)
    work(rank, n)

if __name__ == "__main__":
    n = int(sys.argv[1])
    ranks = mp.spawn(start, (n, sys.argv[2]), n, join=False)
    while not ranks.join():
        pass
"""


def command(folder: Path, body: str, n: int, wire: str = "digest") -> list[str]:
    path = folder / "program.py"
    path.write_text(PROGRAM.format(body=textwrap.indent(textwrap.dedent(body), "    ")))
    words = [sys.executable, "-c", RUN, str(folder / "run"), wire, str(path), str(n), str(folder)]
    return words


def launch(folder: Path, body: str, n: int, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program of n ranks under the launcher, with a tap."""
    words = command(folder, body, n, more.pop("wire", "digest"))
    return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, **more)


def wire_rows(trace: Trace, **cells: Any) -> list[dict[str, Any]]:
    """Return the cells of the rows that the tap wrote."""
    rows = trace.where(provenance="wire", **cells)
    table = trace.events.take(rows)
    columns = {name: column.to_list() for name, column in table.columns.items()}
    return [{name: cell[k] for name, cell in columns.items()} for k in range(len(rows))]


def payloads(trace: Trace, **cells: Any) -> list[list[float]]:
    found = []
    for row in trace.where(provenance="wire", **cells):
        [state] = trace.states_of(int(row))
        data = trace.states["data"].to_list()[int(state)]
        found.append(np.frombuffer(data, np.float32).tolist())
    return found


def assert_in_order(rows: list[dict[str, Any]]) -> None:
    """Both ends of a message say the same times, and a connection's messages follow one another."""
    ends: dict[Any, list[Any]] = {"send": [], "recv": []}
    edges: dict[Any, list[tuple[int, int]]] = {}
    for row in sorted(rows, key=lambda row: (row["file"], row["seq"])):
        times = row["t_start_ns"], row["t_end_ns"]
        ends[row["kind"]].append((row["seq"] // 2, row["tag"], *times))
        if row["kind"] == "send":
            edges.setdefault((row["group"], row["rank"], row["peer"]), []).append(times)
    assert ends["send"] == ends["recv"]
    for edge in edges.values():
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(edge)), edge


def test_three_ranks(tmp_path: Path) -> None:
    """Results, exit code and messages of many collectives, groups and sizes."""
    done = launch(
        tmp_path,
        """
        tensor = torch.full((3,), float(10 ** rank))
        dist.all_reduce(tensor)
        assert tensor.tolist() == [111.0] * 3
        big = torch.full((300_000,), float(rank))
        dist.all_reduce(big)
        assert big.unique().tolist() == [3.0]
        dist.broadcast(big, 2)
        pairs = dist.new_group([0, 2])
        again = dist.new_group([0, 2])
        if rank != 1:
            tensor = torch.full((2,), float(rank + 5))
            dist.all_reduce(tensor, group=again)
            assert tensor.tolist() == [12.0, 12.0]
        if rank == 1:
            dist.send(torch.tensor([1.5, 2.5]), 0, tag=77)
        if rank == 0:
            dist.recv(torch.zeros(2), 1, tag=77)
        dist.barrier()
        dist.destroy_process_group()
        os._exit(3) if rank == 0 else None
        """,
        3,
    )
    assert done.returncode == 1, done.stderr  # as mp.spawn has it
    assert "exit code 3" in done.stderr
    trace = chunkscope.read(tmp_path / "run")
    rows = wire_rows(trace)
    assert {row["status"] for row in rows} == {"ok"}
    assert sum(row["kind"] == "send" for row in rows) * 2 == len(rows)
    for row in rows:
        ranks = trace.meta.groups[row["group"]].ranks
        assert ranks[row["group_rank"]] == row["rank"]
        assert ranks[row["peer_group_rank"]] == row["peer"]
        assert row["t_issue_ns"] <= row["t_start_ns"] <= row["t_end_ns"]
    assert_in_order(rows)
    # No message of a group is older than its first call there, nor younger than its last one's end.
    for row in rows:
        calls = [
            (trace.events["t_issue_ns"][call], trace.events["t_end_ns"][call])
            for kind in ("collective", "send", "recv")
            for call in trace.where(
                provenance="called", kind=kind, rank=row["rank"], group=row["group"]
            ).tolist()
        ]
        assert min(begin for begin, _ in calls) <= row["t_issue_ns"]
        if row["kind"] == "recv":
            assert row["t_end_ns"] <= max(end for _, end in calls)
    kinds = {row["tag"] >> 56 for row in rows}
    assert kinds >= {0, 4, 6, 7}  # p2p, all_reduce, broadcast, barrier
    assert payloads(trace, kind="recv", rank=0, tag=77) == [[1.5, 2.5]]
    # Of the two groups of the same ranks the second one alone was used.
    [index] = [k for k, g in enumerate(trace.meta.groups) if g.ranks == (0, 2) and g.ordinal == 1]
    assert {row["group"] for row in rows} == {0, index}
    called = trace.where(provenance="called", kind="collective", group=index)
    assert len(called) == 2
    # The first all_reduce: each of three elements goes two steps of reducing and two of gathering.
    tag = min(row["tag"] for row in rows if row["tag"] >> 56 == 4)
    sums = sorted(
        value for message in payloads(trace, kind="send", tag=tag, group=0) for value in message
    )
    assert sums == [1.0, 100.0, 100.0, 101.0, 110.0, 110.0] + [111.0] * 6


def test_killed_rank(tmp_path: Path) -> None:
    """A peer's death shows as without the tap, and what it sent before is there."""
    done = launch(
        tmp_path,
        """
        dist.all_reduce(torch.ones(4))
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            dist.all_reduce(torch.ones(4))
        except RuntimeError as error:
            print("peer saw", "onnection" in str(error), flush=True)
            time.sleep(1)
        """,
        2,
    )
    assert done.returncode == 1, done.stderr
    assert "SIGKILL" in done.stderr
    trace = chunkscope.read(tmp_path / "run")
    tags = [row["tag"] >> 24 & 0xFFFFFFFF for row in wire_rows(trace, kind="send", status="ok")]
    assert tags.count(min(tags)) == 8  # four segments, reduced and gathered


def test_nobody_receives(tmp_path: Path) -> None:
    """A send that the program leaves alone is a send that began, without a recv."""
    done = launch(
        tmp_path,
        """
        if rank == 0:
            dist.isend(torch.ones(4), 1, tag=9)
        if rank == 1:
            dist.irecv(torch.ones(2), 0, tag=8)
        time.sleep(1)
        os._exit(0)
        """,
        2,
    )
    assert done.returncode == 0, done.stderr
    rows = wire_rows(chunkscope.read(tmp_path / "run"))
    found = [(row["kind"], row["rank"], row["tag"], row["status"]) for row in rows]
    assert sorted(found) == [("recv", 1, 8, "begun"), ("send", 0, 9, "begun")]


def test_tap_killed(tmp_path: Path) -> None:
    """The ranks lose their connection, and the launcher says that it was the tap."""
    done = launch(
        tmp_path,
        """
        dist.all_reduce(torch.ones(4))
        time.sleep(1)  # longer than the tap waits before it writes
        if rank == 0:
            import glob
            [path] = glob.glob(sys.argv[2] + "/run/wire-*.jsonl")
            os.kill(int(path.split("-")[-1].split(".")[0]), signal.SIGKILL)
        dist.all_reduce(torch.ones(4))
        """,
        2,
    )
    assert done.returncode == 1
    assert "the wire tap ended before the program" in done.stderr
    assert wire_rows(chunkscope.read(tmp_path / "run"), status="ok")


def test_ctrl_c(tmp_path: Path) -> None:
    """Ctrl-C ends the program; the tap, in a session of its own, keeps what it saw."""
    body = """
        dist.all_reduce(torch.ones(4))
        open(f"{sys.argv[2]}/ready-{rank}", "w").close()
        time.sleep(60)
    """
    process = subprocess.Popen(
        command(tmp_path, body, 2), stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        deadline = time.monotonic() + LIMIT_S
        while not all((tmp_path / f"ready-{rank}").exists() for rank in range(2)):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert process.returncode != 0
    trace = chunkscope.read(tmp_path / "run")
    assert len(wire_rows(trace, kind="send", status="ok")) >= 4
    [tap] = [file for file in trace.meta.processes if file.file and file.file.startswith("wire-")]
    assert tap.closed


TWO_HOSTS = """
import sys
import torch, torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="tcp://10.78.0.1:29533", rank=rank, world_size=2)
tensor = torch.arange(8.0) + rank
dist.all_reduce(tensor)
assert tensor.tolist() == [2 * k + 1.0 for k in range(8)]
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and ip (iproute2)"
)
def test_two_hosts(tmp_path: Path) -> None:
    """Each host has its own tap; both together see every message once, at real addresses."""
    hosts = [f"chunkscope-{os.getpid()}-{rank}" for rank in range(2)]

    def run(*words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, timeout=20)
        if done.returncode:
            pytest.skip(f"no network namespaces here: {done.stderr.decode().strip()}")

    (tmp_path / "program.py").write_text(TWO_HOSTS)
    processes = []
    try:
        for host in hosts:
            run("netns", "add", host)
            run("-n", host, "link", "set", "lo", "up")
        veth = ("type", "veth", "peer", "name", "eth0", "netns", hosts[1])
        run("-n", hosts[0], "link", "add", "eth0", *veth)
        for rank, host in enumerate(hosts):
            run("-n", host, "addr", "add", f"10.78.0.{rank + 1}/24", "dev", "eth0")
            run("-n", host, "link", "set", "eth0", "up")
        for rank, host in enumerate(hosts):
            words = [sys.executable, "-c", RUN, str(tmp_path / f"run-{rank}"), "digest"]
            words += [str(tmp_path / "program.py"), str(rank)]
            processes.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", host, *words],
                    env={**os.environ, "GLOO_SOCKET_IFNAME": "eth0"},
                )
            )
        assert [process.wait(LIMIT_S) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host], capture_output=True, timeout=20)
    found = [chunkscope.read(tmp_path / f"run-{rank}") for rank in range(2)]
    seen = [wire_rows(trace, kind="send", status="ok") for trace in found]
    assert [row["rank"] for row in seen[0]] == []  # the larger address connects
    reduced = [row["rank"] for row in seen[1] if row["tag"] >> 56 == 4]
    assert (reduced.count(0), reduced.count(1)) == (4, 4)
