"""The chart of a Comparison: time and bus bandwidth by size, and who is the fastest where.

    figure(compare("all_reduce", 64, "dgx-h100x8")).show()

The fastest algorithm of each size is in ink, whoever is the fastest somewhere in grey, all others
thin: their names come up under the pointer. Crossovers and names stand in a strip above.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor, log2, log10
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..sim.compare import Comparison
from ..sim.compare.comparison import Floats
from ..sim.compare.words import answer, basis, question, reigns
from ..units import format_Bps, format_bytes, format_ns
from .look import MONO, SANS
from .theme import PALETTES, Palette

# The narrowest that the chart is made for, in px, of which a panel is less than half. Labels that
# have room here have it everywhere.
NARROW = 820
_PANEL, _PANEL_HEIGHT = 350, 330
_LETTER = 7.0  # width of a letter of a label
# Slower than the fastest by more than this factor is above the picture.
_SLOWEST = 30.0
# The bound on bandwidth may lie so many times as high as the best algorithm; then it is cut off.
_HIGHEST = 2.2


def figure(found: Comparison, theme: str = "light") -> go.Figure:
    """Return the chart with its answer as title, and what it rests on at its foot.

    Args:
        found: What was compared. With one size it becomes a chart of bars.
        theme: light or dark.
    """
    palette = PALETTES[theme]
    drawn = chart(found, theme)
    drawn.update_layout(
        title={
            "text": answer(found),
            "subtitle": {"text": question(found), "font": {"color": palette["muted"]}},
            "font": {"size": 17, "color": palette["ink"]},
            "x": 0,
            "xref": "paper",
            "pad": {"b": 16},
            "yref": "container",
            "y": 0.97,
            "yanchor": "top",
        },
        margin={"t": 84, "b": 72},
        height=(drawn.layout.height or 480) + 110,
        paper_bgcolor=palette["panel"],
    )
    drawn.add_annotation(
        text=basis(found),
        xref="paper",
        x=0,
        yref="paper",
        y=0,
        yshift=-40,
        xanchor="left",
        yanchor="top",
        showarrow=False,
        font={"size": 11, "color": palette["muted"]},
    )
    return drawn


def chart(found: Comparison, theme: str = "light") -> go.Figure:
    """Return the chart alone."""
    drawn = _bars(found, PALETTES[theme]) if len(found.size_bytes) == 1 else _curves(found, theme)
    palette = PALETTES[theme]
    drawn.update_layout(
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": SANS, "size": 12, "color": palette["text"]},
        margin={"l": 64, "r": 12, "t": 4, "b": 40},
        hoverlabel={
            "font": {"family": MONO, "size": 12, "color": palette["inverse"]},
            "bgcolor": palette["ink"],
            "bordercolor": palette["ink"],
        },
        hovermode="closest",
        hoverdistance=30,
        showlegend=False,
    )
    return drawn


class _Curve(NamedTuple):
    """A quantity by size, as one of the two panels shows it."""

    values: Floats  # (algorithms, sizes)
    bound: Floats  # (sizes,)
    log: bool
    column: int

    def at(self, a: int, size: float, sizes: Floats) -> float:
        """Return an algorithm's value at a size, on the line as it is drawn."""
        y = np.log10(self.values[a]) if self.log else self.values[a]
        here = float(np.interp(log10(size), np.log10(sizes), y))
        return float(10**here) if self.log else here


def _curves(found: Comparison, theme: str) -> go.Figure:
    palette = PALETTES[theme]
    drawn = make_subplots(
        rows=2,
        cols=2,
        specs=[[{"colspan": 2}, None], [{}, {}]],
        row_heights=[0.13, 0.87],
        vertical_spacing=0.13,
        horizontal_spacing=0.085,
    )
    times = _Curve(np.maximum(found.time_ns, 1), np.maximum(found.bound_ns, 1), True, 1)
    busbw = _Curve(found.busbw_Bps, found.bound_busbw_Bps, False, 2)
    for curve in (times, busbw):
        _lines(drawn, found, curve, palette)
        _bound(drawn, found, curve, palette)
        _envelope(drawn, found, curve, palette)
    _axes(drawn, found, times, busbw, palette)
    _strip(drawn, found, palette)
    for curve in (times, busbw):
        _names(drawn, found, curve, palette)
        for cross in found.crossovers:
            style = {"color": palette["idle"], "width": 1, "dash": "dot"}
            drawn.add_vline(cross.size_bytes, line=style, layer="below", row=2, col=curve.column)
    drawn.update_layout(height=470)
    return drawn


