"""What a schedule, a topology and a model's parameters come to: the step model's program.

work = plan(bound, topology, model)
work.times(sharing=True)
"""

from __future__ import annotations

from math import isinf
from typing import Any

import numpy as np

from ..errors import ScheduleError, TopologyError
from .bind import BoundSchedule
from .costs import Costs
from .engine import Floats, Ints, Work
from .epochs import epochs_of, slow_places
from .jitter import draws
from .model import Model
from .order import Policy
from .program_order import Program
from .routing import Paths, Routes
from .schedule import Schedule
from .topology import Topology

# A dense number for each key, up to so many for each access; beyond, keys are numbered anew.
_SPARSE = 8


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
    first_row = schedule.messages.first_row
    src, dst = schedule.src[first_row], schedule.dst[first_row]
    routes = Routes(topology, schedule.helpers)
    paths = routes.paths(src, dst)
    ends = np.zeros((2, len(paths.rate)), np.int64)
    ends[:, paths.pair] = src, dst
    costs, slow = (
        model.costs(topology),
        slow_places(model.slow, schedule.group_size, schedule.n_places),
    )
    epochs = epochs_of(topology, schedule.helpers, routes, paths, ends, slow, model)
    fixed_ns = costs.message_ns * np.where(ends[0] == ends[1], 0.0, slow[ends].max(axis=0))
    paths = paths._replace(
        latency_ns=epochs.latency_ns[: len(fixed_ns)] + fixed_ns,
        rate=epochs.rate[: len(fixed_ns)],
    )
    parts = _parts(bound, model.segment_bytes)
    size = bound.message_bytes + parts * float(costs.header_bytes)
    size[src == dst] = 0.0
    notice = _notice_ns(bound, costs, routes, paths, ends)
    ready, late = _delays(schedule, model, src, dst, notice)
    program = Program(
        step=schedule.step,
        message=schedule.messages.of_row,
        first_row=first_row,
        **_keys(schedule),
        **_lanes(schedule, model.policy, src, dst, notified=bool(len(notice))),
        window=schedule.window if model.policy == "dataflow" else 1,
        is_lockstep=model.policy == "lockstep",
        after=schedule.after,
        after_written=schedule.dst[schedule.after[:, 1]] == schedule.src[schedule.after[:, 0]],
        ready_ns=ready,
        late_ns=late,
        write_ns=_write_ns(bound, costs, slow),
        pair=paths.pair,
        latency_ns=epochs.latency_ns + np.tile(fixed_ns, epochs.n_epochs),
        rate=epochs.rate,
        path_starts=epochs.path_starts,
        path_links=epochs.path_links,
        link_rate=epochs.link_rate,
        size_bytes=size,
        burst_bytes=float(costs.burst_bytes),
        notice_ns=notice,
        extra_ns=_extra_ns(schedule, model, paths, ends, size, parts, fixed_ns),
        change_ns=epochs.change_ns,
        ports=model.ports or 0,
        src_place=src if model.ports else src[:0],
        dst_place=dst if model.ports else dst[:0],
    )
    return Work(schedule, model.policy, program, paths, routes.links, epochs)


def _parts(bound: BoundSchedule, segment_bytes: int | None) -> Ints | int:
    """Return how many segments each message travels as, (messages,), or 1 for all."""
    if segment_bytes is None:
        return 1
    return np.maximum(1, -(-bound.message_bytes // segment_bytes))


def _extra_ns(
    schedule: Schedule,
    model: Model,
    paths: Paths,
    ends: Ints,
    size_bytes: Floats,
    parts: Ints | int,
    fixed_ns: Floats,
) -> Floats:
    """Return what each message takes before its bytes flow, beside its latency; empty for nothing.

    These are the fixed costs of all segments but the first, and jitter.
    """
    pair = paths.pair
    extra = np.zeros(0)
    if isinstance(parts, np.ndarray) and fixed_ns.any():
        extra = (parts - 1) * fixed_ns[pair]
    if model.jitter:
        alone = paths.latency_ns[pair] + size_bytes / paths.rate[pair]
        if len(extra):
            alone += extra
        channel = schedule.channel[schedule.messages.first_row]
        alone *= model.jitter * draws(model.seed, pair, ends, channel)
        extra = extra + alone if len(extra) else alone
    return extra


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


def _lanes(
    schedule: Schedule, policy: Policy, src: Ints, dst: Ints, *, notified: bool
) -> dict[str, Any]:
    """Return the lanes of each message, whose steps or whose notices it must wait for."""
    none = np.zeros(0, np.int32)
    if policy == "lockstep":
        all_in_one = np.zeros(len(src), np.int32)
        notices = all_in_one if notified else none
        return {"src_lane": all_in_one, "dst_lane": none, "notice_lane": notices, "n_lanes": 1}
    return {
        "src_lane": _lane(schedule, src),
        "dst_lane": _lane(schedule, dst) if policy == "rank_step" else none,
        "notice_lane": _lane(schedule, dst) if notified else none,
        "n_lanes": schedule.n_places * schedule.channels,
    }


def _lane(schedule: Schedule, place: Ints) -> Ints:
    """Return the lane of each message at one of its ends."""
    channel = schedule.channel[schedule.messages.first_row]
    n_lanes: int = schedule.channels * schedule.n_places
    lane: Ints = _numbered(n_lanes, channel, (schedule.n_places, place))
    return lane


def _notice_ns(
    bound: BoundSchedule, costs: Costs, routes: Routes, paths: Paths, ends: Ints
) -> Floats:
    """Return how long the notice takes that each message waits for, -inf for none."""
    if isinf(costs.rendezvous_bytes):
        return np.zeros(0)
    back = routes.paths(ends[1], ends[0])
    notice = np.where(ends[0] == ends[1], -np.inf, back.latency_ns[back.pair])[paths.pair]
    notice[bound.message_bytes < costs.rendezvous_bytes] = -np.inf
    return notice


def _write_ns(bound: BoundSchedule, costs: Costs, slow: Floats) -> Floats:
    """Return what writing each row costs, (rows,); empty for nothing."""
    schedule = bound.schedule
    if isinf(costs.reduce_Bps):
        return np.zeros(0)
    works = schedule.reduce | (schedule.src == schedule.dst)
    row_ns = bound.row_bytes * (1e9 / costs.reduce_Bps) * slow[schedule.dst]
    return np.where(works, row_ns, 0.0)


def _delays(
    schedule: Schedule, model: Model, src: Ints, dst: Ints, notice_ns: Floats
) -> tuple[Floats, Floats]:
    """Return the earliest start of messages and write of rows: nobody acts before they are there.

    Both are empty where nobody is late.
    """
    if not model.delay_ns:
        return np.zeros(0), np.zeros(0)
    delay = np.zeros(schedule.n_places)
    for rank, late in model.delay_ns.items():
        if not 0 <= rank < schedule.group_size:
            raise ScheduleError(f"delay of rank {rank}, expected 0 to {schedule.group_size - 1}")
        delay[rank] = late
    if model.policy == "lockstep":
        delay[:] = delay.max()
    ready = delay[src]
    if model.policy == "rank_step":
        ready = np.maximum(ready, delay[dst])
    if len(notice_ns):
        ready = np.maximum(ready, delay[dst] + notice_ns)
    return ready, delay[schedule.dst]
