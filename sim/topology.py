"""A Topology: ranks, switches and hosts on a directed graph of links.

    topology = parse("two-level:2x4:100GB/s,1us:10GB/s,5us", 8)
    topology.graph.edges["host0", "switch"]["bandwidth_Bps"]   # 1e10
    slow = topology.with_link("r0", "host0", bandwidth_Bps=1e9)

A text is ``PRESET[:SHAPE][:BANDWIDTH,LATENCY]``, in `presets` with what each builds. The latency
counts for each link of a path, so two ranks of a star are twice the latency apart.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path

import msgspec
import networkx as nx
import numpy as np
import numpy.typing as npt

from ..errors import TopologyError
from ..units import format_Bps
from .costs import COSTS, FREE, Costs
from .network import Network, NodeKind, kind_named, places, rates_of

__all__ = ["Link", "Network", "NodeKind", "Routing", "Topology", "parse"]


class Routing(StrEnum):
    """How messages find their way through a topology."""

    SHORTEST = "shortest"  # by latency, then hops, then the order of the nodes
    ECMP = "ecmp"  # one of the shortest, by a hash of both ends
    DESTINATION = "destination"  # one of the shortest, by the number of the node at the end
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
        network: Nodes and links in columns; see also `graph`.
        ranks: Name of the node that each rank is on.
        name: What it was made from, such as ``ring:100GB/s,1us``.
        shape: How to draw it: a preset's name, or ``graph``.
        routing: How messages find their way.
        dims: Sizes of a grid's dimensions, the fastest first; empty if it is none.
        costs: What the machine takes for a message beside its links.
    """

    network: Network
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
            graph: Edges need `bandwidth_Bps` above 0 and `latency_ns` of 0 or more, as numbers or
                as text such as ``100GB/s`` and ``1us``; an edge of an undirected graph is a link of
                that rate each way. Nodes may have `kind`, `host` and `rank`.
            ranks: Node of each rank; by default the nodes of kind ``rank``, else all nodes, in
                their order or in that of `rank`.
            name: What to call it.

        Raises:
            TopologyError: An edge lacks a rate or has an impossible one, or a rank has no node.

        Example:
            >>> graph = nx.Graph()
            >>> graph.add_edge("a", "b", bandwidth_Bps=1e9, latency_ns=500)
            >>> Topology.of(graph).ranks
            ('a', 'b')
        """
        if ranks is None:
            ranks = places(graph)
        return Topology(Network.of(graph, set(ranks)), tuple(map(str, ranks)), name)

    def __post_init__(self) -> None:
        if not self.ranks:
            raise TopologyError("topology has no rank")
        if any(size < 1 for size in self.dims):
            raise TopologyError(f"dims are {list(self.dims)}, expected sizes from 1 on")
        for rank, node in enumerate(self.ranks):
            if node not in self.network.index:
                raise TopologyError(f"rank {rank} is placed on node {node!r}, which does not exist")

    @property
    def graph(self) -> nx.DiGraph:
        """The network as a frozen networkx DiGraph.

        Nodes are named by strings and have `kind` (see NodeKind) and `host` (name of the host that
        they lie in, or None). Edges have `bandwidth_Bps` and `latency_ns`.
        """
        return self.network.graph

    @property
    def n_ranks(self) -> int:
        """Number of ranks placed on it."""
        return len(self.ranks)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The links in order of their ends, equal opposite ones as one."""
        network, back = self.network, self.network.reverse
        rates = np.stack([network.bandwidth_Bps, network.latency_ns])
        both_ways = (back >= 0) & (rates == rates[:, back]).all(axis=0)
        numbers = np.flatnonzero(~both_ways | (back >= np.arange(len(back))))
        columns = (network.tails, network.heads, *rates, both_ways)
        rows = zip(*(column[numbers].tolist() for column in columns), strict=True)
        return tuple(Link(network.nodes[a], network.nodes[b], *rest) for a, b, *rest in rows)

    @cached_property
    def hosts(self) -> dict[str, tuple[int, ...]]:
        """Ranks of each host, by its name; empty where ranks lie in none."""
        found: dict[str, list[int]] = {}
        for rank, node in enumerate(self.ranks):
            host = self.network.hosts[self.network.index[node]]
            if host is not None:
                found.setdefault(host, []).append(rank)
        return {host: tuple(ranks) for host, ranks in found.items()}

    def kind_of(self, node: str) -> NodeKind:
        """Return what a node is."""
        return self.network.kinds[self.network.index[node]]

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
        links = self.links_between(a, b, both_ways)
        columns = {}
        for name, value in (("bandwidth_Bps", bandwidth_Bps), ("latency_ns", latency_ns)):
            column = columns[name] = getattr(self.network, name).copy()
            if value is not None:
                column[links] = value
        rates_of({name: column[links[0]] for name, column in columns.items()}, a, b)
        network = replace(self.network, **columns)
        return replace(self, network=network, name=f"{self.name} with {a}-{b} changed")

    def without_link(self, a: str, b: str, *, both_ways: bool = True) -> Topology:
        """Return the topology with one link removed.

        Raises:
            TopologyError: There is no such link.
        """
        network = self.network.without_links(self.links_between(a, b, both_ways))
        return replace(self, network=network, name=f"{self.name} without {a}-{b}")

    def links_between(self, a: str, b: str, both_ways: bool = True) -> npt.NDArray[np.int64]:
        """Return the numbers of the links from one node to another, and back.

        Raises:
            TopologyError: There is no such link.
        """
        ways = [(a, b), (b, a)] if both_ways else [(a, b)]
        links = [link for way in ways if (link := self.network.link(*way)) is not None]
        if not links:
            known = self.network.index
            near = sorted(self.network.neighbours(a)) if a in known else sorted(known)
            raise TopologyError(f"no link from {a!r} to {b!r}; known: {', '.join(near[:8])}")
        return np.array(links, np.int64)

    def to_json(self) -> str:
        """Return the topology as JSON text, the same for the same topology."""
        network = self.network
        nodes = list(map(_Node, network.nodes, network.kinds, network.hosts))
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
        names = tuple(node.id for node in file.nodes)
        index = {name: k for k, name in enumerate(names)}
        if len(index) < len(names):
            raise TopologyError("JSON topology has two nodes of one name")
        links = []
        for a, b, bandwidth, latency, both_ways in file.links:
            if a not in index or b not in index:
                raise TopologyError(f"JSON topology links {a!r} to {b!r}, which is no node")
            rates = rates_of({"bandwidth_Bps": bandwidth, "latency_ns": latency}, a, b)
            links.append((index[a], index[b], *rates))
            if both_ways and a != b:
                links.append((index[b], index[a], *rates))
        ends = np.array([link[:2] for link in links], np.int64).reshape(-1, 2).T
        network = Network(
            names,
            tuple(kind_named(node.kind, node.id) for node in file.nodes),
            tuple(node.host for node in file.nodes),
            *ends,
            *np.array([link[2:] for link in links], np.float64).reshape(-1, 2).T,
        )
        routing, dims = Routing(file.routing), tuple(file.dims)
        costs = _costs(file.costs)
        return Topology(network, tuple(file.ranks), file.name, file.shape, routing, dims, costs)

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
