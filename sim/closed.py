"""Closed forms: what each algorithm costs where every message has its path for itself.

    terms = closed_form("all_reduce", "ring", 8, 64 << 20)
    terms.time_ns(latency_ns=1000, bandwidth_Bps=100e9)

See `terms` for what a form means and when it holds. The forms are in `closed_symmetric`
(all_reduce, reduce_scatter, all_gather), `closed_rooted` (broadcast, reduce), `closed_blocks`
(gather, scatter, all_to_all, barrier) and `closed_shifts` (send_recv); those of native gloo are in
`closed_gloo`.
"""

from __future__ import annotations

from typing import Any

from ..errors import ScheduleError
from . import closed_blocks, closed_gloo, closed_rooted, closed_shifts, closed_symmetric
from .terms import CLOSED, NOTHING, Terms

__all__ = [
    "CLOSED",
    "Terms",
    "closed_blocks",
    "closed_form",
    "closed_gloo",
    "closed_rooted",
    "closed_shifts",
    "closed_symmetric",
]

# Why an algorithm has none.
WITHOUT_FORM = {
    ("reduce_scatter", "gloo_list"): "its rings, one a block, run at once and share every link",
}


def closed_form(
    collective: str, algorithm: str, group_size: int, size_bytes: float, **parameters: Any
) -> Terms:
    """Return what an algorithm costs where messages do not meet.

    Args:
        collective: Name of the collective.
        algorithm: Name of the algorithm.
        group_size: n.
        size_bytes: S, bytes of the whole data as nccl-tests counts them.
        parameters: What the algorithm takes beside, such as `segments`.

    Raises:
        ScheduleError: There is no closed form of that algorithm.

    Example:
        >>> closed_form("all_reduce", "ring", 4, 4000)
        Terms(latencies=6, sent_bytes=6000.0, reduced_bytes=3000.0)
    """
    form = CLOSED.get((collective, algorithm))
    if form is None and (collective, algorithm) in WITHOUT_FORM:
        why = WITHOUT_FORM[collective, algorithm]
        raise ScheduleError(f"no closed form of {collective} {algorithm}: {why}")
    if form is None:
        known = ", ".join(f"{one} {name}" for one, name in CLOSED)
        raise ScheduleError(f"no closed form of {collective} {algorithm}; there are: {known}")
    return NOTHING if group_size == 1 else form(group_size, size_bytes, **parameters)
