"""Rows of a trace become messages: a send, its recv and its reduce are one.

A message's key is (channel, src, dst, message): the k-th message from src to dst on a channel. Rows
with the same key and different `part` travelled together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...traces.schema import Kind
from ...traces.trace import Trace


@dataclass(slots=True)
class Part:
    """One row of a schedule as the trace saw it: the event rows of both ends."""

    src_slot: int | None = None
    dst_slot: int | None = None
    n_slots: int = 1
    reduces: bool = False
    send: int | None = None
    recv: int | None = None
    reduce: int | None = None
    size_bytes: int | None = None

    def slots(self) -> list[tuple[int, int]]:
        """Return (source slot, destination slot) of each slot that it moves."""
        src = self.src_slot if self.src_slot is not None else self.dst_slot or 0
        dst = self.dst_slot if self.dst_slot is not None else src
        return [(src + k, dst + k) for k in range(self.n_slots)]


@dataclass(slots=True)
class Flight:
    """A message before it is known what it carries."""

    src: int
    dst: int
    channel: int
    ordinal: int
    step: int | None = None
    t_start_ns: int | None = None
    t_end_ns: int | None = None
    ready_ns: int | None = None
    parts: dict[int, Part] = field(default_factory=dict)


_READ = (
    "kind", "place", "rank", "group_rank", "peer", "peer_group_rank", "message", "channel", "part",
    "slot", "n_slots", "reduces", "step", "size_bytes", "t_issue_ns", "t_start_ns", "t_end_ns",
)  # fmt: skip


def flights(trace: Trace, rows: Sequence[int], rank_of: dict[int, int]) -> list[Flight]:
    """Return the messages in the given event rows, in order of (step, start, src).

    Args:
        trace: The trace.
        rows: Event rows of one collective call.
        rank_of: group_rank by global rank, for rows that do not carry it.
    """
    found: dict[tuple[int, int, int, int], Flight] = {}
    local = 0
    columns = {name: trace.events[name].take(list(rows)).to_list() for name in _READ}
    for k, row in enumerate(rows):
        kind = columns["kind"][k]
        if kind not in (Kind.SEND, Kind.RECV, Kind.REDUCE, Kind.COPY):
            continue
        cells = {name: column[k] for name, column in columns.items() if column[k] is not None}
        place = cells.get("place", cells.get("group_rank", rank_of.get(cells.get("rank", 0), 0)))
        peer = cells.get("peer_group_rank", rank_of.get(cells.get("peer", -1), place))
        src, dst = (place, peer) if kind == Kind.SEND else (peer, place)
        ordinal = cells.get("message", 0)
        if src == dst:
            ordinal, local = local, local + 1
        key = (cells.get("channel", 0), src, dst, ordinal)
        flight = found.setdefault(key, Flight(src, dst, key[0], ordinal))
        part = flight.parts.setdefault(cells.get("part", 0), Part())
        _note(flight, part, int(row), kind, cells)
    for flight in found.values():
        _lengthen(flight)
    return sorted(found.values(), key=_order)


def _lengthen(flight: Flight) -> None:
    """Let a message that was seen in one piece start when both ends were ready for it.

    A tap sees the first and the last byte of a small message at one moment.
    """
    start, ready = flight.t_start_ns, flight.ready_ns
    if start is not None and ready is not None and start == flight.t_end_ns:
        flight.t_start_ns = min(start, ready)


def _note(flight: Flight, part: Part, row: int, kind: str, cells: dict[str, Any]) -> None:
    """Enter what one event row says."""
    slot = cells.get("slot")
    part.n_slots = cells.get("n_slots", 1)
    part.reduces = part.reduces or bool(cells.get("reduces")) or kind == Kind.REDUCE
    if cells.get("step") is not None:
        flight.step = cells["step"]
    start, end = cells.get("t_start_ns", cells.get("t_issue_ns")), cells.get("t_end_ns")
    if kind in (Kind.SEND, Kind.RECV) and "t_issue_ns" in cells:
        flight.ready_ns = max(cells["t_issue_ns"], flight.ready_ns or cells["t_issue_ns"])
    if kind == Kind.SEND:
        part.send, part.src_slot = row, slot
        part.size_bytes = cells.get("size_bytes")
        flight.t_start_ns = start
    else:
        part.dst_slot = slot if slot is not None else part.dst_slot
        if kind == Kind.RECV:
            part.recv = row
            part.size_bytes = cells.get("size_bytes", part.size_bytes)
            flight.t_end_ns = end
        else:
            part.reduce = row
            if flight.src == flight.dst:
                part.size_bytes = cells.get("size_bytes")
                flight.t_start_ns, flight.t_end_ns = start, end


def _order(flight: Flight) -> tuple[int, int, int, int]:
    step = flight.step if flight.step is not None else 0
    return step, flight.t_start_ns or 0, flight.src, flight.channel


def levels(found: Sequence[Flight]) -> list[int]:
    """Return a step for each message, from what had arrived at its sender before it started.

    Used where the trace names no steps.
    """
    reached: dict[int, list[tuple[int, int]]] = {}
    out = np.zeros(len(found), np.int64)
    for k in sorted(range(len(found)), key=lambda k: found[k].t_start_ns or 0):
        flight = found[k]
        start = flight.t_start_ns or 0
        before = [level for end, level in reached.get(flight.src, []) if end <= start]
        out[k] = max(before, default=-1) + 1
        if flight.t_end_ns is not None:
            reached.setdefault(flight.dst, []).append((flight.t_end_ns, int(out[k])))
    return [int(level) for level in out]
