"""Cuts of a topology: what must cross the border of a set of ranks, over what can cross it.

    border = Border.of(topology)
    cut = hardest_cut(border, Needs.of(bound))
    cut.time_ns, cut.text

Any set of nodes gives a bound that holds. Those tried are the sets that networks are made of:
single ranks, hosts, what is below one switch, then below the switches above, halves and planes of
grids, blocks of ranks in order. On small graphs maximum flows find the hardest set for what each
single rank must get or give, whatever it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
import numpy.typing as npt

from ..units import format_Bps, format_bytes
from .needs import Needs

if TYPE_CHECKING:
    from .topology import Topology

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Ranks times links up to which maximum flows look for cuts: about a tenth of a second.
FLOWS_UP_TO = 1_000
# Passes in which switches choose the side that most of their rate leads to.
_PASSES = 8


@dataclass(frozen=True, slots=True)
class Cut:
    """A set of ranks and what must cross its border, or many sets and what must cross theirs.

    Attributes:
        ranks: The ranks of the set; all of them where there are many sets.
        inward: Whether the bytes must come in, and not go out.
        size_bytes: Bytes that must cross.
        capacity_Bps: Rate of all links that cross in that direction.
        latency_ns: What a message that crosses takes at least before its bytes.
        n_sets: How many sets' bytes and rates were added up.
    """

    ranks: tuple[int, ...]
    inward: bool
    size_bytes: float
    capacity_Bps: float
    latency_ns: float
    n_sets: int = 1

    @property
    def bytes_ns(self) -> float:
        """What the bytes alone take."""
        return self.size_bytes * 1e9 / self.capacity_Bps

    @property
    def time_ns(self) -> float:
        """What crossing takes at least."""
        return self.latency_ns + self.bytes_ns

    @property
    def text(self) -> str:
        """The cut for a person.

        Example:
            >>> Cut((4, 5, 6, 7), True, 96 * 2**20, 10e9, 1000.0).text
            '96 MiB into ranks 4-7 at 10 GB/s'
        """
        size, rate = format_bytes(round(self.size_bytes)), format_Bps(self.capacity_Bps)
        who = _named(self.ranks)
        if self.n_sets > 1:
            single = self.n_sets == len(self.ranks)
            who = "all ranks together" if single else f"{self.n_sets} sets of ranks together"
        return f"{size} {'into' if self.inward else 'out of'} {who} at {rate}"


def hardest_cut(border: Border, needs: Needs) -> Cut | None:
    """Return the cut whose bytes take longest; None where nothing needs to move.

    Source: L. Zhao et al., "ForestColl: throughput-optimal collective communications on
    heterogeneous network fabrics", 2024, for cuts and how maximum flows find them; W. Dinkelbach,
    "On nonlinear fractional programming", 1967, for the largest ratio.
    """
    found = [cut for group in _partitions(border) for cut in _cuts(border, needs, group)]
    if not found:
        return None
    if border.n_ranks * len(border.tail) <= FLOWS_UP_TO:
        found += _cuts_by_flow(border, needs, max(cut.bytes_ns for cut in found))
    return max(found, key=lambda cut: cut.time_ns)


def rank_cuts(border: Border, needs: Needs) -> list[Cut]:
    """Return the cuts of single ranks that take longest, and of all of them together."""
    return _cuts(border, needs, border.apart(np.arange(border.n_ranks)))


@dataclass(frozen=True, slots=True, eq=False)
class Border:
    """A topology's links between numbered nodes, to see which of them leave a set of nodes.

    Attributes:
        n_nodes: Number of nodes.
        node: Node of each rank, (ranks,).
        tail, head: Nodes that each link leads from and to, (links,).
        rate_Bps, latency_ns: Rate and latency of each link, (links,).
        near_ns: Least latency of a message out of, and into, each rank, (2, ranks).
        half_duplex: Whether both directions of a link share its rate.
        hosts: Ranks of each host.
        dims: Sizes of a grid's dimensions, the fastest first; empty if it is none.
    """

    n_nodes: int
    node: Ints
    tail: Ints
    head: Ints
    rate_Bps: Floats
    latency_ns: Floats
    near_ns: Floats
    half_duplex: bool
    hosts: tuple[tuple[int, ...], ...]
    dims: tuple[int, ...]

    @staticmethod
    def of(
        topology: Topology,
        rate_Bps: Floats | None = None,
        *,
        helpers: bool = False,
        message_ns: float = 0.0,
        half_duplex: bool = False,
    ) -> Border:
        """Return the links of a topology.

        Args:
            topology: The network.
            rate_Bps: What each link carries at most, (links,); by default as built.
            helpers: Whether messages begin and end at other nodes than ranks', too.
            message_ns: Fixed cost of a message.
            half_duplex: Whether both directions of a link share its rate.
        """
        network = topology.network
        node = np.array([network.index[name] for name in topology.ranks], np.int64)
        near = np.zeros((2, len(node)))
        if not helpers:
            near = np.stack([near_ns(topology, backwards=way) for way in (False, True)])
        return Border(
            n_nodes=len(network.nodes),
            node=node,
            tail=network.tails,
            head=network.heads,
            rate_Bps=network.bandwidth_Bps if rate_Bps is None else rate_Bps,
            latency_ns=network.latency_ns,
            near_ns=near + message_ns,
            half_duplex=half_duplex,
            hosts=tuple(topology.hosts.values()),
            dims=topology.dims,
        )

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.node)

    def apart(self, group: Ints) -> Ints:
        """Return sets of ranks so numbered from 0 on that ranks on one node are in one set."""
        first = np.full(self.n_nodes, -1)
        first[self.node[::-1]] = np.arange(self.n_ranks)[::-1]
        numbers: Ints = np.unique(group[first[self.node]], return_inverse=True)[1]
        return numbers

    def sides(self, group: Ints) -> Ints:
        """Return the set that each node is counted to, -1 for none, (nodes,).

        A node without ranks goes where more than half of the rate of its links leads.
        """
        n_groups = int(group.max()) + 1
        side = np.full(self.n_nodes, -1)
        side[self.node] = group
        total = np.bincount(self.tail, self.rate_Bps, self.n_nodes)
        total += np.bincount(self.head, self.rate_Bps, self.n_nodes)
        ends = np.concatenate([self.tail, self.head]), np.concatenate([self.head, self.tail])
        rate = np.concatenate([self.rate_Bps, self.rate_Bps])
        for _ in range(_PASSES):
            open_ = (side[ends[0]] < 0) & (side[ends[1]] >= 0)
            keys, which = np.unique(
                ends[0][open_] * n_groups + side[ends[1][open_]], return_inverse=True
            )
            node = keys // n_groups
            most = np.bincount(which, rate[open_], len(keys)) > total[node] / 2
            if not most.any():
                break
            side[node[most]] = keys[most] % n_groups
        return side


def near_ns(topology: Topology, *, backwards: bool = False) -> Floats:
    """Return the least latency of a message out of each rank, or into it, (ranks,)."""
    graph = topology.graph
    there = graph.reverse(copy=False) if backwards else graph
    back = graph if backwards else graph.reverse(copy=False)
    places = set(topology.ranks)
    to_rank = nx.multi_source_dijkstra_path_length(back, places, weight="latency_ns")
    near = {
        node: min(
            (about["latency_ns"] + to_rank[peer] for peer, about in there.adj[node].items()
             if peer in to_rank),
            default=0.0,
        )
        for node in places
    }  # fmt: skip
    if len(places) < topology.n_ranks:  # ranks on one node have each other
        return np.zeros(topology.n_ranks)
    return np.array([near[node] for node in topology.ranks])


def _cuts(border: Border, needs: Needs, group: Ints, sides: Ints | None = None) -> list[Cut]:
    """Return the hardest cuts of the sets of one partition, and of all of them together.

    Args:
        border: The links.
        needs: What must cross.
        group: Set of each rank, as `Border.apart` has it.
        sides: Set of each node, -1 for none; by default as `Border.sides` has it.
    """
    n_sets = int(group.max()) + 1
    if n_sets == 1:
        return []
    side = border.sides(group) if sides is None else sides
    crosses = side[border.tail] != side[border.head]
    found = []
    for inward, ends in ((1, border.head), (0, border.tail)):
        links = crosses & (side[ends] >= 0)
        at = side[ends][links]
        capacity = np.bincount(at, border.rate_Bps[links], n_sets)
        first, nearest = np.full((2, n_sets), np.inf)
        np.minimum.at(first, at, border.latency_ns[links])
        np.minimum.at(nearest, group, border.near_ns[inward])
        latency = np.maximum(first, nearest)
        size = needs.entering(group) if inward else needs.leaving(group)
        together = needs.together(n_sets)
        if border.half_duplex:  # what crosses the other way takes the same time
            size = needs.entering(group) + needs.leaving(group)
            together *= 2
        useful = (size > 0) & (capacity > 0)
        if useful.any():
            times = np.where(useful, latency + size * 1e9 / np.where(useful, capacity, 1.0), 0.0)
            hardest = int(times.argmax())
            ranks = tuple(np.flatnonzero(group == hardest).tolist())
            size_bytes, rate_Bps = float(size[hardest]), float(capacity[hardest])
            found.append(Cut(ranks, bool(inward), size_bytes, rate_Bps, float(latency[hardest])))
        if together > 0 and capacity.sum() > 0:
            every = tuple(range(border.n_ranks))
            total = float(capacity.sum())
            found.append(Cut(every, bool(inward), together, total, float(latency.min()), n_sets))
    return found


def _partitions(border: Border) -> Iterator[Ints]:
    """Yield ways to divide the ranks into sets whose borders may be narrow, each once."""
    seen = set()
    for group in _candidates(border):
        apart = border.apart(group)
        key = apart.astype(np.int32).tobytes()
        if apart.max() > 0 and key not in seen:
            seen.add(key)
            yield apart


def _candidates(border: Border) -> Iterator[Ints]:
    n = border.n_ranks
    rank = np.arange(n)
    yield rank
    if border.hosts:
        host = -1 - rank  # a rank without a host stays by itself
        for k, ranks in enumerate(border.hosts):
            host[list(ranks)] = k
        yield host
    yield from _below_switches(border)
    below = 1
    for size in border.dims:
        at = rank // below % size
        yield at
        yield at * 2 // size
        below *= size
    for length in range(2, n // 2 + 1):
        if n % length == 0:
            yield rank // length
    yield rank * 2 // n


def _below_switches(border: Border) -> Iterator[Ints]:
    """Yield the ranks that are together below one switch, then below the switches above, ..."""
    side = np.full(border.n_nodes, -1)
    side[border.node] = np.arange(border.n_ranks)
    while True:
        joins = (side[border.tail] >= 0) & (side[border.head] < 0)
        if not joins.any():
            return
        sets = nx.utils.UnionFind(range(border.n_ranks))
        above: dict[int, int] = {}
        for low, switch in zip(
            side[border.tail[joins]].tolist(), border.head[joins].tolist(), strict=True
        ):
            sets.union(above.setdefault(switch, low), low)
        side[list(above)] = list(above.values())
        root = np.array([sets[k] for k in range(border.n_ranks)])
        side[side >= 0] = root[side[side >= 0]]
        yield side[border.node]


def _cuts_by_flow(border: Border, needs: Needs, bytes_ns: float) -> Iterator[Cut]:
    """Yield ever harder cuts, from one that takes `bytes_ns` on, until flows show that none is.

    What a rank must get can be there in a time if a flow brings it all, in which each other rank
    puts in no more than its bytes over that time; else the smallest cut of that flow is harder.
    """
    graph = nx.DiGraph()
    rates = zip(border.tail.tolist(), border.head.tolist(), border.rate_Bps.tolist(), strict=True)
    graph.add_weighted_edges_from(rates, weight="capacity")
    for demand in needs.demands():
        target = int(border.node[demand.rank])
        from_node = np.bincount(border.node, demand.from_bytes, border.n_nodes)
        from_node[target] = 0.0
        while bytes_ns > 0 and from_node.any():
            net = graph.reverse() if demand.backwards else graph.copy()
            rate_Bps = from_node * 1e9 / bytes_ns
            for node in np.flatnonzero(from_node).tolist():
                net.add_edge("source", node, capacity=float(rate_Bps[node]))
            flow, (inside, _) = nx.minimum_cut(net, "source", target)
            if flow >= rate_Bps.sum() * (1 - 1e-9):
                break
            sides = np.ones(border.n_nodes, np.int64)
            sides[[node for node in inside if node != "source"]] = 0
            cuts = _cuts(border, needs, sides[border.node], sides)
            harder = max((cut.bytes_ns for cut in cuts), default=0.0)
            if harder <= bytes_ns * (1 + 1e-9):
                break
            bytes_ns = harder
            yield from cuts


def _named(ranks: tuple[int, ...]) -> str:
    """Return ranks in words: "rank 3", "ranks 0-7", "ranks 0, 2, 4 and 13 more"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]}-{ranks[-1]}"
    if len(ranks) <= 4:
        return f"ranks {', '.join(map(str, ranks))}"
    return f"ranks {', '.join(map(str, ranks[:3]))} and {len(ranks) - 3} more"
