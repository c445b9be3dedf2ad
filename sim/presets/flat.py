"""Topologies of ranks alone, or of ranks and one switch."""

from __future__ import annotations

from .registry import Shape, preset
from .wiring import Rates, Wiring


@preset("ring")
def ring(n: int, shape: Shape | None, rates: Rates) -> Wiring:
    """Return each rank linked to the next, the last to the first."""
    net = Wiring()
    rank = net.ranks(n)[: n if n > 2 else n - 1]
    net.link(rank, (rank + 1) % n, rates)
    return net


@preset("line")
def line(n: int, shape: Shape | None, rates: Rates) -> Wiring:
    """Return each rank linked to the next."""
    net = Wiring()
    rank = net.ranks(n)
    net.link(rank[:-1], rank[1:], rates)
    return net


@preset("star")
def star(n: int, shape: Shape | None, rates: Rates) -> Wiring:
    """Return every rank linked to one switch."""
    net = Wiring()
    rank = net.ranks(n)
    net.link(rank, net.switches(["switch"]), rates)
    return net


@preset("fully")
def fully(n: int, shape: Shape | None, rates: Rates) -> Wiring:
    """Return every rank linked to every other."""
    net = Wiring()
    net.link_all(net.ranks(n), rates)
    return net


@preset("hypercube")
def hypercube(n: int, shape: Shape | None, rates: Rates) -> Wiring:
    """Return ranks linked to those whose number differs in one bit; a power of two of them."""
    if n & (n - 1):
        raise ValueError(f"a hypercube has a power of two of ranks, not {n}")
    net = Wiring()
    rank = net.ranks(n)
    for bit in range(n.bit_length() - 1):
        low = rank[rank >> bit & 1 == 0]
        net.link(low, low | 1 << bit, rates)
    return net
