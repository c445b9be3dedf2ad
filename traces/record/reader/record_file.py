"""What one file of records says, or the segments of one process: what is rare, by number, as
records; what there are millions of, as columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...columns import Table, joined_tables
from ...schema import ColumnSpec, Type
from ..folder import RECORDS
from . import records as rec
from .counting import Ints

_TEXTS = ("status", "error", "host", "when", "role", "digest_of")
_FLOATS = ("min", "max", "mean")
_BYTES = ("data", "first")


def _specs(record: Any, *without: str) -> tuple[ColumnSpec, ...]:
    """Return the fields of a record as columns."""

    def type_of(name: str) -> Type:
        types = {Type.TEXT: _TEXTS, Type.FLOAT: _FLOATS, Type.BYTES: _BYTES}
        types[Type.INTS] = ("contributors",)
        return next((type for type, names in types.items() if name in names), Type.INT)

    fields = [name for name in record.__struct_fields__ if name not in without]
    return tuple(ColumnSpec(name, type_of(name), "") for name in fields)


_N_STATES = ColumnSpec("n_states", Type.INT, "")
BEGINS = (*_specs(rec.Begin, "s"), _N_STATES)
ENDS = (*_specs(rec.End, "set", "s"), _N_STATES)
ROWS = (*_specs(rec.Row, "s"), _N_STATES)
STATE_RECORDS = (*_specs(rec.StateRecord, "s"), _N_STATES)
VALUES = _specs(rec.Value)
# Without `seq`, of the event: `data` is that of states whose bytes stand in the record.
STATES = (*_specs(rec.State, "value"), ColumnSpec("data", Type.BYTES, ""))


def _nothing(specs: tuple[ColumnSpec, ...]) -> Table:
    return Table.build(specs, {}, 0)


@dataclass(frozen=True, slots=True)
class FileStates:
    """The states of a file, in order of kind of record, then in file order.

    Attributes:
        table: See `STATES`.
        seq: Number of each one's event.
        partly: Rows of the states that have more to say than bytes.
        values: What these say, see `VALUES`.
    """

    table: Table = field(default_factory=lambda: _nothing(STATES))
    seq: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    partly: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    values: Table = field(default_factory=lambda: _nothing(VALUES))

    def where(self, kept: npt.NDArray[np.bool_]) -> FileStates:
        """Return some of the states."""
        if kept.all():
            return self
        row = np.cumsum(kept) - 1
        are_kept = kept[self.partly]
        partly = row[self.partly[are_kept]]
        values = self.values.take(are_kept)
        return FileStates(self.table.take(kept), self.seq[kept], partly, values)

    @staticmethod
    def joined(parts: Sequence[FileStates]) -> FileStates:
        """Return the states of several, one after the other."""
        starts = np.cumsum([0, *(len(part.table) for part in parts)])
        return FileStates(
            joined_tables([part.table for part in parts]),
            np.concatenate([part.seq for part in parts]),
            np.concatenate([part.partly + start for part, start in zip(parts, starts.tolist())]),
            joined_tables([part.values for part in parts]),
        )


@dataclass(slots=True)
class RecordFile:
    """The records of one file, in file order.

    Attributes:
        begins: See `BEGINS`.
        ends: See `ENDS`.
        sets: Cells that ends bring, with the row of the end.
        rows: See `ROWS`.
    """

    path: Path
    header: rec.Header
    groups: dict[int, rec.Group] = field(default_factory=dict)
    sites: dict[int, rec.Site] = field(default_factory=dict)
    tensors: dict[int, rec.Tensor] = field(default_factory=dict)
    schedules: dict[int, str] = field(default_factory=dict)
    calls: dict[int, Any] = field(default_factory=dict)
    begins: Table = field(default_factory=lambda: _nothing(BEGINS))
    ends: Table = field(default_factory=lambda: _nothing(ENDS))
    sets: list[tuple[int, Any]] = field(default_factory=list)
    rows: Table = field(default_factory=lambda: _nothing(ROWS))
    states: FileStates = field(default_factory=FileStates)
    exits: list[rec.Exit] = field(default_factory=list)
    clocks: list[rec.ClockRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    last_ns: int | None = None
    is_closed: bool = False
    segments: tuple[RecordFile, ...] = ()

    @property
    def parts(self) -> tuple[RecordFile, ...]:
        """The files that the states lie in: the segments that this was joined of, or this one."""
        return self.segments or (self,)

    @property
    def name(self) -> str:
        """Name of the file in the trace's `file` column."""
        stem = self.path.name.removesuffix(RECORDS)
        return stem if self.header.file is None else self.header.file
