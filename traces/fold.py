"""Folding decoded rows into columns, a block at a time, without keeping a row."""

from __future__ import annotations

import itertools
import operator
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import msgspec
import numpy as np

from .columns import Array, Column, Mask, Table, lists
from .schema import ColumnSpec, Type

# Cells that stand for "not there" while rows are folded into columns: no cell can hold them.
NO_INT = -(2**63)
NO_FLOAT_BITS = 0x7FF8C0DE00000000
NO_FLOAT: float = struct.unpack("<d", struct.pack("<Q", NO_FLOAT_BITS))[0]
NO_BOOL: Any = 2
SENTINELS: Mapping[Type, Any] = {Type.INT: NO_INT, Type.FLOAT: NO_FLOAT, Type.BOOL: NO_BOOL}

_NO_TEXT = -1  # among the codes of a text column
_READ_BYTES = 1 << 18  # what fits into a processor's cache decodes twice as fast
_DTYPES = {
    Type.INT: np.int64,
    Type.FLOAT: np.float64,
    Type.BOOL: np.int8,
    Type.TEXT: np.int32,
    Type.INTS: np.int64,
    Type.BYTES: np.int64,
}


def blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file in blocks of whole lines; the last one may lack its line end."""
    rest: list[bytes] = []
    while chunk := file.read(_READ_BYTES):
        end = chunk.rfind(b"\n") + 1
        if not end:
            rest.append(chunk)
            continue
        yield b"".join([*rest, chunk[:end]])
        rest = [chunk[end:]]
    if last := b"".join(rest):
        yield last


class Folder:
    """Folds decoded rows into columns, block by block.

    Args:
        specs: The columns.
        nulls: What a cell that is not there is, by type; None where it names none.
    """

    def __init__(self, specs: Sequence[ColumnSpec], nulls: Mapping[Type, Any]) -> None:
        self._folds = {spec.name: _Fold(spec.type, nulls.get(spec.type)) for spec in specs}
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def add(self, rows: Sequence[Any]) -> None:
        """Take in a block of structs whose first fields are the columns, in their order."""
        self.add_cells(dict(zip(self._folds, cells_of(rows), strict=False)), len(rows))

    def add_cells(self, cells: Mapping[str, Sequence[Any]], n: int) -> None:
        """Take in a block of `n` rows, given as the cells of each column; others are ignored."""
        self._n += n
        if n:
            for name, fold in self._folds.items():
                fold.add(cells[name])

    def columns(self) -> dict[str, Column]:
        """Return the columns by name."""
        return {name: fold.column(self._n) for name, fold in self._folds.items()}

    def table(self) -> Table:
        """Return the columns as a table."""
        return Table(self.columns(), self._n)


def cells_of(rows: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Return the cells of each field of structs of one type."""
    return zip(*map(msgspec.structs.astuple, rows), strict=True)


