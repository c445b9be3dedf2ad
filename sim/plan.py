"""What a rank does for one call of `execute`: checked, sized, compiled, kept for the next one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..errors import ScheduleError
from .bind import BoundSchedule, Splits, bind
from .program import Action, Program, batches, compile_program
from .schedule import Schedule
from .values import check_op
from .verify import check

# Size of a chunk's parts that is aimed at. On loopback 1 MiB, which native gloo takes, costs more
# changes of thread than it saves: a 64 MB ring on 4 ranks took 1.25 times native's time, not 1.14.
SEGMENT_BYTES = 6 << 20


class Plan(NamedTuple):
    """What a rank does for one schedule, operation, size and dtype, worked out once.

    Attributes:
        bound: The schedule and its sizes.
        place: Group rank of the rank.
        op: The operation.
        program: What the rank does.
        groups: The program's actions, those that are issued together as one.
        is_batched: Whether they must be issued together.
        factor: What PREMUL_SUM multiplies each input by; None for other operations.
    """

    bound: BoundSchedule
    place: int
    op: str
    program: Program
    groups: list[tuple[Action, ...]]
    is_batched: bool
    factor: float | None


@lru_cache(maxsize=256)
def plan_call(
    schedule: Schedule,
    place: int,
    group_size: int,
    op: str,
    elements: int,
    dtype: str,
    splits: Splits | None,
    *,
    is_batched: bool,
    factor: float | None = None,
) -> Plan:
    """Check a call and return its plan.

    Args:
        schedule: The schedule.
        place: Group rank of this rank.
        group_size: Ranks in the group.
        op: The operation.
        elements: Elements of this rank's tensor.
        dtype: Its dtype.
        splits: See `bind`.
        is_batched: Whether what starts at one time must be issued together.
        factor: What PREMUL_SUM multiplies by.
    """
    check_call(schedule, group_size, op, dtype, factor)
    bound = bind(schedule, _count(schedule, place, elements, splits), dtype, splits)
    program = compile_program(
        bound, place, segment_bytes=SEGMENT_BYTES, max_lanes=1 if is_batched else None
    )
    expected = program.input_elements if program.has_input else program.output_elements
    if expected != elements:
        raise ScheduleError(
            f"{schedule.collective}: tensor of rank {place} has {elements} elements, "
            f"the splits ask for {expected}",
            place=place,
        )
    return Plan(bound, place, op, program, batches(program), is_batched, factor)


def check_call(
    schedule: Schedule,
    group_size: int,
    op: str,
    dtype: str = "float32",
    factor: float | None = None,
) -> None:
    """Raise where a schedule cannot be carried out by a group.

    Raises:
        ScheduleError: The schedule breaks a rule, has helpers, or is for another number of ranks;
            or the operation is unknown, or has no meaning for the dtype.
    """
    if schedule.helpers:
        raise ScheduleError(
            f"{schedule.algorithm} needs helpers ({', '.join(schedule.helpers)}), "
            "which only a simulation has"
        )
    if schedule.group_size != group_size:
        raise ScheduleError(
            f"{schedule.algorithm} is a schedule for {schedule.group_size} ranks, "
            f"the group has {group_size}"
        )
    check_op(op, dtype, factor)
    _verified(schedule)


@lru_cache(maxsize=256)
def _verified(schedule: Schedule) -> None:
    check(schedule)


def _count(schedule: Schedule, place: int, elements: int, splits: Splits | None) -> int:
    """Return the elements of the whole data, from those of this rank's tensor or the splits."""
    kind = schedule.kind
    if splits is not None and kind.by_block:
        sums = [int(np.sum(row)) for row in splits]
        return max(sums) if kind.receives == "transposed" else sum(sums)
    own = kind.sends if kind.has_input(place, schedule.root) else kind.receives
    return elements * schedule.group_size if own == "block" else elements


def hashable(splits: Splits | None) -> Splits | None:
    if splits is None:
        return None
    rows: Sequence[Any] = splits
    frozen: tuple[Any, ...] = tuple(
        tuple(row) if isinstance(row, Sequence) else int(row) for row in rows
    )
    return frozen
