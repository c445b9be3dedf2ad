"""What let a message start, and what let a row be written, among all that they waited for.

    causes = Causes(work, times)
    causes.of_start(5)      # Cause(time_ns=4000.0, why=<Wait.DATA: 'data'>, node=Node(...))

Of all that something waited for, what came last let it go.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .engine import Times, Work
from .groups import Groups, count_up_to

Ints = npt.NDArray[Any]  # of any width
Floats = npt.NDArray[np.float64]


class Wait(StrEnum):
    """What a stage of the chain waited for last."""

    NOTHING = "nothing"  # it went at once
    DATA = "data"  # what it sends was written
    STEP = "step"  # an earlier step of its place was done
    AFTER = "after"  # the plan says after which row it goes
    RANK = "rank"  # its rank was late
    NOTICE = "notice"  # its receiver said that it is ready
    PORT = "port"  # one of its ends was busy with as many messages as it can have
    SLOT = "slot"  # where it is written was in use


class Node(NamedTuple):
    """A moment: message `number` starts, or has arrived, or row `number` is written."""

    kind: int
    number: int


START, ARRIVED, WRITTEN = range(3)


class Cause(NamedTuple):
    """What something waited for.

    Attributes:
        time_ns: When it was there.
        why: What it is.
        node: The moment from which it came; None for the beginning.
        since_ns: When that was, if it took time from there.
    """

    time_ns: float
    why: Wait
    node: Node | None
    since_ns: float | None = None


_AT_ONCE = Cause(0.0, Wait.NOTHING, None)


class Causes:
    """Looks up what let a message start, and what let a row be written.

    Args:
        work: What was done.
        times: When.
    """

    def __init__(self, work: Work, times: Times) -> None:
        self.work, self.times, self.program = work, times, work.program

    def write_ns(self, row: int) -> float:
        """Return what writing a row takes."""
        return float(self.program.write_ns[row]) if len(self.program.write_ns) else 0.0

    def of_write(self, row: int) -> Cause:
        """Return what let a row be written: its arrival, or what used its slots before."""
        p, times = self.program, self.times
        m = int(p.message[row])
        arrived = float(times.arrived[m])
        cause = Cause(arrived, Wait.DATA, Node(ARRIVED, m))
        if arrived + self.write_ns(row) == times.written[row]:
            return cause
        for key in range(p.dst_key[row], p.dst_key[row] + p.n_slots[row]):
            writes = self.writes.of_group(key)
            at = count_up_to(writes, row - 1)
            since = -1
            if at > 0:
                before = int(writes[at - 1])
                since = int(p.step[before])
                written = Cause(float(times.written[before]), Wait.SLOT, Node(WRITTEN, before))
                cause = max(cause, written, key=_time)
            reads = self.reads.of_group(key)
            low, high = (count_up_to(p.step[reads], step) for step in (since, int(p.step[row])))
            if low < high:
                readers = p.message[reads[low:high]]
                last = int(readers[times.start[readers].argmax()])
                read = Cause(float(times.start[last]), Wait.SLOT, Node(START, last))
                cause = max(cause, read, key=_time)
        if len(p.late_ns) and p.late_ns[row] > cause.time_ns:
            return _late(float(p.late_ns[row]))
        return cause

    def of_start(self, m: int) -> Cause:
        """Return what let a message start: its data, a step, a row before it, or its rank."""
        p, times = self.program, self.times
        cause = _AT_ONCE
        for row in self._rows(m):
            for key in range(p.src_key[row], p.src_key[row] + p.n_slots[row]):
                writes = self.writes.of_group(key)
                at = count_up_to(p.step[writes], int(p.step[row]) - 1)
                if at > 0:
                    before = int(writes[at - 1])
                    written = float(times.written[before])
                    cause = max(cause, Cause(written, Wait.DATA, Node(WRITTEN, before)), key=_time)
        if cause.node is not None and cause.time_ns == times.start[m]:
            return cause
        others = [*self._steps_before(m), *self._after(m), *self._notice(m), *self._ports(m)]
        cause = max([cause, *others], key=_time)
        if len(p.ready_ns) and p.ready_ns[m] > cause.time_ns:
            return _late(float(p.ready_ns[m]))
        return cause

    def _steps_before(self, m: int) -> Iterator[Cause]:
        """Yield what was done last in the steps that a message's lanes had to finish first."""
        p = self.program
        for lane in {int(lanes[m]) for lanes in (p.src_lane, p.dst_lane) if len(lanes)}:
            yield from self._done(lane, m)

    def _notice(self, m: int) -> Iterator[Cause]:
        """Yield the notice of its receiver that a message waited for, if it did."""
        p = self.program
        if len(p.notice_lane) and p.notice_ns[m] >= 0:
            entered = max([_AT_ONCE, *self._done(int(p.notice_lane[m]), m)], key=_time)
            there = entered.time_ns + float(p.notice_ns[m])
            yield Cause(there, Wait.NOTICE, entered.node, entered.time_ns)

    def _ports(self, m: int) -> Iterator[Cause]:
        """Yield the last messages that gave back a port at each end before a message started."""
        if self.program.ports:
            for others in self.at_ports(m):
                done = self.times.arrived[others]
                before = others[(done <= self.times.start[m]) & (others != m)]
                if len(before):
                    last = int(before[self.times.arrived[before].argmax()])
                    ended = float(self.times.arrived[last])
                    yield Cause(ended, Wait.PORT, Node(ARRIVED, last))

    def _done(self, lane: int, m: int) -> Iterator[Cause]:
        """Yield what a lane had to finish last before it entered a message's step."""
        p, times = self.program, self.times
        limit = int(p.step[p.first_row[m]]) - p.window
        if p.is_lockstep:
            rows = np.arange(*self._last_steps(p.step, limit))
            yield from _last(rows, times.written, WRITTEN)
            return
        sent = self.sent.of_group(lane)
        low, high = self._last_steps(p.step[p.first_row[sent]], limit)
        yield from _last(sent[low:high], times.arrived, ARRIVED)
        if len(p.dst_lane):
            received = self.received.of_group(lane)
            low, high = self._last_steps(p.step[received], limit)
            yield from _last(received[low:high], times.written, WRITTEN)

    def _last_steps(self, steps: Ints, limit: int) -> tuple[int, int]:
        """Return where the last steps up to a limit lie, as many as may be under way at once.

        What lies before these was done before the last of them began.
        """
        high = count_up_to(steps, limit)
        if high == 0:
            return 0, 0
        return count_up_to(steps, int(steps[high - 1]) - self.program.window), high

    def _after(self, m: int) -> Iterator[Cause]:
        """Yield the rows after which a message goes by the plan."""
        p, times = self.program, self.times
        for row in self._rows(m):
            later = p.after[:, 0]
            for pair in range(count_up_to(later, row - 1), count_up_to(later, row)):
                earlier = int(p.after[pair, 1])
                if p.after_written[pair]:
                    done, node = times.written, Node(WRITTEN, earlier)
                else:
                    done, node = times.arrived, Node(ARRIVED, int(p.message[earlier]))
                yield Cause(float(done[node.number]), Wait.AFTER, node)

    def _rows(self, m: int) -> list[int]:
        """Return the rows of a message."""
        first_row = self.program.first_row
        if len(first_row) == len(self.program.step):
            return [int(first_row[m])]
        rows: list[int] = self._by_message.of_group(m).tolist()
        return rows

    @cached_property
    def _by_message(self) -> Groups:
        p = self.program
        return Groups.of(p.message, len(p.first_row))

    @cached_property
    def writes(self) -> Groups:
        """Rows that write each key."""
        p = self.program
        return Groups.of(p.dst_key, p.n_keys, p.n_slots)

    @cached_property
    def reads(self) -> Groups:
        """Rows that read each key."""
        p = self.program
        return Groups.of(p.src_key, p.n_keys, p.n_slots)

    @cached_property
    def sent(self) -> Groups:
        """Messages that each lane sends."""
        return Groups.of(self.program.src_lane, self.program.n_lanes)

    def at_ports(self, m: int) -> tuple[Ints, Ints]:
        """Return the messages from a message's source, and those to its destination."""
        p = self.program
        sent, received = self._by_place
        return sent.of_group(int(p.src_place[m])), received.of_group(int(p.dst_place[m]))

    @cached_property
    def _by_place(self) -> tuple[Groups, Groups]:
        p = self.program
        apart = np.where(p.src_place == p.dst_place, self.work.schedule.n_places, 0)
        n = 2 * self.work.schedule.n_places
        return Groups.of(p.src_place + apart, n), Groups.of(p.dst_place + apart, n)

    @cached_property
    def received(self) -> Groups:
        """Rows that each lane receives."""
        p = self.program
        return Groups.of(p.dst_lane[p.message], p.n_lanes)


def _time(cause: Cause) -> float:
    return cause.time_ns


def _late(time_ns: float) -> Cause:
    return Cause(time_ns, Wait.RANK, None, 0.0)


def _last(numbers: Ints, done: Floats, kind: int) -> Iterator[Cause]:
    """Yield the last of some messages or rows of a step that was done, if there is any."""
    if len(numbers):
        last = int(numbers[done[numbers].argmax()])
        yield Cause(float(done[last]), Wait.STEP, Node(kind, last))
