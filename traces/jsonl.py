"""The text form of a trace: a header line, then one event a line with its states inside.

    {"format":"chunkscope trace","schema_version":1,"events":2,"meta":{"world_size":2}}
    {"file":"sim","seq":0,"rank":0,"kind":"send","provenance":"simulated"}

Columns stand in schema order and nulls are left out, so equal traces give equal bytes. A tensor's
bytes are base64, its first values numbers. NaN and infinities are the strings NaN, Infinity and
-Infinity, a complex number is a pair.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import msgspec
import numpy as np

from ..errors import ChunkscopeError, TraceFormatError
from .atomic import replacing
from .columns import Array, Column, Table, no_collection
from .fold import NO_BOOL, NO_FLOAT, NO_INT, SENTINELS, Folder, blocks, cells_of
from .metadata import meta_from_json, meta_to_json
from .numbers import from_numbers, to_numbers
from .schema import EVENTS, STATES, ColumnSpec, Type
from .trace import Meta, Trace
from .validate import WORDS, check_version, checked_trace

FORMAT = "chunkscope trace"
_WRITE_ROWS = 1 << 15
_FIRST_LINE = 2

_Int = Annotated[int, msgspec.Meta(ge=NO_INT + 1, le=2**63 - 1)]
_READ_TYPES: dict[Type, tuple[Any, Any]] = {
    Type.INT: (_Int, NO_INT),
    Type.FLOAT: (float | Literal["NaN", "Infinity", "-Infinity"], NO_FLOAT),
    Type.BOOL: (bool, NO_BOOL),
    Type.TEXT: (str | None, None),
    Type.INTS: (list[_Int] | None, None),
    Type.BYTES: (bytes | None, None),
}
_STATE_SPECS = STATES[1:]  # without `event`, which the line itself says


def _reader_struct(name: str, specs: Sequence[ColumnSpec], *more: Any) -> Any:
    fields = [
        ("first", bytes | list[Any] | None, None)
        if spec.name == "first"
        # Words of a fixed list come back as one object each, and are checked on the way.
        else (spec.name, Literal[tuple(word.value for word in WORDS[spec.name])] | None, None)
        if spec.name in WORDS
        else (spec.name, *_READ_TYPES[spec.type])
        for spec in specs
    ]
    return msgspec.defstruct(name, [*fields, *more], gc=False, forbid_unknown_fields=True)


_State: Any = _reader_struct("State", _STATE_SPECS)
_Event: Any = _reader_struct("Event", EVENTS, ("states", list.__class_getitem__(_State), []))
_EVENT_LINES = msgspec.json.Decoder(_Event)


class _Version(msgspec.Struct):
    format: str
    schema_version: Any = None


class _Header(msgspec.Struct):
    events: Annotated[int, msgspec.Meta(ge=0)]
    meta: dict[str, Any] = {}


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a file that starts with `head` is of this form."""
    first_line = head.split(b"\n", 1)[0]
    return first_line.lstrip().startswith(b"{") and FORMAT.encode() in first_line


# Writing


def write(trace: Trace, path: Path) -> None:
    """Write a trace as text.

    Raises:
        ChunkscopeError: The file cannot be written.
    """
    with replacing(path) as temp, temp.open("wb") as out:
        for block in encoded(trace):
            out.write(block)


def encoded(trace: Trace) -> Iterator[bytes]:
    """Yield the lines of a trace, many at a time."""
    encoder = msgspec.json.Encoder()
    header = {
        "format": FORMAT,
        "schema_version": trace.meta.schema_version,
        "events": len(trace),
        "meta": meta_to_json(trace.meta),
    }
    yield encoder.encode(header) + b"\n"
    bounds = np.searchsorted(trace.states["event"].values, np.arange(len(trace) + 1))
    for start in range(0, len(trace), _WRITE_ROWS):
        rows = slice(start, min(start + _WRITE_ROWS, len(trace)))
        inside = slice(int(bounds[rows.start]), int(bounds[rows.stop]))
        states = _objects(_STATE_SPECS, trace.states, inside)
        ends = (bounds[rows.start : rows.stop + 1] - inside.start).tolist()
        nested = [states[a:b] or None for a, b in itertools.pairwise(ends)]
        yield encoder.encode_lines(_objects(EVENTS, trace.events, rows, nested))


def _objects(
    specs: Sequence[ColumnSpec], table: Table, rows: slice, nested: list[Any] | None = None
) -> list[Any]:
    """Return one object a row, with the cells that are not null as its fields."""
    names, cells = [], []
    for spec in specs:
        column = table[spec.name]
        if column.valid[rows].any():
            names.append(spec.name)
            cells.append(_cells(column, np.arange(rows.start, rows.stop)))
            if spec.name == "first":
                dtypes = table["dtype"].take(np.arange(rows.start, rows.stop)).to_list()
                cells[-1] = to_numbers(cells[-1], dtypes)
    if nested is not None:
        names.append("states")
        cells.append(nested)
    if not names:
        return [{}] * (rows.stop - rows.start)
    row_type: Any = msgspec.defstruct(
        "Row", [(name, Any, None) for name in names], omit_defaults=True, gc=False
    )
    return list(map(row_type, *cells))


