"""Rings: every rank sends to one neighbour and receives from the other, n - 1 times around.

There are three conventions, which differ in direction and in who ends with which chunk. The ring of
NCCL is the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..schedule import Schedule
from .registry import Phase, algorithm

Column = npt.NDArray[Any]


def _reduce_scatter_phase(group_size: int) -> Phase:
    return Phase(
        "reduce-scatter",
        0,
        group_size - 1,
        "Each rank adds its own part to the chunk that arrives and passes it on.",
        "Every rank sends one of its chunks to its neighbour.",
    )


def _ring_phases(schedule: Schedule) -> list[Phase]:
    half = schedule.n_steps // 2
    return [
        _reduce_scatter_phase(schedule.group_size)._replace(n_steps=half),
        Phase(
            "all-gather",
            half,
            half,
            "The finished chunks go once more around, until every rank has all of them.",
        ),
    ]


def _reduce_scatter_phases(schedule: Schedule) -> list[Phase]:
    return [_reduce_scatter_phase(schedule.group_size)]


def _all_gather_phases(schedule: Schedule) -> list[Phase]:
    return [
        Phase(
            "all-gather",
            0,
            schedule.n_steps,
            "Each rank passes on the chunk that has just arrived.",
            "Every rank sends its own chunk to its neighbour.",
        )
    ]


def _around(group_size: int, first_chunks: Sequence[int]) -> list[Column]:
    """Return step, src, dst, slot of turns around the ring, n - 1 steps each.

    In step s of a turn, rank r sends chunk r + first - s to r + 1.

    Args:
        group_size: Number of ranks.
        first_chunks: What rank 0 sends first, turn by turn.
    """
    rank = np.arange(group_size, dtype=np.int32)
    step = np.arange(len(first_chunks) * (group_size - 1), dtype=np.int32)
    turn, at = np.divmod(step, max(1, group_size - 1))
    first = np.array(first_chunks, np.int32)[turn] - at
    slot = np.add.outer(first % group_size, rank)
    slot[slot >= group_size] -= group_size
    columns = (step[:, None], rank, (rank + 1) % group_size, slot)
    return [np.broadcast_to(column, slot.shape).reshape(-1) for column in columns]


def _all_reduce(group_size: int, name: str, first_reduced: int, first_gathered: int) -> Schedule:
    step, src, dst, slot = _around(group_size, [first_reduced, first_gathered])
    return Schedule.of(
        "all_reduce",
        name,
        group_size,
        (step, 0, src, dst, slot, slot, 1, step < group_size - 1),
        input=range(group_size),
        output=range(group_size),
    )


@algorithm("all_reduce", "ring", default=True, phases=_ring_phases)
def all_reduce_ring(group_size: int) -> Schedule:
    """Return NCCL's ring: chunk k is complete first at rank k.

    Rank r sends to r + 1, first chunk r - 1. Ranks 0 to 2, what each sends::

        step   r0 -> r1    r1 -> r2    r2 -> r0
          0    +chunk 2    +chunk 0    +chunk 1    reduce-scatter
          1    +chunk 1    +chunk 2    +chunk 0
          2     chunk 0     chunk 1     chunk 2    all-gather
          3     chunk 2     chunk 0     chunk 1

    Args:
        group_size: Number of ranks, 1 or more.

    Source: NCCL 2.30, src/device/all_reduce.h, runRing.

    Example:
        >>> all_reduce_ring(4).n_steps
        6
    """
    return _all_reduce(group_size, "ring", -1, 0)


@algorithm("all_reduce", "ring_tutorial", phases=_ring_phases)
def all_reduce_ring_tutorial(group_size: int) -> Schedule:
    """Return the ring of tutorials: chunk k is complete first at rank k - 1.

    Rank r sends to r + 1, first chunk r, and ends with chunk r + 1. Ranks 0 to 2, what each sends::

        step   r0 -> r1    r1 -> r2    r2 -> r0
          0    +chunk 0    +chunk 1    +chunk 2    reduce-scatter
          1    +chunk 2    +chunk 0    +chunk 1
          2     chunk 1     chunk 2     chunk 0    all-gather
          3     chunk 0     chunk 1     chunk 2

    Args:
        group_size: Number of ranks, 1 or more.

    Source: A. Gibiansky, Bringing HPC Techniques to Deep Learning, 2017, and most lessons since.

    Example:
        >>> all_reduce_ring_tutorial(4).n_steps
        6
    """
    return _all_reduce(group_size, "ring_tutorial", 0, 1)


@algorithm("reduce_scatter", "ring", default=True, phases=_reduce_scatter_phases)
def reduce_scatter_ring(group_size: int) -> Schedule:
    """Return the first half of NCCL's ring: chunk r ends at rank r.

    Rank r sends to r + 1, first chunk r - 1. Ranks 0 to 2, what each sends::

        step   r0 -> r1    r1 -> r2    r2 -> r0
          0    +chunk 2    +chunk 0    +chunk 1
          1    +chunk 1    +chunk 2    +chunk 0

    Args:
        group_size: Number of ranks, 1 or more.

    Source: NCCL 2.30, src/device/reduce_scatter.h, runRing.

    Example:
        >>> reduce_scatter_ring(4).n_steps
        3
    """
    step, src, dst, slot = _around(group_size, [-1])
    return Schedule.of(
        "reduce_scatter",
        "ring",
        group_size,
        (step, 0, src, dst, slot, slot, 1, True),
        input=range(group_size),
        output=[[rank] for rank in range(group_size)],
    )


@algorithm("all_gather", "ring", default=True, phases=_all_gather_phases)
def all_gather_ring(group_size: int) -> Schedule:
    """Return the second half of NCCL's ring: chunk r starts at rank r.

    Rank r sends to r + 1, first its own chunk. Ranks 0 to 2, what each sends::

        step   r0 -> r1    r1 -> r2    r2 -> r0
          0     chunk 0     chunk 1     chunk 2
          1     chunk 2     chunk 0     chunk 1

    Args:
        group_size: Number of ranks, 1 or more.

    Source: NCCL 2.30, src/device/all_gather.h, runRing.

    Example:
        >>> all_gather_ring(4).n_steps
        3
    """
    step, src, dst, slot = _around(group_size, [0])
    return Schedule.of(
        "all_gather",
        "ring",
        group_size,
        (step, 0, src, dst, slot, slot, 1, False),
        input=[[rank] for rank in range(group_size)],
        output=range(group_size),
    )
