"""Which tensor states of two traces stand opposite each other, and which of them differ."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ..columns import Array, Column, Mask, Rows
from ..schema import DTYPES, Role
from ..trace import Trace, decode
from .keys import codes, gather, pack, pair, unequal

# What of a state is compared besides its values, in the order in which it is told.
COLUMNS = ("contributors", "dtype", "shape")


class Values(StrEnum):
    """How values are compared."""

    EXACT = "exact"  # bit by bit, by digest where the bytes were not kept
    CLOSE = "close"  # within a tolerance for the dtype
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Values a and b are close where |a - b| <= atol + rtol * max(|a|, |b|).

    None stands for the dtype's own: a few units in its last place, as much as another order of
    adding makes.
    """

    rtol: float | None = None
    atol: float | None = None

    def of(self, dtype: str) -> tuple[float, float]:
        """Return rtol and atol for a dtype."""
        rtol, atol = _TOLERANCES.get(dtype, (0.0, 0.0))
        return (
            rtol if self.rtol is None else self.rtol,
            atol if self.atol is None else self.atol,
        )


# As torch.testing.assert_close has them; float8 by the same rule, about half its last digit.
_TOLERANCES = {
    "float64": (1e-7, 1e-7),
    "complex128": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float8_e4m3fn": (0.125, 1e-2),
    "float8_e5m2": (0.25, 1e-2),
}


@dataclass(frozen=True, slots=True, eq=False)
class StatePairs:
    """States opposite each other, those without a partner, and what could not be compared.

    Attributes:
        a, b: Rows of the two states tables, opposite each other.
        pair: Number of the pair of events that they belong to.
        only_a, only_b: Rows of states that the other side lacks.
        pair_only_a, pair_only_b: Pairs of events that those belong to.
        notes: What was left out.
    """

    a: Rows
    b: Rows
    pair: Rows
    only_a: Rows
    only_b: Rows
    pair_only_a: Rows
    pair_only_b: Rows
    notes: list[str]


def pair_states(a: Trace, b: Trace, events_a: Rows, events_b: Rows) -> StatePairs:
    """Pair the states of paired events by (when, role, index of an input or output).

    A class of states, such as the payloads, that one side has none of is left out, and noted.
    """
    owner_a, owner_b = _owners(a, events_a), _owners(b, events_b)
    rows_a, rows_b = np.flatnonzero(owner_a >= 0), np.flatnonzero(owner_b >= 0)
    rows_a, rows_b, notes = _common_classes(a, rows_a, b, rows_b)
    index_a, index_b = _index(a, rows_a), _index(b, rows_b)
    keys = [
        (owner_a[rows_a], owner_b[rows_b]),
        codes(a.states["when"], rows_a, b.states["when"], rows_b),
        codes(a.states["role"], rows_a, b.states["role"], rows_b),
        (index_a, index_b),
    ]
    found = pair(*pack(keys, len(rows_a), len(rows_b)))
    at_a, at_b = rows_a[found.a], rows_b[found.b]
    only_a, only_b = rows_a[found.only_a], rows_b[found.only_b]
    return StatePairs(
        at_a, at_b, owner_a[at_a], only_a, only_b, owner_a[only_a], owner_b[only_b], notes
    )


def _owners(trace: Trace, events: Rows) -> Rows:
    """Return the pair of events that each state belongs to, -1 for none."""
    number = np.full(len(trace), -1, np.int64)
    number[events] = np.arange(len(events))
    return number[trace.states["event"].values] if len(trace) else np.zeros(0, np.int64)


def _index(trace: Trace, rows: Rows) -> Rows:
    """Return the index of inputs and outputs; slots are told apart by their event alone."""
    role, index = trace.states["role"], trace.states["index"]
    of_call = role.where(Role.INPUT.value) | role.where(Role.OUTPUT.value)
    return np.where(of_call[rows], index.values[rows], 0)


