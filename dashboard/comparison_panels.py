"""The two panels of a Comparison's chart: time and bus bandwidth by size, lines and axes."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from math import ceil, floor, log2, log10
from typing import Any, NamedTuple

import numpy as np

from ..sim.compare import Comparison
from ..sim.compare.comparison import Floats
from ..sim.compare.words import reigns
from ..units import format_Bps, format_bytes, format_ns
from .theme import Palette

# Slower than the fastest by more than this factor is above the picture.
_SLOWEST = 30.0
# The bound on bandwidth may lie so many times as high as the best algorithm; then it is cut off.
_HIGHEST = 2.2
# Where the two panels lie, as shares of the chart; the strip is above.
_DOMAINS = ([0.0, 0.4575], [0.5425, 1.0])
_TOP = 0.757


@dataclass(slots=True)
class Sketch:
    """What a figure will hold, as plain data: plotly checks it once, when all of it is there."""

    traces: list[dict[str, Any]] = field(default_factory=list)
    shapes: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=dict)

    def note(
        self, text: str, colour: str | None, *, size: int = 12, weight: int = 400, **where: Any
    ) -> None:
        """Write some words, at a place in plotly's terms."""
        font = {"size": size, "weight": weight, "color": colour}
        self.notes.append({"text": escape(text), "font": font, "showarrow": False, **where})


class Panel(NamedTuple):
    """A quantity by size.

    Attributes:
        sizes: The sizes, (sizes,).
        values: Of each algorithm, (algorithms, sizes).
        bound: What no algorithm can beat, (sizes,).
        limits: The least and the most that is shown.
        log: Whether its axis is logarithmic: times are, and less is better there.
        column: Which panel it is, from 1.
    """

    sizes: Floats
    values: Floats
    bound: Floats
    limits: tuple[float, float]
    log: bool
    column: int

    @staticmethod
    def of_times(found: Comparison) -> Panel:
        """Return the panel of times."""
        time_ns, bound_ns = np.maximum(found.time_ns, 1), np.maximum(found.bound_ns, 1)
        best, slowest = np.nanmin(time_ns, axis=0), float(np.nanmax(time_ns))
        low = min(float(bound_ns.min()), float(best.min())) / 1.8
        high = min(slowest, float(best.max()) * _SLOWEST) * 1.4
        sizes = found.size_bytes.astype(np.float64)
        return Panel(sizes, time_ns, bound_ns, (low, high), True, 1)

    @staticmethod
    def of_rates(found: Comparison) -> Panel:
        """Return the panel of bus bandwidths."""
        best = float(np.nanmax(found.busbw_Bps)) or 1.0
        most = max(best, min(float(found.bound_busbw_Bps.max()), _HIGHEST * best))
        sizes, rates = found.size_bytes.astype(np.float64), found.busbw_Bps
        return Panel(sizes, rates, found.bound_busbw_Bps, (0.0, 1.1 * most), False, 2)

    @property
    def axes(self) -> dict[str, str]:
        """The axes of its lines."""
        return {"xaxis": f"x{self.column + 1}", "yaxis": f"y{self.column + 1}"}

    @property
    def refs(self) -> dict[str, Any]:
        """The same for its words."""
        return {"xref": f"x{self.column + 1}", "yref": f"y{self.column + 1}"}

    @property
    def best(self) -> Floats:
        """The best algorithm's value at each size, (sizes,)."""
        best: Floats = (np.nanmin if self.log else np.nanmax)(self.values, axis=0)
        return best

    def scale(self, value: float) -> float:
        """Return a value in the units of the axis."""
        return log10(value) if self.log else value

    def height(self, values: Floats, x: float) -> float:
        """Return how high a line is at the logarithm of a size, in the units of the axis."""
        y = np.log10(values) if self.log else values
        return float(np.interp(x, np.log10(self.sizes), y))

    def at(self, a: int, size: float) -> float:
        """Return an algorithm's value at a size, on its line as it is drawn."""
        y = self.height(self.values[a], log10(size))
        return float(10**y) if self.log else y


def draw_lines(sketch: Sketch, found: Comparison, panel: Panel, palette: Palette) -> None:
    """Draw all that is in a panel: algorithms, the bound, the fastest, crossovers."""
    _algorithms(sketch, found, panel, palette)
    _bound(sketch, panel, palette)
    _fastest(sketch, found, panel, palette)
    _crossovers(sketch, found, panel, palette)


def _algorithms(sketch: Sketch, found: Comparison, panel: Panel, palette: Palette) -> None:
    """Draw each algorithm's line, those last that win somewhere."""
    winners = {reign.algorithm for reign in reigns(found)}
    order = sorted(range(len(found.algorithms)), key=lambda a: found.algorithms[a] in winners)
    for a in order:
        name = found.algorithms[a]
        wins = name in winners
        sketch.traces.append(
            {
                "x": panel.sizes,
                "y": panel.values[a],
                "name": escape(name),
                "mode": "lines",
                "line": {
                    "color": palette["faint" if wins else "idle"],
                    "width": 1.8 if wins else 1,
                },
                "text": _hover(found, a),
                "hoverinfo": "text",
                "meta": name,
                **panel.axes,
            }
        )


def _hover(found: Comparison, a: int) -> list[str]:
    """Return what the pointer says at each size of an algorithm."""
    best = np.nanmin(found.time_ns, axis=0)
    lines = []
    for k, size in enumerate(found.size_bytes.tolist()):
        time_ns, name = float(found.time_ns[a, k]), escape(found.algorithms[a])
        if np.isnan(time_ns):
            lines.append("")
            continue
        slower = time_ns / best[k] if best[k] > 0 else 1.0
        rank = "the fastest" if slower < 1.0005 else f"{slower:.2f} × the fastest"
        busbw = format_Bps(float(found.busbw_Bps[a, k]))
        lines.append(
            f"<b>{name}</b>  {format_bytes(size)}<br>{format_ns(time_ns)}  {busbw}<br>{rank}"
        )
    return lines


