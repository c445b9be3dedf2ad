"""Meshes and tori of any number of dimensions.

Rank x + A y + A B z lies at (x, y, z) of AxBxC: the first dimension is the fastest.
"""

from __future__ import annotations

from math import isqrt, prod

from ..topology import Routing
from .registry import Shape, preset
from .wiring import Rates, Wiring

_ABOUT = "AxB or AxBxC"


@preset("mesh", shape=_ABOUT, example="4x2", sizes=(1, 6), routing=Routing.GRID)
def mesh(n: int, shape: Shape | None, rates: Rates) -> Wiring:
    """Return a mesh: ranks linked to their neighbours in each dimension."""
    return _grid(shape or _square(n), rates, wraps=False)


@preset("torus", shape=_ABOUT, example="4x2", sizes=(1, 6), routing=Routing.GRID)
def torus(n: int, shape: Shape | None, rates: Rates) -> Wiring:
    """Return a torus: a mesh whose ends are linked; messages take one dimension after the other."""
    return _grid(shape or _square(n), rates, wraps=True)


def _square(n: int) -> Shape:
    """Return two sizes as near to each other as can be."""
    low = next(k for k in range(isqrt(n), 0, -1) if n % k == 0)
    return (n // low, low)


def _grid(dims: Shape, rates: Rates, *, wraps: bool) -> Wiring:
    net, below = Wiring(), 1
    rank = net.ranks(prod(dims))
    for size in dims:
        at = rank // below % size
        low, last = rank[at + 1 < size], rank[at + 1 == size]
        net.link(low, low + below, rates)
        if wraps and size > 2:
            net.link(last, last - (size - 1) * below, rates)
        below *= size
    net.dims = dims
    return net