def _lines(drawn: go.Figure, found: Comparison, curve: _Curve, palette: Palette) -> None:
    """Draw each algorithm's line, those last that win somewhere."""
    winners = {reign.algorithm for reign in reigns(found)}
    order = sorted(range(len(found.algorithms)), key=lambda a: found.algorithms[a] in winners)
    for a in order:
        name = found.algorithms[a]
        wins = name in winners
        drawn.add_scatter(
            x=found.size_bytes,
            y=curve.values[a],
            name=name,
            mode="lines",
            line={"color": palette["faint" if wins else "idle"], "width": 1.8 if wins else 1},
            text=_hover(found, a),
            hoverinfo="text",
            meta=name,
            row=2,
            col=curve.column,
        )


def _hover(found: Comparison, a: int) -> list[str]:
    """Return what the pointer says at each size of an algorithm."""
    best = np.nanmin(found.time_ns, axis=0)
    lines = []
    for k, size in enumerate(found.size_bytes.tolist()):
        time_ns, name = float(found.time_ns[a, k]), found.algorithms[a]
        if np.isnan(time_ns):
            lines.append("")
            continue
        slower = time_ns / best[k] if best[k] > 0 else 1.0
        rank = "the fastest" if slower < 1.0005 else f"{slower:.2f} × the fastest"
        busbw = format_Bps(float(found.busbw_Bps[a, k]))
        lines.append(f"<b>{name}</b>  {format_bytes(size)}<br>{format_ns(time_ns)}  {busbw}<br>{rank}")
    return lines


def _bound(drawn: go.Figure, found: Comparison, curve: _Curve, palette: Palette) -> None:
    word = format_ns if curve.log else format_Bps
    drawn.add_scatter(
        x=found.size_bytes,
        y=curve.bound,
        name="lower bound",
        mode="lines",
        line={"color": palette["soft"], "width": 1.4, "dash": "6px,4px"},
        text=[f"<b>no algorithm can beat</b><br>{word(float(v))}" for v in curve.bound],
        hoverinfo="text",
        row=2,
        col=curve.column,
    )


def _envelope(drawn: go.Figure, found: Comparison, curve: _Curve, palette: Palette) -> None:
    """Draw the fastest of all in ink, each from crossover to crossover."""
    sizes = found.size_bytes.astype(np.float64)
    xs: list[float | None] = []
    ys: list[float | None] = []
    for reign in reigns(found):
        a = found.algorithms.index(reign.algorithm)
        inner = sizes[(sizes > reign.first_bytes) & (sizes < reign.last_bytes)]
        points = [float(reign.first_bytes), *inner.tolist(), float(reign.last_bytes)]
        xs += [*points, None]
        ys += [*(curve.at(a, size, sizes) for size in points), None]
    drawn.add_scatter(
        x=xs,
        y=ys,
        name="fastest",
        mode="lines",
        line={"color": palette["ink"], "width": 3},
        hoverinfo="skip",
        row=2,
        col=curve.column,
    )


