"""What the tap could not know: the call, the step, the slot and the dtype of each message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...traces.columns import Column, Table, lists
from ...traces.schema import DTYPES, Kind, Provenance, Role, Type
from ...traces.trace import Trace
from .matching import NONE, Matched, Messages, called_messages, match
from .plans import WirePlan, slot_kind

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

# What `annotate` fills on messages of a call.
_NUMBERS = (
    *("parent", "coll_seq", "step", "channel", "slot", "n_slots", "offset_bytes"),
    *("message", "part"),
)


def annotate(trace: Trace) -> Trace:
    """Return a trace whose wire messages say what they are part of.

    A group's messages are joined to the program's calls by gloo's own count of collectives, and
    to the rows of the schedule that gloo follows for the call's size by their order. Filled in are
    parent, coll_seq, collective, algorithm, step, channel, slot, n_slots, offset_bytes, message,
    part, reduces, reduce_op and dtype (that of the payload as well); the calls get algorithm and
    schedule. A message of the program's own gets parent, message and dtype.

    Args:
        trace: Any trace; rows that are not of provenance wire and no calls stay as they are. Its
            own result comes back as it is.

    Returns:
        The trace. What fits no call or no row of its plan keeps null there, and a note for each
        group counts it.

    Example:
        >>> annotate(Trace.build({"kind": ["send"], "provenance": ["wire"]})).meta.notes
        ()
    """
    if not trace.events["provenance"].where(Provenance.WIRE.value).any():
        return trace
    matched = match(trace)
    messages = matched.messages
    if not len(messages.row):
        return trace
    cells = _Cells(trace.events)
    dtype_of = np.full(len(trace), "", object)
    _fill_calls(cells, matched, dtype_of)
    _fill_own(cells, trace, messages, dtype_of)
    schedules = _fill_schedules(cells, trace, matched)
    notes = [note for note in trace.meta.notes if not note.startswith(_NOTE)]
    meta = replace(trace.meta, schedules=schedules, notes=(*notes, *_notes(trace, matched)))
    states = _payloads(trace, dtype_of)
    return Trace(cells.table(), states, meta)


class _Cells:
    """The events, with some cells put in."""

    def __init__(self, events: Table) -> None:
        self.events = events
        self.columns: dict[str, tuple[Array, npt.NDArray[np.bool_]]] = {}
        self.texts: dict[str, tuple[str, ...]] = {}

    def put(self, name: str, rows: Ints, values: Array | int) -> None:
        """Set numbers."""
        column, valid = self._column(name)
        column[rows] = values
        valid[rows] = True

    def put_texts(self, name: str, rows: Ints, codes: Array, texts: Sequence[str]) -> None:
        """Set texts, by number."""
        known = list(self.texts.get(name, self.events[name].texts))
        table = []
        for text in texts:
            if text not in known:
                known.append(text)
            table.append(known.index(text))
        self.texts[name] = tuple(known)
        self.put(name, rows, np.array(table or [0], np.int32)[codes])

    def _column(self, name: str) -> tuple[Array, npt.NDArray[np.bool_]]:
        if name not in self.columns:
            found = self.events[name]
            self.columns[name] = np.array(found.values), np.array(found.valid)
        return self.columns[name]

    def table(self) -> Table:
        """Return the events."""
        new = {
            name: Column(
                self.events[name].type, values, valid, self.texts.get(name, self.events[name].texts)
            )
            for name, (values, valid) in self.columns.items()
        }
        return self.events.replace(**new)


def _fill_calls(cells: _Cells, matched: Matched, dtype_of: Array) -> None:
    """Fill what is known of messages inside collectives."""
    messages, calls = matched.messages, matched.calls
    inside = np.flatnonzero(messages.call != NONE)
    if not len(inside):
        return
    call, row = messages.call[inside], messages.row[inside]
    plans, plan_of_call = _numbered([one.plan for one in calls])
    place = np.where(messages.is_recv[inside], messages.dst[inside], messages.src[inside])
    parent = _parents(matched)[call, place]
    there = parent != NONE
    cells.put("parent", row[there], parent[there])
    cells.put("coll_seq", row, np.array([one.call.coll_seq for one in calls], np.int64)[call])
    names = [one.call.asked.collective for one in calls]
    cells.put_texts("collective", row, call, names)
    schedules = [plan.bound.schedule for plan in plans]
    number = plan_of_call[call]
    cells.put_texts("algorithm", row, number, [schedule.algorithm for schedule in schedules])
    # What is too much on an edge is told apart by its number alone.
    cells.put("channel", row, 0)
    cells.put("message", row, messages.ordinal[inside])
    fits = messages.plan_row[inside] != NONE
    base = np.cumsum([0, *(len(schedule) for schedule in schedules)])
    at = base[number] + messages.plan_row[inside]
    row, at, call, number = row[fits], at[fits], call[fits], number[fits]
    received = messages.is_recv[inside][fits]
    ends = [plan.offset_bytes for plan in plans]

    def column(parts: list[Array]) -> Array:
        joined: Array = np.concatenate(parts)[at]
        return joined

    for name in ("step", "channel", "n_slots"):
        cells.put(name, row, column([getattr(schedule, name) for schedule in schedules]))
    slots = [column([getattr(s, name) for s in schedules]) for name in ("src_slot", "dst_slot")]
    cells.put("slot", row, np.where(received, slots[1], slots[0]))
    offset = np.where(received, column([e[1] for e in ends]), column([e[0] for e in ends]))
    cells.put("offset_bytes", row[offset >= 0], offset[offset >= 0])
    cells.put("message", row, column([s.messages.ordinal for s in schedules]))
    cells.put("part", row, column([s.messages.part for s in schedules]))
    reduces = column([schedule.reduce for schedule in schedules])
    cells.put("reduces", row, reduces)
    ops = [one.call.asked.reduce_op for one in calls]
    adds = reduces & received & np.array([op is not None for op in ops])[call]
    cells.put_texts("reduce_op", row[adds], call[adds], [op or "" for op in ops])
    dtypes = np.array([plan.bound.dtype for plan in plans], object)
    cells.put_texts("dtype", row, number, dtypes.tolist())
    dtype_of[row] = dtypes[number]


def _numbered(plans: list[WirePlan | None]) -> tuple[list[WirePlan], Ints]:
    """Return the distinct plans, and the number of each call's."""
    known: dict[int, int] = {}
    distinct: list[WirePlan] = []
    numbers = np.zeros(len(plans), np.int64)
    for k, plan in enumerate(plans):
        if plan is None:
            continue
        if id(plan) not in known:
            known[id(plan)] = len(distinct)
            distinct.append(plan)
        numbers[k] = known[id(plan)]
    return distinct, numbers