class _Fold:
    """One column in the making: runs of one cell, and arrays; joined at the end."""

    def __init__(self, type: Type, null: Any) -> None:
        self.type = type
        self._null = null
        self._dtype = _DTYPES[type]
        self._blocks: list[tuple[Array, Mask | None]] = []  # None: all are there
        self._flat: list[Array] = []
        self._codes: dict[str | None, int] = {None: _NO_TEXT}
        self._run: Any = None
        self._run_length = 0

    def add(self, cells: Sequence[Any]) -> None:
        """Take in the cells of a block."""
        if self._are_equal(cells):  # most columns of a block: nothing, or one word
            self._extend_run(cells[0], len(cells))
            return
        self._end_run()
        if self.type is Type.TEXT:
            codes = self._text_codes(cells)
            self._blocks.append((codes, codes != _NO_TEXT))
        elif self.type in (Type.INTS, Type.BYTES):
            self._add_lists(cells)
        else:
            self._blocks.append(self._numbers(cells))

    def _are_equal(self, cells: Sequence[Any]) -> bool:
        first = cells[0]
        if first is not cells[-1] and first != cells[-1]:
            return False
        if first is not self._null and self.type in (Type.FLOAT, Type.INTS, Type.BYTES):
            return False  # two zeros of a float may differ
        return cells.count(first) == len(cells)

    def _is_null(self, cell: Any) -> bool:
        return cell is self._null or bool(cell == self._null)

    def _extend_run(self, cell: Any, n: int) -> None:
        if self._run_length and cell is not self._run and cell != self._run:
            self._end_run()
        self._run = cell
        self._run_length += n

    def _end_run(self) -> None:
        n, self._run_length = self._run_length, 0
        if not n:
            return
        if self._is_null(self._run):
            self._blocks.append((np.zeros(n, self._dtype), np.zeros(n, np.bool_)))
        else:
            value = self._text_codes([self._run])[0] if self.type is Type.TEXT else self._run
            self._blocks.append((np.full(n, value, self._dtype), None))

    def _numbers(self, cells: Sequence[Any]) -> tuple[Array, Mask | None]:
        n = len(cells)
        if self._null is None:
            with suppress(TypeError):  # None is no int, and numpy takes it for a NaN
                if self.type is not Type.FLOAT or None not in cells:
                    return np.fromiter(cells, self._dtype, n), None
            filled = [0 if cell is None else cell for cell in cells]
            return np.fromiter(filled, self._dtype, n), _is_there(cells)
        values: Array = np.fromiter(cells, self._dtype, n)
        if self.type is Type.FLOAT:
            return values, values.view(np.uint64) != NO_FLOAT_BITS
        return values, values != self._null

    def _text_codes(self, cells: Sequence[Any]) -> Array:
        try:
            return np.fromiter(map(self._codes.__getitem__, cells), np.int32, len(cells))
        except KeyError:  # a block brings new texts: seldom, after the first
            for text in dict.fromkeys(cells):
                self._codes.setdefault(text, len(self._codes) - 1)
            return self._text_codes(cells)

    def _add_lists(self, cells: Sequence[Any]) -> None:
        valid = None
        try:
            lengths = np.fromiter(map(len, cells), np.int64, len(cells))
        except TypeError:  # some are None
            valid = _is_there(cells)
            cells = [() if cell is None else cell for cell in cells]
            lengths = np.fromiter(map(len, cells), np.int64, len(cells))
        if self.type is Type.BYTES:
            joined = b"".join(cells if valid is None else [cell for cell in cells if cell])
            self._flat.append(np.frombuffer(joined, np.uint8))
        else:
            items = itertools.chain.from_iterable(cells)
            self._flat.append(np.fromiter(items, np.int64, int(lengths.sum())))
        self._blocks.append((lengths, valid))

    def column(self, n: int) -> Column:
        """Return the column of all blocks, `n` cells."""
        if self._run_length == n and n and self.type in (Type.INT, Type.TEXT, Type.BOOL):
            return self._constant(n)
        self._end_run()
        if not self._blocks or not any(valid is None or valid.any() for _, valid in self._blocks):
            return Column.build(self.type, None, n)
        values = np.concatenate([values for values, _ in self._blocks])
        if all(valid is None for _, valid in self._blocks):
            valid = np.ones(n, np.bool_)
        else:
            valid = np.concatenate(
                [np.ones(len(v), np.bool_) if mask is None else mask for v, mask in self._blocks]
            )
            values[~valid] = 0
        if self.type in (Type.INTS, Type.BYTES):
            return lists(self.type, values, valid, np.concatenate(self._flat))
        if self.type is Type.BOOL:
            return Column(self.type, values.astype(np.bool_), valid)
        return Column(self.type, values, valid, self._texts())

    def _constant(self, n: int) -> Column:
        cell = self._run
        if self._is_null(cell):
            return Column.build(self.type, None, n)
        code = self._text_codes([cell])[0] if self.type is Type.TEXT else cell
        dtype = np.bool_ if self.type is Type.BOOL else self._dtype
        values: Array = np.broadcast_to(np.array([code], dtype), (n,))
        return Column(self.type, values, np.broadcast_to(np.ones(1, np.bool_), (n,)), self._texts())

    def _texts(self) -> tuple[str, ...]:
        return tuple(str(text) for text in self._codes if text is not None)


def _is_there(cells: Sequence[Any]) -> Mask:
    is_not = map(operator.is_not, cells, itertools.repeat(None))
    return np.fromiter(is_not, np.bool_, len(cells))
