"""The Parquet form of a trace: one table of events, each with its list of states.

Columns have schema order and types; metadata is JSON under the key `chunkscope` of the file's own
metadata. It is written from columns and read into columns, without an object a row, and pages carry
checksums. Anything that reads Parquet reads it:

    pandas.read_parquet("run.parquet").query("kind == 'send'")[["rank", "peer", "size_bytes"]]
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np

from ..errors import MissingExtra, TraceFormatError
from .atomic import replacing
from .columns import Array, Column, Mask, Table, lists
from .metadata import meta_from_json, meta_to_json
from .schema import EVENTS, STATES, ColumnSpec, Type
from .trace import Trace
from .validate import check_version, checked_trace

_KEY = b"chunkscope"
_INSIDE = "states.list.element."
_GROUP_ROWS = 1 << 18
_GROUP_BYTES = 1 << 28
_STATE_SPECS = STATES[1:]  # without `event`, which the row itself says


class _Header(msgspec.Struct):
    schema_version: Any = None
    meta: dict[str, Any] = {}
    empty: list[str] = []  # columns that hold nulls alone: they need not be read


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a file that starts with `head` is of this form."""
    return head.startswith(b"PAR1")


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("Parquet files", "parquet", "pyarrow") from None
    return pyarrow, pyarrow.parquet


# Writing


def write(trace: Trace, path: Path) -> None:
    """Write a trace as Parquet, compressed with zstd.

    Raises:
        ChunkscopeError: The file cannot be written.
        MissingExtra: pyarrow is not installed.
    """
    pa, pq = _pyarrow()
    arrays = [_to_arrow(pa, trace.events[spec.name]) for spec in EVENTS]
    inner = [_to_arrow(pa, trace.states[spec.name]) for spec in _STATE_SPECS]
    structs = pa.StructArray.from_arrays(inner, [spec.name for spec in _STATE_SPECS])
    ends = np.searchsorted(trace.states["event"].values, np.arange(len(trace) + 1))
    nested = pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), structs)
    names = [spec.name for spec in EVENTS]
    header = {
        "schema_version": trace.meta.schema_version,
        "meta": meta_to_json(trace.meta),
        "empty": _empty(trace),
    }
    table = pa.table([*arrays, nested], [*names, "states"]).replace_schema_metadata(
        {_KEY: msgspec.json.encode(header)}
    )
    texts = [spec.name for spec in EVENTS if spec.type is Type.TEXT]
    texts += [_INSIDE + s.name for s in _STATE_SPECS if s.type is Type.TEXT]
    with (
        replacing(path) as temp,
        pq.ParquetWriter(
            temp,
            table.schema,
            compression="zstd",
            use_dictionary=texts,
            write_statistics=False,
            write_page_checksum=True,
        ) as writer,
    ):
        for start, stop in itertools.pairwise(_row_groups(trace, ends)):
            writer.write_table(table[start:stop], row_group_size=max(stop - start, 1))


def _empty(trace: Trace) -> list[str]:
    """Return the paths of columns that hold nulls alone; `when` stays, to count the states by."""
    names = [spec.name for spec in EVENTS if not trace.events[spec.name].valid.any()]
    inner = [s.name for s in _STATE_SPECS[1:] if not trace.states[s.name].valid.any()]
    return [*names, *(_INSIDE + name for name in inner)]


def _row_groups(trace: Trace, ends: Array) -> list[int]:
    """Return where groups of rows start and end: so many bytes in one that any reader takes it."""
    kept = np.zeros(len(trace.states) + 1, np.int64)
    np.cumsum(trace.states["data"].values, out=kept[1:])
    full = kept[ends] // _GROUP_BYTES + np.arange(len(ends)) // _GROUP_ROWS
    cuts = np.flatnonzero(np.diff(full)) + 1
    return [0, *cuts[(cuts > 0) & (cuts < len(trace))].tolist(), len(trace)]


