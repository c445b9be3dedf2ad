"""Plotly charts: neutral lines on a transparent ground, one template a theme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import plotly.graph_objects as go

from ..errors import ScheduleError, TopologyError
from ..sim.algorithms.registry import Algorithm
from ..sim.collectives import collective
from ..sim.library import algorithms
from ..sim.spec import Spec
from ..traces.schema import DTYPES
from ..units import format_bytes, format_ns
from .look import MONO, SANS
from .theme import PALETTES

# From 1 KiB to 1 GiB, each four times the one before.
SIZES = tuple(1 << power for power in range(10, 31, 2))
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


# What people compare first; a chart of all algorithms would be a tangle.
_FAMILIAR = (
    "ring", "tree", "double_tree", "recursive_doubling", "halving_doubling", "bruck", "direct",
    "pairwise", "recursive_halving", "scatter_all_gather", "chain", "binomial", "flat",
    "dissemination", "gloo",
)  # fmt: skip
MOST_CURVES = 6


def familiar(collective_name: str, chosen: str | None) -> list[Algorithm]:
    """Return the algorithms to compare, in the library's order: the chosen one and the best known.

    Args:
        collective_name: Name of the collective.
        chosen: Name of an algorithm that must be among them; None for none.
    """
    entries = algorithms(collective_name)
    known = sorted(
        (entry for entry in entries if entry.name in _FAMILIAR),
        key=lambda entry: _FAMILIAR.index(entry.name),
    )
    kept = {entry.name for entry in known[:MOST_CURVES]} | {chosen}
    return [entry for entry in entries if entry.name in kept]


@dataclass(frozen=True, slots=True)
class Curve:
    """Simulated times of one algorithm.

    Attributes:
        algorithm: Its name.
        size_bytes: Sizes of the whole data.
        time_ns: Time of each.
    """

    algorithm: str
    size_bytes: tuple[int, ...]
    time_ns: tuple[int, ...]


def times_by_size(spec: Spec, sizes: Sequence[int] = SIZES) -> list[Curve]:
    """Return how long familiar algorithms that fit take at several sizes, all else as in `spec`.

    Args:
        spec: Collective, ranks, topology and policy.
        sizes: Bytes of the whole data, rounded down to whole blocks.

    Raises:
        ChunkscopeError: The spec makes no sense.
    """
    blocks = spec.ranks if collective(spec.collective).by_block else 1
    unit = DTYPES[spec.dtype] * blocks
    wanted = tuple(max(size // unit, 1) * unit for size in sizes)
    curves = []
    for entry in familiar(spec.collective, spec.algorithm):
        if not entry.sizes.fits(spec.ranks):
            continue
        try:
            times = tuple(
                replace(spec, algorithm=entry.name, size_bytes=size).simulate().duration_ns
                for size in wanted
            )
        except (ScheduleError, TopologyError):
            continue  # its plan does not fit one of these sizes, or needs a switch
        curves.append(Curve(entry.name, wanted, times))
    return curves


def size_chart(curves: Sequence[Curve], chosen: str | None, theme: str) -> go.Figure:
    """Return the chart of time over size, both logarithmic; the chosen algorithm is in ink.

    Args:
        curves: What `times_by_size` returns.
        chosen: Algorithm to draw strongly; None for none.
        theme: light or dark.
    """
    palette = PALETTES[theme]
    figure = go.Figure()
    for k, curve in enumerate(curves):
        strong = curve.algorithm == chosen
        name = curve.algorithm.replace("_", " ")
        words = [
            f"{name}: {format_bytes(size)} in {format_ns(time)}"
            for size, time in zip(curve.size_bytes, curve.time_ns, strict=True)
        ]
        line = {
            "color": palette["ink" if strong else "muted"],
            "width": 2.4 if strong else 1.4,
            "dash": "solid" if strong else _DASHES[k % len(_DASHES)],
        }
        figure.add_trace(
            go.Scatter(
                x=curve.size_bytes,
                y=[max(time, 1) for time in curve.time_ns],
                name=name,
                mode="lines",
                line=line,
                text=words,
                hoverinfo="text",
            )
        )
    x_ticks, y_ticks = SIZES[::2], _decades(curves)
    figure.update_layout(
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": SANS, "size": 12, "color": palette["text"]},
        margin={"l": 64, "r": 16, "t": 8, "b": 40},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hoverlabel={"font": {"family": MONO, "size": 12}},
        width=700,
        height=380,
    )
    axis = {
        "type": "log",
        "gridcolor": palette["line"],
        "zeroline": False,
        "linecolor": palette["line"],
    }
    figure.update_xaxes(tickvals=x_ticks, ticktext=[format_bytes(x) for x in x_ticks], **axis)
    figure.update_yaxes(tickvals=y_ticks, ticktext=[format_ns(y) for y in y_ticks], **axis)
    return figure


def _decades(curves: Sequence[Curve]) -> list[int]:
    """Return the powers of ten, in ns, that the times lie between."""
    times = [time for curve in curves for time in curve.time_ns if time > 0] or [1]
    ticks = [1]
    while ticks[-1] < max(times):
        ticks.append(10 * ticks[-1])
    low = min(times)
    return [tick for tick in ticks if tick * 10 > low]
