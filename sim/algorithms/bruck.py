"""All-gathers in which what a rank has grows or doubles: Bruck, PAT, neighbour exchange."""

from __future__ import annotations

import numpy as np

from ...errors import ScheduleError
from ..schedule import Ints, Schedule
from .parts import EVEN, Rows, joined, one_after_the_other, reversed_bits, rows
from .registry import Phase, algorithm


def _bruck_phases(schedule: Schedule) -> list[Phase]:
    sentence = "Each rank sends all that it has to a rank twice as far away as the time before."
    opening = "Every rank sends its own block to its neighbour."
    return [Phase("all-gather", 0, schedule.n_steps, sentence, opening)]


def _pat_gather_phases(schedule: Schedule) -> list[Phase]:
    sentence = "Each rank passes blocks on to a nearer rank, as many as a message may carry."
    opening = "Every rank sends its own block far away."
    return [Phase("all-gather", 0, schedule.n_steps, sentence, opening)]


def _pat_scatter_phases(schedule: Schedule) -> list[Phase]:
    sentence = "Each rank sends sums on to a farther rank, which adds them to its own."
    opening = "Every rank sends blocks to its neighbour, which adds them."
    return [Phase("reduce-scatter", 0, schedule.n_steps, sentence, opening)]


def _neighbor_phases(schedule: Schedule) -> list[Phase]:
    sentence = "Neighbours swap the two blocks that came last, on either side in turn."
    opening = "Neighbours swap their own blocks."
    return [Phase("all-gather", 0, schedule.n_steps, sentence, opening)]


def _relative(slot_of: Ints) -> list[list[int]]:
    """Return each rank's slots in the order of the ranks whose blocks they stand for.

    Args:
        slot_of: Slot of the block of the rank that is so many ranks on, (ranks,).
    """
    rank = np.arange(len(slot_of))
    lists: list[list[int]] = slot_of[(rank - rank[:, None]) % len(rank)].tolist()
    return lists


@algorithm("all_gather", "bruck", phases=_bruck_phases)
def all_gather_bruck(group_size: int) -> Schedule:
    """Return Bruck's all_gather: in step k each rank sends all that it has to the rank 2^k before.

    What a rank has doubles with each step; the last one brings what is missing. Others keep the
    blocks in the order r, r + 1, ... and turn them round at the end; here each goes straight to its
    place, so that a message may have two pieces. With 5 ranks, what rank 0 gets::

        step 0   from 1   block 1
        step 1   from 2   blocks 2-3
        step 2   from 4   block 4

    Cost ⌈lg n⌉α + (n - 1)S/(nB).

    Args:
        group_size: Number of ranks, 1 or more.

    Source: J. Bruck et al., Efficient algorithms for all-to-all communications in multiport
        message-passing systems, IEEE TPDS 8(11), 1997.

    Example:
        >>> all_gather_bruck(5).n_steps
        3
    """
    rank, parts = np.arange(group_size), []
    for step in range((group_size - 1).bit_length()):
        far = 1 << step
        dst, count = (rank - far) % group_size, min(far, group_size - far)
        low = np.minimum(count, group_size - rank)  # the others are beyond the last rank: from 0 on
        parts.append(rows(step, rank, dst, rank, low, reduce=False))
        split = low < count
        left = (count - low)[split]
        parts.append(rows(step, rank[split], dst[split], 0, left, reduce=False))
    return Schedule.of(
        "all_gather",
        "bruck",
        group_size,
        joined(parts),
        input=[[one] for one in range(group_size)],
        output=range(group_size),
    )


def pat_steps(group_size: int, aggregation: int | None = None) -> list[tuple[Ints, int]]:
    """Return each step of a PAT all_gather: which blocks are sent, and how far.

    A block is named by how many ranks on its owner is. While messages are small, what a rank has
    doubles with each step; where `aggregation` blocks are the most that a message carries, the rest
    of the tree is walked depth first, one branch a step.

    Example:
        >>> [(blocks.tolist(), far) for blocks, far in pat_steps(8, 2)]
        [([0], 4), ([0, 4], 2), ([2, 6], 1), ([0, 4], 1)]
    """
    if aggregation is not None and (aggregation < 1 or aggregation & (aggregation - 1)):
        raise ScheduleError(f"pat: aggregation is {aggregation}, expected a power of two")
    top = 1 << (group_size - 1).bit_length()
    branches = min(aggregation or top, top)
    near = top // branches
    steps = []
    far = top // 2
    while far >= near:
        steps.append((np.arange(0, group_size - far, 2 * far), far))
        far //= 2
    for branch in _depth_first(near):
        far = branch & -branch
        steps.append((np.arange(branch - far, group_size - far, near), far))
    return [(blocks, far) for blocks, far in steps if len(blocks)]


def _depth_first(size: int) -> list[int]:
    """Return 1 .. size-1 in the order in which a binomial tree is walked, the far half first."""
    if size == 1:
        return []
    half, rest = size // 2, _depth_first(size // 2)
    return [half, *(half + branch for branch in rest), *rest]


def _pat(group_size: int, aggregation: int | None) -> tuple[Rows, Ints]:
    """Return the rows of a PAT all_gather, and the slot of the block that is so many ranks on.

    A slot of rank r stands for the block of rank r + s, so that all ranks do the same. Blocks lie
    in the order of the turned-around bits of s: those that travel together, which have the same low
    bits, lie side by side as far as that is possible.
    """
    levels = (group_size - 1).bit_length()
    turned = reversed_bits(1 << levels)
    slot_of = np.empty(group_size, np.int64)
    slot_of[turned[turned < group_size]] = np.arange(group_size)
    rank, parts = np.arange(group_size)[:, None], []
    for here, far in pat_steps(group_size, aggregation):
        first, there, count = _runs(slot_of[here], slot_of[here + far])
        dst = (rank - far) % group_size
        parts.append(rows(0, rank, dst, first, count, dst_slot=there, reduce=False))
    return one_after_the_other(*parts), slot_of