def _common_classes(a: Trace, rows_a: Rows, b: Trace, rows_b: Rows) -> tuple[Rows, Rows, list[str]]:
    keys = [codes(a.states[name], rows_a, b.states[name], rows_b) for name in ("when", "role")]
    class_a, class_b = pack(keys, len(rows_a), len(rows_b))
    lone = np.setxor1d(class_a, class_b)
    notes = []
    for which in lone.tolist():
        here = np.flatnonzero(class_a == which)
        trace, rows, lacking = (a, rows_a, "B") if len(here) else (b, rows_b, "A")
        if not len(here):
            here = np.flatnonzero(class_b == which)
        row = int(rows[here[0]])
        when, role = trace.states["when"][row], trace.states["role"][row]
        notes.append(f"{lacking} has no {role} states {when} an event: they were not compared")
    return rows_a[~np.isin(class_a, lone)], rows_b[~np.isin(class_b, lone)], notes


def different_columns(a: Trace, b: Trace, pairs: StatePairs) -> tuple[dict[str, Mask], list[str]]:
    """Return which pairs differ in each of COLUMNS; a column that one side lacks is left out."""
    found, notes = {}, []
    for name in COLUMNS:
        column_a, column_b = a.states[name], b.states[name]
        there = [bool(c.valid[r].any()) for c, r in ((column_a, pairs.a), (column_b, pairs.b))]
        if there[0] and there[1]:
            found[name] = unequal(column_a, pairs.a, column_b, pairs.b)
            if name == "contributors":  # derived where they can be: absent is not different
                found[name] &= column_a.valid[pairs.a] & column_b.valid[pairs.b]
        elif there[0] or there[1]:
            notes.append(f"{'B' if there[0] else 'A'} has no {name} of states: not compared")
    return found, notes


def different_values(
    a: Trace, b: Trace, pairs: StatePairs, values: Values, tolerance: Tolerance
) -> tuple[Mask, list[str]]:
    """Return which pairs differ in their values, and what could not be compared."""
    differ = np.zeros(len(pairs.a), np.bool_)
    if values is Values.IGNORE:
        return differ, ["values were not compared"]
    comparable = _comparable(a, b, pairs)
    kept = a.states["data"].valid[pairs.a] & b.states["data"].valid[pairs.b] & comparable
    at = np.flatnonzero(kept)
    differ[at] = unequal(a.states["data"], pairs.a[at], b.states["data"], pairs.b[at])
    if values is Values.CLOSE:
        at = np.flatnonzero(differ)
        differ[at] = _beyond(a, pairs.a[at], b, pairs.b[at], tolerance)
    rest = np.flatnonzero(comparable & ~kept)
    known, unlike = _by_digest(a, pairs.a[rest], b, pairs.b[rest])
    known |= _empty(a, pairs.a[rest])
    if values is Values.CLOSE:
        for k in np.flatnonzero(unlike):
            ours, theirs = int(pairs.a[rest[k]]), int(pairs.b[rest[k]])
            unlike[k] = not _close_statistics(a, ours, b, theirs, tolerance)
    differ[rest] = unlike
    unknown = int((~comparable).sum() + (~known).sum())
    notes = []
    if unknown:
        notes.append(f"the values of {unknown} states were not kept on both sides: not compared")
    return differ, notes


def _comparable(a: Trace, b: Trace, pairs: StatePairs) -> Mask:
    """Return which pairs have the same dtype and shape, and bytes or digests of the same part."""
    same = ~unequal(a.states["dtype"], pairs.a, b.states["dtype"], pairs.b)
    shape_a, shape_b = a.states["shape"], b.states["shape"]
    both = shape_a.valid[pairs.a] & shape_b.valid[pairs.b]
    same &= ~(both & unequal(shape_a, pairs.a, shape_b, pairs.b))
    sampled = [
        t.states["digest_of"].where("sample")[r] & ~t.states["data"].valid[r]
        for t, r in ((a, pairs.a), (b, pairs.b))
    ]
    return np.asarray(same & (sampled[0] == sampled[1]))


def _empty(trace: Trace, rows: Rows) -> Mask:
    """Return which states have no element, so that there is nothing to compare."""
    lengths, zeros = trace.states["shape"].take(rows), np.zeros(len(rows), np.bool_)
    some = np.flatnonzero(lengths.values > 0)
    if len(some) and lengths.flat is not None and lengths.starts is not None:
        zeros[some] = np.minimum.reduceat(lengths.flat, lengths.starts[some]) == 0
    return zeros


