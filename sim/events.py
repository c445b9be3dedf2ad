"""The step model's second pass: event by event, with messages that share links.

It needs no order of the rows to begin with, and it is exact where messages meet: whenever a
message's bytes begin or end to flow, the rates of those that share links with it, directly or
through others, are worked out anew by progressive filling.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import kernel
from .event_flows import N_CHANGES, N_TOUCHED, Net, change, join, leave, look_further, net_of
from .event_order import Order, Pick, has_arrived, has_read, has_written, open_all, order_of
from .event_ports import Ports, ask, give_back, grant, ports_of
from .event_queue import (
    ARRIVE,
    BEGIN,
    ID,
    N_HEAP,
    START,
    WHAT,
    WRITE,
    Queue,
    forget,
    new,
    pop,
    push,
    queue_of,
)
from .event_sharing import settle
from .program_order import Program

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

# Events this close together, relative to the time, are one moment: sums that should be equal.
MOMENT = 1e-14


class Costs(NamedTuple):
    """What each message and row costs, as in the program."""

    size_bytes: Floats
    pair: Ints
    latency_ns: Floats
    extra_ns: Floats
    rate: Floats
    late_ns: Floats
    write_ns: Floats
    change_ns: Floats


class Changes(NamedTuple):
    """When messages changed their speeds.

    Attributes:
        message: Of each change, in order of time, (changes,).
        time_ns: When, (changes,).
        rate: To how many bytes a nanosecond, (changes,).
    """

    message: Array
    time_ns: Floats
    rate: Floats


def play(program: Program, pick: Pick, start: Floats, arrived: Floats, written: Floats) -> bool:
    """Fill in the times of all messages and rows; return whether all of them happened.

    Args:
        program: What has to be done.
        pick: Returns a kernel as it is to be run.
        start, arrived, written: As in `program_order.walk`.
    """
    net = net_of(program, _most(program))
    return _run(program, pick, net, start, arrived, written) == len(program.step)


def changes(program: Program, pick: Pick) -> Changes:
    """Return when messages changed their speeds; `play` returned True for the same program."""
    n = len(program.size_bytes)
    room = 4 * n
    while True:
        net = net_of(program, _most(program), room)
        _run(program, pick, net, np.zeros(n), np.zeros(n), np.zeros(len(program.step)))
        found = int(net.counts[N_CHANGES])
        if found <= room:
            return Changes(net.change_of[:found], *net.changes[:found].T)
        room = found


def _most(p: Program) -> int:
    """Return how many things may be in the queue at once."""
    return len(p.size_bytes) + (len(p.step) if len(p.write_ns) or len(p.late_ns) else 0)


def _run(p: Program, pick: Pick, net: Net, start: Floats, arrived: Floats, written: Floats) -> int:
    """Let everything happen; return how many rows were written."""
    order, queue = order_of(p, pick), queue_of(_most(p))
    costs = Costs(
        p.size_bytes, p.pair, p.latency_ns, p.extra_ns, p.rate, p.late_ns, p.write_ns, p.change_ns
    )
    return int(pick(_play)(order, queue, net, ports_of(p), costs, start, arrived, written))


@kernel
def _play(
    order: Order,
    queue: Queue,
    net: Net,
    ports: Ports,
    costs: Costs,
    start: Floats,
    arrived: Floats,
    written: Floats,
) -> int:
    """Let everything happen; return how many rows were written."""
    n, n_epochs = len(costs.size_bytes), len(costs.change_ns) + 1
    n_paths = len(costs.rate) // n_epochs
    done, epoch, now = 0, 0, 0.0
    open_all(order)
    while True:
        thing, first = -1, np.inf
        if queue.counts[N_HEAP] > 0:
            first = queue.time[queue.heap[0]]
        if order.n_ready[0] > 0:
            order.n_ready[0] -= 1
            id = int(order.ready[order.n_ready[0]])
            what, time = START, now
            if id >= n:
                id, what = id - n, WRITE
                if len(costs.late_ns) > 0:
                    time = max(time, costs.late_ns[id])
                if len(costs.write_ns) > 0:
                    time += costs.write_ns[id]
            elif len(order.ready_ns) > 0:
                time = max(time, order.ready_ns[id])
            if time > now + now * MOMENT:  # else it would come back at once, for ever
                push(queue, new(queue, id, what), time)
                continue
            if what == START and ports.limit > 0 and ports.place[id, 0] != ports.place[id, 1]:
                ask(ports, id)
                continue
        elif first <= now + now * MOMENT:
            thing = pop(queue)
            id, what = int(queue.things[thing, ID]), int(queue.things[thing, WHAT])
            if what == START:  # it could not start before its rank was there
                forget(queue, thing)
                order.ready[order.n_ready[0]] = id
                order.n_ready[0] += 1
                continue
        elif ports.n_changed[0] > 0:
            id, what = grant(ports), START
            if id < 0:
                continue
        elif net.counts[N_TOUCHED] > 0:
            settle(net, queue, now)
            continue
        elif first + first * MOMENT > queue.horizon[0]:
            look_further(net, queue, first)
            continue
        elif epoch + 1 < n_epochs and costs.change_ns[epoch] <= first < np.inf:
            now = costs.change_ns[epoch]
            epoch += 1
            change(net, queue, n_epochs, epoch, costs.rate, now)
            continue
        elif first < np.inf:
            now = first
            continue
        else:
            return done

        if what == WRITE:
            if thing >= 0:
                forget(queue, thing)
            written[id] = now
            has_written(order, id, now)
            done += 1
            continue
        path = int(costs.pair[id]) + epoch * n_paths
        if what == START:
            start[id] = now
            has_read(order, id)
            what = BEGIN if costs.size_bytes[id] > 0 else ARRIVE
            time = now + costs.latency_ns[path]
            if len(costs.extra_ns) > 0:
                time += costs.extra_ns[id]
            push(queue, new(queue, id, what), time)
        elif what == BEGIN:
            queue.things[thing, WHAT] = ARRIVE
            join(net, queue, thing, path, costs.size_bytes[id], costs.rate[path], now)
        else:
            arrived[id] = now
            if costs.size_bytes[id] > 0:
                leave(net, thing, now)
            if ports.limit > 0 and ports.place[id, 0] != ports.place[id, 1]:
                give_back(ports, id)
            forget(queue, thing)
            has_arrived(order, id, now)
