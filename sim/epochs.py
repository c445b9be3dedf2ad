"""A network over time: its paths and rates in each epoch, from one change of a link to the next.

A path that uses a link that has failed is replaced by the best one without it; all others stay.
Where there is none, the two ends are cut off from each other, which is an error if a message is
under way between them then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ScheduleError, TopologyError
from ..units import format_ns
from .changes import Change
from .routing import Links, Paths, Routes
from .topology import Topology

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Cut(NamedTuple):
    """Paths that there are not for some time.

    Attributes:
        begin_ns, end_ns: From when to when.
        paths: Whether each path is one, (paths,).
        failed: Names of the links that have failed.
    """

    begin_ns: float
    end_ns: float
    paths: Bools
    failed: str


@dataclass(frozen=True, slots=True, eq=False)
class Epochs:
    """Paths and links of all epochs, one epoch's after the other's.

    Attributes:
        change_ns: When the next epoch begins, (epochs - 1,).
        latency_ns, rate: Of each path in each epoch, (epochs * paths,).
        path_starts: Where each begins in `path_links`, (epochs * paths + 1,).
        path_links: Links of all paths, those of epoch e counted from e * links on.
        link_rate: Bytes a nanosecond, (epochs * links,).
        cuts: Paths that there are not for some time.
        routes, ends: The routes as built, and the places of each path, (2, paths).
    """

    change_ns: Floats
    latency_ns: Floats
    rate: Floats
    path_starts: Ints
    path_links: Ints
    link_rate: Floats
    cuts: tuple[Cut, ...]
    routes: Routes
    ends: Ints

    @property
    def n_epochs(self) -> int:
        """Number of epochs."""
        return len(self.change_ns) + 1

    def check(self, pair: Ints, start_ns: Floats, arrived_ns: Floats) -> None:
        """Raise an error where a message is under way between two places that are cut off.

        Args:
            pair: Path of each message, (messages,).
            start_ns, arrived_ns: When it left and arrived, (messages,).

        Raises:
            TopologyError: It names the places, the links and the time.
        """
        for cut in self.cuts:
            under_way = cut.paths[pair] & (arrived_ns > cut.begin_ns) & (start_ns < cut.end_ns)
            if under_way.any():
                first = int(np.argmin(np.where(under_way, start_ns, inf)))
                src, dst = (self.routes.label(place) for place in self.ends[:, pair[first]])
                when = f"{format_ns(cut.begin_ns)} on" if cut.begin_ns else "the start"
                raise TopologyError(
                    f"no path from {src} to {dst} from {when}, since {cut.failed} failed, and a "
                    f"message is under way at {format_ns(max(cut.begin_ns, start_ns[first]))}: "
                    "add a link, or let one come back"
                )


def epochs_of(
    topology: Topology,
    helpers: Sequence[str],
    routes: Routes,
    paths: Paths,
    ends: Ints,
    slow: Floats,
    changes: Sequence[Change],
) -> Epochs:
    """Return the epochs of a network.

    Args:
        topology: The network as built.
        helpers: Names of the schedule's helpers.
        routes: Its routes.
        paths: The paths of all messages as built.
        ends: Places that each path leads from and to, (2, paths).
        slow: How many times longer all takes at each place's node, (places,).
        changes: What becomes of links.

    Raises:
        TopologyError: A link that changes does not exist.
    """
    if not changes and (slow == 1).all():
        each = paths.latency_ns, paths.rate, paths.starts, paths.links
        return Epochs(np.zeros(0), *each, routes.links.rate, (), routes, ends)
    slower = _slower(topology, routes.links, slow)
    rate, latency = routes.links.rate / slower, routes.links.latency_ns * slower
    times, rates = _rates_over_time(routes.links, rate, changes)
    found, cuts = [], []
    for begin_ns, end_ns, now in zip(times, [*times[1:], inf], rates, strict=True):
        starts, links = paths.starts, paths.links
        failed = now == 0
        if failed.any():
            starts, links, lost = _rerouted(topology, helpers, routes.links, paths, ends, failed)
            if lost.any():
                cuts.append(Cut(begin_ns, end_ns, lost, _names(routes.links, failed)))
                now = np.where(failed, rate, now)
        of_path = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        slowest = np.full(len(starts) - 1, np.inf)
        np.minimum.at(slowest, of_path, now[links])
        path_latency = np.bincount(of_path, latency[links], len(starts) - 1)
        found.append((path_latency, slowest, starts, links, now))
    n_links = len(rate)
    first = np.cumsum([0, *(len(epoch[3]) for epoch in found)])
    return Epochs(
        change_ns=np.array(times[1:]),
        latency_ns=np.concatenate([epoch[0] for epoch in found]),
        rate=np.concatenate([epoch[1] for epoch in found]),
        path_starts=np.concatenate(
            [[0], *(low + epoch[2][1:] for low, epoch in zip(first, found))]
        ).astype(np.int64),
        path_links=np.concatenate([e * n_links + epoch[3] for e, epoch in enumerate(found)]),
        link_rate=np.concatenate([epoch[4] for epoch in found]),
        cuts=tuple(cuts),
        routes=routes,
        ends=ends,
    )


def slow_places(slow: Mapping[int, float], n_ranks: int, n_places: int) -> Floats:
    """Return how many times longer all takes at each place, (places,).

    Raises:
        ScheduleError: A rank does not exist.
    """
    factor = np.ones(n_places)
    for rank, times in slow.items():
        if not 0 <= rank < n_ranks:
            raise ScheduleError(f"slow rank {rank}, expected 0 to {n_ranks - 1}")
        factor[rank] = times
    return factor


def _slower(topology: Topology, links: Links, slow: Floats) -> Floats:
    """Return how many times longer each link takes, (links,): as the slower of its two ends."""
    node = np.ones(len(links.nodes))
    index = {name: k for k, name in enumerate(links.nodes)}
    for rank in np.flatnonzero(slow > 1):
        at = index[topology.ranks[rank]]
        node[at] = max(node[at], slow[rank])
    return np.maximum(node[links.tails], node[links.heads])


def _rates_over_time(
    links: Links, built: Floats, changes: Sequence[Change]
) -> tuple[list[float], list[Floats]]:
    """Return when each epoch begins, and the rate of each link in it, 0 where it has failed."""
    times = sorted({0.0, *(float(change.at_ns) for change in changes)})
    number = {ends: k for k, ends in enumerate(links.ends)} if changes else {}
    rates, now = [], built
    for time in times:
        now = now.copy()
        for change in changes:
            if change.at_ns == time:
                for link in _links_of(change, number):
                    now[link] = _new_rate(change, built[link])
        rates.append(now)
    return times, rates


def _new_rate(change: Change, built: float) -> float:
    if change.bandwidth_Bps is not None:
        return change.bandwidth_Bps / 1e9
    return 0.0 if change.slower is None else built / change.slower


def _links_of(change: Change, number: Mapping[tuple[str, str], int]) -> list[int]:
    a, b = change.a, change.b
    found = [(a, b), (b, a)] if change.both_ways else [(a, b)]
    known = [number[ends] for ends in found if ends in number]
    if not known:
        near = sorted({y for x, y in number if x == a}) or sorted({x for x, _ in number})
        raise TopologyError(
            f"no link {change}: there is none from {a!r} to {b!r}; known: {', '.join(near[:8])}"
        )
    return known


def _rerouted(
    topology: Topology,
    helpers: Sequence[str],
    links: Links,
    paths: Paths,
    ends: Ints,
    failed: Bools,
) -> tuple[Ints, Ints, Bools]:
    """Return where each path begins, the links of all, and whether each is lost.

    A path that is lost keeps its links.
    """
    n = len(paths.rate)
    of_path = np.repeat(np.arange(n), np.diff(paths.starts))
    broken = np.bincount(of_path, failed[paths.links], n) > 0
    lost = np.zeros(n, np.bool_)
    which = np.arange(n)
    if not broken.any():
        return paths.starts, paths.links, lost
    for link in np.flatnonzero(failed):
        topology = topology.without_link(*links.ends[link], both_ways=False)
    new = Routes(topology, helpers).paths(*ends[:, broken], lost_ok=True)
    is_lost = np.isinf(new.rate[new.pair])
    lost[broken] = is_lost
    which[broken] = np.where(is_lost, which[broken], n + new.pair)
    # Links of what is left have the same order, so that they are numbered by counting.
    left = np.flatnonzero(~failed)
    starts = np.concatenate([paths.starts, len(paths.links) + new.starts[1:]])
    return *_pick(starts, np.concatenate([paths.links, left[new.links]]), which), lost


def _pick(starts: Ints, links: Ints, which: Ints) -> tuple[Ints, Ints]:
    """Return where each of some paths begins, and their links."""
    counts = np.diff(starts)[which]
    ends = np.cumsum(counts)
    picked = np.repeat(starts[which] - (ends - counts), counts) + np.arange(int(counts.sum()))
    return np.append(0, ends), links[picked]


def _names(links: Links, failed: Bools) -> str:
    """Return the names of links, both directions as one, for a person."""
    ends = {tuple(sorted(links.ends[link])) for link in np.flatnonzero(failed)}
    names = [f"{a}-{b}" for a, b in sorted(ends)]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more
