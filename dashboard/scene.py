"""What a film shows at a moment, as plain primitives.

    for prim in scene.at(film, 2.5):
        print(prim.kind, prim.geometry, prim.text)

This rule exists a second time in assets/player.js; a test holds the two to the same primitives.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .film import CLOCK, KINDS, POLY, TEXT, Clock, Film, Style


class Prim(NamedTuple):
    """One primitive at one moment.

    Attributes:
        row: Row of the film's table.
        kind: rect, line, poly, text, clock or pick.
        panel: Name of its panel.
        layer: 0 static, 1 state, 2 motion.
        geometry: The four numbers of its kind, in px.
        opacity: 0 to 1.
        style: How to paint it.
        text: What it says, the clock's time put in; empty for shapes.
        points: Points of a poly, its offset added, (n, 2).
        ref: What it stands for; None for nothing.
    """

    row: int
    kind: str
    panel: str
    layer: int
    geometry: tuple[float, float, float, float]
    opacity: float
    style: Style
    text: str
    points: npt.NDArray[np.float64] | None
    ref: dict[str, Any] | None


def at(film: Film, t: float) -> list[Prim]:
    """Return what the film shows at film time t, in the order in which it is painted.

    Args:
        film: The film.
        t: Seconds since its start; held to 0 .. duration.
    """
    t = min(max(t, 0.0), film.duration_s)
    c = film.columns
    rows = np.flatnonzero((c["t0"] <= t) & (t < c["t1"]))
    p = (t - c["t0"][rows]) / (c["t1"][rows] - c["t0"][rows])
    p = np.where(c["ease"][rows] == 1, eased(p), p)
    a, b = c["a"][rows].astype(np.float64), c["b"][rows].astype(np.float64)
    geometry = (a + (b - a) * p[:, None]).tolist()
    o = c["opacity"][rows].astype(np.float64)
    opacity = (o[:, 0] + (o[:, 1] - o[:, 0]) * p).tolist()
    kinds, layers = c["kind"][rows].tolist(), c["layer"][rows].tolist()
    panels, styles = c["panel"][rows].tolist(), c["style"][rows].tolist()
    texts, refs = c["text"][rows].tolist(), c["ref"][rows].tolist()
    time = clock_text(film.clock, t)
    prims = []
    for k, row in enumerate(rows.tolist()):
        kind = kinds[k]
        text = film.texts[texts[k]] if kind in (TEXT, CLOCK) else ""
        prims.append(
            Prim(
                row=row,
                kind=KINDS[kind],
                panel=film.panels[panels[k]].name,
                layer=layers[k],
                geometry=tuple(geometry[k]),
                opacity=opacity[k],
                style=film.styles[styles[k]],
                text=text.replace("{}", time) if kind == CLOCK else text,
                points=_points(film, row, geometry[k]) if kind == POLY else None,
                ref=film.refs[refs[k]],
            )
        )
    return prims


def _points(film: Film, row: int, offset: list[float]) -> npt.NDArray[np.float64]:
    start, n = int(film.columns["point"][row]), int(film.columns["n_points"][row])
    points: npt.NDArray[np.float64] = film.points[start : start + n].astype(np.float64)
    points += offset[:2]
    return points


def eased(p: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return how far a thing has gone after a share p of its time: mostly steady, soft at ends."""
    return 0.65 * p + 0.35 * (p * p * (3 - 2 * p))


def trace_ns(clock: Clock, t: float) -> float:
    """Return the time of the trace at film time t, in nanoseconds since the call began."""
    s, ns = clock.s, clock.ns
    if t <= s[0]:
        return ns[0]
    for k in range(len(s) - 1):
        if t < s[k + 1]:
            return ns[k] + (t - s[k]) / (s[k + 1] - s[k]) * (ns[k + 1] - ns[k])
    return ns[-1]


def film_s(clock: Clock, ns: float) -> float:
    """Return the first film time at which the trace's time is `ns`; the reverse of `trace_ns`."""
    if ns <= clock.ns[0]:
        return clock.s[0]
    for k in range(len(clock.s) - 1):
        if ns <= clock.ns[k + 1] and clock.ns[k + 1] > clock.ns[k]:
            share = (ns - clock.ns[k]) / (clock.ns[k + 1] - clock.ns[k])
            return clock.s[k] + share * (clock.s[k + 1] - clock.s[k])
    return clock.s[-1]


def clock_text(clock: Clock, t: float) -> str:
    """Return the time of the trace at film time t as text, without its unit."""
    return format_ns(trace_ns(clock, t), clock)


def format_ns(ns: float, clock: Clock) -> str:
    """Return a time as text in the clock's unit and decimals, without the unit."""
    scale = 10**clock.decimals
    whole = math.floor(ns / clock.unit_ns * scale + 0.5)
    if clock.decimals == 0:
        return str(whole)
    return f"{whole // scale}.{whole % scale:0{clock.decimals}d}"
