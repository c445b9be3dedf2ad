"""Paths through a topology: shortest by latency, found when first asked for.

routes = Routes(topology, helpers=())
routes.between(0, 2)        # numbers of the links from place 0 to place 2
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..errors import TopologyError
from .grid_paths import grid_of, grid_paths
from .network import Network
from .shortest import Floats, Found, Int32s, Ints, shortest_paths, twins_together, ways_of
from .topology import Link, Routing, Topology


@dataclass(frozen=True, eq=False)
class Links:
    """The directed links of a topology in columns.

    Attributes:
        network: Where they belong.
        rate: Bytes a nanosecond, shape (links,).
        latency_ns: Shape (links,).
    """

    network: Network
    rate: Floats
    latency_ns: Floats

    @cached_property
    def ends(self) -> tuple[tuple[str, str], ...]:
        """Names of the nodes that each link leads from and to."""
        nodes = self.network.nodes
        tails, heads = self.network.tails.tolist(), self.network.heads.tolist()
        return tuple((nodes[a], nodes[b]) for a, b in zip(tails, heads, strict=True))


class Paths(NamedTuple):
    """The paths of several messages, those between the same two places only once.

    Attributes:
        pair: Number of each message's path, shape (messages,).
        starts: Where each path begins in `links`, and the end of the last, shape (paths + 1,).
        links: Numbers of the links of all paths, one after the other.
        latency_ns: Sum of the latencies of each path, shape (paths,).
        rate: Bytes a nanosecond of the slowest link of each path; infinite within one node.
    """

    pair: Int32s
    starts: Ints
    links: Ints
    latency_ns: Floats
    rate: Floats


class Routes:
    """Paths between places, by the topology's `routing`.

    A grid that lacks a link is routed as any graph: by latency, then hops, then the order of the
    nodes.

    Args:
        topology: The network.
        helpers: Names of a schedule's helpers, which are places above the ranks and must be nodes;
            "switch" may also be the one node, of whatever name, that all ranks are linked to.

    Raises:
        TopologyError: A helper is no node.

    Source: E. W. Dijkstra, "A note on two problems in connexion with graphs", 1959; breadth first
    where all latencies are equal. E. Zahavi, "D-mod-k routing providing non-blocking traffic for
    shift permutations on real life fat trees", 2010 (by destination).
    """

    def __init__(self, topology: Topology, helpers: Sequence[str] = ()) -> None:
        self._network = network = topology.network
        rate = network.bandwidth_Bps / 1e9
        self.links = Links(network, rate, network.latency_ns)
        self.helpers = tuple(helpers)
        self._n_ranks = topology.n_ranks
        nodes = [network.index[name] for name in topology.ranks]
        nodes += [_node_of(helper, topology, nodes[: topology.n_ranks]) for helper in helpers]
        self._node = np.array(nodes, np.int64)
        self._ways = ways_of(
            network,
            rate,
            ecmp=topology.routing is Routing.ECMP,
            by_destination=topology.routing is Routing.DESTINATION,
        )
        dims = topology.dims
        is_grid = topology.routing is Routing.GRID and len(network.nodes) == math.prod(dims)
        self._grid = grid_of(dims, topology.shape == "torus", self._ways) if is_grid else None
        self._found: dict[tuple[int, int], tuple[int, ...]] = {}

    def between(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the numbers of the links from one place to another; none within a node.

        They count into `self.links`, not into `Topology.links`; see `path` for the links.

        Raises:
            TopologyError: No path leads there; the message names both.
        """
        if (src, dst) not in self._found:  # all paths from there take no longer than one
            every = np.arange(len(self._node))
            found = self._walk(np.full_like(every, src), every)
            for peer, (low, high) in enumerate(pairwise(found.starts.tolist())):
                self._found[src, peer] = tuple(found.links[low:high].tolist())
        path = self._found[src, dst]
        if not path and self._node[src] != self._node[dst]:
            raise self._no_path(src, dst)
        return path

    def path(self, src: int, dst: int) -> tuple[Link, ...]:
        """Return the links from one place to another, each as one direction.

        Raises:
            TopologyError: No path leads there; the message names both.

        Example:
            >>> from .topology import parse
            >>> [(link.a, link.b, link.label) for link in Routes(parse("star", 2)).path(0, 1)]
            [('r0', 'switch', '100 GB/s'), ('switch', 'r1', '100 GB/s')]
        """
        network, ends, found = self._network, self.links.ends, []
        for link in self.between(src, dst):
            rates = float(network.bandwidth_Bps[link]), float(network.latency_ns[link])
            found.append(Link(*ends[link], *rates, both_ways=False))
        return tuple(found)

    def paths(self, src: Ints, dst: Ints, *, lost_ok: bool = False) -> Paths:
        """Return the paths of messages from `src` to `dst`, places of shape (messages,).

        Args:
            src, dst: Places, (messages,) each.
            lost_ok: Whether there may be no path, which then has no links and an infinite rate.

        Raises:
            TopologyError: No path leads from one of them to the other.
        """
        order, n_places = self._twins_together, len(self._node)
        turn = np.empty_like(order)
        turn[order] = np.arange(n_places)
        pairs, which = _distinct(turn[src] * n_places + dst, n_places * n_places)
        at, target = np.divmod(pairs, n_places)
        source = order[at]
        found = self._walk(source, target)
        if not lost_ok and np.isinf(found.rate).any():
            lost = np.isinf(found.rate) & (self._node[source] != self._node[target])
            if lost.any():
                first = np.lexsort((target[lost], source[lost]))[0]
                raise self._no_path(int(source[lost][first]), int(target[lost][first]))
        return Paths(which, found.starts, found.links, found.latency_ns, found.rate)

    @cached_property
    def _twins_together(self) -> Ints:
        return twins_together(self._ways, self._node)

    def _walk(self, src: Ints, dst: Ints) -> Found:
        """Return the paths of pairs of places; those from one place follow each other."""
        a, b = self._node[src], self._node[dst]
        if self._grid is not None:
            return grid_paths(self._grid, self._ways, a, b)
        return shortest_paths(self._ways, a, b)

    def _no_path(self, src: int, dst: int) -> TopologyError:
        return TopologyError(
            f"no path from {self.label(src)} to {self.label(dst)}: "
            "the schedule sends a message there; add a link, or use another algorithm"
        )

    def label(self, place: int) -> str:
        """Return what a place is for a person."""
        name = self._network.nodes[self._node[place]]
        return f"rank {place} ({name})" if place < self._n_ranks else f"helper {name}"


def _distinct(keys: Ints, limit: int) -> tuple[Ints, Int32s]:
    """Return the keys that occur, sorted, and which of them each one is."""
    if limit > 4 * len(keys) + (1 << 20):
        found, which = np.unique(keys, return_inverse=True)
        return found, which.astype(np.int32)
    occurs = np.zeros(limit, np.bool_)
    occurs[keys] = True
    number = np.cumsum(occurs, dtype=np.int32) - 1
    return np.flatnonzero(occurs), number[keys]


def _node_of(helper: str, topology: Topology, ranks: Sequence[int]) -> int:
    """Return the node of a helper."""
    network = topology.network
    if helper in network.index:
        return network.index[helper]
    if helper == "switch":
        from_rank = np.isin(network.tails, ranks)
        linked = np.bincount(network.heads[from_rank], minlength=len(network.nodes))
        linked[list(ranks)] = 0
        to_all = np.flatnonzero(linked == len(ranks))
        if len(to_all) == 1:
            return int(to_all[0])
    raise TopologyError(
        f"helper {helper!r} of the schedule is no node of {topology}; take a topology "
        "with such a node, as star has one named 'switch'"
    )
