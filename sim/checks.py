"""What must hold of every schedule, valid or not: its rows and header name what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import ScheduleError
from .room import check_cells
from .rows import Ints, Slots, blocks

if TYPE_CHECKING:
    from .schedule import Schedule


_ANY = np.iinfo(np.int64).max


def check(schedule: Schedule) -> None:
    """Raise where a row or the header names a place, slot, step or root that cannot be.

    Raises:
        ScheduleError: The first such thing.
    """
    kind, root = schedule.kind, schedule.root
    if kind.rooted and (root is None or not 0 <= root < schedule.group_size):
        raise ScheduleError(
            f"root of {kind.name} is {root}, expected 0 to {schedule.group_size - 1}"
        )
    if not kind.rooted and root is not None:
        raise ScheduleError(f"{kind.name} has no root, found {root}")
    if schedule.window < 1:
        raise ScheduleError(f"window is {schedule.window}, expected 1 or more")
    _check_rows(schedule)
    check_cells(schedule)
    _check_buffers(schedule)
    _check_after(schedule)


def _check_rows(schedule: Schedule) -> None:
    limits = (
        ("step", 0, None),
        ("channel", 0, None),
        ("src", 0, schedule.n_places),
        ("dst", 0, schedule.n_places),
        ("src_slot", 0, None),
        ("dst_slot", 0, None),
        ("n_slots", 1, None),
    )
    for name, low, high in limits:
        values = getattr(schedule, name)
        if not len(values):
            continue
        if values.min() < low or (high is not None and values.max() >= high):
            bad = (values < low) if high is None else (values < low) | (values >= high)
            row = int(np.flatnonzero(bad)[0])
            upto = "or more" if high is None else f"to {high - 1}"
            raise ScheduleError(
                f"row {row}: {name} is {values[row]}, expected {low} {upto}",
                step=int(schedule.step[row]),
            )
    for end, slot in (("src", schedule.src_slot), ("dst", schedule.dst_slot)):
        _check_slots(schedule, end, getattr(schedule, end), slot)


def _check_slots(schedule: Schedule, end: str, places: Ints, slots: Ints) -> None:
    # A helper has as many slots as its rows name.
    declared = np.append(schedule.n_declared, np.full(len(schedule.helpers), _ANY))
    for rows in blocks(len(schedule)):
        bad = slots[rows].astype(np.int64) + schedule.n_slots[rows] > declared[places[rows]]
        if bad.any():
            row = rows.start + int(np.flatnonzero(bad)[0])
            place = int(places[row])
            raise ScheduleError(
                f"row {row}: {end}_slot {slots[row]} with {schedule.n_slots[row]} slot(s) is "
                f"beyond the {declared[place]} slots of rank {place}",
                place=place,
                step=int(schedule.step[row]),
            )


def _check_buffers(schedule: Schedule) -> None:
    sizes = {}
    for name in ("input", "output"):
        has = schedule.kind.has_input if name == "input" else schedule.kind.has_output
        slots: Slots = getattr(schedule, name)
        ranks = [rank for rank in range(schedule.group_size) if has(rank, schedule.root)]
        lengths = {len(slots[rank]): rank for rank in reversed(ranks)}
        if len(lengths) > 1:
            raise ScheduleError(f"{name} lists differ in length: {sorted(lengths)}")
        sizes[name] = next(iter(lengths))
        for rank in ranks[: len(slots.lists)] if len(slots.lists) == 1 else ranks:
            if len(set(slots[rank])) < len(slots[rank]):
                raise ScheduleError(f"rank {rank}: {name} names a slot twice", place=rank)
    if schedule.kind.receives == "transposed" and sizes["input"] % schedule.group_size:
        raise ScheduleError(
            f"{schedule.collective}: {sizes['input']} input slots, expected a multiple of "
            f"{schedule.group_size}: as many for each receiver"
        )
    due = schedule.kind.n_output(schedule.group_size, sizes["input"])
    if sizes["output"] != due:
        raise ScheduleError(
            f"{schedule.collective}: {sizes['output']} output slots for {sizes['input']} input "
            f"slots on {schedule.group_size} ranks, expected {due:g}"
        )
    elements = schedule.chunk_elements
    if elements is None:
        return
    if elements.shape != (schedule.n_chunks,) or (elements < 0).any():
        raise ScheduleError(
            f"{elements.size} chunk sizes for {schedule.n_chunks} chunks, expected one each, "
            "0 or more"
        )


def _check_after(schedule: Schedule) -> None:
    row, earlier = schedule.after[:, 0], schedule.after[:, 1]
    here = schedule.src[row]
    apart = (schedule.src[earlier] != here) & (schedule.dst[earlier] != here)
    if apart.any():
        pair = int(np.flatnonzero(apart)[0])
        raise ScheduleError(
            f"row {row[pair]}: waits for row {earlier[pair]}, which neither begins nor ends at "
            f"its sender, rank {here[pair]}",
            place=int(here[pair]),
            step=int(schedule.step[row[pair]]),
        )
