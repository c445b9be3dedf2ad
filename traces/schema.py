"""The columns of a trace: name, type, unit, meaning, and who writes them.

This module uses the standard library alone, because the recorder imports it inside other people's
programs. `traces.trace` builds its tables from the two lists, and every file form writes its
columns in their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SCHEMA_VERSION = 1


class Kind(StrEnum):
    """What an event is."""

    COLLECTIVE = "collective"  # one rank's part of one collective call
    SEND = "send"
    RECV = "recv"
    REDUCE = "reduce"  # what arrived (or lies in another slot) is combined into a slot
    COPY = "copy"  # from slot to slot of one place
    WAIT = "wait"  # wait() on the operation in `parent`
    GROUP = "group"  # init_process_group, new_group, destroy_process_group


class Provenance(StrEnum):
    """How an event is known."""

    SIMULATED = "simulated"  # computed by the step model
    EXECUTED = "executed"  # our schedule, run for real over send/recv
    CALLED = "called"  # a call of the user's program, as torch saw it
    WIRE = "wire"  # a message inside native gloo, read from its TCP stream
    IMPORTED = "imported"  # read from a foreign format


class Status(StrEnum):
    """How an event ended."""

    OK = "ok"
    ERROR = "error"
    BEGUN = "begun"  # no end was seen
    UNOBSERVED = "unobserved"  # asynchronous and never waited for


class When(StrEnum):
    """Whether a state was taken before or after its event."""

    BEFORE = "before"
    AFTER = "after"


class Role(StrEnum):
    """What a state shows."""

    INPUT = "input"  # tensor `index` of a call's inputs
    OUTPUT = "output"  # tensor `index` of a call's outputs
    SLOT = "slot"  # what slot `index` of the place held
    PAYLOAD = "payload"  # what the message carried


class Type(StrEnum):
    """Type of a column; every cell may be null as well."""

    INT = "int"  # int64
    FLOAT = "float"  # float64
    BOOL = "bool"
    TEXT = "text"
    INTS = "ints"  # list of int64
    BYTES = "bytes"


ALL = frozenset(Provenance)
MESSAGES = frozenset({Provenance.SIMULATED, Provenance.EXECUTED, Provenance.WIRE})
REAL = ALL - {Provenance.SIMULATED}


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column: its name, type, meaning (unit included) and the provenances that carry it."""

    name: str
    type: Type
    doc: str
    provenances: frozenset[Provenance] = ALL


def _column(
    name: str, type: Type, doc: str, provenances: frozenset[Provenance] = ALL
) -> ColumnSpec:
    return ColumnSpec(name, type, doc, provenances)


EVENTS: tuple[ColumnSpec, ...] = (
    _column("file", Type.TEXT, "name of the recording file; with `seq` the key of the row"),
    _column("seq", Type.INT, "number of the row in its file, from 0"),
    _column("parent", Type.INT, "row of this trace that the event happened inside of"),
    _column("batch", Type.INT, "seq of the first row that the same call issued", REAL),
    _column("attempt", Type.INT, "restart of the job, from 0", REAL),
    _column("place", Type.INT, "place in the schedule: group_rank, or a helper above them"),
    _column("rank", Type.INT, "global rank"),
    _column("group", Type.INT, "index into meta.groups"),
    _column("group_rank", Type.INT, "rank within the group"),
    _column("coll_seq", Type.INT, "k-th collective of the group, from 0; null outside of one"),
    _column("schedule", Type.INT, "index into meta.schedules, on collective rows", MESSAGES),
    _column("kind", Type.TEXT, "see Kind"),
    _column("provenance", Type.TEXT, "see Provenance"),
    _column("api", Type.TEXT, "function that the user called", REAL),
    _column("collective", Type.TEXT, "all_reduce, broadcast, ... as torch spells them"),
    _column("algorithm", Type.TEXT, "name of the schedule's algorithm", MESSAGES),
    _column("reduce_op", Type.TEXT, "SUM, AVG, PRODUCT, MIN, MAX, ..."),
    _column("root", Type.INT, "group_rank of the root"),
    _column("tag", Type.INT, "tag of a send or recv; wire: gloo's slot"),
    _column("is_async", Type.BOOL, "whether the call returned before its end", REAL),
    _column("splits", Type.INTS, "uneven sizes, in elements: inputs, then outputs"),
    _column("step", Type.INT, "step of the schedule, from 0", MESSAGES),
    _column("channel", Type.INT, "channel of the schedule, from 0", MESSAGES),
    _column("peer", Type.INT, "global rank at the other end"),
    _column("peer_group_rank", Type.INT, "its group_rank, or the place of a helper"),
    _column("message", Type.INT, "k-th message from src to dst on this channel, from 0"),
    _column("part", Type.INT, "row within a message of several rows, from 0", MESSAGES),
    _column("reduces", Type.BOOL, "whether the receiver combines it with its own", MESSAGES),
    _column("slot", Type.INT, "first slot read (send) or written (recv, reduce, copy)", MESSAGES),
    _column("n_slots", Type.INT, "number of slots", MESSAGES),
    _column("offset_bytes", Type.INT, "where it lies in the input or output; null in scratch"),
    _column("size_bytes", Type.INT, "bytes moved or combined"),
    _column("dtype", Type.TEXT, "torch's name without the prefix, such as float32"),
    _column("t_issue_ns", Type.INT, "asked for"),
    _column("t_start_ns", Type.INT, "first byte leaves, or work begins"),
    _column("t_end_ns", Type.INT, "last byte is there, or work ends"),
    _column("status", Type.TEXT, "see Status"),
    _column("error", Type.TEXT, "type and message of the error", REAL),
    _column("site", Type.INT, "index into meta.sites: the user's line", REAL),
    _column("thread", Type.TEXT, "name of the thread", REAL),
    _column("host", Type.TEXT, "name of the host", REAL),
)

STATES: tuple[ColumnSpec, ...] = (
    _column("event", Type.INT, "row of the events table"),
    _column("when", Type.TEXT, "see When"),
    _column("role", Type.TEXT, "see Role"),
    _column("index", Type.INT, "tensor in the call's list, or slot of the place"),
    _column("dtype", Type.TEXT, "torch's name without the prefix"),
    _column("shape", Type.INTS, "elements a dimension"),
    _column("strides", Type.INTS, "elements a dimension; null where contiguous"),
    _column("storage", Type.INT, "number of the storage in its process, equal for aliases", REAL),
    _column("offset", Type.INT, "elements from the start of the storage", REAL),
    _column("digest", Type.INT, "zlib.crc32 of the contiguous little-endian bytes"),
    _column("digest_of", Type.TEXT, "all or sample: what digest and statistics were taken of"),
    _column("min", Type.FLOAT, "smallest value that is no NaN"),
    _column("max", Type.FLOAT, "largest value that is no NaN"),
    _column("mean", Type.FLOAT, "mean of the values that are no NaN"),
    _column("nan", Type.INT, "count of NaN"),
    _column("first", Type.BYTES, "first values, as contiguous little-endian bytes"),
    _column("contributors", Type.INTS, "group_ranks whose input is inside, once a contribution"),
    _column("data", Type.BYTES, "all values, as contiguous little-endian bytes"),
)

# Bytes an element, by torch's name without the prefix.
DTYPES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}

# What a state keeps of a tensor: all bytes up to FULL_BYTES; above, digest and statistics of every
# k-th value, with SAMPLE_VALUES of them at most, and the first FIRST_VALUES.
FULL_BYTES = 64 * 1024
SAMPLE_VALUES = 1024
FIRST_VALUES = 16
