"""Meshes and tori of any number of dimensions.

Rank x + A y + A B z lies at (x, y, z) of AxBxC: the first dimension is the fastest.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt, prod

import networkx as nx

from ..topology import Routing
from .parsing import Rates, Shape, link, preset, ranks

_ABOUT = "AxB or AxBxC"


@preset("mesh", shape=_ABOUT, example="4x2", sizes=(1, 6), routing=Routing.GRID)
def mesh(n: int, shape: Shape | None, rates: Rates) -> nx.DiGraph:
    """Return a mesh: ranks linked to their neighbours in each dimension."""
    return _grid(shape or _square(n), rates, wraps=False)


@preset("torus", shape=_ABOUT, example="4x2", sizes=(1, 6), routing=Routing.GRID)
def torus(n: int, shape: Shape | None, rates: Rates) -> nx.DiGraph:
    """Return a torus: a mesh whose ends are linked; messages take one dimension after the other."""
    return _grid(shape or _square(n), rates, wraps=True)


def _square(n: int) -> Shape:
    """Return two sizes as near to each other as can be."""
    low = next(k for k in range(isqrt(n), 0, -1) if n % k == 0)
    return (n // low, low)


def _grid(dims: Shape, rates: Rates, *, wraps: bool) -> nx.DiGraph:
    graph = ranks(prod(dims))
    for rank, peer in _neighbours(dims, wraps):
        link(graph, f"r{rank}", f"r{peer}", rates)
    graph.graph["dims"] = dims
    return graph


def _neighbours(dims: Shape, wraps: bool) -> Iterator[tuple[int, int]]:
    for rank in range(prod(dims)):
        below = 1
        for size in dims:
            at = rank // below % size
            if at + 1 < size:
                yield rank, rank + below
            elif wraps and size > 2:
                yield rank, rank - at * below
            below *= size
