"""Links and what flows on them: who is where, how fast, and since when."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import kernel
from .event_queue import ID, PLACE, Queue, push
from .program_order import Program

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

# Columns of `links`: how many hops are on it, whether some left or came, flows whose bottleneck it
# is; the last search that chose all its flows, and that chose one; chosen flows whose rates still
# grow, others whose bottleneck it is, whether it is that of a chosen one.
COUNT, TOUCHED, HELD, INNER, NEAR, GROWING, KEEPS, BINDS = range(8)
# What may have touched a link; the greater one counts.
LEFT_BY, JOINED_BY = 1, 2
# Columns of `rates`: capacity, what is left of it, its share for each flow that still grows; rate
# of the flows whose bottleneck it is, of the fastest that is not chosen, of the fastest that is;
# bytes saved up, since when it is idle.
RATE, ROOM, SHARE, LEVEL, TOP, LAST, SAVED, IDLE_SINCE = range(8)
# Columns of `flows`: path, place in `flowing`, bottleneck and the next one (-1: none).
PATH, FLOWING, BOTTLENECK, NEXT = range(4)
# Columns of `moved`: bytes that are left, rate, since when, next rate.
LEFT, SPEED, SINCE, TRIAL = range(4)
# Entries of `counts`: flows, links that changed, number of the last search, changes of speeds.
N_FLOWS, N_TOUCHED, N_SEARCH, N_CHANGES = range(4)

# Links whose fair shares are this close are full at the same time.
EQUAL = 1 + 1e-12


class Net(NamedTuple):
    """Links and what flows on them; a flow has the number of its thing in the queue.

    Attributes:
        links, rates: Tables of the links.
        first: Where the hops on each link begin in `on_link`.
        flows, moved: Tables of the flows.
        chosen_by: The last search that chose each flow.
        flowing: All flows.
        on_link: Hops of the flows on each link, its share of the array filled from the front; the
            k-th hop of flow f is (f << shift) + k.
        place: Where each hop is in `on_link`.
        path_starts, path_links: Links of each path.
        touched, inner, near, heap: Room for lists of links.
        chosen: Room for a list of flows.
        change_of, changes: Room to note which message changed its speed, when and to what; no
            room where nobody asks, (room,) and (room, 2).
        counts: The entries named above.
        shift: Bits of a hop's number within its path.
        burst_bytes: As in the program.
    """

    links: Array
    rates: Floats
    first: Array
    flows: Array
    moved: Floats
    chosen_by: Array
    flowing: Array
    on_link: Array
    place: Array
    path_starts: Array
    path_links: Array
    touched: Array
    inner: Array
    near: Array
    heap: Array
    chosen: Array
    change_of: Array
    changes: Floats
    counts: Array
    shift: int
    burst_bytes: float


def net_of(p: Program, most: int, changes: int = 0) -> Net:
    """Return the links of a program, on which nothing flows yet.

    Args:
        p: The program.
        most: Most flows at once; room that is not used costs nothing.
        changes: Room to note so many changes of speeds.
    """
    n_links = len(p.link_rate)
    hops = np.diff(p.path_starts)
    n_paths = len(hops) // (len(p.change_ns) + 1)
    use = np.tile(np.bincount(p.pair, minlength=n_paths), len(p.change_ns) + 1)
    room = np.bincount(p.path_links[: p.path_starts[-1]], np.repeat(use, hops), n_links).astype(
        np.int64
    )
    shift = int(max(hops.max(initial=0) - 1, 0)).bit_length()
    rates = np.zeros((n_links, 8))
    rates[:, RATE], rates[:, SAVED] = p.link_rate, p.burst_bytes
    return Net(
        links=np.zeros((n_links, 8), np.int32),
        rates=rates,
        first=np.cumsum(room) - room,
        flows=np.empty((most, 4), np.int32),
        moved=np.empty((most, 4)),
        chosen_by=np.empty(most, np.int32),
        flowing=np.empty(most, np.int32),
        on_link=np.empty(int(room.sum()), np.int64 if most << shift >= 1 << 31 else np.int32),
        place=np.empty(most << shift, np.int64 if room.sum() >= 1 << 31 else np.int32),
        path_starts=p.path_starts,
        path_links=p.path_links[: p.path_starts[-1]].astype(np.int32),
        touched=np.empty(n_links, np.int32),
        inner=np.empty(n_links, np.int32),
        near=np.empty(n_links, np.int32),
        heap=np.empty(n_links, np.int32),
        chosen=np.empty(most, np.int32),
        change_of=np.empty(changes, np.int32),
        changes=np.empty((changes, 2)),
        counts=np.zeros(4, np.int64),
        shift=shift,
        burst_bytes=p.burst_bytes,
    )


@kernel
def join(net: Net, q: Queue, flow: int, path: int, size: float, rate: float, now: float) -> None:
    """Let a message's bytes flow from now on; on a path without links at the rate given."""
    if net.burst_bytes > 0:
        size -= _take_saved(net, path, size, now)
    net.moved[flow, LEFT] = size
    net.moved[flow, SINCE] = now
    net.moved[flow, SPEED] = 0.0
    net.chosen_by[flow] = 0
    net.flows[flow, FLOWING] = net.counts[N_FLOWS]
    net.flowing[net.counts[N_FLOWS]] = flow
    net.counts[N_FLOWS] += 1
    if net.path_starts[path + 1] == net.path_starts[path]:
        set_speed(net, q, flow, rate, now)
    _enter_links(net, flow, path)


