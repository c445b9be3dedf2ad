"""The step model: a schedule with its sizes, replayed on a topology.

    replay = simulate(schedule.bind(1 << 20, "float32"), topology("ring:100GB/s,1us", 8))
    replay.duration_ns, replay.busbw_Bps
    replay.t_arrived_ns[5]      # when the last byte of row 5 was at its destination
    trace = replay.trace()

A message takes the latency of its path, using no bandwidth, then its bytes at the max-min fair
rate. When it starts, and when what arrived is written, follows from the schedule's order and the
policy; see `order`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ScheduleError
from ..traces.trace import JSON, Trace
from ..units import format_bytes, format_ns
from .activity import Activity, activity
from .bind import BoundSchedule
from .collectives import busbw_factor
from .cost import Bounds, bounds
from .costs import Costs
from .critical import Stage, critical_chain
from .engine import Times, Work
from .loads import LinkLoads, link_loads
from .model import Model
from .planning import plan
from .schedule import Schedule
from .topology import Topology

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


# Times are int64 nanoseconds once they leave the model.
_LONGEST_NS = 2**63 - 1024  # as a float can tell it from 2**63
_YEAR_NS = 365.25 * 86400e9


@dataclass(frozen=True, eq=False, repr=False)
class Replay:
    """A schedule with the times of its rows.

    What follows from the times is worked out when it is first asked for.

    Attributes:
        bound: The schedule and its sizes.
        topology: What it ran on.
        parameters: The model's parameters.
        times: When each message leaves and arrives, and each row is written, not rounded.
    """

    bound: BoundSchedule
    topology: Topology
    parameters: Model
    times: Times
    _work: Work

    def __repr__(self) -> str:
        schedule = self.schedule
        what = f"{schedule.collective} by {schedule.algorithm}, {schedule.group_size} ranks"
        size, took = format_bytes(self.bound.size_bytes), format_ns(self.duration_ns)
        return f"Replay({what}, {size} on {self.topology.name}: {took})"

    @cached_property
    def links(self) -> LinkLoads:
        """What each link carried, and when."""
        return link_loads(self)

    @property
    def link_bytes(self) -> dict[tuple[str, str], int]:
        """Bytes that each directed link carried, headers included, by (from, to)."""
        return dict(zip(self.links.ends, self.links.size_bytes.round().astype(int).tolist()))

    @property
    def schedule(self) -> Schedule:
        """The schedule without its sizes."""
        return self.bound.schedule

    @property
    def start_ns(self) -> Floats:
        """When each row's message leaves, in unrounded nanoseconds, (rows,)."""
        return self._of_rows(self.times.start)

    @property
    def arrived_ns(self) -> Floats:
        """When each row's last byte is at its destination, in unrounded nanoseconds, (rows,)."""
        return self._of_rows(self.times.arrived)

    @property
    def written_ns(self) -> Floats:
        """When each row is copied or reduced, in unrounded nanoseconds, (rows,)."""
        return self.times.written

    def _of_rows(self, times: Floats) -> Floats:
        """Return the times of messages for each of their rows."""
        of_row = self.schedule.messages.of_row
        return times if len(times) == len(of_row) else times[of_row]

    @cached_property
    def t_start_ns(self) -> Ints:
        """When each row's message leaves, (rows,)."""
        return _rounded(self.start_ns)

    @cached_property
    def t_arrived_ns(self) -> Ints:
        """When each row's last byte is at its destination, (rows,)."""
        return _rounded(self.arrived_ns)

    @cached_property
    def t_written_ns(self) -> Ints:
        """When each row is copied or reduced into its slots, (rows,)."""
        return _rounded(self.written_ns)

    @cached_property
    def t_writing_ns(self) -> Ints:
        """When copying or reducing each row begins, (rows,): later than arrived where it was held.

        The slot was in use until then.
        """
        return _rounded(self.written_ns - self._work.write_ns)

    @cached_property
    def exact_duration_ns(self) -> float:
        """The duration before it is rounded."""
        return float(self.written_ns.max(initial=max(self.parameters.delay_ns.values(), default=0)))

    @property
    def duration_ns(self) -> int:
        """From the call to the last write, with the delays of ranks that came late."""
        return round(self.exact_duration_ns)

    @property
    def algbw_Bps(self) -> float:
        """Bytes of the whole data over the duration, as nccl-tests has it; 0 if it took no time.

        Source: nccl-tests, doc/PERFORMANCE.md.
        """
        duration = self.exact_duration_ns
        return self.bound.size_bytes * 1e9 / duration if duration > 0 else 0.0

    @property
    def busbw_Bps(self) -> float:
        """Algorithm bandwidth times the collective's factor; see `collectives.busbw_factor`."""
        schedule = self.schedule
        return self.algbw_Bps * busbw_factor(schedule.collective, schedule.group_size)

    @cached_property
    def bounds(self) -> Bounds:
        """Times that no algorithm can beat on this topology, for this collective and data."""
        return bounds(self)

    @property
    def costs(self) -> Costs:
        """What messages cost beside links: what the model says, else the topology."""
        return self.parameters.costs(self.topology)

    @property
    def model(self) -> dict[str, JSON]:
        """Policy, parameters, version: what belongs beside every number of this replay."""
        return self.parameters.to_dict(self.topology)

    @cached_property
    def chain(self) -> tuple[Stage, ...]:
        """The transfers that decided the duration, each with what it waited for.

        The first begins at 0, each further one when the one before lets it go.
        """
        return critical_chain(self._work, self.times)

    @cached_property
    def activity(self) -> Activity:
        """What each rank did all the time, and for whom it waited."""
        return activity(self)

    @property
    def critical_path(self) -> tuple[int, ...]:
        """Rows of the `chain`."""
        return tuple(stage.row for stage in self.chain)

    def trace(self, inputs: Sequence[npt.ArrayLike | None] | None = None, op: str = "SUM") -> Trace:
        """Return the replay as a trace of events and states.

        Args:
            inputs: Each rank's input tensor, in its flat order; see `values`. None for a trace
                without numbers.
            op: SUM, AVG, PRODUCT, MIN or MAX.

        Raises:
            ScheduleError: The inputs or the operation do not fit.
        """
        from .emit import emit

        return emit(self, inputs, op)


