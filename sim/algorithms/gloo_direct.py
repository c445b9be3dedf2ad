"""Native gloo's collectives that are no rings: trees, direct messages and the barrier."""

from __future__ import annotations

import numpy as np

from ..schedule import Schedule
from .gloo import NAME
from .registry import Phase, algorithm


def _broadcast_phases(schedule: Schedule) -> list[Phase]:
    return [
        Phase(
            "broadcast",
            0,
            schedule.n_steps,
            "Every rank that has the data sends it to one that has not.",
            "The root sends its data to the next rank.",
        )
    ]


def _all_to_all_phases(schedule: Schedule) -> list[Phase]:
    return [Phase("all-to-all", 0, schedule.n_steps, "Each rank sends a block to each other.")]


def _gather_phases(schedule: Schedule) -> list[Phase]:
    return [Phase("gather", 0, schedule.n_steps, "Every rank sends its block to the root.")]


def _scatter_phases(schedule: Schedule) -> list[Phase]:
    return [Phase("scatter", 0, schedule.n_steps, "The root sends every rank a block of its own.")]


def _barrier_phases(schedule: Schedule) -> list[Phase]:
    return [
        Phase(
            "barrier",
            0,
            schedule.n_steps,
            "Each rank tells another one, twice as far away each time, whom it has heard of.",
            "Each rank tells its neighbour that it is there.",
        )
    ]


def _monitored_phases(schedule: Schedule) -> list[Phase]:
    first = Phase("arrive", 0, 1, "Every rank tells rank 0 that it is there.")
    return [first, Phase("release", 1, 1, "Rank 0 has heard of all and lets them go.")]


@algorithm("broadcast", NAME, phases=_broadcast_phases)
def broadcast_gloo(group_size: int, root: int = 0) -> Schedule:
    """Return native gloo's binomial tree: near ranks first, the whole vector in one message.

    Counted from the root, rank v sends to v + 2^k in step k, if v < 2^k. With 6 ranks and root 0::

        step 0   0 -> 1
        step 1   0 -> 2   1 -> 3
        step 2   0 -> 4   1 -> 5

    A rank does not wait between its sends.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that has the data.

    Source: gloo, gloo/broadcast.cc.

    Example:
        >>> broadcast_gloo(6).n_steps
        3
    """
    receiver = np.arange(1, group_size)
    step = np.array([int(v).bit_length() - 1 for v in receiver], np.int64)
    sender = receiver - (1 << step)
    src, dst = (sender + root) % group_size, (receiver + root) % group_size
    return Schedule.of(
        "broadcast",
        NAME,
        group_size,
        (step, 0, src, dst, 0, 0, 1, False),
        input=[0],
        output=[0],
        root=root,
        window=max(1, (group_size - 1).bit_length()),
    )


@algorithm("all_to_all", NAME, default=True, phases=_all_to_all_phases)
def all_to_all_gloo(group_size: int) -> Schedule:
    """Return native gloo's direct exchange: rank r sends to r + 1, r + 2 and so on, all at once.

    Slots 0 to n - 1 are the blocks that a rank sends, n to 2n - 1 those that it gets. The messages
    of a rank do not wait for each other. With 3 ranks::

        step 0   0 -> 1   1 -> 2   2 -> 0
        step 1   0 -> 2   1 -> 0   2 -> 1

    Args:
        group_size: Number of ranks, 1 or more.

    Source: gloo, gloo/alltoall.cc and gloo/alltoallv.cc.

    Example:
        >>> len(all_to_all_gloo(4))
        16
    """
    far, rank = np.arange(group_size)[:, None], np.arange(group_size)
    dst = (rank + far) % group_size
    src = np.broadcast_to(rank, dst.shape)
    # The block that stays is copied first; the messages do not wait for that.
    step = np.broadcast_to(np.maximum(far - 1, 0), dst.shape)
    columns = (step, 0, src, dst, dst, group_size + src, 1, False)
    return Schedule.of(
        "all_to_all",
        NAME,
        group_size,
        [np.asarray(column).reshape(-1) if np.ndim(column) else column for column in columns],
        input=range(group_size),
        output=range(group_size, 2 * group_size),
        window=max(1, group_size - 1),
    )


