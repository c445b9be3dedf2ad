"""Our ring all_reduce against native gloo's on four hosts with links of 100 Mbit/s.

    sudo python tests/benchmarks/shaped_links.py

The hosts are network namespaces; a fifth one holds the switch. Each link is shaped in both
directions with tc's token bucket. The bar is a ratio of 1.05 from 1 MB up. Needs root, ip and tc;
everything is removed again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

from _race import HEADER, race, row

RANKS = 4
RATE = "100mbit"
ROUNDS = {1_000_000: 25, 16_000_000: 7}
PREFIX = f"chunkscope-{os.getpid()}"
STORE = "tcp://10.77.0.1:29531"


def worker(rank: int) -> None:
    """Be one rank and print its times."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=STORE, rank=rank, world_size=RANKS)
    found = {size: race(size, rounds) for size, rounds in ROUNDS.items()}
    dist.barrier()
    print(json.dumps(found))


def run(*words: str) -> None:
    subprocess.run(words, check=True, timeout=20)


@contextlib.contextmanager
def hosts() -> Iterator[list[str]]:
    """Make the namespaces and links, yield the hosts' names, and remove all of it."""
    names = [f"{PREFIX}-{rank}" for rank in range(RANKS)]
    switch = f"{PREFIX}-switch"
    try:
        for name in (switch, *names):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        for rank, name in enumerate(names):
            port = f"port{rank}"
            veth = ("type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "-n", switch, "link", "add", port, *veth)
            run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
            run("ip", "-n", name, "addr", "add", f"10.77.0.{rank + 1}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            for namespace, device in ((switch, port), (name, "eth0")):
                shape = ("tbf", "rate", RATE, "burst", "32kb", "latency", "50ms")
                run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", *shape)
        yield names
    finally:
        for name in (*names, switch):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def main() -> None:
    if len(sys.argv) > 1:
        worker(int(sys.argv[1]))
        return
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        print("shaped links: left out, they need root, and ip and tc (Debian: iproute2)")
        return
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
    with hosts() as names:
        workers = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, sys.executable, __file__, str(rank)],
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for rank, name in enumerate(names)
        ]
        try:
            answers = [json.loads(process.communicate(timeout=200)[0]) for process in workers]
        finally:
            for process in workers:
                process.kill()
                process.wait()
    print(HEADER)
    for size_bytes in ROUNDS:
        print(row(size_bytes, [answer[str(size_bytes)] for answer in answers]))


if __name__ == "__main__":
    main()
