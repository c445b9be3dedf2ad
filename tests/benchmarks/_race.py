"""Our ring all_reduce and native gloo's in turn, so that the machine's load hits both alike."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

HEADER = f"{'ranks':>5}  {'size':>6}  {'native ms':>10}  {'ours ms':>10}  {'ratio':>6}"


def race(size_bytes: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return seconds a call at this rank, of native and of ours; runs in every rank."""
    import time

    import torch
    import torch.distributed as dist

    import chunkscope

    n = dist.get_world_size()
    ring = chunkscope.build("all_reduce", "ring", n)
    tensor = torch.ones(size_bytes // 4)
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 2):  # the first two only warm up
        for which in ((0, 1), (1, 0))[number % 2]:
            tensor.fill_(1.0)
            dist.barrier()
            start = time.perf_counter()
            if which == 0:
                dist.all_reduce(tensor)
            else:
                chunkscope.execute(ring, tensor)
            taken = time.perf_counter() - start
            assert tensor[0] == tensor[-1] == n
            if number >= 2:
                times[which].append(taken)
    return times


def row(size_bytes: int, by_rank: Sequence[Sequence[list[float]]]) -> str:
    """Return a line of the table: medians of each call's slowest rank, and their ratio."""
    native, ours = (
        statistics.median(max(call) for call in zip(*(times[which] for times in by_rank)))
        for which in (0, 1)
    )
    size = (
        f"{size_bytes // 1_000_000} MB" if size_bytes >= 1_000_000 else f"{size_bytes // 1000} KB"
    )
    return (
        f"{len(by_rank):>5}  {size:>6}  {native * 1e3:>10.3f}  {ours * 1e3:>10.3f}  "
        f"{ours / native:>6.2f}"
    )
