"""From the records of a recording's files to one Trace.

Records are folded into columns file by file; what recorders leave out (the k-th collective of a
group, the k-th message of a pair, how an event ended) is worked out on whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import TraceFormatError
from ...columns import Column, Table
from ...schema import EVENTS
from ...trace import Group, Meta, Site, Trace
from ...validate import checked_trace
from . import records as rec
from .calls import count_calls
from .clocks import align
from .counting import Ints, lookup
from .joining import join_segments
from .meta import recorded_meta
from .record_file import RecordFile
from .states import StateTable

GroupKey = tuple[tuple[int, ...], int]


def assemble(folder: Path, files: Sequence[RecordFile], meta: Meta | None) -> Trace:
    """Return the trace of a folder's files.

    Args:
        folder: For messages.
        files: Their records.
        meta: Metadata of a rewritten trace, whose records are complete; None for a recording.

    Raises:
        TraceFormatError: Records contradict each other.
    """
    writers = sorted(
        join_segments(file for file in files if not file.header.launcher),
        key=lambda file: (file.header.part or 0, file.name),
    )
    events = _Events(writers, is_complete=meta is not None)
    for file in writers:
        events.add(file)
    table, states = events.tables()
    if meta is None:
        table, alignment = align(writers, count_calls(table, events.process))
        meta = recorded_meta(
            files,
            writers,
            events.groups.values(),
            events.sites,
            events.schedules,
            events.notes,
            table,
            alignment,
        )
    return checked_trace(table, states, meta, str(folder))


class _Events:
    """Columns under construction."""

    def __init__(self, files: Sequence[RecordFile], *, is_complete: bool) -> None:
        self.is_complete = is_complete
        self.notes: list[str] = []
        self.groups: dict[GroupKey, Group] = {}
        self.sites: dict[Site, int] = {}
        self.schedules: dict[str, int] = {}
        self.process = np.zeros(0, np.int64)
        self._states = StateTable()
        self._calls: list[Any] = []
        self._cells: dict[str, list[Any]] = {name: [] for name in sorted(rec.OF_ROW)}
        self._call: list[int] = []
        self._set: list[tuple[int, Any]] = []
        self._own: dict[str, list[int | None]] = {"coll_seq": [], "message": []}
        self._processes: list[int] = []
        self._ids: dict[tuple[str, int, int], int] = {}

    def add(self, file: RecordFile) -> None:
        """Fold in one file."""
        start = len(self._call)
        ends = {end.seq: end for end in file.ends}
        first_call = len(self._calls)
        place_of_call = {n: first_call + at for at, n in enumerate(file.calls)}
        self._calls += file.calls.values() if self.is_complete else self._renumbered(file)
        begins = [begin for begin in file.begins if begin.call in place_of_call]
        rows = [row for row in file.rows if row.call in place_of_call]
        lost = len(file.begins) + len(file.rows) - len(begins) - len(rows)
        if lost:
            self._note(file, f"{lost} events are left out: the record of their call is damaged")
        matched = [ends.pop(begin.seq, None) for begin in begins]
        if ends:
            self._note(file, f"{len(ends)} ends are left out: their begin is damaged or missing")
        self._fold(file, begins, matched, rows, place_of_call)
        seqs = self._check_order(file, start)
        for part in file.parts:
            states = part.states
            self._states.add(part.path, file.tensors, states, seqs, start, self.is_complete)
            self.notes += [f"{part.path.name}: {note}" for note in self._states.take_notes()]
        self.notes += file.notes
        key = (file.header.host, file.header.pid, file.header.attempt)
        self._processes += [self._ids.setdefault(key, len(self._ids))] * (len(self._call) - start)

    def _fold(
        self,
        file: RecordFile,
        begins: list[rec.Begin],
        ends: list[rec.End | None],
        rows: list[rec.Row],
        place_of_call: dict[int, int],
    ) -> None:
        both: list[Any] = [*begins, *rows]
        order: Any = range(len(both))
        if not self.is_complete:
            order = sorted(order, key=lambda at: both[at].seq or 0)
        cells = {
            "seq": [record.seq for record in both],
            "parent": [record.parent for record in both],
            "batch": [record.batch for record in both],
            "t_issue_ns": [begin.t for begin in begins] + [row.issue for row in rows],
            "t_start_ns": [end and end.start for end in ends] + [row.start for row in rows],
            "t_end_ns": [end and end.t for end in ends] + [row.end for row in rows],
            "status": [end and end.status for end in ends] + [row.status for row in rows],
            "error": [end and end.error for end in ends] + [row.error for row in rows],
        }
        if self.is_complete:
            cells["attempt"] = [row.attempt for row in rows]
            cells["host"] = [row.host for row in rows]
            cells["file"] = [file.header.file] * len(both)
        else:
            cells["attempt"] = (
                [row.attempt for row in rows]
                if file.header.tap
                else [file.header.attempt] * len(both)
            )
            cells["host"] = [file.header.host or None] * len(both)
            cells["file"] = [file.name] * len(both)
        start = len(self._call)
        is_sorted = isinstance(order, range)
        place = {at: start + k for k, at in enumerate(order)} if file.ends else {}
        for name, values in cells.items():
            self._cells[name] += values if is_sorted else [values[at] for at in order]
        calls = [place_of_call[record.call] for record in both]
        self._call += calls if is_sorted else [calls[at] for at in order]
        for name, own in self._own.items():
            numbers = [getattr(begin, name) for begin in begins] + [None] * len(rows)
            own += numbers if is_sorted else [numbers[at] for at in order]
        for at, end in enumerate(ends):
            if end is not None and end.set is not None:
                self._set.append((place[at], end.set))

    def _check_order(self, file: RecordFile, start: int) -> Ints:
        """Return the seqs of a file's rows, made sure to differ, and resolve the parents."""
        if self.is_complete:
            return np.zeros(0, np.int64)
        seqs = np.array(self._cells["seq"][start:], np.int64)
        twice = np.flatnonzero(np.diff(seqs) == 0)
        if len(twice):
            message = f"two events have seq {seqs[twice[0]]}"
            raise TraceFormatError(message, file=str(file.path), field="$.seq")
        parents = self._cells["parent"]
        wanted = [at for at in range(start, len(parents)) if parents[at] is not None]
        found = lookup(np.array([parents[at] for at in wanted], np.int64), seqs)
        for at, row in zip(wanted, found.tolist(), strict=True):
            parents[at] = start + row if row >= 0 else None
        if (found < 0).any():
            self._note(file, f"{int((found < 0).sum())} events name a parent that is missing")
        return seqs

    def _renumbered(self, file: RecordFile) -> list[Any]:
        """Return a file's calls with groups, sites and schedules as the trace numbers them."""
        groups = self._number_groups(file)
        sites = {n: self._number_site(site) for n, site in file.sites.items()}
        schedules = {
            n: self.schedules.setdefault(text, len(self.schedules))
            for n, text in file.schedules.items()
        }
        for call in file.calls.values():
            call.group = groups.get(call.group)
            call.site = sites.get(call.site)
            call.schedule = schedules.get(call.schedule)
        return list(file.calls.values())

    def _number_groups(self, file: RecordFile) -> dict[int | None, int]:
        counts: dict[tuple[int, ...], int] = {}
        numbers: dict[int | None, int] = {}
        for n in sorted(file.groups):
            record = file.groups[n]
            if record.ranks is None:
                continue
            ranks = tuple(record.ranks)
            counts[ranks] = counts.get(ranks, -1) + 1
            key = (ranks, counts[ranks] if record.ordinal is None else record.ordinal)
            if key not in self.groups or not self.groups[key].backend:
                self.groups[key] = Group(*key, record.label, record.backend)
            numbers[n] = list(self.groups).index(key)
        return numbers

    def _number_site(self, record: rec.Site) -> int:
        site = Site(
            record.file,
            record.line,
            record.function,
            tuple(record.source),
            record.first_line,
            tuple(record.stack),
        )
        return self.sites.setdefault(site, len(self.sites))

    def tables(self) -> tuple[Table, Table]:
        """Return the events and the states."""
        n = len(self._call)
        call = np.array(self._call, np.int64)
        self.process = np.array(self._processes, np.int64)
        columns: dict[str, Column] = {}
        for spec in EVENTS:
            if spec.name in rec.OF_ROW:
                columns[spec.name] = Column.build(spec.type, self._cells[spec.name], n)
            else:
                cells = [getattr(record, spec.name) for record in self._calls]
                columns[spec.name] = Column.build(spec.type, cells, len(cells)).take(call)
        for name, own in self._own.items():
            columns[name] = _overlaid(columns[name], own)
        for name in rec.CELL_NAMES if self._set else ():
            found = [(row, getattr(cells, name)) for row, cells in self._set]
            if any(cell is not None for _, cell in found):
                edited = columns[name].to_list()
                for row, cell in found:
                    edited[row] = edited[row] if cell is None else cell
                columns[name] = Column.build(columns[name].type, edited, n)
        return Table(columns, n), self._states.table()

    def _note(self, file: RecordFile, text: str) -> None:
        self.notes.append(f"{file.path.name}: {text}")


def _overlaid(column: Column, cells: list[int | None]) -> Column:
    """Return the column with the cells that are not null in place of its own."""
    own = Column.build(column.type, cells, len(cells))
    if not own.valid.any():
        return column
    values = np.where(own.valid, own.values, column.values)
    return Column(column.type, values, own.valid | column.valid)
