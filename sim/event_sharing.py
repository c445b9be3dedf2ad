"""How messages that are under way at once share links: max-min fairness, found anew at each change.

Only what a change can reach is worked out again: the messages that share a link with it, those that
share a link with these, and so on. And where a message ends, only if it leaves others on a link
that held them back: a link that is full and on which nobody is faster is the bottleneck of those
that are as fast; rates are max-min fair as long as each message has one.
"""

from __future__ import annotations

from .compiled import kernel
from .event_flows import (
    BINDS,
    BOTTLENECK,
    COUNT,
    EQUAL,
    GROWING,
    HELD,
    INNER,
    JOINED_BY,
    KEEPS,
    LAST,
    LEVEL,
    N_SEARCH,
    N_TOUCHED,
    NEAR,
    NEXT,
    PATH,
    RATE,
    ROOM,
    SHARE,
    SPEED,
    TOP,
    TOUCHED,
    TRIAL,
    Net,
    set_speed,
)
from .event_queue import Queue

# After so many rounds the inner links are doubled each time: a change that goes far goes fast.
PATIENCE = 3


@kernel
def settle(net: Net, q: Queue, now: float) -> None:
    """Share links anew after flows came and left.

    The flows on links that changed are shared out beside all others, whose rates stay. Where this
    takes the bottleneck from one of the others, its link is drawn in, and all is done again.
    """
    net.counts[N_SEARCH] += 1
    search = net.counts[N_SEARCH]
    n_inner, n_done, n_near, n_chosen, rounds = 0, 0, 0, 0, 0
    for k in range(net.counts[N_TOUCHED]):
        link = int(net.touched[k])
        if net.links[link, TOUCHED] == JOINED_BY or net.links[link, HELD] > 0:
            n_inner = _draw_in(net, link, search, n_inner)
        net.links[link, TOUCHED] = 0
    net.counts[N_TOUCHED] = 0
    while n_done < n_inner:
        at_least = 2 * n_done if rounds > PATIENCE else 0
        n_chosen, n_near = _gather(net, search, n_done, n_inner, n_chosen, n_near)
        n_done = n_inner
        while n_inner < at_least:
            for k in range(n_near):
                n_inner = _draw_in(net, int(net.near[k]), search, n_inner)
            if n_done == n_inner:
                break
            n_chosen, n_near = _gather(net, search, n_done, n_inner, n_chosen, n_near)
            n_done = n_inner
        _empty(net, search, n_near, n_chosen)
        _fill(net, search, n_near, n_chosen)
        rounds += 1
        for k in range(n_near):
            link = int(net.near[k])
            if _is_unfair(net, link):
                n_inner = _draw_in(net, link, search, n_inner)
    for k in range(n_chosen):
        flow = int(net.chosen[k])
        if net.flows[flow, BOTTLENECK] >= 0:
            net.links[net.flows[flow, BOTTLENECK], HELD] -= 1
        link = net.flows[flow, NEXT]
        net.flows[flow, BOTTLENECK] = link
        net.links[link, HELD] += 1
        net.rates[link, LEVEL] = net.moved[flow, TRIAL]
        set_speed(net, q, flow, net.moved[flow, TRIAL], now)


@kernel
def _draw_in(net: Net, link: int, search: int, n_inner: int) -> int:
    """Add a link to those whose flows are all chosen; return how many these are."""
    if net.links[link, INNER] != search:
        net.links[link, INNER] = search
        net.inner[n_inner] = link
        n_inner += 1
    return n_inner


@kernel
def _gather(
    net: Net, search: int, done: int, n_inner: int, n_chosen: int, n_near: int
) -> tuple[int, int]:
    """Choose the flows on inner links, and find the links that they use.

    Returns how many flows are chosen and how many links are near.
    """
    for k in range(done, n_inner):
        first = net.first[net.inner[k]]
        for at in range(first, first + net.links[net.inner[k], COUNT]):
            flow = int(net.on_link[at] >> net.shift)
            if net.chosen_by[flow] == search:
                continue
            net.chosen_by[flow] = search
            net.chosen[n_chosen] = flow
            n_chosen += 1
            path = net.flows[flow, PATH]
            for j in range(net.path_starts[path], net.path_starts[path + 1]):
                link = net.path_links[j]
                if net.links[link, NEAR] != search:
                    net.links[link, NEAR] = search
                    net.near[n_near] = link
                    n_near += 1
    return n_chosen, n_near


