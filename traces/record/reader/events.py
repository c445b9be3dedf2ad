"""The events of one file: its begins with their ends, and its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...columns import Column, Table, joined
from ...schema import Type
from .counting import Ints, lookup
from .record_file import RecordFile

# Columns of events, and the fields of begin, end and row records that they come from.
_FIELDS: dict[str, tuple[str | None, str | None, str | None]] = {
    "seq": ("seq", None, "seq"),
    "parent": ("parent", None, "parent"),
    "batch": ("batch", None, "batch"),
    "attempt": (None, None, "attempt"),
    "t_issue_ns": ("t", None, "issue"),
    "t_start_ns": (None, "start", "start"),
    "t_end_ns": (None, "t", "end"),
    "status": (None, "status", "status"),
    "error": (None, "error", "error"),
    "host": (None, None, "host"),
    "coll_seq": ("coll_seq", None, None),
    "message": ("message", None, None),
}
_TEXTS = ("status", "error", "host")


@dataclass(frozen=True, slots=True)
class FileEvents:
    """The events of one file, ordered by seq where the file is not counted.

    Attributes:
        table: What the records say themselves; `call` is the place of its call among the file's.
        sets: Cells that ends bring, with the row of the event.
        n_without_call: Events that are left out, as their call is missing.
        n_ends_alone: Ends that are left out, as their begin is missing.
    """

    table: Table
    sets: list[tuple[int, Any]]
    n_without_call: int
    n_ends_alone: int


def events_of(file: RecordFile, calls: Ints) -> FileEvents:
    """Return the events of a file.

    Args:
        file: The file.
        calls: Numbers of its calls.
    """
    begins, call_of_begin = _with_calls(file.begins, calls)
    rows, call_of_row = _with_calls(file.rows, calls)
    end_of, n_alone = _ends_of(begins["seq"].values, file.ends["seq"].values)
    cells = {}
    for name, fields in _FIELDS.items():
        type = Type.TEXT if name in _TEXTS else Type.INT
        of_begin, of_end, of_row = fields
        cells[name] = joined(
            [
                begins[of_begin]
                if of_begin is not None
                else file.ends[of_end].take_or_null(end_of)
                if of_end is not None
                else Column.build(type, None, len(begins)),
                rows[of_row] if of_row is not None else Column.build(type, None, len(rows)),
            ]
        )
    n = len(begins) + len(rows)
    cells["call"] = Column.build(Type.INT, np.concatenate([call_of_begin, call_of_row]), n)
    table, place = Table(cells, n), np.arange(n)
    if not file.header.counted:
        order = np.argsort(table["seq"].values, kind="stable")
        if (np.diff(order) < 0).any():
            table = table.take(order)
            place[order] = np.arange(n)
    ended = np.flatnonzero(end_of >= 0)
    event_of = np.full(len(file.ends), -1, np.int64)
    event_of[end_of[ended]] = place[ended]
    sets = [(int(event_of[end]), found) for end, found in file.sets if event_of[end] >= 0]
    n_without = len(file.begins) + len(file.rows) - n
    return FileEvents(table, sets, n_without, n_alone)


def _with_calls(table: Table, numbers: Ints) -> tuple[Table, Ints]:
    """Return the records whose call is there, and the place of each one's call in `numbers`."""
    order = np.argsort(numbers, kind="stable")
    found = lookup(table["call"].values, numbers[order])
    is_there = found >= 0
    if is_there.all():
        return table, order[found]
    return table.take(is_there), order[found[is_there]]


def _ends_of(begins: Ints, ends: Ints) -> tuple[Ints, int]:
    """Return the row of each begin's end, -1 for none, and how many ends are left over.

    Args:
        begins: seqs of the begins.
        ends: seqs of the ends; the last one of a seq holds.
    """
    order = np.argsort(ends, kind="stable")
    in_order = ends[order]
    holds = np.ones(len(ends), np.bool_)
    holds[:-1] = in_order[1:] != in_order[:-1]
    found = lookup(begins, in_order[holds])
    rows = np.append(order[holds], -1)[found]
    is_used = np.zeros(int(holds.sum()), np.bool_)
    is_used[found[found >= 0]] = True
    return rows, int((~is_used).sum())
