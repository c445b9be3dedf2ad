"""The clocks of a recording's hosts, made one: every time becomes one of rank 0's clock.

Processes that name the same clock read the same one. How two clocks stand to each other is bounded
by what the processes measured (`clock` records) and by the run itself: nothing is received before
it was sent, and no all_reduce ends before all ranks have begun it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ....units import format_ns
from ...columns import Column, Table
from ...schema import Type
from ...trace import Clock
from .clock_fit import Bounds, Fit, fit
from .counting import Ints
from .flows import Flows, Mask, flows_of
from .record_file import RecordFile

_TIMES = ("t_issue_ns", "t_start_ns", "t_end_ns")


@dataclass(frozen=True, slots=True)
class Alignment:
    """What aligning did.

    Attributes:
        clocks: One for each file whose clock is known to stand to rank 0's.
        notes: What a reader of the trace should know.
        last_ns: Last time of each file, by its name, on rank 0's clock.
    """

    clocks: tuple[Clock, ...] = ()
    notes: tuple[str, ...] = ()
    last_ns: dict[str, int | None] = field(default_factory=dict)


def align(files: Sequence[RecordFile], events: Table) -> tuple[Table, Alignment]:
    """Return the events with all times on rank 0's clock, and what was done.

    Args:
        files: The files that the events came from.
        events: The events, with their counts.
    """
    last_ns = {file.name: file.last_ns for file in files}
    names = _clock_names(files)
    if len(set(names.values())) < 2:
        return events, Alignment(tuple(Clock(file.name) for file in files), (), last_ns)
    reference = _reference(files, events, names)
    others = sorted(set(names.values()) - {reference})
    of_row = _clock_of_rows(events, names, [reference, *others])
    flows = flows_of(events)
    shifts: dict[str, Fit] = {}
    lost: dict[str, int | None] = {}
    for number, name in enumerate(others, 1):
        bounds = _bounds(files, events, flows, of_row, number, (name, reference))
        found = fit(bounds, _span(events, of_row == number))
        if found is None:
            lost[name] = _by_wall_clock(files, names, name, reference)
        else:
            shifts[name] = found
    for number, name in enumerate(others, 1):
        shift = shifts.get(name) or _constant(lost[name] or 0)
        events = _shifted(events, of_row == number, shift)
    clocks = []
    for file in files:
        name = names[file.name]
        shift = shifts.get(name) or _constant(lost.get(name) or 0)
        last = last_ns[file.name]
        if last is not None:
            last_ns[file.name] = last + int(shift.offset_ns(np.array([last]))[0])
        if name not in lost:
            first = np.array([file.header.monotonic_ns])
            offset = 0 if name == reference else int(shift.offset_ns(first)[0])
            error = 0 if name == reference else shift.error_ns
            clocks.append(Clock(file.name, offset, error))
    notes = _notes(files, names, shifts, lost)
    return events, Alignment(tuple(clocks), notes, last_ns)


def _clock_names(files: Sequence[RecordFile]) -> dict[str, str]:
    """Return the clock of each file, by the file's name."""
    of_host = {file.header.host: file.header.clock for file in files if file.header.clock}
    return {
        file.name: file.header.clock or of_host.get(file.header.host) or file.header.host
        for file in files
    }


def _reference(files: Sequence[RecordFile], events: Table, names: dict[str, str]) -> str:
    """Return the clock of rank 0, where it was recorded."""
    file = events["file"]
    rows = events["rank"].where(0) & file.valid
    taps = {each.name for each in files if each.header.tap}
    for row in np.flatnonzero(rows).tolist():
        if file[row] not in taps:
            return names[str(file[row])]
    return names[files[0].name]


def _clock_of_rows(events: Table, names: dict[str, str], clocks: list[str]) -> Ints:
    file = events["file"]
    numbers = np.array([clocks.index(names[text]) for text in file.texts] or [0], np.int64)
    return numbers[file.values]