def _bound(sketch: Sketch, panel: Panel, palette: Palette) -> None:
    word = format_ns if panel.log else format_Bps
    sketch.traces.append(
        {
            "x": panel.sizes,
            "y": panel.bound,
            "name": "lower bound",
            "mode": "lines",
            "line": {"color": palette["soft"], "width": 1.4, "dash": "6px,4px"},
            "text": [f"<b>no algorithm can beat</b><br>{word(float(v))}" for v in panel.bound],
            "hoverinfo": "text",
            **panel.axes,
        }
    )


def _fastest(sketch: Sketch, found: Comparison, panel: Panel, palette: Palette) -> None:
    """Draw the fastest of all in ink, each from crossover to crossover."""
    sizes = panel.sizes
    xs: list[float | None] = []
    ys: list[float | None] = []
    for reign in reigns(found):
        a = found.algorithms.index(reign.algorithm)
        inner = sizes[(sizes > reign.first_bytes) & (sizes < reign.last_bytes)]
        points = [float(reign.first_bytes), *inner.tolist(), float(reign.last_bytes)]
        xs += [*points, None]
        ys += [*(panel.at(a, size) for size in points), None]
    sketch.traces.append(
        {
            "x": xs,
            "y": ys,
            "name": "fastest",
            "mode": "lines",
            "line": {"color": palette["ink"], "width": 3},
            "hoverinfo": "skip",
            **panel.axes,
        }
    )


def _crossovers(sketch: Sketch, found: Comparison, panel: Panel, palette: Palette) -> None:
    """Mark the crossovers."""
    crosses = found.crossovers
    sketch.traces.append(
        {
            "x": [cross.size_bytes for cross in crosses],
            "y": [
                panel.at(found.algorithms.index(cross.after), cross.size_bytes) for cross in crosses
            ],
            "name": "crossovers",
            "mode": "markers",
            "marker": {
                "size": 8,
                "color": palette["panel"],
                "line": {"width": 2, "color": palette["ink"]},
            },
            "text": [
                f"from {format_bytes(cross.size_bytes)} on<br>"
                f"<b>{escape(cross.after)}</b>, not {escape(cross.before)}"
                for cross in crosses
            ],
            "hoverinfo": "text",
            **panel.axes,
        }
    )
    for cross in crosses:
        sketch.shapes.append(
            {
                "type": "line",
                "x0": cross.size_bytes,
                "x1": cross.size_bytes,
                "y0": 0,
                "y1": 1,
                "xref": panel.refs["xref"],
                "yref": f"{panel.refs['yref']} domain",
                "line": {"color": palette["idle"], "width": 1, "dash": "dot"},
                "layer": "below",
            }
        )


def draw_axes(sketch: Sketch, panel: Panel, palette: Palette) -> None:
    """Draw a panel's axes and its heading."""
    low, high = (log10(float(panel.sizes[end])) for end in (0, -1))
    least, most = panel.limits
    margin = 0.02 * (high - low)
    sizes = _size_ticks(panel)
    values = _decades(least, most) if panel.log else _round_ticks(most)
    word = _short_ns if panel.log else format_Bps
    common = {
        "gridcolor": palette["line"],
        "zeroline": False,
        "linecolor": palette["line"],
        "tickfont": {"size": 11, "color": palette["muted"]},
        "fixedrange": True,
    }
    number = panel.column + 1
    sketch.layout[f"xaxis{number}"] = common | {
        "type": "log",
        "range": [low - margin, high + margin],
        "domain": _DOMAINS[panel.column - 1],
        "anchor": f"y{number}",
        "tickvals": sizes,
        "ticktext": [format_bytes(size) for size in sizes],
        "showgrid": False,
        "showline": True,
    }
    sketch.layout[f"yaxis{number}"] = common | {
        "type": "log" if panel.log else "linear",
        "range": [panel.scale(least), panel.scale(most)],
        "domain": [0, _TOP],
        "anchor": f"x{number}",
        "tickvals": values,
        "ticktext": [word(value) for value in values],
    }
    sketch.note(
        "time" if panel.log else "bus bandwidth",
        palette["ink"],
        size=13,
        weight=600,
        **{name: f"{axis} domain" for name, axis in panel.refs.items()},
        x=0,
        y=1,
        xanchor="left",
        yanchor="bottom",
        yshift=6,
    )


def _size_ticks(panel: Panel) -> list[int]:
    """Return powers of two between the smallest and largest size, at most seven."""
    low, high = (log2(float(panel.sizes[end])) for end in (0, -1))
    first, doublings = ceil(low), floor(high) - ceil(low)
    few = [step for step in range(1, doublings + 2) if doublings // step < 7]
    # Preferably one that comes to both ends.
    step = next((step for step in few[:4] if doublings % step == 0), few[0])
    return [1 << power for power in range(first, first + doublings + 1, step)]


def _decades(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(ceil(log10(low)), floor(log10(high)) + 1)]


def _round_ticks(top: float) -> list[float]:
    """Return round rates from 0 to a rate, about five."""
    step = 10.0 ** floor(log10(top / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if top / (step * factor) <= 6)
    return [step * k for k in range(int(top / step) + 1)]


def _short_ns(time_ns: float) -> str:
    """Return a round time without digits after the point: ``1 µs`` for ``1.00 µs``."""
    number, unit = format_ns(time_ns).split(" ")
    return f"{float(number):g} {unit}"
