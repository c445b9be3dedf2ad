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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..traces.trace import JSON, Trace
from .bind import BoundSchedule
from .collectives import busbw_factor
from .cost import Bounds, bounds
from .critical import critical_path
from .engine import Work
from .model import Model
from .order import Policy
from .planning import plan
from .schedule import Schedule
from .topology import Topology

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Replay:
    """A schedule with the times of its rows.

    Attributes:
        bound: The schedule and its sizes.
        topology: What it ran on.
        parameters: The model's parameters.
        start_ns, arrived_ns, written_ns: Times of each row in unrounded nanoseconds, (rows,): its
            message leaves, the last byte is there, it is copied or reduced. Rows of one message
            share the first two.
        link_bytes: Bytes that each directed link carried, headers included, by (from, to).
    """

    bound: BoundSchedule
    topology: Topology
    parameters: Model
    start_ns: Floats
    arrived_ns: Floats
    written_ns: Floats
    link_bytes: dict[tuple[str, str], int]
    _work: Work = field(repr=False)

    @property
    def schedule(self) -> Schedule:
        """The schedule without its sizes."""
        return self.bound.schedule

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
    def model(self) -> dict[str, JSON]:
        """Policy, parameters, version: what belongs beside every number of this replay."""
        return self.parameters.to_dict(self.topology)

    @cached_property
    def critical_path(self) -> tuple[int, ...]:
        """Rows that decided the duration, one a message: each waited for the one before it."""
        if not len(self.schedule):
            return ()
        return critical_path(self._work, self.start_ns, self.arrived_ns, self.written_ns)

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
    *,
    policy: Policy = "dataflow",
    sharing: bool = True,
    reduce_Bps: float | None = None,
    message_ns: float = 0.0,
    header_bytes: int = 0,
    delay_ns: Mapping[int, float] | None = None,
) -> Replay:
    """Return when each transfer of a schedule happens on a topology.

    Args:
        bound: The schedule with its sizes; without sizes each chunk is one float32.
        topology: The network, with as many ranks as the schedule.
        policy: ``dataflow``: messages go as soon as their data and the sender's step allow;
            ``rank_step``: when both ends have finished their steps before; ``lockstep``: when
            everybody has.
        sharing: Whether messages that use one link at one time share its rate.
        reduce_Bps: Bytes a second that a place reduces or copies; None for no cost.
        message_ns: Fixed cost of a message.
        header_bytes: Bytes that each message carries besides its data.
        delay_ns: How much later than the others a rank arrives, by rank.

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
    model = Model(policy, sharing, reduce_Bps, message_ns, header_bytes, delay_ns or {})
    work = plan(bound, topology, model)
    times = work.times(sharing=sharing)
    of_row = bound.schedule.messages.of_row
    return Replay(
        bound=bound,
        topology=topology,
        parameters=model,
        start_ns=times.start[of_row],
        arrived_ns=times.arrived[of_row],
        written_ns=times.written,
        link_bytes=_link_bytes(work),
        _work=work,
    )


def _link_bytes(work: Work) -> dict[tuple[str, str], int]:
    """Return the bytes that each directed link carried."""
    paths = work.paths
    carried = np.bincount(paths.pair, work.program.size_bytes, len(paths.rate))
    sizes = np.repeat(carried, np.diff(paths.starts))
    total = np.bincount(paths.links, sizes, minlength=len(work.links.ends))
    return {ends: int(size) for ends, size in zip(work.links.ends, total)}


def _rounded(times: Floats) -> Ints:
    return np.rint(times).astype(np.int64)
