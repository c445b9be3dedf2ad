"""Binomial gather and scatter, where each rank moves the blocks of its subtree, and van de Geijn's.

Counted from the root, the subtree of rank v are the ranks from v up to the next multiple of its
lowest bit; so the blocks of a subtree lie side by side, and one row carries them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..schedule import Ints, Schedule
from .registry import Phase, algorithm

_SCATTER = Phase(
    "scatter",
    0,
    0,
    "Each rank hands half of the blocks that it has down the tree.",
    "The root hands the farther half of its blocks to its first child.",
)
_GATHER = Phase("gather", 0, 0, "Each rank hands the blocks of its subtree to its parent.")


def _gather_phases(schedule: Schedule) -> list[Phase]:
    return [_GATHER._replace(n_steps=schedule.n_steps)]


def _scatter_phases(schedule: Schedule) -> list[Phase]:
    return [_SCATTER._replace(n_steps=schedule.n_steps)]


def _scatter_all_gather_phases(schedule: Schedule) -> list[Phase]:
    first = _n_levels(schedule.group_size)
    sentence = "The pieces go around the ring, until every rank has all of them."
    return [
        _SCATTER._replace(n_steps=first),
        Phase("all-gather", first, schedule.n_steps - first, sentence),
    ]


def _reduce_scatter_gather_phases(schedule: Schedule) -> list[Phase]:
    first = schedule.group_size - 1
    return [
        Phase(
            "reduce-scatter",
            0,
            first,
            "Each rank adds its own part to the piece that arrives and passes it on.",
            "Every rank sends one of its pieces to its neighbour.",
        ),
        _GATHER._replace(first_step=first, n_steps=schedule.n_steps - first),
    ]


def _n_levels(group_size: int) -> int:
    return (group_size - 1).bit_length()


class _Edges(NamedTuple):
    """Edges of a binomial tree; `first` and `n_blocks` say what the child's subtree is."""

    level: Ints
    child: Ints
    parent: Ints
    first: Ints
    n_blocks: Ints


def _edges(group_size: int, root: int) -> _Edges:
    virtual = np.arange(1, group_size)
    lowest = virtual & -virtual
    level = np.array([int(bit).bit_length() - 1 for bit in lowest], np.int64)
    return _Edges(
        level,
        (virtual + root) % group_size,
        (virtual - lowest + root) % group_size,
        virtual,
        np.minimum(lowest, group_size - virtual),
    )


def _slots(group_size: int, root: int) -> list[int]:
    """Return the slot of each rank's block: blocks lie in the order of ranks from the root."""
    return [(rank - root) % group_size for rank in range(group_size)]


@algorithm("gather", "binomial", phases=_gather_phases)
def gather_binomial(group_size: int, root: int = 0) -> Schedule:
    """Return a binomial gather: each rank hands the blocks of its subtree to its parent.

    Ranks count from the root. With 6 ranks and root 0::

        step 0   1 -> 0 block 1      3 -> 2 block 3   5 -> 4 block 5
        step 1   2 -> 0 blocks 2-3
        step 2   4 -> 0 blocks 4-5

    Cost ⌈lg n⌉α + (n - 1)S/(nB) where n is a power of two.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that gets the blocks.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, Optimization of Collective Communication
        Operations in MPICH, IJHPCA 19(1), 2005.

    Example:
        >>> len(gather_binomial(6))
        5
    """
    level, child, parent, first, n_blocks = _edges(group_size, root)
    slots = _slots(group_size, root)
    return Schedule.of(
        "gather",
        "binomial",
        group_size,
        (level, 0, child, parent, first, first, n_blocks, False),
        input=[[slot] for slot in slots],
        output=slots,
        root=root,
    )


@algorithm("scatter", "binomial", phases=_scatter_phases)
def scatter_binomial(group_size: int, root: int = 0) -> Schedule:
    """Return a binomial scatter: each rank hands its child the blocks of the child's subtree.

    The reverse of the binomial gather. Ranks count from the root. With 6 ranks and root 0::

        step 0   0 -> 4 blocks 4-5
        step 1   0 -> 2 blocks 2-3
        step 2   0 -> 1 block 1      2 -> 3 block 3   4 -> 5 block 5

    Cost ⌈lg n⌉α + (n - 1)S/(nB), since the root sends each block but its own once.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that has the blocks.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, Optimization of Collective Communication
        Operations in MPICH, IJHPCA 19(1), 2005.

    Example:
        >>> scatter_binomial(6, root=5).n_steps
        3
    """
    level, child, parent, first, n_blocks = _edges(group_size, root)
    slots = _slots(group_size, root)
    return Schedule.of(
        "scatter",
        "binomial",
        group_size,
        (_n_levels(group_size) - 1 - level, 0, parent, child, first, first, n_blocks, False),
        input=slots,
        output=[[slot] for slot in slots],
        root=root,
    )


