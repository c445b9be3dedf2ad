"""What a collective must cost: bounds that no algorithm can beat.

    bounds = replay.bounds      # for the replay's own collective, sizes and topology
    bounds.time_ns, bounds.text

What each algorithm costs is in `closed`, what must cross which links in `cuts`. α is the latency of
a path (two links on a star), B the rate of a link.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
import numpy.typing as npt

from ..units import format_ns
from .bind import BoundSchedule
from .cuts import Border, Cut, hardest_cut, near_ns, rank_cuts
from .needs import Needs

if TYPE_CHECKING:
    from .replay import Replay

# Ranks up to which all pairs are asked how far apart they are.
_ALL_PAIRS = 64


def latency_bound_ns(group_size: int, latency_ns: float, ports: int = 1) -> float:
    """Return ⌈log_(k+1) n⌉α: before that a rank's data cannot have reached all, or all data one.

    Args:
        group_size: n.
        latency_ns: α.
        ports: k, how many messages a rank can send and receive at one time.

    Source: J. Bruck et al., "Efficient algorithms for all-to-all communications in multiport
    message-passing systems", 1997.

    Example:
        >>> latency_bound_ns(8, 1000)
        3000
    """
    steps, reached = 0, 1
    while reached < group_size:
        steps, reached = steps + 1, reached * (ports + 1)
    return steps * latency_ns


def bandwidth_bound_ns(bound: BoundSchedule, bandwidth_Bps: float) -> float:
    """Return the time that each rank's link is busy at least: 2(n-1)S/(nB) for an all_reduce.

    Args:
        bound: What is done; only its collective, group size, sizes and root count.
        bandwidth_Bps: B, rate of each rank's link, each way.

    Source: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations", 2009; for the others E. Chan et al., 2007.

    Example:
        >>> from .library import build
        >>> bandwidth_bound_ns(build("all_reduce", "tree", 4).bind(1000, "float32"), 1e9)
        6000.0
    """
    needs, rank = Needs.of(bound), np.arange(bound.schedule.group_size)
    each = needs.together(len(rank)) / len(rank)
    most = max(needs.entering(rank).max(), needs.leaving(rank).max(), each)
    return float(most) * 1e9 / bandwidth_Bps


@dataclass(frozen=True, slots=True)
class Bounds:
    """Times that no algorithm can beat on a topology, for one collective and its data.

    Attributes:
        latency_ns: What news needs from a rank to the farthest one that its data must reach.
        bandwidth: The rank whose own links need longest for what must cross them, or all ranks
            together; None where nothing must move, or links are not shared.
        cut: The same of any set of ranks, so far as it was found.
    """

    latency_ns: float
    bandwidth: Cut | None
    cut: Cut | None

    @property
    def bandwidth_ns(self) -> float:
        """What the ranks' own links ask for; 0 for nothing."""
        return 0.0 if self.bandwidth is None else self.bandwidth.time_ns

    @property
    def cut_ns(self) -> float:
        """What the hardest cut of the topology asks for; 0 for nothing."""
        return 0.0 if self.cut is None else self.cut.time_ns

    @property
    def time_ns(self) -> float:
        """The largest of them."""
        return max(self.latency_ns, self.bandwidth_ns, self.cut_ns)

    @property
    def text(self) -> str:
        """What decides, for a person: the latency, or which bytes must cross which links."""
        if self.cut is None or self.latency_ns > self.cut_ns:
            return f"{format_ns(self.latency_ns)} latency to the farthest rank"
        return self.cut.text


