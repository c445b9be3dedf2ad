"""The difference of two clocks from bounds on it at single moments.

    fitted = fit(bounds)
    fitted.offset_ns(times_ns)      # what to add to the one clock to get the other
    fitted.error_ns                 # how wrong that may be

Two crystals drift apart evenly over minutes, so the difference is taken as a straight line: the one
that keeps the largest distance from all bounds. Over hours the line bends; where no line keeps all
bounds, several are joined.

Source: for bounds from messages both ways and lines between them, L. Zhang, Z. Liu and C. H. Xia,
Clock synchronization algorithms for network measurements, INFOCOM 2002.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .counting import Ints

Floats = npt.NDArray[np.float64]
MAX_DRIFT = 200e-6  # two crystals of 50 ppm each, and what NTP corrects
STEPS = 60  # of a search that halves or thirds what is left
BINS = 512  # moments that bounds are gathered at; within one the tightest counts
PIECES = (2, 4, 8, 16, 32)


class Bounds(NamedTuple):
    """Bounds on the difference of two clocks, in ns.

    Attributes:
        low_at: Moments by the one clock at which a lower bound is known.
        low: The lower bounds.
        high_at: Moments at which an upper bound is known.
        high: The upper bounds.
    """

    low_at: Ints
    low: Ints
    high_at: Ints
    high: Ints


@dataclass(frozen=True, slots=True)
class Fit:
    """The difference of two clocks over time: lines between corners, straight on beyond them.

    Attributes:
        at_ns: Moments of the corners by the one clock, two or more.
        corner_ns: The difference there, beyond `base_ns`: a float holds no whole day in ns.
        base_ns: What is the same everywhere.
        error_ns: How wrong the difference may be at any moment for which it was asked.
    """

    at_ns: tuple[int, ...]
    corner_ns: tuple[float, ...]
    base_ns: int
    error_ns: int

    def offset_ns(self, times_ns: Ints) -> Ints:
        """Return the difference at moments of the one clock."""
        at = np.array(self.at_ns, np.int64)
        corner = np.array(self.corner_ns)
        piece = np.clip(np.searchsorted(at, times_ns) - 1, 0, len(at) - 2)
        slope = np.diff(corner) / np.diff(at)
        since = (times_ns - at[piece]).astype(np.float64)
        drift = np.rint(corner[piece] + slope[piece] * since)
        return drift.astype(np.int64) + self.base_ns


def fit(bounds: Bounds, span: tuple[int, int] | None = None) -> Fit | None:
    """Return the difference that keeps the bounds best, or None where a side has none.

    Args:
        bounds: What is known.
        span: Moments between which the difference is wanted; the error holds there. The first and
            the last bound by default.
    """
    if not len(bounds.low) or not len(bounds.high):
        return None
    moments = (bounds.low_at, bounds.high_at, np.array(span or (), np.int64))
    start, end = (int(pick(np.concatenate(moments))) for pick in (np.min, np.max))
    length = max(end - start, 1)
    base = int(bounds.low.max())
    points = _Points(
        *_tightest(bounds.low_at - start, bounds.low - base, length, lowest=False),
        *_tightest(bounds.high_at - start, bounds.high - base, length, lowest=True),
    )
    best = _straight(points, 0.0, float(length))
    if best.is_broken:
        joined = [_joined(points, n, float(length)) for n in PIECES]
        best = min((best, *filter(None, joined)), key=lambda curve: curve.error_ns)
    return Fit(
        tuple(start + round(moment) for moment in best.at),
        best.value,
        base,
        int(np.ceil(max(best.error_ns, 1.0))),
    )


class _Points(NamedTuple):
    """Bounds as floats: moments from the first one, values from about where they lie."""

    low_at: Floats
    low: Floats
    high_at: Floats
    high: Floats

    def between(self, start: float, end: float) -> _Points:
        """Return the bounds within an interval."""
        lows = (self.low_at >= start) & (self.low_at <= end)
        highs = (self.high_at >= start) & (self.high_at <= end)
        return _Points(self.low_at[lows], self.low[lows], self.high_at[highs], self.high[highs])

    def room(self, slope: float) -> tuple[float, float]:
        """Return between which intercepts a line of this slope keeps all bounds."""
        return (
            float((self.low - slope * self.low_at).max()),
            float((self.high - slope * self.high_at).min()),
        )

    def width(self, slope: float) -> float:
        """Return how many intercepts there are; below 0 a line of this slope breaks a bound."""
        low, high = self.room(slope)
        return high - low


class _Curve(NamedTuple):
    """Corners of a curve from the first bound on, and how wrong it may be."""

    at: tuple[float, ...]
    value: tuple[float, ...]
    error_ns: float
    is_broken: bool


def _straight(points: _Points, start: float, end: float) -> _Curve:
    """Return the line that keeps the largest distance from the bounds."""

    def room(slope: float) -> float:
        return points.width(slope) - abs(slope) / MAX_DRIFT  # an ns: of equal ones the flattest

    slope = _peak(room, -MAX_DRIFT, MAX_DRIFT)
    middle = sum(points.room(slope)) / 2
    value = (middle + slope * start, middle + slope * end)
    width = points.width(slope)
    if width < 0:
        return _Curve((start, end), value, -width / 2, is_broken=True)
    reach = [_reach(points, slope, moment) for moment in (start, end)]
    error = max(abs(limit - at) for at, limits in zip(value, reach) for limit in limits)
    return _Curve((start, end), value, error, is_broken=False)


def _reach(points: _Points, slope: float, moment: float) -> tuple[float, float]:
    """Return the lowest and highest value at a moment of the lines that keep all bounds.

    Args:
        points: The bounds.
        slope: Slope of one such line.
        moment: The moment.
    """
    first, last = (_edge(points, slope, limit) for limit in (-MAX_DRIFT, MAX_DRIFT))

    def highest(slope: float) -> float:
        return points.room(slope)[1] + slope * moment

    def lowest(slope: float) -> float:
        return -points.room(slope)[0] - slope * moment

    return -lowest(_peak(lowest, first, last)), highest(_peak(highest, first, last))


def _joined(points: _Points, n: int, length: float) -> _Curve | None:
    """Return n lines joined: through the middle of the best line in each part of the time."""
    edges = np.linspace(0.0, length, n + 1)
    at, value, error = [], [], 0.0
    for start, end in pairwise(edges.tolist()):
        part = points.between(start, end)
        if len(part.low) and len(part.high):
            line = _straight(part, start, end)
            at.append((start + end) / 2)
            value.append(sum(line.value) / 2)
            error = max(error, line.error_ns)
    if len(at) < 2:
        return None
    slopes = np.diff(value) / np.diff(at)
    value = [value[0] - slopes[0] * at[0], *value, value[-1] + slopes[-1] * (length - at[-1])]
    at = [0.0, *at, length]
    below = points.low - np.interp(points.low_at, at, value)
    above = np.interp(points.high_at, at, value) - points.high
    broken = float(max(below.max(), above.max()))
    return _Curve(tuple(at), tuple(map(float, value)), max(error, broken), is_broken=broken > 0)


def _tightest(at: Ints, bound: Ints, length: int, *, lowest: bool) -> tuple[Floats, Floats]:
    """Return the tightest bound of each moment, as floats."""
    order = np.lexsort((bound if lowest else -bound, at * BINS // (length + 1)))
    _, first = np.unique((at * BINS // (length + 1))[order], return_index=True)
    kept = order[first]
    return at[kept].astype(np.float64), bound[kept].astype(np.float64)


def _peak(function: Callable[[float], float], start: float, end: float) -> float:
    """Return where a concave function is largest."""
    for _ in range(STEPS):
        third = (end - start) / 3
        if function(start + third) < function(end - third):
            start += third
        else:
            end -= third
    return (start + end) / 2


def _edge(points: _Points, inside: float, outside: float) -> float:
    """Return the last slope from `inside` towards `outside` at which a line keeps all bounds."""
    if points.width(outside) >= 0:
        return outside
    for _ in range(STEPS):
        middle = (inside + outside) / 2
        if points.width(middle) >= 0:
            inside = middle
        else:
            outside = middle
    return inside