@algorithm("gather", NAME, default=True, phases=_gather_phases)
def gather_gloo(group_size: int, root: int = 0) -> Schedule:
    """Return native gloo's gather: every rank sends its block straight to the root.

    With 3 ranks and root 0::

        step 0   1 -> 0 block 1   2 -> 0 block 2

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that gets the blocks.

    Source: gloo, gloo/gather.cc.

    Example:
        >>> len(gather_gloo(4))
        3
    """
    rank = np.delete(np.arange(group_size), root)
    return Schedule.of(
        "gather",
        NAME,
        group_size,
        (0, 0, rank, np.full(len(rank), root), rank, rank, 1, False),
        input=[[k] for k in range(group_size)],
        output=range(group_size),
        root=root,
    )


@algorithm("scatter", NAME, default=True, phases=_scatter_phases)
def scatter_gloo(group_size: int, root: int = 0) -> Schedule:
    """Return native gloo's scatter: the root sends every rank its block, all at once.

    With 3 ranks and root 0::

        step 0   0 -> 1 block 1   0 -> 2 block 2

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that has the blocks.

    Source: gloo, gloo/scatter.cc.

    Example:
        >>> len(scatter_gloo(4, root=1))
        3
    """
    rank = np.delete(np.arange(group_size), root)
    return Schedule.of(
        "scatter",
        NAME,
        group_size,
        (0, 0, np.full(len(rank), root), rank, rank, rank, 1, False),
        input=range(group_size),
        output=[[k] for k in range(group_size)],
        root=root,
    )


@algorithm("barrier", NAME, default=True, phases=_barrier_phases)
def barrier_gloo(group_size: int) -> Schedule:
    """Return native gloo's dissemination barrier: in step k rank r tells r + 2^k; no data moves.

    With 5 ranks::

        step 0   0 -> 1   1 -> 2   2 -> 3   3 -> 4   4 -> 0
        step 1   0 -> 2   1 -> 3   2 -> 4   3 -> 0   4 -> 1
        step 2   0 -> 4   1 -> 0   2 -> 1   3 -> 2   4 -> 3

    With a group size that is no power of two some ranks hear of others twice, which does no harm.

    Args:
        group_size: Number of ranks, 1 or more.

    Source: gloo, gloo/barrier.cc; D. Hensgen, R. Finkel and U. Manber, Two algorithms for barrier
        synchronization, 1988.

    Example:
        >>> barrier_gloo(5).n_steps
        3
    """
    n_steps = (group_size - 1).bit_length()
    step = np.repeat(np.arange(n_steps), group_size)
    src = np.tile(np.arange(group_size), n_steps)
    return Schedule.of(
        "barrier",
        NAME,
        group_size,
        (step, 0, src, (src + (1 << step)) % group_size, 0, 0, 1, True),
        input=[0],
        output=[0],
    )


@algorithm("barrier", "gloo_monitored", phases=_monitored_phases)
def barrier_gloo_monitored(group_size: int) -> Schedule:
    """Return native gloo's monitored barrier: every rank tells rank 0, which answers all.

    Its messages are plain ones of 4 bytes, the sender's rank. With 3 ranks::

        step 0   1 +> 0   2 +> 0
        step 1   0 -> 1   0 -> 2

    Args:
        group_size: Number of ranks, 1 or more.

    Source: PyTorch, ProcessGroupGloo, monitoredBarrier.

    Example:
        >>> len(barrier_gloo_monitored(4))
        6
    """
    rank, zero = np.arange(1, group_size), np.zeros(group_size - 1, np.int64)
    return Schedule.of(
        "barrier",
        "gloo_monitored",
        group_size,
        (
            np.repeat([0, 1], group_size - 1),
            0,
            np.concatenate([rank, zero]),
            np.concatenate([zero, rank]),
            0,
            0,
            1,
            np.repeat([True, False], group_size - 1),
        ),
        input=[0],
        output=[0],
    )
