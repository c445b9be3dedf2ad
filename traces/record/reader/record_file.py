"""The records of one file, or of the segments of one process, sorted by kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..folder import RECORDS
from . import records as rec


@dataclass(slots=True)
class RecordFile:
    """The records of one file, by kind, in file order."""

    path: Path
    header: rec.Header
    groups: dict[int, rec.Group] = field(default_factory=dict)
    sites: dict[int, rec.Site] = field(default_factory=dict)
    tensors: dict[int, rec.Tensor] = field(default_factory=dict)
    schedules: dict[int, str] = field(default_factory=dict)
    calls: dict[int, Any] = field(default_factory=dict)
    begins: list[rec.Begin] = field(default_factory=list)
    ends: list[rec.End] = field(default_factory=list)
    rows: list[rec.Row] = field(default_factory=list)
    states: list[tuple[int, list[rec.State]]] = field(default_factory=list)
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
