"""Our ring all_reduce against native gloo's on four hosts with links of 100 Mbit/s.

    sudo python tests/benchmarks/shaped_links.py

The hosts are network namespaces; a fifth one holds the switch. Each link is shaped in both
directions with tc's token bucket. Both run in turn; medians and their ratio are printed. The bar is
1.05 from 1 MB up. Needs root, ip and tc; everything is removed again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator

RANKS = 4
RATE = "100mbit"
ROUNDS = {1_000_000: 15, 16_000_000: 5}
PREFIX = f"cs{os.getpid()}"
PORT = 29531


def race(size_bytes: int, rounds: int, variants: list[dict[str, int]]) -> list[list[float]]:
    """Return seconds a call at this rank: of native, then of ours, once a variant."""
    import time

    import torch
    import torch.distributed as dist

    import chunkscope
    import chunkscope.sim.execute as execute

    ring = chunkscope.build("all_reduce", "ring", dist.get_world_size())
    tensor = torch.ones(size_bytes // 4)
    times: list[list[float]] = [[] for _ in range(len(variants) + 1)]
    compile_program = execute.compile_program
    for number in range(rounds + 1):
        for which in range(len(times)):
            tensor.fill_(1.0)
            if which:
                given = variants[which - 1]
                execute._plan.cache_clear()
                execute.compile_program = lambda b, p, g=given, **k: compile_program(
                    b, p, **(k | g)
                )
                execute._plan(
                    ring, dist.get_rank(), 4, "SUM", tensor.numel(), "float32", None, False
                )
            dist.barrier()
            start = time.perf_counter()
            if which == 0:
                dist.all_reduce(tensor)
            else:
                chunkscope.execute(ring, tensor)
            taken = time.perf_counter() - start
            assert tensor[0] == tensor[-1] == dist.get_world_size()
            if number:
                times[which].append(taken)
    return times


def worker(rank: int, variants: list[dict[str, int]]) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://10.77.0.1:{PORT}", rank=rank, world_size=RANKS
    )
    found = {size: race(size, rounds, variants) for size, rounds in ROUNDS.items()}
    print(json.dumps(found))
    dist.barrier()


def run(*words: str) -> None:
    subprocess.run(words, check=True, timeout=20)


@contextlib.contextmanager
def hosts() -> Iterator[list[str]]:
    """Make the namespaces and links, yield the hosts' names, and remove all of it."""
    names = [f"{PREFIX}-{rank}" for rank in range(RANKS)]
    switch = f"{PREFIX}-switch"
    made: list[str] = []
    try:
        for name in (switch, *names):
            run("ip", "netns", "add", name)
            made.append(name)
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
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False, timeout=20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", type=int)
    parser.add_argument("--variants", type=json.loads, default=[{}])
    options = parser.parse_args()
    if options.worker is not None:
        worker(options.worker, options.variants)
        return
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
    with hosts() as names:
        command = [sys.executable, __file__, "--variants", json.dumps(options.variants)]
        workers = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, *command, "--worker", str(rank)],
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for rank, name in enumerate(names)
        ]
        try:
            answers = [json.loads(process.communicate(timeout=280)[0]) for process in workers]
        finally:
            for process in workers:
                process.kill()
    print(f"{'size':>6}  {'native ms':>10}  {'ours ms':>10}  {'ratio':>6}")
    for size in ROUNDS:
        rows = [answer[str(size)] for answer in answers]
        slowest = [
            statistics.median(max(call) for call in zip(*(row[k] for row in rows))) * 1e3
            for k in range(len(rows[0]))
        ]
        for variant, ours in zip(options.variants, slowest[1:], strict=True):
            name = f"{size // 1_000_000} MB"
            ratio = ours / slowest[0]
            print(f"{name:>6}  {slowest[0]:>10.1f}  {ours:>10.1f}  {ratio:>6.3f}  {variant or ''}")


if __name__ == "__main__":
    main()
