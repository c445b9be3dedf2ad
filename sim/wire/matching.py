"""Which message on the wire is which row of the schedule that gloo followed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...traces.diff.align import align
from ...traces.schema import Kind, Provenance
from ...traces.trace import Trace
from .calls import Stream, called_calls
from .plans import MONITORED, Lane, slot_kind, slot_tag
from .tags import Joined, Seen, join

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
NONE = -1  # in arrays of row and call numbers


@dataclass(frozen=True, eq=False)
class Messages:
    """The wire rows of a trace, ends of messages, by (end, attempt, group, slot, src, dst).

    Attributes:
        row: Event row of each end, (ends,).
        is_recv, attempt, group, slot, src, dst, size: What it says.
        ordinal: k of "the k-th message from src to dst under this slot".
        call: Number of the call it belongs to, in `Matched.calls`; NONE for none.
        plan_row: Row of the call's schedule; NONE for none.
    """

    row: Ints
    is_recv: Mask
    attempt: Ints
    group: Ints
    slot: Ints
    src: Ints
    dst: Ints
    size: Ints
    ordinal: Ints
    call: Ints
    plan_row: Ints

    def runs(self) -> list[tuple[int, int]]:
        """Return where the ends of one (end, attempt, group, slot) begin and stop."""
        return _runs(self.is_recv, self.attempt, self.group, self.slot)


@dataclass(frozen=True, eq=False)
class Matched:
    """The messages of a trace and the calls that they belong to."""

    messages: Messages
    calls: list[Joined]


def match(trace: Trace) -> Matched:
    """Return which call and which row of its plan each wire message is."""
    messages = _messages(trace)
    runs: dict[Stream, dict[tuple[int, bool], list[tuple[int, int]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for low, high in messages.runs():
        stream = int(messages.attempt[low]), int(messages.group[low])
        runs[stream][int(messages.slot[low]), bool(messages.is_recv[low])].append((low, high))
    ends = trace.events["t_end_ns"]
    joined: list[Joined] = []
    called = called_calls(trace)
    claimed = _claimed(trace)
    for stream, slots in runs.items():
        seen = _seen(messages, slots, ends.values, ends.valid)
        by_slot = _by_slot(slots)
        for one in join(called.get(stream, []), seen):
            if one.plan is not None:
                _match_call(messages, one, len(joined), by_slot, claimed)
            joined.append(one)
    return Matched(messages, joined)


def _messages(trace: Trace) -> Messages:
    events = trace.events
    is_send, is_recv = (events["kind"].where(kind.value) for kind in (Kind.SEND, Kind.RECV))
    mask = events["provenance"].where(Provenance.WIRE.value) & (is_send | is_recv)
    for name in ("tag", "group", "place", "peer_group_rank"):
        mask &= events[name].valid
    row = np.flatnonzero(mask)

    def column(name: str) -> Ints:
        values: Ints = events[name].values[row].astype(np.int64)
        return values

    received = is_recv[row]
    place, peer = column("place"), column("peer_group_rank")
    src, dst = np.where(received, peer, place), np.where(received, place, peer)
    keys: tuple[Any, ...] = (received, column("attempt"), column("group"), column("tag"), src, dst)
    order = np.lexsort((column("seq"), column("file"), *reversed(keys)))
    received, attempt, group, slot, src, dst = (key[order] for key in keys)
    n = len(row)
    ordinal = np.arange(n)
    for low, high in _runs(received, attempt, group, slot, src, dst):
        ordinal[low:high] -= low
    return Messages(
        row=row[order],
        is_recv=received,
        attempt=attempt,
        group=group,
        slot=slot,
        src=src,
        dst=dst,
        size=column("size_bytes")[order],
        ordinal=ordinal,
        call=np.full(n, NONE, np.int64),
        plan_row=np.full(n, NONE, np.int64),
    )


def _runs(*keys: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """Return where runs of equal keys begin and stop."""
    n = len(keys[0])
    new = np.zeros(n, np.bool_)
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    if n:
        new[0] = True
    starts = np.flatnonzero(new).tolist()
    return list(zip(starts, [*starts[1:], n], strict=True)) if n else []


Slots = dict[tuple[int, bool], list[tuple[int, int]]]


def _seen(messages: Messages, slots: Slots, end_ns: Ints, has_end: Mask) -> dict[int, Seen]:
    """Return what went over the wire under each tag of a group."""
    found: dict[int, Seen] = {}
    for (slot, is_recv), runs in slots.items():
        kind, tag = slot_kind(slot), slot_tag(slot)
        if kind == 0 or (is_recv and tag in found):
            continue
        size = sum(int(messages.size[low:high].sum()) for low, high in runs)
        rows = np.concatenate([messages.row[low:high] for low, high in runs])
        rows = rows[has_end[rows]]
        before = found.get(tag)
        last = int(end_ns[rows].max()) if len(rows) else None
        if before is None:
            found[tag] = Seen(kind, size, last)
    return dict(sorted(found.items()))


# First and last end of a call's messages under one tag, by (kind, tag, is_recv).
BySlot = dict[tuple[int, int, bool], tuple[int, int]]


def _by_slot(slots: Slots) -> BySlot:
    return {
        (slot_kind(slot), slot_tag(slot), is_recv): runs[0]
        for (slot, is_recv), runs in slots.items()
        if slot_kind(slot)
    } | {(0, slot, is_recv): runs[0] for (slot, is_recv), runs in slots.items() if slot >> 56 == 0}


def _claimed(trace: Trace) -> set[tuple[int, int, int, int, int]]:
    """Return (attempt, group, tag, src, dst) of the program's own messages."""
    return {key[:5] for key in called_messages(trace)}


