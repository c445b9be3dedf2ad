"""The causal order of what two traces may differ in.

A difference stands at (call, step, phase, rank). Inputs and what was asked for belong to the begin
of a collective; outputs and how it ended, to its end. Between them a step has its sends, arrivals
and reduces in this order, whatever order the rows were written in.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ..columns import Array, Mask, Rows
from ..schema import Kind
from .calls import NO_CALL, CommonCalls
from .select import Side

_END = 2**62


class Phase(IntEnum):
    """Order within a step."""

    SEND = 1
    ARRIVAL = 2
    WRITE = 3
    STATUS = 4


class Place(NamedTuple):
    """Where differences stand in causal order, one entry each; compared from left to right."""

    time_ns: Rows
    call: Rows
    step: Rows
    phase: Rows
    rank: Rows

    def order(self, detail: Rows) -> Rows:
        """Return the order of the entries; `detail` decides between equal ones."""
        return np.lexsort((detail, *reversed(self)))


def joined(places: list[Place]) -> Place:
    """Return the entries of several places, one after the other."""
    return Place(*(np.concatenate(columns) for columns in zip(*places, strict=True)))


class Timeline:
    """Places rows of two sides in one causal order."""

    def __init__(self, a: Side, b: Side, calls: CommonCalls) -> None:
        self.sides = (a, b)
        self.start_ns = tuple(_start(side) for side in self.sides)
        self.call_ns = self._call_times(calls)

    def _call_times(self, calls: CommonCalls) -> Rows:
        """Return when each call was first asked for, on either side, after the start."""
        first = np.full(len(calls.calls) + 1, _END, np.int64)
        for number, call in enumerate((calls.call_a, calls.call_b)):
            rows = self.sides[number].rows
            inside = call != NO_CALL
            np.minimum.at(first, call[inside], self.issue_ns(number, rows[inside]))
        # Calls of one group follow each other, whatever the clocks of their ranks say.
        last: dict[int, int] = {}
        for k, entry in enumerate(calls.calls):
            first[k] = last[entry.group] = max(int(first[k]), last.get(entry.group, 0))
        return first

    def issue_ns(self, side: int, rows: Rows) -> Rows:
        """Return when rows of a side were asked for, after the side's start."""
        return _time(self.sides[side], rows, ("t_issue_ns", "t_start_ns"), self.start_ns[side])

    def place(self, side: int, rows: Rows, call: Rows, ends: Mask, status: bool = False) -> Place:
        """Return where rows stand.

        Args:
            side: 0 for A, 1 for B.
            rows: Rows of the side's events table.
            call: Number of each row's call, or NO_CALL.
            ends: Which belong to the end of their event, where it is a collective.
            status: Whether it is about how the event ended.
        """
        events = self.sides[side].trace.events
        kind = {k: events["kind"].where(k.value)[rows] for k in Kind}
        issue = self.issue_ns(side, rows)
        done = _time(
            self.sides[side], rows, ("t_end_ns", "t_start_ns", "t_issue_ns"), self.start_ns[side]
        )
        own = np.where(kind[Kind.SEND], issue, done)
        step = np.where(events["step"].valid[rows], events["step"].values[rows], own)
        step[kind[Kind.COLLECTIVE]] = np.where(ends, _END, -1)[kind[Kind.COLLECTIVE]]
        phase = np.full(len(rows), Phase.WRITE.value, np.int64)
        phase[kind[Kind.SEND]] = Phase.SEND
        phase[kind[Kind.RECV]] = Phase.ARRIVAL
        if status:
            phase[:] = Phase.STATUS
        time = np.where(call == NO_CALL, own, self.call_ns[call])
        time[kind[Kind.GROUP]] = -1
        column = events["group_rank"]
        rank = np.where(column.valid[rows], column.values[rows], events["rank"].values[rows])
        return Place(time, call, step, phase, rank)

    def place_of_pairs(
        self, a: Rows, b: Rows, call: Rows, ends: Mask, status: bool = False
    ) -> Place:
        """Return where pairs of rows stand: at the earlier of the two."""
        ours = self.place(0, a, call, ends, status)
        theirs = self.place(1, b, call, ends, status)
        return Place(*(np.minimum(x, y) for x, y in zip(ours, theirs, strict=True)))


def _start(side: Side) -> int:
    column = side.trace.events["t_issue_ns"]
    times = column.values[side.rows][column.valid[side.rows]]
    return int(times.min()) if len(times) else 0


def _time(side: Side, rows: Rows, names: tuple[str, ...], start_ns: int) -> Rows:
    """Return the first of the named times that each row has, after the start; 0 for none."""
    found: Array = np.full(len(rows), start_ns, np.int64)
    for name in reversed(names):
        column = side.trace.events[name]
        found = np.where(column.valid[rows], column.values[rows], found)
    return found - start_ns
