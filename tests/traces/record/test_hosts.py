"""Two hosts, as far as one machine can be two: own addresses, own names, own clocks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import chunkscope
from chunkscope.traces.merge import merge

LIMIT_S = 100
AHEAD_S = 1000  # what the second host's clock is ahead
RUN = "import sys; from pathlib import Path; from chunkscope.traces.record.launch import "
RUN += "run_recorded; sys.exit(run_recorded(sys.argv[2:], Path(sys.argv[1])))"
PROGRAM = """
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mine = torch.ones(4) * (rank + 1)
    for _ in range(3):
        dist.all_reduce(mine)
        dist.send(mine, 1) if rank == 0 else dist.recv(mine, 0)
    dist.destroy_process_group()
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=20, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Names of two network namespaces with a link between them; skips where that needs rights."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare"))):
        pytest.skip("network namespaces need root, ip and unshare")
    names = [f"chunkscope-{os.getpid()}-{k}" for k in (0, 1)]
    try:
        try:
            for name in names:
                ip("netns", "add", name)
            subprocess.run(
                ["unshare", "--uts", "--time", "--monotonic", "5", "true"], check=True, timeout=20
            )
        except subprocess.CalledProcessError:
            pytest.skip("this system lets nobody make namespaces")
        veth = ("type", "veth", "peer", "name", "eth0", "netns", names[1])
        ip("-n", names[0], "link", "add", "eth0", *veth)
        for k, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.78.0.{k + 1}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.mark.ranks
@pytest.mark.parametrize("is_shared", [True, False])
def test_two_hosts_make_one_recording(is_shared: bool, hosts: list[str], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    folders = [tmp_path / ("run" if is_shared else f"run-{k}") for k in (0, 1)]
    variables = {
        "GLOO_SOCKET_IFNAME": "eth0",
        "MASTER_ADDR": "10.78.0.1",
        "MASTER_PORT": "29600",
        "WORLD_SIZE": "2",
    }
    launchers = []
    for k, (name, folder) in enumerate(zip(hosts, folders, strict=True)):
        inside = f'hostname host{k}; exec ip netns exec {name} "$@"'
        apart = ["unshare", "--uts", "--time", "--monotonic", str(k * AHEAD_S), "--fork"]
        launchers.append(
            subprocess.Popen(
                [*apart, "sh", "-c", inside, "sh", sys.executable, "-c", RUN, folder, program],
                env={**os.environ, **variables, "RANK": str(k)},
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        errors = [launcher.communicate(timeout=LIMIT_S)[1] for launcher in launchers]
    finally:
        for launcher in launchers:
            launcher.kill()
    assert [launcher.returncode for launcher in launchers] == [0, 0], errors
    whole = folders[0]
    if not is_shared:
        whole = tmp_path / "whole"
        merge(whole, folders)
    trace = chunkscope.read(whole)
    processes = {process.rank: process for process in trace.meta.processes}
    assert [processes[k].host for k in (0, 1)] == ["host0", "host1"]
    assert [processes[k].exit_code for k in (0, 1)] == [0, 0]
    clocks = {clock.file: clock for clock in trace.meta.clocks}
    other = clocks[processes[1].file]
    assert clocks[processes[0].file].error_ns == 0
    assert abs(other.offset_ns + AHEAD_S * 10**9) <= other.error_ns
    assert other.error_ns < 10**9
    assert "clocks of 2 hosts aligned to within" in " ".join(trace.meta.notes)
    issue, end = (trace.events[name] for name in ("t_issue_ns", "t_end_ns"))
    sends, recvs = (trace.where(kind=kind) for kind in ("send", "recv"))
    assert len(sends) == len(recvs) == 3
    for send, recv in zip(sends.tolist(), recvs.tolist(), strict=True):
        assert end.values[recv] >= issue.values[send]
