"""A Trace: what happened, as two tables and metadata.

trace = chunkscope.read("run.parquet")
sends = trace.where(kind="send", rank=2)        # row numbers
trace.events["size_bytes"][sends[0]]
for call in trace.calls():
    print(call.collective, call.coll_seq, trace.meta.groups[call.group].ranks)
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .columns import Column, Rows, Table
from .schema import DTYPES, EVENTS, SCHEMA_VERSION, STATES, Kind

JSON = str | int | float | bool | None | list[Any] | dict[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: its global ranks, in group order, and which of the same ranks it is."""

    ranks: tuple[int, ...]
    ordinal: int = 0
    label: str = ""
    backend: str = ""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that wrote a recording file, and how it ended."""

    file: str
    host: str
    pid: int
    rank: int | None = None
    attempt: int = 0
    closed: bool = True
    exit_code: int | None = None
    signal: int | None = None
    last_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Clock:
    """What was added to a file's times to get rank 0's clock, and how wrong that may be.

    Clocks drift apart: `offset_ns` is that of the file's begin, `error_ns` holds for all its times.
    """

    file: str
    offset_ns: int = 0
    error_ns: int = 0


@dataclass(frozen=True, slots=True)
class Site:
    """A line of the user's program, with the lines around it where they could be read.

    Attributes:
        file: Path of the source file.
        line: Line number, from 1.
        function: Function that the line is in.
        source: Lines around it, the first of which has number `first_line`.
        first_line: Number of the first line in `source`.
        stack: Outer frames, innermost first, as "file:line function".
    """

    file: str
    line: int
    function: str = ""
    source: tuple[str, ...] = ()
    first_line: int = 0
    stack: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Meta:
    """What belongs to the trace as a whole.

    Attributes:
        schema_version: Version of the columns.
        versions: Programs and their versions, such as {"chunkscope": "0.1.0", "torch": "2.13.0"}.
        world_size: Ranks of the job; None if not known.
        groups: Process groups; the events' `group` counts into it.
        processes: The recording files' processes.
        clocks: Offsets of the recording files' clocks.
        sites: Lines of the user's program; the events' `site` counts into it.
        schedules: Schedules in text form; the events' `schedule` counts into it.
        topology: Topology as JSON text, as `sim.topology` reads it; None for none.
        model: Policy, parameters and seed of a simulation.
        notes: What a reader should know: dropped data, damaged lines, derived columns.
    """

    schema_version: int = SCHEMA_VERSION
    versions: dict[str, str] = field(default_factory=dict)
    world_size: int | None = None
    groups: tuple[Group, ...] = ()
    processes: tuple[Process, ...] = ()
    clocks: tuple[Clock, ...] = ()
    sites: tuple[Site, ...] = ()
    schedules: tuple[str, ...] = ()
    topology: str | None = None
    model: dict[str, JSON] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Call(NamedTuple):
    """One collective call of a group, or what went on outside of one (coll_seq None)."""

    group: int
    coll_seq: int | None
    collective: str
    attempt: int


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Events and states of a run, real or simulated.

    Attributes:
        events: One row an event, columns of `schema.EVENTS`, ordered by (file, seq).
        states: One row a tensor state, columns of `schema.STATES`, ordered by event.
        meta: What belongs to the whole.
    """

    events: Table
    states: Table
    meta: Meta

    def __post_init__(self) -> None:
        for table, name, limit in (
            (self.events, "parent", len(self.events)),
            (self.states, "event", len(self.events)),
            (self.events, "group", len(self.meta.groups)),
            (self.events, "site", len(self.meta.sites)),
            (self.events, "schedule", len(self.meta.schedules)),
        ):
            column = table[name]
            bad = column.valid & ((column.values < 0) | (column.values >= limit))
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                raise ValueError(f"row {row}: {name} is {column[row]}, expected 0 to {limit - 1}")

        owner = self.states["event"]
        if not owner.valid.all() or (np.diff(owner.values) < 0).any():
            raise ValueError("states lie in another order than their events, or without one")

    def __len__(self) -> int:
        return len(self.events)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        return (
            self.meta == other.meta
            and self.events.equals(other.events)
            and self.states.equals(other.states)
        )

    __hash__ = None  # type: ignore[assignment]  # equal by content, and too large to hash

    def where(self, **cells: Any) -> Rows:
        """Return the numbers of the event rows whose cells equal the values given.

        Args:
            cells: Column name and value; None asks for null.

        Example:
            >>> Trace.build({"kind": ["send", "recv"], "rank": [0, 1]}).where(kind="recv").tolist()
            [1]
        """
        mask = np.ones(len(self.events), np.bool_)
        for name, value in cells.items():
            mask &= self.events[name].where(value)
        return np.flatnonzero(mask)

    def states_of(self, row: int, **cells: Any) -> Rows:
        """Return the numbers of the state rows of one event, narrowed as in `where`."""
        low, high = np.searchsorted(self.states["event"].values, (row, row + 1))
        rows = np.arange(low, high)
        for name, value in cells.items():
            rows = rows[self.states[name].take(rows).where(value)]
        return rows

    def calls(self) -> list[Call]:
        """Return the collective calls in order of their first issue."""
        first: dict[Call, int] = {}
        for row in self.where(kind=Kind.COLLECTIVE):
            call = self.call_of(int(row))
            issued = self.events["t_issue_ns"][row]
            first[call] = min(first.get(call, issued or 0), issued or 0)
        return sorted(first, key=lambda call: (first[call], call.group, call.coll_seq or 0))

    def call_of(self, row: int) -> Call:
        """Return the collective call that an event belongs to."""
        get = self.events
        return Call(
            get["group"][row] or 0,
            get["coll_seq"][row],
            get["collective"][row] or "",
            get["attempt"][row] or 0,
        )

    def values(self, state: int) -> npt.NDArray[Any] | None:
        """Return the numbers of a state in its shape, or its first ones where not all were kept.

        Args:
            state: Row of the states table.

        Returns:
            An array of the state's dtype (bfloat16 and float8 as float32), or None where nothing
            was kept. It has the state's shape if all bytes were kept, else one dimension.
        """
        raw = self.states["data"][state]
        whole = raw is not None
        if raw is None:
            raw = self.states["first"][state]
        if raw is None:
            return None
        array = decode(raw, self.states["dtype"][state])
        shape = self.states["shape"][state]
        return array.reshape(shape) if whole and shape is not None else array

    def digest(self, state: int) -> int | None:
        """Return the digest of a state, computed where its bytes were kept, else as recorded."""
        raw = self.states["data"][state]
        return self.states["digest"][state] if raw is None else zlib.crc32(raw)

    @staticmethod
    def build(
        events: dict[str, Any], states: dict[str, Any] | None = None, meta: Meta | None = None
    ) -> Trace:
        """Return a trace from cells by column name, sorted by (file, seq).

        Args:
            events: Cells for columns of `schema.EVENTS`; `parent` counts rows as given.
            states: Cells for columns of `schema.STATES`; `event` counts rows as given.
            meta: Metadata; empty by default.

        Raises:
            ValueError: A column is unknown, lengths differ, or a reference points nowhere.
        """
        table = Table.build(EVENTS, events)
        state_table = Table.build(STATES, states or {})
        order = _order(table)
        if order is not None:
            place = np.empty_like(order)
            place[order] = np.arange(len(order))
            table = table.take(order)
            table = table.replace(parent=_renumber(table["parent"], place))
            state_table = state_table.replace(event=_renumber(state_table["event"], place))
        by_event = np.argsort(state_table["event"].values, kind="stable")
        if len(by_event) and (np.diff(by_event) < 0).any():
            state_table = state_table.take(by_event)
        return Trace(table, state_table, meta or Meta())


