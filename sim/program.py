"""What one rank does, one action after the other, to carry out a bound schedule.

    program = compile_program(schedule.bind(1 << 20, "float32"), place=2, segment_bytes=1 << 19)
    for action in program.actions: ...

Large chunks are cut into lanes: lane k is the whole plan for the k-th part of every chunk. Lanes
touch different elements, so each of them keeps the order that the schedule demands, and while one
waits for the network the next one's part is under way. Actions lie in the order of a virtual clock
that ticks once a lane: what starts at t is waited for at t + depth, so that `depth` lanes are in
flight. All ranks use the same clock, and everything that an action waits for has an earlier time:
that is why blocking waits, which are all that gloo has, cannot deadlock.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from .bind import BoundSchedule, Layout
from .levels import levels

LEAST_TO_CUT_BYTES = 64 << 10
BUFFERS = ("input", "output", "scratch")


class Do(IntEnum):
    """What an action does; at equal times in this order."""

    WRITE = 1  # wait for a message, then copy or reduce it into its slots
    POST = 2  # post a receive
    SNAP = 3  # keep what a local row reads, until it is written
    START = 4  # post a send
    SENT = 5  # wait until a send has left its slots; goes first where these are written next


ISSUES = (Do.POST, Do.START)


class Piece(NamedTuple):
    """Elements [start, stop) of a buffer, which hold elements from `at` on of a row's data."""

    buffer: int
    start: int
    stop: int
    at: int


class Part(NamedTuple):
    """A row's share of a lane: where it lies at this rank."""

    row: int
    pieces: tuple[Piece, ...]
    reduces: bool


class Action(NamedTuple):
    """One action of a rank.

    Attributes:
        do: What it does.
        key: Number of (message, lane) within the program.
        peer: Group rank at the other end.
        tag: Number of (message, lane) within the group, equal at both ends.
        parts: The rows that travel in the message, in order.
        elements: Elements of the message.
        staging: Staging buffer that a message is received into, None for straight into its slots.
        is_first: Whether it is the first lane of its message, with the same `do`.
        is_last: Whether it is the last one.
        tick: Time on the virtual clock.
    """

    do: Do
    key: int
    peer: int
    tag: int
    parts: tuple[Part, ...]
    elements: int
    staging: int | None
    is_first: bool
    is_last: bool
    tick: int


@dataclass(frozen=True, slots=True)
class Program:
    """The actions of a rank.

    Attributes:
        actions: In the order in which they are done.
        lanes: Parts that each chunk is cut into.
        staging_elements: Size of a staging buffer.
        n_staging: Number of staging buffers.
        scratch_elements: Size of the scratch buffer.
        input_elements: Size of the input tensor.
        output_elements: Size of the output tensor.
        has_input: Whether the rank puts data in.
        has_output: Whether the rank gets data out.
        writes_input: Whether a slot that lies in the input tensor alone is written.
        copies: Where the input belongs in the output tensor before anything else is done, as
            (start in the input, start in the output, elements).
    """

    actions: tuple[Action, ...]
    lanes: int
    staging_elements: int
    n_staging: int
    scratch_elements: int
    input_elements: int
    output_elements: int
    has_input: bool
    has_output: bool
    writes_input: bool
    copies: tuple[tuple[int, int, int], ...]


def compile_program(
    bound: BoundSchedule,
    place: int,
    *,
    segment_bytes: int,
    depth: int = 2,
    max_lanes: int | None = None,
) -> Program:
    """Return what a rank does.

    Args:
        bound: The schedule and its sizes.
        place: Group rank of the rank.
        segment_bytes: Size of a chunk's part that is aimed at. A chunk of half that size or more
            is cut into two parts at least.
        depth: Lanes in flight.
        max_lanes: Most parts of a chunk; None for any number.
    """
    return _Compiler(bound, place, segment_bytes, depth, max_lanes).program()