def _axes(
    drawn: go.Figure, found: Comparison, times: _Curve, busbw: _Curve, palette: Palette
) -> None:
    common = {
        "gridcolor": palette["line"],
        "zeroline": False,
        "linecolor": palette["line"],
        "tickfont": {"size": 11, "color": palette["muted"]},
        "title_font": {"size": 12, "color": palette["muted"]},
        "fixedrange": True,
    }
    low, high = (log10(float(found.size_bytes[end])) for end in (0, -1))
    ticks = _size_ticks(found)
    drawn.update_xaxes(
        type="log",
        range=[low - 0.02 * (high - low), high + 0.02 * (high - low)],
        tickvals=ticks,
        ticktext=[format_bytes(tick) for tick in ticks],
        showgrid=False,
        showline=True,
        **common,
        row=2,
    )
    low_ns, high_ns = _time_range(found)
    time_ticks = _decades(low_ns, high_ns)
    drawn.update_yaxes(
        type="log",
        range=[log10(low_ns), log10(high_ns)],
        tickvals=time_ticks,
        ticktext=[_short(format_ns(tick)) for tick in time_ticks],
        **common,
        row=2,
        col=1,
    )
    top = _top_Bps(found)
    rate_ticks = _round_ticks(top)
    drawn.update_yaxes(
        range=[0, top],
        tickvals=rate_ticks,
        ticktext=[format_Bps(tick) for tick in rate_ticks],
        rangemode="tozero",
        **common,
        row=2,
        col=2,
    )
    for axis, text in (("x2", "time"), ("x3", "bus bandwidth")):
        drawn.add_annotation(
            text=f"<b>{text}</b>",
            xref=f"{axis} domain",
            yref=f"y{axis[1:]} domain",
            x=0,
            y=1,
            xanchor="left",
            yanchor="bottom",
            yshift=6,
            showarrow=False,
            font={"size": 13, "color": palette["ink"]},
        )


def _time_range(found: Comparison) -> tuple[float, float]:
    best, slowest = np.nanmin(found.time_ns, axis=0), np.nanmax(found.time_ns)
    least = min(found.bound_ns[found.bound_ns > 0].min(initial=np.inf), best.min())
    return max(float(least), 1) / 1.8, max(min(float(slowest), float(best.max()) * _SLOWEST), 2) * 1.4


def _top_Bps(found: Comparison) -> float:
    best = float(np.nanmax(found.busbw_Bps)) or 1.0
    return 1.1 * max(best, min(float(found.bound_busbw_Bps.max()), _HIGHEST * best))


def _strip(drawn: go.Figure, found: Comparison, palette: Palette) -> None:
    """Draw who is the fastest from where to where, as a strip with the sizes under its borders."""
    spans = reigns(found)
    low, high = log2(spans[0].first_bytes), log2(spans[-1].last_bytes)
    drawn.update_xaxes(range=[low, high], visible=False, fixedrange=True, row=1, col=1)
    drawn.update_yaxes(range=[0, 1], visible=False, fixedrange=True, row=1, col=1)
    px = NARROW / (high - low)
    for k, span in enumerate(spans):
        x0, x1 = log2(span.first_bytes), log2(span.last_bytes)
        drawn.add_shape(
            type="rect",
            x0=x0,
            x1=x1,
            y0=0,
            y1=1,
            fillcolor=palette["track" if k % 2 else "cell"],
            line={"width": 2, "color": palette["panel"]},
            layer="below",
            row=1,
            col=1,
        )
        if len(span.algorithm) * _LETTER < (x1 - x0) * px - 8:
            _word(drawn, span.algorithm, (x0 + x1) / 2, 0.5, palette["ink"], size=13)
    words = [format_bytes(span.last_bytes) for span in spans[:-1]]
    places = [log2(span.last_bytes) for span in spans[:-1]]
    ends = [(format_bytes(spans[0].first_bytes), low), (format_bytes(spans[-1].last_bytes), high)]
    for text, x in ends:
        _word(drawn, text, x, 0, palette["muted"], shift=-12, anchor="left" if x == low else "right")
    taken = [(low, low + 70 / px), (high - 70 / px, high)]
    for text, x in zip(words, places):
        half = len(text) * _LETTER / 2 / px
        span_px = (x - half, x + half)
        if all(span_px[1] < a or span_px[0] > b for a, b in taken):
            taken.append(span_px)
            _word(drawn, text, x, 0, palette["ink"], shift=-12)


def _word(
    drawn: go.Figure,
    text: str,
    x: float,
    y: float,
    colour: str | None,
    *,
    size: int = 12,
    shift: int = 0,
    anchor: str = "center",
) -> None:
    drawn.add_annotation(
        text=text,
        x=x,
        y=y,
        xanchor=anchor,
        yanchor="middle",
        yshift=shift,
        showarrow=False,
        font={"size": size, "color": colour},
        row=1,
        col=1,
    )


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


