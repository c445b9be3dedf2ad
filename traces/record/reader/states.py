"""The states table of a recording, folded from the state lists of its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import TraceFormatError
from ...columns import Column, Table
from ...schema import STATES, Type
from ..folder import RECORDS, TENSORS
from . import records as rec
from .counting import Ints, lookup

_OF_TENSOR = ("dtype", "shape", "strides", "storage", "offset")
_OF_VALUE = ("digest", "digest_of", "min", "max", "mean", "nan", "first", "contributors")
_ODD = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class StateTable:
    """Collects the states of files, and gives them as a table."""

    def __init__(self) -> None:
        self._tensors: list[rec.Tensor] = [rec.Tensor(0)]  # the first: nothing is known
        self._event: list[Ints] = []
        self._when: list[str | None] = []
        self._role: list[str | None] = []
        self._index: list[int | None] = []
        self._tensor: list[Ints] = []
        self._data: list[bytes | None] = []
        self._values: dict[int, rec.Value] = {}
        self._notes: list[str] = []

    def add(
        self,
        path: Path,
        tensors: Mapping[int, rec.Tensor],
        states: Sequence[tuple[int, list[rec.State]]],
        seqs: Ints,
        start: int,
        are_rows: bool,
    ) -> None:
        """Fold in the states of one file.

        Args:
            path: The file of records.
            tensors: Its tensor records.
            states: seq of the event (with `are_rows`, its row in the trace) and its states.
            seqs: The seqs of the file's events, sorted.
            start: Row in the trace of the file's first event.
            are_rows: Whether events are named by their row in the trace.
        """
        first = len(self._tensors)
        place: dict[int | None, int] = {n: first + at for at, n in enumerate(tensors)}
        place[None] = 0
        self._tensors += tensors.values()
        named = np.array([seq for seq, _ in states], np.int64)
        found = named if are_rows else lookup(named, seqs)
        if (found < 0).any():
            is_lost = (found < 0).tolist()
            lost = sum(len(items) for (_, items), gone in zip(states, is_lost) if gone)
            self._notes.append(f"{lost} states are left out: their event is damaged or missing")
            states = [state for state, gone in zip(states, is_lost) if not gone]
            found = found[found >= 0]
        counts = np.array([len(items) for _, items in states], np.int64)
        self._event.append(np.repeat(found if are_rows else found + start, counts))
        items = [item for _, items in states for item in items]
        self._when += [item.when for item in items]
        self._role += [item.role for item in items]
        self._index += [item.index for item in items]
        numbers = [place.get(item.tensor, -1) for item in items]
        self._tensor.append(np.maximum(np.array(numbers, np.int64), 0))
        if undescribed := numbers.count(-1):
            self._notes.append(f"{undescribed} states have lost what describes their tensor")
        self._add_values(path, items)

    def _add_values(self, path: Path, items: list[rec.State]) -> None:
        beside = _Bytes(path)
        first = len(self._data)
        self._data += [item.value if type(item.value) is bytes else None for item in items]
        partly = [row for row, item in enumerate(items) if type(item.value) is rec.Value]
        for row in partly:
            value: Any = items[row].value
            self._values[first + row] = value
            self._data[first + row] = value.data if value.at is None else beside.read(value)
        if beside.missing:
            self._notes.append(f"{beside.missing} states have lost their bytes: {beside.reason}")

    def take_notes(self) -> list[str]:
        """Return the notes since the last time."""
        notes, self._notes = self._notes, []
        return notes

    def table(self) -> Table:
        """Return the states, ordered by event."""
        n = len(self._data)
        nothing = np.zeros(0, np.int64)
        tensor = np.concatenate([nothing, *self._tensor])
        cells: dict[str, Any] = {
            "event": np.concatenate([nothing, *self._event]),
            "when": self._when,
            "role": self._role,
            "index": self._index,
            "data": self._data,
        }
        types = {spec.name: spec.type for spec in STATES}
        for name in _OF_TENSOR:
            each = [getattr(record, name) for record in self._tensors]
            cells[name] = Column.build(types[name], each, len(each)).take(tensor)
        for name in _OF_VALUE if self._values else ():
            sparse: list[Any] = [None] * n
            for row, value in self._values.items():
                sparse[row] = _number(getattr(value, name), types[name])
            cells[name] = sparse
        table = Table.build(STATES, cells, n)
        order = np.argsort(table["event"].values, kind="stable")
        return table if (np.diff(order) > 0).all() else table.take(order)


class _Bytes:
    """The `.tensors` file beside a file of records."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name.removesuffix(RECORDS) + TENSORS)
        self._content: np.ndarray[Any, Any] | None = None
        self.missing = 0
        self.reason = ""

    def read(self, value: rec.Value) -> bytes | None:
        """Return the bytes that a value names, or None where the file has not got them."""
        assert value.at is not None
        if value.size is None:
            raise TraceFormatError(
                "a value with `at` has no `size`", file=str(self._path), field="$.s"
            )
        if self._content is None:
            self._content = self._open()
        if value.at + value.size > len(self._content):
            self.missing += 1
            self.reason = self.reason or f"{self._path.name} ends before them"
            return None
        return self._content[value.at : value.at + value.size].tobytes()

    def _open(self) -> np.ndarray[Any, Any]:
        try:
            if self._path.stat().st_size:
                return np.memmap(self._path, np.uint8, "r")
        except OSError:
            self.reason = f"{self._path.name} is missing"
        return np.zeros(0, np.uint8)


def _number(cell: Any, type: Type) -> Any:
    return _ODD[cell] if type is Type.FLOAT and isinstance(cell, str) else cell
