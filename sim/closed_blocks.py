"""Closed forms of collectives that move blocks, and of barriers; see `terms` for when they hold."""

from __future__ import annotations

from .algorithms.all_to_all import hosts
from .closed_rooted import k_nomial_broadcast, k_nomial_reduce
from .terms import Terms, closed, log2_ceil, message

# Gather and scatter; S are all ranks' blocks


@closed("gather", "flat")
@closed("scatter", "flat")
def flat(n: int, size: float, in_turn: bool = False) -> Terms:
    """Return α + S/(nB), or (n-1)(α + S/(nB)) in turn."""
    return message(size / n) * (n - 1 if in_turn else 1)


@closed("gather", "gloo")
@closed("scatter", "gloo")
def gloo(n: int, size: float) -> Terms:
    """Return α + S/(nB)."""
    return message(size / n)


@closed("gather", "binomial")
@closed("scatter", "binomial")
def binomial(n: int, size: float) -> Terms:
    """Return ⌈lg n⌉α + (n-1)S/(nB).

    Source: R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication
    operations in MPICH", 2005.
    """
    return Terms(log2_ceil(n), (n - 1) * size / n)


# All-to-all; S is what one rank sends


@closed("all_to_all", "direct")
def direct(n: int, size: float) -> Terms:
    """Return α + S/(nB)."""
    return message(size / n)


@closed("all_to_all", "pairwise")
def pairwise(n: int, size: float) -> Terms:
    """Return (n-1)(α + S/(nB)).

    Source: R. Thakur, R. Rabenseifner and W. Gropp, 2005.
    """
    return message(size / n) * (n - 1)


@closed("all_to_all", "bruck")
def bruck(n: int, size: float) -> Terms:
    """Return ⌈lg n⌉α + cS/(nB), where c counts the bits of 1 .. n-1: n/2 lg n for powers of two.

    Source: J. Bruck et al., 1997.
    """
    return Terms(log2_ceil(n), sum(far.bit_count() for far in range(n)) * size / n)


@closed("all_to_all", "hierarchical")
def hierarchical(n: int, size: float, ranks_per_host: int | None = None) -> Terms:
    """Return (b-1)(α + S/(bB)) + (a-1)(α + S/(aB)) for a hosts of b ranks, all links alike."""
    a, b = hosts(n, ranks_per_host)
    return (message(size / b) * (b - 1)).then(message(size / a) * (a - 1))


# Barriers, with S = 0 as a rule


@closed("barrier", "dissemination")
def dissemination(n: int, size: float, radix: int = 2) -> Terms:
    """Return ⌈log_k n⌉(α + S/B), and γS for each message that a rank hears.

    Source: D. Hensgen, R. Finkel and U. Manber, 1988.
    """
    return k_nomial_reduce(n, size, radix)


@closed("barrier", "tree")
def tree(n: int, size: float, radix: int = 2) -> Terms:
    """Return 2⌈log_k n⌉(α + S/B), and γS for each message that rank 0 hears."""
    return k_nomial_reduce(n, size, radix).then(k_nomial_broadcast(n, size, radix))


@closed("barrier", "double_ring")
def double_ring(n: int, size: float) -> Terms:
    """Return 2(n-1)(α + S/B) + (n-1)γS."""
    return Terms(2 * (n - 1), 2 * (n - 1) * size, (n - 1) * size)
