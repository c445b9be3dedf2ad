"""The chart of a Comparison: time and bus bandwidth by size, and who is the fastest where.

    figure(compare("all_reduce", 64, "dgx-h100x8")).show()

The fastest algorithm of each size is in ink, whoever is the fastest somewhere in grey, all others
thin: their names come up under the pointer. Crossovers and names stand in a strip above.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, floor, log2, log10
from typing import NamedTuple

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
    palette = PALETTES[theme]
    one_size = len(found.size_bytes) == 1
    drawn = _bars(found, palette) if one_size else _curves(found, palette)
    drawn.update_layout(
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": SANS, "size": 12, "color": palette["text"]},
        margin={"l": 64, "r": 12, "t": 28 if one_size else 4, "b": 28},
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
    limits: tuple[float, float]
    log: bool
    column: int

    def scale(self, value: float) -> float:
        """Return a value in the units of the axis."""
        return log10(value) if self.log else value

    def height(self, values: Floats, x: float, sizes: Floats) -> float:
        """Return how high a line is at the logarithm of a size, in the units of the axis."""
        y = np.log10(values) if self.log else values
        return float(np.interp(x, np.log10(sizes), y))

    def at(self, a: int, size: float, sizes: Floats) -> float:
        """Return an algorithm's value at a size, on its line as it is drawn."""
        y = self.height(self.values[a], log10(size), sizes)
        return float(10**y) if self.log else y


def _curves(found: Comparison, palette: Palette) -> go.Figure:
    drawn = make_subplots(
        rows=2,
        cols=2,
        specs=[[{"colspan": 2}, None], [{}, {}]],
        row_heights=[0.13, 0.87],
        vertical_spacing=0.13,
        horizontal_spacing=0.085,
    )
    time_ns, bound_ns = np.maximum(found.time_ns, 1), np.maximum(found.bound_ns, 1)
    times = _Curve(time_ns, bound_ns, _time_range(time_ns, bound_ns), True, 1)
    limits_Bps = 0.0, _top_Bps(found)
    busbw = _Curve(found.busbw_Bps, found.bound_busbw_Bps, limits_Bps, False, 2)
    for curve in (times, busbw):
        _lines(drawn, found, curve, palette)
        _bound(drawn, found, curve, palette)
        _envelope(drawn, found, curve, palette)
    _axes(drawn, found, times, busbw, palette)
    _strip(drawn, found, palette)
    for curve in (times, busbw):
        _names(drawn, found, curve, palette)
        _dots(drawn, found, curve, palette)
        for cross in found.crossovers:
            style = {"color": palette["idle"], "width": 1, "dash": "dot"}
            drawn.add_vline(cross.size_bytes, line=style, layer="below", row=2, col=curve.column)
    drawn.update_layout(height=456)
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
        lines.append(
            f"<b>{name}</b>  {format_bytes(size)}<br>{format_ns(time_ns)}  {busbw}<br>{rank}"
        )
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


def _dots(drawn: go.Figure, found: Comparison, curve: _Curve, palette: Palette) -> None:
    """Mark the crossovers."""
    sizes = found.size_bytes.astype(np.float64)
    crosses = found.crossovers
    drawn.add_scatter(
        x=[cross.size_bytes for cross in crosses],
        y=[
            curve.at(found.algorithms.index(cross.after), cross.size_bytes, sizes)
            for cross in crosses
        ],
        name="crossovers",
        mode="markers",
        marker={
            "size": 8,
            "color": palette["panel"],
            "line": {"width": 2, "color": palette["ink"]},
        },
        text=[
            f"from {format_bytes(cross.size_bytes)} on<br><b>{cross.after}</b>, not {cross.before}"
            for cross in crosses
        ],
        hoverinfo="text",
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
    low_ns, high_ns = times.limits
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
    top = busbw.limits[1]
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


def _time_range(time_ns: Floats, bound_ns: Floats) -> tuple[float, float]:
    best, slowest = np.nanmin(time_ns, axis=0), float(np.nanmax(time_ns))
    low = min(float(bound_ns.min()), float(best.min()))
    return low / 1.8, min(slowest, float(best.max()) * _SLOWEST) * 1.4


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
        _word(
            drawn, text, x, 0, palette["muted"], shift=-12, anchor="left" if x == low else "right"
        )
    room = [len(text) * _LETTER / px for text, _ in ends]
    taken = [(low, low + room[0]), (high - room[1], high)]
    for text, x in zip(words, places):
        half = (len(text) * _LETTER / 2 + 4) / px
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


# Where along its reign an algorithm's name may stand, best first.
_ALONG = (0.5, 0.35, 0.65, 0.2, 0.8, 0.05, 0.95)


def _names(drawn: go.Figure, found: Comparison, curve: _Curve, palette: Palette) -> None:
    """Write names beside the lines of the fastest and of the bound, where no such line is.

    Names that meet others are left out, of those that are the fastest for a short while first: the
    strip has all of them.
    """
    sizes = found.size_bytes.astype(np.float64)
    low, high = log10(sizes[0]), log10(sizes[-1])
    spans = sorted(reigns(found), key=lambda span: -log2(span.last_bytes / span.first_bytes))
    wanted = [
        (span.algorithm, curve.values[found.algorithms.index(span.algorithm)], "ink",
         log10(span.first_bytes), log10(span.last_bytes))
        for span in spans
    ]  # fmt: skip
    wanted.append(("lower bound", curve.bound, "muted", low + 0.5 * (high - low), high))
    frame = _Frame(low, high, *map(curve.scale, curve.limits))
    best = (np.nanmin if curve.log else np.nanmax)(curve.values, axis=0)
    bound, fastest = (
        [_Box(*frame.px(x, curve.height(values, x, sizes)), 1, 1) for x in _grid(low, high)]
        for values in (curve.bound, best)
    )
    taken: dict[str, _Box] = {}
    for text, values, colour, first, last in wanted:
        spots = []
        for share in _ALONG:
            x = first + share * (last - first)
            y = curve.height(values, x, sizes)
            box = frame.beside(x, y, len(text) * _LETTER, lower_right=curve.log)
            if box is None or any(box.meets(other) for other in taken.values()):
                continue
            crossed = [fastest] if values is curve.bound else [fastest, bound]
            count = sum(box.meets(line) for lines in crossed for line in lines)
            if curve.log or not count:  # a name beyond the bound would look like the bound's
                spots.append((count, len(spots), x, y, box))
        if not spots or text in taken:
            continue
        _, _, x, y, taken[text] = min(spots)
        drawn.add_annotation(
            text=text,
            xref=f"x{curve.column + 1}",
            yref=f"y{curve.column + 1}",
            x=x,
            y=y,
            xanchor="left" if curve.log else "right",
            yanchor="top" if curve.log else "bottom",
            xshift=_BESIDE if curve.log else -_BESIDE,
            yshift=-4 if curve.log else 4,
            showarrow=False,
            bgcolor=palette["panel"],
            borderpad=0,
            font={"size": 12, "color": palette[colour]},
        )


def _grid(low: float, high: float) -> Iterable[float]:
    return np.linspace(low, high, 80).tolist()


# Between a point and the name beside it, in px.
_BESIDE = 7


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
            marker={
                "line": {"width": 0},
                "color": [palette["ink" if n in groups[0] else "idle"] for n in names],
            },
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
        yref="paper",
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


def _short(text: str) -> str:
    """Return a round number without digits after the point: ``1 µs`` for ``1.00 µs``."""
    number, unit = text.split(" ")
    return f"{float(number):g} {unit}"
