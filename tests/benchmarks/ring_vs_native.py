"""Our ring all_reduce against native gloo's, unrecorded, on loopback.

    python tests/benchmarks/ring_vs_native.py

Both run in turn, so that the load of the machine hits both alike; medians and their ratio are
printed. The bar is 1.2 at 64 MB.
"""

from __future__ import annotations

import argparse
import statistics

from chunkscope.traces.record.ranks import Ranks

SIZES = {"4 KB": 4_000, "1 MB": 1_000_000, "64 MB": 64_000_000}
ROUNDS = {"4 KB": 101, "1 MB": 41, "64 MB": 11}


def race(size_bytes: int, rounds: int, segment_bytes: int | None = None) -> tuple[list[float], ...]:
    """Return seconds a call of native and of ours, each the slowest rank's, as seen by this rank."""
    import time

    import torch
    import torch.distributed as dist

    import chunkscope
    import chunkscope.sim.execute as execute

    if segment_bytes is not None:
        execute.SEGMENT_BYTES = segment_bytes

    ring = chunkscope.build("all_reduce", "ring", dist.get_world_size())
    tensor = torch.ones(size_bytes // 4)
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 2):
        for which in ((0, 1), (1, 0))[number % 2]:
            tensor.fill_(1.0)
            dist.barrier()
            start = time.perf_counter()
            if which == 0:
                dist.all_reduce(tensor)
            else:
                chunkscope.execute(ring, tensor)
            taken = time.perf_counter() - start
            assert tensor[0] == tensor[-1] == dist.get_world_size()
            if number >= 2:
                times[which].append(taken)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--segment-bytes", type=int)
    parser.add_argument("--only", choices=SIZES, nargs="+", default=list(SIZES))
    options = parser.parse_args()
    print(f"{'ranks':>5}  {'size':>6}  {'native ms':>10}  {'ours ms':>10}  {'ratio':>6}")
    for n in options.ranks:
        with Ranks(n) as ranks:
            for name in options.only:
                rounds = ROUNDS[name]
                times = ranks.run(race, SIZES[name], rounds, options.segment_bytes, timeout=100.0)
                slowest = [
                    [max(call) for call in zip(*(rank[k] for rank in times))] for k in (0, 1)
                ]
                native, ours = (statistics.median(calls) * 1e3 for calls in slowest)
                print(f"{n:>5}  {name:>6}  {native:>10.3f}  {ours:>10.3f}  {ours / native:>6.2f}")


if __name__ == "__main__":
    main()
