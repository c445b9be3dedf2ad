"""Flat: the root deals with every other rank itself."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..schedule import Ints, Schedule
from .registry import Phase, algorithm


class _Spokes(NamedTuple):
    """The root's neighbours in turn, counted from it; each (group_size - 1,)."""

    step: Ints
    rank: Ints
    root: Ints


def _spokes(group_size: int, root: int, in_turn: bool) -> _Spokes:
    far = np.arange(1, group_size)
    return _Spokes(
        (far - 1) * in_turn, (root + far) % group_size, np.full(group_size - 1, root, np.int64)
    )


def _broadcast_phases(schedule: Schedule) -> list[Phase]:
    return [Phase("broadcast", 0, schedule.n_steps, "The root sends its data to each other rank.")]


def _reduce_phases(schedule: Schedule) -> list[Phase]:
    sentence = "Every rank sends its data straight to the root, which adds it."
    return [Phase("reduce", 0, schedule.n_steps, sentence)]


def _gather_phases(schedule: Schedule) -> list[Phase]:
    sentence = "Every rank sends its block straight to the root."
    return [Phase("gather", 0, schedule.n_steps, sentence)]


def _scatter_phases(schedule: Schedule) -> list[Phase]:
    sentence = "The root sends every rank a block of its own."
    return [Phase("scatter", 0, schedule.n_steps, sentence)]


@algorithm("broadcast", "flat", phases=_broadcast_phases)
def broadcast_flat(group_size: int, root: int = 0, in_turn: bool = False) -> Schedule:
    """Return a flat broadcast: the root sends its data to every rank.

    With 4 ranks and root 0, all at once and in turn::

        step 0   0 -> 1   0 -> 2   0 -> 3        step 0   0 -> 1
                                                 step 1   0 -> 2
                                                 step 2   0 -> 3

    Cost in turn (n - 1)(α + S/B); all at once α + S/B if the root has a link to each rank, and
    α + (n - 1)S/B if it has one for all.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that has the data.
        in_turn: Whether each message waits for the one before it.

    Source: Open MPI, coll/base, basic linear broadcast.

    Example:
        >>> broadcast_flat(4, in_turn=True).n_steps
        3
    """
    step, rank, zero = _spokes(group_size, root, in_turn)
    columns = (step, 0, zero, rank, 0, 0, 1, False)
    return Schedule.of("broadcast", "flat", group_size, columns, input=[0], output=[0], root=root)


@algorithm("reduce", "flat", phases=_reduce_phases)
def reduce_flat(group_size: int, root: int = 0, in_turn: bool = False) -> Schedule:
    """Return a flat reduce: every rank sends its data to the root, which adds up.

    With 4 ranks and root 0, all at once and in turn::

        step 0   1 +> 0   2 +> 0   3 +> 0        step 0   1 +> 0
                                                 step 1   2 +> 0
                                                 step 2   3 +> 0

    Cost as for the flat broadcast; the root adds all of the n - 1 vectors. In turn holds where
    ranks keep to their steps: under the policies rank_step and lockstep.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that gets the result.
        in_turn: Whether each message has a step of its own.

    Source: Open MPI, coll/base, basic linear reduce.

    Example:
        >>> len(reduce_flat(4))
        3
    """
    step, rank, zero = _spokes(group_size, root, in_turn)
    columns = (step, 0, rank, zero, 0, 0, 1, True)
    return Schedule.of("reduce", "flat", group_size, columns, input=[0], output=[0], root=root)


@algorithm("gather", "flat", phases=_gather_phases)
def gather_flat(group_size: int, root: int = 0, in_turn: bool = False) -> Schedule:
    """Return a flat gather: every rank sends its block to the root.

    With 4 ranks and root 0, all at once and in turn::

        step 0   1 -> 0   2 -> 0   3 -> 0        step 0   1 -> 0
                                                 step 1   2 -> 0
                                                 step 2   3 -> 0

    Cost in turn (n - 1)(α + S/(nB)), under the policies rank_step and lockstep; all at once
    α + S/(nB) if the root has a link to each rank.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that gets the blocks.
        in_turn: Whether each message has a step of its own.

    Source: Open MPI, coll/base, basic linear gather.

    Example:
        >>> gather_flat(4, root=1).n_steps
        1
    """
    step, rank, zero = _spokes(group_size, root, in_turn)
    return Schedule.of(
        "gather",
        "flat",
        group_size,
        (step, 0, rank, zero, rank, rank, 1, False),
        input=[[k] for k in range(group_size)],
        output=range(group_size),
        root=root,
    )


@algorithm("scatter", "flat", phases=_scatter_phases)
def scatter_flat(group_size: int, root: int = 0, in_turn: bool = False) -> Schedule:
    """Return a flat scatter: the root sends every rank its block.

    With 4 ranks and root 0, all at once and in turn::

        step 0   0 -> 1   0 -> 2   0 -> 3        step 0   0 -> 1
                                                 step 1   0 -> 2
                                                 step 2   0 -> 3

    Cost in turn (n - 1)(α + S/(nB)); all at once α + S/(nB) if the root has a link to each rank.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that has the blocks.
        in_turn: Whether each message waits for the one before it.

    Source: Open MPI, coll/base, basic linear scatter.

    Example:
        >>> scatter_flat(4, in_turn=True).n_steps
        3
    """
    step, rank, zero = _spokes(group_size, root, in_turn)
    return Schedule.of(
        "scatter",
        "flat",
        group_size,
        (step, 0, zero, rank, rank, rank, 1, False),
        input=range(group_size),
        output=[[k] for k in range(group_size)],
        root=root,
    )
