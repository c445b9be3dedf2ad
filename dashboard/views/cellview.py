"""The ranks' cards and cells, for the simple view."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from ..film import FOREVER
from ..reel import Reel
from ..story import Cell, Change, Content, Mark, Message, Story
from ..story.holdings import mark_of
from ..theme import MONO_EM
from . import words
from .forms import BARS, BEAM_H, FORMS, LOW_NAME_W, SMALLEST_FONT, TALL, TALL_BARS, Form
from .layout import Box, Layout
from .metrics import text_width
from .numbers import short
from .pace import Pace
from .tiles import Look, Shape, arriving, patch, put, tile, token

# Numbers are written where a rank holds at most so many.
MOST_NUMBERS = 16
# Names like a+b are written up to so many ranks.
MOST_NAMES = 4


class Cells:
    """Knows how the cells of a story look, and draws them; `FullCells` has the full view's sizes.

    Attributes:
        story: The call.
        pace: The film's times.
        n: Number of ranks.
        numbers: Whether values are written.
        names: Whether contributions are written by name, as a+b.
        look: The cells in cards.
        moving: The cell on its way.
        rows: Rows of cells in a card.
        columns: Cells in a row.
        names_inside: Whether a message's name is written inside it, not beside it.
        most_parts: Most cells in a message; of more, not all are shown.
        tall: Whether there is height for several rows of cells and for a sum below them.
        low: Whether a rank's number stands beside its cells.
        slim: Whether there is no room for more than a rank's number, here and in messages.
    """

    def __init__(self, story: Story, pace: Pace) -> None:
        self.story = story
        self.pace = pace
        self.n = story.n
        few = [place.n_elements for place in story.places if place.rank is not None]
        values = all(p.values is not None for p in self._contents() if p.who is None or p.who)
        known = all(k is None or k <= MOST_NUMBERS for k in few) and any(k for k in few)
        # A barrier moves no data that anybody asked for.
        counts = story.collective == "barrier"
        self.numbers = known and values and not counts
        known_who = all(content.who is not None for content in self._contents())
        few_names = self.n <= MOST_NAMES and story.reduces and known_who
        self.names = few_names and not self.numbers and not counts
        self.most = max((len(place.cells) for place in story.places), default=1) or 1
        self.rows, self.columns = 1, self.most
        self.look = self.moving = Look(bars=True, w=16, h=72)
        # Messages that come to a slot of a place, and that leave it.
        self.comes: dict[tuple[int, int], list[int]] = {}
        self.leaves: dict[tuple[int, int], list[int]] = {}
        for number, message in enumerate(story.messages):
            for piece in () if message.local else message.pieces:
                self.comes.setdefault((message.dst, piece.dst_slot), []).append(number)
                self.leaves.setdefault((message.src, piece.src_slot), []).append(number)
        # Where there is only one chunk, its name tells nothing.
        self.has_chunks = len({cell.slot for place in story.places for cell in place.cells}) > 1
        self.form = FORMS[1]
        self.middle_x = 640.0
        self.index_size = 14.0
        self.tag_size = 22.0
        self.pad = 20.0
        self.sums_below = False
        self.tall = False
        self.slim = False
        self.low = False
        self.framed = True
        self.most_parts = 3
        self.names_inside = False

    def _contents(self) -> Iterable[Content]:
        for place in self.story.places:
            for cell in place.cells:
                yield from (change.content for change in cell.changes)
        for message in self.story.messages:
            yield from (piece.payload for piece in message.pieces)

    # Sizes.

    def text(self, content: Content, digits: int | None = None) -> str:
        """Return what a cell says."""
        if self.numbers:
            if not content.values:
                return ""
            return short(content.values[0], digits or self.look.digits)
        if self.names and content.who:
            return "+".join(chr(ord("a") + k) for k in sorted(content.who))
        return ""

    def elements(self) -> tuple[int, bool]:
        """Return the most elements of a cell, and whether those of each cell are equal."""
        held = [content.values for content in self._contents() if content.values]
        return max(map(len, held), default=0), all(len(set(values)) == 1 for values in held)

    def _longest(self, digits: int) -> int:
        return max((len(self.text(c, digits)) for c in self._contents()), default=1)

    def _font(self, w: float, largest: float) -> tuple[float, int] | None:
        """Return the largest font in which all numbers fit a box, and their most digits."""
        for digits in (5, 4, 3):
            font = min(largest, (w - 8) / (MONO_EM * max(self._longest(digits), 1)))
            if font >= (SMALLEST_FONT + 2 if digits > 3 else SMALLEST_FONT) or (
                self.names and font >= 16
            ):
                return font, digits
        return None

    def choose(self, card_w: float) -> float:
        """Choose how cells look in a card of a width; return the card's height."""
        self.pad = 20.0 if card_w > 250 else 16.0 if card_w > 150 else 12.0 if card_w > 100 else 6.0
        self.slim = card_w < 110
        inner = card_w - 2 * self.pad
        if (self.numbers or self.names) and self.tall:
            for form in TALL:
                if self._choose_form(form, inner):
                    self.sums_below = form.rows < 4
                    return form.card_h
        elif self.numbers or self.names:
            for form in (FORMS[:1] if self.n <= 2 else ()) + FORMS[1:]:
                if self._choose_form(form, inner):
                    return form.card_h
        self.numbers = self.names = False
        form = TALL_BARS if self.tall and self.most > 10 else BARS
        self.rows, self.columns, self.form = form.rows, -(-self.most // form.rows), form
        least = 6.0 if form is BARS else 3.0
        w = min(24.0, max(least, (inner + 6) / self.columns - 5.3))
        self.look = Look(bars=True, w=w, h=form.cell_h)
        self.moving = Look(bars=True, w=22, h=form.token_h)
        return form.card_h

    def choose_low(self, card_w: float, card_h: float) -> None:
        """Choose how cells look in a low card: bars beside the rank's number."""
        self.numbers = self.names = False
        self.low = self.slim = True
        self.pad, self.rows, self.columns = 8.0, 1, self.most
        w = min(22.0, max(3.0, (card_w - LOW_NAME_W - 8) / self.most - 3))
        self.look = Look(bars=True, w=w, h=card_h - 12)
        self.moving = Look(bars=True, w=20, h=26)
        self.form = Form(card_h, 1, w, card_h - 12, 0, 0, 26, 18, card_h / 2, 6)

    def _choose_form(self, form: Form, inner: float) -> bool:
        """Take a form of card if its numbers are large enough to read; return whether they are."""
        columns = -(-self.most // form.rows)
        if form in TALL and (columns > 2 or (columns == 2 and form.rows == 1)):
            return False
        gap = 10.0 if columns <= 4 else 7.0
        widest = (1.4 if self.names else 1.0) * form.cell_w
        w = min((inner - (columns - 1) * gap) / columns, widest)
        chosen = self._font(w, form.font)
        if chosen is None or (form.rows >= 2 and self.most <= 2 * (form.rows - 1)):
            return False
        font, digits = chosen
        self.rows, self.columns, self.form = form.rows, columns, form
        slot_gap = 3.0 if self.n < 8 else 2.0
        self.look = Look(False, w, form.cell_h, font, form.edge_h, form.edge_h / 2, slot_gap,
                         digits)  # fmt: skip
        self._choose_moving(form.token_h)
        return True

    def choose_block(self, room: float) -> tuple[float, float]:
        """Choose how cells look without a card, as in a tree; return width and height of all."""
        gap = 6.0
        w = min(104.0, (room - (self.most - 1) * gap) / self.most)
        chosen = self._font(w, 26) if self.numbers or self.names else None
        if chosen is None:
            self.numbers = self.names = False
            w = max(8.0, min(30.0, w))
            self.look = Look(bars=True, w=w, h=48)
            self.moving = Look(bars=True, w=20, h=36)
            return self.most * w + (self.most - 1) * gap, 48.0
        font, digits = chosen
        self.look = Look(False, w, 38, font, 7, 4, 2.0 if self.n > 4 else 3.0, digits)
        self._choose_moving(28, edge_h=5)
        return self.most * w + (self.most - 1) * gap, self.look.full_h

    def _choose_moving(self, h: float, edge_h: float | None = None) -> None:
        look = self.look
        font = min(look.font, 0.68 * h if h > 35 else 22)
        w = max(62.0 if h > 35 else 52.0, self._longest(look.digits) * MONO_EM * font + 18)
        edge = edge_h if edge_h is not None else look.edge_h
        self.moving = Look(False, w, h, font, edge, look.edge_air - 1, look.slot_gap, look.digits)

    def token(self, message: Message, name: str = "") -> tuple[list[Shape], float, float]:
        """Return a message as a picture with a name in it, and its width and height."""
        parts = []
        most = self.most_parts - (len(message.pieces) > self.most_parts and self.most_parts > 1)
        for piece in message.pieces[:most]:
            mark = self.payload_mark(piece.payload)
            parts.append((mark, self.text(piece.payload), piece.payload.who))
        look = self.moving
        if not look.bars:
            longest = max((len(text) for _, text, _ in parts), default=1)
            w = max(62.0 if look.h > 35 else 52.0, longest * MONO_EM * look.font + 18)
            look = Look(False, w, look.h, look.font, look.edge_h, look.edge_air, look.slot_gap,
                        look.digits)  # fmt: skip
        pad = 6.0 if look.h > 30 or look.bars else 5.0
        return token(look, parts, n=self.n, reduces=self.story.reduces, pad=pad, name=name)

    def fit_tokens(self, room: float) -> float:
        """Show so few parts of each message that it fits a width; return that of the widest.

        From then on, messages have their names inside.
        """
        self.names_inside = True
        for self.most_parts in (3, 2, 1):
            widest = max(
                (self.token(m, self.name_of(m))[1] for m in self.story.messages), default=0
            )
            if widest <= room:
                break
        return widest

    def name_of(self, message: Message) -> str:
        """Return what is written inside a message: its chunks, or that there are more."""
        if self.slim:
            return ""
        if self.look.bars:
            return words.chunk(message, brief=True) if self.has_chunks else ""
        return words.MORE if len(message.pieces) > self.most_parts else ""

    def payload_mark(self, content: Content) -> Mark:
        """Return the sign of what a message carries."""
        mark = mark_of(content, reduces=self.story.reduces, n=self.n)
        return Mark.UNKNOWN if mark is Mark.EMPTY else mark

    @property
    def token_w(self) -> float:
        """Width of the widest message of one chunk."""
        return self.moving.w + 12

    @property
    def token_h(self) -> float:
        """Height of a message."""
        return self.moving.full_h + (12 if self.moving.bars or self.moving.h > 30 else 10)

    # Drawing.

    def origin(self, spot: Box, framed: bool) -> tuple[float, float]:
        """Return where the first cell of a place lies."""
        if not framed:
            return spot.x, spot.y
        return spot.x + (LOW_NAME_W if self.low else self.pad), spot.y + self.form.cells_y

    def corner(self, spot: Box, k: int, framed: bool) -> tuple[float, float]:
        """Return the corner of the k-th cell of a place."""
        x, y = self.origin(spot, framed)
        row, column = divmod(k, self.columns)
        if self.look.bars and framed:
            inner = spot.w - self.pad - (LOW_NAME_W if self.low else self.pad)
            pitch = (inner - self.look.w) / max(self.columns - 1, 1)
            pitch = min(pitch, 2.2 * self.look.w)
        else:
            pitch = self.look.w + self._gap(framed)
        return x + column * pitch, y + row * (self.look.full_h + 7)

    def _gap(self, framed: bool) -> float:
        if not framed:
            return 6.0
        return 10.0 if self.columns <= 4 else 7.0

    def draw(self, reel: Reel, layout: Layout, *, framed: bool) -> None:
        """Draw every rank with its cells and what becomes of them."""
        self.framed = framed
        for place in self.story.places:
            spot = layout.spots[place.place]
            ref = reel.ref(kind="rank", rank=place.rank, event=place.row)
            if place.rank is None and not place.cells:
                self._beam(reel, spot, words.rank(place.rank, place.place))
                continue
            if framed:
                reel.rect(spot.x + 0.75, spot.y + 0.75, spot.w - 1.5, spot.h - 1.5, fill="card",
                          stroke="card_edge", width=1.5, radius=self.pad / 2 + 1)  # fmt: skip
                reel.pick(*spot, ref)
            self._name(reel, place.rank, place.place, spot)
            for k, cell in enumerate(place.cells):
                self._cell(reel, cell, *self.corner(spot, k, framed))
                if (
                    self.look.bars
                    and framed
                    and self.index_size
                    and self.rows == 1
                    and not self.low
                ):
                    self._index(reel, cell, k, spot)

    def _beam(self, reel: Reel, spot: Box, name: str) -> None:
        """Draw a switch, which combines and copies but keeps nothing."""
        reel.rect(spot.x + 0.75, spot.y + 0.75, spot.w - 1.5, spot.h - 1.5, fill="cell",
                  stroke="muted", width=1.5, radius=10)  # fmt: skip
        size = self._title_size()
        reel.text(spot.centre[0], spot.centre[1] + 0.36 * size, name, size=size, weight=700,
                  fill="ink", anchor="middle")  # fmt: skip

    def _name(self, reel: Reel, rank: int | None, place: int, spot: Box) -> None:
        size = self._title_size()
        text = self.tag(rank, place)
        if self.framed:
            side = 0.72 * size
            x, y = spot.x + self.pad, spot.y + self.form.title_y
        else:
            size, side = self.tag_size, 0.73 * self.tag_size
            x, y = spot.right + 0.64 * size, spot.y + self.look.h / 2
        mark = patch(x, y - side / 2 + 1, side, side, place, radius=0.25 * side)
        put(reel, [mark], 0, 0)
        reel.text(x + side + 0.4 * size, y + 0.36 * size, text, size=size, weight=700, fill="ink")

    def tag(self, rank: int | None, place: int) -> str:
        """Return how a place is called in its card."""
        if self.slim:
            return words.tag(rank, place)
        return words.rank(rank, place)

    def _title_size(self) -> float:
        return self.form.title if self.n > 4 or self.form.title > 20 else 24.0

    def sum_place(self, spot: Box, em: float) -> tuple[float, float, float, str]:
        """Return x, baseline, largest size and anchor of a sum `em` wide, beside a rank's name."""
        size = self._title_size()
        if spot.h == BEAM_H:
            return spot.centre[0] + 70, spot.centre[1] + 9, 24.0, "start"
        name = text_width(words.rank(7, 7), size, 700)
        if self.framed and self.sums_below:
            room = spot.w - 12
            return spot.centre[0], spot.bottom - 13, min(22.0, room / em), "middle"
        if self.framed:
            y = spot.y + self.form.title_y
            room = spot.w - 2 * self.pad - 0.72 * size - 9 - name - 12
            return spot.right - self.pad, y + 0.37 * size, min(1.1 * size, room / em), "end"
        y = spot.y + self.look.h / 2 + 9
        x = spot.right + 14 + 16 + 9 + text_width(words.rank(7, 7), 22, 700) + 20
        if (size := min(26.0, (1228 - x) / em)) >= 20:
            return x, y, size, "start"
        # No room beside the name: below it.
        x = spot.right + 14
        return x, y + 26, min(22.0, (1240 - x) / em), "start"

    def _index(self, reel: Reel, cell: Cell, k: int, spot: Box) -> None:
        """Write the slot's number under a bar, strong while its chunk moves."""
        x, y = self.corner(spot, k, True)
        busy = self.busy(cell)
        size = self.index_size
        digits = len(str(self.most - 1))
        if (spot.w - 2 * self.pad) / self.most < digits * MONO_EM * size + 1:
            return
        common: dict[str, Any] = {"font": "mono", "size": size, "anchor": "middle"}
        x, y = x + self.look.w / 2, y + self.look.h + 1.5 * size
        times = sorted({-FOREVER, FOREVER, *(t for span in busy for t in span)})
        for start, end in pairwise(times):
            on = any(a <= start and end <= b for a, b in busy)
            weight, ink = (700, "ink") if on else (400, "soft")
            reel.text(x, y, str(cell.slot), during=(start, end), weight=weight, fill=ink, **common)

    def busy(self, cell: Cell) -> list[tuple[float, float]]:
        """Return when the chunk of a cell leaves it or comes to it."""
        at = (cell.place, cell.slot)
        numbers = sorted({*self.comes.get(at, ()), *self.leaves.get(at, ())})
        return [self.pace.flights[number] for number in numbers]

    def _cell(self, reel: Reel, cell: Cell, x: float, y: float) -> None:
        ref = reel.ref(kind="cell", rank=self.story.places[cell.place].rank, slot=cell.slot)
        reel.pick(x, y, self.look.w, self.look.full_h, ref)
        for change, span in zip(cell.changes, self.pace.spans(cell.changes), strict=True):
            put(reel, self.shapes(change), x, y, during=span)
        for number in self.comes.get((cell.place, cell.slot), ()):
            put(reel, arriving(self.look), x, y, during=self.pace.flights[number], z=2)

    def shapes(self, change: Change) -> list[Shape]:
        """Return a cell's picture from one change on."""
        return tile(
            self.look,
            change.mark,
            self.text(change.content),
            change.content.who,
            n=self.n,
            reduces=self.story.reduces,
        )