def simulate(
    bound: BoundSchedule | Schedule,
    topology: Topology,
    model: Model | None = None,
    **parameters: Any,
) -> Replay:
    """Return when each transfer of a schedule happens on a topology.

    Args:
        bound: The schedule with its sizes; without sizes each chunk is one float32.
        topology: The network, with as many ranks as the schedule.
        model: The model's parameters; by default what `Model` has by default.
        parameters: Any of them by name, such as ``policy="rank_step"``; see `Model`.

    Raises:
        ScheduleError: The schedule deadlocks (code DEADLOCK), or a parameter is impossible.
        TopologyError: The topology has another number of ranks, or no path between two of them.

    Source: R. W. Hockney, "The communication challenge for MPP", 1994 (latency and bandwidth);
    D. Bertsekas and R. Gallager, "Data Networks", 1992 (sharing).

    Example:
        >>> from .library import build
        >>> from .topology import parse
        >>> bound = build("all_reduce", "ring", 4).bind(1000, "float32")
        >>> simulate(bound, parse("ring:1GB/s,1us", 4)).duration_ns
        12000
    """
    if isinstance(bound, Schedule):
        bound = bound.bind(bound.n_chunks, "float32")
    model = replace(model or Model(), **parameters)
    work = plan(bound, topology, model)
    replay = Replay(bound, topology, model, work.times(sharing=model.sharing), work)
    longest = replay.exact_duration_ns
    if not longest <= _LONGEST_NS:
        raise ScheduleError(
            f"{bound.size_bytes} bytes on {topology.name} take {longest / _YEAR_NS:.3g} years, "
            "more than the 292 that times in int64 nanoseconds can hold: "
            "use less data or faster links"
        )
    return replay


def _rounded(times: Floats) -> Ints:
    return np.rint(times).astype(np.int64)
