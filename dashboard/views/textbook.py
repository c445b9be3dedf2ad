"""The picture of a call of which only the two ends are known.

What goes in, the operation, what comes out: wide grey bands stand for "goes in" and "comes out",
and no message is invented. Each card has the caller's line.
"""

from __future__ import annotations

import math
from pathlib import PurePath
from typing import Any

from ..film import FOREVER, Film, Step
from ..reel import Reel, Span
from ..story import Mark, Place, Story, Values
from . import frame, sentences, words
from .frame import STAGE
from .layout import Box, slanting
from .metrics import fit, text_width
from .numbers import plain
from .pace import HOLD_S, Pace, clock_of
from .tensors import BOTTOM, NARROW, TOP, WIDE, Form, fitted
from .tiles import Look, arrowhead, patch, put, tile

CALL_S = 2.4  # how long the call itself takes on the screen
BAND = 9.0
# Parts of the call in which bands grow, the result stands, and bands leave.
IN, RESULT, OUT = 0.4, 0.45, 0.6


class Textbook:
    """Draws one call."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.reel = Reel()
        end = HOLD_S + CALL_S
        clock = clock_of([HOLD_S, end], [0.0, float(story.duration_ns)], story.duration_ns)
        self.pace = Pace(((HOLD_S, end),), (), end, end + HOLD_S, clock)
        kind = story.kind
        self.one_giver = kind is not None and kind.input_at_root
        self.one_taker = kind is not None and kind.output_at_root

    def film(self) -> Film:
        """Return the film."""
        story, reel = self.story, self.reel
        frame.ground(reel)
        name = f"Call {story.call + 1} of {len(story.calls)}"
        frame.header(reel, story, [(name, -FOREVER, FOREVER)])
        sentence = sentences.textbook(story)
        spoken = [(sentence, -FOREVER, FOREVER if story.finished else self.pace.end_s)]
        if not story.finished:
            spoken.append((sentences.unfinished(story), self.pace.end_s, FOREVER))
        frame.caption(reel, [], spoken)
        frame.plate(reel, "stage", *STAGE)
        if self.one_giver:
            self._from_root()
        else:
            self._through_operator()
        self._button()
        ends = (words.CALL_STARTS, words.CALL_RETURNS)
        frame.bar(reel, self.pace, [(*self.pace.steps[0], 0)], (), ends=ends)
        return reel.film(
            size=(frame.W, frame.H),
            view="simple",
            duration_s=self.pace.duration_s,
            steps=[Step(*self.pace.steps[0], name, None, sentence)],
            phases=(),
            clock=self.pace.clock,
            meta=frame.meta(story),
        )

    def moment(self, share: float) -> float:
        """Return the film time after a share of the call."""
        return HOLD_S + share * CALL_S

    # Two forms: everything through an operator, or one rank to all.

    def _through_operator(self) -> None:
        story = self.story
        ranks = [place for place in story.places if place.rank is not None]
        takers = [p for p in ranks if not self.one_taker or p.place == story.root]
        form = Form.of(len(ranks))
        much = any(p.outputs is not None and len(p.outputs) > 1 for p in ranks)
        columns = WIDE if much else NARROW
        box = self._operator(columns.operator, form, len(ranks))
        for k, place in enumerate(ranks):
            y = TOP + k * form.pitch
            card = Box(columns.given[0], y, columns.given[1], form.card_h)
            self._card(card, form, place, self._given(place), self._source(place, form))
            middle = y + form.card_h / 2
            if place.row is not None:
                self._band((card.right + 8, middle), (box.x - 9, middle), 0, IN)
        for k, place in enumerate(takers):
            y = TOP + (k if not self.one_taker else (len(ranks) - 1) / 2) * form.pitch
            card = Box(columns.got[0], y, columns.got[1], form.card_h)
            foot = ("", words.AFTER_CALL) if form.source else None
            self._card(card, form, place, self._got(place), foot)
            middle = y + form.card_h / 2
            if place.t_end_ns is not None:
                self._band((box.right + 9, middle), (card.x - 8, middle), OUT, 1)

    def _from_root(self) -> None:
        story = self.story
        ranks = [place for place in story.places if place.rank is not None]
        root = story.root or 0
        others = [place for place in ranks if place.place != root]
        form = Form.of(max(len(others), 1))
        height = (len(others) - 1) * form.pitch + form.card_h
        # With one receiver, both cards stand in the middle.
        top = TOP + max(0.0, (BOTTOM - TOP - 20 - height) / 2) if len(others) < 3 else TOP
        giver = Box(52, top + (height - form.card_h) / 2, 500, form.card_h)
        self._card(giver, form, ranks[root], self._given(ranks[root]),
                   self._source(ranks[root], form))  # fmt: skip
        for k, place in enumerate(others):
            card = Box(728, top + k * form.pitch, 500, form.card_h)
            self._card(card, form, place, self._got(place), self._source(place, form), before=True)
            if place.t_end_ns is not None:
                start = giver.y + giver.h * (k + 0.7) / (len(others) + 0.4)
                line = slanting(Box(giver.right, start, 0, 0), Box(card.x, card.centre[1], 0, 0))
                self._band((giver.right + 8, line[0][1]), (card.x - 8, card.centre[1]), 0, 1)
        middle = giver.centre[1] if len(others) > 1 else giver.bottom + 40
        if len(others) in (1, 2):
            for k, line_ in enumerate(words.ROUTE_NOT_RECORDED):
                self.reel.text(640, middle - 4 + 22 * k, line_, size=18, fill="muted",
                               anchor="middle")  # fmt: skip

    def _operator(self, column: Span, form: Form, n: int) -> Box:
        """Draw the operator, as tall as all rows, with its sum."""
        reel, story = self.reel, self.story
        box = Box(column[0], TOP, column[1], (n - 1) * form.pitch + form.card_h)
        reel.rect(*box, stroke="muted", width=2, dash=(9, 6), radius=18)
        x = box.centre[0]
        middle = box.centre[1]
        word = words.operator(story)
        size = min(48.0, (box.w - 34) / max(text_width(word, 1, 700), 0.1))
        reel.text(x, middle - 12, word, size=size, weight=700, fill="ink", anchor="middle")
        self._sum(x, middle + 37)
        for k, line in enumerate(words.NOT_RECORDED):
            size = min(18.0, (box.w - 24) / text_width(line, 1))
            reel.text(x, box.bottom - 40 + 22 * k, line, size=size, fill="muted", anchor="middle")
        return box

    def _sum(self, x: float, y: float) -> None:
        """Write 1.0 + 2.0 = 3.0 in the operator, for one number a rank."""
        story = self.story
        ranks = [place for place in story.places if place.rank is not None]
        got = next((p.outputs for p in ranks if p.outputs and len(p.outputs) == 1), None)
        given = [place.inputs for place in ranks]
        if not story.reduces or got is None or not all(v and len(v) == 1 for v in given):
            return
        operands = [plain(v[0], story.dtype) for v in given if v]
        pieces = words.total(story.op, operands, plain(got[0], story.dtype))
        em = sum(width for _, width, _ in pieces)
        size = min(26.0, 222 / em)
        if size < 14:
            return
        left = x - em * size / 2
        during = (self.moment(RESULT), FOREVER)
        for text, width, strong in pieces:
            weight, ink = ((500, "muted"), (500, "text"), (800, "ink"))[strong]
            self.reel.text(left + width * size / 2, y, text, font="mono", size=size, weight=weight,
                           fill=ink, anchor="middle", during=during)  # fmt: skip
            left += width * size

    # Cards.

    def _given(self, place: Place) -> tuple[Mark, Values | None, set[int]]:
        """Return sign, values and ranks of what a rank puts in."""
        if self.one_giver:
            return Mark.COMPLETE, place.inputs, {place.place}
        return Mark.OWN, place.inputs, {place.place}

    def _got(self, place: Place) -> tuple[Mark, Values | None, set[int]]:
        """Return sign, values and ranks of what a rank gets out."""
        ranks = {p.place for p in self.story.places if p.rank is not None}
        if self.one_giver:
            ranks = {self.story.root or 0}
        return Mark.COMPLETE, place.outputs, ranks

    def _source(self, place: Place, form: Form) -> tuple[str, str] | None:
        """Return place and text of the caller's line."""
        if not form.source or place.site is None:
            return None
        site = place.site
        line = site.line - site.first_line
        code = site.source[line].strip() if 0 <= line < len(site.source) else ""
        return f"{PurePath(site.file).name}:{site.line}", code

    def _card(
        self,
        card: Box,
        form: Form,
        place: Place,
        held: tuple[Mark, Values | None, set[int]],
        source: tuple[str, str] | None,
        *,
        before: bool = False,
    ) -> None:
        reel = self.reel
        absent = place.row is None
        ref = reel.ref(kind="rank", rank=place.rank, event=place.row)
        reel.rect(card.x + 0.75, card.y + 0.75, card.w - 1.5, card.h - 1.5, fill="card",
                  stroke="muted" if absent else "card_edge", width=1.5, radius=10,
                  dash=(6, 4.5) if absent else ())  # fmt: skip
        reel.pick(*card, ref)
        y = card.y + form.pad + form.cell_h / 2
        side = 0.73 * form.name
        put(reel, [patch(card.x + 20, y - side / 2, side, side, place.place, radius=4)], 0, 0)
        name = words.rank(place.rank, place.place)
        reel.text(card.x + 20 + side + 9, y + 0.36 * form.name, name, size=form.name, weight=700,
                  fill="ink")  # fmt: skip
        if source is not None:
            self._line(card, source)
        if absent:
            reel.text(card.right - 20, y + 6, words.NO_CALL, size=18, fill="muted", anchor="end")
            return
        room = card.w - 40 - side - 9 - text_width(name, form.name, 700) - 16
        self._tensor(card, form, y, place, held, room, before=before)

    def _line(self, card: Box, source: tuple[str, str]) -> None:
        """Write the caller's line at the foot of a card."""
        where, code = source
        y, room = card.bottom - (20 if card.h > 120 else 15), card.w - 40
        if not where:
            self.reel.text(card.x + 20, y, code, size=18, fill="muted")
            return
        size = 18.0
        whole = text_width(where + code, 1, font="mono")
        if whole * size + 17 > room:
            # The code says more than the name of its file.
            where = words.line(where)
            whole = text_width(where + code, 1, font="mono")
            size = min(18.0, max(16.0, (room - 17) / max(whole, 1)))
        where = fit(where, room * 0.6, size, font="mono")
        x = card.x + 20 + text_width(where, size, font="mono") + 17
        self.reel.text(card.x + 20, y, where, size=size, font="mono", fill="muted")
        if code:
            code = fit(code, card.right - 18 - x, size, font="mono")
            self.reel.text(x, y, code, size=size, font="mono", weight=500, fill="ink")

    def _tensor(
        self,
        card: Box,
        form: Form,
        y: float,
        place: Place,
        held: tuple[Mark, Values | None, set[int]],
        room: float,
        *,
        before: bool,
    ) -> None:
        """Draw a tensor at a card's right edge: one box, or one a rank where each gave its own."""
        mark, values, who = held
        result = mark is Mark.COMPLETE and not (self.one_giver and not before)
        during: Span = (self.moment(1), FOREVER) if result else (-FOREVER, FOREVER)
        right, top = card.right - 20, y - form.cell_h / 2
        if result and place.t_end_ns is None:
            self.reel.text(right, y + 6, words.NO_END, size=18, fill="muted", anchor="end")
            return
        if values is None:
            if self.story.collective != "barrier":
                self.reel.text(right, y + 6, words.NO_VALUES, size=18, fill="muted", anchor="end")
            return
        blocks = self._blocks(values, who)
        reduces = self.story.reduces and len(blocks) == 1
        old = place.inputs if before else None
        width_of = (room - (52 if old else 0)) / (1.5 if old else 1)
        boxes = fitted(blocks, form, width_of, self.story.dtype)
        look_w = sum(w for _, _, w, _ in boxes) + 8 * (len(boxes) - 1)
        x = right - look_w
        if old is not None:
            self._overwritten(old, form, x, top, room - look_w - 52)
        for text, ranks, w, font in boxes:
            look = Look(False, w, form.cell_h, font, form.edge_h, form.edge_air, 3, 7)
            shapes = tile(look, mark, text, ranks, n=self.story.n, reduces=reduces)
            span = during if during[0] > -FOREVER else None
            if result:
                empty = tile(look, Mark.EMPTY, "", (), n=self.story.n, reduces=reduces)
                put(self.reel, empty, x, top, during=(-FOREVER, during[0]))
            put(self.reel, shapes, x, top, during=span)
            x += w + 8

    def _blocks(self, values: Values, who: set[int]) -> list[tuple[Values, set[int]]]:
        """Return the parts of a tensor that came from different ranks."""
        gathers = self.story.collective in ("all_gather", "gather", "all_to_all")
        if gathers and len(who) > 1 and len(values) % len(who) == 0 and len(who) <= 4:
            size = len(values) // len(who)
            return [
                (values[k * size : (k + 1) * size], {rank}) for k, rank in enumerate(sorted(who))
            ]
        return [(values, who)]

    def _overwritten(self, old: Values, form: Form, x: float, top: float, room: float) -> None:
        """Draw what was there before, hollow, and an arrow to what replaced it."""
        text, _, w, font = fitted([(old, set())], form, max(room, 60), self.story.dtype)[0]
        look = Look(False, w, form.cell_h, font, 0)
        left = x - 48 - w
        put(self.reel, tile(look, Mark.PASSED, text, (), n=1, reduces=False), left, top)
        y = top + form.cell_h / 2
        self.reel.line(x - 42, y, x - 18, y, stroke="link", width=3)
        put(self.reel, [arrowhead(1, 0, "ink")], x - 6, y)

    def _band(
        self, a: tuple[float, float], b: tuple[float, float], start: float, end: float
    ) -> None:
        """Draw a grey band that grows in a part of the call; its route is not known."""
        length = math.hypot(b[0] - a[0], b[1] - a[1])
        dx, dy = (b[0] - a[0]) / length, (b[1] - a[1]) / length
        tip = (b[0] - dx * 19, b[1] - dy * 19)
        during = (self.moment(start), self.moment(end))
        line: dict[str, Any] = {"stroke": "link", "width": BAND}
        self.reel.line(*a, *a, to=(*a, *tip), during=during, ease=False, z=-1, **line)
        self.reel.line(*a, *tip, during=(during[1], FOREVER), z=-1, **line)
        points = [
            (0.0, 0.0),
            *((x * dx - y * dy, x * dy + y * dx) for x, y in ((-20, 15), (-20, -15))),
        ]
        self.reel.poly(points, offset=b, fill="link", during=(during[1], FOREVER), z=-1)

    def _button(self) -> None:
        """Draw the button that simulates how it could be done."""
        if self.story.collective != "barrier":
            reel = self.reel
            reel.rect(485, 543, 310, 46, fill="panel", stroke="ink", width=2, radius=23)
            reel.text(640, 573.5, words.HOW, size=20, weight=600, fill="ink", anchor="middle")
            reel.pick(484, 542, 312, 48, reel.ref(action="how"))


def build(story: Story) -> Film:
    """Return the textbook picture of a call."""
    return Textbook(story).film()
