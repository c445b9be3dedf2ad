"""When the rows of a schedule start and are written, if every message takes one unit of time.

All ranks work this out alike, so it gives them a common order of everything that happens.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from .order import Picked, moves, waves
from .schedule import Schedule


@dataclass(frozen=True, slots=True)
class Levels:
    """When things happen if every message takes one unit of time.

    Attributes:
        start: By row, when its message starts.
        written: By row, when it is written.
        free: By row, when everything that its target slots went through before is over; 0 if
            there was nothing.
        urgent: By row, whether something waits for its source slots as soon as it has left them:
            a write to them, or a message that may arrive in them.
    """

    start: list[int]
    written: list[int]
    free: list[int]
    urgent: list[bool]


@lru_cache(maxsize=64)
def levels(schedule: Schedule) -> Levels:
    """Return when each row of a schedule starts and is written, in units of a message's time.

    Raises:
        ScheduleError: Code DEADLOCK: there is no order, because `after` closes a circle.
    """
    walk = _Walk(schedule)
    moved = moves(schedule)
    src, dst, row = moved.src.tolist(), moved.dst.tolist(), moved.row.tolist()
    for wave in waves(schedule, moved):
        walk.start_messages([(row[move], src[move]) for move in _picked(len(row), wave.reads)])
        for move in _picked(len(row), wave.writes):
            walk.write(row[move], dst[move])
    return walk.levels


def _picked(n: int, picked: Picked) -> list[int]:
    return list(range(n)[picked]) if isinstance(picked, slice) else picked.tolist()


class _Lane:
    """The messages that a place sends on one channel, by step."""

    def __init__(self) -> None:
        self.arrivals: dict[int, int] = {}  # the last arrival of each step
        self.done = 0  # the last arrival of the steps that left `arrivals`

    def arrived(self, last_step: int) -> int:
        """Return when all messages of the steps up to `last_step` have arrived."""
        for step in [step for step in self.arrivals if step <= last_step]:
            self.done = max(self.done, self.arrivals.pop(step))
        return self.done

    def add(self, step: int, arrival: int) -> None:
        self.arrivals[step] = max(arrival, self.arrivals.get(step, 0))


class _Walk:
    """Follows the rows in an order of the wait graph and notes when each access is over."""

    def __init__(self, schedule: Schedule) -> None:
        n = len(schedule)
        self.levels = Levels([0] * n, [0] * n, [0] * n, [False] * n)
        self._window = schedule.window
        self._step = schedule.step.tolist()
        self._src = schedule.src.tolist()
        self._dst = schedule.dst.tolist()
        self._channel = schedule.channel.tolist()
        self._message = schedule.messages.of_row.tolist()
        self._earlier: dict[int, list[int]] = defaultdict(list)
        for row, earlier in schedule.after.tolist():
            self._earlier[row].append(earlier)
        self._lanes: dict[tuple[int, int], _Lane] = defaultdict(_Lane)
        self._over: dict[int, int] = {}  # when the accesses of a cell so far are over
        self._holds: dict[int, int] = {}  # when a cell got what it holds
        self._readers: dict[int, list[int]] = defaultdict(list)  # since then

    def start_messages(self, reads: list[tuple[int, int]]) -> None:
        """Start the messages that some reads, pairs (row, cell), belong to."""
        by_message: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for row, cell in reads:
            by_message[self._message[row]].append((row, cell))
        for group in by_message.values():
            first = group[0][0]
            lane = self._lanes[self._src[first], self._channel[first]]
            begin = lane.arrived(self._step[first] - self._window)
            for row, cell in group:
                begin = max(begin, self._holds.get(cell, 0), self._after(row))
            lane.add(self._step[first], begin + 1)
            for row, cell in group:
                self.levels.start[row] = begin
                self._over[cell] = max(begin + 1, self._over.get(cell, 0))
                self._readers[cell].append(row)

    def _after(self, row: int) -> int:
        begin = 0
        for earlier in self._earlier[row]:
            ends_here = self._dst[earlier] == self._src[row]
            over = self.levels.written if ends_here else self.levels.start
            begin = max(begin, over[earlier] + (0 if ends_here else 1))
        return begin

    def write(self, row: int, cell: int) -> None:
        """Write one of a row's cells."""
        start, before = self.levels.start, self._over.get(cell, 0)
        written = max(self.levels.written[row], start[row] + 1, before)
        self.levels.free[row] = max(self.levels.free[row], before)
        self.levels.written[row] = self._over[cell] = self._holds[cell] = written
        for reader in self._readers.pop(cell, ()):
            left = start[reader] + 1
            self.levels.urgent[reader] |= written <= left or before == left <= start[row]