def _parents(matched: Matched) -> Ints:
    """Return the event row of each call at each place, (calls, places)."""
    most = max((one.call.asked.group_size for one in matched.calls), default=1)
    parents = np.full((len(matched.calls), most), NONE, np.int64)
    for number, one in enumerate(matched.calls):
        for place, row in one.call.rows.items():
            parents[number, place] = row
    return parents


def _fill_own(cells: _Cells, trace: Trace, messages: Messages, dtype_of: Array) -> None:
    """Fill what is known of the program's own messages."""
    outside = messages.call == NONE
    cells.put("message", messages.row[outside], messages.ordinal[outside])
    own = np.flatnonzero((slot_kind(messages.slot) == 0) & outside)
    if not len(own):
        return
    called = called_messages(trace)
    names = ("attempt", "group", "slot", "src", "dst", "ordinal", "is_recv")
    keys = zip(*(getattr(messages, name)[own].tolist() for name in names), strict=True)
    parent = np.array([called.get(key, NONE) for key in keys], np.int64)
    there = parent != NONE
    row, parent = messages.row[own][there], parent[there]
    cells.put("parent", row, parent)
    dtype, size = trace.events["dtype"], trace.events["size_bytes"].values
    itemsize = np.array([DTYPES.get(text, 0) for text in dtype.texts] or [0], np.int64)
    known = dtype.valid[parent] & (itemsize[dtype.values[parent]] > 0)
    row, parent = row[known], parent[known]
    whole = size[row] % itemsize[dtype.values[parent]] == 0
    row, parent = row[whole], parent[whole]
    if len(row):
        cells.put_texts("dtype", row, dtype.values[parent], dtype.texts)
        dtype_of[row] = np.array(dtype.texts, object)[dtype.values[parent]]


