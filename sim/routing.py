"""Paths through a topology: shortest by latency, found when first asked for.

routes = Routes(topology, helpers=())
routes.between(0, 2)        # numbers of the links from place 0 to place 2
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import TopologyError
from .compiled import allocates, kernel, run
from .topology import Link, Routing, Topology

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Int32s = npt.NDArray[np.int32]


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

    pair: Int32s
    starts: Ints
    links: Ints
    latency_ns: Floats
    rate: Floats


class _Ways(NamedTuple):
    """The links of a graph as a kernel takes them.

    Attributes:
        first: Where each node's links begin, and the end of the last, (nodes + 1,).
        heads, tails: Nodes that each link leads to and from, (links,) each.
        into, into_first: Links that lead to each node, and where they begin, (nodes + 1,).
        latency_ns: Latency of each link, (links,).
        alike: Whether all latencies are equal.
        ecmp: Whether a hash of both ends chooses among the shortest paths.
    """

    first: Ints
    heads: Ints
    tails: Ints
    into: Ints
    into_first: Ints
    latency_ns: Floats
    alike: bool
    ecmp: bool


class _Grid(NamedTuple):
    """A grid as a kernel takes it.

    Attributes:
        dims: Sizes of its dimensions, the fastest first.
        wraps: Whether its ends are linked.
        up, down: Link from each node to the next and the one before in each dimension, -1 for none,
            (nodes, dimensions) each.
    """

    dims: Ints
    wraps: bool
    up: Ints
    down: Ints


class Routes:
    """Paths between places, by the topology's `routing`.

    A grid that lacks a link is routed as any graph: by latency, then hops, then the order of the
    nodes.

    Args:
        topology: The network.
        helpers: Names of a schedule's helpers, which are places above the ranks and must be nodes.

    Raises:
        TopologyError: A helper is no node.

    Source: E. W. Dijkstra, "A note on two problems in connexion with graphs", 1959; breadth first
    where all latencies are equal.
    """

    def __init__(self, topology: Topology, helpers: Sequence[str] = ()) -> None:
        names = list(topology.graph)
        self._graph = topology.graph
        self._names = names
        self._index = {name: k for k, name in enumerate(names)}
        for helper in helpers:
            if helper not in self._index:
                raise TopologyError(
                    f"helper {helper!r} of the schedule is no node of {topology}; take a topology "
                    "with such a node, as star has one named 'switch'"
                )
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
        tails = np.array([edge[0] for edge in edges], np.int64)
        heads = np.array([edge[1] for edge in edges], np.int64)
        self._ways = _Ways(
            first=_bounds(tails, len(names)),
            heads=heads,
            tails=tails,
            into=np.argsort(heads, kind="stable"),
            into_first=_bounds(heads, len(names)),
            latency_ns=self.links.latency_ns,
            alike=len(set(self.links.latency_ns.tolist())) == 1,
            ecmp=topology.routing is Routing.ECMP,
        )
        self._grid = _grid(topology, self._index, edges)
        self._found: dict[tuple[int, int], tuple[int, ...]] = {}

    def between(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the numbers of the links from one place to another; none within a node.

        They count into `self.links`, not into `Topology.links`; see `path` for the links.

        Raises:
            TopologyError: No path leads there; the message names both.
        """
        if (src, dst) not in self._found:  # all paths from there take no longer than one
            every = np.arange(len(self._node))
            starts, links, _ = self._walk(np.full_like(every, src), every)
            for peer, (low, high) in enumerate(pairwise(starts.tolist())):
                self._found[src, peer] = tuple(links[low:high].tolist())
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
        starts, links, lost = self._walk(pairs // n_places, pairs % n_places)
        if lost >= 0:
            raise self._no_path(*divmod(int(pairs[lost]), n_places))
        pair = np.repeat(np.arange(len(pairs)), np.diff(starts))
        rate = np.full(len(pairs), np.inf)
        np.minimum.at(rate, pair, self.links.rate[links])
        latency = np.zeros(len(pairs))
        np.add.at(latency, pair, self.links.latency_ns[links])
        return Paths(which, starts, links, latency, rate)

    def _walk(self, src: Ints, dst: Ints) -> tuple[Ints, Ints, int]:
        """Return the links of several paths, `src` rising, where each begins, and one that is lost.

        A path is lost, -1 for none, where there is no way; it has no links.
        """
        nodes = np.array(self._node, np.int64)
        if self._grid is not None:
            return run(_cross, len(src))(self._grid, nodes[src], nodes[dst])
        n_sources = 1 + int(np.count_nonzero(np.diff(src)))
        walk = run(_walk, n_sources * len(self._names) + len(src))
        return walk(self._ways, nodes[src], nodes[dst])

    def _no_path(self, src: int, dst: int) -> TopologyError:
        return TopologyError(
            f"no path from {self._label(src)} to {self._label(dst)}: "
            "the schedule sends a message there; add a link, or use another algorithm"
        )

    def _label(self, place: int) -> str:
        name = self._names[self._node[place]]
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


def _bounds(nodes: Ints, n: int) -> Ints:
    """Return where the links of each node begin if they are sorted by node, (nodes + 1,)."""
    return np.append(0, np.cumsum(np.bincount(nodes, minlength=n)))


def _grid(topology: Topology, index: dict[str, int], edges: list[Any]) -> _Grid | None:
    """Return the grid that a topology is; None if it is none, or if a link is missing."""
    dims = topology.dims
    if topology.routing is not Routing.GRID or len(index) != math.prod(dims):
        return None
    wraps = topology.shape == "torus"
    number = {(a, b): link for link, (a, b, _, _) in enumerate(edges)}
    up, down = np.full((2, len(index), len(dims)), -1)
    below = 1
    for k, size in enumerate(dims):
        for node in range(len(index)):
            at = node // below % size
            for table, step in ((up, 1), (down, -1)):
                if wraps or 0 <= at + step < size:
                    peer = node + ((at + step) % size - at) * below
                    table[node, k] = number.get((node, peer), -1)
                    if peer != node and table[node, k] < 0:
                        return None
        below *= size
    return _Grid(np.array(dims), wraps, up, down)


@kernel
@allocates
def _cross(grid: _Grid, src: Ints, dst: Ints) -> tuple[Ints, Ints, int]:
    """Return where the path of each pair begins, the links of all, and -1: none is lost.

    One dimension after the other, the fastest first; on a torus the shorter way around, and up
    where both are as long, but down from the upper half to the lower as SimGrid has it.
    """
    n_dims = len(grid.dims)
    starts = np.zeros(len(src) + 1, np.int64)
    most = 0
    for size in grid.dims:
        most += size
    links = np.empty(len(src) * most, np.int64)
    end = 0
    for pair in range(len(src)):
        node, below = src[pair], 1
        for k in range(n_dims):
            size = grid.dims[k]
            at, to = node // below % size, dst[pair] // below % size
            half = size // 2
            if grid.wraps:
                goes_up = at < to <= at + half or (at > half and to <= (at + half) % size)
            else:
                goes_up = at < to
            while at != to:
                links[end] = grid.up[node, k] if goes_up else grid.down[node, k]
                end += 1
                after = (at + 1 if goes_up else at - 1) % size
                node += (after - at) * below
                at = after
            below *= size
        starts[pair + 1] = end
    return starts, links[:end].copy(), -1


@kernel
@allocates
def _walk(ways: _Ways, src: Ints, dst: Ints) -> tuple[Ints, Ints, int]:
    """Return where the path of each pair of nodes begins, the links of all, and a pair without one.

    Args:
        ways: The links.
        src, dst: Nodes, src rising, (pairs,) each.
    """
    n = len(ways.first) - 1
    link_before, hops, level = np.empty((3, n), np.int32)
    best = np.zeros(n)
    starts = np.zeros(len(src) + 1, np.int64)
    links = np.empty(4 * len(src) + 16, np.int64)
    lost, root = -1, -1
    for pair in range(len(src)):
        if src[pair] != root:
            root = src[pair]
            if ways.alike:
                _nearest(ways.first, ways.heads, root, link_before, hops, level)
            else:
                _shortest(ways.first, ways.heads, ways.latency_ns, root, link_before, hops, best)
        n_hops = hops[dst[pair]]
        if n_hops < 0:
            lost, n_hops = (pair if lost < 0 else lost), 0
        starts[pair + 1] = starts[pair] + n_hops
        if starts[pair + 1] > len(links):
            longer = np.empty(2 * len(links) + n_hops, np.int64)
            longer[: starts[pair]] = links[: starts[pair]]
            links = longer
        node = dst[pair]
        for k in range(n_hops):
            link = link_before[node]
            if ways.ecmp:
                link = _choose(ways, root, dst[pair], node, hops, best)
            links[starts[pair + 1] - 1 - k] = link
            node = ways.tails[link]
    return starts, links[: starts[len(src)]].copy(), lost


@kernel
def _choose(ways: _Ways, src: int, dst: int, node: int, hops: Int32s, best: Floats) -> int:
    """Return one of the links by which shortest paths come to a node, by a hash of both ends."""
    count = 0
    for k in range(ways.into_first[node], ways.into_first[node + 1]):
        count += _is_shortest(ways, ways.into[k], node, hops, best)
    mixed = (src * 73856093 ^ dst * 19349663 ^ node * 83492791) % 2147483647
    chosen = mixed * 48271 % 2147483647 % count
    for k in range(ways.into_first[node], ways.into_first[node + 1]):
        if _is_shortest(ways, ways.into[k], node, hops, best):
            if chosen == 0:
                return int(ways.into[k])
            chosen -= 1
    return -1


@kernel
def _is_shortest(ways: _Ways, link: int, node: int, hops: Int32s, best: Floats) -> bool:
    before = ways.tails[link]
    by_hops = hops[before] >= 0 and hops[before] + 1 == hops[node]
    return bool(by_hops and best[before] + ways.latency_ns[link] * (not ways.alike) == best[node])


@kernel
@allocates
def _nearest(
    first: Ints,
    heads: Ints,
    root: int,
    link_before: Int32s,
    hops: Int32s,
    level: Int32s,
) -> None:
    """Fill in the link before each node on its path from `root`, by hops, then numbers.

    `hops` is -1 where there is no path. `level` is room for the nodes in the order found.
    """
    hops[:] = -1
    hops[root] = 0
    level[0] = root
    low, high = 0, 1
    while low < high:
        end = high
        # In order of their numbers, as `_shortest` takes them.
        level[low:high].sort()
        for at in range(low, high):
            node = level[at]
            for link in range(first[node], first[node + 1]):
                peer = heads[link]
                if hops[peer] < 0:
                    hops[peer] = hops[node] + 1
                    link_before[peer] = link
                    level[end] = peer
                    end += 1
        low, high = high, end


@kernel
@allocates
def _shortest(
    first: Ints,
    heads: Ints,
    latency: Floats,
    root: int,
    link_before: Int32s,
    hops: Int32s,
    best: Floats,
) -> None:
    """Fill in the same by latency, then hops, then numbers; `best` has the latencies."""
    best[:] = np.inf
    hops[:] = -1
    best[root] = 0.0
    hops[root] = 0
    heap = [(0.0, 0, root)]
    while len(heap) > 0:
        so_far, so_many, node = heapq.heappop(heap)
        if so_far > best[node] or (so_far == best[node] and so_many > hops[node]):
            continue
        for link in range(first[node], first[node + 1]):
            peer = heads[link]
            cost = so_far + latency[link]
            if cost < best[peer] or (cost == best[peer] and so_many + 1 < hops[peer]):
                best[peer] = cost
                hops[peer] = so_many + 1
                link_before[peer] = link
                heapq.heappush(heap, (cost, so_many + 1, peer))
