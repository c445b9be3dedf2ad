"""Hosts that are network namespaces, joined by a switch, on links shaped with tc's token bucket.

    with hosts(4, "100mbit") as names:
        outputs = run_on(names, [sys.executable, "script.py"], timeout=200)

Each program finds the variables of torch.distributed, as torchrun sets them. Needs root, ip and tc;
everything is removed again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence

PREFIX = f"chunkscope-{os.getpid()}"
NETWORK = "10.77.0"
PORT = 29531
MISSING = "left out: they need root, and ip and tc (Debian: iproute2)"


def are_possible() -> bool:
    """Return whether this process can make such hosts."""
    return os.geteuid() == 0 and all(shutil.which(program) for program in ("ip", "tc"))


@contextlib.contextmanager
def hosts(n: int, rate: str, settings: Mapping[str, str] | None = None) -> Iterator[list[str]]:
    """Make the namespaces and links, yield the hosts' names, and remove all of it.

    Args:
        n: Number of hosts.
        rate: Rate of each link, each way, as tc writes it.
        settings: Files below /proc/sys of each host, and what to write there.
    """
    names = [f"{PREFIX}-{rank}" for rank in range(n)]
    switch = f"{PREFIX}-switch"
    try:
        for name in (switch, *names):
            _do("ip", "netns", "add", name)
            _do("ip", "-n", name, "link", "set", "lo", "up")
        _do("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _do("ip", "-n", switch, "link", "set", "bridge", "up")
        for rank, name in enumerate(names):
            port = f"port{rank}"
            veth = ("type", "veth", "peer", "name", "eth0", "netns", name)
            _do("ip", "-n", switch, "link", "add", port, *veth)
            _do("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
            _do("ip", "-n", name, "addr", "add", f"{NETWORK}.{rank + 1}/24", "dev", "eth0")
            _do("ip", "-n", name, "link", "set", "eth0", "up")
            for path, value in (settings or {}).items():
                _do("ip", "netns", "exec", name, "sh", "-c", f"echo {value} > /proc/sys/{path}")
            for namespace, device in ((switch, port), (name, "eth0")):
                shape = ("tbf", "rate", rate, "burst", "32kb", "latency", "50ms")
                _do("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", *shape)
        yield names
    finally:
        for name in (*names, switch):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def run_on(names: Sequence[str], command: Sequence[str], *, timeout: float) -> list[str]:
    """Run a command on every host, each as a rank of one job, and return what each printed.

    Raises:
        RuntimeError: One of them failed.
        subprocess.TimeoutExpired: One did not end in time.
    """
    running = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, *command],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **_variables(rank, len(names))},
        )
        for rank, name in enumerate(names)
    ]
    try:
        outputs = [process.communicate(timeout=timeout)[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    codes = [process.returncode for process in running]
    if any(codes):
        raise RuntimeError(f"{' '.join(command)} ended with {codes}")
    return outputs


def _variables(rank: int, n: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(n),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": f"{NETWORK}.1",
        "MASTER_PORT": str(PORT),
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
    }


def _do(*words: str) -> None:
    subprocess.run(words, check=True, timeout=20)
