"""In the network: a switch adds up what the ranks send, and hands the result to all of them.

The switch is a helper, the node `switch` of a topology such as `star`. Real ranks cannot execute
these plans over send and receive.
"""

from __future__ import annotations

import numpy as np

from ...errors import ScheduleError
from ..schedule import Schedule
from .parts import joined, rows
from .registry import Phase, algorithm

SWITCH = "switch"


def _sharp_phases(schedule: Schedule) -> list[Phase]:
    if schedule.n_steps != 2:
        return []  # segments overlap: the rows tell
    return [
        Phase("reduce", 0, 1, "Every rank sends its data to the switch, which adds it up."),
        Phase("broadcast", 1, 1, "The switch sends the result to every rank."),
    ]


def _nvls_phases(schedule: Schedule) -> list[Phase]:
    sentences = (
        ("reduce", "The switch takes a chunk for each rank from everybody and adds it up."),
        ("load", "Every rank gets the sum of its own chunk from the switch."),
        ("store", "Every rank sends its finished chunk to the switch."),
        ("multicast", "The switch passes each finished chunk on to all the other ranks."),
    )
    return [Phase(name, step, 1, text) for step, (name, text) in enumerate(sentences)]


@algorithm("all_reduce", "sharp", phases=_sharp_phases)
def all_reduce_sharp(group_size: int, segments: int = 1) -> Schedule:
    """Return a reduction in the switch: every rank sends its vector up and gets the sum down.

    With 3 ranks::

        step 0   0 +> switch   1 +> switch   2 +> switch
        step 1   switch -> 0   switch -> 1   switch -> 2

    Cost (k + 1)(α + S/(kB)) for k segments, where α is the latency of a link to the switch and B
    its rate; the switch adds at no cost.

    Args:
        group_size: Number of ranks, 1 or more.
        segments: Pieces that follow each other; a piece goes down while the next one goes up.

    Source: R. L. Graham et al., Scalable Hierarchical Aggregation Protocol (SHArP), COMHPC 2016;
        NCCL 2.30, CollNet.

    Example:
        >>> all_reduce_sharp(8).helpers
        ('switch',)
    """
    if segments < 1:
        raise ScheduleError(f"all_reduce sharp: segments is {segments}, expected 1 or more")
    rank, segment = np.arange(group_size * (group_size > 1)), np.arange(segments)[:, None]
    up = rows(segment, rank, group_size, segment, reduce=True)
    down = rows(segment + 1, group_size, rank, segment, reduce=False)
    return Schedule.of(
        "all_reduce",
        "sharp",
        group_size,
        joined([up, down]),
        input=range(segments),
        output=range(segments),
        helpers=[SWITCH],
    )


@algorithm("all_reduce", "nvls", phases=_nvls_phases)
def all_reduce_nvls(group_size: int) -> Schedule:
    """Return NVLink SHARP: each rank loads its chunk's sum from the switch and multicasts it.

    The switch adds up chunk k of all ranks when rank k loads it; rank k stores it back, and the
    switch hands it to all others. With 3 ranks, what becomes of chunk 1::

        step 0   0 +> switch   1 +> switch   2 +> switch
        step 1   switch -> 1
        step 2   1 -> switch
        step 3   switch -> 0   switch -> 2

    Cost 4α + (2 + 1/n)S/B if nothing overlaps, where α is the latency of a link to the switch and
    B its rate; the switch adds at no cost.

    Args:
        group_size: Number of ranks, 1 or more.

    Source: NCCL 2.30, src/device/all_reduce.h, NVLS (multimem.ld_reduce and multimem.st);
        B. Klenk et al., An In-Network Architecture for Accelerating Shared-Memory Multiprocessor
        Collectives, ISCA 2020.

    Example:
        >>> all_reduce_nvls(8).n_steps
        4
    """
    rank, switch = np.arange(group_size * (group_size > 1)), group_size
    chunk = rank[:, None]
    others = chunk != rank
    whose, to = np.broadcast_to(chunk, others.shape)[others], np.nonzero(others)[1]
    parts = [
        rows(0, rank, switch, chunk, reduce=True),
        rows(1, switch, rank, rank, reduce=False),
        rows(2, rank, switch, rank, reduce=False),
        rows(3, switch, to, whose, reduce=False),
    ]
    slots = range(group_size)
    return Schedule.of(
        "all_reduce",
        "nvls",
        group_size,
        joined(parts),
        input=slots,
        output=slots,
        helpers=[SWITCH],
    )
