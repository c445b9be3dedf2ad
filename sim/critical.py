"""The chain of transfers that decided how long a replay took, and why each of them waited.

    for stage in replay.chain:
        stage.row, stage.waited_for, stage.bytes_ns

It is walked backwards from the last write. Of all that a start or a write waited for, what came
last let it go; only that is looked up, so that no wait graph needs to be built.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import kernel, run
from .engine import Times, Work
from .loads import begins, paths_at

Ints = npt.NDArray[Any]  # of any width
Floats = npt.NDArray[np.float64]

# A message took longer than alone on its path if it did by this much, relative to the time.
_ROUNDING = 1e-9


# What a stage's time consists of.
PARTS = ("late", "notice", "latency", "bytes", "shared", "write")


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


@dataclass(frozen=True, slots=True)
class Stage:
    """One transfer of the chain: from when it was let go until it let the next one go.

    Attributes:
        row: Row of the schedule.
        waited_for: What let it go.
        begin_ns, end_ns: When it was let go, and when it let the next one go.
        late_ns: Until its rank was there.
        notice_ns: Until the receiver's notice was there, from when that entered the step.
        latency_ns: Latency of its path, with the fixed cost of a message.
        bytes_ns: What its bytes take alone on the path.
        shared_ns: What they took longer, because others used a link of the path or it slowed down;
            less than 0 where it sped up, or passed a burst at once.
        write_ns: Copying or reducing it.
        link: Where it took longer: the link of its path on which others had most to carry.
    """

    row: int
    waited_for: Wait
    begin_ns: float
    end_ns: float
    late_ns: float = 0.0
    notice_ns: float = 0.0
    latency_ns: float = 0.0
    bytes_ns: float = 0.0
    shared_ns: float = 0.0
    write_ns: float = 0.0
    link: tuple[str, str] | None = None


def critical_chain(work: Work, times: Times) -> tuple[Stage, ...]:
    """Return the stages that decided the last write, the first first.

    Each begins when the one before it ends, so their parts sum up to the time of that write.

    Args:
        work: What was done.
        times: When.
    """
    if not len(times.written):
        return ()
    walk = _Walk(work, times)
    stages: list[Stage] = []
    node: _Node | None = _Node(_WRITTEN, int(np.argmax(times.written)))
    while node is not None:
        stage, node = walk.stage(node)
        stages.append(stage)
    return tuple(reversed(stages))


class _Node(NamedTuple):
    """A moment: message `number` starts, or has arrived, or row `number` is written."""

    kind: int
    number: int


_START, _ARRIVED, _WRITTEN = range(3)


class _Cause(NamedTuple):
    """What something waited for.

    Attributes:
        time_ns: When it was there.
        why: What it is.
        node: The moment from which it came; None for the beginning.
        since_ns: When that was, if it took time from there.
    """

    time_ns: float
    why: Wait
    node: _Node | None
    since_ns: float | None = None


_AT_ONCE = _Cause(0.0, Wait.NOTHING, None)


class _Walk:
    """Looks up what let a message start, and what let a row be written."""

    def __init__(self, work: Work, times: Times) -> None:
        self.work, self.times, self.program = work, times, work.program
        self.crowd = _Crowd(work, times)

    def stage(self, node: _Node) -> tuple[Stage, _Node | None]:
        """Return the stage that ends with a moment, and the moment that let it go."""
        times, p = self.times, self.program
        parts: dict[str, float] = {}
        link = None
        kind, row = node.kind, node.number
        if kind == _WRITTEN:
            end = float(times.written[row])
            parts["write_ns"] = self._write_ns(row)
            m = int(p.message[row])
            cause = self._why_written(row)
            if cause.node != (_ARRIVED, m):
                return self._stage(row, cause, end, parts), cause.node
        else:
            m, row = node.number, int(p.first_row[node.number])
            end = float((times.arrived if kind == _ARRIVED else times.start)[m])
        if kind != _START:
            parts |= self._on_the_way(m)
            if parts["shared_ns"]:
                link = self.crowd.busiest(m)
        cause = self._why_started(m)
        return self._stage(row, cause, end, parts, link), cause.node

    @staticmethod
    def _stage(
        row: int,
        cause: _Cause,
        end: float,
        parts: dict[str, float],
        link: tuple[str, str] | None = None,
    ) -> Stage:
        begin = cause.time_ns
        if cause.since_ns is not None:
            begin = cause.since_ns
            parts["late_ns" if cause.why is Wait.RANK else "notice_ns"] = cause.time_ns - begin
        return Stage(row, cause.why, begin, end, link=link, **parts)

    def _on_the_way(self, m: int) -> dict[str, float]:
        """Return the parts of a message's time between its start and its arrival."""
        p, times, one = self.program, self.times, np.array([m])
        arrived, start = float(times.arrived[m]), float(times.start[m])
        latency = float(begins(self.work, times, one)[0]) - start
        path = int(paths_at(self.work, one, times.start[one])[0])
        flowing = arrived - start - latency
        shared = flowing - float(p.size_bytes[m] / p.rate[path])
        if abs(shared) <= _ROUNDING * arrived:
            shared = 0.0
        return {"latency_ns": latency, "bytes_ns": flowing - shared, "shared_ns": shared}

    def _write_ns(self, row: int) -> float:
        return float(self.program.write_ns[row]) if len(self.program.write_ns) else 0.0

    def _why_written(self, row: int) -> _Cause:
        """Return what let a row be written: its arrival, or what used its slots before."""
        p, times = self.program, self.times
        m = int(p.message[row])
        arrived = float(times.arrived[m])
        cause = _Cause(arrived, Wait.DATA, _Node(_ARRIVED, m))
        if arrived + self._write_ns(row) == times.written[row]:
            return cause
        for key in range(p.dst_key[row], p.dst_key[row] + p.n_slots[row]):
            writes = self.writes.of_group(key)
            at = _count_up_to(writes, row - 1)
            since = -1
            if at > 0:
                before = int(writes[at - 1])
                since = int(p.step[before])
                written = _Cause(float(times.written[before]), Wait.SLOT, _Node(_WRITTEN, before))
                cause = max(cause, written, key=_time)
            reads = self.reads.of_group(key)
            low, high = (_count_up_to(p.step[reads], step) for step in (since, int(p.step[row])))
            if low < high:
                readers = p.message[reads[low:high]]
                last = int(readers[times.start[readers].argmax()])
                read = _Cause(float(times.start[last]), Wait.SLOT, _Node(_START, last))
                cause = max(cause, read, key=_time)
        if len(p.late_ns) and p.late_ns[row] > cause.time_ns:
            return _late(float(p.late_ns[row]))
        return cause

    def _why_started(self, m: int) -> _Cause:
        """Return what let a message start: its data, a step, a row before it, or its rank."""
        p, times = self.program, self.times
        cause = _AT_ONCE
        for row in self._rows(m):
            for key in range(p.src_key[row], p.src_key[row] + p.n_slots[row]):
                writes = self.writes.of_group(key)
                at = _count_up_to(p.step[writes], int(p.step[row]) - 1)
                if at > 0:
                    before = int(writes[at - 1])
                    written = float(times.written[before])
                    cause = max(
                        cause, _Cause(written, Wait.DATA, _Node(_WRITTEN, before)), key=_time
                    )
        if cause.node is not None and cause.time_ns == times.start[m]:
            return cause
        others = [*self._steps_before(m), *self._after(m), *self._notice(m), *self._ports(m)]
        cause = max([cause, *others], key=_time)
        if len(p.ready_ns) and p.ready_ns[m] > cause.time_ns:
            return _late(float(p.ready_ns[m]))
        return cause

    def _steps_before(self, m: int) -> Iterator[_Cause]:
        """Yield what was done last in the steps that a message's lanes had to finish first."""
        p = self.program
        for lane in {int(lanes[m]) for lanes in (p.src_lane, p.dst_lane) if len(lanes)}:
            yield from self._done(lane, m)

    def _notice(self, m: int) -> Iterator[_Cause]:
        """Yield the notice of its receiver that a message waited for, if it did."""
        p = self.program
        if len(p.notice_lane) and p.notice_ns[m] >= 0:
            entered = max([_AT_ONCE, *self._done(int(p.notice_lane[m]), m)], key=_time)
            there = entered.time_ns + float(p.notice_ns[m])
            yield _Cause(there, Wait.NOTICE, entered.node, entered.time_ns)

    def _ports(self, m: int) -> Iterator[_Cause]:
        """Yield the last messages that gave back a port at each end before a message started."""
        if self.program.ports:
            for others in self.at_ports(m):
                done = self.times.arrived[others]
                before = others[(done <= self.times.start[m]) & (others != m)]
                if len(before):
                    last = int(before[self.times.arrived[before].argmax()])
                    ended = float(self.times.arrived[last])
                    yield _Cause(ended, Wait.PORT, _Node(_ARRIVED, last))

    def _done(self, lane: int, m: int) -> Iterator[_Cause]:
        """Yield what a lane had to finish last before it entered a message's step."""
        p, times = self.program, self.times
        limit = int(p.step[p.first_row[m]]) - p.window
        if p.is_lockstep:
            rows = np.arange(*self._last_steps(p.step, limit))
            yield from _last(rows, times.written, _WRITTEN)
            return
        sent = self.sent.of_group(lane)
        low, high = self._last_steps(p.step[p.first_row[sent]], limit)
        yield from _last(sent[low:high], times.arrived, _ARRIVED)
        if len(p.dst_lane):
            received = self.received.of_group(lane)
            low, high = self._last_steps(p.step[received], limit)
            yield from _last(received[low:high], times.written, _WRITTEN)

    def _last_steps(self, steps: Ints, limit: int) -> tuple[int, int]:
        """Return where the last steps up to a limit lie, as many as may be under way at once.

        What lies before these was done before the last of them began.
        """
        high = _count_up_to(steps, limit)
        if high == 0:
            return 0, 0
        return _count_up_to(steps, int(steps[high - 1]) - self.program.window), high

    def _after(self, m: int) -> Iterator[_Cause]:
        """Yield the rows after which a message goes by the plan."""
        p, times = self.program, self.times
        for row in self._rows(m):
            later = p.after[:, 0]
            for pair in range(_count_up_to(later, row - 1), _count_up_to(later, row)):
                earlier = int(p.after[pair, 1])
                if p.after_written[pair]:
                    done, node = times.written, _Node(_WRITTEN, earlier)
                else:
                    done, node = times.arrived, _Node(_ARRIVED, int(p.message[earlier]))
                yield _Cause(float(done[node.number]), Wait.AFTER, node)

    def _rows(self, m: int) -> list[int]:
        """Return the rows of a message."""
        first_row = self.program.first_row
        if len(first_row) == len(self.program.step):
            return [int(first_row[m])]
        rows: list[int] = self._by_message.of_group(m).tolist()
        return rows

    @cached_property
    def _by_message(self) -> _Groups:
        p = self.program
        return _Groups.of(p.message, len(p.first_row))

    @cached_property
    def writes(self) -> _Groups:
        """Rows that write each key."""
        p = self.program
        return _Groups.of(p.dst_key, p.n_keys, p.n_slots)

    @cached_property
    def reads(self) -> _Groups:
        """Rows that read each key."""
        p = self.program
        return _Groups.of(p.src_key, p.n_keys, p.n_slots)

    @cached_property
    def sent(self) -> _Groups:
        """Messages that each lane sends."""
        return _Groups.of(self.program.src_lane, self.program.n_lanes)

    def at_ports(self, m: int) -> tuple[Ints, Ints]:
        """Return the messages from a message's source, and those to its destination."""
        p = self.program
        sent, received = self._by_place
        return sent.of_group(int(p.src_place[m])), received.of_group(int(p.dst_place[m]))

    @cached_property
    def _by_place(self) -> tuple[_Groups, _Groups]:
        p = self.program
        apart = np.where(p.src_place == p.dst_place, self.work.schedule.n_places, 0)
        n = 2 * self.work.schedule.n_places
        return _Groups.of(p.src_place + apart, n), _Groups.of(p.dst_place + apart, n)

    @cached_property
    def received(self) -> _Groups:
        """Rows that each lane receives."""
        p = self.program
        return _Groups.of(p.dst_lane[p.message], p.n_lanes)


