"""The step model's engine: what has to be done, and when each piece of it happens.

    work = planning.plan(bound, topology, model)
    times = work.times(sharing=True)

There are two passes. `program_order` takes each message at the full rate of its path, in one walk
over the rows. Where `after` reaches back, or where two messages may have met on a link, `events`
goes through what happens in order of time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import events, program_order
from .compiled import run
from .epochs import Epochs
from .order import Policy, step_ordered, wait_graph
from .program_order import Program
from .routing import Links, Paths
from .schedule import Schedule

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# From so many messages at once on, an event is more work than a row.
_AT_ONCE = 64


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """When everything happened, in nanoseconds.

    Attributes:
        start, arrived: Of each message, (messages,).
        written: Of each row, (rows,).
    """

    start: Floats
    arrived: Floats
    written: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What has to be done.

    Attributes:
        schedule: The schedule.
        policy: When a message may start.
        program: The same as arrays.
        paths: The messages' paths.
        links: The links.
        epochs: The network over time.
    """

    schedule: Schedule
    policy: Policy
    program: Program
    paths: Paths
    links: Links
    epochs: Epochs

    @property
    def write_ns(self) -> Floats | float:
        """What writing each row costs: (rows,), or 0 where nothing does."""
        return self.program.write_ns if len(self.program.write_ns) else 0.0

    def times(self, *, sharing: bool) -> Times:
        """Return when everything happens.

        Args:
            sharing: Whether messages that use one link at one time share its rate.

        Raises:
            ScheduleError: Code DEADLOCK: the schedule waits in a circle; the message prints it.
            TopologyError: A message is under way when links fail, and no path is left.
        """
        times = self._times(sharing=sharing)
        self.epochs.check(self.program.pair, times.start, times.arrived)
        return times

    def _times(self, *, sharing: bool) -> Times:
        p = self.program
        one_by_one = p.burst_bytes > 0 or len(p.change_ns) > 0 or p.ports > 0
        if not one_by_one and step_ordered(self.schedule):
            times, met = self.in_program_order()
            if not (met and sharing):
                return times
        return self.by_events(sharing=sharing)

    def in_program_order(self) -> tuple[Times, bool]:
        """Return the times of messages alone on their paths, and whether two may have met."""
        times = self._no_times()
        walk = run(program_order.walk, len(self.schedule))
        met = walk(self.program, times.start, times.arrived, times.written)
        return times, bool(met)

    def by_events(self, *, sharing: bool) -> Times:
        """Return the times by going through what happens in order of time."""
        times = self._no_times()
        program = self.program
        if not sharing:  # as if no path had a link
            program = program._replace(path_starts=np.zeros_like(program.path_starts))
        if not events.play(program, self._pick, times.start, times.arrived, times.written):
            wait_graph(self.schedule, self.policy).levels()  # raises, and prints the cycle
        return times

    def changes(self) -> events.Changes:
        """Return when messages that share links changed their speeds, by going through it again."""
        return events.changes(self.program, self._pick)

    def _pick(self, kernel: Any) -> Any:
        """Return a kernel of `events` as it is to be run."""
        # What flows at once is shared anew at each event: the work grows with its square.
        at_once = int(np.unique(self.schedule.step, return_counts=True)[1].max(initial=0))
        n = len(self.schedule)
        return run(kernel, max(n, n * at_once // _AT_ONCE))

    def _no_times(self) -> Times:
        n = len(self.program.size_bytes)
        return Times(np.zeros(n), np.zeros(n), np.zeros(len(self.schedule)))
