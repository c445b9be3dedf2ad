"""Words on the chart of a Comparison: the strip of who is the fastest, and names beside lines."""

from __future__ import annotations

from math import log2, log10
from typing import Any, NamedTuple

import numpy as np

from ..sim.compare import Comparison
from ..sim.compare.comparison import Floats
from ..sim.compare.words import reigns
from ..units import format_bytes
from .comparison_panels import Panel, Sketch
from .theme import Palette

# The narrowest that the chart is made for, in px, of which a panel is less than half. Labels that
# have room here have it everywhere.
NARROW = 820
_PANEL, _PANEL_HEIGHT = 350, 330
_LETTER = 7.0  # width of a letter of a label
# Where along its reign an algorithm's name may stand, best first.
_ALONG = (0.5, 0.35, 0.65, 0.2, 0.8, 0.05, 0.95)
# Between a point and the name beside it, in px.
_BESIDE = 7
# Where the strip begins, as a share of the chart, and where the sizes stand below it.
_BOTTOM = 0.887
_STRIP: dict[str, Any] = {"xref": "x", "yref": "y"}
_UNDER: dict[str, Any] = {**_STRIP, "y": 0, "yshift": -12, "yanchor": "middle"}


def draw_strip(sketch: Sketch, found: Comparison, palette: Palette) -> None:
    """Draw who is the fastest from where to where, as a strip with the sizes under its borders."""
    spans = reigns(found)
    low, high = log2(spans[0].first_bytes), log2(spans[-1].last_bytes)
    hidden = {"visible": False, "fixedrange": True}
    sketch.layout["xaxis"] = hidden | {"range": [low, high], "domain": [0, 1], "anchor": "y"}
    sketch.layout["yaxis"] = hidden | {"range": [0, 1], "domain": [_BOTTOM, 1], "anchor": "x"}
    px = NARROW / (high - low)
    for k, span in enumerate(spans):
        x0, x1 = log2(span.first_bytes), log2(span.last_bytes)
        sketch.shapes.append(
            {
                "type": "rect",
                **_STRIP,
                "x0": x0,
                "x1": x1,
                "y0": 0,
                "y1": 1,
                "fillcolor": palette["track" if k % 2 else "cell"],
                "line": {"width": 2, "color": palette["panel"]},
                "layer": "below",
            }
        )
        if len(span.algorithm) * _LETTER < (x1 - x0) * px - 8:
            sketch.note(span.algorithm, palette["ink"], size=13, x=(x0 + x1) / 2, y=0.5, **_STRIP)
    ends = (format_bytes(spans[0].first_bytes), low), (format_bytes(spans[-1].last_bytes), high)
    for (text, x), anchor in zip(ends, ("left", "right")):
        sketch.note(text, palette["muted"], x=x, xanchor=anchor, **_UNDER)
    room = [len(text) * _LETTER / px for text, _ in ends]
    taken = [(low, low + room[0]), (high - room[1], high)]
    for span in spans[:-1]:
        text, x = format_bytes(span.last_bytes), log2(span.last_bytes)
        half = (len(text) * _LETTER / 2 + 4) / px
        if all(x + half < left or x - half > right for left, right in taken):
            taken.append((x - half, x + half))
            sketch.note(text, palette["ink"], x=x, **_UNDER)


class _Box(NamedTuple):
    """A rectangle in px, from the panel's lower left corner."""

    left: float
    bottom: float
    width: float
    height: float

    def meets(self, other: _Box) -> bool:
        """Return whether two rectangles overlap."""
        return (
            self.left < other.left + other.width
            and other.left < self.left + self.width
            and self.bottom < other.bottom + other.height
            and other.bottom < self.bottom + self.height
        )


class _Label(NamedTuple):
    """A name to write beside a line, somewhere between two logarithms of sizes."""

    text: str
    values: Floats
    first: float
    last: float
    colour: str


def draw_names(sketch: Sketch, found: Comparison, panel: Panel, palette: Palette) -> None:
    """Write names beside the lines of the fastest and of the bound, where no such line is.

    Names that meet others are left out, of those that are the fastest for a short while first: the
    strip has all of them.
    """
    low, high = log10(panel.sizes[0]), log10(panel.sizes[-1])
    frame = _Frame(low, high, *map(panel.scale, panel.limits))
    fastest, bound = (frame.boxes(panel, values) for values in (panel.best, panel.bound))
    taken: dict[str, _Box] = {}
    for label in _labels(found, panel):
        spots: list[tuple[int, int, float, float, _Box]] = []
        for share in _ALONG:
            x = label.first + share * (label.last - label.first)
            y = panel.height(label.values, x)
            box = frame.beside(x, y, len(label.text) * _LETTER, lower_right=panel.log)
            if box is None or any(box.meets(other) for other in taken.values()):
                continue
            crossed = sum(box.meets(line) for line in fastest)
            if label.values is not panel.bound:  # nor may the bound be between name and line
                reach = box._replace(width=box.width + (0 if panel.log else _BESIDE))
                crossed += sum(reach.meets(line) for line in bound)
            if panel.log or not crossed:  # a name beyond the bound would look like the bound's
                spots.append((crossed, len(spots), x, y, box))
        if not spots or label.text in taken:
            continue
        _, _, x, y, taken[label.text] = min(spots)
        sketch.note(
            label.text,
            palette[label.colour],
            **panel.refs,
            x=x,
            y=y,
            xanchor="left" if panel.log else "right",
            yanchor="top" if panel.log else "bottom",
            xshift=_BESIDE if panel.log else -_BESIDE,
            yshift=-4 if panel.log else 4,
            bgcolor=palette["panel"],
            borderpad=0,
        )


def _labels(found: Comparison, panel: Panel) -> list[_Label]:
    """Return what to write, the most important first: what the dashes are, then long reigns."""
    low, high = log10(panel.sizes[0]), log10(panel.sizes[-1])
    labels = [_Label("lower bound", panel.bound, (low + high) / 2, high, "muted")]
    for span in sorted(reigns(found), key=lambda span: span.first_bytes / span.last_bytes):
        values = panel.values[found.algorithms.index(span.algorithm)]
        ends = log10(span.first_bytes), log10(span.last_bytes)
        labels.append(_Label(span.algorithm, values, *ends, "ink"))
    return labels


class _Frame(NamedTuple):
    """What a narrow panel shows, in the units of its axes: logarithms where they have those."""

    left: float
    right: float
    bottom: float
    top: float

    def px(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point is, in px from the lower left corner."""
        across = (x - self.left) / (self.right - self.left) * _PANEL
        return across, (y - self.bottom) / (self.top - self.bottom) * _PANEL_HEIGHT

    def boxes(self, panel: Panel, values: Floats) -> list[_Box]:
        """Return the small boxes that a line goes through."""
        across = np.linspace(self.left, self.right, 80).tolist()
        return [_Box(*self.px(x, panel.height(values, x)), 1, 1) for x in across]

    def beside(self, x: float, y: float, width: float, *, lower_right: bool) -> _Box | None:
        """Return the box of a text beside a point, or None where it has no room.

        Args:
            x, y: The point.
            width: The text's, in px.
            lower_right: On which side: there, or at the upper left.
        """
        across, up = self.px(x, y)
        left, bottom = (
            (across + _BESIDE, up - 20) if lower_right else (across - _BESIDE - width, up + 4)
        )
        inside = left >= 0 and left + width <= _PANEL and 0 <= bottom <= _PANEL_HEIGHT - 16
        return _Box(left, bottom, width, 16) if inside else None
