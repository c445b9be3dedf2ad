"""Ports of `events`: how many messages a place sends at once, and how many it receives.

A message that finds no free port at both ends waits; earlier messages of the schedule go first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import kernel
from .program_order import Program

Array = npt.NDArray[Any]

# Columns of `place`, `busy`, `first`, `last`, and, in pairs, of `near`: sending and receiving.
OUT, IN = range(2)


class Ports(NamedTuple):
    """Ports and who waits for them.

    Attributes:
        limit: Ports of each place, each way; 0 where there is no limit.
        place: Where each message sends and receives, (messages, 2).
        busy: How many ports of each place are taken, (places, 2).
        first, last: Messages that wait at each place, (places, 2), -1 for none.
        near: Next and previous one of each message, sending, then receiving, (messages, 4).
        changed: Places where something changed, and, behind them, whether each place is listed.
        n_changed: How many, one entry.
    """

    limit: int
    place: Array
    busy: Array
    first: Array
    last: Array
    near: Array
    changed: Array
    n_changed: Array


def ports_of(p: Program) -> Ports:
    """Return the ports of a program, all of them free."""
    n = len(p.src_place)
    n_places = int(max(p.src_place.max(initial=-1), p.dst_place.max(initial=-1))) + 1
    return Ports(
        limit=p.ports,
        place=np.stack([p.src_place, p.dst_place], axis=1).astype(np.int32).reshape(n, 2),
        busy=np.zeros((n_places, 2), np.int32),
        first=np.full((n_places, 2), -1, np.int32),
        last=np.full((n_places, 2), -1, np.int32),
        near=np.full((n, 4), -1, np.int32),
        changed=np.zeros(2 * n_places, np.int32),
        n_changed=np.zeros(1, np.int64),
    )


@kernel
def ask(p: Ports, m: int) -> None:
    """Let a message wait for its ports."""
    for end in range(2):
        place = int(p.place[m, end])
        before = int(p.last[place, end])
        while before > m:
            before = int(p.near[before, 2 * end + 1])
        after = int(p.near[before, 2 * end] if before >= 0 else p.first[place, end])
        _tie(p, place, end, before, m)
        _tie(p, place, end, m, after)
        _change(p, place)


@kernel
def give_back(p: Ports, m: int) -> None:
    """Free the ports of a message."""
    for end in range(2):
        p.busy[p.place[m, end], end] -= 1
        _change(p, int(p.place[m, end]))


@kernel
def grant(p: Ports) -> int:
    """Give its ports to a message that waits and can have them; return -1 if there is none."""
    while p.n_changed[0] > 0:
        place = int(p.changed[p.n_changed[0] - 1])
        for end in range(2):
            m = _next(p, place, end)
            if m >= 0:
                # An earlier one that can go at its other end goes first, so that it does not
                # matter where one looks first.
                while True:
                    end = 1 - end
                    earlier = _next(p, int(p.place[m, end]), end)
                    if earlier == m:
                        break
                    m = earlier
                _take(p, m)
                return m
        p.n_changed[0] -= 1
        p.changed[len(p.busy) + place] = 0
    return -1


@kernel
def _next(p: Ports, place: int, end: int) -> int:
    """Return the first message that can go at one end of a place; -1 for none."""
    if p.busy[place, end] >= p.limit:
        return -1
    m = int(p.first[place, end])
    while m >= 0 and p.busy[p.place[m, 1 - end], 1 - end] >= p.limit:
        m = int(p.near[m, 2 * end])
    return m


@kernel
def _take(p: Ports, m: int) -> None:
    for end in range(2):
        place = int(p.place[m, end])
        _tie(p, place, end, int(p.near[m, 2 * end + 1]), int(p.near[m, 2 * end]))
        p.busy[place, end] += 1


@kernel
def _tie(p: Ports, place: int, end: int, before: int, after: int) -> None:
    """Make two messages neighbours in the list of a place; -1 is an end of the list."""
    if before >= 0:
        p.near[before, 2 * end] = after
    else:
        p.first[place, end] = after
    if after >= 0:
        p.near[after, 2 * end + 1] = before
    else:
        p.last[place, end] = before


@kernel
def _change(p: Ports, place: int) -> None:
    if p.changed[len(p.busy) + place] == 0:
        p.changed[len(p.busy) + place] = 1
        p.changed[p.n_changed[0]] = place
        p.n_changed[0] += 1
