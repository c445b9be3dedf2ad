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
from ...columns import Column, Table, joined, joined_tables
from ...fold import Folder, cells_of
from ...schema import EVENTS, Type
from ...trace import Group, Meta, Site, Trace
from ...validate import checked_trace
from . import records as rec
from .calls import count_calls
from .clocks import align
from .counting import Ints, lookup
from .events import events_of
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
        self._parts: list[Table] = []
        self._n = 0
        self._set: list[tuple[int, Any]] = []
        self._processes: list[Ints] = []
        self._ids: dict[tuple[str, int, int], int] = {}

    def add(self, file: RecordFile) -> None:
        """Fold in one file."""
        numbers = np.fromiter(file.calls, np.int64, len(file.calls))
        first_call = len(self._calls)
        self._calls += file.calls.values() if self.is_complete else self._renumbered(file)
        events = events_of(file, numbers)
        if events.n_without_call:
            text = f"{events.n_without_call} events are left out: the record of their call"
            self._note(file, f"{text} is damaged")
        if events.n_ends_alone:
            text = f"{events.n_ends_alone} ends are left out: their begin is damaged or missing"
            self._note(file, text)
        table = events.table.replace(
            call=Column.build(
                Type.INT, first_call + events.table["call"].values, len(events.table)
            ),
            **self._origin(file, events.table),
        )
        self._set += [(self._n + row, cells) for row, cells in events.sets]
        if not self.is_complete:
            table = self._with_parents(file, table)
        for part in file.parts:
            seqs = table["seq"].values
            self._states.add(part.path, file.tensors, part.states, seqs, self._n, self.is_complete)
            self.notes += [f"{part.path.name}: {note}" for note in self._states.take_notes()]
        self.notes += file.notes
        key = (file.header.host, file.header.pid, file.header.attempt)
        self._processes.append(np.full(len(table), self._ids.setdefault(key, len(self._ids))))
        self._parts.append(table)
        self._n += len(table)

    def _origin(self, file: RecordFile, table: Table) -> dict[str, Column]:
        """Return the columns that say where a file's events come from."""
        n, header = len(table), file.header
        found = {"file": _same(Type.TEXT, header.file if self.is_complete else file.name, n)}
        if not self.is_complete:
            found["host"] = _same(Type.TEXT, header.host or None, n)
            if not header.tap:
                found["attempt"] = _same(Type.INT, header.attempt, n)
        return found

    def _with_parents(self, file: RecordFile, table: Table) -> Table:
        """Return a file's events with parents as rows of the trace; their seqs must differ."""
        seqs, parent = table["seq"].values, table["parent"]
        twice = np.flatnonzero(np.diff(seqs) == 0)
        if len(twice):
            message = f"two events have seq {seqs[twice[0]]}"
            raise TraceFormatError(message, file=str(file.path), field="$.seq")
        if not parent.valid.any():
            return table
        found = np.where(parent.valid, lookup(parent.values, seqs), -1)
        if n_missing := int((parent.valid & (found < 0)).sum()):
            self._note(file, f"{n_missing} events name a parent that is missing")
        rows = np.where(found >= 0, self._n + found, 0)
        return table.replace(parent=Column(Type.INT, rows, found >= 0))

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
        self.process = np.concatenate([np.zeros(0, np.int64), *self._processes])
        if not self._parts:
            return Table.build(EVENTS, {}, 0), self._states.table()
        parts = joined_tables(self._parts)
        calls = Folder(rec.OF_CALL, {})
        cells = zip(rec.Call.__struct_fields__, cells_of(self._calls), strict=False)
        calls.add_cells(dict(cells), len(self._calls))
        of_call = {
            name: column.take(parts["call"].values) for name, column in calls.columns().items()
        }
        for name in ("coll_seq", "message"):  # of a recording that leaves calls out
            of_call[name] = _overlaid(of_call[name], parts[name])
        for name in rec.CELL_NAMES if self._set else ():
            found = [(row, getattr(cells, name)) for row, cells in self._set]
            of_call[name] = _edited(of_call[name], [each for each in found if each[1] is not None])
        columns = {**parts.columns, **of_call}
        events = {spec.name: columns[spec.name] for spec in EVENTS}
        return Table(events, len(parts)), self._states.table()

    def _note(self, file: RecordFile, text: str) -> None:
        self.notes.append(f"{file.path.name}: {text}")


def _same(type: Type, cell: Any, n: int) -> Column:
    """Return a column of the same cell all over."""
    return Column.build(type, [cell], 1).take(np.zeros(n, np.int64))


def _overlaid(column: Column, own: Column) -> Column:
    """Return the column with the cells of `own` that are not null in place of its own."""
    if not own.valid.any():
        return column
    values = np.where(own.valid, own.values, column.values)
    return Column(column.type, values, own.valid | column.valid)


def _edited(column: Column, cells: list[tuple[int, Any]]) -> Column:
    """Return the column with other cells in some rows; a later one of a row holds."""
    if not cells:
        return column
    rows, found = zip(*cells, strict=True)
    at = np.arange(len(column))
    at[list(rows)] = len(column) + np.arange(len(rows))
    return joined([column, Column.build(column.type, found, len(found))]).take(at)