def _bounds(
    files: Sequence[RecordFile],
    events: Table,
    flows: Flows,
    of_row: Ints,
    number: int,
    pair: tuple[str, str],
) -> Bounds:
    """Return all that bounds the time from a clock to the reference: number 0."""
    measured = [
        (record.t, record.low, record.high)
        for file in files
        for part in file.parts
        for record in part.clocks
        if (record.clock, record.to) == pair
    ]
    at, low, high = np.array(measured, np.int64).reshape(-1, 3).T
    ours, theirs = of_row == number, of_row == 0
    issue, end = events["t_issue_ns"].values, events["t_end_ns"].values
    n = int(flows.number.max(initial=-1)) + 1

    def latest_source(rows: Mask) -> Ints:
        found = np.full(n, np.iinfo(np.int64).min)
        some = rows & flows.is_source & (flows.number >= 0)
        np.maximum.at(found, flows.number[some], issue[some])
        return found

    def earliest_sink(rows: Mask) -> Ints:
        found = np.full(n, np.iinfo(np.int64).max)
        some = rows & flows.is_sink & (flows.number >= 0)
        np.minimum.at(found, flows.number[some], end[some])
        return found

    def both(source: Ints, sink: Ints) -> Ints:
        return np.flatnonzero((source > np.iinfo(np.int64).min) & (sink < np.iinfo(np.int64).max))

    sent, got = latest_source(theirs), earliest_sink(ours)
    to_us = both(sent, got)
    sent_by_us, got_there = latest_source(ours), earliest_sink(theirs)
    from_us = both(sent_by_us, got_there)
    return Bounds(
        np.concatenate([at, got[to_us]]),
        np.concatenate([low, sent[to_us] - got[to_us]]),
        np.concatenate([at, sent_by_us[from_us]]),
        np.concatenate([high, got_there[from_us] - sent_by_us[from_us]]),
    )


def _span(events: Table, rows: Mask) -> tuple[int, int] | None:
    """Return the first and the last moment of these rows."""
    moments = [events[name].values[rows & events[name].valid] for name in _TIMES]
    found = np.concatenate(moments)
    return (int(found.min()), int(found.max())) if len(found) else None


def _shifted(events: Table, rows: Mask, shift: Fit) -> Table:
    columns = {}
    for name in _TIMES:
        column = events[name]
        some = np.flatnonzero(rows & column.valid)
        values = column.values.copy()
        values[some] += shift.offset_ns(values[some])
        columns[name] = Column(Type.INT, values, column.valid)
    return events.replace(**columns)


def _by_wall_clock(
    files: Sequence[RecordFile], names: dict[str, str], name: str, reference: str
) -> int | None:
    """Return the difference of two clocks as their hosts' wall clocks have it; None if unknown."""
    found = {
        names[file.name]: file.header.wall_ns - file.header.monotonic_ns
        for file in files
        if file.header.wall_ns
    }
    if name not in found or reference not in found:
        return None
    return found[name] - found[reference]


def _constant(offset_ns: int) -> Fit:
    return Fit((0, 1), (0.0, 0.0), offset_ns, 0)


def _notes(
    files: Sequence[RecordFile],
    names: dict[str, str],
    shifts: dict[str, Fit],
    lost: dict[str, int | None],
) -> tuple[str, ...]:
    notes = []
    if shifts:
        error = format_ns(max(shift.error_ns for shift in shifts.values()))
        notes.append(f"clocks of {len(shifts) + 1} hosts aligned to within {error}")
    if lost:
        hosts = dict.fromkeys(f.header.host for f in files if names[f.name] in lost)
        how = "their wall clocks stand in" if None not in lost.values() else "times do not compare"
        notes.append(
            f"several hosts: their clocks are not aligned ({', '.join(hosts)}: nothing was "
            f"measured, and no message went both ways; {how})"
        )
    return tuple(notes)
