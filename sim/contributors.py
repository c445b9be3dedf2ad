"""Contributors of executed and wire traces, derived from their recorded rows.

    trace = derive_contributors(chunkscope.read("chunkscope-out/run"))
    trace.states["contributors"][3]     # [0, 1]

A recording does not say whose parts a payload holds. The recorded rows do: which slot left, into
which slot it went, and whether it was reduced there. The schedule in the trace's metadata gives the
initial contents alone, and stands in for an end of a message that was not recorded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..errors import ScheduleError
from ..traces.columns import Column
from ..traces.schema import Kind, Provenance, Role, Type, When
from ..traces.trace import Trace
from .flow import Flow, Which, flow
from .schedule import Schedule, Transfer
from .text import parse

NOTE = "contributors derived from the recorded rows"
_DERIVED = (Provenance.EXECUTED, Provenance.WIRE)
_PARTS = (Kind.SEND, Kind.RECV, Kind.REDUCE, Kind.COPY)
_COLUMNS = (
    *("kind", "provenance", "attempt", "group", "coll_seq", "schedule"),
    *("channel", "place", "peer_group_rank", "message", "part"),
)


class _Key(NamedTuple):
    """What both ends of a row of a message say alike."""

    channel: int
    src: int
    dst: int
    message: int
    part: int


@dataclass(slots=True)
class _Call:
    """Event rows of one collective call.

    Attributes:
        schedule: Number of its schedule in the metadata.
        is_placed: Whether all its messages were seen on the wire: they have their places from the
            schedule, so that its contributors are theirs.
        collectives: Rows of the calls.
        parts: Rows of the ends of messages.
    """

    schedule: int | None = None
    is_placed: bool = True
    collectives: list[int] = field(default_factory=list)
    parts: dict[_Key, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))


def derive_contributors(trace: Trace) -> Trace:
    """Return a trace whose states say whose parts they hold.

    Args:
        trace: Any trace. States of executed and wire events that belong to a call with a schedule
            and have no contributors yet get them; all others stay as they are.

    Returns:
        The trace, with a note that says so; the same trace if there was nothing to derive. A call
        whose rows fit no schedule, or that is too large to follow, is left out and noted.
    """
    cells: list[list[int] | None] = trace.states["contributors"].to_list()
    states = _states_by_event(trace, cells)
    notes = []
    filled = False
    for call in _calls(trace).values():
        if call.schedule is None:
            continue
        text = trace.meta.schedules[call.schedule]
        try:
            if call.is_placed:
                keys, whose = _placed(text)
            else:
                schedule, keys = _recorded(trace, call, _plan(text))
                whose = _Told(flow(schedule))
        except ScheduleError as error:
            notes.append(f"contributors not derived: {error}")
            continue
        for state, ranks in _told(trace, call, whose, keys, states):
            cells[state] = ranks
            filled = True
    if filled:
        notes.insert(0, NOTE)
    new = tuple(note for note in dict.fromkeys(notes) if note not in trace.meta.notes)
    if not filled and not new:
        return trace
    column = Column.build(Type.INTS, cells, len(cells))
    meta = replace(trace.meta, notes=trace.meta.notes + new)
    return Trace(trace.events, trace.states.replace(contributors=column), meta)


class _Told:
    """Whose parts the rows of a schedule hold, each looked up once."""

    def __init__(self, whose: Flow) -> None:
        self._whose = whose
        self._known: dict[tuple[str, int], list[int]] = {}

    def row(self, which: Which, row: int) -> list[int]:
        """Return the contributors of a row's payload or destination."""
        return self._look(which, row, lambda: self._whose.contributors(which, row))

    def input(self, place: int) -> list[int]:
        """Return the contributors of a rank's input."""
        return self._look("input", place, lambda: self._whose.input_contributors(place))

    def output(self, place: int) -> list[int]:
        """Return the contributors of a rank's output."""
        return self._look("output", place, lambda: self._whose.output_contributors(place))

    def _look(self, what: str, number: int, find: Callable[[], list[int]]) -> list[int]:
        if (what, number) not in self._known:
            self._known[what, number] = find()
        return self._known[what, number]


@lru_cache(maxsize=64)
def _placed(text: str) -> tuple[list[_Key], _Told]:
    """Return the key of each row of a plan, and whose parts they hold."""
    plan = _plan(text)
    return list(_planned(plan)), _Told(flow(plan))


@lru_cache(maxsize=64)
def _plan(text: str) -> Schedule:
    return parse(text, file="schedule of the trace")


def _states_by_event(trace: Trace, cells: list[list[int] | None]) -> dict[int, list[int]]:
    """Return the states that lack contributors, by event."""
    by_event: dict[int, list[int]] = defaultdict(list)
    for state, event in enumerate(trace.states["event"].to_list()):
        if cells[state] is None:
            by_event[event].append(state)
    return by_event


