"""Races: accesses of one slot, at least one of them a write, that nothing puts in order.

Within a channel every slot's accesses are ordered by rule. Channels are ordered against each other
only by what `after` leads to, so only slots that several channels touch need a look.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .compiled import kernel, run
from .order import Moves, WaitGraph, wait_graph
from .rows import blocks
from .schedule import Ints, Schedule

# What touches a cell, beside the number of a channel.
_NOBODY, _SEVERAL = -1, -2


class Race(NamedTuple):
    """Two accesses of a cell without an order; `first` and `second` are rows."""

    cell: int
    first: int
    first_writes: bool
    second: int
    second_writes: bool


class _Accesses(NamedTuple):
    """Accesses of the cells that several channels touch, by cell."""

    cell: Ints
    row: Ints
    writes: Ints


def races(schedule: Schedule, moved: Moves) -> list[Race]:
    """Return the first race of each cell that has one, by cell."""
    if schedule.channels == 1:
        return []
    accesses = _shared(schedule, moved)
    if len(accesses.cell) == 0:
        return []
    graph = wait_graph(schedule)
    ordered = _Order(graph)
    bounds = np.flatnonzero(np.diff(accesses.cell)) + 1
    found = []
    for low, high in zip([0, *bounds], [*bounds, len(accesses.cell)], strict=True):
        race = _race_at(ordered, *(column[low:high] for column in accesses))
        if race is not None:
            found.append(race)
    return found


def _shared(schedule: Schedule, moved: Moves) -> _Accesses:
    """Return the accesses of cells that are written and touched by more than one channel."""
    size = schedule.n_places * schedule.slots_a_place
    touched: Any = np.full(size, _NOBODY, np.int16)
    written = np.zeros(size, np.bool_)
    s, touch = schedule, run(_touch, len(moved))
    touch(s.channel, s.src, s.src_slot, s.n_slots, s.slots_a_place, touched)
    touch(s.channel, s.dst, s.dst_slot, s.n_slots, s.slots_a_place, touched)
    for rows in blocks(len(schedule)):
        written[moved.targets(rows)] = True
    shared = written & (touched == _SEVERAL)
    if not shared.any():
        return _Accesses(*np.zeros((3, 0), np.int64))
    cell = np.concatenate([moved.src, moved.dst])
    row = np.concatenate([moved.row, moved.row])
    writes = np.repeat([0, 1], len(moved))
    wanted = np.flatnonzero(shared[cell])
    order = wanted[np.argsort(cell[wanted], kind="stable")]
    return _Accesses(cell[order], row[order], writes[order])


@kernel
def _touch(
    channel: Ints, place: Ints, slot: Ints, n_slots: Ints, slots_a_place: int, touched: Ints
) -> None:
    """Note in each cell of some accesses which channel touches it, or that several do."""
    for row in range(len(channel)):
        first = int(place[row]) * slots_a_place + slot[row]
        for cell in range(first, first + n_slots[row]):
            if touched[cell] == _NOBODY:
                touched[cell] = channel[row]
            elif touched[cell] != channel[row]:
                touched[cell] = _SEVERAL


class _Order:
    """Answers whether one moment is before another in a wait graph."""

    def __init__(self, graph: WaitGraph) -> None:
        self.graph = graph
        self.level = graph.levels()
        starts, heads = graph.successors()
        self._starts, self._heads = starts.tolist(), heads.tolist()
        self._reached: dict[int, set[int]] = {}

    def node(self, row: int, writes: bool) -> int:
        messages = self.graph.schedule.messages
        if writes:
            return 2 * len(messages.first_row) + row
        return int(messages.of_row[row])

    def before(self, earlier: int, later: int) -> bool:
        if earlier not in self._reached:
            self._reached[earlier] = self._reach(earlier)
        return later in self._reached[earlier]

    def _reach(self, node: int) -> set[int]:
        seen = {node}
        stack = [node]
        while stack:
            top = stack.pop()
            for head in self._heads[self._starts[top] : self._starts[top + 1]]:
                if head not in seen:
                    seen.add(head)
                    stack.append(head)
        return seen


def _race_at(ordered: _Order, cell: Ints, row: Ints, writes: Ints) -> Race | None:
    """Return a race among the accesses of one cell, or None.

    In an order of the graph, each access must come after the last write, and each write also after
    the reads since then: more is not needed, since "before" is transitive.
    """
    nodes = [ordered.node(int(r), bool(w)) for r, w in zip(row, writes, strict=True)]
    channel = ordered.graph.schedule.channel
    turn = np.lexsort((row, writes, ordered.level[nodes]))
    last_write: int | None = None
    reads: list[int] = []
    for k in turn.tolist():
        rivals = [] if last_write is None else [last_write]
        rivals += reads if writes[k] else []
        for rival in rivals:
            if channel[row[rival]] != channel[row[k]] and not ordered.before(
                nodes[rival], nodes[k]
            ):
                return Race(
                    int(cell[0]), int(row[rival]), bool(writes[rival]), int(row[k]), bool(writes[k])
                )
        if writes[k]:
            last_write, reads = k, []
        else:
            reads.append(k)
    return None
