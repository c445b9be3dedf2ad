"""The records of a recording file, as a reader takes them apart.

Writers form their lines by hand, for speed; this is what a line may hold. Unknown fields are
skipped, unknown records refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from ...schema import EVENTS, ColumnSpec, Kind, Provenance, Role, Status, Type, When

Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Odd = Literal["NaN", "Infinity", "-Infinity"]

# What a begin, end or row record says itself; everything else stands in its call record.
OF_ROW = frozenset(
    "file seq parent batch attempt t_issue_ns t_start_ns t_end_ns status error host".split()  # noqa: SIM905
)
OF_CALL: tuple[ColumnSpec, ...] = tuple(spec for spec in EVENTS if spec.name not in OF_ROW)
CELL_NAMES = tuple(spec.name for spec in OF_CALL)

_TYPES: dict[Type, Any] = {
    Type.INT: Int,
    Type.FLOAT: float,
    Type.BOOL: bool,
    Type.TEXT: str,
    Type.INTS: list[Int],
    Type.BYTES: bytes,
}
_WORDS = {"kind": Kind, "provenance": Provenance}
_CELLS = [(spec.name, _WORDS.get(spec.name, _TYPES[spec.type]) | None, None) for spec in OF_CALL]

if TYPE_CHECKING:
    Cells = Any
    Call = Any
else:
    Cells = msgspec.defstruct("Cells", _CELLS, omit_defaults=True, gc=False)
    Call = msgspec.defstruct(
        "Call", [("n", Count), *_CELLS], tag_field="r", tag="call", omit_defaults=True, gc=False
    )


class Record(msgspec.Struct, tag_field="r", omit_defaults=True, gc=False):
    """Any record; the field `r` says which."""


class Header(Record, tag="header", gc=False):
    """First record of a file: who writes.

    In a `counted` file nothing is left for the reader to count: every cell is there, `parent` and
    a state's `seq` are rows of the whole trace. A later segment of a process has its number, the
    `file` that all its segments are, the first `seq` that is its own, and the `calls` before it.
    """

    schema_version: int
    run: str = ""
    host: str = ""
    clock: str = ""
    pid: Int = 0
    attempt: Int = 0
    versions: dict[str, str] = {}
    monotonic_ns: Int = 0
    wall_ns: Int = 0
    counted: bool = False
    file: str | None = None
    part: Int | None = None
    segment: Count | None = None
    seq: Count = 0
    calls: Count = 0
    options: dict[str, Any] = {}
    launcher: bool = False
    tap: bool = False


class Group(Record, tag="group", gc=False):
    """A process group; a second one of the same number replaces the first.

    Without `ordinal` it is the first, second ... one of its ranks in the file, by number.
    """

    n: Count
    ranks: list[Int] | None = None
    ordinal: Count | None = None
    label: str = ""
    backend: str = ""


class Site(Record, tag="site", gc=False):
    """A line of the user's program."""

    n: Count
    file: str
    line: Int
    function: str = ""
    source: list[str] = []
    first_line: Int = 0
    stack: list[str] = []


class Tensor(Record, tag="tensor", gc=False):
    """How a tensor lies in memory."""

    n: Count
    dtype: str | None = None
    shape: list[Int] | None = None
    strides: list[Int] | None = None
    storage: Int | None = None
    offset: Int | None = None


class Schedule(Record, tag="schedule", gc=False):
    """A schedule in text form."""

    n: Count
    text: str


class Value(msgspec.Struct, omit_defaults=True, gc=False):
    """What a tensor held: all bytes (here, or in the `.tensors` file), or what was kept of them."""

    data: bytes | None = None
    at: Count | None = None
    size: Count | None = None
    digest: Int | None = None
    digest_of: str | None = None
    min: float | Odd | None = None
    max: float | Odd | None = None
    mean: float | Odd | None = None
    nan: Int | None = None
    first: bytes | None = None
    contributors: list[Int] | None = None


class State(msgspec.Struct, array_like=True, gc=False):
    """One state: when, role, index, number of the tensor record, value."""

    when: When | None
    role: Role | None
    index: Int | None
    tensor: Count | None
    value: bytes | Value | None = None


class Begin(Record, tag="begin", gc=False):
    """An event begins: `t` is its t_issue_ns.

    In a recording that leaves calls out, it says which call of its group or message it is.
    """

    seq: Count
    call: Count
    t: Int
    parent: Count | None = None
    batch: Count | None = None
    coll_seq: Count | None = None
    message: Count | None = None
    s: list[State] = []


class End(Record, tag="end", gc=False):
    """An event ended: `t` is its t_end_ns, `start` its t_start_ns."""

    seq: Count
    t: Int
    start: Int | None = None
    status: Status = Status.OK
    error: str | None = None
    set: Cells | None = None
    s: list[State] = []


class Row(Record, tag="row", gc=False):
    """An event that is over, in one record."""

    call: Count
    seq: Int | None = None
    parent: Count | None = None
    batch: Int | None = None
    attempt: Int | None = None
    host: str | None = None
    issue: Int | None = None
    start: Int | None = None
    end: Int | None = None
    status: Status | None = Status.OK
    error: str | None = None
    s: list[State] = []


class Message(Record, tag="message", gc=False):
    """A message inside native gloo, as a tap saw it.

    src and dst are group ranks. Times: `send` and `recv`, when the two sides said that they were
    ready; `start` and `end`, the first and the last byte of the payload.
    """

    seq: Count
    group: Count
    src: Count
    dst: Count
    slot: Count
    size: Count = msgspec.field(name="bytes")
    attempt: Int = 0
    send: Int | None = None
    recv: Int | None = None
    start: Int | None = None
    end: Int | None = None
    value: bytes | Value | None = None


class StateRecord(Record, tag="state", gc=False):
    """More states of an event."""

    seq: Count
    s: list[State]


class Note(Record, tag="note", gc=False):
    """What a reader of the trace should know."""

    text: str


class Dropped(Record, tag="dropped", gc=False):
    """So many records were lost here."""

    records: Count


class Exit(Record, tag="exit", gc=False):
    """How a process ended, as its launcher saw it."""

    pid: Int
    rank: Int | None = None
    code: Int | None = None
    signal: Int | None = None


class ClockRecord(Record, tag="clock", gc=False):
    """What to add to a clock's time `t` to get another's: between `low` and `high` ns."""

    t: Int
    clock: str
    to: str
    low: Int
    high: Int


class Close(Record, tag="close", gc=False):
    """The process ended its recording in order."""

    t: Int


ANY = (
    Header
    | Group
    | Site
    | Tensor
    | Schedule
    | Call
    | Begin
    | End
    | Row
    | StateRecord
    | Message
    | Note
    | Dropped
    | Exit
    | ClockRecord
    | Close
)
