"""The states table of a recording, folded from the state lists of its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....errors import TraceFormatError
from ...columns import Array, Column, Table, joined
from ...fold import Folder, cells_of
from ...schema import STATES, Type
from ..folder import RECORDS, TENSORS
from . import records as rec
from .counting import Ints, lookup
from .record_file import FileStates

_OF_TENSOR = tuple(spec for spec in STATES if spec.name in rec.Tensor.__struct_fields__)
_OF_VALUE = ("digest", "digest_of", "min", "max", "mean", "nan", "first", "contributors")


class StateTable:
    """Collects the states of files, and gives them as a table."""

    def __init__(self) -> None:
        self._tensors: list[rec.Tensor] = [rec.Tensor(0)]  # the first: nothing is known
        self._parts: list[FileStates] = []
        self._event: list[Ints] = []
        self._tensor: list[Ints] = []
        self._data: list[Column] = []
        self._notes: list[str] = []

    def add(
        self,
        path: Path,
        tensors: Mapping[int, rec.Tensor],
        states: FileStates,
        seqs: Ints,
        start: int,
        are_rows: bool,
    ) -> None:
        """Fold in the states of one file.

        Args:
            path: The file of records.
            tensors: Its tensor records.
            states: Its states; with `are_rows`, `seq` is the event's row in the trace.
            seqs: The seqs of the file's events, sorted.
            start: Row in the trace of the file's first event.
            are_rows: Whether events are named by their row in the trace.
        """
        found = states.seq if are_rows else lookup(states.seq, seqs)
        is_there = found >= 0
        if not is_there.all():
            lost = int((~is_there).sum())
            self._notes.append(f"{lost} states are left out: their event is damaged or missing")
            states, found = states.where(is_there), found[is_there]
        self._event.append(found if are_rows else found + start)
        self._tensor.append(self._described(tensors, states.table["tensor"]))
        self._data.append(self._with_values(path, states))
        self._parts.append(states)

    def _described(self, tensors: Mapping[int, rec.Tensor], named: Column) -> Ints:
        """Return which tensor record of all describes each state."""
        numbers = np.fromiter(tensors, np.int64, len(tensors))
        order = np.argsort(numbers, kind="stable")
        found = lookup(named.values, numbers[order])
        place = np.append(len(self._tensors) + order, 0)[found]
        self._tensors += tensors.values()
        if undescribed := int((named.valid & (found < 0)).sum()):
            self._notes.append(f"{undescribed} states have lost what describes their tensor")
        return np.where(named.valid, place, 0)

    def _with_values(self, path: Path, states: FileStates) -> Column:
        """Return the bytes of a file's states, also of those that say more."""
        data = states.table["data"]
        if not len(states.partly):
            return data
        beside = stored(path, states.values["at"], states.values["size"])
        if beside.n_missing:
            self._notes.append(f"{beside.n_missing} states have lost their bytes: {beside.reason}")
        n, n_partly = len(data), len(states.partly)
        at = np.arange(n)
        is_beside = states.values["at"].valid
        at[states.partly] = n + np.arange(n_partly) + np.where(is_beside, n_partly, 0)
        return joined([data, states.values["data"], beside.data]).take(at)

    def take_notes(self) -> list[str]:
        """Return the notes since the last time."""
        notes, self._notes = self._notes, []
        return notes

    def table(self) -> Table:
        """Return the states, ordered by event."""
        if not self._parts:
            return Table.build(STATES, {}, 0)
        states, data = FileStates.joined(self._parts), joined(self._data)
        n = len(data)
        event, tensor = np.concatenate(self._event), np.concatenate(self._tensor)
        order = np.argsort(event, kind="stable")
        if (np.diff(order) < 0).any():
            event, tensor, data = event[order], tensor[order], data.take(order)
        else:
            order = np.arange(n)
        of_tensor = Folder(_OF_TENSOR, {})
        cells = zip(rec.Tensor.__struct_fields__, cells_of(self._tensors), strict=False)
        of_tensor.add_cells(dict(cells), len(self._tensors))
        columns = {"event": Column.build(Type.INT, event, n), "data": data}
        for name in ("when", "role", "index"):
            columns[name] = states.table[name].take(order)
        for name, column in of_tensor.columns().items():
            columns[name] = column.take(tensor)
        if len(states.partly):
            value = np.full(n, -1, np.int64)
            value[states.partly] = np.arange(len(states.partly))
            for name in _OF_VALUE:
                columns[name] = states.values[name].take_or_null(value[order])
        return Table.build(STATES, columns, n)


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes in the `.tensors` file beside a file of records.

    Attributes:
        data: The bytes of each value; null where it names none, or they are lost.
        n_missing: How many are lost.
        reason: Why.
    """

    data: Column
    n_missing: int
    reason: str


def stored(path: Path, at: Column, size: Column) -> Stored:
    """Return the bytes that values name.

    Args:
        path: The file of records.
        at: Where in the `.tensors` file the bytes of each value begin; null for none.
        size: How many they are.

    Raises:
        TraceFormatError: A value says where and not how many.
    """
    n, reason = len(at), ""
    path = path.with_name(path.name.removesuffix(RECORDS) + TENSORS)
    if not at.valid.any():
        return Stored(Column.build(Type.BYTES, None, n), 0, "")
    if (at.valid & ~size.valid).any():
        raise TraceFormatError("a value with `at` has no `size`", file=str(path), field="$.s")
    content: Array = np.zeros(0, np.uint8)
    try:
        if path.stat().st_size:
            content = np.memmap(path, np.uint8, "r")
    except OSError:
        reason = f"{path.name} is missing"
    is_there = at.valid & (size.values <= len(content))
    is_there &= at.values <= len(content) - size.values
    lengths = np.where(is_there, size.values, 0)
    data = Column(Type.BYTES, lengths, is_there, (), content, np.where(is_there, at.values, 0))
    n_missing = int((at.valid & ~is_there).sum())
    return Stored(data, n_missing, reason or f"{path.name} ends before them")
