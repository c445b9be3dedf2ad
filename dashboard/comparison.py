"""The chart of a Comparison: time and bus bandwidth by size, and who is the fastest where.

    figure(compare("all_reduce", 64, "dgx-h100x8")).show()

The fastest algorithm of each size is in ink, whoever is the fastest somewhere in grey, all others
thin: their names come up under the pointer. Crossovers and names stand in a strip above.
"""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..sim.compare import Comparison
from ..sim.compare.words import answer, basis, question
from ..units import format_ns
from .comparison_labels import draw_names, draw_strip
from .comparison_panels import Panel, draw_axes, draw_lines
from .look import MONO, SANS
from .theme import PALETTES, Palette


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


def _curves(found: Comparison, palette: Palette) -> go.Figure:
    drawn = make_subplots(
        rows=2,
        cols=2,
        specs=[[{"colspan": 2}, None], [{}, {}]],
        row_heights=[0.13, 0.87],
        vertical_spacing=0.13,
        horizontal_spacing=0.085,
    )
    panels = Panel.of_times(found), Panel.of_rates(found)
    draw_strip(drawn, found, palette)
    for panel in panels:
        draw_lines(drawn, found, panel, palette)
        draw_axes(drawn, panel, palette)
        draw_names(drawn, found, panel, palette)
    drawn.update_layout(height=456)
    return drawn


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
