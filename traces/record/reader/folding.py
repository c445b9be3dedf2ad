"""Folds the records of a file into columns, block by block."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ....errors import TraceFormatError
from ...columns import Table
from ...fold import Folder, cells_of
from ...schema import ColumnSpec
from . import records as rec
from .messages import unfold
from .record_file import (
    BEGINS,
    ENDS,
    ROWS,
    STATE_RECORDS,
    STATES,
    VALUES,
    FileStates,
    RecordFile,
)

_MANY = {rec.Begin: BEGINS, rec.Row: ROWS, rec.StateRecord: STATE_RECORDS, rec.End: ENDS}


class FileFolder:
    """Takes in the records of a file.

    Attributes:
        header: The file's first record, None where that is no header.
    """

    def __init__(self) -> None:
        self.header: rec.Header | None = None
        self._n_records = 0
        self._second_header: int | None = None
        self._many = {kind: _Folder(kind, specs) for kind, specs in _MANY.items()}
        self._few: dict[type, list[Any]] = {
            kind: [] for kind in get_args(rec.ANY) if kind not in _MANY
        }
        self._sets: list[tuple[int, Any]] = []

    def add(self, numbers: Sequence[int], records: Sequence[Any]) -> None:
        """Take in records, given with the numbers of their lines."""
        found: dict[type, list[Any]] = {kind: [] for kind in _MANY}
        found |= self._few
        add = {kind: each.append for kind, each in found.items()}
        for record in records:
            add[type(record)](record)
        for kind, folder in self._many.items():
            start = len(folder)
            cells = folder.add(found[kind])
            sets = cells.get("set", ())
            if sets.count(None) < len(sets):
                self._sets += [(start + k, each) for k, each in enumerate(sets) if each is not None]
        headers = self._few[rec.Header]
        if headers:
            self._take_header(headers, numbers, records)
        self._n_records += len(records)

    def _take_header(
        self, headers: list[Any], numbers: Sequence[int], records: Sequence[Any]
    ) -> None:
        if not self._n_records and headers[0] is records[0]:
            self.header = headers.pop(0)
        if headers and self._second_header is None:
            at = next(k for k, record in enumerate(records) if record is headers[0])
            self._second_header = numbers[at]

    def file(self, path: Path, header: rec.Header) -> RecordFile:
        """Return what the file says.

        Raises:
            TraceFormatError: It has a second header.
        """
        if self._second_header is not None:
            raise TraceFormatError(
                "found a second header, expected one",
                file=str(path),
                line=self._second_header,
                field="$.r",
            )
        few = self._few
        file = RecordFile(
            path,
            header,
            groups={record.n: record for record in few[rec.Group]},
            sites={record.n: record for record in few[rec.Site]},
            tensors={record.n: record for record in few[rec.Tensor]},
            schedules={record.n: record.text for record in few[rec.Schedule]},
            calls={record.n: record for record in few[rec.Call]},
            exits=few[rec.Exit],
            clocks=few[rec.ClockRecord],
            sets=self._sets,
            is_closed=bool(few[rec.Close]),
        )
        self._many[rec.Row].add(unfold(file, few[rec.Message]))
        tables, states = zip(*(each.finished() for each in self._many.values()), strict=True)
        file.begins, file.rows, _, file.ends = tables
        file.states = FileStates.joined(states)
        self._note(file)
        times = [file.begins["t"], file.ends["t"], file.rows["end"]]
        last = [int(each.values[each.valid].max()) for each in times if each.valid.any()]
        file.last_ns = max([*last, *(record.t for record in few[rec.Close])], default=None)
        return file

    def _note(self, file: RecordFile) -> None:
        only = file.header.options.get("only")
        if isinstance(only, list):
            file.notes.append(f"nothing but {', '.join(map(str, only))} was recorded")
        file.notes += [record.text for record in self._few[rec.Note]]
        file.notes += [
            f"{file.path.name}: {record.records} records could not be written"
            for record in self._few[rec.Dropped]
        ]


class _Folder:
    """Folds the records of one kind, and the states in them."""

    def __init__(self, kind: Any, specs: tuple[ColumnSpec, ...]) -> None:
        self._fields = kind.__struct_fields__
        self._folder = Folder(specs, {})
        self._states = Folder(STATES, {})
        self._values = Folder(VALUES, {})
        self._partly: list[int] = []

    def __len__(self) -> int:
        return len(self._folder)

    def add(self, records: Sequence[Any]) -> dict[str, Any]:
        """Take in a block of records, and return its cells by field."""
        cells: dict[str, Any] = dict(zip(self._fields, cells_of(records), strict=False))
        if cells:
            cells["n_states"] = list(map(len, cells["s"]))
            self._folder.add_cells(cells, len(records))
            self._add_states(list(chain.from_iterable(cells["s"])))
        return cells

    def _add_states(self, states: list[Any]) -> None:
        if not states:
            return
        cells: dict[str, Any] = dict(zip(rec.State.__struct_fields__, cells_of(states)))
        data = cells["value"]
        if rec.Value in set(map(type, data)):
            partly = [row for row, value in enumerate(data) if type(value) is rec.Value]
            self._values.add([data[row] for row in partly])
            self._partly += [len(self._states) + row for row in partly]
            data = [value if type(value) is bytes else None for value in data]
        self._states.add_cells({**cells, "data": data}, len(states))

    def finished(self) -> tuple[Table, FileStates]:
        """Return the records, and the states in them."""
        table = self._folder.table()
        seq = np.repeat(table["seq"].values, table["n_states"].values)
        partly = np.array(self._partly, np.int64)
        return table, FileStates(self._states.table(), seq, partly, self._values.table())
