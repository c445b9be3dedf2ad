"""Binomial trees: the number of ranks that are done doubles with each step."""

from __future__ import annotations

import numpy as np

from ..schedule import Ints, Schedule
from .registry import Phase, algorithm

_UP = "Each rank hands its sum up to its parent, which adds it to its own."
_DOWN = "Each rank that has the result hands it down to its children."


def _reduce_phase(schedule: Schedule) -> list[Phase]:
    return [Phase("reduce", 0, schedule.n_steps, _UP)]


def _broadcast_phase(schedule: Schedule) -> list[Phase]:
    return [
        Phase(
            "broadcast",
            0,
            schedule.n_steps,
            "Each rank that has the data hands it down to its children.",
            "The root hands its data to its first child.",
        )
    ]


def _all_reduce_phases(schedule: Schedule) -> list[Phase]:
    half = schedule.n_steps // 2
    opening = "The root has the result and hands it to its first child."
    return [Phase("reduce", 0, half, _UP), Phase("broadcast", half, half, _DOWN, opening)]


def _edges(group_size: int, root: int) -> tuple[Ints, Ints, Ints]:
    """Return level, child and parent of every edge of a binomial tree, by level.

    Counted from the root, rank v has its parent at v minus its lowest bit, and the level of that
    edge is the number of that bit.
    """
    virtual = np.arange(1, group_size)
    lowest = virtual & -virtual
    level = np.log2(lowest).astype(np.int64)
    order = np.argsort(level, kind="stable")
    child = (virtual + root) % group_size
    parent = (virtual - lowest + root) % group_size
    return level[order], child[order], parent[order]


@algorithm("all_reduce", "tree", phases=_all_reduce_phases)
def all_reduce_tree(group_size: int) -> Schedule:
    """Return a binomial reduce to rank 0, followed by a binomial broadcast.

    Every message carries the whole vector. With 4 ranks::

        step 0   1 +> 0   3 +> 2      reduce
        step 1   2 +> 0
        step 2   0 -> 2               broadcast
        step 3   0 -> 1   2 -> 3

    Args:
        group_size: Number of ranks, 1 or more.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, Optimization of Collective Communication
        Operations in MPICH, IJHPCA 19(1), 2005 (binomial reduce and broadcast).

    Example:
        >>> all_reduce_tree(8).n_steps
        6
    """
    level, child, parent = _edges(group_size, 0)
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
    return Schedule.of("all_reduce", "tree", group_size, columns, input=[0], output=[0])


@algorithm("reduce", "tree", default=True, phases=_reduce_phase)
def reduce_tree(group_size: int, root: int = 0) -> Schedule:
    """Return a binomial reduce: half of the ranks left hand on their sums each step.

    In step k the ranks whose lowest set bit is k send to the rank without it. Every message carries
    the whole vector; ranks count from the root. With 6 ranks and root 0::

        step 0   1 +> 0   3 +> 2   5 +> 4
        step 1   2 +> 0
        step 2   4 +> 0

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that gets the result.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, Optimization of Collective Communication
        Operations in MPICH, IJHPCA 19(1), 2005.

    Example:
        >>> reduce_tree(6, root=2).n_steps
        3
    """
    level, child, parent = _edges(group_size, root)
    columns = (level, 0, child, parent, 0, 0, 1, True)
    return Schedule.of("reduce", "tree", group_size, columns, input=[0], output=[0], root=root)


@algorithm("broadcast", "tree", default=True, phases=_broadcast_phase)
def broadcast_tree(group_size: int, root: int = 0) -> Schedule:
    """Return a binomial broadcast: twice as many ranks have the data each step.

    The reverse of the binomial reduce, farthest ranks first. Every message carries the whole
    vector; ranks count from the root. With 6 ranks and root 0::

        step 0   0 -> 4
        step 1   0 -> 2
        step 2   0 -> 1   2 -> 3   4 -> 5

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that has the data.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, Optimization of Collective Communication
        Operations in MPICH, IJHPCA 19(1), 2005.

    Example:
        >>> broadcast_tree(6).n_steps
        3
    """
    level, child, parent = _edges(group_size, root)
    columns = (int(level.max(initial=-1)) - level, 0, parent, child, 0, 0, 1, False)
    return Schedule.of("broadcast", "tree", group_size, columns, input=[0], output=[0], root=root)
