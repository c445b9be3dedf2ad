"""Closed forms of all_reduce, reduce_scatter and all_gather; see `terms` for when they hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .algorithms.bruck import pat_steps
from .algorithms.double_tree import depths, tree_parents
from .algorithms.torus import balanced_dims, usual_host
from .terms import CLOSED, NOTHING, Terms, closed, log2_ceil, message

# Rings


@closed("reduce_scatter", "ring")
def ring_reduce_scatter(n: int, size: float) -> Terms:
    """Return (n-1)(α + S/(nB) + γS/n).

    Source: E. Chan et al., "Collective communication: theory, practice, and experience", 2007.
    """
    return message(size / n, reduces=True) * (n - 1)


@closed("all_gather", "ring")
def ring_all_gather(n: int, size: float) -> Terms:
    """Return (n-1)(α + S/(nB)).

    Source: E. Chan et al., "Collective communication: theory, practice, and experience", 2007.
    """
    return message(size / n) * (n - 1)


@closed("all_reduce", "ring", "ring_tutorial")
def ring_all_reduce(n: int, size: float) -> Terms:
    """Return 2(n-1)(α + S/(nB)) + (n-1)γS/n.

    Source: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations", 2009.
    """
    return ring_reduce_scatter(n, size).then(ring_all_gather(n, size))


@closed("all_reduce", "ring_segmented")
def ring_segmented(n: int, size: float, segments: int = 2, window: int = 2) -> Terms:
    """Return 2(n-1)k(α + S/(nkB)) + (n-1)γS/n for k segments; a larger window saves latencies.

    Source: Open MPI, coll/base, segmented ring.
    """
    one = size / (n * segments)
    turn = (n - 1) * segments
    return (message(one, reduces=True) * turn).then(message(one) * turn)


@closed("all_reduce", "ring_bidirectional", "ring_channels")
def ring_channels(
    n: int,
    size: float,
    channels: int = 2,
    ranks_per_host: int | None = None,
    rings: Sequence[Sequence[int]] | None = None,
) -> Terms:
    """Return 2(n-1)(α + S/(nkB)) + (n-1)γS/(nk) for k rings with links of their own.

    Rotated rings share the links inside a host.

    Source: P. Patarasuk and X. Yuan, 2009, for each ring.
    """
    return ring_all_reduce(n, size / (channels if rings is None else len(rings)))


# Trees


@closed("all_reduce", "tree")
def tree_all_reduce(n: int, size: float) -> Terms:
    """Return 2⌈lg n⌉(α + S/B) + ⌈lg n⌉γS: a reduce and a broadcast.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication
    operations in MPICH", 2005.
    """
    return reduce_broadcast(n, size, "tree", "tree")


@closed("all_reduce", "k_nomial")
def k_nomial_all_reduce(n: int, size: float, radix: int = 4) -> Terms:
    """Return 2⌈log_k n⌉(α + S/B), and γS for each message that rank 0 adds.

    Source: J. Bruck et al., 1997.
    """
    up, down = CLOSED["reduce", "k_nomial"], CLOSED["broadcast", "k_nomial"]
    return up(n, size, radix=radix).then(down(n, size, radix=radix))


@closed("all_reduce", "double_tree")
def double_tree(n: int, size: float, segments: int = 4, window: int = 1) -> Terms:
    """Return (2d+k-1)(α + S/(2kB)) for k segments a half and trees d = ⌈lg n⌉ deep, and reduces.

    A rank with two children adds twice in a step. A larger window saves latencies.

    Source: P. Sanders, J. Speck and J. L. Träff, "Two-tree algorithms", 2009, without the colours
    that a single port would need.
    """
    piece, deepest = size / (2 * segments), log2_ceil(n)
    steps = 2 * deepest + segments - 1
    adding = np.zeros(steps)
    for parent in tree_parents(n):
        depth = depths(parent)
        child = np.flatnonzero(depth)
        for segment in range(segments):
            for level in range(1, deepest + 1):
                most = np.bincount(parent[child[depth[child] == level]]).max()
                step = segment + deepest - level
                adding[step] = max(adding[step], most)
    return Terms(steps, steps * piece, float(adding.sum()) * piece)


@closed("all_reduce", "reduce_broadcast")
def reduce_broadcast(n: int, size: float, reduce: str = "flat", broadcast: str = "flat") -> Terms:
    """Return the reduce and then the broadcast: 2α + 2S/B + (n-1)γS if both are flat.

    Source: Open MPI, coll/base, non-overlapping all_reduce.
    """
    return CLOSED["reduce", reduce](n, size).then(CLOSED["broadcast", broadcast](n, size))


# Butterflies


@closed("all_reduce", "recursive_doubling")
def recursive_doubling_all_reduce(n: int, size: float) -> Terms:
    """Return lg n (α + S/B + γS), and the folding of what is beyond a power of two.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, 2005.
    """
    return (message(size, reduces=True) * (n.bit_length() - 1)).then(_folding(n, size))


@closed("all_reduce", "halving_doubling")
def halving_doubling(n: int, size: float) -> Terms:
    """Return 2 lg n α + 2(n-1)S/(nB) + (n-1)γS/n, and the folding beyond a power of two.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, 2005.
    """
    steps = n.bit_length() - 1
    part = (1 - 1 / (1 << steps)) * size
    return Terms(2 * steps, 2 * part, part).then(_folding(n, size))


@closed("all_reduce", "swing")
def swing(n: int, size: float) -> Terms:
    """Return 2⌈lg n⌉α + 2(n-1)S/(nB) + (n-1)γS/n for even n.

    For odd n the last rank hands in and gets back a piece of S/(n-1) for each of the others.

    Source: D. De Sensi et al., "Swing", 2024.
    """
    even = n - n % 2
    part = (even - 1) / even * size
    total = Terms(2 * log2_ceil(even), 2 * part, part)
    if n % 2:
        piece = size / even
        total = message(piece, reduces=True).then(total).then(message(piece))
    return total


def _folding(n: int, size: float) -> Terms:
    """Return 2α + 2S/B + γS if n is no power of two, for handing in and getting back."""
    if n & (n - 1) == 0:
        return NOTHING
    return message(size, reduces=True).then(message(size))


@closed("reduce_scatter", "recursive_halving")
def recursive_halving(n: int, size: float) -> Terms:
    """Return lg n α + (n-1)S/(nB) + (n-1)γS/n.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, 2005.
    """
    part = (n - 1) / n * size
    return Terms(log2_ceil(n), part, part)


@closed("all_gather", "recursive_doubling", "bruck")
def logarithmic_all_gather(n: int, size: float) -> Terms:
    """Return ⌈lg n⌉α + (n-1)S/(nB).

    Source: J. Bruck et al., 1997.
    """
    return Terms(log2_ceil(n), (n - 1) / n * size)


@closed("all_gather", "pat")
def pat_all_gather(n: int, size: float, aggregation: int | None = None) -> Terms:
    """Return ⌈lg n⌉α + (n-1)S/(nB); (lg A + n/A - 1)α if messages carry A blocks at most.

    Source: S. Jeaugey, "PAT", 2025.
    """
    return Terms(len(pat_steps(n, aggregation)), (n - 1) / n * size)


@closed("reduce_scatter", "pat")
def pat_reduce_scatter(n: int, size: float, aggregation: int | None = None) -> Terms:
    """Return the all_gather's cost and (n-1)γS/n.

    In the step model the rows of one message are added side by side, which saves some of γ where n
    is no power of two.

    Source: S. Jeaugey, "PAT", 2025.
    """
    gather = pat_all_gather(n, size, aggregation)
    return gather._replace(reduced_bytes=gather.sent_bytes)


@closed("all_gather", "neighbor_exchange")
def neighbor_exchange(n: int, size: float) -> Terms:
    """Return nα/2 + (n-1)S/(nB).

    Source: J. Chen et al., 2005.
    """
    return Terms(n / 2, (n - 1) / n * size)


# Direct


@closed("all_reduce", "one_shot")
def one_shot(n: int, size: float) -> Terms:
    """Return α + S/B + (n-1)γS."""
    return Terms(1, size, (n - 1) * size)


@closed("reduce_scatter", "direct")
def direct_reduce_scatter(n: int, size: float) -> Terms:
    """Return α + S/(nB) + (n-1)γS/n."""
    return Terms(1, size / n, (n - 1) / n * size)


@closed("all_gather", "direct")
def direct_all_gather(n: int, size: float) -> Terms:
    """Return α + S/(nB)."""
    return message(size / n)


@closed("all_reduce", "two_shot")
def two_shot(n: int, size: float) -> Terms:
    """Return 2α + 2S/(nB) + (n-1)γS/n."""
    return direct_reduce_scatter(n, size).then(direct_all_gather(n, size))


# Dimension by dimension


@closed("reduce_scatter", "hierarchical")
def hierarchical_reduce_scatter(n: int, size: float, ranks_per_host: int | None = None) -> Terms:
    """Return (a+b-2)α + (n-1)S/(nB) + (n-1)γS/n with a ranks on each of b hosts, all links alike.

    Source: M. Cho et al., "BlueConnect", 2019.
    """
    inside = usual_host(n) if ranks_per_host is None else ranks_per_host
    part = (n - 1) / n * size
    return Terms(inside + n // inside - 2, part, part)


@closed("all_gather", "hierarchical")
def hierarchical_all_gather(n: int, size: float, ranks_per_host: int | None = None) -> Terms:
    """Return (a+b-2)α + (n-1)S/(nB) with a ranks on each of b hosts, all links alike.

    Source: M. Cho et al., "BlueConnect", 2019.
    """
    return hierarchical_reduce_scatter(n, size, ranks_per_host)._replace(reduced_bytes=0.0)


@closed("all_reduce", "hierarchical")
def hierarchical_all_reduce(n: int, size: float, ranks_per_host: int | None = None) -> Terms:
    """Return 2(a+b-2)α + 2(n-1)S/(nB) + (n-1)γS/n with a ranks on each of b hosts.

    Source: M. Cho et al., "BlueConnect", 2019.
    """
    half = hierarchical_reduce_scatter(n, size, ranks_per_host)
    return half.then(half._replace(reduced_bytes=0.0))


@closed("all_reduce", "torus2d")
def torus2d(
    n: int, size: float, dims: Sequence[int] | None = None, mirrored: bool = False
) -> Terms:
    """Return 2(a+b-2)α + 2(n-1)S/(nB) + (n-1)γS/n for a rows of b; see `_torus`."""
    return _torus(balanced_dims(n, 2) if dims is None else dims, size, mirrored)


@closed("all_reduce", "torus3d")
def torus3d(
    n: int, size: float, dims: Sequence[int] | None = None, mirrored: bool = False
) -> Terms:
    """Return 2(a+b+c-3)α + 2(n-1)S/(nB) + (n-1)γS/n; see `_torus`."""
    return _torus(balanced_dims(n, 3) if dims is None else dims, size, mirrored)


def _torus(dims: Sequence[int], size: float, mirrored: bool) -> Terms:
    """Return the cost of rings in one dimension after the other, there and back.

    Mirrored copies in D dimensions have 1/(2D) of the data each; the slowest one decides a step,
    which matters where the dimensions differ.

    Source: H. Mikami et al., 2018; C. Ying et al., 2018.
    """
    order, copies = list(dims)[::-1], []
    for first in range(len(order) if mirrored else 1):
        part, sizes = size / (2 * len(order) if mirrored else 1), []
        for dim in order[first:] + order[:first]:
            part /= dim
            sizes += [part] * (dim - 1)
        copies.append(sizes)
    sent = sum(map(max, zip(*copies, strict=True)))
    return Terms(2 * len(copies[0]), 2 * sent, sent)


# In the switch


@closed("all_reduce", "sharp")
def sharp(n: int, size: float, segments: int = 1) -> Terms:
    """Return (k+1)(α + S/(kB)) for k segments; α and B are those of a link to the switch.

    Source: R. L. Graham et al., "SHArP", 2016.
    """
    return message(size / segments) * (segments + 1)


@closed("all_reduce", "nvls")
def nvls(n: int, size: float) -> Terms:
    """Return 4α + (2 + 1/n)S/B; α and B are those of a link to the switch.

    Source: B. Klenk et al., ISCA 2020.
    """
    return Terms(4, (2 + 1 / n) * size)