def _order(events: Table) -> Rows | None:
    """Return the rows in order of (file, seq), or None where they lie so already."""
    file, seq = events["file"], events["seq"]
    names = sorted(file.texts)
    rank = np.array([names.index(text) for text in file.texts] or [0], np.int64)
    order = np.lexsort((seq.values, rank[file.values])).astype(np.int64)
    return None if (np.diff(order) > 0).all() else order


def _renumber(column: Column, place: Rows) -> Column:
    inside = column.valid & (column.values >= 0) & (column.values < len(place))
    values = column.values.copy()
    values[inside] = place[column.values[inside]]
    return Column(column.type, values, column.valid)


def decode(raw: bytes, dtype: str) -> npt.NDArray[Any]:
    """Return the numbers in contiguous little-endian bytes, one dimension.

    Args:
        raw: The bytes.
        dtype: Torch's name without the prefix; bfloat16 and float8 come back as float32.

    Raises:
        ValueError: The dtype is unknown, or the bytes are no multiple of its size.

    Example:
        >>> decode(bytes([0x80, 0x3F]), "bfloat16").tolist()
        [1.0]
    """
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
    if len(raw) % DTYPES[dtype]:
        raise ValueError(f"{len(raw)} bytes are no multiple of {dtype}'s {DTYPES[dtype]}")
    if dtype == "bfloat16":
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    if dtype.startswith("float8"):
        return _FLOAT8[dtype][np.frombuffer(raw, np.uint8)]
    return np.frombuffer(raw, np.dtype(dtype).newbyteorder("<"))


