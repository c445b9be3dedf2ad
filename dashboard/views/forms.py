"""The forms of cards: how high they are, and the sizes of what is in them."""

from __future__ import annotations

from typing import NamedTuple

SMALLEST_FONT = 18.0


class Form(NamedTuple):
    """A form of card: its height, and the sizes of what is in it."""

    card_h: float
    rows: int
    cell_w: float
    cell_h: float
    font: float
    edge_h: float
    token_h: float
    title: float  # size of the rank's name
    title_y: float  # middle of the name, below the card's upper edge
    cells_y: float  # upper edge of the first row of cells


# Roomy for two ranks; one row of cells; two rows.
FORMS = (
    Form(188, 1, 150, 74, 38, 11, 58, 28, 38, 70),
    Form(131, 1, 98, 52, 28, 8, 42, 24, 27, 52),
    Form(136, 2, 98, 32, 22, 6, 28, 20, 21, 38),
)
BARS = Form(130, 1, 24, 58, 0, 0, 44, 20, 22, 39)
# Where there is height, as in a row of cards: several rows of two cells, and room for a sum below.
TALL = (
    Form(150, 1, 150, 56, 30, 8, 36, 20, 23, 44),
    Form(162, 2, 98, 28, 20, 5, 27, 20, 21, 38),
    Form(198, 3, 98, 26, 20, 5, 27, 20, 21, 38),
    Form(196, 4, 98, 25, 19, 5, 27, 20, 21, 36),
)
TALL_BARS = Form(150, 2, 24, 46, 0, 0, 40, 20, 22, 40)
BEAM_H = 54.0
LOW_NAME_W = 66.0
