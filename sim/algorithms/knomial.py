"""k-nomial trees: the number of ranks that are done grows k times with each step."""

from __future__ import annotations

import numpy as np

from ...errors import ScheduleError
from ..schedule import Ints, Schedule
from .registry import Phase, algorithm


def _broadcast_phases(schedule: Schedule) -> list[Phase]:
    sentence = "Each rank that has the data hands it to several others at once."
    return [Phase("broadcast", 0, schedule.n_steps, sentence)]


def _reduce_phases(schedule: Schedule) -> list[Phase]:
    sentence = "Several ranks at once hand their sums to one, which adds them to its own."
    return [Phase("reduce", 0, schedule.n_steps, sentence)]


def edges(group_size: int, root: int, radix: int) -> tuple[Ints, Ints, Ints]:
    """Return level, child and parent of every edge.

    Counted from the root, a rank's parent has its lowest digit that is not 0, to base `radix`, set
    to 0; the level of the edge is the number of that digit.
    """
    if radix < 2:
        raise ScheduleError(f"radix is {radix}, expected 2 or more")
    virtual = np.arange(1, group_size)
    level, parent = np.zeros_like(virtual), np.zeros_like(virtual)
    power, number = 1, 0
    while power < group_size:
        here = virtual % power == 0
        level[here] = number
        parent[here] = virtual[here] - virtual[here] % (power * radix)
        power, number = power * radix, number + 1
    return level, (virtual + root) % group_size, (parent + root) % group_size


@algorithm("broadcast", "k_nomial", phases=_broadcast_phases)
def broadcast_k_nomial(group_size: int, root: int = 0, radix: int = 4) -> Schedule:
    """Return a k-nomial broadcast: each rank that has the data sends it to k - 1 others a step.

    Far ranks first; ranks count from the root. With 9 ranks, root 0 and radix 3::

        step 0   0 -> 3   0 -> 6
        step 1   0 -> 1   0 -> 2   3 -> 4   3 -> 5   6 -> 7   6 -> 8

    Cost ⌈log_k n⌉(α + S/B) if a rank can send k - 1 messages at one time; with radix 2 it is the
    binomial tree.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that has the data.
        radix: k, 2 or more.

    Source: Open MPI, coll/base, k-nomial broadcast; J. Bruck et al., Efficient algorithms for
        all-to-all communications in multiport message-passing systems, 1997.

    Example:
        >>> broadcast_k_nomial(16, radix=4).n_steps
        2
    """
    level, child, parent = edges(group_size, root, radix)
    columns = (int(level.max(initial=-1)) - level, 0, parent, child, 0, 0, 1, False)
    return Schedule.of(
        "broadcast", "k_nomial", group_size, columns, input=[0], output=[0], root=root
    )


@algorithm("reduce", "k_nomial", phases=_reduce_phases)
def reduce_k_nomial(group_size: int, root: int = 0, radix: int = 4) -> Schedule:
    """Return a k-nomial reduce: each rank that goes on adds the sums of k - 1 others a step.

    The reverse of the k-nomial broadcast. With 9 ranks, root 0 and radix 3::

        step 0   1 +> 0   2 +> 0   4 +> 3   5 +> 3   7 +> 6   8 +> 6
        step 1   3 +> 0   6 +> 0

    Cost ⌈log_k n⌉(α + S/B), and (k - 1)γS a step, if a rank can receive k - 1 messages at one time.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that gets the result.
        radix: k, 2 or more.

    Source: Open MPI, coll/base, k-nomial tree; J. Bruck et al., Efficient algorithms for
        all-to-all communications in multiport message-passing systems, 1997.

    Example:
        >>> reduce_k_nomial(16, radix=4).n_steps
        2
    """
    level, child, parent = edges(group_size, root, radix)
    columns = (level, 0, child, parent, 0, 0, 1, True)
    return Schedule.of("reduce", "k_nomial", group_size, columns, input=[0], output=[0], root=root)