def _names(drawn: go.Figure, found: Comparison, curve: _Curve, palette: Palette) -> None:
    """Write the names of the fastest beside their lines, on the side where no line is.

    Where two names would meet, the one that is the fastest for longer has its place; the strip has
    all of them.
    """
    sizes = found.size_bytes.astype(np.float64)
    low, high = log10(sizes[0]), log10(sizes[-1])
    bottom, top = map(log10, _time_range(found)) if curve.log else (0.0, _top_Bps(found))
    taken: list[_Box] = []
    named: set[str] = set()
    axes = f"{curve.column + 1}"
    spans = sorted(reigns(found), key=lambda span: -log2(span.last_bytes / span.first_bytes))
    for span in spans:
        if span.algorithm in named:
            continue
        middle = (span.first_bytes * span.last_bytes) ** 0.5
        value = curve.at(found.algorithms.index(span.algorithm), middle, sizes)
        y = log10(value) if curve.log else value
        px_x = (log10(middle) - low) / (high - low) * _PANEL
        px_y = (y - bottom) / (top - bottom) * _PANEL_HEIGHT
        width = len(span.algorithm) * _LETTER
        # Faster is lower right among times, and upper left among rates.
        box = _Box(px_x + 8, px_y - 22, width, 16) if curve.log else _Box(
            px_x - 8 - width, px_y + 6, width, 16)  # fmt: skip
        inside = 0 <= box.left and box.left + width <= _PANEL and box.bottom >= 0
        if not inside or any(box.meets(other) for other in taken):
            continue
        taken.append(box)
        named.add(span.algorithm)
        drawn.add_annotation(
            text=span.algorithm,
            xref=f"x{axes}",
            yref=f"y{axes}",
            x=log10(middle),
            y=y,
            xanchor="left" if curve.log else "right",
            yanchor="top" if curve.log else "bottom",
            xshift=6 if curve.log else -6,
            yshift=-4 if curve.log else 4,
            showarrow=False,
            font={"size": 12, "color": palette["ink"]},
        )


def _bars(found: Comparison, palette: Palette) -> go.Figure:
    """Return a bar an algorithm, the fastest at the top."""
    groups = found.ranking(0)
    names = [name for group in groups for name in group][::-1]
    times = [float(found.time_ns[found.algorithms.index(name), 0]) for name in names]
    bound_ns = float(found.bound_ns[0])
    drawn = go.Figure(
        go.Bar(
            x=times,
            y=names,
            orientation="h",
            marker={"color": [palette["ink" if n in groups[0] else "idle"] for n in names]},
            text=[format_ns(time) for time in times],
            textposition="outside",
            cliponaxis=False,
            hoverinfo="skip",
        )
    )
    drawn.add_vline(bound_ns, line={"color": palette["soft"], "width": 1.4, "dash": "6px,4px"})
    drawn.add_annotation(
        text=f"lower bound {format_ns(bound_ns)}",
        x=bound_ns,
        yref="y domain",
        y=1,
        xanchor="left",
        yanchor="bottom",
        showarrow=False,
        font={"color": palette["muted"]},
    )
    drawn.update_xaxes(visible=False, range=[0, max(times) * 1.15 or 1], fixedrange=True)
    drawn.update_yaxes(fixedrange=True, ticksuffix="  ")
    drawn.update_layout(height=90 + 26 * len(names), bargap=0.45)
    return drawn


def _size_ticks(found: Comparison) -> list[int]:
    """Return powers of two between the smallest and largest size, at most seven."""
    low, high = (log2(float(found.size_bytes[end])) for end in (0, -1))
    for step in (1, 2, 3, 5, 10, 20):
        ticks = [1 << power for power in range(ceil(low), floor(high) + 1, step)]
        if len(ticks) <= 7:
            break
    return ticks


def _decades(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(ceil(log10(low)), floor(log10(high)) + 1)]


def _round_ticks(top: float) -> list[float]:
    """Return round rates from 0 to a rate, about five."""
    step = 10.0 ** floor(log10(top / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if top / (step * factor) <= 6)
    return [step * k for k in range(int(top / step) + 1)]


def _short(text: str) -> str:
    """Return a round number without digits after the point: ``1 µs`` for ``1.00 µs``."""
    number, unit = text.split(" ")
    return f"{float(number):g} {unit}"