def bounds(replay: Replay) -> Bounds:
    """Return times that no algorithm can beat on the replay's topology, for its data.

    A rank's data must travel to the rank farthest from it; and what must cross the border of a set
    of ranks must pass the links there are. Without sharing links carry anything, so latency alone
    counts.

    Args:
        replay: What was simulated; its schedule counts only for its collective and sizes, and for
            whether switches reduce.

    Source: J. Bruck et al., 1997, for latency with a limited number of ports; `cuts` for the rest.

    Example:
        >>> from .library import build
        >>> from .replay import simulate
        >>> from .topology import parse
        >>> bound = build("all_reduce", "tree", 4).bind(1 << 18, "float32")
        >>> bounds(simulate(bound, parse("star:1GB/s,1us", 4))).text
        '6 MiB into all ranks together at 4 GB/s'
    """
    needs = Needs.of(replay.bound)
    latency_ns = _latency_ns(replay, needs)
    if not replay.parameters.sharing:
        return Bounds(latency_ns, None, None)
    model, epochs = replay.parameters, replay._work.epochs
    # A link that changes is given the best that it has at any time.
    rate_Bps = epochs.link_rate.reshape(epochs.n_epochs, -1).max(axis=0) * 1e9
    border = Border.of(
        replay.topology,
        rate_Bps,
        helpers=needs.in_network,
        message_ns=replay.costs.message_ns,
        half_duplex=model.duplex == "half",
    )
    alone = max(rank_cuts(border, needs), key=lambda cut: cut.time_ns, default=None)
    slowest = rate_Bps[rate_Bps > 0].min(initial=np.inf)
    saved_ns = replay.costs.burst_bytes * 1e9 / float(slowest)
    return Bounds(
        latency_ns, _sooner(alone, saved_ns), _sooner(hardest_cut(border, needs), saved_ns)
    )


def _sooner(cut: Cut | None, saved_ns: float) -> Cut | None:
    """Return a cut whose links passed a burst at once that would have taken them so long."""
    return cut and replace(cut, latency_ns=cut.latency_ns - saved_ns)


def lower_bound_ns(replay: Replay) -> int:
    """Return the largest of a replay's `bounds`, rounded as its duration is."""
    return round(replay.bounds.time_ns)


def _latency_ns(replay: Replay, needs: Needs) -> float:
    """Return the least time from a call to when the farthest rank knows of it.

    It counts for every two ranks one of which needs something of the other's. With a limited number
    of ports it takes as long as news needs to spread, too.
    """
    n, topology, parameters = needs.group_size, replay.topology, replay.parameters
    rank, late = np.arange(n), np.zeros(n)
    for place, delay_ns in parameters.delay_ns.items():
        late[place] = delay_ns
    gives, takes = (np.ones((2, n), np.bool_) if needs.kind.idempotent else
                    (needs.leaving(rank) > 0, needs.entering(rank) > 0))  # fmt: skip
    if n == 1 or not gives.any():
        return float(late.max())
    pairs = None if needs.pair_bytes is None else needs.pair_bytes > 0
    longest = float(late.max())
    for source in _far_apart(replay, gives):
        reached = takes & (rank != source) & (True if pairs is None else pairs[source])
        far = _distances(topology.graph, topology.ranks[source])
        away = max((far[topology.ranks[k]] for k in np.flatnonzero(reached)), default=None)
        if away is not None:
            longest = max(longest, late[source] + away + replay.costs.message_ns)
    if parameters.ports is not None and not needs.in_network:
        most = max(gives.sum(), takes.sum()) if pairs is None else pairs.sum(axis=0).max() + 1
        nearest = float(near_ns(topology).min()) + replay.costs.message_ns
        longest = max(longest, latency_bound_ns(int(most), nearest, parameters.ports))
    return longest


def _far_apart(replay: Replay, gives: npt.NDArray[np.bool_]) -> list[int]:
    """Return the ranks to measure from: all, or if there are many, late ones and two far apart."""
    ranks, late = np.flatnonzero(gives).tolist(), replay.parameters.delay_ns
    if len(ranks) <= _ALL_PAIRS:
        return ranks
    node = replay.topology.ranks
    far = _distances(replay.topology.graph.reverse(copy=False), node[ranks[0]])
    end = max(ranks, key=lambda rank: far[node[rank]])
    return [ranks[0], end, *(rank for rank in ranks if rank in late)]


# A sweep over sizes asks the same of the same frozen graph again and again.
@lru_cache(maxsize=2 * _ALL_PAIRS)
def _distances(graph: nx.DiGraph, node: str) -> dict[str, float]:
    found: dict[str, float] = nx.single_source_dijkstra_path_length(
        graph, node, weight="latency_ns"
    )
    return {name: found.get(name, 0.0) for name in graph}
