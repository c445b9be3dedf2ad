"""Direct: everybody sends straight to everybody; few steps, many messages at once."""

from __future__ import annotations

import numpy as np

from ..schedule import Ints, Schedule
from .parts import Rows, rows, there_and_back
from .registry import Phase, algorithm

_SCATTER = "Every rank sends to each other rank that one's chunk, and adds what arrives."
_GATHER = "Every rank sends its chunk to all the others."


def _one_shot_phases(schedule: Schedule) -> list[Phase]:
    sentence = "Every rank sends all of its data to all the others, and each adds it all up."
    return [Phase("reduce", 0, schedule.n_steps, sentence)]


def _two_shot_phases(schedule: Schedule) -> list[Phase]:
    return [Phase("reduce-scatter", 0, 1, _SCATTER), Phase("all-gather", 1, 1, _GATHER)]


def _reduce_scatter_phases(schedule: Schedule) -> list[Phase]:
    return [Phase("reduce-scatter", 0, schedule.n_steps, _SCATTER)]


def _all_gather_phases(schedule: Schedule) -> list[Phase]:
    return [Phase("all-gather", 0, schedule.n_steps, _GATHER)]


def _pairs(group_size: int) -> tuple[Ints, Ints]:
    """Return all pairs of two different ranks, nearest receiver above the sender first."""
    src = np.repeat(np.arange(group_size), group_size - 1)
    ahead = np.tile(np.arange(1, group_size), group_size)
    return src, (src + ahead) % group_size


def _scatter(group_size: int) -> Rows:
    """Return a reduce_scatter in one step: chunk k goes to rank k."""
    src, dst = _pairs(group_size)
    return rows(0, src, dst, dst, reduce=True)


@algorithm("all_reduce", "one_shot", phases=_one_shot_phases)
def all_reduce_one_shot(group_size: int) -> Schedule:
    """Return one-shot: every rank sends its whole vector to all others, and each adds it all up.

    Ranks add in different orders, so that their results may differ in the last bits. With 3 ranks,
    all in step 0::

        0 +> 1   0 +> 2      1 +> 2   1 +> 0      2 +> 0   2 +> 1

    Cost α + S/B + (n - 1)γS if each pair has a link; α + (n - 1)S/B if a rank has one for all.

    Args:
        group_size: Number of ranks, 1 or more.

    Source: NCCL 2.30, src/device/symmetric/all_reduce.cuh, AllReduce_AGxLL_R; Open MPI, coll/base,
        allgather_reduce.

    Example:
        >>> len(all_reduce_one_shot(4))
        12
    """
    src, dst = _pairs(group_size)
    columns = rows(0, src, dst, 0, reduce=True)
    return Schedule.of("all_reduce", "one_shot", group_size, columns, input=[0], output=[0])


@algorithm("all_reduce", "two_shot", phases=_two_shot_phases)
def all_reduce_two_shot(group_size: int) -> Schedule:
    """Return two-shot: each rank adds up its own chunk of everybody's data, and sends it to all.

    With 3 ranks, what rank 0 sends and gets::

        step 0   0 +> 1 chunk 1   0 +> 2 chunk 2      gets chunk 0 of 1 and 2, and adds it
        step 1   0 -> 1 chunk 0   0 -> 2 chunk 0      gets chunk 1 of 1, chunk 2 of 2

    Cost 2α + 2S/(nB) + (n - 1)γS/n if each pair has a link; 2α + 2(n - 1)S/(nB) if a rank has one
    for all.

    Args:
        group_size: Number of ranks, 1 or more.

    Source: NCCL 2.30, src/device/symmetric/all_reduce.cuh, AllReduce_RSxLD_AGxST.

    Example:
        >>> all_reduce_two_shot(4).n_steps
        2
    """
    slots, both = range(group_size), there_and_back(_scatter(group_size))
    return Schedule.of("all_reduce", "two_shot", group_size, both, input=slots, output=slots)


@algorithm("reduce_scatter", "direct", phases=_reduce_scatter_phases)
def reduce_scatter_direct(group_size: int) -> Schedule:
    """Return a direct reduce_scatter: chunk k of everybody goes straight to rank k.

    With 3 ranks, all in step 0::

        0 +> 1 chunk 1   0 +> 2 chunk 2   1 +> 2 chunk 2   1 +> 0 chunk 0   ...

    Cost α + S/(nB) + (n - 1)γS/n if each pair has a link; α + (n - 1)S/(nB) if a rank has one for
    all.

    Args:
        group_size: Number of ranks, 1 or more.

    Source: ASTRA-sim, system layer, "direct"; NCCL 2.30, src/device/symmetric/reduce_scatter.cuh.

    Example:
        >>> reduce_scatter_direct(4).n_steps
        1
    """
    return Schedule.of(
        "reduce_scatter",
        "direct",
        group_size,
        _scatter(group_size),
        input=range(group_size),
        output=[[rank] for rank in range(group_size)],
    )


@algorithm("all_gather", "direct", phases=_all_gather_phases)
def all_gather_direct(group_size: int) -> Schedule:
    """Return a direct all_gather: every rank sends its chunk straight to all the others.

    With 3 ranks, all in step 0::

        0 -> 1 chunk 0   0 -> 2 chunk 0   1 -> 2 chunk 1   1 -> 0 chunk 1   ...

    Cost α + S/(nB) if each pair has a link; α + (n - 1)S/(nB) if a rank has one for all.

    Args:
        group_size: Number of ranks, 1 or more.

    Source: ASTRA-sim, system layer, "direct"; Open MPI, coll/base, linear all_gather.

    Example:
        >>> all_gather_direct(4).n_steps
        1
    """
    src, dst = _pairs(group_size)
    return Schedule.of(
        "all_gather",
        "direct",
        group_size,
        rows(0, src, dst, src, reduce=False),
        input=[[rank] for rank in range(group_size)],
        output=range(group_size),
    )
