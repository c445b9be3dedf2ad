"""Rings that run at once or in segments: both directions, several channels, pipelined."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np

from ...errors import ScheduleError
from ..schedule import Ints, Schedule
from .parts import Rows, joined, one_after_the_other, rows
from .registry import Phase, algorithm


def _phases(schedule: Schedule) -> list[Phase]:
    half = schedule.n_steps // 2
    return [
        Phase(
            "reduce-scatter",
            0,
            half,
            "Each rank adds its own part to what arrives and passes it on, on every ring.",
            "Every rank sends a first piece along each of its rings.",
        ),
        Phase(
            "all-gather",
            half,
            half,
            "The finished pieces go once more around, until every rank has all of them.",
        ),
    ]


def _positive(name: str, algorithm: str, value: int) -> None:
    if value < 1:
        raise ScheduleError(f"all_reduce {algorithm}: {name} is {value}, expected 1 or more")


def _around(orders: Sequence[Ints], first: int, *, reduce: bool) -> Rows:
    """Return one turn, without its last hop, of a ring a channel.

    On channel c each rank sends to the next of orders[c]; chunk k has the slots from k * channels
    on.

    Args:
        orders: Ranks in the order of each ring, (ranks,) each.
        first: Whose chunk each rank sends first: that of so many ring neighbours on.
        reduce: Whether the receiver adds.
    """
    n = len(orders[0])
    turn, rank = np.arange(n - 1)[:, None], np.arange(n)
    parts = []
    for channel, order in enumerate(orders):
        at = np.argsort(order)
        slot = order[(at + first - turn) % n] * len(orders) + channel
        dst = order[(at + 1) % n]
        parts.append(rows(turn, rank, dst, slot, reduce=reduce, channel=channel))
    return joined(parts)


def _strided(group_size: int, stride: int) -> Ints:
    """Return the ring in which rank r is followed by r + stride."""
    return np.arange(group_size) * stride % group_size


def _all_reduce(group_size: int, name: str, orders: Sequence[Ints]) -> Schedule:
    slots = range(group_size * len(orders))
    both = one_after_the_other(_around(orders, -1, reduce=True), _around(orders, 0, reduce=False))
    return Schedule.of("all_reduce", name, group_size, both, input=slots, output=slots)


@algorithm("all_reduce", "ring_segmented", phases=_phases)
def all_reduce_ring_segmented(group_size: int, segments: int = 2, window: int = 2) -> Schedule:
    """Return NCCL's ring with each chunk cut into segments that follow each other closely.

    A step moves one segment, and `window` steps of a rank may be under way at once, so that adding
    one segment overlaps with sending the next. With 3 ranks and 2 segments a and b of each chunk::

        step   r0 -> r1     r1 -> r2     r2 -> r0
          0    +chunk 2a    +chunk 0a    +chunk 1a
          1    +chunk 2b    +chunk 0b    +chunk 1b
          2    +chunk 1a    +chunk 2a    +chunk 0a
          ...

    Cost 2(n - 1)k(α + S/(nkB)) for k segments with a window of 1; with a larger window up to so
    many latencies overlap.

    Args:
        group_size: Number of ranks, 1 or more.
        segments: Segments of each chunk.
        window: Steps that may be under way at a rank.

    Source: Open MPI, coll/base, segmented ring all_reduce; gloo/allreduce.cc keeps two segments
        under way.

    Example:
        >>> all_reduce_ring_segmented(4, segments=3).n_steps
        18
    """
    _positive("segments", "ring_segmented", segments)
    segment = np.arange(segments)[:, None]

    def cut(part: Rows) -> Rows:
        slot = part.src_slot * segments + segment
        step = part.step * segments + segment
        return rows(step, part.src, part.dst, slot, reduce=bool(part.reduce.any()))

    slots = range(group_size * segments)
    both = one_after_the_other(
        cut(_around([np.arange(group_size)], -1, reduce=True)),
        cut(_around([np.arange(group_size)], 0, reduce=False)),
    )
    return Schedule.of(
        "all_reduce", "ring_segmented", group_size, both, input=slots, output=slots, window=window
    )


@algorithm("all_reduce", "ring_bidirectional", phases=_phases)
def all_reduce_ring_bidirectional(group_size: int) -> Schedule:
    """Return two rings in opposite directions, each with one half of every chunk.

    Channel 0 sends half a of the chunks up, channel 1 half b down. With 3 ranks, what r0 sends::

        step   r0 -> r1     r0 -> r2
          0    +chunk 2a    +chunk 1b    reduce-scatter
          1    +chunk 1a    +chunk 2b
          2     chunk 0a     chunk 0b    all-gather
          3     chunk 2a     chunk 1b

    Cost 2(n - 1)(α + S/(2nB)) where both directions have links of their own.

    Args:
        group_size: Number of ranks, 1 or more.

    Source: J. Austin et al., How to Scale Your Model, 2025 (rings on TPUs).

    Example:
        >>> all_reduce_ring_bidirectional(4).channels
        2
    """
    orders = [_strided(group_size, direction) for direction in (1, -1)]
    return _all_reduce(group_size, "ring_bidirectional", orders)


def disjoint_strides(group_size: int, channels: int) -> list[int]:
    """Return the strides of so many rings, no two with a link in common as long as there are such.

    A stride that has no divisor in common with the group size makes one ring of all ranks. Where
    there are fewer than `channels`, they are used again.

    Example:
        >>> disjoint_strides(8, 6)
        [1, 3, 5, 7, 1, 3]
    """
    known = [s for s in range(1, max(group_size, 2)) if gcd(s, group_size) == 1][:channels]
    return [known[channel % len(known)] for channel in range(channels)]


def _rotated(group_size: int, channels: int, ranks_per_host: int) -> list[Ints]:
    """Return rings that go once around each host, from another rank of it on each channel."""
    if ranks_per_host < 1 or group_size % ranks_per_host:
        raise ScheduleError(
            f"all_reduce ring_channels: ranks_per_host is {ranks_per_host}, expected a divisor of "
            f"{group_size}"
        )
    rank = np.arange(group_size).reshape(-1, ranks_per_host)
    return [np.roll(rank, -channel, axis=1).reshape(-1) for channel in range(channels)]


@algorithm("all_reduce", "ring_channels", phases=_phases)
def all_reduce_ring_channels(
    group_size: int,
    channels: int = 2,
    ranks_per_host: int | None = None,
    rings: Sequence[Sequence[int]] | None = None,
) -> Schedule:
    """Return several rings at once, each with a part of every chunk and with links of its own.

    On channel c rank r sends to r + d, where d is the c-th number that has no divisor in common
    with n; so no link belongs to two rings until all such numbers are used. With 5 ranks::

        channel 0   0 -> 1 -> 2 -> 3 -> 4 -> 0
        channel 1   0 -> 2 -> 4 -> 1 -> 3 -> 0

    Where ranks lie on hosts with a NIC each, rings are rotated instead: on channel c a ring comes
    into each host at its c-th rank and goes once around it, so that each ring has its own NIC. With
    2 hosts of 3 ranks::

        channel 0   0 -> 1 -> 2 -> 3 -> 4 -> 5 -> 0
        channel 1   1 -> 2 -> 0 -> 4 -> 5 -> 3 -> 1

    On a network where not all ranks are linked, `disjoint_rings` finds rings along its links.

    Cost 2(n - 1)(α + S/(nkB)) for k channels where all links exist and are alike.

    Args:
        group_size: Number of ranks, 1 or more.
        channels: Number of rings.
        ranks_per_host: A divisor of the group size, for rotated rings.
        rings: The rings themselves, a channel each, as the order of all ranks.

    Source: NCCL 2.30, src/graph/rings.cc (a ring a channel) and src/graph/search.cc (a NIC for each
        channel); the strides are our choice.

    Example:
        >>> [row.dst for row in all_reduce_ring_channels(5).transfers if row.src == 0][:2]
        [1, 2]
    """
    _positive("channels", "ring_channels", channels)
    if ranks_per_host is not None and rings is None:
        orders = _rotated(group_size, channels, ranks_per_host)
    elif rings is None:
        orders = [_strided(group_size, each) for each in disjoint_strides(group_size, channels)]
    else:
        orders = [np.array(ring, np.int64) for ring in rings]
        for channel, order in enumerate(orders):
            if sorted(order.tolist()) != list(range(group_size)):
                raise ScheduleError(
                    f"all_reduce ring_channels: ring {channel} is {list(rings[channel])}, expected "
                    f"each rank from 0 to {group_size - 1} once"
                )
    return _all_reduce(group_size, "ring_channels", orders)
