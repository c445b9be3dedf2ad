"""The nodes and links of a topology in columns; a networkx graph is a view of them.

network = Network.of(graph)
network.nodes[network.tails[0]], network.bandwidth_Bps[0]
network.graph.edges["r0", "switch"]["bandwidth_Bps"]
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt

from ..errors import TopologyError
from ..units import parse_Bps, parse_ns

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MOST_NODES = 500_000
MOST_LINKS = 10_000_000


class NodeKind(StrEnum):
    """What a node of a topology is."""

    RANK = "rank"
    SWITCH = "switch"
    HOST = "host"  # the switch inside a host
    NIC = "nic"


@dataclass(frozen=True, eq=False)
class Network:
    """Nodes, and directed links between them, at most one from one node to another.

    Attributes:
        nodes: Names, (nodes,).
        kinds: What each is, (nodes,).
        hosts: Name of the host that each lies in, or None, (nodes,).
        tails, heads: Nodes that each link leads from and to, sorted by both, (links,).
        bandwidth_Bps: (links,).
        latency_ns: (links,).
    """

    nodes: tuple[str, ...]
    kinds: tuple[NodeKind, ...]
    hosts: tuple[str | None, ...]
    tails: Ints
    heads: Ints
    bandwidth_Bps: Floats
    latency_ns: Floats

    def __post_init__(self) -> None:
        if len(self.nodes) > MOST_NODES:
            raise _too_many(len(self.nodes))
        key = self.tails * len(self.nodes) + self.heads
        if (key[1:] > key[:-1]).all():
            return
        order = np.argsort(key, kind="stable")
        twice = np.flatnonzero(key[order][1:] == key[order][:-1])
        if len(twice):
            a, b = (self.nodes[ends[order[twice[0]]]] for ends in (self.tails, self.heads))
            raise TopologyError(
                f"two links from {a!r} to {b!r}, expected one; give it their bandwidths together"
            )
        for name in ("tails", "heads", "bandwidth_Bps", "latency_ns"):
            object.__setattr__(self, name, getattr(self, name)[order])

    @staticmethod
    def of(graph: nx.Graph, ranks: Collection[Hashable] = ()) -> Network:
        """Return the network of a networkx graph.

        Args:
            graph: As for `Topology.of`.
            ranks: Nodes that are of kind ``rank``, whatever they say.

        Raises:
            TopologyError: A node or a link is wrong; the message names it and its field.
        """
        if len(graph) > MOST_NODES:
            raise _too_many(len(graph))
        kinds, hosts = [], []
        for node, about in graph.nodes(data=True):
            kind = kind_named(about.get("kind", NodeKind.SWITCH), node)
            kinds.append(NodeKind.RANK if node in ranks else kind)
            host = about.get("host")
            hosts.append(None if host is None else str(host))
        names = tuple(map(str, graph))
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise TopologyError(f"two nodes are called {twice!r}")
        index = {node: k for k, node in enumerate(graph)}
        links = []
        for a, b, about in graph.edges(data=True):
            rates = rates_of(about, a, b)
            links.append((index[a], index[b], *rates))
            if not graph.is_directed() and a != b:
                links.append((index[b], index[a], *rates))
        columns: Any = zip(*links, strict=True) if links else ((), (), (), ())
        tails, heads, bandwidth, latency = columns
        return Network(
            names,
            tuple(kinds),
            tuple(hosts),
            np.array(tails, np.int64),
            np.array(heads, np.int64),
            np.array(bandwidth, np.float64),
            np.array(latency, np.float64),
        )

    @cached_property
    def index(self) -> dict[str, int]:
        """Number of each node by its name."""
        return {name: k for k, name in enumerate(self.nodes)}

    @cached_property
    def graph(self) -> nx.DiGraph:
        """The network as a frozen networkx graph, made when first asked for."""
        graph = nx.DiGraph()
        for name, kind, host in zip(self.nodes, self.kinds, self.hosts, strict=True):
            graph.add_node(name, kind=kind, host=host)
        columns = (self.tails, self.heads, self.bandwidth_Bps, self.latency_ns)
        for a, b, rate, latency in zip(*(column.tolist() for column in columns), strict=True):
            graph.add_edge(self.nodes[a], self.nodes[b], bandwidth_Bps=rate, latency_ns=latency)
        return nx.freeze(graph)

    @cached_property
    def reverse(self) -> Ints:
        """The link that leads back where each link comes from, -1 for none, (links,)."""
        n = len(self.nodes)
        key, back = self.tails * n + self.heads, self.heads * n + self.tails
        at = np.searchsorted(key, back).clip(max=max(len(key) - 1, 0))
        return np.where(key[at] == back, at, -1) if len(key) else at

    def link(self, a: str, b: str) -> int | None:
        """Return the link from one node to another; None if there is none."""
        if a not in self.index or b not in self.index:
            return None
        n = len(self.nodes)
        wanted = self.index[a] * n + self.index[b]
        at = int(np.searchsorted(self.tails * n + self.heads, wanted))
        is_there = at < len(self.tails) and self.tails[at] * n + self.heads[at] == wanted
        return at if is_there else None

    def neighbours(self, node: str) -> list[str]:
        """Return the nodes that a node's links lead to."""
        heads = self.heads[self.tails == self.index[node]]
        return [self.nodes[head] for head in heads.tolist()]

    def without_links(self, links: Ints) -> Network:
        """Return the network without some links."""
        kept = np.ones(len(self.tails), np.bool_)
        kept[links] = False
        return replace(
            self,
            tails=self.tails[kept],
            heads=self.heads[kept],
            bandwidth_Bps=self.bandwidth_Bps[kept],
            latency_ns=self.latency_ns[kept],
        )

    def only(self, kept: npt.NDArray[np.bool_]) -> Network:
        """Return the network of some nodes, (nodes,), and of the links between them."""
        number = np.cumsum(kept) - 1
        between = kept[self.tails] & kept[self.heads]
        which = np.flatnonzero(kept).tolist()
        return Network(
            tuple(self.nodes[node] for node in which),
            tuple(self.kinds[node] for node in which),
            tuple(self.hosts[node] for node in which),
            number[self.tails[between]],
            number[self.heads[between]],
            self.bandwidth_Bps[between],
            self.latency_ns[between],
        )


