"""An all_reduce made of a reduce and a broadcast, one after the other."""

from __future__ import annotations

import numpy as np

from ...errors import ScheduleError
from ..schedule import Schedule
from .knomial import broadcast_k_nomial, reduce_k_nomial
from .parts import Rows, one_after_the_other
from .registry import ALGORITHMS, Phase, algorithm


def _phases(schedule: Schedule) -> list[Phase]:
    copies = schedule.step[~schedule.reduce]
    first = int(copies.min(initial=schedule.n_steps))
    return [
        Phase("reduce", 0, first, "The data of all ranks is added up on its way to rank 0."),
        Phase("broadcast", first, schedule.n_steps - first, "The result spreads from rank 0."),
    ]


def _rows_of(schedule: Schedule) -> Rows:
    return Rows(*(np.asarray(getattr(schedule, name)) for name in Rows._fields))


def _composed(name: str, reduce: Schedule, broadcast: Schedule) -> Schedule:
    """Return an all_reduce: a reduce to rank 0, and then a broadcast from there."""
    slots = reduce.input[0]
    if not slots == reduce.output[0] == broadcast.input[0] == broadcast.output[0]:
        raise ScheduleError(
            f"all_reduce {name}: reduce {reduce.algorithm} leaves {len(slots)} chunk(s), broadcast "
            f"{broadcast.algorithm} takes {len(broadcast.input[0])}; take two of a kind"
        )
    both = one_after_the_other(_rows_of(reduce), _rows_of(broadcast))
    return Schedule.of("all_reduce", name, reduce.group_size, both, input=slots, output=slots)


@algorithm("all_reduce", "k_nomial", phases=_phases)
def all_reduce_k_nomial(group_size: int, radix: int = 4) -> Schedule:
    """Return a k-nomial reduce to rank 0, followed by a k-nomial broadcast.

    Each rank that goes on takes the sums of k - 1 others a step. With 9 ranks and radix 3::

        step 0   1 +> 0   2 +> 0   4 +> 3   5 +> 3   7 +> 6   8 +> 6
        step 1   3 +> 0   6 +> 0
        step 2   0 -> 3   0 -> 6
        step 3   0 -> 1   0 -> 2   3 -> 4   3 -> 5   6 -> 7   6 -> 8

    Cost 2⌈log_k n⌉(α + S/B) if a rank can send or receive k - 1 messages at one time.

    Args:
        group_size: Number of ranks, 1 or more.
        radix: k, 2 or more.

    Source: Open MPI, coll/base, k-nomial trees; J. Bruck et al., Efficient algorithms for
        all-to-all communications in multiport message-passing systems, 1997.

    Example:
        >>> all_reduce_k_nomial(9, radix=3).n_steps
        4
    """
    return _composed(
        "k_nomial",
        reduce_k_nomial(group_size, radix=radix),
        broadcast_k_nomial(group_size, radix=radix),
    )


@algorithm("all_reduce", "reduce_broadcast", phases=_phases)
def all_reduce_reduce_broadcast(
    group_size: int, reduce: str = "flat", broadcast: str = "flat"
) -> Schedule:
    """Return a reduce to rank 0 and then a broadcast from it, each by any algorithm.

    Flat, rank 0 is a parameter server, and its link carries everything. With 4 ranks::

        step 0   1 +> 0   2 +> 0   3 +> 0
        step 1   0 -> 1   0 -> 2   0 -> 3

    Cost of the flat ones 2α + 2S/B + (n - 1)γS if each pair has a link; 2α + 2(n - 1)S/B if rank 0
    has one for all.

    Args:
        group_size: Number of ranks, 1 or more.
        reduce: Name of the reduce.
        broadcast: Name of the broadcast.

    Source: Open MPI, coll/base, non-overlapping and basic linear all_reduce.

    Example:
        >>> all_reduce_reduce_broadcast(8, reduce="tree").n_steps
        4
    """
    parts = []
    for collective, name in (("reduce", reduce), ("broadcast", broadcast)):
        known = [one for kind, one in ALGORITHMS if kind == collective]
        if name not in known:
            raise ScheduleError(
                f"all_reduce reduce_broadcast: unknown {collective} {name!r}; known: "
                f"{', '.join(known)}"
            )
        parts.append(ALGORITHMS[collective, name].builder(group_size))
    return _composed("reduce_broadcast", *parts)
