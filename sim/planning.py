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
        ScheduleError: A rank that is delayed does not exist.
        TopologyError: The topology has another number of ranks, or no path between two of them.
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
    local = src == dst
    costs = model.costs(topology)
    size = np.where(local, 0.0, bound.message_bytes + float(costs.header_bytes))
    if costs.message_ns:
        own = np.zeros(len(paths.rate), np.bool_)
        own[paths.pair[local]] = True
        paths = paths._replace(latency_ns=paths.latency_ns + np.where(own, 0.0, costs.message_ns))
    notice = _notice_ns(bound, costs, routes, paths, src, dst)
    ready, late = _delays(schedule, model, src, dst, notice)
    after_written = schedule.dst[schedule.after[:, 1]] == schedule.src[schedule.after[:, 0]]
    program = Program(
        step=schedule.step,
        message=schedule.messages.of_row,
        first_row=first_row,
        **_keys(schedule),
        **_lanes(schedule, model.policy, src, dst, notified=bool(len(notice))),
        window=schedule.window if model.policy == "dataflow" else 1,
        is_lockstep=model.policy == "lockstep",
        after=schedule.after,
        after_written=after_written,
        ready_ns=ready,
        late_ns=late,
        write_ns=_write_ns(bound, costs),
        pair=paths.pair,
        latency_ns=paths.latency_ns,
        rate=paths.rate,
        path_starts=paths.starts,
        path_links=paths.links,
        link_rate=routes.links.rate,
        size_bytes=size,
        burst_bytes=float(costs.burst_bytes),
        notice_ns=notice,
    )
    return Work(schedule, model.policy, program, paths, routes.links)


def _keys(schedule: Schedule) -> dict[str, Any]:
    """Return the keys that each row reads and writes, numbered so that they fit into memory."""
    slots, places = schedule.slots_a_place, schedule.n_places
    n_keys = schedule.channels * places * slots
    lane = schedule.channel.astype(np.int64) * places
    src = (lane + schedule.src) * slots + schedule.src_slot
    dst = (lane + schedule.dst) * slots + schedule.dst_slot
    if n_keys > _SPARSE * int(schedule.n_slots.sum()) + (1 << 20):
        used = np.unique(np.concatenate([_all(src, schedule), _all(dst, schedule)]))
        src, dst, n_keys = np.searchsorted(used, src), np.searchsorted(used, dst), len(used)
    return {"src_key": src, "dst_key": dst, "n_slots": schedule.n_slots, "n_keys": n_keys}


def _all(keys: Ints, schedule: Schedule) -> Ints:
    """Return all keys of rows that begin at these."""
    n_slots = schedule.n_slots.astype(np.int64)
    first = np.cumsum(n_slots) - n_slots
    return np.repeat(keys - first, n_slots) + np.arange(int(n_slots.sum()))


def _lanes(
    schedule: Schedule, policy: Policy, src: Ints, dst: Ints, *, notified: bool
) -> dict[str, Any]:
    """Return the lanes of each message, whose steps or whose notices it must wait for."""
    none = np.zeros(0, np.int64)
    if policy == "lockstep":
        all_in_one = np.zeros(len(src), np.int64)
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
    channel = schedule.channel[schedule.messages.first_row].astype(np.int64)
    return channel * schedule.n_places + place


def _notice_ns(
    bound: BoundSchedule, costs: Costs, routes: Routes, paths: Paths, src: Ints, dst: Ints
) -> Floats:
    """Return how long the notice takes that each message waits for, -inf for none."""
    waits = (bound.message_bytes >= costs.rendezvous_bytes) & (src != dst)
    if not waits.any():
        return np.zeros(0)
    ends = np.zeros((2, len(paths.rate)), np.int64)
    ends[:, paths.pair] = dst, src
    back = routes.paths(*ends)
    return np.where(waits, back.latency_ns[back.pair][paths.pair], -np.inf)


def _write_ns(bound: BoundSchedule, costs: Costs) -> Floats:
    schedule = bound.schedule
    if isinf(costs.reduce_Bps):
        return np.zeros(0)
    works = schedule.reduce | (schedule.src == schedule.dst)
    return np.where(works, bound.row_bytes * 1e9 / costs.reduce_Bps, 0.0)


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
