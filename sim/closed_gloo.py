"""Closed forms of native gloo's collectives, as planned for no size; see `terms`.

A plan for a size cuts segments of at most 1 MiB, so that their number grows with the bytes.
"""

from __future__ import annotations

from .closed_blocks import dissemination
from .closed_rooted import tree_broadcast
from .closed_symmetric import ring_segmented
from .terms import CLOSED, Terms, closed, message

CLOSED["broadcast", "gloo"] = tree_broadcast
CLOSED["barrier", "gloo"] = dissemination


@closed("all_reduce", "gloo")
@closed("reduce_scatter", "gloo")
def ring(n: int, size: float, segments: int = 2) -> Terms:
    """Return 2(n-1)k(α + S/(nkB)) + (n-1)γS/n for k segments a rank; two overlap.

    Source: gloo, gloo/allreduce.cc, function ring.
    """
    return ring_segmented(n, size, segments)


@closed("all_gather", "gloo")
def all_gather(n: int, size: float) -> Terms:
    """Return 2(n-1)(α + S/(2nB)); two halves overlap.

    Source: gloo, gloo/allgather.cc.
    """
    return message(size / (2 * n)) * (2 * (n - 1))


@closed("reduce", "gloo")
def reduce(n: int, size: float) -> Terms:
    """Return 2(n-1)(α + S/(2nB)) + (n-1)γS/n, and α + S/(nB) for the way to the root.

    Source: gloo, gloo/reduce.cc.
    """
    turn = message(size / (2 * n), reduces=True) * (2 * (n - 1))
    return turn.then(message(size / n))


@closed("all_to_all", "gloo")
def all_to_all(n: int, size: float) -> Terms:
    """Return (n-1)(α + S/(nB)); under dataflow all n-1 messages of a rank overlap.

    Source: gloo, gloo/alltoall.cc.
    """
    return message(size / n) * (n - 1)


@closed("barrier", "gloo_monitored")
def monitored(n: int, size: float) -> Terms:
    """Return 2(α + S/B) + (n-1)γS.

    Source: PyTorch 2.13, ProcessGroupGloo, monitoredBarrier.
    """
    return Terms(2, 2 * size, (n - 1) * size)
