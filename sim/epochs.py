"""A network over time: its paths and rates in each epoch, from one change of a link to the next.

A path that uses a link that has failed is replaced by the best one without it; all others stay.
Where there is none, the two ends are cut off from each other, which is an error if a message is
under way between them then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ScheduleError, TopologyError
from ..units import format_ns
from .changes import Change
from .model import Model
from .network import Network
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
        link_latency_ns: Latency of each link, the same in all epochs, (links,).
        cuts: Paths that there are not for some time.
        routes, ends: The routes as built, and the places of each path, (2, paths).
    """

    change_ns: Floats
    latency_ns: Floats
    rate: Floats
    path_starts: Ints
    path_links: Ints
    link_rate: Floats
    link_latency_ns: Floats
    cuts: tuple[Cut, ...]
    routes: Routes
    ends: Ints

    @property
    def n_epochs(self) -> int:
        """Number of epochs."""
        return len(self.change_ns) + 1

    def latency_of(self, paths: Paths) -> Floats:
        """Return the latency of other paths, (paths,)."""
        return _measured(paths.starts, paths.links, self.link_rate, self.link_latency_ns)[0]

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
    routes: Routes,
    paths: Paths,
    ends: Ints,
    slow: Floats,
    model: Model,
) -> Epochs:
    """Return the epochs of a network.

    Args:
        topology: The network as built.
        routes: Its routes.
        paths: The paths of all messages as built.
        ends: Places that each path leads from and to, (2, paths).
        slow: How many times longer all takes at each place's node, (places,).
        model: What becomes of links, and whether their directions share a rate.

    Raises:
        TopologyError: A link that changes does not exist.
    """
    if not model.changes and model.duplex == "full" and (slow == 1).all():
        as_built = paths.latency_ns, paths.rate, paths.starts, paths.links, routes.links.rate
        return Epochs(np.zeros(0), *as_built, routes.links.latency_ns, (), routes, ends)
    slower = _slower(topology, slow)
    rate, latency = routes.links.rate / slower, routes.links.latency_ns * slower
    times, rates = _rates_over_time(topology, rate, model.changes)
    found: list[tuple[Any, ...]] = []
    cuts = []
    for begin_ns, end_ns, now in zip(times, [*times[1:], inf], rates, strict=True):
        starts, links = paths.starts, paths.links
        failed = now == 0
        if failed.any():
            starts, links, lost = _rerouted(topology, routes, paths, ends, failed)
            if lost.any():
                cuts.append(Cut(begin_ns, end_ns, lost, _names(routes.links, failed)))
                now = np.where(failed, rate, now)
        if model.duplex == "half":
            now, links = _half(topology.network, now, links)
        found.append((*_measured(starts, links, now, latency), starts, links, now))
    path_latency, path_rate, path_starts, path_links, link_rate = zip(*found, strict=True)
    low = np.cumsum([0, *map(len, path_links)])
    begins = [first + each[1:] for first, each in zip(low, path_starts)]
    return Epochs(
        change_ns=np.array(times[1:]),
        latency_ns=np.concatenate(path_latency),
        rate=np.concatenate(path_rate),
        path_starts=np.concatenate([[0], *begins]).astype(np.int64),
        path_links=np.concatenate([e * len(rate) + each for e, each in enumerate(path_links)]),
        link_rate=np.concatenate(link_rate),
        link_latency_ns=latency,
        cuts=tuple(cuts),
        routes=routes,
        ends=ends,
    )


def _measured(starts: Ints, links: Ints, rate: Floats, latency: Floats) -> tuple[Floats, Floats]:
    """Return the latency of each path, and the rate of its slowest link."""
    n = len(starts) - 1
    of_path = np.repeat(np.arange(n), np.diff(starts))
    slowest = np.full(n, np.inf)
    np.minimum.at(slowest, of_path, rate[links])
    return np.bincount(of_path, latency[links], n).astype(np.float64), slowest


def _half(network: Network, rate: Floats, links: Ints) -> tuple[Floats, Ints]:
    """Return rates and paths where both directions of a link count as the first of them."""
    own = np.arange(len(rate))
    back = np.where(network.reverse >= 0, network.reverse, own)
    works = np.where(rate > 0, rate, np.inf)
    slower = np.minimum(works, works[back])
    return np.where(np.isinf(slower), 0.0, slower), np.minimum(own, back)[links]


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


def _slower(topology: Topology, slow: Floats) -> Floats:
    """Return how many times longer each link takes, (links,): as the slower of its two ends."""
    network = topology.network
    node = np.ones(len(network.nodes))
    for rank in np.flatnonzero(slow > 1):
        at = network.index[topology.ranks[rank]]
        node[at] = max(node[at], slow[rank])
    return np.maximum(node[network.tails], node[network.heads])


def _rates_over_time(
    topology: Topology, built: Floats, changes: Sequence[Change]
) -> tuple[list[float], list[Floats]]:
    """Return when each epoch begins, and the rate of each link in it, 0 where it has failed."""
    times = sorted({0.0, *(float(change.at_ns) for change in changes)})
    rates, now = [], built
    for time in times:
        now = now.copy()
        for change in changes:
            if change.at_ns == time:
                links = topology.links_between(change.a, change.b, change.both_ways)
                now[links] = _new_rate(change, built[links])
        rates.append(now)
    return times, rates


def _new_rate(change: Change, built: Floats) -> Floats | float:
    if change.bandwidth_Bps is not None:
        return change.bandwidth_Bps / 1e9
    return 0.0 if change.slower is None else built / change.slower


def _rerouted(
    topology: Topology, routes: Routes, paths: Paths, ends: Ints, failed: Bools
) -> tuple[Ints, Ints, Bools]:
    """Return where each path begins, the links of all, and whether each is lost.

    A path that is lost keeps its links.
    """
    n = len(paths.rate)
    of_path = np.repeat(np.arange(n), np.diff(paths.starts))
    broken = np.bincount(of_path, failed[paths.links], n) > 0
    lost = np.zeros(n, np.bool_)
    if not broken.any():
        return paths.starts, paths.links, lost
    # What is left keeps its order, so that counting tells which link is which.
    left = np.flatnonzero(~failed)
    rest = replace(topology, network=topology.network.without_links(np.flatnonzero(failed)))
    new = Routes(rest, routes.helpers).paths(*ends[:, broken], lost_ok=True)
    lost[broken] = np.isinf(new.rate[new.pair])
    which = np.arange(n)
    which[broken] = np.where(lost[broken], which[broken], n + new.pair)
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