def _cells(column: Column, rows: Array) -> list[Any]:
    picked = column.take(rows)
    cells = picked.to_list()
    if column.type is Type.INT and (picked.values[picked.valid] == NO_INT).any():
        raise ChunkscopeError(f"{NO_INT} cannot be written in the text form of a trace")
    if column.type is Type.FLOAT:
        for row in np.flatnonzero(picked.valid & ~np.isfinite(picked.values)):
            value = picked.values[row]
            cells[row] = "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return cells


# Reading


def read(path: Path) -> Trace:
    """Return the trace in a text file.

    A file that was cut (it has fewer events than its header says) gives the events before the cut,
    and a note in its metadata.

    Raises:
        TraceFormatError: The file is damaged, newer, or no trace; with file, line and field.
    """
    with path.open("rb") as file, no_collection():
        n_events, meta = _header(file, str(path))
        events, states = Folder(EVENTS, SENTINELS), Folder(_STATE_SPECS, SENTINELS)
        counts: list[Array] = []
        line, torn = _FIRST_LINE, False
        for block in blocks(file):
            rows, torn = _decoded(block, str(path), line, n_events)
            counts.append(_fold(rows, events, states, str(path), line))
            line += len(rows)
            rows.clear()  # what the next block takes is still in the processor's cache
    per_event = np.concatenate(counts) if counts else np.zeros(0, np.int64)
    event_table = Table.build(EVENTS, events.columns(), len(per_event))
    owner = np.repeat(np.arange(len(per_event)), per_event)
    state_table = Table.build(STATES, {"event": owner, **states.columns()}, len(owner))
    if len(per_event) < n_events or torn:
        event_table, meta = _cut(event_table, meta, n_events)
    elif len(per_event) > n_events:
        raise TraceFormatError(
            f"{len(per_event)} events, and the header says {n_events}", file=str(path), line=1
        )
    return checked_trace(event_table, state_table, meta, str(path), _FIRST_LINE)


def _fold(rows: list[Any], events: Folder, states: Folder, path: str, line: int) -> Array:
    """Fold in the rows of a block and their states; return how many states each has."""
    cells = _by_field(_Event, rows)
    events.add_cells(cells, len(rows))
    nested = cells.get("states", ())
    inside = list(chain.from_iterable(nested))
    cells = _by_field(_State, inside)
    _first_as_bytes(cells, rows, path, line)
    states.add_cells(cells, len(inside))
    return np.fromiter(map(len, nested), np.int64, len(rows))


def _by_field(struct: Any, rows: list[Any]) -> dict[str, Any]:
    """Return the cells of rows by field; nothing for no rows."""
    return dict(zip(struct.__struct_fields__, cells_of(rows), strict=False))


def _first_as_bytes(cells: dict[str, Any], rows: list[Any], path: str, line: int) -> None:
    """Turn the first values of states, which the text has as numbers, into bytes."""
    found = cells.get("first", ())
    if found.count(None) == len(found):
        return
    try:
        cells["first"] = from_numbers(found, cells["dtype"])
    except ValueError:
        for number, row in enumerate(rows):  # find the line
            try:
                from_numbers([s.first for s in row.states], [s.dtype for s in row.states])
            except ValueError as error:
                raise TraceFormatError(
                    str(error), file=path, line=line + number, field="$.states.first"
                ) from None
        raise


def _header(file: BinaryIO, path: str) -> tuple[int, Meta]:
    line = file.readline()
    try:
        version = msgspec.json.decode(line, type=_Version)
        check_version(version.schema_version, path, 1)
        header = msgspec.json.decode(line, type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if not line.endswith(b"\n"):
            raise TraceFormatError("the file is cut within its header", file=path, line=1) from None
        raise _format_error(error, path, 1) from None
    return header.events, meta_from_json(header.meta, path, 1, version.schema_version)


def _decoded(block: bytes, path: str, line: int, n_events: int) -> tuple[list[Any], bool]:
    """Return the events of a block, and whether its last line was torn."""
    try:
        return _EVENT_LINES.decode_lines(block), False
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    rows: list[Any] = []
    lines = block.split(b"\n")
    for number, text in enumerate(lines):
        if not text.strip():
            continue
        try:
            rows.append(_EVENT_LINES.decode(text))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            # Only a file's last line has no line end.
            if number == len(lines) - 1 and line + number < n_events + _FIRST_LINE:
                return rows, True
            raise _format_error(error, path, line + number) from None
    return rows, False


def _cut(events: Table, meta: Meta, n_events: int) -> tuple[Table, Meta]:
    """Return what is left of a cut file: parents past the cut are dropped, and it is said."""
    parent = events["parent"]
    lost = parent.valid & (parent.values >= len(events)) & (parent.values < n_events)
    parent = Column(parent.type, np.where(lost, 0, parent.values), parent.valid & ~lost)
    note = f"the file was cut: {len(events)} of its {n_events} events could be read"
    return events.replace(parent=parent), replace(meta, notes=(*meta.notes, note))


def _format_error(error: Exception, path: str, line: int) -> TraceFormatError:
    if isinstance(error, RecursionError):
        return TraceFormatError("nested too deeply", file=path, line=line)
    message, _, where = str(error).partition(" - at ")
    return TraceFormatError(message, file=path, line=line, field=where.strip("`") or None)
