"""Sizes of the textbook picture: its cards, and the numbers of tensors that fit in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..reel import Span
from ..story import Values
from .metrics import text_width
from .numbers import plain

TOP, BOTTOM = 160, 520  # room of the cards


@dataclass(frozen=True, slots=True)
class Form:
    """Sizes of the cards, by how many stand above each other."""

    card_h: float
    pitch: float
    pad: float
    cell_h: float
    edge_h: float
    font: float
    name: float
    source: bool

    @staticmethod
    def of(n: int) -> Form:
        """Return the form for n rows."""
        if n <= 2:
            return Form(150, 194, 20, 62, 9, 36, 26, True)
        if n == 3:
            return Form(108, 124, 14, 46, 8, 30, 24, True)
        pitch = (BOTTOM - TOP + 10) / n
        card_h = pitch - 10
        edge_h = 7.0 if n <= 5 else 4.0
        cell_h = min(46.0, card_h - 1.6 * edge_h - 8)
        name = 22 if n <= 6 else 20
        return Form(card_h, pitch, 8, cell_h, edge_h, min(28.0, 0.72 * cell_h), name, False)

    @property
    def edge_air(self) -> float:
        """Air between a box and its row of hues."""
        return 0.55 * self.edge_h


@dataclass(frozen=True, slots=True)
class Columns:
    """Left edge and width of what goes in, the operator, and what comes out."""

    given: Span
    operator: Span
    got: Span


# The right column is wider where what comes out is more than a number.
NARROW = Columns((52, 440), (597, 244), (946, 282))
WIDE = Columns((52, 400), (540, 180), (808, 420))


def fitted(
    blocks: Sequence[tuple[Values, set[int]]], form: Form, room: float, dtype: str | None
) -> list[tuple[str, set[int], float, float]]:
    """Return text, ranks, width and font of each block, within a room."""
    each = (room - 8 * (len(blocks) - 1)) / len(blocks)
    out = []
    for values, ranks in blocks:
        text = _joined(values, dtype, len(values))
        for shown in range(min(len(values), 8), 0, -1):
            text = _joined(values, dtype, shown)
            if text_width(text, 0.7 * form.font, font="mono") + 24 <= each:
                break
        font = min(form.font, (each - 24) / max(text_width(text, 1, font="mono"), 1e-9))
        font = max(font, 14.0)
        w = max(104.0 if len(blocks) == 1 else 70.0, text_width(text, font, font="mono") + 40)
        out.append((text, ranks, min(w, max(each, 60.0)), font))
    return out


def _joined(values: Values, dtype: str | None, shown: int) -> str:
    text = " ".join(plain(value, dtype) for value in values[:shown])
    return text if shown == len(values) else text + " …"
