"""Topologies of ranks alone, or of ranks and one switch."""

from __future__ import annotations

import networkx as nx

from ..topology import NodeKind
from .parsing import Rates, Shape, link, preset, ranks


@preset("ring")
def ring(n: int, shape: Shape | None, rates: Rates) -> nx.DiGraph:
    """Return each rank linked to the next, the last to the first."""
    graph = ranks(n)
    for rank in range(n if n > 2 else n - 1):
        link(graph, f"r{rank}", f"r{(rank + 1) % n}", rates)
    return graph


@preset("line")
def line(n: int, shape: Shape | None, rates: Rates) -> nx.DiGraph:
    """Return each rank linked to the next."""
    graph = ranks(n)
    for rank in range(n - 1):
        link(graph, f"r{rank}", f"r{rank + 1}", rates)
    return graph


@preset("star")
def star(n: int, shape: Shape | None, rates: Rates) -> nx.DiGraph:
    """Return every rank linked to one switch."""
    graph = ranks(n)
    graph.add_node("switch", kind=NodeKind.SWITCH, host=None)
    for rank in range(n):
        link(graph, f"r{rank}", "switch", rates)
    return graph


@preset("fully")
def fully(n: int, shape: Shape | None, rates: Rates) -> nx.DiGraph:
    """Return every rank linked to every other."""
    graph = ranks(n)
    for rank in range(n):
        for peer in range(rank + 1, n):
            link(graph, f"r{rank}", f"r{peer}", rates)
    return graph


@preset("hypercube")
def hypercube(n: int, shape: Shape | None, rates: Rates) -> nx.DiGraph:
    """Return ranks linked to those whose number differs in one bit; a power of two of them."""
    if n & (n - 1):
        raise ValueError(f"a hypercube has a power of two of ranks, not {n}")
    graph = ranks(n)
    for rank in range(n):
        for bit in range(n.bit_length() - 1):
            if not rank >> bit & 1:
                link(graph, f"r{rank}", f"r{rank | 1 << bit}", rates)
    return graph
