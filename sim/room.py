"""Whether a schedule fits into memory, asked before anything is allocated.

An algorithm does not say how many rows it makes. How they grow shows in small groups, which are
built in no time: a ring's rows grow with the square of the ranks.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ScheduleError
from ..units import format_bytes

if TYPE_CHECKING:
    from .schedule import Schedule

# Bytes of a row while it is built, sized, planned and simulated, all at once.
BYTES_A_ROW = 100
# Bytes of a slot of a place while chunks are followed.
_BYTES_A_CELL = 8
# Groups that are built without asking, and small groups in which the growth shows.
_SURELY = 256
_SMALL = (16, 32, 64, 128)
# Rows from which on a small group is large enough.
_ENOUGH = 20_000
# Segments of a chunk, and elements of a plan for one size, from which on rows grow alike.
_SEGMENTS, _ELEMENTS = 8, 1 << 28


def memory_bytes() -> float:
    """Return how much memory the machine has; infinity where it does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return math.inf


def check_cells(schedule: Schedule) -> None:
    """Raise where so high a slot is named that the slots of all places do not fit into memory."""
    slots, memory = schedule.slots_a_place, memory_bytes()
    if schedule.n_places * slots * _BYTES_A_CELL > memory:
        raise ScheduleError(
            f"slot {slots - 1} is named: {slots} slots at each of {schedule.n_places} places do "
            f"not fit into the {format_bytes(round(memory))} of this machine; use lower slots"
        )


def check_room(
    name: str,
    builder: Callable[..., Schedule],
    fits: Callable[[int], bool],
    group_size: int,
    parameters: dict[str, Any],
) -> None:
    """Raise where the rows of a schedule would not fit into memory.

    Args:
        name: How the schedule is called.
        builder: Function of the group size and the parameters that returns the Schedule.
        fits: Whether the builder takes a group size.
        group_size: Number of ranks.
        parameters: What the builder takes beside.

    Raises:
        ScheduleError: There is too little memory; says how many rows and bytes it would take.
    """
    rows = expected_rows(builder, fits, group_size, parameters)
    needed, memory = rows * BYTES_A_ROW, memory_bytes()
    if needed > memory:
        raise ScheduleError(
            f"{name} on {group_size} ranks has about {rows:.1e} transfers, which take about "
            f"{format_bytes(round(needed))} to build and simulate; this machine has "
            f"{format_bytes(round(memory))}: use fewer ranks, or an algorithm of fewer transfers"
        )


def expected_rows(
    builder: Callable[..., Schedule],
    fits: Callable[[int], bool],
    group_size: int,
    parameters: dict[str, Any],
) -> float:
    """Return about how many rows a schedule will have; 0 where it is small or cannot be told."""
    given, times = _reduced(parameters)
    if group_size <= _SURELY and times == 1:
        return 0.0
    known: list[tuple[int, int]] = []
    for most in _SMALL if group_size > _SURELY else (group_size,):
        size = next(filter(fits, range(most, most // 2, -1)), None)
        if size is None:
            continue
        try:
            root = {"root": min(given["root"], size - 1)} if "root" in given else {}
            known.append((size, len(builder(size, **{**given, **root}))))
        except ScheduleError:  # the parameters hold for one group size alone, or are wrong
            return 0.0
        if len(known) > 1 and known[-1][1] >= _ENOUGH:
            break
    if group_size <= _SURELY:
        return times * known[-1][1]
    if len(known) < 2 or known[-2][1] == 0:
        return 0.0
    (less, few), (more, many) = known[-2:]
    power = math.log(many / few) / math.log(more / less)
    return times * many * math.pow(group_size / more, power)


def _reduced(parameters: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Return parameters of a plan of fewer segments, and how many times as many it shall have."""
    # A list, such as the dimensions of a torus, holds for one group size alone.
    given = {name: value for name, value in parameters.items() if np.ndim(value) == 0}
    times = 1.0
    segments, size = parameters.get("segments"), parameters.get("size_bytes")
    if segments is not None and segments > _SEGMENTS:
        given["segments"] = _SEGMENTS
        times *= segments / _SEGMENTS
    if size is not None and size > _ELEMENTS * parameters.get("itemsize", 1):
        given["size_bytes"] = _ELEMENTS * parameters.get("itemsize", 1)
        times *= size / given["size_bytes"]
    return given, times
