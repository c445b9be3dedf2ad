"""How messages that are under way at once share links: max-min fairness, found anew at each change.

Only what a change can reach is worked out again: the messages that share a link with it, those that
share a link with these, and so on.
"""

from __future__ import annotations

import numpy as np

from .compiled import kernel
from .event_queue import push
from .event_state import (
    AFTER,
    COUNT,
    GROWING,
    LEFT,
    N_CHANGES,
    N_SEARCH,
    N_TOUCHED,
    ON_LINK,
    PATH,
    RATE,
    ROOM,
    SEEN,
    SEEN_LINK,
    SINCE,
    SPEED,
    TOUCHED,
    State,
)

# Links whose fair shares are this close are full at the same time.
EQUAL = 1 + 1e-12


@kernel
def touch(s: State, link: int) -> None:
    if s.links[link, TOUCHED] == 0:
        s.links[link, TOUCHED] = 1
        s.touched[s.size[N_TOUCHED]] = link
        s.size[N_TOUCHED] += 1


@kernel
def settle(s: State, now: float) -> None:
    """Share the links whose flows changed, and those that a change of theirs can reach."""
    s.size[N_SEARCH] += 1
    search = s.size[N_SEARCH]
    for k in range(s.size[N_TOUCHED]):
        link = s.touched[k]
        s.links[link, TOUCHED] = 0
        if s.links[link, SEEN_LINK] != search and s.links[link, COUNT] > 0:
            _fill(s, _reach(s, link, search), now)
    s.size[N_TOUCHED] = 0


@kernel
def _reach(s: State, link: int, search: int) -> int:
    """Find the links that a change of one can reach: by their flows, the flows of these, ...

    Returns how many there are, itself among them.
    """
    s.links[link, SEEN_LINK] = search
    s.reached[0] = link
    n_reached, at = 1, 0
    while at < n_reached:
        hop = s.links[s.reached[at], ON_LINK]
        at += 1
        while hop >= 0:
            m = hop // s.most_hops
            if s.messages[m, SEEN] != search:
                s.messages[m, SEEN] = search
                path = s.messages[m, PATH]
                for k in range(s.path_starts[path], s.path_starts[path + 1]):
                    other = s.path_links[k]
                    if s.links[other, SEEN_LINK] != search:
                        s.links[other, SEEN_LINK] = search
                        s.reached[n_reached] = other
                        n_reached += 1
            hop = s.hops[hop, AFTER]
    return n_reached


@kernel
def _fill(s: State, n_links: int, now: float) -> None:
    """Give the flows on the links reached their max-min fair rates, by progressive filling.

    All rates grow together; when a link is full, its flows keep what they have and the others grow
    on.

    Source: D. Bertsekas and R. Gallager, "Data Networks", 2nd edition, section 6.5.2.
    """
    for k in range(n_links):
        link = s.reached[k]
        s.rates[link, ROOM] = s.rates[link, RATE]
        s.links[link, GROWING] = s.links[link, COUNT]
    while n_links > 0:
        level, kept = np.inf, 0
        for k in range(n_links):
            link = s.reached[k]
            if s.links[link, GROWING] > 0:
                s.reached[kept] = link
                kept += 1
                level = min(level, s.rates[link, ROOM] / s.links[link, GROWING])
        n_links = kept
        n_full = 0
        for k in range(n_links):
            link = s.reached[k]
            if s.rates[link, ROOM] / s.links[link, GROWING] <= level * EQUAL:
                s.full[n_full] = link
                n_full += 1
        for k in range(n_full):
            hop = s.links[s.full[k], ON_LINK]
            while hop >= 0:
                m = hop // s.most_hops
                if s.messages[m, SEEN] > 0:
                    s.messages[m, SEEN] = -s.messages[m, SEEN]
                    _set_speed(s, m, level, now)
                    path = s.messages[m, PATH]
                    for j in range(s.path_starts[path], s.path_starts[path + 1]):
                        s.rates[s.path_links[j], ROOM] -= level
                        s.links[s.path_links[j], GROWING] -= 1
                hop = s.hops[hop, AFTER]


@kernel
def _set_speed(s: State, m: int, speed: float, now: float) -> None:
    if speed != s.bytes[m, SPEED]:
        moved = (now - s.bytes[m, SINCE]) * s.bytes[m, SPEED]
        s.bytes[m, LEFT] = max(s.bytes[m, LEFT] - moved, 0.0)
        s.bytes[m, SINCE] = now
        s.bytes[m, SPEED] = speed
        push(s, m, now + s.bytes[m, LEFT] / speed)
        _note(s, m, speed, now)


@kernel
def _note(s: State, m: int, speed: float, now: float) -> None:
    """Note a change of a message's speed, if there is room."""
    k = s.size[N_CHANGES]
    if k < len(s.change_of):
        s.change_of[k] = m
        s.changes[k, 0] = now
        s.changes[k, 1] = speed
    s.size[N_CHANGES] = k + 1