def _fill_schedules(cells: _Cells, trace: Trace, matched: Matched) -> tuple[str, ...]:
    """Give each call the schedule that gloo followed; return all schedules of the trace."""
    schedules = dict.fromkeys(trace.meta.schedules)
    numbers = {text: number for number, text in enumerate(schedules)}
    plans, plan_of_call = _numbered([one.plan for one in matched.calls])
    texts = [plan.bound.schedule.to_text() for plan in plans]
    for text in texts:
        numbers.setdefault(text, len(numbers))
    rows, of_row = [], []
    for number, one in enumerate(matched.calls):
        if one.plan is not None:
            rows += list(one.call.rows.values())
            of_row += [int(plan_of_call[number])] * len(one.call.rows)
    if rows:
        at, which = np.array(rows, np.int64), np.array(of_row, np.int64)
        index = np.array([numbers[text] for text in texts], np.int64)
        cells.put("schedule", at, index[which])
        names = [plan.bound.schedule.algorithm for plan in plans]
        cells.put_texts("algorithm", at, which, names)
    return tuple(numbers)


def _payloads(trace: Trace, dtype_of: Array) -> Table:
    """Return the states, the payloads in the dtype of their messages."""
    states = trace.states
    event = states["event"].values
    known = np.array([bool(text) for text in dtype_of], np.bool_)
    at = np.flatnonzero(known[event] & states["role"].where(Role.PAYLOAD.value))
    if not len(at):
        return states
    texts = list(dict.fromkeys([*states["dtype"].texts, *dtype_of[known].tolist()]))
    code = {text: number for number, text in enumerate(texts)}
    values, valid = np.array(states["dtype"].values), np.array(states["dtype"].valid)
    values[at] = [code[text] for text in dtype_of[event[at]].tolist()]
    valid[at] = True
    itemsize = np.array([DTYPES[text] for text in dtype_of[event[at]].tolist()], np.int64)
    size = trace.events["size_bytes"].values[event[at]]
    return states.replace(
        dtype=Column(Type.TEXT, values, valid, tuple(texts)),
        shape=_reshaped(states["shape"], at, size // itemsize),
        first=_whole_items(states["first"], at, itemsize),
    )


def _reshaped(shape: Column, at: Ints, elements: Ints) -> Column:
    """Return shapes, those of some states in one dimension of so many elements."""
    compact = shape.take(np.arange(len(shape)))
    assert compact.flat is not None
    flat, starts, lengths = compact.flat, compact.starts, compact.values
    one = lengths[at] == 1
    assert starts is not None
    flat = np.array(flat)
    flat[starts[at[one]]] = elements[one]
    return lists(Type.INTS, lengths, compact.valid, flat)


def _whole_items(first: Column, at: Ints, itemsize: Ints) -> Column:
    """Return first values, those of some states cut where an element ends."""
    rest = first.values[at] % itemsize
    if not rest.any():
        return first
    lengths = np.array(first.values)
    lengths[at] -= rest
    cut = Column(first.type, lengths, first.valid, (), first.flat, first.starts)
    return cut.take(np.arange(len(cut)))


_NOTE = "wire: "


def _notes(trace: Trace, matched: Matched) -> list[str]:
    """Return what a reader should know: messages that fit nothing, groups without any."""
    messages = matched.messages
    lost = (messages.plan_row == NONE) & ((slot_kind(messages.slot) != 0) | (messages.call != NONE))
    sends = lost & ~messages.is_recv
    # A message whose sender's end is missing counts as well.
    count = Counter(messages.group[sends].tolist()) | Counter(
        messages.group[lost & messages.is_recv].tolist()
    )
    groups = trace.meta.groups
    notes = [
        f"{_NOTE}{n} unmatched message{'s' * (n != 1)} of the group of ranks "
        f"{', '.join(map(str, groups[group].ranks[:8]))}: {'they fit' if n != 1 else 'it fits'} "
        "no call that was recorded, or not the schedule that gloo is known to follow"
        for group, n in sorted(count.items())
    ]
    return notes + _silent_groups(trace, matched)


def _silent_groups(trace: Trace, matched: Matched) -> list[str]:
    """Return a note for each group that called all_reduce without a message."""
    events = trace.events
    mask = events["kind"].where(Kind.COLLECTIVE.value) & events["group"].valid
    mask &= events["provenance"].where(Provenance.CALLED.value)
    mask &= events["collective"].where("all_reduce") & (events["size_bytes"].values > 0)
    spoke = set(np.unique(matched.messages.group).tolist())
    silent = sorted(set(np.unique(events["group"].values[mask]).tolist()) - spoke)
    return [
        f"{_NOTE}the group of ranks {', '.join(map(str, group.ranks[:8]))} called all_reduce and "
        "no message was seen: the tap missed its connections, or gloo used shared memory"
        for group in (trace.meta.groups[number] for number in silent)
        if len(group.ranks) > 1 and group.backend in ("", "gloo")
    ]