def called_messages(trace: Trace) -> dict[tuple[int, int, int, int, int, int, bool], int]:
    """Return the rows of the program's own sends and receives.

    Returns:
        By (attempt, group, tag, src, dst, k-th message of these, is_recv), the event row.
    """
    events = trace.events
    found = {}
    for is_recv, kind in enumerate((Kind.SEND, Kind.RECV)):
        mask = events["kind"].where(kind.value)
        mask &= events["provenance"].where(Provenance.CALLED.value)
        names = ("group", "group_rank", "peer_group_rank")
        for name in names:
            mask &= events[name].valid
        rows = np.flatnonzero(mask)
        cells = [events[name].values[rows].tolist() for name in ("attempt", *names, "tag")]
        counts: dict[tuple[int, ...], int] = defaultdict(int)
        for row, attempt, group, own, peer, tag in zip(rows.tolist(), *cells, strict=True):
            src, dst = (peer, own) if is_recv else (own, peer)
            key = (attempt, group, tag, src, dst)
            found[*key, counts[key], bool(is_recv)] = row
            counts[key] += 1
    return found


def _match_call(
    messages: Messages,
    joined: Joined,
    number: int,
    by_slot: BySlot,
    claimed: set[tuple[int, int, int, int, int]],
) -> None:
    """Enter the rows of a call's plan."""
    plan = joined.plan
    assert plan is not None
    for k, lane in enumerate(plan.lanes):
        for is_recv in (False, True):
            span = by_slot.get((plan.kind, joined.tag + k, is_recv))
            if span is None:
                continue
            ends = np.arange(*span)
            if joined.call.asked.api == MONITORED:
                ends = _unclaimed(messages, ends, lane, joined, k, claimed)
            _match_lane(messages, ends, lane, number)


def _unclaimed(
    messages: Messages,
    ends: Ints,
    lane: Lane,
    joined: Joined,
    k: int,
    claimed: set[tuple[int, int, int, int, int]],
) -> Ints:
    """Return the ends of a monitored barrier: those on its edges that the program did not send."""
    edges = set(zip(lane.src.tolist(), lane.dst.tolist(), strict=True))
    keep = [
        (src, dst) in edges and (*joined.call.stream, joined.tag + k, src, dst) not in claimed
        for src, dst in zip(messages.src[ends].tolist(), messages.dst[ends].tolist(), strict=True)
    ]
    return ends[np.array(keep, np.bool_)]


def _match_lane(messages: Messages, ends: Ints, lane: Lane, number: int) -> None:
    """Enter the plan's rows of one tag at one end, in order of (src, dst, message)."""
    messages.call[ends] = number
    src, dst, size = messages.src[ends], messages.dst[ends], messages.size[ends]
    same = len(ends) == len(lane.row)
    if same and (src == lane.src).all() and (dst == lane.dst).all() and (size == lane.size).all():
        messages.plan_row[ends] = lane.row
        return
    for low, high in _runs(src, dst):
        here = np.flatnonzero((lane.src == src[low]) & (lane.dst == dst[low]))
        pairs = align(lane.size[here].tolist(), size[low:high].tolist())
        for i, j in pairs:
            if i is not None and j is not None:
                messages.plan_row[ends[low + j]] = lane.row[here[i]]
