"""The double binary tree: two trees at once, and a rank inside one of them is a leaf of the other.

Each tree has one half of the data. Sums go up and results go down at the same time, chunk by chunk.
"""

from __future__ import annotations

import numpy as np

from ...errors import ScheduleError
from ..schedule import Ints, Schedule
from .parts import Rows, joined, rows
from .registry import algorithm


def tree_parents(group_size: int) -> tuple[Ints, Ints]:
    """Return the parent of each rank in NCCL's two trees, (ranks,) each; a root is its own.

    In the first tree the root is 0. Any other rank with lowest set bit b has the parent that has 2b
    in place of b, or, where that is beyond the last rank, just no b. The second is its mirror image
    if the group size is even; else it is shifted by one.

    Source: NCCL 2.30, src/graph/trees.cc, ncclGetBtree and ncclGetDtree.

    Example:
        >>> [tree.tolist() for tree in tree_parents(6)]
        [[0, 2, 4, 2, 0, 4], [1, 5, 3, 1, 3, 5]]
    """
    rank = np.arange(group_size)
    lowest = rank & -rank
    up = (rank ^ lowest) | lowest << 1
    first = np.where(up < group_size, up, rank ^ lowest)
    first[0] = 0
    if group_size % 2 == 0:
        return first, group_size - 1 - first[::-1]
    return first, (np.roll(first, 1) + 1) % group_size


def depths(parent: Ints) -> Ints:
    """Return how many edges each rank is away from its root, (ranks,)."""
    above, depth = parent, np.zeros(len(parent), np.int64)
    at_root = np.flatnonzero(parent == np.arange(len(parent)))
    while not np.isin(above, at_root).all():
        depth += ~np.isin(above, at_root)
        above = parent[above]
    depth += parent != np.arange(len(parent))
    return depth


def _tree(parent: Ints, channel: int, segments: int) -> Rows:
    """Return the rows of one tree: up with reduces, down with copies, a step later a segment."""
    depth = depths(parent)
    deepest = int(depth.max(initial=0))
    child = np.flatnonzero(parent != np.arange(len(parent)))
    segment = np.arange(segments)[:, None]
    slot = segment + channel * segments
    up = segment + deepest - depth[child]
    down = segment + deepest + depth[child] - 1
    return joined(
        [
            rows(up, child, parent[child], slot, reduce=True, channel=channel),
            rows(down, parent[child], child, slot, reduce=False, channel=channel),
        ]
    )


@algorithm("all_reduce", "double_tree")
def all_reduce_double_tree(group_size: int, segments: int = 4, window: int = 1) -> Schedule:
    """Return NCCL's double binary tree: half of the data in each, up and down at once.

    Tree 1 is channel 0, tree 2 channel 1. A rank sends segment after segment up to its parent while
    the results of the segments before come down. With 4 ranks the trees are::

        tree 1   0          tree 2   3
                 |                   |
                 2                   1
                / \\                 / \\
               1   3               0   2

        step 0   1 +> 2 a    3 +> 2 a                                  tree 1 alone
        step 1   1 +> 2 b    3 +> 2 b    2 +> 0 a
        step 2               2 +> 0 b                0 -> 2 a
        step 3                                       0 -> 2 b    2 -> 1 a   2 -> 3 a
        step 4                                                   2 -> 1 b   2 -> 3 b

    Cost (2d + k - 1)(α + S/(2kB)) for k segments a half and trees of depth d = ⌈lg n⌉, where
    messages do not meet; with a window above 1 latencies overlap.

    Args:
        group_size: Number of ranks, 1 or more.
        segments: Segments of each half.
        window: Steps that may be under way at a rank.

    Source: NCCL 2.30, src/graph/trees.cc and src/device/all_reduce.h, runTreeSplit; P. Sanders,
        J. Speck and J. L. Träff, Two-tree algorithms for full bandwidth broadcast, reduction and
        scan, Parallel Computing 35, 2009.

    Example:
        >>> all_reduce_double_tree(8, segments=4).n_steps
        9
    """
    if segments < 1:
        raise ScheduleError(f"all_reduce double_tree: segments is {segments}, expected 1 or more")
    slots = range(2 * segments)
    trees = [_tree(parent, at, segments) for at, parent in enumerate(tree_parents(group_size))]
    return Schedule.of(
        "all_reduce",
        "double_tree",
        group_size,
        joined(trees),
        input=slots,
        output=slots,
        window=window,
    )
