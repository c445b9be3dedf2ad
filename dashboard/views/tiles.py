"""The cell and its signs, as a number in a box or as a barcode; the same in cards and on the way.

    shapes = tile(Look.number(98, 52, 28), Mark.OWN, "10", {0}, n=4, reduces=True)
    put(reel, shapes, 72, 196, during=(0, 1.5))

Hue = contributing rank, at a fixed slot; solid ink = complete; hollow = passed on; a dashed frame =
arriving.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..reel import Reel, Span
from ..story import Mark
from ..theme import N_RAMP, edge, hue, ink_edge
from .metrics import text_width

# A bar has a stripe a rank up to so many ranks.
MOST_STRIPES = 16
# Size of the name inside a token.
NAME_SIZE = 18.0


@dataclass(frozen=True, slots=True)
class Look:
    """How a cell is drawn.

    Attributes:
        bars: Whether it is a barcode instead of a box with a number.
        w, h: Size of the box or bar.
        font: Size of the number.
        edge_h: Height of the row of hues under a box; 0 for none.
        edge_air: Air between the box and that row.
        slot_gap: Air between two hues.
        digits: Most characters of a number.
    """

    bars: bool
    w: float
    h: float
    font: float = 0.0
    edge_h: float = 8.0
    edge_air: float = 4.0
    slot_gap: float = 3.0
    digits: int = 5

    @property
    def full_h(self) -> float:
        """Height with the row of hues."""
        return self.h if self.bars else self.h + self.edge_air + self.edge_h


@dataclass(frozen=True, slots=True)
class Shape:
    """A primitive relative to a corner."""

    kind: str
    at: tuple[float, ...]
    style: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    points: tuple[tuple[float, float], ...] = ()
    z: int = 0


def share_token(k: int, n: int) -> str:
    """Return the token of a grey that grows with the share k of n."""
    return f"fill{min(round((k - 1) / max(n - 2, 1) * (N_RAMP - 1)), N_RAMP - 1)}"


def put(
    reel: Reel,
    shapes: Iterable[Shape],
    x: float,
    y: float,
    *,
    to: tuple[float, float] | None = None,
    during: Span | None = None,
    ease: bool = True,
    opacity: Span = (1, 1),
    z: int = 0,
    layer: int | None = None,
) -> None:
    """Draw shapes with their corner at (x, y), or moving from there `to` another place."""
    dx, dy = (0.0, 0.0) if to is None else (to[0] - x, to[1] - y)
    for shape in shapes:
        common: dict[str, Any] = {
            "during": during, "ease": ease, "opacity": opacity, "z": z + shape.z, "layer": layer,
        }  # fmt: skip
        a = shape.at
        if shape.kind == "rect":
            end = None if to is None else (x + a[0] + dx, y + a[1] + dy, a[2], a[3])
            reel.rect(x + a[0], y + a[1], a[2], a[3], to=end, **common, **shape.style)
        elif shape.kind == "line":
            x1, y1, x2, y2 = x + a[0], y + a[1], x + a[2], y + a[3]
            moved = None if to is None else (x1 + dx, y1 + dy, x2 + dx, y2 + dy)
            reel.line(x1, y1, x2, y2, to=moved, **common, **shape.style)
        elif shape.kind == "poly":
            start = (x + a[0], y + a[1])
            goal = None if to is None else (start[0] + dx, start[1] + dy)
            reel.poly(shape.points, offset=start, to=goal, **common, **shape.style)
        else:
            x1, y1 = x + a[0], y + a[1]
            goal = None if to is None else (x1 + dx, y1 + dy)
            reel.text(x1, y1, shape.text, to=goal, **common, **shape.style)


def tile(
    look: Look,
    mark: Mark,
    text: str,
    who: Collection[int] | None,
    *,
    n: int,
    reduces: bool,
) -> list[Shape]:
    """Return a cell.

    Args:
        look: Its size and kind.
        mark: Its sign.
        text: Its number; not drawn in a barcode.
        who: The ranks whose part is inside; None if not known.
        n: Number of ranks.
        reduces: Whether the ranks' parts are combined, so that each has a slot.
    """
    who = () if who is None or mark in (Mark.PASSED, Mark.EMPTY) else who
    if look.bars:
        return _bar(look, mark, who, n, reduces)
    return [*_box(look, mark, text), *_edges(look, mark, who, n, reduces)]


def _box(look: Look, mark: Mark, text: str) -> list[Shape]:
    style: dict[str, Any] = {"radius": min(7, look.h / 5)}
    ink, weight = "ink", 700
    if mark is Mark.COMPLETE:
        style["fill"], ink = "ink", "inverse"
    elif mark is Mark.PASSED:
        style |= {"stroke": "hollow", "width": 1.5}
        ink, weight = "soft", 500
    elif mark is Mark.EMPTY:
        style |= {"stroke": "slot", "width": 1.5}
    else:
        style["fill"] = "cell"
    inset = 0.75 if "stroke" in style else 0.0
    box = Shape("rect", (inset, inset, look.w - 2 * inset, look.h - 2 * inset), style)
    if not text or mark is Mark.EMPTY:
        return [box]
    return [box, number(look.w / 2, look.h / 2, text, look.font, weight, ink)]


def number(x: float, y: float, text: str, size: float, weight: int, ink: str) -> Shape:
    """Return a number centred at (x, y); digits of the mono font are .73 em high."""
    style = {"font": "mono", "size": size, "weight": weight, "anchor": "middle", "fill": ink}
    return Shape("text", (x, y + 0.365 * size), style, text, z=1)


def _edges(look: Look, mark: Mark, who: Collection[int], n: int, reduces: bool) -> list[Shape]:
    """Return the row of hues under a box: a slot for each rank, filled where its part is in."""
    if mark in (Mark.PASSED, Mark.EMPTY, Mark.UNKNOWN) or not look.edge_h:
        return []
    y, h = look.h + look.edge_air, look.edge_h
    if not reduces:
        return [patch(0, y, look.w, h, min(who))] if who else []
    w = (look.w - (n - 1) * look.slot_gap) / n
    out = []
    for rank in range(n):
        x = rank * (w + look.slot_gap)
        if rank in who:
            out.append(patch(x, y, w, h, rank))
        else:
            middle = y + h / 2
            style = {"stroke": "slot", "width": 2}
            out.append(Shape("line", (x, middle, x + w, middle), style))
    return out


def patch(
    x: float, y: float, w: float, h: float, rank: int, *, on_ink: bool = False, radius: float = 2
) -> Shape:
    """Return a patch in a rank's colour, with the edge that it needs on its ground."""
    line = ink_edge(rank) if on_ink else edge(rank)
    style = {"fill": hue(rank), "stroke": line, "width": 1, "radius": min(radius, h / 2, w / 2)}
    # The edge lies inside, so that edged and plain patches have one size.
    return Shape("rect", (x + 0.5, y + 0.5, w - 1, h - 1), style)


