"""Topologies from graph files: GraphML, networkx's node-link JSON, and our own JSON.

    topology = read_topology(Path("cluster.graphml"))

Edges need `bandwidth_Bps` and `latency_ns`, as numbers or as text such as ``100GB/s`` and ``1us``;
nodes may have `kind` (rank, switch, host, nic), `host`, and the number of the `rank` on them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import networkx as nx

from ...errors import TopologyError
from ..topology import Topology

SUFFIXES = (".graphml", ".xml", ".json")


def read_topology(path: Path, n_ranks: int | None = None) -> Topology:
    """Return the topology in a file.

    Args:
        path: A GraphML or JSON file.
        n_ranks: Ranks to place on its first places; None for as many as it has.

    Raises:
        TopologyError: The file cannot be read, is no graph, or has fewer places than ranks; the
            message names the file, and the node or link.
    """
    try:
        topology = _read(path)
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from None
    if n_ranks is None:
        return topology
    if topology.n_ranks < n_ranks:
        raise TopologyError(
            f"{path}: has places for {topology.n_ranks} ranks, but there are {n_ranks}"
        )
    return replace(topology, ranks=topology.ranks[:n_ranks])


def _read(path: Path) -> Topology:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is no UTF-8 text"
        raise TopologyError(f"cannot be read: {reason}") from None
    if not text.strip():
        raise TopologyError("is empty, expected GraphML or JSON")
    if text.lstrip().startswith("<"):
        graph = _graphml(text)
    else:
        found = _json(text)
        if "ranks" in found and "shape" in found:
            return Topology.from_json(text)
        graph = _node_link(found)
    if len(graph) == 0:
        raise TopologyError("has no node")
    return Topology.of(graph, name=path.name)


def _graphml(text: str) -> nx.Graph:
    try:
        return nx.parse_graphml(text)
    except (nx.NetworkXError, ParseError, LookupError, TypeError, ValueError) as error:
        raise TopologyError(f"is no GraphML: {error}") from None


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TopologyError(f"is neither GraphML nor JSON: {error}") from None
    if not isinstance(found, dict):
        raise TopologyError("is a JSON list or value, expected an object with nodes and links")
    return found


def _node_link(found: dict[str, Any]) -> nx.Graph:
    edges = "links" if "links" in found else "edges"
    for name in ("nodes", edges):
        if not isinstance(found.get(name), list):
            raise TopologyError(f"JSON has no list of {name}, as networkx's node-link JSON has it")
    try:
        return nx.node_link_graph(found, edges=edges)
    except (AttributeError, LookupError, TypeError, ValueError, nx.NetworkXError) as error:
        raise TopologyError(f"is no node-link JSON: {error!r}") from None
