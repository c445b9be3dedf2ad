"""A ring written by hand; see docs/own-schedules.md."""

from __future__ import annotations

import chunkscope


def ring(group_size: int) -> chunkscope.Schedule:
    """Return an all_reduce: each chunk goes around once to be summed, and once as the sum."""
    plan = chunkscope.Builder("all_reduce", group_size, chunks=group_size, name="my_ring")
    for k in range(group_size):
        chunk = plan.input(k, k)
        for hop in range(1, group_size):
            chunk = chunk.reduce_into((k + hop) % group_size)
        for hop in range(group_size - 1):
            chunk = chunk.send((k + hop) % group_size)
    return plan.schedule()
