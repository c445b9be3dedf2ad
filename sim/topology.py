"""A Topology: ranks, switches and hosts on a directed graph of links.

    topology = parse("two-level:2x4:100GB/s,1us:10GB/s,5us", 8)
    topology.graph.edges["host0", "switch"]["bandwidth_Bps"]   # 1e10
    slow = topology.with_link("r0", "host0", bandwidth_Bps=1e9)

A text is ``PRESET[:SHAPE][:BANDWIDTH,LATENCY]``, in `presets` with what each builds. The latency
counts for each link of a path, so two ranks of a star are twice the latency apart.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import networkx as nx

from ..errors import TopologyError
from ..units import format_Bps
from .costs import COSTS, FREE, Costs


class NodeKind(StrEnum):
    """What a node of a topology is."""

    RANK = "rank"
    SWITCH = "switch"
    HOST = "host"  # the switch inside a host
    NIC = "nic"


class Routing(StrEnum):
    """How messages find their way through a topology."""

    SHORTEST = "shortest"  # by latency, then hops, then the order of the nodes
    ECMP = "ecmp"  # one of the shortest, by a hash of both ends
    GRID = "grid"  # dimension by dimension, the fastest first, the shorter way around


@dataclass(frozen=True, slots=True)
class Link:
    """A link as a picture shows it: between two nodes, both ways where the rates are equal."""

    a: str
    b: str
    bandwidth_Bps: float
    latency_ns: float
    both_ways: bool

    @property
    def label(self) -> str:
        """The rate for a person, such as ``100 GB/s``."""
        return format_Bps(self.bandwidth_Bps)


@dataclass(frozen=True, eq=False)
class Topology:
    """A network and the ranks on it; build it with `parse` or `Topology.of`.

    Attributes:
        graph: Frozen networkx DiGraph. Nodes are named by strings and have `kind` (see NodeKind)
            and `host` (name of the host that they lie in, or None). Edges have `bandwidth_Bps`
            and `latency_ns`.
        ranks: Name of the node that each rank is on.
        name: What it was made from, such as ``ring:100GB/s,1us``.
        shape: How to draw it: a preset's name, or ``graph``.
        routing: How messages find their way.
        dims: Sizes of a grid's dimensions, the fastest first; empty if it is none.
        costs: What the machine takes for a message beside its links.
    """

    graph: nx.DiGraph
    ranks: tuple[str, ...]
    name: str = "graph"
    shape: str = "graph"
    routing: Routing = Routing.SHORTEST
    dims: tuple[int, ...] = ()
    costs: Costs = FREE

    @staticmethod
    def of(
        graph: nx.Graph, ranks: Sequence[Hashable] | None = None, *, name: str = "graph"
    ) -> Topology:
        """Return the topology of a networkx graph.

        Args:
            graph: Edges need `bandwidth_Bps` above 0 and `latency_ns` of 0 or more; an edge of an
                undirected graph is a link of that rate each way. Nodes may have `kind` and `host`.
            ranks: Node of each rank; by default the nodes of kind ``rank``, else all nodes.
            name: What to call it.

        Raises:
            TopologyError: An edge lacks a rate or has an impossible one, or a rank has no node.

        Example:
            >>> graph = nx.Graph()
            >>> graph.add_edge("a", "b", bandwidth_Bps=1e9, latency_ns=500)
            >>> Topology.of(graph).ranks
            ('a', 'b')
        """
        kinds = nx.get_node_attributes(graph, "kind")
        if ranks is None:
            ranks = [node for node in graph if kinds.get(node) == NodeKind.RANK] or list(graph)
        placed = set(ranks)
        clean = nx.DiGraph()
        for node, about in graph.nodes(data=True):
            kind = NodeKind.RANK if node in placed else about.get("kind", NodeKind.SWITCH)
            clean.add_node(str(node), kind=_kind(kind, node), host=about.get("host"))
        for a, b, about in graph.edges(data=True):
            for source, target in ((a, b),) if graph.is_directed() else ((a, b), (b, a)):
                clean.add_edge(str(source), str(target), **_rates(about, a, b))
        return Topology(clean, tuple(map(str, ranks)), name)

    def __post_init__(self) -> None:
        if not self.ranks:
            raise TopologyError("topology has no rank")
        for rank, node in enumerate(self.ranks):
            if node not in self.graph:
                raise TopologyError(f"rank {rank} is placed on node {node!r}, which does not exist")
        nx.freeze(self.graph)

    @property
    def n_ranks(self) -> int:
        """Number of ranks placed on it."""
        return len(self.ranks)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The links in order of their edges, equal opposite ones as one."""
        found: dict[tuple[str, str], Link] = {}
        for a, b, about in self.graph.edges(data=True):
            both_ways = self.graph.get_edge_data(b, a) == about
            if not (both_ways and (b, a) in found):
                rates = about["bandwidth_Bps"], about["latency_ns"]
                found[a, b] = Link(a, b, *rates, both_ways)
        return tuple(found.values())

    @cached_property
    def hosts(self) -> dict[str, tuple[int, ...]]:
        """Ranks of each host, by its name; empty where ranks lie in none."""
        found: dict[str, list[int]] = {}
        for rank, node in enumerate(self.ranks):
            host = self.graph.nodes[node]["host"]
            if host is not None:
                found.setdefault(host, []).append(rank)
        return {host: tuple(ranks) for host, ranks in found.items()}

    def kind_of(self, node: str) -> NodeKind:
        """Return what a node is."""
        return NodeKind(self.graph.nodes[node]["kind"])

    def with_link(
        self,
        a: str,
        b: str,
        *,
        bandwidth_Bps: float | None = None,
        latency_ns: float | None = None,
        both_ways: bool = True,
    ) -> Topology:
        """Return the topology with one link changed.

        Args:
            a, b: Nodes at its ends.
            bandwidth_Bps: New rate; None keeps it.
            latency_ns: New latency; None keeps it.
            both_ways: Whether the opposite direction changes as well.

        Raises:
            TopologyError: There is no such link, or a rate is impossible.
        """
        graph = nx.DiGraph(self.graph)
        for source, target in self._edges_between(a, b, both_ways):
            about = dict(graph.edges[source, target])
            if bandwidth_Bps is not None:
                about["bandwidth_Bps"] = bandwidth_Bps
            if latency_ns is not None:
                about["latency_ns"] = latency_ns
            graph.add_edge(source, target, **_rates(about, source, target))
        return replace(self, graph=graph, name=f"{self.name} with {a}-{b} changed")

    def without_link(self, a: str, b: str, *, both_ways: bool = True) -> Topology:
        """Return the topology with one link removed.

        Raises:
            TopologyError: There is no such link.
        """
        graph = nx.DiGraph(self.graph)
        graph.remove_edges_from(self._edges_between(a, b, both_ways))
        return replace(self, graph=graph, name=f"{self.name} without {a}-{b}")

    def _edges_between(self, a: str, b: str, both_ways: bool) -> list[tuple[str, str]]:
        edges = [(a, b), (b, a)] if both_ways else [(a, b)]
        edges = [edge for edge in edges if self.graph.has_edge(*edge)]
        if not edges:
            near = sorted(self.graph.successors(a)) if a in self.graph else sorted(self.graph)
            raise TopologyError(f"no link from {a!r} to {b!r}; known: {', '.join(near[:8])}")
        return edges

    def to_json(self) -> str:
        """Return the topology as JSON text, the same for the same topology."""
        nodes = [
            _Node(node, self.graph.nodes[node]["kind"], self.graph.nodes[node]["host"])
            for node in self.graph
        ]
        links = [
            (link.a, link.b, float(link.bandwidth_Bps), float(link.latency_ns), link.both_ways)
            for link in self.links
        ]
        usual = asdict(FREE)
        costs = {name: cost for name, cost in asdict(self.costs).items() if cost != usual[name]}
        file = _File(
            self.name,
            self.shape,
            list(self.ranks),
            nodes,
            links,
            self.routing,
            list(self.dims),
            costs,
        )
        return msgspec.json.encode(file).decode()

    @staticmethod
    def from_json(text: str) -> Topology:
        """Return the topology that `to_json` wrote.

        Raises:
            TopologyError: The text is no topology.

        Example:
            >>> Topology.from_json(parse("star", 3).to_json()).ranks
            ('r0', 'r1', 'r2')
        """
        try:
            file = msgspec.json.decode(text, type=_File)
        except msgspec.DecodeError as error:
            raise TopologyError(f"JSON is no topology: {error}") from None
        graph = nx.DiGraph()
        for node in file.nodes:
            graph.add_node(node.id, kind=_kind(node.kind, node.id), host=node.host)
        for a, b, bandwidth, latency, both_ways in file.links:
            if a not in graph or b not in graph:
                raise TopologyError(f"JSON topology links {a!r} to {b!r}, which is no node")
            rates = _rates({"bandwidth_Bps": bandwidth, "latency_ns": latency}, a, b)
            graph.add_edge(a, b, **rates)
            if both_ways:
                graph.add_edge(b, a, **rates)
        routing, dims = Routing(file.routing), tuple(file.dims)
        costs = _costs(file.costs)
        return Topology(graph, tuple(file.ranks), file.name, file.shape, routing, dims, costs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.name, self.ranks))

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, {self.n_ranks} ranks)"


