"""The chart of a Comparison: time and bus bandwidth by size, and who is the fastest where.

    figure(compare("all_reduce", 64, "dgx-h100x8")).show()

The fastest algorithm of each size is in ink, whoever is the fastest somewhere in grey, all others
thin: their names come up under the pointer. Crossovers and names stand in a strip above.
"""

from __future__ import annotations

from html import escape
from typing import Any

import plotly.graph_objects as go

from ..sim.compare import Comparison
from ..sim.compare.words import answer, basis, question
from ..units import format_ns
from .comparison_labels import draw_names, draw_strip
from .comparison_panels import Panel, Sketch, draw_axes, draw_lines
from .look import MONO, SANS
from .theme import PALETTES, Palette


def figure(found: Comparison, theme: str = "light") -> go.Figure:
    """Return the chart with its answer as title, and what it rests on at its foot.

    Args:
        found: What was compared. With one size it becomes a chart of bars.
        theme: light or dark.

    Example:
        >>> from ..sim.compare import compare
        >>> chosen = ["ring", "recursive_doubling"]
        >>> found = compare("all_reduce", 4, "fully:1GB/s,1us", chosen)
        >>> figure(found).layout.title.text
        'Use recursive_doubling below 7.83 KiB and ring above.'
    """
    palette = PALETTES[theme]
    sketch = _sketch(found, palette)
    sketch.layout["title"] = {
        "text": escape(answer(found)),
        "subtitle": {"text": escape(question(found)), "font": {"color": palette["muted"]}},
        "font": {"size": 17, "color": palette["ink"]},
        "x": 0,
        "xref": "paper",
        "y": 0.97,
        "yref": "container",
        "yanchor": "top",
    }
    foot: dict[str, Any] = {"x": 0, "xanchor": "left", "y": 0, "yanchor": "top", "yshift": -40}
    sketch.note(basis(found), palette["muted"], size=11, xref="paper", yref="paper", **foot)
    sketch.layout["margin"] |= {"t": 84, "b": 72}
    sketch.layout["height"] += 110
    sketch.layout["paper_bgcolor"] = palette["panel"]
    return _figure(sketch)


def chart(found: Comparison, theme: str = "light") -> go.Figure:
    """Return the chart alone, on whatever is behind it."""
    return _figure(_sketch(found, PALETTES[theme]))


def _figure(sketch: Sketch) -> go.Figure:
    layout = sketch.layout | {"shapes": sketch.shapes, "annotations": sketch.notes}
    return go.Figure({"data": sketch.traces, "layout": layout})


def _sketch(found: Comparison, palette: Palette) -> Sketch:
    one_size = len(found.size_bytes) == 1
    sketch = Sketch()
    sketch.layout = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": SANS, "size": 12, "color": palette["text"]},
        "margin": {"l": 64, "r": 12, "t": 28 if one_size else 4, "b": 28},
        "hoverlabel": {
            "font": {"family": MONO, "size": 12, "color": palette["inverse"]},
            "bgcolor": palette["ink"],
            "bordercolor": palette["ink"],
        },
        "hovermode": "closest",
        "hoverdistance": 30,
        "showlegend": False,
    }
    draw = _bars if one_size else _curves
    draw(sketch, found, palette)
    return sketch


def _curves(sketch: Sketch, found: Comparison, palette: Palette) -> None:
    draw_strip(sketch, found, palette)
    for panel in (Panel.of_times(found), Panel.of_rates(found)):
        draw_lines(sketch, found, panel, palette)
        draw_axes(sketch, panel, palette)
        draw_names(sketch, found, panel, palette)
    sketch.layout["height"] = 456


def _bars(sketch: Sketch, found: Comparison, palette: Palette) -> None:
    """Draw a bar an algorithm, the fastest at the top."""
    groups = found.ranking(0)
    names = [name for group in groups for name in group][::-1]
    times = [float(found.time_ns[found.algorithms.index(name), 0]) for name in names]
    bound_ns = float(found.bound_ns[0])
    colours = [palette["ink" if name in groups[0] else "idle"] for name in names]
    sketch.traces.append(
        {
            "type": "bar",
            "x": times,
            "y": [escape(name) for name in names],
            "orientation": "h",
            "marker": {"line": {"width": 0}, "color": colours},
            "text": [format_ns(time) for time in times],
            "textposition": "outside",
            "cliponaxis": False,
            "hoverinfo": "skip",
        }
    )
    style = {"color": palette["soft"], "width": 1.4, "dash": "6px,4px"}
    ends = {"x0": bound_ns, "x1": bound_ns, "y0": 0, "y1": 1, "yref": "y domain"}
    sketch.shapes.append({"type": "line", "line": style, **ends})
    text = f"lower bound {format_ns(bound_ns)}"
    above: dict[str, Any] = {"y": 1, "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
    sketch.note(text, palette["muted"], x=bound_ns, **above)
    sketch.layout |= {
        "xaxis": {"visible": False, "range": [0, max(times) * 1.15 or 1], "fixedrange": True},
        "yaxis": {"fixedrange": True, "ticksuffix": "  "},
        "height": 90 + 26 * len(names),
        "bargap": 0.45,
    }