def _time(cause: _Cause) -> float:
    return cause.time_ns


def _late(time_ns: float) -> _Cause:
    return _Cause(time_ns, Wait.RANK, None, 0.0)


def _count_up_to(rising: Ints, limit: int) -> int:
    """Return how many of some rising numbers are at most a limit."""
    # In the numbers' own type: with another one numpy would convert all of them first.
    return int(np.searchsorted(rising, rising.dtype.type(limit), side="right"))


def _last(numbers: Ints, done: Floats, kind: int) -> Iterator[_Cause]:
    """Yield the last of some messages or rows of a step that was done, if there is any."""
    if len(numbers):
        last = int(numbers[done[numbers].argmax()])
        yield _Cause(float(done[last]), Wait.STEP, _Node(kind, last))


class _Groups(NamedTuple):
    """Numbers of things in groups: those of group g, rising, are order[starts[g] : starts[g+1]]."""

    starts: Ints
    order: Ints

    @staticmethod
    def of(group: Ints, n_groups: int, spans: Ints | None = None) -> _Groups:
        """Return things by their group, or by all of `spans` groups from theirs on."""
        each: Ints = np.ones(len(group), np.int8) if spans is None else spans
        ends = np.zeros(n_groups + 1, np.int64)
        ends += np.bincount(group, minlength=n_groups + 1)
        if spans is None:
            counts = ends[:-1]
        else:
            ends -= np.bincount(group + spans, minlength=n_groups + 1)
            counts = np.cumsum(ends[:-1])
        starts = np.concatenate([[0], np.cumsum(counts)])
        order: Ints = np.empty(int(starts[-1]), np.int32)
        run(_fill, len(group))(group, each, starts[:-1].copy(), order)
        return _Groups(starts, order)

    def of_group(self, group: int) -> Ints:
        found: Ints = self.order[self.starts[group] : self.starts[group + 1]]
        return found


