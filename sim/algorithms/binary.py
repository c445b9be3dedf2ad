"""Binary trees: the data is cut into segments, which follow each other through one tree or two.

In a step a rank sends one message and receives one at most, so that the costs hold with a single
port. Ranks count from the root.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from ...errors import ScheduleError
from ..schedule import Ints, Schedule
from .double_tree import tree_parents
from .parts import Rows, joined, rows
from .registry import Phase, algorithm


def _broadcast_phases(schedule: Schedule) -> list[Phase]:
    return [
        Phase(
            "broadcast",
            0,
            schedule.n_steps,
            "Each rank hands a segment that it has down to one of its children.",
            "The root hands its first segment to its first child.",
        )
    ]


def _reduce_phases(schedule: Schedule) -> list[Phase]:
    return [
        Phase(
            "reduce",
            0,
            schedule.n_steps,
            "Each rank adds the segments of its children to its own and hands the sum up.",
            "A rank without children hands its first segment up.",
        )
    ]


class _Edges(NamedTuple):
    """Edges of a tree; segment j reaches the child in step `first` + 2j.

    Every other step, since a parent serves two children in turn.
    """

    child: Ints
    parent: Ints
    first: Ints


def binary_edges(group_size: int) -> _Edges:
    """Return the edges of the complete binary tree: the children of v are 2v + 1 and 2v + 2."""
    child = np.arange(1, group_size)
    parent = (child - 1) // 2
    arrives = np.full(group_size, -1, np.int64)
    for v in range(1, group_size):
        arrives[v] = arrives[(v - 1) // 2] + (1 if v % 2 else 2)
    return _Edges(child, parent, arrives[1:])


def double_edges(group_size: int) -> tuple[_Edges, _Edges]:
    """Return the edges of two trees, so timed that no rank sends or receives two things in a step.

    The first is NCCL's tree, the second its mirror image among the ranks but the root, or shifted
    by one, so that no rank but the root is inside both. The root feeds both.

    Every rank receives from a parent in each tree and sends to two children at most, so edges can
    be of two colours that alternate at each of its ends: along paths and even circles. An edge is
    used in the even or the odd steps.
    """
    first = tree_parents(group_size)[0]
    n_others = group_size - 1
    child = np.arange(1, group_size)
    if n_others % 2 == 0:
        twin, back = group_size - child, group_size - np.arange(group_size)
    else:
        twin, back = (child - 2) % n_others + 1, np.arange(group_size) - 1
        back[1:2] = n_others
    # Rank v of the first tree has the place of rank back[v] in the second.
    second = np.zeros(group_size, np.int64)
    above = first[1:]
    second[twin] = np.where(above == 0, 0, back[above])
    parents = (first, second)
    colour = _colours(parents)
    return _timed(first, colour[0]), _timed(second, colour[1])


def _colours(parents: tuple[Ints, Ints]) -> Ints:
    """Return the colour of the edge to each rank in each tree, (2, ranks)."""
    group_size = len(parents[0])
    sent_by = defaultdict(list)
    for tree, parent in enumerate(parents):
        for child in range(1, group_size):
            sent_by[int(parent[child])].append((tree, child))
    beside = {}  # the other edge that the same sender has
    for one in sent_by.values():
        if len(one) == 2:
            beside[one[0]], beside[one[1]] = one[1], one[0]
    colour = np.full((2, group_size), -1, np.int64)
    edges = [(tree, child) for tree in (0, 1) for child in range(1, group_size)]
    # Paths from their ends, then what is left: circles.
    for start in [edge for edge in edges if edge not in beside] + edges:
        edge: tuple[int, int] | None = start
        turn = 0
        while edge is not None and colour[edge] < 0:
            twin = (1 - edge[0], edge[1])
            colour[edge], colour[twin] = turn, 1 - turn
            edge = beside.get(twin)
    return colour


def _timed(parent: Ints, colour: Ints) -> _Edges:
    """Return the edges, each at the first step of its colour after the parent has the segment."""
    arrives = np.full(len(parent), -2, np.int64)
    arrives[0] = -1

    def when(v: int) -> int:
        if arrives[v] < -1:
            after = when(int(parent[v])) + 1
            arrives[v] = after + (after + int(colour[v])) % 2
        return int(arrives[v])

    for v in range(1, len(parent)):
        when(v)
    return _Edges(np.arange(1, len(parent)), parent[1:], arrives[1:])


def _rows(
    edges: _Edges, root: int, segments: int, first_slot: int, *, up: bool, every: int = 2
) -> Rows:
    """Return the rows of one tree, downwards; with `up` against the edges, last step first."""
    group_size = len(edges.child) + 1
    segment = np.arange(segments)[:, None]
    step = edges.first + every * segment
    child, parent = (edges.child + root) % group_size, (edges.parent + root) % group_size
    src, dst = (child, parent) if up else (parent, child)
    slot = first_slot + segment
    return rows(-step if up else step, src, dst, slot, reduce=up)


def _schedule(
    collective: str, name: str, group_size: int, trees: list[Rows], n_slots: int, root: int
) -> Schedule:
    slots, both = range(n_slots), joined(trees)
    timed = both.later(-int(both.step.min(initial=0)))
    return Schedule.of(collective, name, group_size, timed, input=slots, output=slots, root=root)


def _binary(collective: str, group_size: int, root: int, segments: int) -> Schedule:
    _check(segments)
    every = 1 if group_size == 2 else 2  # an only child is served in every step
    edges, up = binary_edges(group_size), collective == "reduce"
    tree = _rows(edges, root, segments, 0, up=up, every=every)
    return _schedule(collective, "binary_tree", group_size, [tree], segments, root)


def _double(collective: str, group_size: int, root: int, segments: int) -> Schedule:
    _check(segments)
    trees = [
        _rows(edges, root, segments, tree * segments, up=collective == "reduce")
        for tree, edges in enumerate(double_edges(group_size))
    ]
    return _schedule(collective, "double_tree", group_size, trees, 2 * segments, root)


def _check(segments: int) -> None:
    if segments < 1:
        raise ScheduleError(f"segments is {segments}, expected 1 or more")


@algorithm("broadcast", "binary_tree", phases=_broadcast_phases)
def broadcast_binary_tree(group_size: int, root: int = 0, segments: int = 4) -> Schedule:
    """Return a pipelined binary tree: each rank hands segments to two children in turn.

    Ranks count from the root; the children of v are 2v + 1 and 2v + 2. With 5 ranks, root 0 and 2
    segments a, b::

        step 0   0 -> 1 a
        step 1   0 -> 2 a   1 -> 3 a
        step 2   0 -> 1 b   1 -> 4 a
        step 3   0 -> 2 b   1 -> 3 b
        step 4              1 -> 4 b

    Cost (d + 2(k - 1))(α + S/(kB)) for k segments, where d is 2lg n at most.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that has the data.
        segments: Pieces that the data is cut into.

    Source: Open MPI, coll/base, binary tree broadcast.

    Example:
        >>> broadcast_binary_tree(5, segments=2).n_steps
        5
    """
    return _binary("broadcast", group_size, root, segments)


@algorithm("reduce", "binary_tree", phases=_reduce_phases)
def reduce_binary_tree(group_size: int, root: int = 0, segments: int = 4) -> Schedule:
    """Return a pipelined binary tree towards the root; each rank adds what two children send.

    The reverse of the broadcast. With 5 ranks, root 0 and 2 segments a, b::

        step 0              4 +> 1 b
        step 1   2 +> 0 b   3 +> 1 b
        step 2   1 +> 0 b   4 +> 1 a
        step 3   2 +> 0 a   3 +> 1 a
        step 4   1 +> 0 a

    Cost (d + 2(k - 1))(α + S/(kB) + γS/k) where ranks keep to their steps: under the policies
    rank_step and lockstep.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that gets the result.
        segments: Pieces that the data is cut into.

    Source: Open MPI, coll/base, binary tree reduce.

    Example:
        >>> reduce_binary_tree(5, segments=2).n_steps
        5
    """
    return _binary("reduce", group_size, root, segments)


@algorithm("broadcast", "double_tree", phases=_broadcast_phases)
def broadcast_double_tree(group_size: int, root: int = 0, segments: int = 4) -> Schedule:
    """Return the two-tree broadcast: half of the data through each of two binary trees.

    A rank inside one tree is a leaf of the other, so each one sends about as much as it receives.
    With 5 ranks, root 0 and a segment a half, the trees and the steps are::

        tree 1   0 -> 4 -> 2 -> 1, 3      half a
        tree 2   0 -> 1 -> 3 -> 2, 4      half b

        step 0              0 -> 1 b
        step 1   0 -> 4 a   1 -> 3 b
        step 2   4 -> 2 a   3 -> 4 b
        step 3   2 -> 1 a   3 -> 2 b
        step 4   2 -> 3 a

    Cost (2⌈lg n⌉ + 2k - 2)(α + S/(2kB)) at most, with k segments a half: about S/B where it pays
    to have many.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that has the data.
        segments: Pieces that each half is cut into.

    Source: P. Sanders, J. Speck and J. L. Träff, Two-tree algorithms for full bandwidth broadcast,
        reduction and scan, Parallel Computing 35, 2009; the trees as in NCCL, src/graph/trees.cc.

    Example:
        >>> broadcast_double_tree(5, segments=1).n_steps
        5
    """
    return _double("broadcast", group_size, root, segments)


@algorithm("reduce", "double_tree", phases=_reduce_phases)
def reduce_double_tree(group_size: int, root: int = 0, segments: int = 4) -> Schedule:
    """Return the two-tree reduce: half of the data through each of two binary trees.

    The reverse of the broadcast. With 5 ranks, root 0 and a segment a half::

        step 0   3 +> 2 a
        step 1   1 +> 2 a   2 +> 3 b
        step 2   2 +> 4 a   4 +> 3 b
        step 3   4 +> 0 a   3 +> 1 b
        step 4              1 +> 0 b

    Cost (2⌈lg n⌉ + 2k - 2)(α + S/(2kB) + γS/(2k)) at most, with k segments a half.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that gets the result.
        segments: Pieces that each half is cut into.

    Source: P. Sanders, J. Speck and J. L. Träff, Two-tree algorithms for full bandwidth broadcast,
        reduction and scan, Parallel Computing 35, 2009; the trees as in NCCL, src/graph/trees.cc.

    Example:
        >>> reduce_double_tree(5, segments=1).n_steps
        5
    """
    return _double("reduce", group_size, root, segments)
