"""Our ring all_reduce and native gloo's in turn, so that the machine's load hits both alike."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

HEADER = "ranks    size   native ms     ours ms   ratio   ratio of CPU time"

Times = tuple[list[float], list[float]]


def race(size_bytes: int, rounds: int) -> tuple[Times, Times]:
    """Return seconds a call and CPU seconds a call of this rank, each of native and of ours."""
    import time

    import torch
    import torch.distributed as dist

    import chunkscope

    n = dist.get_world_size()
    ring = chunkscope.build("all_reduce", "ring", n)
    tensor = torch.ones(size_bytes // 4)
    taken: Times = ([], [])
    cpu: Times = ([], [])
    for number in range(rounds + 2):  # the first two only warm up
        for which in ((0, 1), (1, 0))[number % 2]:
            tensor.fill_(1.0)
            dist.barrier()
            start, cpu_start = time.perf_counter(), time.process_time()
            if which == 0:
                dist.all_reduce(tensor)
            else:
                chunkscope.execute(ring, tensor)
            end, cpu_end = time.perf_counter(), time.process_time()
            assert tensor[0] == tensor[-1] == n
            if number >= 2:
                taken[which].append(end - start)
                cpu[which].append(cpu_end - cpu_start)
    return taken, cpu


def row(size_bytes: int, by_rank: Sequence[tuple[Times, Times]]) -> str:
    """Return a line of the table: medians of each call's slowest rank, and ratios.

    The ratio of CPU time, all ranks together, shows what is left where other programs keep the
    machine busy.
    """
    native, ours = (
        statistics.median(map(max, zip(*(taken[which] for taken, _ in by_rank))))
        for which in (0, 1)
    )
    native_cpu, our_cpu = (
        statistics.median(map(sum, zip(*(cpu[which] for _, cpu in by_rank)))) for which in (0, 1)
    )
    size = f"{size_bytes // 1000} KB"
    if size_bytes >= 1_000_000:
        size = f"{size_bytes // 1_000_000} MB"
    return (
        f"{len(by_rank):>5}  {size:>6}  {native * 1e3:>10.3f}  {ours * 1e3:>10.3f}  "
        f"{ours / native:>6.2f}  {our_cpu / native_cpu:>18.2f}"
    )