def _too_many(n_nodes: int) -> TopologyError:
    return TopologyError(f"network has {n_nodes:,} nodes, expected at most {MOST_NODES:,}")


def places(graph: nx.Graph) -> list[Hashable]:
    """Return the nodes that ranks are on, rank by rank.

    These are the nodes of kind ``rank``, else all nodes, in their order, or in that of their
    attribute `rank` where they have one.

    Raises:
        TopologyError: A rank is placed twice or nowhere; the message names the nodes.
    """
    found = [node for node, kind in graph.nodes(data="kind") if kind == NodeKind.RANK]
    found = found or list(graph)
    given = {node: rank for node in found if (rank := graph.nodes[node].get("rank")) is not None}
    if not given:
        return found
    node_of: dict[int, Hashable] = {}
    for node in found:
        rank = given.get(node)
        if isinstance(rank, str) and rank.isdecimal():
            rank = int(rank[:12])
        expected = f"expected a number from 0 to {len(found) - 1}"
        if not isinstance(rank, int) or not 0 <= rank < len(found):
            raise TopologyError(f"node {node!r} has rank {str(rank)[:60]!r}, {expected}")
        if rank in node_of:
            raise TopologyError(f"rank {rank} is placed twice: on {node_of[rank]!r} and {node!r}")
        node_of[rank] = node
    return [node_of[rank] for rank in range(len(found))]


def kind_named(kind: Any, node: Hashable) -> NodeKind:
    """Return a node's kind, checked."""
    try:
        return NodeKind(kind)
    except ValueError:
        known = ", ".join(NodeKind)
        raise TopologyError(f"node {node!r} has kind {kind!r}, expected one of {known}") from None


def rates_of(about: Mapping[str, Any], a: Hashable, b: Hashable) -> tuple[float, float]:
    """Return an edge's bandwidth and latency, checked; text may say them as 100GB/s and 1us."""
    found = []
    for name, positive in (("bandwidth_Bps", True), ("latency_ns", False)):
        expected = "a number above 0" if positive else "0 or more"
        if name not in about:
            raise TopologyError(f"link from {a!r} to {b!r} lacks {name}, expected {expected}")
        parse = parse_Bps if positive else parse_ns
        given = about[name]
        try:
            value = parse(given) if isinstance(given, str) else float(given)
        except (TypeError, ValueError, OverflowError) as error:
            told = f"{error}" if isinstance(given, str) else f"it is {repr(given)[:60]}"
            raise TopologyError(
                f"link from {a!r} to {b!r}: {name}: {told}; expected {expected}"
            ) from None
        if not math.isfinite(value) or value < 0 or (positive and value == 0):
            raise TopologyError(
                f"link from {a!r} to {b!r}: {name} is {value:g}, expected {expected}"
            )
        found.append(value)
    return found[0], found[1]
