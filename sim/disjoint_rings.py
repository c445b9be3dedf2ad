"""Rings of all ranks along the links of a topology, no link in more of them than it has room for.

rings = disjoint_rings(parse("dgx1-v100", 8))      # three rings, each in both directions
build("all_reduce", "ring_channels", 8, rings=rings)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import numpy as np

from ..errors import TopologyError
from .network import Ints
from .topology import Topology

Ring = tuple[int, ...]

_TRIES, _STEPS_A_TRY = 40, 20_000


def disjoint_rings(topology: Topology, most: int | None = None) -> list[Ring]:
    """Return rings of all ranks, each as the order of the ranks, and as many turned around.

    A link that is k times as fast as the slowest has room for k rings. On a torus of a rows of b
    ranks, b a divisor of a, the rings are known; elsewhere they are looked for, the same ones each
    time, and there may be more than are found.

    Args:
        topology: Ranks with links to each other.
        most: How many rings are enough, both directions counted; None for all.

    Raises:
        TopologyError: No ring is found.

    Source: M. Bae and B. Bose, "Edge disjoint Hamiltonian cycles in k-ary n-cubes and hypercubes",
    2003 (tori); backtracking, ranks with the fewest ways on first, after H. C. von Warnsdorf, 1823.

    Example:
        >>> from .topology import parse
        >>> disjoint_rings(parse("torus:3x3", 9))[0]
        (0, 1, 2, 5, 3, 4, 7, 8, 6)
    """
    room = _room(topology)
    known = _on_torus(topology)
    cycles = known if known is not None and _fit(known, room) else _searched(room, topology.n_ranks)
    if not cycles:
        raise TopologyError(
            f"no ring of all {topology.n_ranks} ranks is found along the links of {topology.name}: "
            "it takes links between ranks, without switches"
        )
    both = [ring for cycle in cycles for ring in (cycle, (cycle[0], *cycle[:0:-1]))]
    return both[:most]


def _room(topology: Topology) -> Counter[tuple[int, int]]:
    """Return how many rings each pair of ranks with links both ways has room for."""
    rank_of = {node: rank for rank, node in enumerate(topology.ranks)}
    links = [
        link
        for link in topology.links
        if link.both_ways and link.a != link.b and {link.a, link.b} <= rank_of.keys()
    ]
    slowest = min((link.bandwidth_Bps for link in links), default=1.0)
    room: Counter[tuple[int, int]] = Counter()
    for link in links:
        a, b = sorted((rank_of[link.a], rank_of[link.b]))
        room[a, b] = int(link.bandwidth_Bps / slowest + 1e-9)
    return room


def _edges(cycle: Ring) -> Iterator[tuple[int, int]]:
    for a, b in pairwise((*cycle, cycle[0])):
        yield (a, b) if a < b else (b, a)


def _fit(cycles: list[Ring], room: Counter[tuple[int, int]]) -> bool:
    used = Counter(edge for cycle in cycles for edge in _edges(cycle))
    return used <= room


def _on_torus(topology: Topology) -> list[Ring] | None:
    """Return both rings of a torus that has them; None for any other."""
    if topology.shape != "torus" or len(topology.dims) != 2 or min(topology.dims) < 3:
        return None
    b, a = topology.dims
    if a % b:
        return None
    row, at = np.divmod(np.arange(a * b), b)
    first = row * b + (at - row) % b
    # The transposed of the first ring of a square; of b | a rows, what the first leaves over.
    rest = _rest(first, a, b)
    return [tuple(first.tolist())] + ([rest] if rest else [])


def _rest(first: Ints, a: int, b: int) -> Ring | None:
    """Return the ring of the links of a torus that one ring leaves over; None if it is none."""
    used = set(_edges(tuple(first.tolist())))
    rank = np.arange(a * b)
    row, at = np.divmod(rank, b)
    left: dict[int, list[int]] = {node: [] for node in rank.tolist()}
    for there in ((row + 1) % a * b + at, row * b + (at + 1) % b):
        for node, peer in zip(rank.tolist(), there.tolist(), strict=True):
            if (min(node, peer), max(node, peer)) not in used:
                left[node].append(peer)
                left[peer].append(node)
    ring = [0, left[0][0]]
    while ring[-1] != 0:
        one, other = left[ring[-1]]
        ring.append(other if one == ring[-2] else one)
    return tuple(ring[:-1]) if len(ring) == a * b + 1 else None


def _searched(room: Counter[tuple[int, int]], n: int) -> list[Ring]:
    """Return as many rings as some tries find; the first try takes ranks in order."""
    degree: Counter[int] = Counter()
    for (a, b), times in room.items():
        degree.update({a: times, b: times})
    enough = min((degree[rank] for rank in range(n)), default=0) // 2
    best: list[Ring] = []
    for seed in range(_TRIES):
        left, found = room.copy(), []
        while (cycle := _one(left, n, Random(seed) if seed else None)) is not None:
            found.append(cycle)
            left.subtract(_edges(cycle))
        best = max(best, found, key=len)
        if len(best) >= enough:
            break
    return best


def _one(left: Counter[tuple[int, int]], n: int, random: Random | None) -> Ring | None:
    """Return a ring along links with room left, by backtracking; None if it takes too long."""
    near: list[list[int]] = [[] for _ in range(n)]
    for (a, b), times in left.items():
        if times > 0:
            near[a].append(b)
            near[b].append(a)
    if n < 3:
        return None
    path, seen = [0], {0}
    waiting = [_ways_on(near, seen, 0, random)]
    for _ in range(_STEPS_A_TRY):
        if len(path) == n and 0 in near[path[-1]]:
            return tuple(path)
        if len(path) < n and waiting[-1]:
            path.append(waiting[-1].pop())
            seen.add(path[-1])
            waiting.append(_ways_on(near, seen, path[-1], random))
            continue
        waiting.pop()
        seen.discard(path.pop())
        if not path:
            return None
    return None


def _ways_on(near: list[list[int]], seen: set[int], rank: int, random: Random | None) -> list[int]:
    """Return where a path can go on, the best last: those with the fewest ways on from there."""
    options = [peer for peer in near[rank] if peer not in seen]
    chance = {peer: random.random() if random else -peer for peer in options}
    return sorted(
        options,
        key=lambda peer: (-sum(next_ not in seen for next_ in near[peer]), chance[peer]),
    )
