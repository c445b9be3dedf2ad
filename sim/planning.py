"""What a schedule, a topology and a model's parameters come to: the step model's program.

work = plan(bound, topology, model)
work.times(sharing=True)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf
from typing import Any

import numpy as np

from ..errors import ScheduleError, TopologyError
from .bind import BoundSchedule
from .costs import Costs
from .engine import Floats, Ints, Work
from .epochs import Epochs, epochs_of, slow_places
from .jitter import draws
from .model import Model
from .order import Policy
from .program_order import Program
from .routing import Paths, Routes
from .schedule import Schedule
from .topology import Topology

# A dense number for each key, up to so many for each access; beyond, keys are numbered anew.
_SPARSE = 8
_NOTHING = np.zeros(0)
_NOWHERE = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class _Messages:
    """The messages of a schedule, where they go and what they cost.

    Attributes:
        bound: The schedule with its sizes.
        src, dst, channel: Of each message, (messages,).
        routes: The routes as built.
        paths: Their paths as built.
        ends: Places of each path, (2, paths).
        costs: What messages cost.
        slow: How many times longer all takes at each place, (places,).
    """

    bound: BoundSchedule
    src: Ints
    dst: Ints
    channel: Ints
    routes: Routes
    paths: Paths
    ends: Ints
    costs: Costs
    slow: Floats

    @property
    def schedule(self) -> Schedule:
        return self.bound.schedule

    @property
    def fixed_ns(self) -> Floats:
        """Fixed cost of a message on each path, (paths,)."""
        a, b = self.ends
        slower = np.maximum(self.slow[a], self.slow[b])
        return np.where(a == b, 0.0, self.costs.message_ns * slower)

    @staticmethod
    def of(bound: BoundSchedule, topology: Topology, model: Model) -> _Messages:
        schedule = bound.schedule
        first_row = schedule.messages.first_row
        src, dst = schedule.src[first_row], schedule.dst[first_row]
        routes = Routes(topology, schedule.helpers)
        paths = routes.paths(src, dst)
        ends = np.zeros((2, len(paths.rate)), np.int64)
        ends[:, paths.pair] = src, dst
        slow = slow_places(model.slow, schedule.group_size, schedule.n_places)
        channel = schedule.channel[first_row]
        return _Messages(bound, src, dst, channel, routes, paths, ends, model.costs(topology), slow)


def plan(bound: BoundSchedule, topology: Topology, model: Model) -> Work:
    """Return what has to be done to run a schedule on a topology.

    Raises:
        ScheduleError: A rank that is delayed or slow does not exist.
        TopologyError: The topology has another number of ranks, no path between two of them, or
            lacks a link that changes.
    """
    schedule = bound.schedule
    if topology.n_ranks != schedule.group_size:
        raise TopologyError(
            f"the topology {topology.name!r} has {topology.n_ranks} ranks, "
            f"the schedule {schedule.group_size}: make both the same"
        )
    sent = _Messages.of(bound, topology, model)
    routes, fixed_ns = sent.routes, sent.fixed_ns
    epochs = epochs_of(topology, routes, sent.paths, sent.ends, sent.slow, model)
    latency_ns = epochs.latency_ns + np.tile(fixed_ns, epochs.n_epochs)
    n = len(fixed_ns)
    paths = sent.paths._replace(latency_ns=latency_ns[:n], rate=epochs.rate[:n])
    parts = _parts(bound, model.segment_bytes)
    size = bound.message_bytes + parts * float(sent.costs.header_bytes)
    size[sent.src == sent.dst] = 0.0
    notice = _notice_ns(sent, epochs)
    ready, late = _delays(sent, model, notice)
    program = Program(
        step=schedule.step,
        message=schedule.messages.of_row,
        first_row=schedule.messages.first_row,
        **_keys(schedule),
        **_lanes(sent, model.policy, notified=bool(len(notice))),
        window=schedule.window if model.policy == "dataflow" else 1,
        is_lockstep=model.policy == "lockstep",
        after=schedule.after,
        after_written=schedule.dst[schedule.after[:, 1]] == schedule.src[schedule.after[:, 0]],
        ready_ns=ready,
        late_ns=late,
        write_ns=_write_ns(sent),
        pair=paths.pair,
        latency_ns=latency_ns,
        rate=epochs.rate,
        path_starts=epochs.path_starts,
        path_links=epochs.path_links,
        link_rate=epochs.link_rate,
        size_bytes=size,
        burst_bytes=float(sent.costs.burst_bytes),
        extra_ns=_extra_ns(sent, model, paths, size, parts),
        notice_ns=notice,
        change_ns=epochs.change_ns,
        ports=model.ports or 0,
        src_place=sent.src if model.ports else _NOWHERE,
        dst_place=sent.dst if model.ports else _NOWHERE,
    )
    return Work(schedule, model.policy, program, paths, routes.links, epochs)


def _parts(bound: BoundSchedule, segment_bytes: int | None) -> Ints | int:
    """Return how many segments each message travels as, (messages,), or 1 for all."""
    if segment_bytes is None:
        return 1
    return np.maximum(1, -(-bound.message_bytes // segment_bytes))


def _extra_ns(
    sent: _Messages, model: Model, paths: Paths, size_bytes: Floats, parts: Ints | int
) -> Floats:
    """Return what each message takes before its bytes flow, beside its latency; empty for nothing.

    These are the fixed costs of all segments but the first, and jitter.
    """
    pair, fixed_ns = paths.pair, sent.fixed_ns
    extra = (parts - 1) * fixed_ns[pair] if model.segment_bytes and fixed_ns.any() else _NOTHING
    if not model.jitter:
        return extra
    longer = paths.latency_ns[pair] + size_bytes / paths.rate[pair]
    if len(extra):
        longer += extra
    longer *= draws(model.seed, pair, sent.ends, sent.channel)
    longer *= model.jitter
    return longer + extra if len(extra) else longer


def _keys(schedule: Schedule) -> dict[str, Any]:
    """Return the keys that each row reads and writes, numbered so that they fit into memory."""
    slots = schedule.slots_a_place
    n_keys = schedule.channels * schedule.n_places * slots
    src, dst = (
        _numbered(n_keys, schedule.channel, (schedule.n_places, place), (slots, slot))
        for place, slot in (
            (schedule.src, schedule.src_slot),
            (schedule.dst, schedule.dst_slot),
        )
    )
    if n_keys > _SPARSE * int(schedule.n_slots.sum()) + (1 << 20):
        used = np.unique(np.concatenate([_all(src, schedule), _all(dst, schedule)]))
        src, dst, n_keys = np.searchsorted(used, src), np.searchsorted(used, dst), len(used)
    return {"src_key": src, "dst_key": dst, "n_slots": schedule.n_slots, "n_keys": n_keys}


def _numbered(n: int, first: Ints, *others: tuple[int, Ints]) -> Any:
    """Return one number below n for several, each with how many of it there can be."""
    number: Any = first.astype(np.int32 if n < 1 << 31 else np.int64)
    for count, digit in others:
        number *= count
        number += digit
    return number


def _all(keys: Ints, schedule: Schedule) -> Ints:
    """Return all keys of rows that begin at these."""
    n_slots = schedule.n_slots.astype(np.int64)
    first = np.cumsum(n_slots) - n_slots
    return np.repeat(keys - first, n_slots) + np.arange(int(n_slots.sum()))


def _lanes(sent: _Messages, policy: Policy, *, notified: bool) -> dict[str, Any]:
    """Return the lanes of each message, whose steps or whose notices it must wait for."""
    if policy == "lockstep":
        only = np.zeros(len(sent.src), np.int32)
        notices = only if notified else _NOWHERE
        return {"src_lane": only, "dst_lane": _NOWHERE, "notice_lane": notices, "n_lanes": 1}
    n_places = sent.schedule.n_places
    n_lanes = n_places * sent.schedule.channels
    at_src, at_dst = (
        _numbered(n_lanes, sent.channel, (n_places, place)) for place in (sent.src, sent.dst)
    )
    return {
        "src_lane": at_src,
        "dst_lane": at_dst if policy == "rank_step" else _NOWHERE,
        "notice_lane": at_dst if notified else _NOWHERE,
        "n_lanes": n_lanes,
    }


def _notice_ns(sent: _Messages, epochs: Epochs) -> Floats:
    """Return how long the notice takes that each message waits for, -inf for none.

    Empty where no message waits for any.
    """
    least_bytes = sent.costs.rendezvous_bytes
    if isinf(least_bytes):
        return _NOTHING
    src, dst = sent.ends
    back = sent.routes.paths(dst, src, lost_ok=True)
    lost = np.isinf(back.rate[back.pair]) & (src != dst)
    notice = np.where(src == dst, -np.inf, epochs.latency_of(back)[back.pair])[sent.paths.pair]
    notice[sent.bound.message_bytes < least_bytes] = -np.inf
    waits_forever = lost[sent.paths.pair] & (notice >= 0)
    if waits_forever.any():
        m = int(np.argmax(waits_forever))
        a, b = (sent.routes.label(int(place[m])) for place in (sent.dst, sent.src))
        raise TopologyError(
            f"no path from {a} back to {b}, which a rendezvous needs for its notice: "
            "add a link, or set rendezvous_bytes to infinity"
        )
    return notice


def _write_ns(sent: _Messages) -> Floats:
    """Return what writing each row costs, (rows,); empty for nothing."""
    schedule, reduce_Bps = sent.schedule, sent.costs.reduce_Bps
    if isinf(reduce_Bps):
        return _NOTHING
    works = schedule.reduce | (schedule.src == schedule.dst)
    row_ns = sent.bound.row_bytes * (1e9 / reduce_Bps) * sent.slow[schedule.dst]
    return np.where(works, row_ns, 0.0)


def _delays(sent: _Messages, model: Model, notice_ns: Floats) -> tuple[Floats, Floats]:
    """Return the earliest start of messages and write of rows: nobody acts before they are there.

    Both are empty where nobody is late.
    """
    if not model.delay_ns:
        return _NOTHING, _NOTHING
    n_ranks = sent.schedule.group_size
    delay = np.zeros(sent.schedule.n_places)
    for rank, late in model.delay_ns.items():
        if not 0 <= rank < n_ranks:
            raise ScheduleError(f"delay of rank {rank}, expected 0 to {n_ranks - 1}")
        delay[rank] = late
    if model.policy == "lockstep":
        delay[:] = delay.max()
    ready = delay[sent.src]
    if model.policy == "rank_step":
        ready = np.maximum(ready, delay[sent.dst])
    if len(notice_ns):
        ready = np.maximum(ready, delay[sent.dst] + notice_ns)
    return ready, delay[sent.schedule.dst]
