"""Closed forms of collectives with a root, and of others; see `terms` for when they hold."""

from __future__ import annotations

from .terms import NOTHING, Terms, closed, log2_ceil, message

# Broadcast and reduce


@closed("broadcast", "flat")
def flat_broadcast(n: int, size: float, in_turn: bool = False) -> Terms:
    """Return α + S/B, or (n-1)(α + S/B) in turn."""
    return message(size) * (n - 1 if in_turn else 1)


@closed("reduce", "flat")
def flat_reduce(n: int, size: float, in_turn: bool = False) -> Terms:
    """Return α + S/B + (n-1)γS, or (n-1)(α + S/B + γS) in turn."""
    return flat_broadcast(n, size, in_turn)._replace(reduced_bytes=(n - 1) * size)


@closed("broadcast", "tree")
def tree_broadcast(n: int, size: float) -> Terms:
    """Return ⌈lg n⌉(α + S/B).

    Source: R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication
    operations in MPICH", 2005.
    """
    return message(size) * log2_ceil(n)


@closed("reduce", "tree")
def tree_reduce(n: int, size: float) -> Terms:
    """Return ⌈lg n⌉(α + S/B + γS).

    Source: as the broadcast's.
    """
    return message(size, reduces=True) * log2_ceil(n)


@closed("broadcast", "k_nomial")
def k_nomial_broadcast(n: int, size: float, radix: int = 4) -> Terms:
    """Return ⌈log_k n⌉(α + S/B).

    Source: J. Bruck et al., 1997.
    """
    return k_nomial_reduce(n, size, radix)._replace(reduced_bytes=0.0)


@closed("reduce", "k_nomial")
def k_nomial_reduce(n: int, size: float, radix: int = 4) -> Terms:
    """Return ⌈log_k n⌉(α + S/B), and γS for each message that the root adds.

    Source: J. Bruck et al., 1997.
    """
    total = NOTHING
    while n > 1:
        total = total.then(Terms(1, size, (min(radix, n) - 1) * size))
        n = -(-n // radix)
    return total


@closed("broadcast", "chain")
def chain_broadcast(n: int, size: float, segments: int = 4) -> Terms:
    """Return (n-2+k)(α + S/(kB)) for k segments.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, 2005.
    """
    return message(size / segments) * (n - 2 + segments)


@closed("reduce", "chain")
def chain_reduce(n: int, size: float, segments: int = 4) -> Terms:
    """Return (n-2+k)(α + S/(kB) + γS/k) for k segments.

    Source: as the broadcast's.
    """
    return message(size / segments, reduces=True) * (n - 2 + segments)