def _bar(look: Look, mark: Mark, who: Collection[int], n: int, reduces: bool) -> list[Shape]:
    w, h = look.w, look.h
    if mark in (Mark.PASSED, Mark.EMPTY):
        style = {"stroke": "hollow" if mark is Mark.PASSED else "slot", "width": 1.5, "radius": 3}
        return [Shape("rect", (0.75, 0.75, w - 1.5, h - 1.5), style)]
    if mark is Mark.COMPLETE:
        return _finished_bar(w, h, who, n, reduces)
    well = Shape("rect", (0, 0, w, h), {"fill": "well", "radius": 2})
    return [well, *_stripes(0, 0, w, h, who, n, on_ink=False, reduces=reduces)]


def _finished_bar(w: float, h: float, who: Collection[int], n: int, reduces: bool) -> list[Shape]:
    """Return an ink bar with a slim spine of hues, in a dark window where ink is light."""
    spine = 0.56 * w
    x = (w - spine) / 2
    window = {"fill": "window", "stroke": "window_edge", "width": 1.5, "radius": 1.5}
    inside = _stripes(x, 2.5, spine, h - 5, who, n, on_ink=True, reduces=reduces)
    return [
        Shape("rect", (-1, -1, w + 2, h + 2), {"fill": "ink", "radius": 3}),
        Shape("rect", (x - 0.5, 2.5, spine + 1, h - 5), window),
        *inside,
    ]