def _runs(src: Ints, dst: Ints) -> tuple[Ints, Ints, Ints]:
    """Return pairs of slots as runs that rise by one in both: first of each, and how many."""
    order = np.argsort(src)
    src, dst = src[order], dst[order]
    breaks = (np.diff(src) != 1) | (np.diff(dst) != 1)
    starts = np.concatenate([[0], np.flatnonzero(breaks) + 1])
    return src[starts], dst[starts], np.diff(np.append(starts, len(src)))


@algorithm("all_gather", "pat", phases=_pat_gather_phases)
def all_gather_pat(group_size: int, aggregation: int | None = None) -> Schedule:
    """Return PAT's all_gather: far ranks first, so that the large messages stay near.

    The block of rank r + s comes to rank r from the rank that s's lowest bit is on. With 6 ranks,
    what rank 0 gets::

        step 0   from 4   block 4
        step 1   from 2   block 2
        step 2   from 1   blocks 1, 3, 5

    Cost ⌈lg n⌉α + (n - 1)S/(nB). Where buffers hold only A blocks for each distance, messages carry
    A blocks at most, and the tree is walked branch by branch: (lg A + n/A - 1)α for powers of two.
    With 8 ranks and A = 2, what rank 0 gets::

        step 0   from 4   block 4
        step 1   from 2   blocks 2, 6
        step 2   from 1   blocks 3, 7
        step 3   from 1   blocks 1, 5

    Args:
        group_size: Number of ranks, 1 or more.
        aggregation: A, a power of two; None for no limit.

    Source: S. Jeaugey, PAT: a new algorithm for all-gather and reduce-scatter operations at scale,
        arXiv 2506.20252, 2025; NCCL 2.30, PatAGAlgorithm.

    Example:
        >>> all_gather_pat(6).n_steps
        3
    """
    columns, slot_of = _pat(group_size, aggregation)
    return Schedule.of(
        "all_gather",
        "pat",
        group_size,
        columns,
        input=[0],
        output=_relative(slot_of),
    )


@algorithm("reduce_scatter", "pat", phases=_pat_scatter_phases)
def reduce_scatter_pat(group_size: int, aggregation: int | None = None) -> Schedule:
    """Return PAT's reduce_scatter: its all_gather played backwards, with the large messages first.

    With 6 ranks, what rank 0 sends::

        step 0   to 1   its part of blocks 1, 3, 5
        step 1   to 2   its sum for block 2
        step 2   to 4   its sum for block 4

    Cost ⌈lg n⌉α + (n - 1)S/(nB) + (n - 1)γS/n; with a limit for buffers as the all_gather.

    Args:
        group_size: Number of ranks, 1 or more.
        aggregation: Most blocks of a message, a power of two; None for no limit.

    Source: S. Jeaugey, PAT: a new algorithm for all-gather and reduce-scatter operations at scale,
        arXiv 2506.20252, 2025; NCCL 2.30, PatRSAlgorithm.

    Example:
        >>> reduce_scatter_pat(6).n_steps
        3
    """
    columns, slot_of = _pat(group_size, aggregation)
    mirrored = columns.backwards()
    return Schedule.of(
        "reduce_scatter",
        "pat",
        group_size,
        mirrored._replace(reduce=~mirrored.reduce),
        input=_relative(slot_of),
        output=[0],
    )


@algorithm("all_gather", "neighbor_exchange", sizes=EVEN, phases=_neighbor_phases)
def all_gather_neighbor_exchange(group_size: int) -> Schedule:
    """Return neighbour exchange: pairs of neighbours swap blocks, to the left and right in turn.

    After the first step all messages carry the two blocks that came last. With 6 ranks::

        step 0   0 <-> 1   2 <-> 3   4 <-> 5     own blocks
        step 1   1 <-> 2   3 <-> 4   5 <-> 0     two blocks each
        step 2   0 <-> 1   2 <-> 3   4 <-> 5     the two that came in step 1

    Cost nα/2 + (n - 1)S/(nB).

    Args:
        group_size: Number of ranks, an even number.

    Source: J. Chen et al., Performance evaluation of allgather algorithms on terascale Linux
        cluster with fast Ethernet, HPC Asia 2005; Open MPI, coll/base.

    Example:
        >>> all_gather_neighbor_exchange(6).n_steps
        3
    """
    rank = np.arange(group_size)
    odd = rank % 2
    parts = [rows(0, rank, rank ^ 1, rank, reduce=False)]
    last = rank - odd  # the first of the two blocks to send next
    came = [last, last]  # from the partner of even steps, and from that of odd ones
    for step in range(1, group_size // 2):
        to_left = (odd + step) % 2 == 1
        dst = np.where(to_left, rank - 1, rank + 1) % group_size
        parts.append(rows(step, rank, dst, last, 2, reduce=False))
        came[step % 2] = (came[step % 2] + np.where(to_left, -2, 2)) % group_size
        last = came[step % 2]
    return Schedule.of(
        "all_gather",
        "neighbor_exchange",
        group_size,
        joined(parts),
        input=[[one] for one in range(group_size)],
        output=range(group_size),
    )