@kernel
def _empty(net: Net, search: int, n_near: int, n_chosen: int) -> None:
    """Take the chosen flows off the links near, and order these by their shares."""
    for k in range(n_chosen):
        net.flows[net.chosen[k], NEXT] = -1
    for k in range(n_near):
        link = int(net.near[k])
        room, top, growing, keeps = net.rates[link, RATE], 0.0, net.links[link, COUNT], 0
        if net.links[link, INNER] != search:
            first = net.first[link]
            for at in range(first, first + net.links[link, COUNT]):
                flow = net.on_link[at] >> net.shift
                if net.chosen_by[flow] != search:
                    growing -= 1
                    room -= net.moved[flow, SPEED]
                    top = max(top, net.moved[flow, SPEED])
                    keeps += net.flows[flow, BOTTLENECK] == link
        net.rates[link, ROOM] = max(room, 0.0)
        net.rates[link, TOP] = top
        net.rates[link, LAST] = 0.0
        net.rates[link, SHARE] = net.rates[link, ROOM] / growing
        net.links[link, GROWING] = growing
        net.links[link, KEEPS] = keeps
        net.links[link, BINDS] = 0
        net.heap[k] = link
    for k in range(n_near // 2 - 1, -1, -1):
        _sink(net, k, n_near, int(net.heap[k]))


@kernel
def _fill(net: Net, search: int, n_near: int, n_chosen: int) -> None:
    """Give the chosen flows their max-min fair rates, by progressive filling.

    All rates grow together; when a link is full, its flows keep what they have and the others grow
    on. The links are a heap by the level at which each of them is full; that level only rises as
    other links fill, so a link is looked at again when it comes to the front.

    Source: D. Bertsekas and R. Gallager, "Data Networks", 2nd edition, section 6.5.2.
    """
    level = 0.0
    while n_chosen > 0:
        link = int(net.heap[0])
        growing = net.links[link, GROWING]
        if growing > 0:
            share = net.rates[link, ROOM] / growing
            if share > net.rates[link, SHARE] * EQUAL:
                net.rates[link, SHARE] = share
                _sink(net, 0, n_near, link)
                continue
            before = net.rates[link, LEVEL]
            if share * EQUAL >= before and share <= before * EQUAL:
                share = before  # so that what has not changed has the same digits
            if share > level * EQUAL:
                level = share
            net.links[link, BINDS] = 1
            first = net.first[link]
            for at in range(first, first + net.links[link, COUNT]):
                flow = int(net.on_link[at] >> net.shift)
                if net.chosen_by[flow] == search and net.flows[flow, NEXT] < 0:
                    net.flows[flow, NEXT] = link
                    net.moved[flow, TRIAL] = level
                    n_chosen -= 1
                    path = net.flows[flow, PATH]
                    for j in range(net.path_starts[path], net.path_starts[path + 1]):
                        net.rates[net.path_links[j], ROOM] -= level
                        net.rates[net.path_links[j], LAST] = level
                        net.links[net.path_links[j], GROWING] -= 1
        n_near -= 1
        if n_near > 0:
            _sink(net, 0, n_near, int(net.heap[n_near]))


@kernel
def _is_unfair(net: Net, link: int) -> bool:
    """Return whether flows that were not chosen would have to change their rates on a link.

    Either it was their bottleneck and has room now or is shared with a faster one, or it is the
    bottleneck of a chosen one that is slower than they are.
    """
    others, chosen = net.rates[link, TOP], net.rates[link, LAST]
    has_room = net.rates[link, ROOM] > net.rates[link, RATE] * (EQUAL - 1)
    if net.links[link, KEEPS] > 0 and (has_room or chosen > others * EQUAL):
        return True
    return bool(net.links[link, BINDS] > 0 and others > chosen * EQUAL)


@kernel
def _sink(net: Net, at: int, size: int, link: int) -> None:
    """Put a link at a place of the heap of links that is free, or below it."""
    share = net.rates[link, SHARE]
    below = 2 * at + 1
    while below < size:
        right = below + 1
        if right < size and net.rates[net.heap[right], SHARE] < net.rates[net.heap[below], SHARE]:
            below = right
        if net.rates[net.heap[below], SHARE] >= share:
            break
        net.heap[at] = net.heap[below]
        at = below
        below = 2 * at + 1
    net.heap[at] = link
