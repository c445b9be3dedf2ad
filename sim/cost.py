"""What a collective must cost: bounds that no algorithm can beat.

    lower_bound_ns(replay)      # for the replay's own collective, sizes and topology

What each algorithm costs is in `closed`. α is the latency of a path (two links on a star), B the
rate of a link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
import numpy.typing as npt

from .bind import BoundSchedule
from .topology import Topology

if TYPE_CHECKING:
    from .replay import Replay

Floats = npt.NDArray[np.float64]


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
    needs = Needs.of(bound)
    most = max(needs.in_bytes.max(), needs.out_bytes.max(), needs.total_bytes / len(needs.in_bytes))
    return float(most) * 1e9 / bandwidth_Bps


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """Bytes that must be moved, whatever the algorithm.

    Attributes:
        in_bytes: Bytes that must come into each rank, (ranks,).
        out_bytes: Bytes that must leave each rank, (ranks,).
        total_bytes: Bytes that all ranks must receive together, if only ranks reduce.
    """

    in_bytes: Floats
    out_bytes: Floats
    total_bytes: float

    @staticmethod
    def of(bound: BoundSchedule) -> Needs:
        """Return what a collective needs, chunk by chunk.

        Where it reduces, the n parts of a chunk need n - 1 messages to become one, and each rank
        after the first that wants the result one more.
        """
        schedule = bound.schedule
        n, n_chunks = schedule.group_size, schedule.n_chunks
        size = bound.chunk_elements.astype(np.float64) * bound.itemsize
        has, wants = (np.zeros((n, n_chunks), np.bool_) for _ in range(2))
        for rank in range(n):
            has[rank, schedule.input_of(rank)[1]] = True
            wants[rank, schedule.output_of(rank)[1]] = True
        wanted = wants.sum(axis=0)
        wanted_elsewhere = wanted - wants > 0
        if not schedule.kind.reduces:
            into = (wants & ~has) @ size
            return Needs(into, (has & wanted_elsewhere) @ size, float(into.sum()))
        others = has.sum(axis=0) - has > 0
        moved = np.where(wanted > 0, has.sum(axis=0) - 1 + wanted - 1, 0)
        return Needs((wants & others) @ size, (has & wanted_elsewhere) @ size, float(moved @ size))


def lower_bound_ns(replay: Replay) -> int:
    """Return a time that no algorithm can beat on the replay's topology, for its data.

    It is the largest of what latency and bandwidth ask for: a rank's data must travel to the rank
    farthest from it; what must enter or leave a rank must pass its links, after the latency of
    one; and all ranks together must receive so many bytes. Without sharing, latency alone counts.

    Args:
        replay: What was simulated; its schedule counts only for its collective and sizes.

    Source: the cuts of single ranks in L. Zhao et al., "ForestColl", 2024; P. Patarasuk and
    X. Yuan, 2009, for the total.
    """
    needs = Needs.of(replay.bound)
    far = _farthest_ns(replay, needs)
    if not replay.parameters.sharing:
        return round(far)
    ports = _Ports.of(replay.topology)
    fixed = replay.parameters.message_ns
    bounds = [far]
    for need, rate, near in (
        (needs.in_bytes, ports.in_Bps, ports.near_in_ns),
        (needs.out_bytes, ports.out_Bps, ports.near_out_ns),
    ):
        used = need > 0
        times = near[used] + fixed + need[used] * 1e9 / rate[used]
        bounds.append(float(times.max(initial=0)))
        if not replay.schedule.helpers and needs.total_bytes > 0:
            bounds.append(float(near.min()) + fixed + needs.total_bytes * 1e9 / float(rate.sum()))
    return round(max(bounds))


@dataclass(frozen=True, slots=True, eq=False)
class _Ports:
    """Rates into and out of each rank's node, and the smallest latency of a link there.

    Rates are infinite, and latencies 0, for ranks that share a node.
    """

    in_Bps: Floats
    out_Bps: Floats
    near_in_ns: Floats
    near_out_ns: Floats

    @staticmethod
    def of(topology: Topology) -> _Ports:
        graph = topology.graph
        columns = []
        for one_way in (graph.reverse(copy=False), graph):
            rates, near = [], []
            for node in topology.ranks:
                if topology.ranks.count(node) > 1:
                    rates.append(np.inf)
                    near.append(0.0)
                    continue
                edges = one_way.adj[node].values()
                rates.append(sum(edge["bandwidth_Bps"] for edge in edges))
                near.append(min((edge["latency_ns"] for edge in edges), default=0.0))
            columns += [np.array(rates), np.array(near)]
        return _Ports(columns[0], columns[2], columns[1], columns[3])


def _farthest_ns(replay: Replay, needs: Needs) -> float:
    """Return the latency between two ranks far apart, one of whose data the other one needs."""
    schedule, ranks = replay.schedule, replay.topology.ranks
    if needs.total_bytes == 0:
        return 0.0
    graph, fixed = replay.topology.graph, replay.parameters.message_ns
    back = graph.reverse(copy=False)
    root = schedule.root
    if root is not None:
        one_way = graph if schedule.kind.input_at_root else back
        needed = needs.in_bytes if schedule.kind.input_at_root else needs.out_bytes
        far = _distances(one_way, ranks[root])
        return max((far[ranks[r]] + fixed for r in np.flatnonzero(needed) if r != root), default=0)
    full = (needs.in_bytes > 0).all() and (needs.out_bytes > 0).all()
    if not full or schedule.kind.receives == "transposed":
        return 0.0
    # The farthest from any rank, then the farthest from that one: on trees the largest there is.
    first = _distances(graph, ranks[0])
    end = max(ranks, key=lambda node: first[node])
    second = _distances(back, end)
    return fixed + max(max(first[node], second[node]) for node in ranks)


def _distances(graph: nx.DiGraph, node: str) -> dict[str, float]:
    found: dict[str, float] = nx.single_source_dijkstra_path_length(
        graph, node, weight="latency_ns"
    )
    return {name: found.get(name, 0.0) for name in graph}