class _Node(msgspec.Struct, omit_defaults=True, array_like=True):
    id: str
    kind: str
    host: str | None = None


class _File(msgspec.Struct, omit_defaults=True):
    name: str
    shape: str
    ranks: list[str]
    nodes: list[_Node]
    links: list[tuple[str, str, float, float, bool]]
    routing: Routing = Routing.SHORTEST
    dims: list[int] = []
    costs: dict[str, float] = {}


def _costs(found: dict[str, float]) -> Costs:
    unknown = sorted(set(found) - set(COSTS))
    if unknown:
        raise TopologyError(f"costs has {unknown[0]!r}, expected any of {', '.join(COSTS)}")
    return Costs(**found)


def _kind(kind: Any, node: Hashable) -> NodeKind:
    try:
        return NodeKind(kind)
    except ValueError:
        known = ", ".join(NodeKind)
        raise TopologyError(f"node {node!r} has kind {kind!r}, expected one of {known}") from None


def _rates(about: Mapping[str, Any], a: Hashable, b: Hashable) -> dict[str, float]:
    """Return an edge's two rates, checked."""
    rates = {}
    for name, positive in (("bandwidth_Bps", True), ("latency_ns", False)):
        if name not in about:
            raise TopologyError(f"link from {a!r} to {b!r} lacks {name}")
        value = float(about[name])
        if not math.isfinite(value) or value < 0 or (positive and value == 0):
            expected = "a number above 0" if positive else "0 or more"
            raise TopologyError(
                f"link from {a!r} to {b!r}: {name} is {value:g}, expected {expected}"
            )
        rates[name] = value
    return rates


def parse(text: str, n_ranks: int) -> Topology:
    """Return the topology that a text such as ``ring:100GB/s,1us`` describes, or a file holds.

    Args:
        text: Preset, shape where it has one, and the rates of its links; see `presets`. Or the
            path of a GraphML or JSON file; see `formats.graphs`.
        n_ranks: Number of ranks, 1 or more.

    Raises:
        TopologyError: The text does not parse (the message points at the character), or does not
            fit the number of ranks.

    Example:
        >>> [link.label for link in parse("star:12.5GB/s,1us", 2).links]
        ['12.5 GB/s', '12.5 GB/s']
    """
    from .formats.graphs import SUFFIXES, read_topology
    from .presets import build

    if text.lower().endswith(SUFFIXES):
        return read_topology(Path(text), n_ranks)
    return build(text, n_ranks)
