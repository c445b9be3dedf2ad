"""Paths through a topology: shortest by latency, found when first asked for.

routes = Routes(topology, helpers=())
routes.between(0, 2)        # numbers of the links from place 0 to place 2
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import TopologyError
from .compiled import allocates, kernel, run
from .topology import Link, Topology

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """The directed links of a topology in columns.

    Attributes:
        ends: Names of the nodes that each link leads from and to.
        rate: Bytes a nanosecond, shape (links,).
        latency_ns: Shape (links,).
    """

    ends: tuple[tuple[str, str], ...]
    rate: Floats
    latency_ns: Floats


class Paths(NamedTuple):
    """The paths of several messages, those between the same two places only once.

    Attributes:
        pair: Number of each message's path, shape (messages,).
        starts: Where each path begins in `links`, and the end of the last, shape (paths + 1,).
        links: Numbers of the links of all paths, one after the other.
        latency_ns: Sum of the latencies of each path, shape (paths,).
        rate: Bytes a nanosecond of the slowest link of each path; infinite within one node.
    """

    pair: npt.NDArray[np.int32]
    starts: Ints
    links: Ints
    latency_ns: Floats
    rate: Floats


class _Tree(NamedTuple):
    """Shortest paths from one node: the node and link before each node; -1 where there is none."""

    node: Ints
    link: Ints


class Routes:
    """Shortest paths between places by latency, then hops, then the order of the nodes.

    Args:
        topology: The network.
        helpers: Names of a schedule's helpers, which are places above the ranks and must be nodes.

    Raises:
        TopologyError: A helper is no node.

    Source: E. W. Dijkstra, "A note on two problems in connexion with graphs", 1959.
    """

    def __init__(self, topology: Topology, helpers: Sequence[str] = ()) -> None:
        names = list(topology.graph)
        self._graph = topology.graph
        self._names = names
        self._index = {name: k for k, name in enumerate(names)}
        for helper in helpers:
            if helper not in self._index:
                raise TopologyError(f"helper {helper!r} of the schedule is no node of {topology}")
        self._n_ranks = topology.n_ranks
        self._node = [self._index[name] for name in (*topology.ranks, *helpers)]
        edges = sorted(
            (self._index[a], self._index[b], about["bandwidth_Bps"], about["latency_ns"])
            for a, b, about in topology.graph.edges(data=True)
        )
        self.links = Links(
            ends=tuple((names[a], names[b]) for a, b, _, _ in edges),
            rate=np.array([edge[2] for edge in edges], np.float64) / 1e9,
            latency_ns=np.array([edge[3] for edge in edges], np.float64),
        )
        tail = np.array([edge[0] for edge in edges], np.int64)
        self._heads = np.array([edge[1] for edge in edges], np.int64)
        self._first = np.zeros(len(names) + 1, np.int64)
        np.cumsum(np.bincount(tail, minlength=len(names)), out=self._first[1:])
        self._trees: dict[int, _Tree] = {}

    def between(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the numbers of the links from one place to another; none within a node.

        They count into `self.links`, not into `Topology.links`; see `path` for the links.

        Raises:
            TopologyError: No path leads there; the message names both.
        """
        _, links = self._walk(src, np.array([dst]), len(self._names))
        return tuple(links.tolist())

    def path(self, src: int, dst: int) -> tuple[Link, ...]:
        """Return the links from one place to another, each as one direction.

        Raises:
            TopologyError: No path leads there; the message names both.

        Example:
            >>> from .topology import parse
            >>> [(link.a, link.b, link.label) for link in Routes(parse("star", 2)).path(0, 1)]
            [('r0', 'switch', '100 GB/s'), ('switch', 'r1', '100 GB/s')]
        """
        found = []
        for link in self.between(src, dst):
            a, b = self.links.ends[link]
            about = self._graph.edges[a, b]
            found.append(Link(a, b, about["bandwidth_Bps"], about["latency_ns"], both_ways=False))
        return tuple(found)

    def paths(self, src: Ints, dst: Ints) -> Paths:
        """Return the paths of messages from `src` to `dst`, places of shape (messages,).

        Raises:
            TopologyError: No path leads from one of them to the other.
        """
        n_places = len(self._node)
        pairs, which = _distinct(src.astype(np.int64) * n_places + dst, n_places * n_places)
        sources, first = np.unique(pairs // n_places, return_index=True)
        bounds = [*first.tolist(), len(pairs)]
        work = len(sources) * len(self._names) + len(pairs)
        lengths, flat = [np.zeros(1, np.int64)], [np.zeros(0, np.int64)]
        for place, low, high in zip(sources.tolist(), bounds, bounds[1:], strict=False):
            starts, links = self._walk(place, pairs[low:high] % n_places, work)
            lengths.append(np.diff(starts))
            flat.append(links)
        starts, links = np.cumsum(np.concatenate(lengths)), np.concatenate(flat)
        pair = np.repeat(np.arange(len(pairs)), np.diff(starts))
        rate = np.full(len(pairs), np.inf)
        np.minimum.at(rate, pair, self.links.rate[links])
        latency = np.zeros(len(pairs))
        np.add.at(latency, pair, self.links.latency_ns[links])
        return Paths(which, starts, links, latency, rate)

    def _walk(self, src: int, dst: Ints, work: int) -> tuple[Ints, Ints]:
        """Return the links from one place to several, and where each path begins among them.

        `work` says how many nodes and paths are looked at in all: whether compiling pays.
        """
        root = self._node[src]
        if root not in self._trees:
            shortest = run(_shortest, work)
            latency = self.links.latency_ns
            self._trees[root] = _Tree(*shortest(self._first, self._heads, latency, root))
        nodes = np.array(self._node, np.int64)[dst]
        tree = self._trees[root]
        lost = np.flatnonzero((tree.node[nodes] < 0) & (nodes != root))
        if len(lost):
            raise TopologyError(
                f"no path from {self._label(src)} to {self._label(int(dst[lost[0]]))}: "
                "the schedule sends a message there; add a link, or use another algorithm"
            )
        return run(_back, work)(tree.node, tree.link, root, nodes)

    def _label(self, place: int) -> str:
        name = self._names[self._node[place]]
        return f"rank {place} ({name})" if place < self._n_ranks else f"helper {name}"


def _distinct(keys: Ints, limit: int) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Return the keys that occur, sorted, and which of them each one is."""
    if limit > 4 * len(keys) + (1 << 20):
        found, which = np.unique(keys, return_inverse=True)
        return found, which.astype(np.int32)
    occurs = np.zeros(limit, np.bool_)
    occurs[keys] = True
    number = np.cumsum(occurs, dtype=np.int32) - 1
    return np.flatnonzero(occurs), number[keys]


@kernel
@allocates
def _shortest(first: Ints, heads: Ints, latency: Floats, root: int) -> tuple[Ints, Ints]:
    """Return the node and the link before each node on its path from `root`, by latency, then hops.

    Args:
        first: Where each node's links begin, and the end of the last, (nodes + 1,).
        heads: Node that each link leads to, (links,).
        latency: Latency of each link, (links,).
        root: Number of the node.
    """
    n = len(first) - 1
    best_ns, best_hops = np.full(n, np.inf), np.full(n, n, np.int64)
    node_before, link_before = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    best_ns[root] = 0.0
    best_hops[root] = 0
    heap = [(0.0, 0, root)]
    while len(heap) > 0:
        so_far, hops, node = heapq.heappop(heap)
        if so_far > best_ns[node] or (so_far == best_ns[node] and hops > best_hops[node]):
            continue
        for link in range(first[node], first[node + 1]):
            peer = heads[link]
            cost = so_far + latency[link]
            if cost < best_ns[peer] or (cost == best_ns[peer] and hops + 1 < best_hops[peer]):
                best_ns[peer] = cost
                best_hops[peer] = hops + 1
                node_before[peer] = node
                link_before[peer] = link
                heapq.heappush(heap, (cost, hops + 1, peer))
    return node_before, link_before


@kernel
@allocates
def _back(node_before: Ints, link_before: Ints, root: int, nodes: Ints) -> tuple[Ints, Ints]:
    """Return the links from `root` to each node, and where each path begins among them."""
    starts = np.zeros(len(nodes) + 1, np.int64)
    for k in range(len(nodes)):
        node, hops = nodes[k], 0
        while node != root:
            node = node_before[node]
            hops += 1
        starts[k + 1] = starts[k] + hops
    links = np.empty(starts[len(nodes)], np.int64)
    for k in range(len(nodes)):
        node, at = nodes[k], starts[k + 1]
        while node != root:
            at -= 1
            links[at] = link_before[node]
            node = node_before[node]
    return starts, links
