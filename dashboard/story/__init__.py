"""What happens in one collective call, told independently of how it looks.

    story = tell(trace)
    story.steps[0].phase, story.messages[0].src, story.places[2].cells[0].changes

A Story has the ranks with their cells, the messages between them, and steps and phases. It works
with what a trace has: values, contributors, messages, steps, an end and source lines may each be
missing, and are None then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ...sim.collectives import COLLECTIVES, Collective

if TYPE_CHECKING:
    from ...sim.topology import Topology
    from ...traces.trace import Call, Site, Trace

Values = tuple[float, ...]


class Mark(StrEnum):
    """The sign that a cell carries; each looks the same in every view."""

    EMPTY = "empty"  # nothing in it yet
    OWN = "own"  # this rank's own part alone
    PARTIAL = "partial"  # several parts, not all
    COMPLETE = "complete"  # what the call is to deliver
    PASSED = "passed"  # handed on and of no use here any more
    UNKNOWN = "unknown"  # something, but nobody recorded whose


@dataclass(frozen=True, slots=True)
class Content:
    """What a cell or a message holds.

    Attributes:
        chunk: The chunk; None if not known.
        who: group_ranks whose part is inside; None if not known.
        values: Its numbers; None where they were not recorded.
    """

    chunk: int | None = None
    who: frozenset[int] | None = None
    values: Values | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """One slot's worth of a message: what it carries, and what that does to the slot it meets."""

    src_slot: int
    dst_slot: int
    payload: Content
    before: Content
    after: Content


@dataclass(frozen=True, slots=True)
class Message:
    """A message, or a local copy or reduce (src == dst).

    Attributes:
        src, dst: Places.
        step: Index into the story's steps.
        pieces: What it carries, one a slot.
        reduces: Whether the receiver combines it with its own.
        t_start_ns, t_end_ns: Since the call began; the end is None where none was seen.
        size_bytes: Bytes; None if not known.
        send, recv, reduce: Rows of the trace; None where there is none.
        channel: Channel of the schedule.
    """

    src: int
    dst: int
    step: int
    pieces: tuple[Piece, ...]
    reduces: bool
    t_start_ns: int
    t_end_ns: int | None
    size_bytes: int | None
    send: int | None
    recv: int | None
    reduce: int | None
    channel: int = 0

    @property
    def local(self) -> bool:
        """Whether it stays at its place."""
        return self.src == self.dst


@dataclass(frozen=True, slots=True)
class Change:
    """A cell's new look.

    Attributes:
        message: Index of the message that causes it; None for how things are at the start, or
            with `arrives` for what the call makes of it at its very end.
        arrives: Whether it happens when that message arrives; else when it departs.
        mark: The cell's sign from then on.
        content: What it holds from then on.
    """

    message: int | None
    arrives: bool
    mark: Mark
    content: Content


@dataclass(frozen=True, slots=True)
class Cell:
    """A slot of a place and what becomes of it; the first change is how it starts."""

    place: int
    slot: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A rank (or helper) in the call.

    Attributes:
        place: Its group_rank, or place of the schedule.
        rank: Its global rank; None for a helper.
        cells: Its slots in order.
        row: Its collective row in the trace; None if it never called.
        site: The caller's line; None if not recorded.
        inputs, outputs: Its tensors' values before and after the call, the first ones where not
            all were kept; None if not recorded.
        n_elements: Elements that it holds; None if not known.
        t_start_ns, t_end_ns: When it called and returned, since the call began; None if not seen.
        status: As in the trace.
    """

    place: int
    rank: int | None
    cells: tuple[Cell, ...] = ()
    row: int | None = None
    site: Site | None = None
    inputs: Values | None = None
    outputs: Values | None = None
    n_elements: int | None = None
    t_start_ns: int | None = None
    t_end_ns: int | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """A step of the story.

    Attributes:
        number: The schedule's step.
        phase: Index into the story's phases; None where there is only one.
        messages: Indices of its messages.
        reduces: Whether what arrives is combined.
        t_start_ns: When its first message starts, never before the step before.
        told: What happens in it, in the words of its algorithm; None where it has none.
    """

    number: int
    phase: int | None
    messages: tuple[int, ...]
    reduces: bool
    t_start_ns: int
    told: str | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """One collective call.

    Attributes:
        collective, algorithm, op, root: As in the trace; root is a group_rank.
        provenance: simulated, executed, called, wire or imported.
        backend: Such as gloo; empty if not known.
        places: The ranks in group order, then helpers.
        messages: In order of their steps.
        steps: In order.
        phases: Names; empty where there is only one.
        duration_ns: Length of the call, or up to the last thing seen where it has no end.
        finished: Whether every rank's end was seen.
        size_bytes: S of nccl-tests; None if not known.
        dtype: Torch's name; None if not known.
        calls: Every call of the trace.
        call: Index of this one.
        topology: Where the ranks are; None for a logical picture.
        hosts: Name of each place's host; empty where they are not known.
        model: Parameters of the simulation.
        notes: What a reader should know.
    """

    collective: str
    algorithm: str | None
    op: str | None
    root: int | None
    provenance: str
    backend: str
    places: tuple[Place, ...]
    messages: tuple[Message, ...]
    steps: tuple[Beat, ...]
    phases: tuple[str, ...]
    duration_ns: int
    finished: bool
    size_bytes: int | None = None
    dtype: str | None = None
    calls: tuple[Call, ...] = ()
    call: int = 0
    topology: Topology | None = None
    hosts: tuple[str, ...] = ()
    model: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Number of ranks."""
        return sum(place.rank is not None for place in self.places)

    @property
    def kind(self) -> Collective | None:
        """What the collective must do; None for one that we do not know."""
        return COLLECTIVES.get(self.collective)

    @property
    def reduces(self) -> bool:
        """Whether the collective combines the ranks' data."""
        return self.kind is not None and self.kind.reduces

    @property
    def textbook(self) -> bool:
        """Whether nothing is known of the messages inside, so that only the call can be drawn."""
        return not self.messages and self.provenance not in ("simulated", "executed")

    def links(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs (src, dst) that exchanged messages, in order of first use."""
        pairs = ((m.src, m.dst) for m in self.messages if not m.local)
        return tuple(dict.fromkeys(pairs))


def tell(
    trace: Trace, call: Call | int | None = None, *, topology: Topology | None = None
) -> Story:
    """Return the story of one collective call of a trace.

    Args:
        trace: What happened.
        call: The call, or its place in `trace.calls()`; the first by default.
        topology: Where the ranks are; by default the trace's own.

    Raises:
        ValueError: The trace has no such call.
    """
    from .telling import Telling

    return Telling(trace, call, topology).story()