def _to_arrow(pa: ModuleType, column: Column) -> Any:
    if column.type is Type.TEXT:
        codes = pa.array(np.ascontiguousarray(column.values), mask=~column.valid)
        texts = pa.array(list(column.texts), pa.string())
        return pa.DictionaryArray.from_arrays(codes, texts)
    if column.type not in (Type.INTS, Type.BYTES):
        return pa.array(np.ascontiguousarray(column.values), mask=~column.valid)
    starts, flat = _packed(column)
    bits = pa.array(column.valid).buffers()[1]
    # Offsets of 64 bits: the bytes of a long run pass 2 GiB.
    offsets = pa.py_buffer(starts)
    n = len(column)
    if column.type is Type.BYTES:
        buffers = [bits, offsets, pa.py_buffer(flat)]
        return pa.Array.from_buffers(pa.large_binary(), n, buffers)
    items = pa.array(flat)
    return pa.Array.from_buffers(pa.large_list(pa.int64()), n, [bits, offsets], children=[items])


def _packed(column: Column) -> tuple[Array, Array]:
    """Return the n + 1 offsets and the items of a list column, without gaps."""
    ends = np.cumsum(column.values, dtype=np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), ends])
    assert column.flat is not None
    assert column.starts is not None
    filled = column.values > 0
    if not np.array_equal(column.starts[filled], offsets[:-1][filled]):
        column = column.take(np.arange(len(column)))
    assert column.flat is not None
    return offsets, np.ascontiguousarray(column.flat[: int(offsets[-1])])


# Reading


def read(path: Path) -> Trace:
    """Return the trace in a Parquet file.

    Raises:
        TraceFormatError: The file is damaged, newer, or holds no trace.
        MissingExtra: pyarrow is not installed.
    """
    pa, pq = _pyarrow()
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return _read(pa, file, str(path))
    except (pa.ArrowException, OSError, MemoryError) as error:
        # Arrow's messages go on for lines; the first says what is wrong.
        message = (str(error) or "it does not fit into memory").splitlines()[0]
        raise TraceFormatError(f"damaged Parquet file: {message}", file=str(path)) from None


def _read(pa: ModuleType, file: Any, path: str) -> Trace:
    schema = file.schema_arrow
    header = _header(schema.metadata or {}, path)
    known = {spec.name for spec in EVENTS} | {"states"}
    for name in schema.names:
        if name not in known:
            raise TraceFormatError("unknown column", file=path, field=f"$.{name}")
    meta = meta_from_json(header.meta, path, None, header.schema_version)
    # Arrow cannot read nested columns of several row groups at once.
    paths = [file.schema.column(k).path for k in range(len(file.schema))]
    empty = {*header.empty, *(f"{name}.list.element" for name in header.empty)}
    wanted = [path for path in paths if path not in empty]
    groups = [file.read_row_group(k, columns=wanted) for k in range(file.num_row_groups)]
    table = pa.concat_tables(groups) if groups else schema.empty_table()
    n = table.num_rows
    events = {name: table[name].chunks for name in table.column_names if name != "states"}
    event_table = Table.build(EVENTS, _from_arrow(pa, EVENTS, events, path, "$"), n)
    owner, states = _states(pa, table, path)
    columns = _from_arrow(pa, _STATE_SPECS, states, path, "$.states")
    state_table = Table.build(STATES, {"event": owner, **columns}, len(owner))
    return checked_trace(event_table, state_table, meta, path)


