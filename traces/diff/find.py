"""Finding what differs between two sides, batch by batch and column by column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..columns import Mask, Rows
from ..schema import Kind, When
from .calls import CommonCalls, common_calls
from .events import EventPairs, pair_events
from .keys import pack, unequal
from .order import Place, Timeline
from .report import What
from .select import Side
from .states import (
    COLUMNS,
    StatePairs,
    Tolerance,
    Values,
    different_columns,
    different_values,
    pair_states,
)

# Columns that say what was asked for; on messages they would repeat the call's.
_CALL_COLUMNS = ("collective", "algorithm", "reduce_op", "root", "api", "is_async", "splits")
_ROW_COLUMNS = ("step", "reduces", "slot", "n_slots", "offset_bytes", "size_bytes", "dtype")
_TIMES = ("t_issue_ns", "t_start_ns", "t_end_ns")


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Differences of one sort. A row number of -1 stands for nothing on that side."""

    what: What
    column: str
    place: Place
    detail: int
    row_a: Rows
    row_b: Rows
    state_a: Rows
    state_b: Rows


class Finder:
    """Finds the differences of two sides.

    Attributes:
        batches: What was found.
        notes: What was not compared.
        n_events: Number of events compared.
        n_states: Number of states compared.
    """

    def __init__(self, a: Side, b: Side, values: Values, tolerance: Tolerance, times: bool) -> None:
        self.a, self.b = a, b
        self.values, self.tolerance = values, tolerance
        self.calls: CommonCalls = common_calls(a, b)
        self.timeline = Timeline(a, b, self.calls)
        self.batches: list[Batch] = []
        self.notes = list(self.calls.notes)
        self._lone_groups_and_calls()
        events = pair_events(a, b, self.calls)
        self._lone_events(events)
        self._columns(events)
        states = self._states(events)
        if times:
            self._times(events)
        self.n_events, self.n_states = len(events.a), len(states.a)

    def _add(
        self,
        what: What,
        column: str,
        place: Place,
        rows: tuple[Rows, Rows],
        detail: int = 0,
        states: tuple[Rows, Rows] | None = None,
    ) -> None:
        if len(rows[0]):
            nothing = np.full(len(rows[0]), -1, np.int64)
            state_a, state_b = states or (nothing, nothing)
            self.batches.append(Batch(what, column, place, detail, *rows, state_a, state_b))

    def _add_lone(
        self, what: What, side: int, rows: Rows, call: Rows, states: Rows | None = None
    ) -> None:
        nothing = np.full(len(rows), -1, np.int64)
        ends = np.zeros(len(rows), np.bool_)
        place = self.timeline.place(side, rows, call, ends)
        here = (rows, nothing) if side == 0 else (nothing, rows)
        self._add(what, "", place, here)

    def _lone_groups_and_calls(self) -> None:
        for side, numbers, only in (
            (0, self.calls.group_a, self.calls.only_a),
            (1, self.calls.group_b, self.calls.only_b),
        ):
            rows = (self.a, self.b)[side].rows
            first = np.array([rows[np.argmax(numbers == g)] for g in only], np.int64)
            call = (self.calls.call_a, self.calls.call_b)[side]
            of_first = np.array([call[np.argmax(numbers == g)] for g in only], np.int64)
            self._add_lone(What.GROUP, side, first, of_first)
            lone = [
                (entry[2 + side], k)
                for k, entry in enumerate(self.calls.calls)
                if entry[3 - side] is None and entry.group not in only
            ]
            table = np.array(lone, np.int64).reshape(-1, 2)
            self._add_lone(What.CALL, side, table[:, 0], table[:, 1])

    def _lone_events(self, events: EventPairs) -> None:
        for side, rows, call in (
            (0, events.only_a, events.call_only_a),
            (1, events.only_b, events.call_only_b),
        ):
            if not len(rows):
                continue
            whole, keep = self._whole_messages(side, rows, call)
            self._add_lone(What.MESSAGE, side, rows[whole], call[whole])
            self._add_lone(What.EVENT, side, rows[keep], call[keep])

    def _whole_messages(self, side: int, rows: Rows, call: Rows) -> tuple[Rows, Rows]:
        """Return the sends of messages that lack both ends, and the rows of no such message."""
        cells = (self.a, self.b)[side].trace.events
        kind = {k: cells["kind"].where(k.value)[rows] for k in Kind}
        own, peer = cells["group_rank"].values[rows], cells["peer_group_rank"].values[rows]
        sent = kind[Kind.SEND]
        columns = [
            call,
            cells["group"].values[rows],
            np.where(sent, own, peer),
            np.where(sent, peer, own),
            *(cells[n].values[rows] for n in ("channel", "tag", "attempt", "message")),
        ]
        key, _ = pack([(c, c[:0]) for c in columns], len(rows), 0)
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        n = len(first)
        moves = sent | kind[Kind.RECV] | kind[Kind.REDUCE]
        moves &= cells["message"].valid[rows]
        ends = np.zeros((2, n), np.bool_)
        ends[0, inverse[sent & moves]] = True
        ends[1, inverse[kind[Kind.RECV] & moves]] = True
        whole: Mask = np.asarray(ends.all(axis=0))
        # A message is told of by its send.
        first = np.full(n, len(rows), np.int64)
        np.minimum.at(first, inverse[sent & moves], np.flatnonzero(sent & moves))
        return first[whole], np.flatnonzero(~(whole[inverse] & moves))

    def _columns(self, events: EventPairs) -> None:
        kind = self.a.trace.events["kind"]
        calls = kind.where(Kind.COLLECTIVE.value) | kind.where(Kind.GROUP.value)
        outside = ~self.a.trace.events["coll_seq"].valid
        asks: Mask = (calls | outside)[events.a]
        everything = np.ones(len(events.a), np.bool_)
        names = [(name, asks) for name in _CALL_COLUMNS]
        names += [(name, everything) for name in (*_ROW_COLUMNS, "status")]
        for detail, (name, among) in enumerate(names):
            self._column(events, name, np.flatnonzero(among), detail)

    def _column(self, events: EventPairs, name: str, at: Rows, detail: int) -> None:
        a, b, call = events.a[at], events.b[at], events.call[at]
        differ = unequal(self.a.trace.events[name], a, self.b.trace.events[name], b)
        if not differ.any():
            return
        for side, rows, other, letter in ((self.a, a, self.b, "A"), (self.b, b, self.a, "B")):
            if side.lacks(name, rows, other):
                self.notes.append(f"{name} was not compared: {letter} has none")
                return
        a, b, call = a[differ], b[differ], call[differ]
        ends = np.full(len(a), name == "status")
        place = self.timeline.place_of_pairs(a, b, call, ends, status=name == "status")
        self._add(What.COLUMN, name, place, (a, b), detail)

    def _states(self, events: EventPairs) -> StatePairs:
        a, b = self.a.trace, self.b.trace
        pairs = pair_states(a, b, events.a, events.b)
        self.notes += pairs.notes
        columns, notes = different_columns(a, b, pairs)
        self.notes += notes
        differ, notes = different_values(a, b, pairs, self.values, self.tolerance)
        self.notes += notes
        masks: list[tuple[What, str, Mask]] = [
            (What.STATE_COLUMN, name, columns[name]) for name in COLUMNS if name in columns
        ]
        masks.append((What.VALUES, "values", differ))
        for detail, (what, name, mask) in enumerate(masks):
            at = np.flatnonzero(mask)
            rows = events.a[pairs.pair[at]], events.b[pairs.pair[at]]
            ends = a.states["when"].where(When.AFTER.value)[pairs.a[at]]
            place = self.timeline.place_of_pairs(*rows, events.call[pairs.pair[at]], ends)
            states = pairs.a[at], pairs.b[at]
            self._add(what, name, place, rows, 100 + detail, states)
        self._lone_states(events, pairs)
        return pairs

    def _lone_states(self, events: EventPairs, pairs: StatePairs) -> None:
        """Tell of states that one side lacks, but for events that ended in different ways."""
        ended = ~unequal(
            self.a.trace.events["status"], events.a, self.b.trace.events["status"], events.b
        )
        for side, states, pair in (
            (0, pairs.only_a, pairs.pair_only_a),
            (1, pairs.only_b, pairs.pair_only_b),
        ):
            states, pair = states[ended[pair]], pair[ended[pair]]
            rows = events.a[pair], events.b[pair]
            trace = (self.a, self.b)[side].trace
            ends = trace.states["when"].where(When.AFTER.value)[states]
            place = self.timeline.place_of_pairs(*rows, events.call[pair], ends)
            nothing = np.full(len(states), -1, np.int64)
            here = (states, nothing) if side == 0 else (nothing, states)
            self._add(What.STATE, "", place, rows, 99, here)

    def _times(self, events: EventPairs) -> None:
        for detail, name in enumerate(_TIMES):
            one, two = self.a.trace.events[name], self.b.trace.events[name]
            start_a, start_b = self.timeline.start_ns
            valid_a, valid_b = one.valid[events.a], two.valid[events.b]
            differ = one.values[events.a] - start_a != two.values[events.b] - start_b
            at = np.flatnonzero((valid_a != valid_b) | (valid_a & differ))
            a, b, call = events.a[at], events.b[at], events.call[at]
            ends = np.full(len(at), name == "t_end_ns")
            place = self.timeline.place_of_pairs(a, b, call, ends)
            self._add(What.TIME, name, place, (a, b), 200 + detail)
