"""The step model's first pass: each message at the full rate of its path, in program order.

Where no row waits for one of its own step or of a later one, program order is an order of the wait
graph, and one walk over the rows gives all times. If no two messages met on a link, they are those
of max-min sharing, too; else `events` goes through them one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import allocates, kernel

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

_NO_NS: Floats = np.zeros(0)
_NOWHERE: Array = np.zeros(0, np.int64)


class Program(NamedTuple):
    """What has to be done and what waits for what, as arrays that a kernel can take.

    A key is a slot of a place on a channel, where accesses have an order. A lane is what enters
    steps one after the other: a place on a channel, or everything under lockstep.

    Attributes:
        step: Step of each row, (rows,).
        message: Message that each row travels in, (rows,).
        first_row: First row of each message, (messages,).
        src_key, dst_key: First key that each row reads and writes, (rows,).
        n_slots: Number of keys of each, (rows,).
        n_keys: Number of keys.
        src_lane, dst_lane: Lanes of each message, (messages,); none under `dst_lane` if empty.
        n_lanes: Number of lanes.
        window: Steps that a lane may have under way.
        is_lockstep: Whether a step is done when all is written, and not when it has arrived.
        after: Pairs (row, earlier), sorted, (pairs, 2).
        after_written: Whether `earlier` must be written, and not only arrived, (pairs,).
        ready_ns: Earliest start of each message, (messages,); 0 if empty.
        late_ns: Earliest write of each row, (rows,); 0 if empty.
        write_ns: What writing each row costs, (rows,); 0 if empty.
        pair: Path of each message, (messages,).
        latency_ns: Latency of each path, the fixed cost of a message included, (paths,).
        rate: Rate of each path's slowest link, bytes a nanosecond, (paths,).
        path_starts: Where each path begins in `path_links`, (paths + 1,).
        path_links: Links of all paths.
        link_rate: Rate of each link, (links,).
        size_bytes: Bytes of each message on the wire, (messages,).
        burst_bytes: Bytes that a link saves up while idle and then passes at once.
        extra_ns: What each message takes beside its path's latency, (messages,); 0 if empty.
        notice_lane: Lane whose notice each message waits for, (messages,); none if empty.
        notice_ns: How long after that lane enters the step its notice comes, (messages,); -inf
            where a message waits for none.
        change_ns: When each epoch of the network but the first begins, rising. Each has its own
            paths and links: those of epoch e stand e times as many as it has behind the first's.
        ports: How many messages a place sends at once, and how many it receives; 0 for no limit.
        src_place, dst_place: Places of each message, (messages,); empty where there is no limit.
    """

    step: Array
    message: Array
    first_row: Array
    src_key: Array
    dst_key: Array
    n_slots: Array
    n_keys: int
    src_lane: Array
    dst_lane: Array
    n_lanes: int
    window: int
    is_lockstep: bool
    after: Array
    after_written: Array
    ready_ns: Floats
    late_ns: Floats
    write_ns: Floats
    pair: Array
    latency_ns: Floats
    rate: Floats
    path_starts: Array
    path_links: Array
    link_rate: Floats
    size_bytes: Floats
    burst_bytes: float = 0.0
    extra_ns: Floats = _NO_NS
    notice_lane: Array = _NOWHERE
    notice_ns: Floats = _NO_NS
    change_ns: Floats = _NO_NS
    ports: int = 0
    src_place: Array = _NOWHERE
    dst_place: Array = _NOWHERE


@kernel
@allocates
def walk(program: Program, start: Floats, arrived: Floats, written: Floats) -> bool:
    """Fill in the times of all messages and rows; return whether two may have met on a link.

    Args:
        program: A program whose `after` never reaches back.
        start: When each message leaves, (messages,), all 0.
        arrived: When its last byte is there, (messages,).
        written: When each row is copied or reduced, (rows,).
    """
    p = program
    cell_written, cell_read = np.zeros(p.n_keys), np.zeros(p.n_keys)
    entered = np.zeros(p.n_lanes)
    pending_step = np.full((p.n_lanes, p.window), -1, np.int64)
    pending_ns = np.zeros((p.n_lanes, p.window))
    link_end = np.zeros(len(p.link_rate))
    if len(p.ready_ns):
        start[:] = p.ready_ns
    met = False
    low, pairs = 0, 0
    while low < len(p.step):
        step = p.step[low]
        high = low
        while high < len(p.step) and p.step[high] == step:
            high += 1
        for row in range(low, high):
            m = p.message[row]
            begun = max(start[m], _enter(p, p.src_lane[m], step, entered, pending_step, pending_ns))
            if len(p.dst_lane):
                lane = p.dst_lane[m]
                begun = max(begun, _enter(p, lane, step, entered, pending_step, pending_ns))
            if len(p.notice_lane) and p.notice_ns[m] >= 0:
                lane = p.notice_lane[m]
                told = _enter(p, lane, step, entered, pending_step, pending_ns)
                begun = max(begun, told + p.notice_ns[m])
            for key in range(p.src_key[row], p.src_key[row] + p.n_slots[row]):
                begun = max(begun, cell_written[key])
            start[m] = begun
        while pairs < len(p.after) and p.after[pairs, 0] < high:
            m, earlier = p.message[p.after[pairs, 0]], p.after[pairs, 1]
            done = written[earlier] if p.after_written[pairs] else arrived[p.message[earlier]]
            start[m] = max(start[m], done)
            pairs += 1
        for row in range(low, high):
            m = p.message[row]
            for key in range(p.src_key[row], p.src_key[row] + p.n_slots[row]):
                cell_read[key] = max(cell_read[key], start[m])
            if p.first_row[m] == row:
                path = p.pair[m]
                # Two sums, as `events` has them, so that both round alike.
                begin = start[m] + p.latency_ns[path]
                if len(p.extra_ns):
                    begin += p.extra_ns[m]
                end = begin + p.size_bytes[m] / p.rate[path]
                arrived[m] = end
                if end > begin:
                    for k in range(p.path_starts[path], p.path_starts[path + 1]):
                        link = p.path_links[k]
                        met = met or begin < link_end[link]
                        link_end[link] = max(link_end[link], end)
        for row in range(low, high):
            m = p.message[row]
            done = arrived[m]
            if len(p.late_ns):
                done = max(done, p.late_ns[row])
            for key in range(p.dst_key[row], p.dst_key[row] + p.n_slots[row]):
                done = max(done, cell_written[key], cell_read[key])
            if len(p.write_ns):
                done += p.write_ns[row]
            written[row] = done
            for key in range(p.dst_key[row], p.dst_key[row] + p.n_slots[row]):
                cell_written[key] = done
            mine = done if p.is_lockstep else arrived[m]
            _leave(p, p.src_lane[m], step, mine, entered, pending_step, pending_ns)
            if len(p.dst_lane):
                _leave(p, p.dst_lane[m], step, done, entered, pending_step, pending_ns)
        low = high
    return met


@kernel
def _enter(
    p: Program, lane: int, step: int, entered: Floats, pending_step: Array, pending_ns: Floats
) -> float:
    """Return when a lane enters a step."""
    for k in range(p.window):
        if 0 <= pending_step[lane, k] <= step - p.window:
            entered[lane] = max(entered[lane], pending_ns[lane, k])
            pending_step[lane, k] = -1
    return float(entered[lane])


@kernel
def _leave(
    p: Program,
    lane: int,
    step: int,
    done: float,
    entered: Floats,
    pending_step: Array,
    pending_ns: Floats,
) -> None:
    """Note that something of a lane's step is done."""
    k = step % p.window
    if pending_step[lane, k] != step:
        if pending_step[lane, k] >= 0:  # a step so far back that this one has waited for it
            entered[lane] = max(entered[lane], pending_ns[lane, k])
        pending_step[lane, k] = step
        pending_ns[lane, k] = done
    else:
        pending_ns[lane, k] = max(pending_ns[lane, k], done)