def _header(metadata: dict[bytes, bytes], path: str) -> _Header:
    if _KEY not in metadata:
        raise TraceFormatError(
            "a Parquet file, but no trace: it lacks the metadata key 'chunkscope'", file=path
        )
    try:
        header = msgspec.json.decode(metadata[_KEY], type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceFormatError(str(error), file=path, field="metadata key 'chunkscope'") from None
    check_version(header.schema_version, path)
    return header


def _states(pa: ModuleType, table: Any, path: str) -> tuple[Array, dict[str, list[Any]]]:
    """Return the event of each state, and the chunks of the states' columns by name."""
    if "states" not in table.column_names:
        return np.zeros(0, np.int64), {}
    kind = table.schema.field("states").type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(
        kind.value_type
    ):
        raise TraceFormatError(f"found {kind}, expected a list", file=path, field="$.states")
    counts: list[Array] = []
    columns: dict[str, list[Any]] = {field.name: [] for field in kind.value_type}
    unknown = sorted(set(columns) - {spec.name for spec in _STATE_SPECS})
    if unknown:
        raise TraceFormatError("unknown column", file=path, field=f"$.states.{unknown[0]}")
    for chunk in table["states"].chunks:
        counts.append(np.diff(chunk.offsets.to_numpy()) * chunk.is_valid().to_numpy(False))
        structs = chunk.flatten()  # leaves out what lies under nulls
        if structs.null_count:
            raise TraceFormatError("found a null", file=path, field="$.states")
        for name in columns:
            columns[name].append(structs.field(name))
    owner = np.repeat(np.arange(table.num_rows), np.concatenate([np.zeros(0, np.int64), *counts]))
    return owner, columns


def _from_arrow(
    pa: ModuleType,
    specs: Sequence[ColumnSpec],
    chunks: dict[str, list[Any]],
    path: str,
    where: str,
) -> dict[str, Column]:
    """Return columns by name from the chunks of arrow arrays by name."""
    columns = {}
    for spec in specs:
        parts = chunks.get(spec.name)
        if not parts:
            continue
        try:
            columns[spec.name] = _column(pa, spec.type, parts)
        except (pa.ArrowException, TypeError, ValueError):
            message = f"found {parts[0].type}, expected {spec.type}"
            raise TraceFormatError(message, file=path, field=f"{where}.{spec.name}") from None
    return columns


def _column(pa: ModuleType, type: Type, parts: list[Any]) -> Column:
    if all(part.null_count == len(part) for part in parts):
        return Column.build(type, None, sum(map(len, parts)))
    valid = np.concatenate([part.is_valid().to_numpy(zero_copy_only=False) for part in parts])
    if type is Type.TEXT:
        return _text_column(pa, parts, valid)
    if type is Type.BYTES:
        cast = [part.cast(pa.large_binary()) for part in parts]
        return _list_column(type, cast, valid, [_binary_items(part) for part in cast])
    if type is Type.INTS:
        cast = [part.cast(pa.large_list(pa.int64())) for part in parts]
        items = [_no_nulls(part.flatten()).to_numpy() for part in cast]
        return _list_column(type, cast, valid, items)
    kinds = {Type.INT: pa.int64(), Type.FLOAT: pa.float64(), Type.BOOL: pa.bool_()}
    filled = [
        part.cast(kinds[type]).fill_null(0 if type is not Type.BOOL else False) for part in parts
    ]
    return Column(type, np.concatenate([p.to_numpy(zero_copy_only=False) for p in filled]), valid)


def _text_column(pa: ModuleType, parts: list[Any], valid: Mask) -> Column:
    index: dict[str, int] = {}
    codes = []
    for part in parts:
        coded = part if pa.types.is_dictionary(part.type) else part.dictionary_encode()
        texts = coded.dictionary.cast(pa.string()).to_pylist()
        renumber = np.array([index.setdefault(text, len(index)) for text in texts] or [0], np.int32)
        codes.append(renumber[coded.indices.fill_null(0).to_numpy()])
    return Column(Type.TEXT, np.where(valid, np.concatenate(codes), 0), valid, tuple(index))


def _list_column(type: Type, parts: list[Any], valid: Mask, items: list[Array]) -> Column:
    # A null may still span bytes: its length counts as 0, and `items` leaves them out.
    offsets = [np.frombuffer(part.buffers()[1], np.int64) for part in parts]
    lengths = [
        np.diff(ends[part.offset : part.offset + len(part) + 1])
        for part, ends in zip(parts, offsets, strict=True)
    ]
    return lists(type, np.where(valid, np.concatenate(lengths), 0), valid, np.concatenate(items))


def _binary_items(part: Any) -> Array:
    """Return the bytes of all cells of a large_binary array, one after the other."""
    offsets = np.frombuffer(part.buffers()[1], np.int64)[part.offset : part.offset + len(part) + 1]
    data = part.buffers()[2]
    items: Array = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    if part.null_count and (np.diff(offsets)[~part.is_valid().to_numpy(False)] > 0).any():
        keep = np.repeat(part.is_valid().to_numpy(False), np.diff(offsets))
        return np.asarray(items[offsets[0] : offsets[-1]][keep])
    return np.asarray(items[offsets[0] : offsets[-1]])


def _no_nulls(items: Any) -> Any:
    if items.null_count:
        raise ValueError("a list holds a null")
    return items