@kernel
def _fill(group: Ints, spans: Ints, fill: Ints, order: Ints) -> None:
    """Put each thing's number where its groups have room."""
    for k in range(len(group)):
        for g in range(group[k], group[k] + spans[k]):
            order[fill[g]] = k
            fill[g] += 1


class _Crowd:
    """Finds the link on which a message met most others."""

    def __init__(self, work: Work, times: Times) -> None:
        self.work, self.times = work, times

    @cached_property
    def paths_on(self) -> _Groups:
        """Places in `path_links` by link."""
        return _Groups.of(self.work.program.path_links, len(self.work.program.link_rate))

    @cached_property
    def messages_on(self) -> _Groups:
        """Messages by path."""
        return _Groups.of(self.work.program.pair, len(self.work.program.rate))

    def busiest(self, m: int) -> tuple[str, str] | None:
        """Return the link of a message's path that had most to carry while its bytes flowed."""
        p, work, one = self.work.program, self.work, np.array([m])
        begin, end = float(begins(work, self.times, one)[0]), float(self.times.arrived[m])
        path = int(paths_at(work, one, self.times.start[one])[0])
        links = p.path_links[p.path_starts[path] : p.path_starts[path + 1]]
        if not len(links):
            return None
        load = [self._carried(int(link), begin, end) / p.link_rate[link] for link in links]
        return work.links.ends[int(links[int(np.argmax(load))]) % len(work.links.ends)]

    def _carried(self, link: int, begin: float, end: float) -> float:
        """Return about how many bytes a link carried in a time."""
        p, times = self.work.program, self.times
        hops = self.paths_on.of_group(link)
        paths = (np.searchsorted(p.path_starts, hops, side="right") - 1) % len(self.work.paths.rate)
        on_link = np.concatenate([self.messages_on.of_group(int(path)) for path in paths])
        arrived, began = times.arrived[on_link], begins(self.work, times, on_link)
        overlap = np.clip(np.minimum(arrived, end) - np.maximum(began, begin), 0, None)
        lasted = np.maximum(arrived - began, np.finfo(np.float64).tiny)
        return float((p.size_bytes[on_link] * overlap / lasted).sum())
