"""Races: accesses of one slot, at least one of them a write, that nothing puts in order.

Within a channel every slot's accesses are ordered by rule. Channels are ordered against each other
only by what `after` leads to, so only slots that several channels touch need a look.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import kernel, run
from .order import Moves, WaitGraph, wait_graph
from .rows import blocks
from .schedule import Ints, Schedule

Flags = npt.NDArray[np.bool_]

# Nodes walked over in the time that one transfer takes elsewhere, about.
_WORTH = 64 * 16
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


class _Pairs(NamedTuple):
    """Accesses that must have an order, by their places among all accesses: first, then second."""

    first: Ints
    second: Ints


def races(schedule: Schedule, moved: Moves) -> list[Race]:
    """Return the first race of each cell that has one, by cell."""
    if schedule.channels == 1:
        return []
    accesses = _shared(schedule, moved)
    if len(accesses.cell) == 0:
        return []
    graph = wait_graph(schedule)
    level, node = graph.levels(), _nodes(schedule, accesses)
    turn = np.lexsort((accesses.row, accesses.writes, level[node], accesses.cell))
    accesses, node = _Accesses(*(column[turn] for column in accesses)), node[turn]
    pairs = _pairs(schedule, accesses)
    apart = ~_are_before(graph, level, node[pairs.first], node[pairs.second])
    return [
        Race(
            int(accesses.cell[first]),
            int(accesses.row[first]),
            bool(accesses.writes[first]),
            int(accesses.row[second]),
            bool(accesses.writes[second]),
        )
        for first, second in _first_of_each(accesses.cell, *(end[apart] for end in pairs))
    ]


def _first_of_each(cell: Ints, first: Ints, second: Ints) -> list[tuple[int, int]]:
    """Return the first of the pairs at each cell; accesses, and so pairs, lie by cell."""
    order = np.lexsort((first, second))
    first, second = first[order], second[order]
    _, at = np.unique(cell[second], return_index=True)
    return list(zip(first[at].tolist(), second[at].tolist(), strict=True))


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


def _nodes(schedule: Schedule, accesses: _Accesses) -> Ints:
    """Return the moment of each access in the wait graph: a start, or a write."""
    messages = schedule.messages
    written = 2 * len(messages.first_row) + accesses.row
    return np.where(accesses.writes, written, messages.of_row[accesses.row])


def _pairs(schedule: Schedule, accesses: _Accesses) -> _Pairs:
    """Return which accesses of different channels must have an order.

    Accesses lie by cell and in an order of the graph. Each must come after the last write before
    it, and each write also after the reads since then: more is not needed, since "before" is
    transitive.
    """
    n = len(accesses.cell)
    place, writes = np.arange(n), accesses.writes.astype(np.bool_)
    begins = np.flatnonzero(np.append(True, np.diff(accesses.cell) != 0))
    begin = np.repeat(begins, np.diff(begins, append=n))
    last = np.append(-1, np.maximum.accumulate(np.where(writes, place, -1))[:-1])
    following = np.minimum.accumulate(np.where(writes, place, n)[::-1])[::-1]
    end = np.repeat(np.append(begins[1:], n), np.diff(begins, append=n))
    after_write, held = last >= begin, ~writes & (following < end)
    first = np.concatenate([last[after_write], place[held]])
    second = np.concatenate([place[after_write], following[held]])
    channel = schedule.channel[accesses.row]
    apart = channel[first] != channel[second]
    return _Pairs(first[apart], second[apart])


def _are_before(graph: WaitGraph, level: Ints, first: Ints, second: Ints) -> Flags:
    """Return whether the first node of each pair comes before the second in a wait graph.

    Which nodes lead to a node is known by one bit each, for 64 of them at a time: that takes a walk
    over the part of the graph between these and the nodes asked for.
    """
    turn = np.argsort(level, kind="stable")
    rank = np.empty_like(turn)
    rank[turn] = np.arange(len(turn))
    by_head = np.argsort(rank[graph.head], kind="stable")
    tail = rank[graph.tail][by_head]
    tails = np.append(0, np.cumsum(np.bincount(rank[graph.head], minlength=len(turn))))
    asked = np.argsort(rank[first], kind="stable")
    source, number = np.unique(rank[first][asked], return_inverse=True)
    target, found = rank[second][asked], np.zeros(len(first), np.bool_)
    reached = np.zeros(len(turn), np.uint64)
    work = len(source) * len(turn) // _WORTH
    run(_reach, work)(source, number, target, tails, tail, reached, found)
    answer = np.empty_like(found)
    answer[asked] = found
    return answer


@kernel
def _reach(
    source: Ints, number: Ints, target: Ints, tails: Ints, tail: Ints, reached: Any, found: Flags
) -> None:
    """Find out which targets are reached from their sources.

    Args:
        source: Nodes that are asked about, rising, (sources,).
        number: Which of them each question is about, rising, (questions,).
        target: The node that it may lead to, (questions,).
        tails, tail: Where the tails of each node's edges start, and the tails; nodes are numbered
            in an order of the graph.
        reached: Which of 64 sources lead to each node, (nodes,).
        found: The answers, (questions,), all no.
    """
    one, low_question = np.uint64(1), 0
    for low in range(0, len(source), 64):
        high_question, last = low_question, 0
        while high_question < len(number) and number[high_question] < low + 64:
            last = max(last, target[high_question])
            high_question += 1
        reached[source[low] : last + 1] = 0
        for k in range(low, min(low + 64, len(source))):
            if source[k] <= last:
                reached[source[k]] = one << np.uint64(k - low)
        for node in range(source[low], last + 1):
            bits = reached[node]
            for edge in range(tails[node], tails[node + 1]):
                if tail[edge] >= source[low]:
                    bits |= reached[tail[edge]]
            reached[node] = bits
        for question in range(low_question, high_question):
            if target[question] >= source[low]:
                bits = reached[target[question]] >> np.uint64(number[question] - low)
                found[question] = (bits & one) != 0
        low_question = high_question
