"""When the messages of a step go, so that they keep apart on their ways.

    found = spans(ways, token_w=70, token_h=48)
    found[3]                   # message 3: shares of its flight

A message may wait or hurry within its step; it never leaves it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..reel import Span
from ..story import Story
from .layout import Point, lengths
from .pace import Pace

# Moments of a step at which messages are held against each other.
SAMPLES = 16
# Of more messages in a step, single ones are not moved in time.
MOST_MOVED = 24
# Share of its time in which a message goes that is sped up.
SLOW = 0.4

Places = npt.NDArray[np.float64]


def spans(
    ways: Mapping[int, Sequence[Point]], *, token_w: float, token_h: float
) -> dict[int, Span]:
    """Return when messages go, so that as few as possible come to lie on each other.

    In all of the time; or all at one pace, so that what sets out apart stays apart, and what
    leaves one card follows one another: all setting out together, or all arriving together.
    Where some still meet, single ones go sooner or later.

    Args:
        ways: Corners of each message's way, by its number.
        token_w: Width of a message.
        token_h: Height of a message.

    Example:
        >>> way = [(0, 0), (0, 10), (300, 10), (300, 0)]
        >>> spans({4: way}, token_w=70, token_h=48)
        {4: (0.0, 1.0)}
    """
    numbers = list(ways)
    size = np.array([token_w + 6, token_h + 2])
    level = [abs(way[2][0] - way[1][0]) for way in ways.values()]
    shares = [length / (max(level) or 1.0) for length in level]
    choices: list[list[Span]] = [
        [(0.0, 1.0) for _ in shares],
        [(0.0, share) for share in shares],
        [(1.0 - share, 1.0) for share in shares],
    ]
    tried = [np.stack([_places(way, span) for way, span in zip(ways.values(), choice, strict=True)])
             for choice in choices]  # fmt: skip
    meet = [_meetings(places, size) for places in tried]
    k = meet.index(min(meet))
    best, places = choices[k], tried[k]
    for i, number in enumerate(numbers if min(meet) and len(numbers) <= MOST_MOVED else ()):
        slow, share = max(shares[i], SLOW), shares[i]
        own = [best[i], (0.0, 1.0), (0.0, slow), (1 - slow, 1.0), (0.0, share), (1 - share, 1.0)]
        others = np.delete(places, i, axis=0)
        paths = [_places(ways[number], span) for span in own]
        counts = [int(_near(path, others, size).sum()) for path in paths]
        k = counts.index(min(counts))
        best[i], places[i] = own[k], paths[k]
    return dict(zip(numbers, best, strict=True))


def _places(way: Sequence[Point], span: Span) -> Places:
    """Return where a message is at each moment of its step, (moments, 2); NaN while it is not."""
    moments = (np.arange(SAMPLES) + 0.5) / SAMPLES
    shares = (moments - span[0]) / (span[1] - span[0])
    far = np.concatenate([[0.0], np.cumsum(lengths(way))])
    x, y = (np.interp(shares * far[-1], far, axis, np.nan, np.nan) for axis in np.array(way).T)
    return np.stack([x, y], axis=1)


def _near(path: Places, others: Places, size: Places) -> npt.NDArray[np.bool_]:
    """Return where a path lies on others, (others, moments)."""
    return np.asarray((np.abs(others - path) < size).all(axis=2), np.bool_)


def _meetings(places: Places, size: Places) -> int:
    """Return how often two messages lie on each other."""
    return sum(int(_near(places[i], places[i + 1 :], size).sum()) for i in range(len(places) - 1))


def in_time(story: Story, pace: Pace, found: dict[int, Span]) -> tuple[Pace, dict[int, Span]]:
    """Return a pace in which cells change when messages go and come, and the spans left then.

    Where several messages come to one cell in one step, it changes once, when the step is over.
    """
    at = Counter((m.step, m.dst, piece.dst_slot) for m in story.messages for piece in m.pieces)
    flights, left = list(pace.flights), {}
    for number, span in found.items():
        message = story.messages[number]
        if message.t_end_ns is None:
            continue
        start, end = shared(flights[number], span)
        if any(at[message.step, message.dst, p.dst_slot] > 1 for p in message.pieces):
            over = flights[number][1]
            left[number] = (0.0, (end - start) / (over - start))
            end = over
        flights[number] = start, end
    return replace(pace, flights=tuple(flights)), left


def shared(flight: Span, shares: Span) -> Span:
    """Return the part of a time between two shares of it."""
    start, end = flight
    return start + shares[0] * (end - start), start + shares[1] * (end - start)
