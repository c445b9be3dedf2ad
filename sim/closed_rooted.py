"""Closed forms of broadcast and reduce; see `terms` for when they hold."""

from __future__ import annotations

from .algorithms.binary import binary_edges, double_edges
from .terms import NOTHING, Terms, closed, log2_ceil, message


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


@closed("broadcast", "binary_tree")
def binary_tree_broadcast(n: int, size: float, segments: int = 4) -> Terms:
    """Return (d + 2(k-1))(α + S/(kB)) for k segments; the last rank's first one comes in step d.

    With two ranks a step a segment.
    """
    first = int(binary_edges(n).first.max()) + 1
    return message(size / segments) * (first + (segments - 1) * (1 if n == 2 else 2))


@closed("reduce", "binary_tree")
def binary_tree_reduce(n: int, size: float, segments: int = 4) -> Terms:
    """Return the broadcast's cost, and γS/k a step."""
    terms = binary_tree_broadcast(n, size, segments)
    return terms._replace(reduced_bytes=terms.sent_bytes)


@closed("broadcast", "double_tree")
def double_tree_broadcast(n: int, size: float, segments: int = 4) -> Terms:
    """Return (d + 2(k-1))(α + S/(2kB)) for k segments a half, where d is 2⌈lg n⌉ at most.

    Source: P. Sanders, J. Speck and J. L. Träff, "Two-tree algorithms for full bandwidth
    broadcast, reduction and scan", 2009.
    """
    first = max(int(edges.first.max()) for edges in double_edges(n)) + 1
    return message(size / (2 * segments)) * (first + 2 * (segments - 1))


@closed("reduce", "double_tree")
def double_tree_reduce(n: int, size: float, segments: int = 4) -> Terms:
    """Return the broadcast's cost, and γS/(2k) a step.

    Source: as the broadcast's.
    """
    terms = double_tree_broadcast(n, size, segments)
    return terms._replace(reduced_bytes=terms.sent_bytes)


@closed("broadcast", "scatter_all_gather")
def scatter_all_gather(n: int, size: float) -> Terms:
    """Return (⌈lg n⌉ + n-1)α + 2(n-1)S/(nB).

    Source: R. Thakur, R. Rabenseifner and W. Gropp, 2005.
    """
    return Terms(log2_ceil(n) + n - 1, 2 * (n - 1) * size / n)


@closed("reduce", "reduce_scatter_gather")
def reduce_scatter_gather(n: int, size: float) -> Terms:
    """Return (n-1 + ⌈lg n⌉)α + 2(n-1)S/(nB) + (n-1)γS/n.

    Source: E. Chan et al., "Collective communication: theory, practice, and experience", 2007.
    """
    return scatter_all_gather(n, size)._replace(reduced_bytes=(n - 1) * size / n)
