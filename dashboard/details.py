"""What the inspector says about one message, cell or rank: plain data, read out of a trace.

details = message_details(trace, story, {"send": 12, "recv": 40, "chunk": 5})
details.started_ns, details.holdings[2].values
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import TopologyError
from ..sim.routing import Routes
from ..traces.columns import Column
from ..traces.schema import Role, When
from ..traces.trace import Site, Trace
from .story import Message, Place, Story

# Values that are shown of a tensor.
N_VALUES = 4


@dataclass(frozen=True, slots=True)
class Holding:
    """What a slot, message or tensor held.

    Attributes:
        label: Such as Before, Arrives, After, Input 0.
        who: group_ranks whose part is inside; None if not known.
        values: The first numbers; empty where none was recorded.
        more: Whether there are more than those.
        n_elements: Number of elements; None if not known.
        mean, min, max, nan: Statistics; None where neither bytes nor statistics were kept.
        digest: crc32 of the bytes.
        sampled: Whether digest and statistics are of a sample.
        dtype: Torch's name.
    """

    label: str
    who: tuple[int, ...] | None = None
    values: tuple[Any, ...] = ()
    more: bool = False
    n_elements: int | None = None
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    nan: int | None = None
    digest: int | None = None
    sampled: bool = False
    dtype: str | None = None

    @property
    def recorded(self) -> bool:
        """Whether anything of its values is known."""
        return bool(self.values) or self.mean is not None or self.digest is not None


@dataclass(frozen=True, slots=True)
class Earlier:
    """Another message that this one has to do with.

    Attributes:
        key: How the player names it.
        name: Such as "chunk 5 from rank 1".
        start_ns, end_ns: Since the call began.
    """

    key: str
    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class LinkSpeed:
    """How fast a message went, and how fast its path is.

    Attributes:
        speed_Bps: Its bytes over the time from its start to its end.
        link_Bps: Bandwidth of the narrowest link of its path; None without a topology.
        link: Name of the path.
        latency_ns: Latency of the path; None without a topology.
    """

    speed_Bps: float
    link_Bps: float | None = None
    link: str = ""
    latency_ns: float | None = None


@dataclass(frozen=True, slots=True)
class MessageDetails:
    """Everything about a message.

    Attributes:
        src, dst: Its places.
        chunk: Chunk that it carries; None if not known.
        step: Name of its step and phase.
        size_bytes, n_elements, dtype: What it carries; None if not known.
        reduces: Whether the receiver combines it with its own.
        issued_ns, started_ns, ended_ns: Since the call began; None if not seen.
        previous: The message before it on the same link.
        cause: The arrival that it waited for.
        speed: None without an end or bytes.
        slot: First slot that it is written to; None if not known.
        holdings: Before, Arrives and After, those that are known.
        derived: Whether contributors were derived, not recorded.
        site: The caller's line.
        backend: Such as gloo.
        provenance: Of its rows.
        clock_error_ns: How wrong the comparison of its two clocks may be; None if one clock.
        n_parts: Rows that travelled in it.
    """

    src: Place
    dst: Place
    chunk: int | None
    step: str
    size_bytes: int | None
    n_elements: int | None
    dtype: str | None
    reduces: bool
    issued_ns: int | None
    started_ns: int
    ended_ns: int | None
    previous: Earlier | None
    cause: Earlier | None
    speed: LinkSpeed | None
    slot: int | None
    holdings: tuple[Holding, ...]
    derived: bool
    site: Site | None
    backend: str
    provenance: str
    clock_error_ns: int | None
    n_parts: int


def find_message(story: Story, ref: Mapping[str, Any]) -> int | None:
    """Return the index of the message that a film's ref names; None where it names none."""
    rows = {ref.get(name) for name in ("send", "recv", "reduce", "event")} - {None}
    for number, message in enumerate(story.messages):
        if rows & {message.send, message.recv, message.reduce}:
            return number
    return None


