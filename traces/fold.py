"""Folding decoded rows into columns, a block at a time, without keeping a row."""

from __future__ import annotations

import itertools
import operator
import struct
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from .columns import Array, Column, Mask, lists
from .schema import ColumnSpec, Type

# Cells that stand for "not there" while rows are folded into columns: no cell can hold them.
NO_INT = -(2**63)
NO_FLOAT_BITS = 0x7FF8C0DE00000000
NO_FLOAT: float = struct.unpack("<d", struct.pack("<Q", NO_FLOAT_BITS))[0]
NO_BOOL: Any = 2
NO_TEXT = -1  # among the codes of a text column
NO_LENGTH = -1  # among the lengths of a list column
_NOT_THERE = {
    Type.INT: NO_INT,
    Type.FLOAT: NO_FLOAT,
    Type.BOOL: NO_BOOL,
    Type.TEXT: NO_TEXT,
    Type.INTS: NO_LENGTH,
    Type.BYTES: NO_LENGTH,
}
_DTYPES = {
    Type.INT: np.int64,
    Type.FLOAT: np.float64,
    Type.BOOL: np.int8,
    Type.TEXT: np.int32,
}


class Folder:
    """Folds decoded rows into columns, block by block."""

    def __init__(self, specs: Sequence[ColumnSpec]) -> None:
        self._specs = specs
        self._folds = [_Fold(spec.type) for spec in specs]

    def add(self, rows: list[Any]) -> None:
        """Take in a block of rows."""
        if rows:
            columns = zip(*map(msgspec.structs.astuple, rows), strict=True)
            for fold, cells in zip(self._folds, columns, strict=False):
                fold.add(cells)

    def columns(self) -> dict[str, Column]:
        """Return the columns by name."""
        return {spec.name: fold.column() for spec, fold in zip(self._specs, self._folds)}


class _Fold:
    """One column in the making: an array a block, joined at the end."""

    def __init__(self, type: Type) -> None:
        self.type = type
        self._blocks: list[Array] = []
        self._flat: list[Array] = []
        self._codes: dict[str | None, int] = {None: NO_TEXT}

    def add(self, cells: tuple[Any, ...]) -> None:
        """Take in the cells of a block."""
        if _are_equal(cells, self.type):  # most columns of a block: nothing, or one word
            one = self._text_codes(cells[:1]) if self.type is Type.TEXT else cells[0]
            self._blocks.append(np.full(len(cells), one, _DTYPES[self.type]))
        elif self.type is Type.TEXT:
            self._blocks.append(self._text_codes(cells))
        elif self.type in (Type.INTS, Type.BYTES):
            self._add_lists(cells)
        else:
            self._blocks.append(np.fromiter(cells, _DTYPES[self.type], len(cells)))

    def _text_codes(self, cells: tuple[Any, ...]) -> Array:
        try:
            return np.fromiter(map(self._codes.__getitem__, cells), np.int32, len(cells))
        except KeyError:  # a block brings new texts: seldom, after the first
            for text in dict.fromkeys(cells):
                self._codes.setdefault(text, len(self._codes) - 1)
            return self._text_codes(cells)

    def _add_lists(self, cells: tuple[Any, ...]) -> None:
        n_null = cells.count(None)
        if n_null == len(cells):
            self._blocks.append(np.full(n_null, NO_LENGTH))
            return
        kept = [() if cell is None else cell for cell in cells] if n_null else cells
        if self.type is Type.BYTES:
            joined = b"".join([cell for cell in cells if cell] if n_null else cells)
            self._flat.append(np.frombuffer(joined, np.uint8))
        else:
            self._flat.append(np.fromiter(itertools.chain.from_iterable(kept), np.int64))
        lengths = np.fromiter(map(len, kept), np.int64, len(cells))
        if n_null:
            null = np.fromiter(map(operator.is_, cells, itertools.repeat(None)), np.bool_)
            lengths[null] = NO_LENGTH
        self._blocks.append(lengths)

    def column(self) -> Column:
        """Return the column of all blocks."""
        n = sum(map(len, self._blocks))
        values = np.concatenate(self._blocks) if self._blocks else np.zeros(0, np.int64)
        valid = self._valid(values)
        if not valid.any():
            return Column.build(self.type, None, n)
        values = np.where(valid, values, values.dtype.type(0))
        if self.type in (Type.INTS, Type.BYTES):
            return lists(self.type, values, valid, np.concatenate(self._flat))
        if self.type is Type.BOOL:
            return Column(self.type, values.astype(np.bool_), valid)
        return Column(
            self.type, values, valid, tuple(text for text in self._codes if text is not None)
        )

    def _valid(self, values: Array) -> Mask:
        if self.type is Type.FLOAT and len(values):
            return np.asarray(values.view(np.uint64) != NO_FLOAT_BITS)
        return np.asarray(values != _NOT_THERE[self.type])


def _are_equal(cells: tuple[Any, ...], type: Type) -> bool:
    """Return whether all cells are one and the same; two zeros of a float are not."""
    if type in (Type.INTS, Type.BYTES) or (cells[0] is not cells[-1] and cells[0] != cells[-1]):
        return False
    is_told = type is not Type.FLOAT or cells[0] is NO_FLOAT
    return is_told and cells.count(cells[0]) == len(cells)