class _Compiler:
    """Collects the actions of one rank."""

    def __init__(
        self,
        bound: BoundSchedule,
        place: int,
        segment_bytes: int,
        depth: int,
        max_lanes: int | None,
    ) -> None:
        self.bound = bound
        self.place = place
        self.levels = levels(bound.schedule)
        self.layout: Layout = bound.layout(place)
        self.lanes = _lanes(bound, segment_bytes, max_lanes)
        self.depth = min(depth, self.lanes)
        self.timed: list[tuple[int, int, int, int, Action]] = []

    def program(self) -> Program:
        schedule = self.bound.schedule
        rows_of: dict[int, list[int]] = defaultdict(list)
        for row, message in enumerate(schedule.messages.of_row.tolist()):
            if self.place in (schedule.src[row], schedule.dst[row]):
                rows_of[message].append(row)
        for message, rows in rows_of.items():
            self._message(message, rows)
        self.timed.sort(key=lambda item: item[:4])
        actions, n_staging = _with_staging([item[4] for item in self.timed])
        return Program(
            actions=tuple(actions),
            lanes=self.lanes,
            staging_elements=max(
                (action.elements for action in actions if action.staging is not None), default=0
            ),
            n_staging=n_staging,
            scratch_elements=self.bound.scratch_elements(self.place),
            input_elements=self.bound.input_elements(self.place),
            output_elements=self.bound.output_elements(self.place),
            has_input=schedule.kind.has_input(self.place, schedule.root),
            has_output=schedule.kind.has_output(self.place, schedule.root),
            writes_input=self._writes_input(),
            copies=self._copies(),
        )

    def _writes_input(self) -> bool:
        schedule = self.bound.schedule
        rows = (schedule.dst == self.place).nonzero()[0]
        return any(
            self.layout.buffer[slot + k] == "input"
            for slot, n in zip(schedule.dst_slot[rows], schedule.n_slots[rows], strict=True)
            for k in range(n)
        )

    def _copies(self) -> tuple[tuple[int, int, int], ...]:
        pieces = self.bound.input(self.place)
        starts, counts = pieces.offset_elements.tolist(), pieces.elements.tolist()
        return tuple(
            (start, int(self.layout.offset_elements[slot]), count)
            for slot, start, count in zip(pieces.slots, starts, counts, strict=True)
            if self.layout.buffer[slot] == "output"
        )

    def _message(self, message: int, rows: list[int]) -> None:
        """Add the actions of one message, lane by lane; a lane that would be empty is left out."""
        schedule = self.bound.schedule
        elements = sum(int(self.bound.row_elements[row]) for row in rows)
        shares = [self._share(rows, lane) for lane in range(self.lanes)]
        used = [k for k, share in enumerate(shares) if share] if elements else [0]
        for lane in used:
            tag = message * self.lanes + lane
            ends = (lane == used[0], lane == used[-1])
            if schedule.src[rows[0]] == schedule.dst[rows[0]]:
                self._local(rows, lane, tag, shares[lane], ends)
            elif schedule.src[rows[0]] == self.place:
                self._send(rows, lane, tag, shares[lane], ends)
            else:
                self._receive(rows, lane, tag, shares[lane], ends)

    def _share(self, rows: list[int], lane: int) -> int:
        total = 0
        for row in rows:
            for elements in self._move_elements(row):
                low, high = _cut(elements, lane, self.lanes)
                total += high - low
        return total

    def _move_elements(self, row: int) -> list[int]:
        first = int(self.bound.moves.first[row])
        chunks = self.bound.move_chunk[first : first + int(self.bound.schedule.n_slots[row])]
        return [int(n) for n in self.bound.chunk_elements[chunks]]

    def _tick(self, level: int, lane: int) -> int:
        return level * self.lanes + lane

    def _local(
        self, rows: list[int], lane: int, tag: int, elements: int, ends: tuple[bool, bool]
    ) -> None:
        read = tuple(self._part(row, lane, "src") for row in rows)
        written = tuple(self._part(row, lane, "dst") for row in rows)
        start = self._tick(self.levels.start[rows[0]], lane)
        write = self._tick(self.levels.written[rows[0]] - 1, lane) + self.depth
        self._add(Do.SNAP, start, rows[0], tag, self.place, read, elements, 0, ends)
        self._add(Do.WRITE, write, rows[0], tag, self.place, written, elements, 0, ends)

    def _send(
        self, rows: list[int], lane: int, tag: int, elements: int, ends: tuple[bool, bool]
    ) -> None:
        peer = int(self.bound.schedule.dst[rows[0]])
        tick = self._tick(self.levels.start[rows[0]], lane)
        parts = tuple(self._part(row, lane, "src") for row in rows)
        self._add(Do.START, tick, rows[0], tag, peer, parts, elements, None, ends)
        # What waits for the send to have left its slots has a later tick, or the same.
        first = any(self.levels.urgent[row] for row in rows)
        sent = tick + self.depth
        self._add(Do.SENT, sent, rows[0], tag, peer, parts, elements, None, ends, first=first)

    def _receive(
        self, rows: list[int], lane: int, tag: int, elements: int, ends: tuple[bool, bool]
    ) -> None:
        peer = int(self.bound.schedule.src[rows[0]])
        parts = tuple(self._part(row, lane, "dst") for row in rows)
        start = self._tick(self.levels.start[rows[0]], lane)
        free = max(self.levels.free[row] for row in rows)
        is_direct = (
            len(rows) == 1
            and not parts[0].reduces
            and len(parts[0].pieces) <= 1
            and free <= self.levels.start[rows[0]]
        )
        written = max(self.levels.written[row] for row in rows)
        write = self._tick(written - 1, lane) + self.depth
        staging = None if is_direct else 0
        self._add(Do.POST, start, rows[0], tag, peer, parts, elements, staging, ends)
        self._add(Do.WRITE, write, rows[0], tag, peer, parts, elements, staging, ends)

    def _add(
        self,
        do: Do,
        tick: int,
        row: int,
        tag: int,
        peer: int,
        parts: tuple[Part, ...],
        elements: int,
        staging: int | None,
        ends: tuple[bool, bool],
        *,
        first: bool = False,
    ) -> None:
        action = Action(do, tag, peer, tag, parts, elements, staging, *ends, tick)
        self.timed.append((tick, 0 if first else do, row, tag, action))

    def _part(self, row: int, lane: int, end: str) -> Part:
        """Return where a lane's share of a row lies at this rank, as the row's `end`."""
        slot = int(getattr(self.bound.schedule, f"{end}_slot")[row])
        pieces: list[Piece] = []
        at = 0
        for k, elements in enumerate(self._move_elements(row)):
            low, high = _cut(elements, lane, self.lanes)
            buffer = BUFFERS.index(self.layout.buffer[slot + k])
            offset = int(self.layout.offset_elements[slot + k])
            pieces.append(Piece(buffer, offset + low, offset + high, at + low))
            at += elements
        reduces = bool(self.bound.schedule.reduce[row])
        return Part(row, _joined(pieces), reduces)