def _around(group_size: int, root: int, first_step: int, first_slot: int) -> tuple[Ints, ...]:
    """Return step, src, dst, slot of a ring; counted from the root, rank v sends v + first_slot."""
    turn, virtual = np.arange(group_size - 1)[:, None], np.arange(group_size)
    slot = (virtual + first_slot - turn) % group_size
    columns = (
        first_step + turn,
        (virtual + root) % group_size,
        (virtual + 1 + root) % group_size,
        slot,
    )
    return tuple(np.broadcast_to(column, slot.shape).reshape(-1) for column in columns)


@algorithm("broadcast", "scatter_all_gather", phases=_scatter_all_gather_phases)
def broadcast_scatter_all_gather(group_size: int, root: int = 0) -> Schedule:
    """Return van de Geijn's broadcast: a binomial scatter of n pieces, then a ring all_gather.

    Ranks and pieces count from the root. With 4 ranks and root 0::

        step   0 -> 1   1 -> 2   2 -> 3   3 -> 0   0 -> 2
          0                                        2-3      scatter
          1      1                 3
          2      0        1        2        3               all-gather
          3      3        0        1        2
          4      2        3        0        1

    Cost (⌈lg n⌉ + n - 1)α + 2(n - 1)S/(nB): twice the bandwidth's least, for large messages.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that has the data.

    Source: M. Barnett, R. Littlefield, D. Payne and R. van de Geijn, Global combine on mesh
        architectures with wormhole routing, 1993; R. Thakur, R. Rabenseifner and W. Gropp, 2005.

    Example:
        >>> broadcast_scatter_all_gather(8).n_steps
        10
    """
    level, child, parent, first, n_pieces = _edges(group_size, root)
    n_levels = _n_levels(group_size)
    step, src, dst, slot = _around(group_size, root, n_levels, 0)
    columns = (
        np.concatenate([n_levels - 1 - level, step]),
        0,
        np.concatenate([parent, src]),
        np.concatenate([child, dst]),
        np.concatenate([first, slot]),
        np.concatenate([first, slot]),
        np.concatenate([n_pieces, np.ones_like(slot)]),
        False,
    )
    return Schedule.of(
        "broadcast",
        "scatter_all_gather",
        group_size,
        columns,
        input=range(group_size),
        output=range(group_size),
        root=root,
    )


@algorithm("reduce", "reduce_scatter_gather", phases=_reduce_scatter_gather_phases)
def reduce_reduce_scatter_gather(group_size: int, root: int = 0) -> Schedule:
    """Return a ring reduce_scatter of n pieces, then a binomial gather: van de Geijn's, reversed.

    Ranks and pieces count from the root. With 4 ranks and root 0::

        step   0 -> 1   1 -> 2   2 -> 3   3 -> 0   2 -> 0
          0     +3       +0       +1       +2               reduce-scatter
          1     +2       +3       +0       +1
          2     +1       +2       +3       +0
          3   1 -> 0: 1         3 -> 2: 3                   gather
          4                                         2-3

    Cost (n - 1 + ⌈lg n⌉)α + 2(n - 1)S/(nB) + (n - 1)γS/n where n is a power of two.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that gets the result.

    Source: E. Chan, M. Heimlich, A. Purkayastha and R. van de Geijn, Collective communication:
        theory, practice, and experience, 2007; the ring phase as gloo's reduce has it.

    Example:
        >>> reduce_reduce_scatter_gather(8).n_steps
        10
    """
    level, child, parent, first, n_pieces = _edges(group_size, root)
    step, src, dst, slot = _around(group_size, root, 0, -1)
    columns = (
        np.concatenate([step, group_size - 1 + level]),
        0,
        np.concatenate([src, child]),
        np.concatenate([dst, parent]),
        np.concatenate([slot, first]),
        np.concatenate([slot, first]),
        np.concatenate([np.ones_like(slot), n_pieces]),
        np.arange(len(slot) + len(first)) < len(slot),
    )
    return Schedule.of(
        "reduce",
        "reduce_scatter_gather",
        group_size,
        columns,
        input=range(group_size),
        output=range(group_size),
        root=root,
    )
