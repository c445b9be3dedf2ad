"""Columns and tables: immutable, nullable, in numpy.

    table = Table.build(EVENTS, {"kind": ["send", "recv"], "rank": [0, None]})
    table["kind"][0]            # 'send'
    table.take([1])["rank"][0]  # None

A cell that is not there is None when read alone, and False in `valid` when a whole column is read.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from .schema import ColumnSpec, Type

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

_SIZES = 64  # lists of so many sizes are gathered size by size, all of one at once
_NUMPY = {Type.INT: np.int64, Type.FLOAT: np.float64, Type.BOOL: np.bool_}


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One column of n cells.

    Attributes:
        type: Type of the cells.
        values: One value a cell: int64, float64 or bool; for text an int32 code into `texts`; for
            lists (ints, bytes) the length of each cell's list, int64.
        valid: False where the cell is null, shape (n,); `values` is 0 there.
        texts: The distinct texts of a text column, in order of first appearance.
        flat: The items of all lists, one after the other (int64 or uint8), for list columns.
        starts: Start of each cell's list in `flat`, int64, for list columns.
    """

    type: Type
    values: Array
    valid: Mask
    texts: tuple[str, ...] = ()
    flat: Array | None = None
    starts: Array | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: int) -> Any:
        """Return the cell as a Python value (int, float, bool, str, list of int, bytes) or None."""
        if not self.valid[row]:
            return None
        if self.type is Type.TEXT:
            return self.texts[self.values[row]]
        if self.flat is None or self.starts is None:
            return self.values[row].item()
        start = int(self.starts[row])
        items = self.flat[start : start + int(self.values[row])]
        return items.tobytes() if self.type is Type.BYTES else items.tolist()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_list())

    def to_list(self) -> list[Any]:
        """Return all cells as Python values, None where null."""
        if self.type is Type.TEXT:
            texts = np.array(self.texts or (None,), dtype=object)
            cells: list[Any] = texts[self.values].tolist()
        elif self.flat is None or self.starts is None:
            cells = self.values.tolist()
        else:
            items: Any = self.flat.tobytes() if self.type is Type.BYTES else self.flat.tolist()
            starts = self.starts.tolist()
            lengths = self.values.tolist()
            cells = [items[s : s + n] for s, n in zip(starts, lengths, strict=True)]
        if self.valid.all():
            return cells
        return [c if v else None for c, v in zip(cells, self.valid.tolist(), strict=True)]

    def where(self, value: Any) -> Mask:
        """Return which cells equal `value` (None: which are null), shape (n,); not for lists."""
        if value is None:
            return ~self.valid
        if self.type is not Type.TEXT:
            return np.asarray(self.valid & (self.values == value))
        if value not in self.texts:
            return np.zeros(len(self), np.bool_)
        return np.asarray(self.valid & (self.values == self.texts.index(value)))

    def take(self, rows: Rows | Sequence[int] | Mask) -> Column:
        """Return the column of the chosen rows, in the order given."""
        picked = np.asarray(rows)
        if picked.dtype == np.bool_:
            picked = np.flatnonzero(picked)
        if len(self) and not (self.values.strides[0] or self.valid.strides[0]):  # all are the same
            shape = (len(picked),)
            values, valid = (np.broadcast_to(x[:1], shape) for x in (self.values, self.valid))
        else:
            values, valid = self.values[picked], self.valid[picked]
        if self.flat is None or self.starts is None:
            return Column(self.type, values, valid, self.texts)
        return lists(self.type, values, valid, _gathered(self.flat, self.starts[picked], values))

    def take_or_null(self, rows: Rows) -> Column:
        """Return the column of the chosen rows, in the order given; null where a row is -1."""
        is_there = rows >= 0
        if is_there.all():
            return self.take(rows)
        if not len(self):
            return _nulls(self.type, len(rows))
        picked = np.maximum(rows, 0)
        values = np.where(is_there, self.values[picked], self.values.dtype.type(0))
        valid = self.valid[picked] & is_there
        if self.flat is None or self.starts is None:
            return Column(self.type, values, valid, self.texts)
        return lists(self.type, values, valid, _gathered(self.flat, self.starts[picked], values))

    def equals(self, other: Column) -> bool:
        """Return whether both columns read the same, cell by cell (NaN equals NaN)."""
        if self.type is not other.type or not np.array_equal(self.valid, other.valid):
            return False
        if self.type is Type.TEXT:
            mine = np.array(self.texts, dtype=object)
            theirs = np.array(other.texts, dtype=object)
            at = self.valid
            if not at.any():
                return True
            return bool((mine[self.values[at]] == theirs[other.values[at]]).all())
        if not np.array_equal(self.values, other.values, equal_nan=self.type is Type.FLOAT):
            return False
        return self.flat is None or np.array_equal(self.flat, _some(other.flat))

    @staticmethod
    def build(type: Type, cells: Sequence[Any] | Array | None, n: int) -> Column:
        """Return a column of `n` cells from Python values (None: null), an array, or nothing.

        Args:
            type: Type of the cells.
            cells: `n` values, or None for a column of nulls. An array is taken as it is, all valid.
            n: Number of rows.

        Raises:
            ValueError: The number of cells is not `n`.
        """
        if cells is None:
            return _nulls(type, n)
        if len(cells) != n:
            raise ValueError(f"a column of {n} rows cannot be built from {len(cells)} cells")
        if type is Type.TEXT:
            return _texts(cells)
        if type in (Type.INTS, Type.BYTES):
            return _lists(type, cells)
        if isinstance(cells, np.ndarray) and cells.dtype != object:
            return Column(type, cells.astype(_NUMPY[type]), np.ones(n, np.bool_))
        cells = list(cells)
        nulls = cells.count(None)
        if nulls == n:
            return _nulls(type, n)
        if not nulls:
            return Column(type, np.array(cells, _NUMPY[type]), np.ones(n, np.bool_))
        valid = _is_there(cells)
        filled = (0 if c is None else c for c in cells)
        values: Array = np.fromiter(filled, _NUMPY[type], n)
        return Column(type, values, valid)