@kernel
def leave(net: Net, flow: int, now: float) -> None:
    """Take a message off its links."""
    _leave_links(net, flow, now)
    net.counts[N_FLOWS] -= 1
    last, at = net.flowing[net.counts[N_FLOWS]], net.flows[flow, FLOWING]
    net.flowing[at] = last
    net.flows[last, FLOWING] = at


@kernel
def _take_saved(net: Net, path: int, size: float, now: float) -> float:
    """Return how many bytes of a message pass at once, since its links saved them up while idle."""
    for k in range(net.path_starts[path], net.path_starts[path + 1]):
        link = net.path_links[k]
        if net.links[link, COUNT] == 0:
            more = (now - net.rates[link, IDLE_SINCE]) * net.rates[link, RATE]
            net.rates[link, SAVED] = min(net.burst_bytes, net.rates[link, SAVED] + more)
            net.rates[link, IDLE_SINCE] = now
        size = min(size, net.rates[link, SAVED])
    for k in range(net.path_starts[path], net.path_starts[path + 1]):
        net.rates[net.path_links[k], SAVED] -= size
    return size


@kernel
def change(net: Net, q: Queue, epochs: int, epoch: int, rates: Floats, now: float) -> None:
    """Move all flows to the paths of a network's next epoch.

    Args:
        net: The links.
        q: The queue.
        epochs: How many epochs there are.
        epoch: The one that begins.
        rates: Rate of each path's slowest link, for the paths without links.
        now: The time.
    """
    n_links, n_paths = len(net.links) // epochs, len(rates) // epochs
    for link in range(epoch * n_links, (epoch + 1) * n_links):
        net.rates[link, SAVED] = net.rates[link - n_links, SAVED]
        net.rates[link, IDLE_SINCE] = net.rates[link - n_links, IDLE_SINCE]
    for k in range(net.counts[N_FLOWS]):
        flow = int(net.flowing[k])
        path = int(net.flows[flow, PATH]) + n_paths
        _leave_links(net, flow, now)
        if net.path_starts[path + 1] == net.path_starts[path]:
            set_speed(net, q, flow, rates[path], now)
        _enter_links(net, flow, path)


@kernel
def _enter_links(net: Net, flow: int, path: int) -> None:
    net.flows[flow, PATH] = path
    net.flows[flow, BOTTLENECK] = -1
    hop = flow << net.shift
    for k in range(net.path_starts[path], net.path_starts[path + 1]):
        link = net.path_links[k]
        at = net.first[link] + net.links[link, COUNT]
        net.on_link[at] = hop
        net.place[hop] = at
        net.links[link, COUNT] += 1
        _touch(net, int(link), JOINED_BY)
        hop += 1


@kernel
def _leave_links(net: Net, flow: int, now: float) -> None:
    path = int(net.flows[flow, PATH])
    hop = flow << net.shift
    for k in range(net.path_starts[path], net.path_starts[path + 1]):
        link = net.path_links[k]
        net.links[link, COUNT] -= 1
        net.rates[link, IDLE_SINCE] = now
        last = net.on_link[net.first[link] + net.links[link, COUNT]]
        net.on_link[net.place[hop]] = last
        net.place[last] = net.place[hop]
        _touch(net, int(link), LEFT_BY)
        hop += 1
    if net.flows[flow, BOTTLENECK] >= 0:
        net.links[net.flows[flow, BOTTLENECK], HELD] -= 1


@kernel
def _touch(net: Net, link: int, by: int) -> None:
    if net.links[link, TOUCHED] == 0:
        net.touched[net.counts[N_TOUCHED]] = link
        net.counts[N_TOUCHED] += 1
    net.links[link, TOUCHED] = max(net.links[link, TOUCHED], by)


@kernel
def set_speed(net: Net, q: Queue, flow: int, speed: float, now: float) -> None:
    if speed != net.moved[flow, SPEED]:
        moved = (now - net.moved[flow, SINCE]) * net.moved[flow, SPEED]
        left = max(net.moved[flow, LEFT] - moved, 0.0)
        net.moved[flow, LEFT] = left
        net.moved[flow, SINCE] = now
        net.moved[flow, SPEED] = speed
        k = net.counts[N_CHANGES]
        net.counts[N_CHANGES] = k + 1
        if k < len(net.change_of):
            net.change_of[k] = q.things[flow, ID]
            net.changes[k, 0] = now
            net.changes[k, 1] = speed
        end = now + left / speed
        if end <= q.horizon[0] or q.things[flow, PLACE] >= 0:
            push(q, flow, end)
        else:
            q.time[flow] = end


@kernel
def look_further(net: Net, q: Queue, first: float) -> None:
    """Move the queue's horizon on, and put the flows into the heap that end up to it.

    The next eighth of the time in which flows end is taken: few flows of many, and all of them
    where they end together.

    Args:
        net: The links.
        q: The queue.
        first: When the first thing in the heap happens; infinity if there is none.
    """
    low, total, n_far = first, 0.0, 0
    for k in range(net.counts[N_FLOWS]):
        flow = net.flowing[k]
        if q.things[flow, PLACE] < 0:
            low = min(low, q.time[flow])
            total += q.time[flow]
            n_far += 1
    q.horizon[0] = low * EQUAL
    if n_far > 0:
        q.horizon[0] = max(low * EQUAL, low + (total / n_far - low) / 8)
        for k in range(net.counts[N_FLOWS]):
            flow = net.flowing[k]
            if q.things[flow, PLACE] < 0 and q.time[flow] <= q.horizon[0]:
                push(q, int(flow), q.time[flow])