def _stripes(
    x: float,
    y: float,
    w: float,
    h: float,
    who: Collection[int],
    n: int,
    *,
    on_ink: bool,
    reduces: bool,
) -> list[Shape]:
    """Return the hues of a bar: slot k, rank 0 at the bottom, is filled if rank k is in."""
    if not reduces:
        return [patch(x, y, w, h, min(who), on_ink=on_ink, radius=1.5)] if who else []
    if n > MOST_STRIPES:
        # Too many to tell apart: how many are in shows as lightness.
        return [Shape("rect", (x, y, w, h), {"fill": share_token(len(who), n), "radius": 1})]
    gap = 2.0 if h / n > 7 else 1.0
    tall = (h - (n - 1) * gap) / n
    if tall < 4:
        # Edges would leave no colour.
        return [
            Shape("rect", (x, y + h - (k + 1) * (tall + gap) + gap, w, tall), {"fill": hue(k)})
            for k in range(n)
            if k in who
        ]
    return [
        patch(x, y + h - (k + 1) * tall - k * gap, w, tall, k, on_ink=on_ink, radius=1.5)
        for k in range(n)
        if k in who
    ]


def arriving(look: Look) -> list[Shape]:
    """Return the dashed frame around a cell that something is on its way to."""
    air = 4.0 if look.bars else 5.0 if look.h > 36 else 3.5
    style = {
        "stroke": "ink", "width": 2.25 if not look.bars else 2, "radius": 9 if not look.bars else 6,
        "dash": (6, 4.5) if not look.bars else (4.5, 3),
    }  # fmt: skip
    return [Shape("rect", (-air, -air, look.w + 2 * air, look.full_h + 2 * air), style)]


def token(
    look: Look,
    parts: Sequence[tuple[Mark, str, Collection[int] | None]],
    *,
    n: int,
    reduces: bool,
    pad: float = 6.0,
    name: str = "",
) -> tuple[list[Shape], float, float]:
    """Return a cell on its way, in an ink frame, and its width and height.

    Args:
        look: The cell on its way.
        parts: Sign, number and ranks of each slot that travels.
        n: Number of ranks.
        reduces: Whether the ranks' parts are combined.
        pad: Air between the frame and the cell.
        name: What is written beside the cells, inside the frame.
    """
    gap = 5.0
    cells_w = len(parts) * look.w + (len(parts) - 1) * gap + pad
    w = cells_w + pad + (text_width(name, NAME_SIZE, 600) + 4 if name else 0.0)
    h = look.full_h + 2 * pad
    style = {"fill": "card", "stroke": "ink", "width": 2.5, "radius": 11 if not look.bars else 9}
    shapes = [Shape("rect", (0, 0, w, h), style)]
    for k, (mark, text, who) in enumerate(parts):
        inside = tile(look, mark, text, who, n=n, reduces=reduces)
        shapes += [_shifted(shape, pad + k * (look.w + gap), pad) for shape in inside]
    if name:
        written = {"size": NAME_SIZE, "weight": 600, "fill": "ink"}
        at = (cells_w + 5, h / 2 + 0.36 * NAME_SIZE)
        shapes.append(Shape("text", at, written, name, z=1))
    return shapes, w, h


def _shifted(shape: Shape, dx: float, dy: float) -> Shape:
    a = shape.at
    if shape.kind == "line":
        at: tuple[float, ...] = (a[0] + dx, a[1] + dy, a[2] + dx, a[3] + dy)
    else:
        at = (a[0] + dx, a[1] + dy, *a[2:])
    return Shape(shape.kind, at, shape.style, shape.text, shape.points, shape.z + 1)


def arrowhead(dx: float, dy: float, ink: str, *, long: float = 15, wide: float = 16) -> Shape:
    """Return a barbed arrowhead that points along (dx, dy), a unit vector, with its tip at 0, 0."""
    notch = 0.74 * long
    back = ((-long, wide / 2), (-notch, 0.0), (-long, -wide / 2))
    points = [(0.0, 0.0)] + [(x * dx - y * dy, x * dy + y * dx) for x, y in back]
    return Shape("poly", (0, 0), {"fill": ink}, points=tuple(points))