def _some(flat: Array | None) -> Array:
    assert flat is not None
    return flat


def _nulls(type: Type, n: int) -> Column:
    valid = np.broadcast_to(np.zeros(1, np.bool_), (n,))
    if type is Type.TEXT:
        return Column(type, np.broadcast_to(np.zeros(1, np.int32), (n,)), valid)
    if type in (Type.INTS, Type.BYTES):
        lengths = np.broadcast_to(np.zeros(1, np.int64), (n,))
        return Column(type, lengths, valid, (), _flat(type, 0), lengths)
    return Column(type, np.broadcast_to(np.zeros(1, _NUMPY[type]), (n,)), valid)


def _flat(type: Type, size: int) -> Array:
    return np.zeros(size, np.uint8 if type is Type.BYTES else np.int64)


def _texts(cells: Sequence[Any] | Array) -> Column:
    # Distinct cells first: there are few of them, and each is named once.
    distinct = dict.fromkeys(cells)
    codes: dict[str, int] = {}
    code_of = {
        cell: 0 if cell is None else codes.setdefault(str(cell), len(codes)) for cell in distinct
    }
    n = len(cells)
    values = np.fromiter(map(code_of.__getitem__, cells), np.int32, n)
    valid = _is_there(cells) if None in distinct else np.ones(n, np.bool_)
    return Column(Type.TEXT, values, valid, tuple(codes))


def _lists(type: Type, cells: Sequence[Any] | Array) -> Column:
    n = len(cells)
    valid = _is_there(cells)
    there = list(cells) if valid.all() else [cell for cell in cells if cell is not None]
    lengths = np.zeros(n, np.int64)
    lengths[valid] = np.fromiter(map(len, there), np.int64, len(there))
    if type is Type.BYTES:
        return lists(type, lengths, valid, np.frombuffer(b"".join(there), np.uint8))
    flat = np.fromiter(chain.from_iterable(there), np.int64, int(lengths.sum()))
    return lists(type, lengths, valid, flat)


def joined(parts: Sequence[Column]) -> Column:
    """Return the columns of one type one after the other.

    Args:
        parts: One or more.
    """
    some = [part for part in parts if len(part)]
    if len(some) < 2:
        return (some or parts)[0]
    n = sum(map(len, some))
    valid = np.concatenate([part.valid for part in some])
    type = some[0].type
    if not valid.any():
        return _nulls(type, n)
    if type is Type.TEXT:
        codes: dict[str, int] = {}
        of_part = [[codes.setdefault(text, len(codes)) for text in part.texts] for part in some]
        renumbered = [
            np.array(own or [0], np.int32)[part.values]
            for own, part in zip(of_part, some, strict=True)
        ]
        return Column(type, np.where(valid, np.concatenate(renumbered), 0), valid, tuple(codes))
    values = np.concatenate([part.values for part in some])
    if type not in (Type.INTS, Type.BYTES):
        return Column(type, values, valid)
    flat = [_gathered(_some(part.flat), _some(part.starts), part.values) for part in some]
    return lists(type, values, valid, np.concatenate(flat))