def _by_digest(a: Trace, rows_a: Rows, b: Trace, rows_b: Rows) -> tuple[Mask, Mask]:
    """Return of which pairs both digests are known, and which of those differ."""
    digests = []
    for trace, rows in ((a, rows_a), (b, rows_b)):
        column, data = trace.states["digest"], trace.states["data"]
        known, value = column.valid[rows].copy(), column.values[rows].copy()
        for k in np.flatnonzero(data.valid[rows]):
            known[k], value[k] = True, zlib.crc32(data[int(rows[k])])
        digests.append((known, value))
    known = digests[0][0] & digests[1][0]
    return known, known & (digests[0][1] != digests[1][1])


def _beyond(a: Trace, rows_a: Rows, b: Trace, rows_b: Rows, tolerance: Tolerance) -> Mask:
    """Return which pairs of kept bytes differ by more than the tolerance."""
    beyond = np.ones(len(rows_a), np.bool_)
    data_a, data_b, dtype = a.states["data"], b.states["data"], a.states["dtype"]
    lengths = data_a.values[rows_a]
    same_size = (lengths == data_b.values[rows_b]) & (lengths > 0)
    for code, name in enumerate(dtype.texts):
        chosen = same_size & (dtype.values[rows_a] == code) & dtype.valid[rows_a]
        if name not in DTYPES or not chosen.any():
            continue
        at = np.flatnonzero(chosen)
        for block in _blocks(at, lengths[at]):
            items_a, starts = gather(data_a, rows_a[block])
            items_b, _ = gather(data_b, rows_b[block])
            far = ~close(
                decode(items_a.tobytes(), name), decode(items_b.tobytes(), name), name, tolerance
            )
            beyond[block] = np.logical_or.reduceat(far, starts // DTYPES[name])
    return beyond


def _blocks(at: Rows, lengths: Rows) -> list[Rows]:
    """Return the positions in blocks of about 8 MiB."""
    cuts = np.flatnonzero(np.diff(np.cumsum(lengths) >> 23)) + 1
    return np.split(at, cuts)


def close(a: Array, b: Array, dtype: str, tolerance: Tolerance) -> Mask:
    """Return where values are within the tolerance; NaN is close to NaN."""
    if a.dtype.kind not in "fc":
        rtol, atol = tolerance.rtol or 0.0, tolerance.atol or 0.0
        if not (rtol or atol):
            return np.asarray(a == b)
    else:
        rtol, atol = tolerance.of(dtype)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    with np.errstate(invalid="ignore"):
        near = np.abs(x - y) <= atol + rtol * np.maximum(np.abs(x), np.abs(y))
    finite = np.isfinite(x) & np.isfinite(y)
    return np.asarray(np.where(finite, near, (x == y) | (np.isnan(x) & np.isnan(y))))


def _close_statistics(a: Trace, row_a: int, b: Trace, row_b: int, tolerance: Tolerance) -> bool:
    """Return whether what was kept of two states in place of their bytes is close."""
    dtype = a.states["dtype"][row_a]
    if dtype not in _TOLERANCES or a.states["nan"][row_a] != b.states["nan"][row_b]:
        return False
    compared = False
    for name in ("min", "max", "mean"):
        one, two = a.states[name][row_a], b.states[name][row_b]
        if one is not None and two is not None:
            compared = True
            if not close(np.array([one]), np.array([two]), dtype, tolerance).all():
                return False
    firsts = [_first(a.states["first"], row_a, dtype), _first(b.states["first"], row_b, dtype)]
    if firsts[0] is not None and firsts[1] is not None:
        n = min(len(firsts[0]), len(firsts[1]))
        return bool(close(firsts[0][:n], firsts[1][:n], dtype, tolerance).all())
    return compared


def _first(column: Column, row: int, dtype: str) -> Array | None:
    raw = column[row]
    return None if raw is None else decode(raw, dtype)
