"""When the rows of a schedule start and are written, if every message takes one unit of time.

All ranks work this out alike, so it gives them a common order of everything that happens.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from .order import moves, waves
from .schedule import Schedule


@dataclass(frozen=True, slots=True)
class Levels:
    """When things happen if every message takes one unit of time.

    Attributes:
        start: By row, when its message starts.
        written: By row, when it is written.
        free: By row, when everything that its slots went through before is over; None if nothing.
        urgent: By row, whether one of its source slots is written, or free for a message that
            starts, one unit after the row's start.
    """

    start: list[int]
    written: list[int]
    free: list[int | None]
    urgent: list[bool]


@lru_cache(maxsize=64)
def levels(schedule: Schedule) -> Levels:
    """Return when each row of a schedule starts and is written, in units of a message's time."""
    moved = moves(schedule)
    row_of, src, dst = moved.row.tolist(), moved.src.tolist(), moved.dst.tolist()
    of_row = schedule.messages.of_row.tolist()
    place, channel, step = schedule.src.tolist(), schedule.channel.tolist(), schedule.step.tolist()
    ends_at = schedule.dst.tolist()
    earlier_of: dict[int, list[int]] = defaultdict(list)
    for row, earlier in schedule.after.tolist():
        earlier_of[row].append(earlier)

    n_rows = len(schedule)
    start, written = [0] * n_rows, [0] * n_rows
    free: list[int | None] = [None] * n_rows
    urgent = [False] * n_rows
    readers: dict[int, list[int]] = defaultdict(list)  # rows that read a cell since its last write
    last_read: dict[int, int] = {}
    last_write: dict[int, int] = {}
    sends: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # (step, arrival)
    numbers = range(len(row_of))
    for wave in waves(schedule, moved):
        reads = _picked(numbers, wave.reads)
        by_message: dict[int, list[int]] = defaultdict(list)
        for move in reads:
            by_message[of_row[row_of[move]]].append(move)
        for group in by_message.values():
            row = row_of[group[0]]
            lane = (place[row], channel[row])
            begin = max((last_write.get(src[move], 0) for move in group), default=0)
            for sent_at, arrival in sends[lane]:
                if sent_at <= step[row] - schedule.window:
                    begin = max(begin, arrival)
            for other in {row_of[move] for move in group}:
                for earlier in earlier_of[other]:
                    here = ends_at[earlier] == place[other]
                    begin = max(begin, written[earlier] if here else start[earlier] + 1)
            sends[lane].append((step[row], begin + 1))
            for move in group:
                start[row_of[move]] = begin
                last_read[src[move]] = max(begin + 1, last_read.get(src[move], 0))
                readers[src[move]].append(row_of[move])
        for move in _picked(numbers, wave.writes):
            row, cell = row_of[move], dst[move]
            before = max(last_read.get(cell, 0), last_write.get(cell, 0))
            if before:
                free[row] = max(before, free[row] or 0)
            written[row] = max(written[row], start[row] + 1, before)
            last_write[cell] = written[row]
            for reader in readers.pop(cell, ()):
                is_next = before == start[reader] + 1 and before <= start[row]
                urgent[reader] |= is_next or written[row] <= start[reader] + 1
    return Levels(start, written, free, urgent)


def _picked(numbers: range, picked: object) -> list[int]:
    return list(numbers[picked]) if isinstance(picked, slice) else picked.tolist()  # type: ignore