def encode(values: Iterable[Any] | npt.NDArray[Any], dtype: str) -> bytes:
    """Return numbers as contiguous little-endian bytes of a dtype; the reverse of `decode`.

    Raises:
        ValueError: The dtype is unknown, or is a float8, which only `decode` reads.
    """
    array = np.asarray(values)
    if dtype == "bfloat16":
        bits = array.astype("<f4").view(np.uint32)
        # Round to nearest, ties to even, as the hardware does.
        rounded = (bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16
        nan = np.isnan(array.astype(np.float32))
        return np.where(nan, np.uint32(0x7FC0), rounded).astype("<u2").tobytes()
    if dtype not in DTYPES or dtype.startswith("float8"):
        raise ValueError(f"cannot encode dtype {dtype!r}")
    return np.ascontiguousarray(array.astype(np.dtype(dtype).newbyteorder("<"))).tobytes()


def _float8(exponent_bits: int, mantissa_bits: int, bias: int, finite: bool) -> npt.NDArray[Any]:
    """Return the values of all 256 float8 patterns, from the OCP 8-bit floating point formats."""
    values = np.zeros(256, np.float32)
    for pattern in range(256):
        exponent = (pattern >> mantissa_bits) & ((1 << exponent_bits) - 1)
        mantissa = pattern & ((1 << mantissa_bits) - 1)
        fraction = mantissa / (1 << mantissa_bits)
        top = (1 << exponent_bits) - 1
        if finite and exponent == top and mantissa == (1 << mantissa_bits) - 1:
            value = float("nan")
        elif not finite and exponent == top:
            value = float("inf") if mantissa == 0 else float("nan")
        elif exponent == 0:
            value = fraction * 2.0 ** (1 - bias)
        else:
            value = (1 + fraction) * 2.0 ** (exponent - bias)
        values[pattern] = -value if pattern & 0x80 else value
    return values


def _float8_fnuz(exponent_bits: int, mantissa_bits: int, bias: int) -> npt.NDArray[Any]:
    """Return the values of a float8 without infinities, whose only NaN stands in place of -0.

    Source: Noune et al., 8-bit Numerical Formats for Deep Neural Networks, 2022.
    """
    patterns = np.arange(256)
    exponent = (patterns & 0x7F) >> mantissa_bits
    fraction = (patterns & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    scale = 2.0 ** (np.maximum(exponent, 1) - bias)
    values = np.where(exponent == 0, fraction, 1 + fraction) * scale
    signed: npt.NDArray[Any] = np.where(patterns & 0x80, -values, values).astype(np.float32)
    signed[0x80] = np.nan
    return signed


def _float8_e8m0() -> npt.NDArray[Any]:
    """Return the powers of two that an exponent without sign and fraction stands for."""
    values = 2.0 ** (np.arange(256) - 127.0)
    values[255] = np.nan
    return values.astype(np.float32)


_FLOAT8 = {
    "float8_e4m3fn": _float8(4, 3, 7, finite=True),
    "float8_e5m2": _float8(5, 2, 15, finite=False),
    "float8_e4m3fnuz": _float8_fnuz(4, 3, 8),
    "float8_e5m2fnuz": _float8_fnuz(5, 2, 16),
    "float8_e8m0fnu": _float8_e8m0(),
}
