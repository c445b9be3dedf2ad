"""What the recorder costs a call: bare and recorded in turns, in one run, as ratios.

Run it:

    python tests/benchmarks/recorder_cost.py

One rank shows the main thread's CPU time a call, without the network's noise; two ranks show what a
program feels. The parts of a run take turns many times, so that what else the machine does falls
on all of them; the table has the lowest and the middle of the turns.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from chunkscope.traces.record.hooks import Hooks
from chunkscope.traces.record.options import Options
from chunkscope.traces.record.ranks import Ranks
from chunkscope.traces.record.start import start, stop

TURNS = 60


def in_turns(
    work: Callable[[], None], calls: int, folder: Path, clock: Callable[[], int]
) -> dict[str, list[float]]:
    """Return µs a call of each turn, by what was in place."""
    costs: dict[str, list[float]] = {}

    def measure(name: str) -> None:
        begun = clock()
        for _ in range(calls):
            work()
        costs.setdefault(name, []).append((clock() - begun) / calls / 1e3)

    for turn in range(TURNS):
        measure("bare")
        hooks = Hooks([])
        hooks.install()
        measure("empty hook")
        hooks.remove()
        for state in ("none", "sample", "full"):
            recorder = start(folder / f"{state}-{turn}", Options(state=state), run="benchmark")
            work()
            measure(f"recorded, state {state}")
            stop(recorder)
    return costs


def one_rank() -> dict[str, list[float]]:
    """CPU time of the main thread for a tiny all_reduce on one rank."""
    tensor = torch.ones(4)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return in_turns(lambda: dist.all_reduce(tensor), 50, Path(folder), time.thread_time_ns)
    finally:
        dist.destroy_process_group()


def two_ranks(elements: int, calls: int, folder: str) -> dict[str, list[float]]:
    """Latency of an all_reduce on two ranks; runs in each of them."""
    tensor = torch.ones(elements)
    return in_turns(lambda: dist.all_reduce(tensor), calls, Path(folder), time.perf_counter_ns)


def show(title: str, costs: dict[str, list[float]]) -> None:
    """Print a table of one measurement."""
    print(f"\n{title}")
    print(f"{'':24}{'lowest':>10}{'middle':>10}{'above bare':>12}{'ratio':>8}")
    bare = min(costs["bare"])
    for name, turns in costs.items():
        low = min(turns)
        middle = statistics.median(turns)
        print(f"{name:24}{low:10.1f}{middle:10.1f}{low - bare:12.1f}{low / bare:8.2f}")


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    show("1 rank, all_reduce of 16 B: µs of the main thread's CPU a call", one_rank())
    with Ranks(2) as ranks, tempfile.TemporaryDirectory() as folder:
        for elements, calls, name in ((4, 30, "16 B"), (4 * 1024 * 1024, 1, "16 MB")):
            costs = ranks.run(two_ranks, elements, calls, f"{folder}/{elements}", timeout=300)
            show(f"2 ranks, all_reduce of {name}: µs a call, rank 0", costs[0])


if __name__ == "__main__":
    main()
