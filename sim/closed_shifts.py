"""Closed forms of send/recv patterns; see `terms` for when they hold. S is what one rank sends."""

from __future__ import annotations

from .terms import Terms, closed, message


@closed("send_recv", "ring_shift")
def ring_shift(n: int, size: float) -> Terms:
    """Return α + S/B."""
    return message(size)


@closed("send_recv", "pipeline")
def pipeline(n: int, size: float, segments: int = 4) -> Terms:
    """Return (n+k-1)(α + S/(kB)) for k pieces.

    Source: Y. Huang et al., "GPipe", 2019, with messages for stages.
    """
    return message(size / segments) * (n + segments - 1)