def _gathered(flat: Array, starts: Array, lengths: Array) -> Array:
    """Return the items of lists that lie anywhere in `flat`, one list after the other."""
    ends = np.cumsum(lengths, dtype=np.int64)
    n = int(ends[-1]) if len(ends) else 0
    filled = np.flatnonzero(lengths)
    if not n or np.array_equal(starts[filled] - starts[filled[0]], (ends - lengths)[filled]):
        first = int(starts[filled[0]]) if n else 0
        return flat[first : first + n]
    starts, lengths, ends = starts[filled], lengths[filled], ends[filled]
    if lengths.min() == lengths.max():
        return _overlapping(flat, int(lengths[0]))[starts].view(flat.dtype)
    sizes = np.unique(lengths)
    out = np.empty(n, flat.dtype)
    if len(sizes) <= _SIZES:  # most often a few sizes of tensors
        for size in sizes.tolist():
            rows = np.flatnonzero(lengths == size)
            _overlapping(out, size)[ends[rows] - size] = _overlapping(flat, size)[starts[rows]]
        return out
    pieces = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
    return np.concatenate([flat[start:end] for start, end in pieces], out=out)


def _overlapping(flat: Array, size: int) -> Array:
    """Return a view of all lists of `size` items that lie in `flat`, each as one opaque cell."""
    cell = np.dtype((np.void, size * flat.itemsize))
    return np.ndarray(len(flat) - size + 1, cell, flat, strides=flat.strides)


def _is_there(cells: Sequence[Any] | Array) -> Mask:
    return np.fromiter((cell is not None for cell in cells), np.bool_, len(cells))


def lists(type: Type, lengths: Array, valid: Mask, flat: Array) -> Column:
    """Return a column of lists from the length of each and all their items."""
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    return Column(type, lengths, valid, (), flat, starts)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Columns of equal length, by name, in schema order."""

    columns: Mapping[str, Column]
    n: int

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def row(self, row: int) -> dict[str, Any]:
        """Return one row as a dict of the cells that are not null."""
        cells = {name: column[row] for name, column in self.columns.items()}
        return {name: cell for name, cell in cells.items() if cell is not None}

    def take(self, rows: Rows | Sequence[int] | Mask) -> Table:
        """Return the table of the chosen rows, in the order given."""
        picked = np.asarray(rows)
        n = int(picked.sum()) if picked.dtype == np.bool_ else len(picked)
        return Table({name: c.take(picked) for name, c in self.columns.items()}, n)

    def replace(self, **columns: Column) -> Table:
        """Return the table with some columns replaced."""
        return Table({**self.columns, **columns}, self.n)

    def equals(self, other: Table) -> bool:
        """Return whether both tables read the same, cell by cell."""
        return self.n == other.n and all(
            column.equals(other[name]) for name, column in self.columns.items()
        )

    @staticmethod
    def build(
        specs: Sequence[ColumnSpec],
        cells: Mapping[str, Sequence[Any] | Array | Column | None],
        n: int | None = None,
    ) -> Table:
        """Return a table from cells by column name; a column that is not named is all null.

        Args:
            specs: The columns, such as `schema.EVENTS`.
            cells: Values, an array or a ready Column for each name.
            n: Number of rows; needed only where `cells` names none.

        Raises:
            ValueError: A name is not in `specs`, or the lengths differ.
        """
        unknown = sorted(set(cells) - {spec.name for spec in specs})
        if unknown:
            raise ValueError(f"no such column: {', '.join(unknown)}")
        if n is None:
            n = next((len(c) for c in cells.values() if c is not None), 0)
        columns = {}
        for spec in specs:
            given = cells.get(spec.name)
            if isinstance(given, Column):
                if len(given) != n:
                    raise ValueError(f"column {spec.name} has {len(given)} rows, expected {n}")
                columns[spec.name] = given
            else:
                columns[spec.name] = Column.build(spec.type, given, n)
        return Table(columns, n)


def joined_tables(parts: Sequence[Table]) -> Table:
    """Return tables of the same columns one after the other; one or more."""
    columns = {name: joined([part[name] for part in parts]) for name in parts[0].columns}
    return Table(columns, sum(map(len, parts)))


@contextmanager
def no_collection() -> Iterator[None]:
    """Hold Python's cycle collector while millions of rows without cycles are decoded."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
