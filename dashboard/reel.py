"""The builder that views draw their films with.

    reel = Reel()
    reel.panel("stage", 24, 124, 1232, 488)
    reel.rect(30, 130, 98, 52, fill="cell", radius=7)                       # always there
    reel.rect(30, 130, 98, 52, stroke="ink", during=(1.5, 2.7))             # for a while
    reel.text(0, 20, "c5", size=20, during=(1.5, 2.7), to=(300, 20))        # moving
    film = reel.film(...)

What has no `during` is static; what has one is state; what moves or fades is motion. Within a layer
a higher `z` is painted later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .film import (
    CLOCK,
    FOREVER,
    LINE,
    MOTION,
    PICK,
    POLY,
    RECT,
    STATE,
    STATIC,
    TEXT,
    Clock,
    Film,
    Panel,
    Step,
    Style,
)

Span = tuple[float, float]
ALWAYS: Span = (-FOREVER, FOREVER)


class Reel:
    """Collects primitives and makes a Film of them."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._points: list[tuple[float, float]] = []
        self._styles: dict[Style, int] = {}
        self._texts: dict[str, int] = {"": 0}
        self._refs: list[dict[str, Any] | None] = [None]
        self._panels: list[Panel] = []

    def panel(self, name: str, x: float, y: float, w: float, h: float) -> None:
        """Begin a part of the frame; what is drawn from now on belongs to it."""
        names = [panel.name for panel in self._panels]
        if name in names:
            self._current = names.index(name)
            return
        self._current = len(self._panels)
        self._panels.append(Panel(name, x, y, w, h))

    def ref(self, **cells: Any) -> int:
        """Return the number of a new thing that primitives may stand for."""
        self._refs.append(cells)
        return len(self._refs) - 1

    def rect(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        *,
        to: tuple[float, float, float, float] | None = None,
        during: Span | None = None,
        ease: bool = True,
        opacity: Span = (1, 1),
        layer: int | None = None,
        z: int = 0,
        ref: int = 0,
        **style: Any,
    ) -> None:
        """Draw a rectangle with fill, stroke, width, dash, radius."""
        self._add(RECT, (x, y, w, h), to, during, ease, opacity, layer, z, ref, style)

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        *,
        to: tuple[float, float, float, float] | None = None,
        during: Span | None = None,
        ease: bool = True,
        opacity: Span = (1, 1),
        layer: int | None = None,
        z: int = 0,
        ref: int = 0,
        **style: Any,
    ) -> None:
        """Draw a line with stroke, width, dash, cap."""
        self._add(LINE, (x1, y1, x2, y2), to, during, ease, opacity, layer, z, ref, style)

    def poly(
        self,
        points: Sequence[tuple[float, float]],
        *,
        offset: tuple[float, float] = (0, 0),
        to: tuple[float, float] | None = None,
        during: Span | None = None,
        ease: bool = True,
        opacity: Span = (1, 1),
        layer: int | None = None,
        z: int = 0,
        ref: int = 0,
        **style: Any,
    ) -> None:
        """Draw a polygon (with fill) or an open line of several pieces (with stroke alone)."""
        start = len(self._points)
        self._points.extend(points)
        end = None if to is None else (*to, 0.0, 0.0)
        a = (*offset, 0.0, 0.0)
        self._add(POLY, a, end, during, ease, opacity, layer, z, ref, style, "", start, len(points))

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        to: tuple[float, float] | None = None,
        during: Span | None = None,
        ease: bool = True,
        opacity: Span = (1, 1),
        layer: int | None = None,
        z: int = 0,
        ref: int = 0,
        clock: bool = False,
        **style: Any,
    ) -> None:
        """Draw a text; y is its baseline. With `clock`, "{}" in it becomes the trace's time."""
        end = None if to is None else (*to, 0.0, 0.0)
        kind = CLOCK if clock else TEXT
        a = (x, y, 0.0, 0.0)
        layer = MOTION if clock and layer is None else layer
        self._add(kind, a, end, during, ease, opacity, layer, z, ref, style, text)

    def pick(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        ref: int,
        *,
        to: tuple[float, float, float, float] | None = None,
        during: Span | None = None,
        ease: bool = True,
    ) -> None:
        """Say that a thing lies in a rectangle; nothing is painted."""
        self._add(PICK, (x, y, w, h), to, during, ease, (1, 1), None, 9, ref, {})

    def _add(
        self,
        kind: int,
        a: Sequence[float],
        b: Sequence[float] | None,
        during: Span | None,
        ease: bool,
        opacity: Span,
        layer: int | None,
        z: int,
        ref: int,
        style: dict[str, Any],
        text: str = "",
        point: int = 0,
        n_points: int = 0,
    ) -> None:
        moves = b is not None or opacity[0] != opacity[1]
        if layer is None:
            layer = MOTION if moves else STATIC if during is None else STATE
        t0, t1 = during or ALWAYS
        if t1 <= t0:
            return
        look = Style(**style)
        row = (
            kind, self._current, layer, int(ease and moves), t0, t1, tuple(a), tuple(b or a),
            opacity, self._styles.setdefault(look, len(self._styles)),
            self._texts.setdefault(text, len(self._texts)), ref, point, n_points, z,
        )  # fmt: skip
        self._rows.append(row)

    def film(
        self,
        *,
        size: tuple[int, int],
        view: str,
        duration_s: float,
        steps: Sequence[Step],
        phases: Sequence[str],
        clock: Clock,
        meta: dict[str, Any],
    ) -> Film:
        """Return the film of all that was drawn."""
        rows = sorted(self._rows, key=lambda row: (row[2], row[14]))  # stable
        cells = [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * 15
        names = ("kind", "panel", "layer", "ease", "t0", "t1", "a", "b", "opacity", "style",
                 "text", "ref", "point", "n_points")  # fmt: skip
        types = (np.uint8, np.uint8, np.uint8, np.uint8, np.float64, np.float64, np.float32,
                 np.float32, np.float32, np.uint16, np.uint32, np.uint32, np.uint32,
                 np.uint16)  # fmt: skip
        columns = {
            name: np.array(cell, dtype)
            for name, dtype, cell in zip(names, types, cells, strict=False)
        }
        return Film(
            size=size,
            duration_s=duration_s,
            view=view,
            columns=columns,
            points=np.array(self._points, np.float32).reshape(-1, 2),
            styles=tuple(self._styles),
            texts=tuple(self._texts),
            refs=tuple(self._refs),
            panels=tuple(self._panels),
            steps=tuple(steps),
            phases=tuple(phases),
            clock=clock,
            meta=meta,
        )