def _joined(pieces: list[Piece]) -> tuple[Piece, ...]:
    """Return the pieces without empty ones, neighbours in memory and in the data made one."""
    joined: list[Piece] = []
    for piece in pieces:
        if piece.start == piece.stop:
            continue
        last = joined[-1] if joined else None
        is_next = (
            last is not None
            and last.buffer == piece.buffer
            and last.stop == piece.start
            and last.at + last.stop - last.start == piece.at
        )
        if last is not None and is_next:
            joined[-1] = last._replace(stop=piece.stop)
        else:
            joined.append(piece)
    return tuple(joined)


def _cut(elements: int, lane: int, lanes: int) -> tuple[int, int]:
    """Return the part of a chunk that belongs to a lane, as a range of its elements."""
    return elements * lane // lanes, elements * (lane + 1) // lanes


def _lanes(bound: BoundSchedule, segment_bytes: int, most: int | None) -> int:
    """Return the number of lanes; all ranks come to the same."""
    elements = bound.chunk_elements[bound.move_chunk]
    largest = int(elements.max(initial=0)) * bound.itemsize
    lanes = -(-largest // segment_bytes)
    if largest >= LEAST_TO_CUT_BYTES:
        lanes = max(lanes, 2)
    return max(1, lanes if most is None else min(lanes, most))


def _with_staging(actions: list[Action]) -> tuple[list[Action], int]:
    """Give each staged message a buffer that no other one uses at that time."""
    placed: list[Action] = []
    held: dict[int, int] = {}
    idle: list[int] = []
    count = 0
    for action in actions:
        if action.staging is None:
            placed.append(action)
        elif action.do is not Do.WRITE:
            if not idle:
                idle.append(count)
                count += 1
            held[action.key] = idle.pop()
            placed.append(action._replace(staging=held[action.key]))
        else:
            idle.append(held[action.key])
            placed.append(action._replace(staging=held[action.key]))
    return placed, count


def batches(program: Program) -> list[tuple[Action, ...]]:
    """Return the actions in groups that can be issued at once: posts and starts of one tick.

    For backends such as NCCL, where a send and a receive of one step must be issued together.
    """
    starts = [0]
    for k, (one, two) in enumerate(pairwise(program.actions), start=1):
        if one.tick != two.tick or one.do not in ISSUES or two.do not in ISSUES:
            starts.append(k)
    ends = [*starts[1:], len(program.actions)]
    return [program.actions[a:b] for a, b in zip(starts, ends, strict=True) if a < b]
