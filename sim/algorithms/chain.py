"""Chains: the data is cut into segments, which follow each other from rank to rank."""

from __future__ import annotations

import numpy as np

from ...errors import ScheduleError
from ..schedule import Schedule
from .registry import Phase, algorithm


def _broadcast_phase(schedule: Schedule) -> list[Phase]:
    return [
        Phase(
            "broadcast",
            0,
            schedule.n_steps,
            "Each rank passes the segment it has got to the next rank in the chain.",
            "The root sends its first segment to the next rank in the chain.",
        )
    ]


def _reduce_phase(schedule: Schedule) -> list[Phase]:
    return [
        Phase(
            "reduce",
            0,
            schedule.n_steps,
            "Each rank adds its own part to the segment that arrives and passes it on.",
            "The last rank of the chain sends its first segment towards the root.",
        )
    ]


def _chain(
    collective: str, group_size: int, root: int, segments: int, *, towards_root: bool
) -> Schedule:
    if segments < 1:
        raise ScheduleError(f"{collective} chain: segments is {segments}, expected 1 or more")
    hop = np.arange(group_size - 1)[:, None]
    segment = np.arange(segments)
    step, slot = (hop + segment).reshape(-1), np.tile(segment, group_size - 1)
    place = np.repeat(hop, segments)
    if towards_root:
        src = (root + group_size - 1 - place) % group_size
        dst = (root + group_size - 2 - place) % group_size
    else:
        src, dst = (root + place) % group_size, (root + place + 1) % group_size
    return Schedule.of(
        collective,
        "chain",
        group_size,
        (step, 0, src, dst, slot, slot, 1, towards_root),
        input=range(segments),
        output=range(segments),
        root=root,
    )


@algorithm("broadcast", "chain", phases=_broadcast_phase)
def broadcast_chain(group_size: int, root: int = 0, segments: int = 4) -> Schedule:
    """Return a pipelined chain: segment after segment moves from rank to rank.

    With 4 ranks, root 0 and 3 segments a, b, c::

        step   0 -> 1   1 -> 2   2 -> 3
          0      a
          1      b        a
          2      c        b        a
          3               c        b
          4                        c

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that has the data.
        segments: Pieces that the data is cut into; with 1 it is a plain chain.

    Source: Open MPI, coll/base, pipelined chain broadcast; cost (n - 2 + k)(α + S/(kB)).

    Example:
        >>> broadcast_chain(4, segments=3).n_steps
        5
    """
    return _chain("broadcast", group_size, root, segments, towards_root=False)


@algorithm("reduce", "chain", phases=_reduce_phase)
def reduce_chain(group_size: int, root: int = 0, segments: int = 4) -> Schedule:
    """Return a pipelined chain towards the root; each rank adds its own part.

    With 4 ranks, root 0 and 3 segments a, b, c::

        step   3 +> 2   2 +> 1   1 +> 0
          0      a
          1      b        a
          2      c        b        a
          3               c        b
          4                        c

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that gets the result.
        segments: Pieces that the data is cut into; with 1 it is a plain chain.

    Source: Open MPI, coll/base, pipelined chain reduce; cost (n - 2 + k)(α + S/(kB)).

    Example:
        >>> reduce_chain(4, segments=3).n_steps
        5
    """
    return _chain("reduce", group_size, root, segments, towards_root=True)