def message_details(trace: Trace, story: Story, ref: Mapping[str, Any]) -> MessageDetails | None:
    """Return everything about the message that a film's ref names; None where it names none."""
    number = find_message(story, ref)
    if number is None:
        return None
    message = story.messages[number]
    events = trace.events
    rows = [row for row in (message.send, message.recv, message.reduce) if row is not None]
    beat = story.steps[message.step]
    phase = story.phases[beat.phase] if beat.phase is not None and story.phases else ""
    issued = _first(events["t_issue_ns"], [message.send])
    began = _first(events["t_start_ns"], [message.send])
    # Of the two, the story shows the start; what lies before it is waiting.
    issued_ns = None if issued is None or began is None else message.t_start_ns - (began - issued)
    src, dst = story.places[message.src], story.places[message.dst]
    piece = message.pieces[0] if message.pieces else None
    chunk = piece.payload.chunk if piece else None
    holdings = _holdings(trace, message)
    return MessageDetails(
        src=src,
        dst=dst,
        chunk=chunk if chunk is not None else ref.get("chunk"),
        step=f"Step {message.step + 1} of {len(story.steps)}"
        + (f", {phase.lower()}" if phase else ""),
        size_bytes=message.size_bytes,
        n_elements=next((h.n_elements for h in holdings if h.n_elements is not None), None),
        dtype=_first(events["dtype"], rows) or story.dtype,
        reduces=message.reduces,
        issued_ns=issued_ns if issued_ns is None or issued_ns <= message.t_start_ns else None,
        started_ns=message.t_start_ns,
        ended_ns=message.t_end_ns,
        previous=_previous(story, number),
        cause=_cause(story, number, issued_ns),
        speed=_speed(story, message),
        slot=piece.dst_slot if piece else None,
        holdings=holdings,
        derived=any("derived" in note for note in trace.meta.notes),
        site=_site(trace, rows, src),
        backend=story.backend,
        provenance=_first(events["provenance"], rows) or story.provenance,
        clock_error_ns=_clock_error(trace, rows),
        n_parts=len({trace.events["part"][row] or 0 for row in _same(trace, message)}) or 1,
    )


def place_details(trace: Trace, story: Story, place: int) -> tuple[Holding, ...]:
    """Return a rank's tensors, before the call and after it."""
    row = story.places[place].row
    if row is None:
        return ()
    found = []
    for role, when, name in (
        (Role.INPUT, When.BEFORE, "Input"),
        (Role.OUTPUT, When.AFTER, "Output"),
    ):
        states = trace.states_of(row, when=when, role=role)
        for state in states:
            index = trace.states["index"][state]
            label = name if len(states) == 1 else f"{name} {index}"
            found.append(_holding(trace, int(state), label))
    return tuple(found)


def _same(trace: Trace, message: Message) -> list[int]:
    """Return the send rows that travelled as this message."""
    if message.send is None:
        return []
    events = trace.events
    row = message.send
    names = ("parent", "rank", "channel", "peer", "message", "kind")
    same: list[int] = trace.where(**{name: events[name][row] for name in names}).tolist()
    return same


def _first(column: Column, rows: Iterable[int | None]) -> Any:
    cells = (column[row] for row in rows if row is not None)
    return next((cell for cell in cells if cell is not None), None)


def name_of(story: Story, number: int) -> str:
    """Return how a message is called beside another one."""
    message = story.messages[number]
    chunk = message.pieces[0].payload.chunk if message.pieces else None
    rank = story.places[message.src].rank
    what = f"chunk {chunk}" if chunk is not None else "the message"
    return f"{what} from rank {rank if rank is not None else message.src}"


def _earlier(story: Story, number: int) -> Earlier:
    message = story.messages[number]
    rows = (message.send, message.recv, message.reduce)
    key = next((str(row) for row in rows if row is not None), "")
    end = message.t_end_ns if message.t_end_ns is not None else message.t_start_ns
    return Earlier(key, name_of(story, number), message.t_start_ns, end)


def _previous(story: Story, number: int) -> Earlier | None:
    message = story.messages[number]
    before = [
        k
        for k, other in enumerate(story.messages)
        if (other.src, other.dst) == (message.src, message.dst)
        and other.t_start_ns < message.t_start_ns
    ]
    return _earlier(story, before[-1]) if before else None


def _cause(story: Story, number: int, issued_ns: int | None) -> Earlier | None:
    """Return the arrival of what this message carries, if the message had to wait for it."""
    message = story.messages[number]
    slots = {piece.src_slot for piece in message.pieces}
    arrivals = [
        k
        for k, other in enumerate(story.messages)
        if other.dst == message.src
        and k != number
        and other.step < message.step
        and slots & {piece.dst_slot for piece in other.pieces}
    ]
    if not arrivals:
        return None
    last = max(arrivals, key=lambda k: story.messages[k].step)
    found = _earlier(story, last)
    waited = issued_ns is None or found.end_ns > issued_ns
    return found if waited else None


