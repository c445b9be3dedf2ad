"""Keys of rows on two sides, packed into integers, and rows that have equal keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..columns import Array, Column, Mask, Rows
from ..schema import Type

_MOST = 2**62


class Pairs(NamedTuple):
    """Rows with equal keys, and the rows that the other side lacks.

    Attributes:
        a, b: Positions on each side, opposite each other.
        only_a, only_b: Positions without a partner.
    """

    a: Rows
    b: Rows
    only_a: Rows
    only_b: Rows


def codes(a: Column, rows_a: Rows, b: Column, rows_b: Rows) -> tuple[Rows, Rows]:
    """Return integers that are equal where the cells of two columns are; null is below all."""
    if a.type is Type.TEXT:
        index = {text: k for k, text in enumerate(sorted({*a.texts, *b.texts}))}
        tables = [np.array([index[t] for t in c.texts] or [0], np.int64) for c in (a, b)]
        values = [tables[0][a.values[rows_a]], tables[1][b.values[rows_b]]]
    else:
        values = [a.values[rows_a].astype(np.int64), b.values[rows_b].astype(np.int64)]
    valid = [a.valid[rows_a], b.valid[rows_b]]
    low = min((int(v[m].min()) for v, m in zip(values, valid, strict=True) if m.any()), default=0)
    # The lowest int64 has nothing below it; no column of a key comes near.
    null = max(low - 1, -(2**63))
    coded = [np.where(m, v, null) for v, m in zip(values, valid, strict=True)]
    return coded[0], coded[1]


def pack(columns: Sequence[tuple[Rows, Rows]], n_a: int, n_b: int) -> tuple[Rows, Rows]:
    """Return one integer a row for several columns, ordered as the columns are."""
    key_a, key_b, size = np.zeros(n_a, np.int64), np.zeros(n_b, np.int64), 1
    for a, b in columns:
        (a, b), span = _from_zero(a, b)
        if size * span >= _MOST:
            key_a, key_b, size = dense(key_a, key_b)
        if size * span >= _MOST:
            a, b, span = dense(a, b)
        key_a, key_b, size = key_a * span + a, key_b * span + b, size * span
    return key_a, key_b


def _from_zero(a: Rows, b: Rows) -> tuple[tuple[Rows, Rows], int]:
    ends = [(int(c.min()), int(c.max())) for c in (a, b) if len(c)]
    low, high = min((e[0] for e in ends), default=0), max((e[1] for e in ends), default=0)
    if high - low >= _MOST:
        a, b, span = dense(a, b)
        return (a, b), span
    return (a - low, b - low), high - low + 1


def dense(a: Rows, b: Rows) -> tuple[Rows, Rows, int]:
    """Return each value's rank among the distinct values of both sides, and how many there are."""
    distinct, inverse = np.unique(np.concatenate([a, b]), return_inverse=True)
    return inverse[: len(a)].astype(np.int64), inverse[len(a) :].astype(np.int64), len(distinct)


def pair(key_a: Rows, key_b: Rows) -> Pairs:
    """Return which positions have equal keys; equal keys of one side pair in their order."""
    order_a, order_b = np.argsort(key_a, kind="stable"), np.argsort(key_b, kind="stable")
    sorted_a, sorted_b = key_a[order_a], key_b[order_b]
    nothing = np.zeros(0, np.int64)
    if np.array_equal(sorted_a, sorted_b):
        return Pairs(order_a, order_b, nothing, nothing)
    occurrence_a, occurrence_b = _occurrences(sorted_a), _occurrences(sorted_b)
    if occurrence_a.any() or occurrence_b.any():
        sorted_a, sorted_b = pack(
            [(sorted_a, sorted_b), (occurrence_a, occurrence_b)], len(sorted_a), len(sorted_b)
        )
    _, at_a, at_b = np.intersect1d(sorted_a, sorted_b, assume_unique=True, return_indices=True)
    lone_a, lone_b = np.ones(len(sorted_a), np.bool_), np.ones(len(sorted_b), np.bool_)
    lone_a[at_a], lone_b[at_b] = False, False
    return Pairs(order_a[at_a], order_b[at_b], order_a[lone_a], order_b[lone_b])


def _occurrences(key: Rows) -> Rows:
    """Return how many equal keys stand before each, in a sorted array."""
    new = np.ones(len(key), np.bool_)
    new[1:] = key[1:] != key[:-1]
    starts = np.flatnonzero(new)
    return np.asarray(np.arange(len(key)) - starts[np.cumsum(new) - 1])


def unequal(a: Column, rows_a: Rows, b: Column, rows_b: Rows) -> Mask:
    """Return where cells that stand opposite each other differ (null equals null alone)."""
    if a.type in (Type.INTS, Type.BYTES):
        return _unequal_lists(a, rows_a, b, rows_b)
    valid_a, valid_b = a.valid[rows_a], b.valid[rows_b]
    if a.type is Type.FLOAT:
        values_a, values_b = a.values[rows_a], b.values[rows_b]
        differ = (values_a != values_b) & ~(np.isnan(values_a) & np.isnan(values_b))
    elif a.type is Type.TEXT and a.texts != b.texts:
        values_a, values_b = codes(a, rows_a, b, rows_b)
        differ = values_a != values_b
    else:
        differ = a.values[rows_a] != b.values[rows_b]
    return np.asarray((valid_a != valid_b) | (valid_a & differ))


def _unequal_lists(a: Column, rows_a: Rows, b: Column, rows_b: Rows) -> Mask:
    if np.array_equal(rows_a, rows_b) and _same_items(a, b):  # two runs of one simulation
        return np.asarray(a.valid[rows_a] != b.valid[rows_b])
    lengths = a.values[rows_a]
    differ = (a.valid[rows_a] != b.valid[rows_b]) | (lengths != b.values[rows_b])
    same = np.flatnonzero(~differ & (lengths > 0))
    # A bounded number of items at a time: the index of each item takes 16 bytes.
    ends = np.cumsum(lengths[same])
    start = 0
    while start < len(same):
        done = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, done + (1 << 20))), start + 1)
        block = same[start:stop]
        if stop == start + 1:
            items_a, items_b = _items(a, int(rows_a[block[0]])), _items(b, int(rows_b[block[0]]))
            differ[block] = not np.array_equal(items_a, items_b)
        else:
            items_a, starts = gather(a, rows_a[block])
            items_b, _ = gather(b, rows_b[block])
            differ[block] = np.logical_or.reduceat(items_a != items_b, starts)
        start = stop
    return np.asarray(differ)


def _same_items(a: Column, b: Column) -> bool:
    pairs = ((a.values, b.values), (a.starts, b.starts), (a.flat, b.flat))
    return all(np.array_equal(x, y) for x, y in pairs if x is not None and y is not None)


def _items(column: Column, row: int) -> Array:
    assert column.flat is not None
    assert column.starts is not None
    start = int(column.starts[row])
    return column.flat[start : start + int(column.values[row])]


def gather(column: Column, rows: Rows) -> tuple[Array, Rows]:
    """Return the items of the lists in some rows, and where each row's items start."""
    picked = column.take(rows)
    assert picked.flat is not None
    assert picked.starts is not None
    return picked.flat, picked.starts
