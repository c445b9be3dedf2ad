"""Barriers: nobody goes on before all are there. No data moves; a reduce says who was heard of."""

from __future__ import annotations

import numpy as np

from ...errors import ScheduleError
from ..schedule import Schedule
from .knomial import edges
from .registry import Phase, algorithm


def _dissemination_phases(schedule: Schedule) -> list[Phase]:
    return [
        Phase(
            "barrier",
            0,
            schedule.n_steps,
            "Each rank tells others, farther away each time, whom it has heard of.",
            "Each rank tells its neighbour that it is there.",
        )
    ]


def _tree_phases(schedule: Schedule) -> list[Phase]:
    half = schedule.n_steps // 2
    return [
        Phase("arrive", 0, half, "Each rank tells its parent that all below it are there."),
        Phase("release", half, half, "Each rank that knows lets its children go."),
    ]


def _ring_phases(schedule: Schedule) -> list[Phase]:
    half = schedule.n_steps // 2
    return [
        Phase(
            "arrive", 0, half, "The token goes around once: all ranks before this one are there."
        ),
        Phase("release", half, half, "The token goes around again: all ranks are there."),
    ]


@algorithm("barrier", "dissemination", phases=_dissemination_phases)
def barrier_dissemination(group_size: int, radix: int = 2) -> Schedule:
    """Return a dissemination barrier: who has heard of k times as many each step tells others.

    In step j rank r tells the ranks r + i·k^j, for i from 1 to k - 1. With 5 ranks and radix 2,
    then 3::

        step 0   0 -> 1   1 -> 2   2 -> 3   3 -> 4   4 -> 0
        step 1   0 -> 2   1 -> 3   2 -> 4   3 -> 0   4 -> 1
        step 2   0 -> 4   1 -> 0   2 -> 1   3 -> 2   4 -> 3

        step 0   0 -> 1, 2   1 -> 2, 3   2 -> 3, 4   3 -> 4, 0   4 -> 0, 1
        step 1   0 -> 3      1 -> 4      2 -> 0      3 -> 1      4 -> 2

    Cost ⌈log_k n⌉α. Some ranks hear of others twice, which does no harm.

    Args:
        group_size: Number of ranks, 1 or more.
        radix: k, 2 or more.

    Source: D. Hensgen, R. Finkel and U. Manber, Two algorithms for barrier synchronization, 1988;
        with more than one message a step T. Hoefler et al., Fast barrier synchronization for
        InfiniBand, 2006.

    Example:
        >>> barrier_dissemination(9, radix=3).n_steps
        2
    """
    if radix < 2:
        raise ScheduleError(f"radix is {radix}, expected 2 or more")
    far: list[int] = []
    step: list[int] = []
    power = 1
    while power < group_size:
        here = range(power, min(power * radix, group_size), power)
        step += [step[-1] + 1 if step else 0] * len(here)
        far += here
        power *= radix
    rank = np.tile(np.arange(group_size), len(far))
    dst = (rank + np.repeat(far, group_size)) % group_size
    return Schedule.of(
        "barrier",
        "dissemination",
        group_size,
        (np.repeat(step, group_size), 0, rank, dst, 0, 0, 1, True),
        input=[0],
        output=[0],
    )


@algorithm("barrier", "tree", phases=_tree_phases)
def barrier_tree(group_size: int, radix: int = 2) -> Schedule:
    """Return a tree barrier: word goes up a k-nomial tree to rank 0, and down again.

    With 4 ranks and radix 2::

        step 0   1 +> 0   3 +> 2      arrive
        step 1   2 +> 0
        step 2   0 -> 2               release
        step 3   0 -> 1   2 -> 3

    Cost 2⌈log_k n⌉α, with 2(n - 1) messages; dissemination has n⌈lg n⌉ and half the steps.

    Args:
        group_size: Number of ranks, 1 or more.
        radix: k, 2 or more.

    Source: J. Mellor-Crummey and M. Scott, Algorithms for scalable synchronization on
        shared-memory multiprocessors, 1991; Open MPI, coll/base, tree barrier.

    Example:
        >>> barrier_tree(8).n_steps
        6
    """
    level, child, parent = edges(group_size, 0, radix)
    top = int(level.max(initial=-1))
    columns = (
        np.concatenate([level, 2 * top + 1 - level]),
        0,
        np.concatenate([child, parent]),
        np.concatenate([parent, child]),
        0,
        0,
        1,
        np.repeat([True, False], len(level)),
    )
    return Schedule.of("barrier", "tree", group_size, columns, input=[0], output=[0])


@algorithm("barrier", "double_ring", phases=_ring_phases)
def barrier_double_ring(group_size: int) -> Schedule:
    """Return a double ring: a token goes around twice, from rank 0.

    With 3 ranks::

        step 0   0 +> 1      arrive
        step 1   1 +> 2
        step 2   2 -> 0      release
        step 3   0 -> 1

    Cost 2(n - 1)α. Rank n - 1 is the first to know, so the second time ends before it.

    Args:
        group_size: Number of ranks, 1 or more.

    Source: Open MPI, coll/base, double ring barrier, without its last message.

    Example:
        >>> barrier_double_ring(4).n_steps
        6
    """
    step = np.arange(2 * (group_size - 1))
    first_lap = step < group_size - 1
    src, dst = (np.where(first_lap, step + k, (step + k) % group_size) for k in (0, 1))
    return Schedule.of(
        "barrier",
        "double_ring",
        group_size,
        (step, 0, src, dst, 0, 0, 1, first_lap),
        input=[0],
        output=[0],
    )
