"""In which order the rows of a schedule happen: the wait graph, and waves of rows to walk through.

    for wave in waves(schedule):        # reads first, then writes
        payload[wave.reads] = state[moves.src[wave.reads]]
        state[moves.dst[wave.writes]] = payload[wave.writes]

The wait graph says what must have happened before what. Its nodes are moments: a message starts, it
has arrived, a row of it is written, a place enters a step. Where no `after` reaches back, program
order is an order of that graph, and nothing needs to be built.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from ..errors import ScheduleError
from .compiled import WORTH, compiles
from .rows import narrow, occurrence
from .schedule import Ints, Schedule

Policy = Literal["dataflow", "rank_step", "lockstep"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
Picked = slice | Ints


@dataclass(frozen=True, eq=False)
class Moves:
    """Rows taken apart into moves of single slots, in row order.

    A cell is a slot of a place: place * slots_a_place + slot. Cells are worked out when they are
    asked for: of a large schedule that is only here and there.

    Attributes:
        schedule: The schedule.
        first: First move of each row, (rows,).
        n: Number of moves.
    """

    schedule: Schedule
    first: Ints
    n: int

    def __len__(self) -> int:
        return self.n

    @property
    def single(self) -> bool:
        """Whether each row is one move."""
        return self.n == len(self.first)

    @cached_property
    def row(self) -> Ints:
        """Row of each move, (moves,)."""
        numbers = self.schedule.numbers
        return numbers if self.single else np.repeat(numbers, self.schedule.n_slots)

    @cached_property
    def src(self) -> Ints:
        """Cell that each move reads, (moves,)."""
        return self.sources(slice(None))

    @cached_property
    def dst(self) -> Ints:
        """Cell that each move writes, (moves,)."""
        return self.targets(slice(None))

    def sources(self, rows: slice) -> Ints:
        """Return the cells that the moves of some rows read."""
        return self._cells(self.schedule.src, self.schedule.src_slot, rows)

    def targets(self, rows: slice) -> Ints:
        """Return the cells that the moves of some rows write."""
        return self._cells(self.schedule.dst, self.schedule.dst_slot, rows)

    def of_rows(self, rows: slice) -> slice:
        """Return the moves of the rows of one of `rows.blocks`."""
        ends = self.first[rows.stop : rows.stop + 1]
        return slice(int(self.first[rows.start]), int(ends[0]) if len(ends) else self.n)

    def _cells(self, place: Ints, slot: Ints, rows: slice) -> Ints:
        cell: Ints = place[rows].astype(np.int64) * self.schedule.slots_a_place
        cell += slot[rows]
        if self.single:
            return cell
        n_slots = self.schedule.n_slots[rows]
        first = np.cumsum(n_slots, dtype=np.int64) - n_slots
        return np.repeat(cell - first, n_slots) + np.arange(int(n_slots.sum()))


class Wave(NamedTuple):
    """Moves that can be made at once: first all reads, then all writes, no cell written twice."""

    reads: Picked
    writes: Picked


class Order(NamedTuple):
    """An order of all rows for a kernel, and what they move.

    Wave after wave happens, first its reads, then its writes. Kernels work cells out themselves, so
    that nothing has to be kept for each move. Columns are lists where kernels run as plain Python.

    Attributes:
        reads, writes: Rows in the order in which they read and write, (rows,) each.
        read_ends, write_ends: Where each wave ends among them, (waves,).
        base: What to take off a move's number, wave by wave, so that few numbers tell apart those
            that have read and not yet written, (waves,).
        n_pending: How many numbers that takes.
        src, src_slot, dst, dst_slot, n_slots, reduce: The rows, (rows,) each.
        first: First move of each row, (rows,).
        slots_a_place: Cells of each place.
    """

    reads: Ints
    writes: Ints
    read_ends: Ints
    write_ends: Ints
    base: Ints
    n_pending: int
    src: Ints
    src_slot: Ints
    dst: Ints
    dst_slot: Ints
    n_slots: Ints
    reduce: npt.NDArray[np.bool_]
    first: Ints
    slots_a_place: int


def moves(schedule: Schedule) -> Moves:
    """Return the rows of a schedule as moves of single slots."""
    n = int(schedule.n_slots.sum(dtype=np.int64))
    if n == len(schedule):
        return Moves(schedule, schedule.numbers, n)
    first = np.cumsum(schedule.n_slots, dtype=np.int64) - schedule.n_slots
    return Moves(schedule, narrow(first, n), n)


def step_ordered(schedule: Schedule) -> bool:
    """Return whether step order is an order of the wait graph, under every policy.

    It is unless `after` makes a row wait for a row of its own step or of a later one.
    """
    later, earlier = schedule.after[:, 0], schedule.after[:, 1]
    return bool((schedule.step[earlier] < schedule.step[later]).all())


def waves(schedule: Schedule, moved: Moves) -> Iterator[Wave]:
    """Yield the moves of a schedule in an order of its dataflow wait graph.

    Args:
        schedule: The schedule.
        moved: Its moves.

    Raises:
        ScheduleError: Code DEADLOCK: there is no order, because `after` closes a circle.
    """
    if step_ordered(schedule):
        yield from _waves_by_step(schedule, moved)
    else:
        yield from _waves_by_level(schedule, moved)


def order_of(schedule: Schedule, moved: Moves) -> Order:
    """Return the moves of a schedule in an order of its dataflow wait graph.

    Args:
        schedule: The schedule.
        moved: Its moves.

    Raises:
        ScheduleError: Code DEADLOCK: there is no order, because `after` closes a circle.
    """
    if step_ordered(schedule):
        reads = writes = schedule.numbers
        ends = np.append(np.flatnonzero(schedule.step[1:] != schedule.step[:-1]) + 1, len(reads))
        read_ends = write_ends = ends[ends > 0]
        base = np.append(0, moved.first[ends[:-1]]).astype(np.int64)
        n_pending = int(np.diff(base, append=len(moved)).max())
    else:
        starts, written = _levels_of(schedule)
        reads, writes = (narrow(np.argsort(k, kind="stable"), len(k)) for k in (starts, written))
        level = np.unique(np.concatenate([starts, written]))
        read_ends = np.searchsorted(starts[reads], level, side="right")
        write_ends = np.searchsorted(written[writes], level, side="right")
        base, n_pending = np.zeros_like(level), len(moved)
    order = Order(
        reads,
        writes,
        read_ends,
        write_ends,
        base,
        n_pending,
        schedule.src,
        schedule.src_slot,
        schedule.dst,
        schedule.dst_slot,
        schedule.n_slots,
        schedule.reduce,
        moved.first,
        schedule.slots_a_place,
    )
    small = len(moved) < WORTH and not compiles(len(moved))
    return Order(*(_listed(column) for column in order)) if small else order


def _listed(column: Any) -> Any:
    """Return a column as a list, which plain Python reads faster."""
    return column.tolist() if isinstance(column, np.ndarray) else column


def _levels_of(schedule: Schedule) -> tuple[Ints, Ints]:
    """Return the level of the wait graph at which each row reads, and at which it writes."""
    level = wait_graph(schedule).levels()
    n_messages = len(schedule.messages.first_row)
    starts = level[:n_messages][schedule.messages.of_row]
    return starts, level[2 * n_messages :][: len(schedule)]


def _waves_by_step(schedule: Schedule, moved: Moves) -> Iterator[Wave]:
    step = schedule.step[moved.row]
    bounds = [0, *(np.flatnonzero(np.diff(step)) + 1).tolist(), len(step)]
    for low, high in pairwise(bounds):
        if low < high:
            yield from _apart(moved, slice(low, high), np.arange(low, high), slice(low, high))


def _waves_by_level(schedule: Schedule, moved: Moves) -> Iterator[Wave]:
    starts, written = (level[moved.row] for level in _levels_of(schedule))
    by_start, by_written = np.argsort(starts, kind="stable"), np.argsort(written, kind="stable")
    for number in np.unique(np.concatenate([starts, written])):
        reads = by_start[slice(*np.searchsorted(starts[by_start], [number, number + 1]))]
        writes = by_written[slice(*np.searchsorted(written[by_written], [number, number + 1]))]
        yield from _apart(moved, reads, writes, writes)


def _apart(moved: Moves, reads: Picked, writes: Ints, whole: Picked) -> Iterator[Wave]:
    """Yield one wave, or as many as are needed so that none writes a cell twice."""
    turn = occurrence(moved.dst[writes])
    if not turn.any():
        yield Wave(reads, whole)
        return
    for number in range(int(turn.max()) + 1):
        yield Wave(reads if number == 0 else writes[:0], writes[turn == number])


@dataclass(frozen=True, eq=False)
class WaitGraph:
    """What must have happened before what, under one policy.

    Nodes: message m starts (m), has arrived (messages + m); row r is written (2 * messages + r);
    above these, a place enters a step.

    Attributes:
        schedule: The schedule.
        policy: The policy.
        n_nodes: Number of nodes.
        tail, head: The edges: tail happens before head, (edges,).
    """

    schedule: Schedule
    policy: Policy
    n_nodes: int
    tail: Ints
    head: Ints

    def levels(self) -> Ints:
        """Return the level of each node: one more than the highest of those before it, (nodes,).

        Raises:
            ScheduleError: Code DEADLOCK: the graph has a cycle; the message prints it.
        """
        level, left = self._levels()
        if left.any():
            cycle = self._cycle_among(left)
            row = self.first_row(cycle)
            place, step = int(self.schedule.src[row]), int(self.schedule.step[row])
            raise ScheduleError(self.describe(cycle), code="DEADLOCK", place=place, step=step)
        return level

    def cycle(self) -> list[int] | None:
        """Return nodes that wait for each other in a circle, or None where there are none."""
        _, left = self._levels()
        return self._cycle_among(left) if left.any() else None

    def _levels(self) -> tuple[Ints, npt.NDArray[np.bool_]]:
        waiting = np.bincount(self.head, minlength=self.n_nodes)
        starts, heads = self.successors()
        level = np.zeros(self.n_nodes, np.int64)
        ready = np.flatnonzero(waiting == 0)
        number = 0
        while len(ready):
            level[ready] = number
            number += 1
            waiting[ready] = -1
            after = heads[_ranges(starts[ready], starts[ready + 1])]
            np.subtract.at(waiting, after, 1)
            ready = np.unique(after[waiting[after] == 0])
        return level, waiting > 0

    def successors(self) -> tuple[Ints, Ints]:
        """Return the heads sorted by tail, and where those of each node start, (nodes + 1,)."""
        order = np.argsort(self.tail, kind="stable")
        counts = np.bincount(self.tail, minlength=self.n_nodes)
        return np.concatenate([[0], np.cumsum(counts)]), self.head[order]

    def _cycle_among(self, left: npt.NDArray[np.bool_]) -> list[int]:
        """Return a cycle among the nodes left, each of which waits for another one left."""
        inside = left[self.tail] & left[self.head]
        waits_for = dict(zip(self.head[inside].tolist(), self.tail[inside].tolist(), strict=True))
        node = int(np.flatnonzero(left)[0])
        seen: dict[int, int] = {}
        path: list[int] = []
        while node not in seen:
            seen[node] = len(path)
            path.append(node)
            node = waits_for[node]
        return path[seen[node] :]

    def row_of(self, node: int) -> int | None:
        """Return the (first) row that a node is about; None where a place enters a step."""
        first_row = self.schedule.messages.first_row
        if node < 2 * len(first_row):
            return int(first_row[node % len(first_row)])
        row = node - 2 * len(first_row)
        return row if row < len(self.schedule) else None

    def describe(self, cycle: list[int]) -> str:
        """Return a cycle in words: which row waits for which."""
        rows = [row for row in map(self.row_of, cycle) if row is not None]
        rows = [row for k, row in enumerate(rows) if row != rows[k - 1]] or rows[:1]
        names = [self.schedule.row_text(row) for row in rows]
        chain = " waits for ".join([*names, names[0]])
        return f"deadlock under policy {self.policy}: {chain}"

    def first_row(self, cycle: list[int]) -> int:
        """Return the first row that a cycle is about."""
        return next(row for row in map(self.row_of, cycle) if row is not None)


def _ranges(starts: Ints, stops: Ints) -> Ints:
    """Return the numbers of all the ranges, one range after the other."""
    lengths = stops - starts
    before = np.cumsum(lengths) - lengths
    shift: Ints = np.repeat(starts - before, lengths)
    return np.arange(len(shift)) + shift


def wait_graph(schedule: Schedule, policy: Policy = "dataflow") -> WaitGraph:
    """Return the wait graph of a schedule.

    Args:
        schedule: The schedule.
        policy: dataflow, rank_step or lockstep.

    Raises:
        ScheduleError: The policy is unknown.

    Example:
        >>> from .library import build
        >>> wait_graph(build("all_reduce", "ring", 4)).cycle() is None
        True
    """
    if policy not in POLICIES:
        raise ScheduleError(f"unknown policy {policy!r}; known: {', '.join(POLICIES)}")
    of_row = schedule.messages.of_row
    n_messages = len(schedule.messages.first_row)
    message, row = np.arange(n_messages), np.arange(len(schedule))
    entered = 2 * n_messages + len(schedule)
    n_entered, steps = _step_edges(schedule, policy, entered)
    edges = [
        (message, n_messages + message),
        (n_messages + of_row, 2 * n_messages + row),
        _slot_edges(schedule),
        _after_edges(schedule),
        *steps,
    ]
    tail, head = (np.concatenate([edge[end] for edge in edges]) for end in (0, 1))
    return WaitGraph(schedule, policy, entered + n_entered, tail, head)


def _slot_edges(schedule: Schedule) -> tuple[Ints, Ints]:
    """Return the edges between the accesses of each slot within a channel.

    Each access waits for the last write before it, each write also for the reads since then.
    """
    moved = moves(schedule)
    n_messages = len(schedule.messages.first_row)
    row = np.concatenate([moved.row, moved.row])
    writes = np.repeat([False, True], len(moved.row))
    cell = np.concatenate([moved.src, moved.dst])
    channel = schedule.channel[row]
    order = np.lexsort((row, writes, schedule.step[row], cell, channel))
    row, writes, cell, channel = row[order], writes[order], cell[order], channel[order]
    node = np.where(writes, 2 * n_messages + row, schedule.messages.of_row[row])
    place = np.arange(len(row))
    new = np.ones(len(row), np.bool_)
    new[1:] = (np.diff(cell) != 0) | (np.diff(channel) != 0)
    first = np.maximum.accumulate(np.where(new, place, 0))
    last_write = np.maximum.accumulate(np.where(writes, place, -1))
    before = np.concatenate([[-1], last_write[:-1]])[: len(row)]
    waits = before >= first
    group = np.cumsum(new)
    reversed_writes = np.where(writes, place, len(row))[::-1]
    after = np.minimum.accumulate(reversed_writes)[::-1]
    held = ~writes & (after < len(row))
    held[held] = group[after[held]] == group[held]
    tail = np.concatenate([node[before[waits]], node[held]])
    head = np.concatenate([node[waits], node[after[held]]])
    return tail, head


def _after_edges(schedule: Schedule) -> tuple[Ints, Ints]:
    """Return the edges of `after`: written where the earlier row ends at src, else arrived."""
    row, earlier = schedule.after[:, 0], schedule.after[:, 1]
    of_row = schedule.messages.of_row
    n_messages = len(schedule.messages.first_row)
    ends_here = schedule.dst[earlier] == schedule.src[row]
    tail = np.where(ends_here, 2 * n_messages + earlier, n_messages + of_row[earlier])
    return tail, of_row[row]


def _step_edges(
    schedule: Schedule, policy: Policy, entered: int
) -> tuple[int, list[tuple[Ints, Ints]]]:
    """Return the number of "enters a step" nodes and the edges of step order."""
    messages = schedule.messages
    n_messages, row = len(messages.first_row), np.arange(len(schedule))
    starts = messages.of_row
    arrived, written = n_messages + messages.of_row, 2 * n_messages + row
    if policy == "dataflow":
        ends = [(schedule.src, starts, arrived)]
        window = schedule.window
    elif policy == "rank_step":
        ends = [(schedule.src, starts, arrived), (schedule.dst, starts, written)]
        window = 1
    else:
        ends = [(np.zeros(len(schedule), np.int64), starts, written)]
        window = 1
    lane = np.concatenate([end[0].astype(np.int64) for end in ends])
    if policy != "lockstep":
        lane = lane * schedule.channels + np.tile(schedule.channel, len(ends))
    step = np.tile(schedule.step, len(ends)).astype(np.int64)
    start = np.concatenate([end[1] for end in ends])
    done = np.concatenate([end[2] for end in ends])
    return _lane_edges(lane, step, start, done, window, entered)


def _lane_edges(
    lane: Ints, step: Ints, start: Ints, done: Ints, window: int, entered: int
) -> tuple[int, list[tuple[Ints, Ints]]]:
    """Return the edges that make each lane enter its steps one after the other.

    Args:
        lane: Lane of each row, such as a place on a channel.
        step: Step of each row.
        start: Node that waits for the step to be entered.
        done: Node that the steps from step + window on wait for.
        window: How many steps may be under way.
        entered: Number of the first "enters a step" node.
    """
    span = int(step.max(initial=0)) + window + 1
    keys, which = np.unique(lane * span + step, return_inverse=True)
    chained = np.flatnonzero(keys[1:] // span == keys[:-1] // span)
    # The first step of the lane that waits for this row, if there is one.
    waiting = np.searchsorted(keys, lane * span + step + window)
    held = waiting < len(keys)
    held[held] = keys[waiting[held]] // span == lane[held]
    edges = [
        (entered + which, start),
        (entered + chained, entered + chained + 1),
        (done[held], entered + waiting[held]),
    ]
    return len(keys), edges
