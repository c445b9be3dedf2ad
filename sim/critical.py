"""The chain of transfers that decided how long a replay took, and why each of them waited.

    for stage in replay.chain:
        stage.row, stage.waited_for, stage.bytes_ns

It is walked backwards from the last write. Of all that a start or a write waited for, what came
last let it go; only that is looked up, so that no wait graph needs to be built.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .causes import ARRIVED, START, WRITTEN, Cause, Causes, Node, Wait
from .crowd import Crowd
from .engine import Times, Work
from .loads import begins, paths_at

# A message took longer than alone on its path if it did by this much, relative to the time.
_ROUNDING = 1e-9

# What a stage's time consists of.
PARTS = ("late", "notice", "latency", "bytes", "shared", "write")


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
    node: Node | None = Node(WRITTEN, int(np.argmax(times.written)))
    while node is not None:
        stage, node = walk.stage(node)
        stages.append(stage)
    return tuple(reversed(stages))


class _Walk:
    """Makes stages of what let go what."""

    def __init__(self, work: Work, times: Times) -> None:
        self.work, self.times, self.program = work, times, work.program
        self.causes, self.crowd = Causes(work, times), Crowd(work, times)

    def stage(self, node: Node) -> tuple[Stage, Node | None]:
        """Return the stage that ends with a moment, and the moment that let it go."""
        times, p = self.times, self.program
        parts: dict[str, float] = {}
        link = None
        kind, row = node.kind, node.number
        if kind == WRITTEN:
            end = float(times.written[row])
            parts["write_ns"] = self.causes.write_ns(row)
            m = int(p.message[row])
            cause = self.causes.of_write(row)
            if cause.node != (ARRIVED, m):
                return self._stage(row, cause, end, parts), cause.node
        else:
            m, row = node.number, int(p.first_row[node.number])
            end = float((times.arrived if kind == ARRIVED else times.start)[m])
        if kind != START:
            parts |= self._on_the_way(m)
            if parts["shared_ns"]:
                link = self.crowd.busiest(m)
        cause = self.causes.of_start(m)
        return self._stage(row, cause, end, parts, link), cause.node

    @staticmethod
    def _stage(
        row: int,
        cause: Cause,
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
