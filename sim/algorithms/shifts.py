"""Patterns of plain sends and receives: every rank hands its data to the next one.

Ring attention, halo exchanges and pipelines of layers are made of these. Slots 0 to k - 1 are what
a rank sends in k pieces, k to 2k - 1 what it gets.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...errors import ScheduleError
from ..schedule import Schedule
from .parts import Rows, rows
from .registry import Phase, algorithm


def _shift_phases(schedule: Schedule) -> list[Phase]:
    return [Phase("shift", 0, schedule.n_steps, "Each rank sends its data to the next rank.")]


def _pipeline_phases(schedule: Schedule) -> list[Phase]:
    sentence = "Each rank sends a piece on when one from the rank before has come."
    opening = "The first rank sends its first piece to the next."
    return [Phase("pipeline", 0, schedule.n_steps, sentence, opening)]


def _of_rows(
    name: str, group_size: int, moved: Rows, segments: int, after: Iterable[tuple[int, int]] = ()
) -> Schedule:
    # A rank alone is the rank before itself, and has its data already.
    first = segments if group_size > 1 else 0
    return Schedule.of(
        "send_recv",
        name,
        group_size,
        moved if group_size > 1 else rows([], [], [], [], reduce=False),
        input=range(segments),
        output=range(first, first + segments),
        after=after if group_size > 1 else (),
    )


@algorithm("send_recv", "ring_shift", default=True, phases=_shift_phases)
def send_recv_ring_shift(group_size: int) -> Schedule:
    """Return a ring shift: every rank sends its data to the next at once, the last to the first.

    With 4 ranks::

        step 0   0 -> 1   1 -> 2   2 -> 3   3 -> 0

    Cost α + S/B; S are the bytes that a rank sends.

    Args:
        group_size: Number of ranks, 1 or more.

    Source: MPI 4.1, section 3.10, MPI_Sendrecv; L. Cannon, A cellular computer to implement the
        Kalman filter algorithm, 1969 (matrices that shift around a ring).

    Example:
        >>> len(send_recv_ring_shift(4))
        4
    """
    rank = np.arange(group_size)
    moved = rows(0, rank, (rank + 1) % group_size, 0, dst_slot=1, reduce=False)
    return _of_rows("ring_shift", group_size, moved, 1)


@algorithm("send_recv", "pipeline", phases=_pipeline_phases)
def send_recv_pipeline(group_size: int, segments: int = 4) -> Schedule:
    """Return a pipeline: rank r sends a piece on as soon as the rank before it has sent one.

    In step r + j rank r sends its j-th piece, as a stage of a pipelined model does with its j-th
    micro-batch (`after` makes it wait, since what it sends is not what has come); the last rank
    hands its pieces back to the first. With 3 ranks and 2 pieces a and
    b::

        step   0 -> 1   1 -> 2   2 -> 0
          0      a
          1      b        a
          2               b        a
          3                        b

    Cost (n + k - 1)(α + S/(kB)) for k pieces; S are the bytes that a rank sends.

    Args:
        group_size: Number of ranks, 1 or more.
        segments: k, pieces of a rank's data.

    Source: Y. Huang et al., GPipe: Efficient Training of Giant Neural Networks using Pipeline
        Parallelism, 2019; the way back as in D. Narayanan et al., Efficient Large-Scale Language
        Model Training on GPU Clusters Using Megatron-LM, 2021 (interleaved stages).

    Example:
        >>> send_recv_pipeline(3, segments=2).n_steps
        4
    """
    if segments < 1:
        raise ScheduleError(f"send_recv pipeline: segments is {segments}, expected 1 or more")
    rank, piece = np.arange(group_size), np.arange(segments)[:, None]
    dst = (rank + 1) % group_size
    moved = rows(rank + piece, rank, dst, piece, dst_slot=segments + piece, reduce=False)
    row = np.arange(group_size * segments).reshape(segments, group_size)
    after = zip(row[:, 1:].ravel().tolist(), row[:, :-1].ravel().tolist(), strict=True)
    return _of_rows("pipeline", group_size, moved, segments, after)