def _speed(story: Story, message: Message) -> LinkSpeed | None:
    if message.t_end_ns is None or not message.size_bytes or message.local:
        return None
    took_ns = message.t_end_ns - message.t_start_ns
    if took_ns <= 0:
        return None
    speed_Bps = message.size_bytes * 1e9 / took_ns
    topology = story.topology
    if topology is None or max(message.src, message.dst) >= topology.n_ranks:
        return LinkSpeed(speed_Bps)
    try:
        links = Routes(topology).path(message.src, message.dst)
    except TopologyError:
        return LinkSpeed(speed_Bps)
    if not links:
        return LinkSpeed(speed_Bps)
    narrow = min(links, key=lambda link: link.bandwidth_Bps)
    latency = sum(link.latency_ns for link in links)
    name = "link" if len(links) == 1 else f"path of {len(links)} links"
    return LinkSpeed(speed_Bps, narrow.bandwidth_Bps, name, latency)


def _holdings(trace: Trace, message: Message) -> tuple[Holding, ...]:
    piece = message.pieces[0] if message.pieces else None
    at_dst = [row for row in (message.reduce, message.recv) if row is not None]
    wanted = (
        ("Before", at_dst, When.BEFORE, Role.SLOT, piece and piece.before),
        ("Arrives", [message.send], When.BEFORE, Role.PAYLOAD, piece and piece.payload),
        ("After", at_dst, When.AFTER, Role.SLOT, piece and piece.after),
    )
    found = []
    for label, rows, when, role, content in wanted:
        state = _state(trace, rows, when, role)
        if state is None and label == "Arrives":
            state = _state(trace, [message.recv], When.AFTER, role)
        derived = tuple(sorted(content.who)) if content and content.who is not None else None
        if state is not None:
            holding = _holding(trace, state, label, derived)
        else:
            holding = Holding(label, derived)
        if holding.recorded or holding.who is not None:
            found.append(holding)
    return tuple(found)


def _state(trace: Trace, rows: Iterable[int | None], when: When, role: Role) -> int | None:
    for row in rows:
        if row is not None:
            for state in trace.states_of(row, when=when, role=role):
                return int(state)
    return None


def _holding(
    trace: Trace, state: int, label: str, derived: tuple[int, ...] | None = None
) -> Holding:
    states = trace.states
    shape = states["shape"][state]
    n = None if shape is None else int(np.prod(shape, dtype=np.int64))
    kept = trace.values(state)
    flat = np.zeros(0) if kept is None else kept.reshape(-1)
    who = states["contributors"][state]
    numbers: dict[str, Any] = {name: states[name][state] for name in ("mean", "min", "max", "nan")}
    if len(flat) and len(flat) == n and not np.iscomplexobj(flat):
        numbers = statistics(flat)
    return Holding(
        label=label,
        who=derived if who is None else tuple(sorted(set(who))),
        values=tuple(flat[:N_VALUES].tolist()),
        more=n is not None and n > min(len(flat), N_VALUES),
        n_elements=n,
        digest=trace.digest(state),
        sampled=states["digest_of"][state] == "sample",
        dtype=states["dtype"][state],
        **numbers,
    )


def statistics(flat: Any) -> dict[str, float | int]:
    """Return mean, min and max of the numbers that are no NaN, and the count of NaN."""
    values = np.asarray(flat, np.float64)
    good = values[~np.isnan(values)]
    out: dict[str, float | int] = {"nan": int(len(values) - len(good))}
    if len(good):
        out |= {"mean": float(good.mean()), "min": float(good.min()), "max": float(good.max())}
    return out


def _site(trace: Trace, rows: list[int], src: Place) -> Site | None:
    """Return the user's line: the row's own, else that of the call that it happened in."""
    events = trace.events
    own: int | None = _first(events["site"], rows)
    if own is not None:
        return trace.meta.sites[own]
    return src.site


def _clock_error(trace: Trace, rows: list[int]) -> int | None:
    files = {trace.events["file"][row] for row in rows}
    errors = [clock.error_ns for clock in trace.meta.clocks if clock.file in files]
    return max(errors) if errors and max(errors) > 0 else None
