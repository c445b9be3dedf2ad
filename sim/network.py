"""Who gets how much of which link: max-min fair rates, and flows whose rates change.

max_min(np.array([10.0, 4.0]), np.array([0, 2, 3]), np.array([0, 1, 0]))   # array([4., 6.])
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .routing import Links, Paths

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Links whose fair shares are this close are full at the same time.
_EQUAL = 1 + 1e-12


def max_min(rate: Floats, starts: Ints, links: Ints) -> Floats:
    """Return the max-min fair rate of each flow, by progressive filling.

    All rates grow together; when a link is full, its flows keep what they have and the others
    grow on.

    Args:
        rate: Capacity of each link.
        starts: Where each flow's links begin in `links`, and the end of the last, (flows + 1,).
        links: Links of all flows, one after the other; each flow has at least one.

    Returns:
        Rates in the unit of `rate`, shape (flows,).

    Source: D. Bertsekas and R. Gallager, "Data Networks", 2nd edition, section 6.5.2.

    Example:
        >>> max_min(np.array([10.0, 4.0]), np.array([0, 2, 3]), np.array([0, 1, 0])).tolist()
        [4.0, 6.0]
    """
    used, at = np.unique(links, return_inverse=True)
    left = rate[used].astype(np.float64)
    flow = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    count = np.bincount(at, minlength=len(used))
    rates = np.zeros(len(starts) - 1, np.float64)
    growing = np.ones(len(rates), np.bool_)
    while growing.any():
        share = np.divide(left, count, out=np.full(len(left), np.inf), where=count > 0)
        level = share.min()
        full = share <= level * _EQUAL
        stopped = growing & np.logical_or.reduceat(full[at], starts[:-1])
        rates[stopped] = level
        taken = np.bincount(at[stopped[flow]], minlength=len(used))
        left -= level * taken
        count -= taken
        growing &= ~stopped
    return rates


def overlap(paths: Paths, begin_ns: Floats, end_ns: Floats) -> bool:
    """Return whether two messages ever use one link at the same time.

    Args:
        paths: Paths of the messages.
        begin_ns: When each message's first byte enters its path, after its latency.
        end_ns: When its last byte is there.
    """
    message = np.repeat(np.arange(len(begin_ns)), np.diff(paths.starts))
    busy = (end_ns > begin_ns)[message]
    message, links = message[busy], paths.links[busy]
    order = np.lexsort((begin_ns[message], links))
    message, links = message[order], links[order]
    follows = links[1:] == links[:-1]
    return bool((follows & (begin_ns[message[1:]] < end_ns[message[:-1]])).any())


class Flows:
    """Messages on their way, each at its max-min fair rate.

    Only those that a change can reach are worked out again: the flows that share a link with a
    changed one, those that share a link with these, and so on.

    Args:
        links: The links.
        paths: Path of each message.
        size_bytes: Bytes of each message on the wire.
    """

    def __init__(self, links: Links, paths: Paths, size_bytes: Floats) -> None:
        self._rate = links.rate
        starts, flat = paths.starts.tolist(), paths.links.tolist()
        self._paths = [flat[a:b] for a, b in pairwise(starts)]
        self._alone: list[float] = paths.rate.tolist()
        self._left: list[float] = size_bytes.tolist()
        self._speed = [0.0] * len(self._paths)
        self._since = [0.0] * len(self._paths)
        # Dicts keep the order in which flows came, so that a run is the same each time.
        self._on_link: list[dict[int, None]] = [{} for _ in links.ends]
        self._changed: dict[int, None] = {}

    def add(self, message: int, now: float) -> None:
        """Let a message's bytes flow from now on."""
        self._since[message] = now
        for link in self._paths[message]:
            self._on_link[link][message] = None
            self._changed[link] = None

    def remove(self, message: int) -> None:
        """Take a message off its links, since it has arrived."""
        for link in self._paths[message]:
            del self._on_link[link][message]
            self._changed[link] = None

    def settle(self, now: float) -> list[tuple[int, float]]:
        """Share the links that changed, and return (message, arrival) of each new speed."""
        arrivals: list[tuple[int, float]] = []
        while self._changed:
            link = next(iter(self._changed))
            del self._changed[link]
            flows = self._reached_from(link)
            for message, speed in zip(flows, self._shares(flows)):
                if speed != self._speed[message]:
                    arrivals.append((message, self._set_speed(message, speed, now)))
        return arrivals

    def _reached_from(self, link: int) -> list[int]:
        """Return the flows on a link and all that share links with them, in order."""
        found: dict[int, None] = {}
        seen = {link}
        queue = [link]
        for at in queue:
            for message in self._on_link[at]:
                if message not in found:
                    found[message] = None
                    fresh = [other for other in self._paths[message] if other not in seen]
                    seen.update(fresh)
                    queue.extend(fresh)
        for at in queue:
            self._changed.pop(at, None)
        return sorted(found)

    def _shares(self, flows: list[int]) -> Iterable[float]:
        if len(flows) <= 1:
            return [self._alone[message] for message in flows]
        starts = np.zeros(len(flows) + 1, np.int64)
        np.cumsum([len(self._paths[message]) for message in flows], out=starts[1:])
        links = np.fromiter(
            (link for message in flows for link in self._paths[message]), np.int64, int(starts[-1])
        )
        shares: list[float] = max_min(self._rate, starts, links).tolist()
        return shares

    def _set_speed(self, message: int, speed: float, now: float) -> float:
        if self._speed[message] > 0:
            moved = (now - self._since[message]) * self._speed[message]
            self._left[message] = max(self._left[message] - moved, 0.0)
        self._since[message] = now
        self._speed[message] = speed
        return now + self._left[message] / speed