def _calls(trace: Trace) -> dict[tuple[Any, ...], _Call]:
    """Return the event rows of each call that was executed or seen on the wire."""
    get = {name: trace.events[name].to_list() for name in _COLUMNS}
    calls: dict[tuple[Any, ...], _Call] = defaultdict(_Call)
    for row, provenance in enumerate(get["provenance"]):
        if get["coll_seq"][row] is None:
            continue
        # A call of the program has a schedule where its messages were seen on the wire.
        planned = provenance == Provenance.CALLED and get["schedule"][row] is not None
        if provenance not in _DERIVED and not planned:
            continue
        call = calls[get["attempt"][row] or 0, get["group"][row], get["coll_seq"][row]]
        kind = get["kind"][row]
        if kind != Kind.COLLECTIVE and provenance != Provenance.WIRE:
            call.is_placed = False
        if kind == Kind.COLLECTIVE:
            call.collectives.append(row)
            if get["schedule"][row] is not None:
                call.schedule = get["schedule"][row]
        elif kind in _PARTS:
            place, peer = get["place"][row], get["peer_group_rank"][row]
            ends = (place, place if peer is None else peer)
            src, dst = ends if kind == Kind.SEND else ends[::-1]
            message, part = get["message"][row], get["part"][row] or 0
            if src is not None and dst is not None and message is not None:
                call.parts[_Key(get["channel"][row] or 0, src, dst, message, part)][kind] = row
    return calls


def _recorded(trace: Trace, call: _Call, plan: Schedule) -> tuple[Schedule, list[_Key]]:
    """Return the schedule that the recorded rows tell, and the key of each of its rows."""
    planned = _planned(plan)
    known = [key for key in call.parts if _slots_known(trace, call.parts[key], key in planned)]
    last = len(plan)
    known.sort(key=lambda key: (planned.get(key, last), key))
    transfers = plan.transfers
    rows = [
        _transfer(trace, key, call.parts[key], transfers[planned[key]] if key in planned else None)
        for key in known
    ]
    order = np.argsort(np.array([row.step for row in rows], np.int64), kind="stable")
    number = {key: row for row, key in enumerate(known)}
    keys = list(planned)
    after = [
        (number[keys[row]], number[keys[earlier]])
        for row, earlier in plan.after.tolist()
        if keys[row] in number and keys[earlier] in number
    ]
    schedule = Schedule.of(
        plan.collective,
        plan.algorithm,
        plan.group_size,
        rows,
        input=plan.input,
        output=plan.output,
        scratch=plan.scratch,
        root=plan.root,
        window=plan.window,
        helpers=plan.helpers,
        after=after,
        idempotent=plan.idempotent,
    )
    return schedule, [known[row] for row in order]


def _planned(plan: Schedule) -> dict[_Key, int]:
    """Return the row of each key of a plan, in order of rows."""
    messages = plan.messages
    columns = (plan.channel, plan.src, plan.dst, messages.ordinal, messages.part)
    keys = zip(*(column.tolist() for column in columns), strict=True)
    return {_Key(*key): row for row, key in enumerate(keys)}


def _slots_known(trace: Trace, ends: dict[str, int], planned: bool) -> bool:
    """Return whether both slots of a row are recorded or in the plan."""
    slot = trace.events["slot"]
    sent = Kind.SEND in ends and slot[ends[Kind.SEND]] is not None
    written = any(slot[row] is not None for kind, row in ends.items() if kind != Kind.SEND)
    return planned or (sent and written)


def _transfer(trace: Trace, key: _Key, ends: dict[str, int], planned: Transfer | None) -> Transfer:
    """Return what the recorded ends of a row say; what neither says, the plan does."""
    get = trace.events
    sent = ends.get(Kind.SEND)
    written = next((ends[k] for k in (Kind.RECV, Kind.REDUCE, Kind.COPY) if k in ends), None)

    def said(name: str, event: int | None, default: Any) -> Any:
        cell = None if event is None else get[name][event]
        return default if cell is None else cell

    known = planned or Transfer(0, 0, 0, 0, 0, 0)
    either = sent if sent is not None else written
    reduces = said("reduces", written, known.reduce)
    return Transfer(
        step=said("step", either, known.step),
        channel=key.channel,
        src=key.src,
        dst=key.dst,
        src_slot=said("slot", sent, known.src_slot),
        dst_slot=said("slot", written, known.dst_slot),
        n_slots=said("n_slots", either, known.n_slots),
        reduce=Kind.REDUCE in ends or (reduces and Kind.COPY not in ends),
    )


def _told(
    trace: Trace, call: _Call, whose: _Told, keys: list[_Key], states: dict[int, list[int]]
) -> Iterator[tuple[int, list[int]]]:
    """Yield states of a call and whose parts they hold."""
    when, role = trace.states["when"], trace.states["role"]
    for row, key in enumerate(keys):
        for event in call.parts.get(key, {}).values():
            for state in states[event]:
                if role[state] == Role.PAYLOAD:
                    yield state, whose.row("payload", row)
                elif role[state] == Role.SLOT:
                    moment: Which = "before" if when[state] == When.BEFORE else "after"
                    yield state, whose.row(moment, row)
    for event in call.collectives:
        place = trace.events["place"][event]
        if place is None:
            place = trace.events["group_rank"][event]
        for state in states[event] if place is not None else ():
            if _is_one_of_many(trace, event, state):
                continue  # a part of the input or output: whose, the plan does not say
            if role[state] == Role.INPUT and when[state] == When.BEFORE:
                yield state, whose.input(place)
            elif role[state] == Role.OUTPUT and when[state] == When.AFTER:
                yield state, whose.output(place)


def _is_one_of_many(trace: Trace, event: int, state: int) -> bool:
    """Return whether a call has several tensors of a state's role and moment."""
    cells = {name: trace.states[name][state] for name in ("when", "role")}
    return len(trace.states_of(event, **cells)) > 1
