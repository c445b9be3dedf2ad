"""Shortest paths through a graph of links, by latency, then hops, then the order of the nodes.

    found = shortest_paths(ways, src, dst)

One search serves all *twins*: nodes with the same neighbours over links alike, as the ranks on one
switch are. What lies between two nodes is then the same but for their own links, and a fat tree
needs a search for each of its edge switches, not for each rank.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import allocates, kernel, run
from .network import Network

Ints = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


class Ways(NamedTuple):
    """The links of a graph, sorted by the node that they lead from, then by that they lead to.

    Attributes:
        first: Where each node's links begin, and the end of the last, (nodes + 1,).
        heads, tails: Nodes that each link leads to and from, (links,) each.
        into, into_first: Links that lead to each node, and where they begin, (nodes + 1,).
        latency_ns: Latency of each link, (links,).
        rate: Bytes a nanosecond of each link, (links,).
        alike: Whether all latencies are equal.
        ecmp: Whether a hash of both ends chooses among the shortest paths.
        by_destination: Whether the number of the node at the end chooses among them.
    """

    first: Ints
    heads: Ints
    tails: Ints
    into: Ints
    into_first: Ints
    latency_ns: Floats
    rate: Floats
    alike: bool
    ecmp: bool
    by_destination: bool


class Found(NamedTuple):
    """Paths of pairs of nodes; arrays of numpy's, which lie on large pages.

    Attributes:
        starts: Where each begins in `links`, and the end of the last, (pairs + 1,).
        links: Their links, one path after the other; none where there is no path.
        latency_ns: Sum of the latencies of each, (pairs,).
        rate: Slowest rate on each, (pairs,); infinite where it has no link.
    """

    starts: Ints
    links: Ints
    latency_ns: Floats
    rate: Floats


def room(n_pairs: int, n_links: int) -> Found:
    """Return room for so many paths."""
    floats = np.empty(n_pairs), np.empty(n_pairs)
    return Found(np.zeros(n_pairs + 1, np.int64), np.empty(n_links, np.int64), *floats)


def shortest_paths(ways: Ways, src: Ints, dst: Ints) -> Found:
    """Return the paths of pairs of nodes, of which those from one node follow each other."""
    n_sources = 1 + int(np.count_nonzero(np.diff(src)))
    kernel = run(walk, n_sources * len(ways.first) + len(src))
    n_nodes = len(ways.first)
    found, done = room(len(src), 8 * len(src) + n_nodes), 0
    while (done := kernel(ways, src, dst, done, found)) < len(src):
        longer = np.append(found.links, np.empty(len(found.links) + n_nodes, np.int64))
        found = found._replace(links=longer)
    return found._replace(links=found.links[: found.starts[-1]])


def ways_of(network: Network, rate: Floats, *, ecmp: bool, by_destination: bool) -> Ways:
    """Return the links of a network, and their rates, as the kernel takes them."""
    tails, heads, latency = network.tails, network.heads, network.latency_ns
    n = len(network.nodes)
    return Ways(
        first=_bounds(tails, n),
        heads=heads,
        tails=tails,
        into=np.argsort(heads, kind="stable"),
        into_first=_bounds(heads, n),
        latency_ns=latency,
        rate=rate,
        alike=bool(len(latency)) and bool((latency == latency[0]).all()),
        ecmp=ecmp,
        by_destination=by_destination,
    )


def _bounds(nodes: Ints, n: int) -> Ints:
    """Return where the links of each node begin if they are sorted by node, (nodes + 1,)."""
    return np.append(0, np.cumsum(np.bincount(nodes, minlength=n)))


def twins_together(ways: Ways, nodes: Ints) -> Ints:
    """Return an order of nodes in which twins follow each other."""
    # Sums of the same numbers in the same order are the same.
    name = np.sin(np.arange(1.0, len(ways.first)))
    near = [
        np.bincount(here, (name[there] + ways.latency_ns) * ways.rate, len(name))[nodes]
        for here, there in ((ways.tails, ways.heads), (ways.heads, ways.tails))
    ]
    return np.lexsort((nodes, *near))


@kernel
@allocates
def walk(ways: Ways, src: Ints, dst: Ints, done: int, found: Found) -> int:
    """Fill in the paths of pairs from `done` on; return how many are done when the room is full."""
    first, heads, into_first = ways.first, ways.heads, ways.into_first
    starts, links = found.starts, found.links
    n = len(first) - 1
    hops, level, n_options = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    best = np.zeros(n)
    # The links by which shortest paths come to a node, from its `into_first` on, and their tails.
    options, before = np.empty(len(heads), np.int64), np.empty(len(heads), np.int64)
    root, twin = -1, -1
    for pair in range(done, len(src)):
        a, b, low = src[pair], dst[pair], starts[pair]
        if a != twin:
            twin = a
            if root < 0 or not _are_twins(ways, root, a):
                root = a
                n_options[:] = -1
                if ways.alike:
                    _nearest(first, heads, root, hops, level)
                else:
                    _shortest(first, heads, ways.latency_ns, root, hops, best)
        # A twin is as far from the root as the root is from it, and has the same neighbours.
        node = a if b == root else b
        n_hops = 0 if a == b else max(hops[node], 0)
        high = low + n_hops
        if high > len(links):
            return pair
        starts[pair + 1] = high
        total, slowest, below = 0.0, np.inf, 1
        for at in range(high - 1, low - 1, -1):
            if n_options[node] < 0:
                n_options[node] = _find(ways, hops, best, node, options, before)
            which = into_first[node]
            if ways.ecmp and n_options[node] > 1:
                here = b if at == high - 1 else node  # a twin stands for the root
                which += _choose(a, b, here, n_options[node])
            elif ways.by_destination:
                which += b // below % n_options[node]
                below *= n_options[node]
            link = options[which]
            links[at] = link
            total += ways.latency_ns[link]
            slowest = min(slowest, ways.rate[link])
            node = before[which]
        found.latency_ns[pair], found.rate[pair] = total, slowest
        if n_hops > 0 and b == root:
            k = np.searchsorted(ways.into[into_first[a] : into_first[a + 1]], links[high - 1])
            links[high - 1] = ways.into[into_first[root] + k]
        if n_hops > 0 and a != root:
            links[low] += first[a] - first[root]
    return len(src)


@kernel
def _are_twins(ways: Ways, a: int, b: int) -> bool:
    """Return whether two nodes have the same neighbours at the same latencies and rates."""
    n_out, n_in = ways.first[a + 1] - ways.first[a], ways.into_first[a + 1] - ways.into_first[a]
    if ways.first[b + 1] - ways.first[b] != n_out:
        return False
    if ways.into_first[b + 1] - ways.into_first[b] != n_in:
        return False
    for k in range(n_out):
        one, other = ways.first[a] + k, ways.first[b] + k
        if ways.heads[one] != ways.heads[other] or not _are_alike(ways, one, other):
            return False
    for k in range(n_in):
        one, other = ways.into[ways.into_first[a] + k], ways.into[ways.into_first[b] + k]
        if ways.tails[one] != ways.tails[other] or not _are_alike(ways, one, other):
            return False
    return True


@kernel
def _are_alike(ways: Ways, a: int, b: int) -> bool:
    is_alike = ways.latency_ns[a] == ways.latency_ns[b] and ways.rate[a] == ways.rate[b]
    return bool(is_alike)


@kernel
def _find(ways: Ways, hops: Int32s, best: Floats, node: int, options: Ints, before: Ints) -> int:
    """Fill in the links by which shortest paths come to a node; return how many there are."""
    first = ways.into_first[node]
    count = 0
    for at in range(first, ways.into_first[node + 1]):
        link = ways.into[at]
        tail = ways.tails[link]
        if hops[tail] < 0 or hops[tail] + 1 != hops[node]:
            continue
        if ways.alike or best[tail] + ways.latency_ns[link] == best[node]:
            options[first + count] = link
            before[first + count] = tail
            count += 1
    return count


@kernel
def _choose(src: int, dst: int, node: int, count: int) -> int:
    """Return a number below `count` by a hash of both ends of a path and a node on it."""
    mixed = (src * 73856093 ^ dst * 19349663 ^ node * 83492791) & 0x7FFFFFFF
    mixed = (mixed ^ mixed >> 15) * 48271 & 0x7FFFFFFF
    return (mixed ^ mixed >> 13) * count >> 31


@kernel
def _nearest(first: Ints, heads: Ints, root: int, hops: Int32s, level: Int32s) -> None:
    """Fill in the hops from `root` to each node; `level` is room for nodes in the order found."""
    hops[:] = -1
    hops[root] = 0
    level[0] = root
    found = 1
    for at in range(len(hops)):
        if at == found:
            break
        node = level[at]
        for link in range(first[node], first[node + 1]):
            peer = heads[link]
            if hops[peer] < 0:
                hops[peer] = hops[node] + 1
                level[found] = peer
                found += 1


@kernel
@allocates
def _shortest(
    first: Ints, heads: Ints, latency: Floats, root: int, hops: Int32s, best: Floats
) -> None:
    """Fill in the latencies from `root` to each node, and the hops, of which the fewest count."""
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
                heapq.heappush(heap, (cost, so_many + 1, peer))
