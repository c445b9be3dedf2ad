"""What every reader of a trace file checks: the version, the words, the sizes."""

from __future__ import annotations

import re
from enum import StrEnum

import numpy as np

from ..errors import TraceFormatError
from .columns import Column, Mask, Rows, Table
from .schema import DTYPES, SCHEMA_VERSION, Kind, Provenance, Role, Status, When
from .trace import Meta, Trace

# Columns whose cells are words of a fixed list.
WORDS: dict[str, type[StrEnum]] = {
    "kind": Kind,
    "provenance": Provenance,
    "status": Status,
    "when": When,
    "role": Role,
}


def check_version(found: object, file: str, line: int | None = None) -> None:
    """Refuse a file whose schema version this program cannot read.

    Raises:
        TraceFormatError: The version is newer, or is no version.
    """
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise TraceFormatError(
            f"found {found!r}, expected a version from 1 to {SCHEMA_VERSION}",
            file=file,
            line=line,
            field="schema_version",
        )
    if found > SCHEMA_VERSION:
        raise TraceFormatError(
            f"the trace has schema_version {found}, this chunkscope reads up to {SCHEMA_VERSION}; "
            "a newer one reads it: pip install --upgrade chunkscope",
            file=file,
            line=line,
            field="schema_version",
        )


def checked_trace(
    events: Table, states: Table, meta: Meta, file: str, first_line: int | None = None
) -> Trace:
    """Return the trace of tables that came from a file, or say what in the file is wrong.

    Args:
        events: Events as read.
        states: States as read.
        meta: Metadata as read.
        file: Path of the file, for messages.
        first_line: Line of the first event, where events have lines.

    Raises:
        TraceFormatError: A word is unknown, a reference points nowhere, a size does not fit.
    """

    def wrong(message: str, table: str, row: int, name: str) -> TraceFormatError:
        event = row if table == "events" else (states["event"][row] if states["event"][row] else 0)
        line = None if first_line is None else first_line + int(event)
        return TraceFormatError(message, file=file, line=line, field=f"$.{table}[{row}].{name}")

    for name, words in WORDS.items():
        table = "events" if name in events.columns else "states"
        column = (events if table == "events" else states)[name]
        for text in column.texts:
            if text not in set(words) and (rows := np.flatnonzero(column.where(text))).size:
                expected = ", ".join(words)
                raise wrong(f"found {text!r}, expected one of {expected}", table, rows[0], name)
    for name in ("kind", "provenance"):
        missing = np.flatnonzero(~events[name].valid)
        if missing.size:
            raise wrong("it is missing, and every event has one", "events", missing[0], name)
    _check_group_ranks(meta, file, first_line)
    bad = np.flatnonzero(_misfits(states))
    if bad.size:
        row = int(bad[0])
        message = (
            f"{states['data'].values[row]} bytes of data do not fill the shape "
            f"{states['shape'][row]} of {states['dtype'][row]}"
        )
        raise wrong(message, "states", row, "data")
    try:
        return Trace(events, states, meta)
    except ValueError as error:
        found = re.match(r"row (\d+): (\w+) ", str(error))
        if found is None:
            raise TraceFormatError(str(error), file=file) from None
        name = found[2]
        table = "states" if name == "event" else "events"
        raise wrong(str(error).split(": ", 1)[1], table, int(found[1]), name) from None


def _check_group_ranks(meta: Meta, file: str, first_line: int | None) -> None:
    for number, group in enumerate(meta.groups):
        if len(set(group.ranks)) != len(group.ranks) or min(group.ranks, default=0) < 0:
            raise TraceFormatError(
                f"found {list(group.ranks[:8])}, expected different ranks from 0 up",
                file=file,
                line=None if first_line is None else first_line - 1,
                field=f"$.meta.groups[{number}].ranks",
            )


def _misfits(states: Table) -> Mask:
    """Return which states hold bytes that their shape and dtype cannot have."""
    dtype, shape, data = states["dtype"], states["shape"], states["data"]
    sizes = np.array([DTYPES.get(text, 0) for text in dtype.texts] or [0], np.int64)
    itemsize = sizes[dtype.values]
    rows = np.flatnonzero(data.valid & dtype.valid & (itemsize > 0))
    elements = _products(shape, rows)
    wrong = data.values[rows] % itemsize[rows] != 0
    wrong |= shape.valid[rows] & (elements * itemsize[rows] != data.values[rows])
    mask = np.zeros(len(states), np.bool_)
    mask[rows[wrong]] = True
    return mask


def _products(shape: Column, rows: Rows) -> Rows:
    """Return the product of each row's list; -1 where a number in it is negative or huge."""
    picked = shape.take(rows)
    products = np.ones(len(rows), np.float64)
    some = np.flatnonzero(picked.values > 0)
    if picked.flat is not None and picked.starts is not None and some.size:
        starts = picked.starts[some]
        products[some] = np.multiply.reduceat(picked.flat.astype(np.float64), starts)
        least = np.minimum.reduceat(picked.flat, starts)
        products[some[least < 0]] = -1
    # Exact up to 2**53 elements, which is more than any file holds.
    return np.where(np.abs(products) > 2**53, -1, products).astype(np.int64)
