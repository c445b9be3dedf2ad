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
    """The paths of several messages.

    Attributes:
        starts: Where each path begins in `links`, and the end of the last, shape (messages + 1,).
        links: Numbers of the links of all paths, one after the other.
        latency_ns: Sum of the latencies of each path, shape (messages,).
        rate: Bytes a nanosecond of the slowest link of each path; infinite within one node.
    """

    starts: Ints
    links: Ints
    latency_ns: Floats
    rate: Floats


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
        self._out: list[list[tuple[int, int, float]]] = [[] for _ in names]
        for link, (a, b, _, latency) in enumerate(edges):
            self._out[a].append((b, link, latency))
        self._trees: dict[int, list[tuple[int, int] | None]] = {}
        self._found: dict[tuple[int, int], tuple[int, ...]] = {}

    def between(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the numbers of the links from one place to another; none within a node.

        They count into `self.links`, not into `Topology.links`; see `path` for the links.

        Raises:
            TopologyError: No path leads there; the message names both.
        """
        if (src, dst) not in self._found:
            self._found[src, dst] = self._walk(src, dst)
        return self._found[src, dst]

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
        """Return the paths of messages from `src` to `dst`, places of shape (messages,)."""
        n_places = len(self._node)
        pairs, which = np.unique(src.astype(np.int64) * n_places + dst, return_inverse=True)
        found = [self.between(*divmod(int(pair), n_places)) for pair in pairs]
        latency = np.array([sum(self._latencies(path)) for path in found], np.float64)
        rate = np.array(
            [min((self.links.rate[link] for link in path), default=np.inf) for path in found],
            np.float64,
        )
        hops = np.array([len(path) for path in found], np.int64)
        flat = np.array([link for path in found for link in path], np.int64)
        length = hops[which]
        starts = np.zeros(len(which) + 1, np.int64)
        np.cumsum(length, out=starts[1:])
        first = (np.cumsum(hops) - hops)[which]
        index = np.arange(starts[-1]) + np.repeat(first - starts[:-1], length)
        return Paths(starts, flat[index], latency[which], rate[which])

    def _latencies(self, path: tuple[int, ...]) -> list[float]:
        return [float(self.links.latency_ns[link]) for link in path]

    def _walk(self, src: int, dst: int) -> tuple[int, ...]:
        node, target = self._node[dst], self._node[src]
        if target not in self._trees:
            self._trees[target] = self._tree(target)
        tree = self._trees[target]
        path: list[int] = []
        while node != target:
            step = tree[node]
            if step is None:
                raise TopologyError(
                    f"no path from {self._label(src)} to {self._label(dst)}: "
                    "the schedule sends a message there; add a link, or use another algorithm"
                )
            node, link = step
            path.append(link)
        return tuple(reversed(path))

    def _label(self, place: int) -> str:
        name = self._names[self._node[place]]
        return f"rank {place} ({name})" if place < self._n_ranks else f"helper {name}"

    def _tree(self, root: int) -> list[tuple[int, int] | None]:
        """Return, for each node, the node before it on its path from `root`, and the link."""
        best: list[tuple[float, int]] = [(np.inf, 0)] * len(self._names)
        before: list[tuple[int, int] | None] = [None] * len(self._names)
        best[root] = (0.0, 0)
        heap = [(0.0, 0, root)]
        while heap:
            latency, hops, node = heapq.heappop(heap)
            if (latency, hops) > best[node]:
                continue
            for peer, link, more in self._out[node]:
                cost = (latency + more, hops + 1)
                if cost < best[peer]:
                    best[peer] = cost
                    before[peer] = (node, link)
                    heapq.heappush(heap, (*cost, peer))
        return before
