"""The right column of the full view: state of every cell, messages in flight, legend."""

from __future__ import annotations

from typing import Any

from ...units import format_bytes
from ..film import FOREVER
from ..reel import Reel, Span
from ..story import Cell, Change, Mark, Message
from ..theme import edge, hue
from . import words
from .cellview import Cells
from .layout import Box
from .legend import samples
from .tiles import Look, arriving, patch, put, tile


class StateTable:
    """Draws a row a rank and a column a slot: how many ranks' parts are in each."""

    def __init__(self, view: Cells, box: Box) -> None:
        self.view = view
        self.story = view.story
        self.box = box
        slots = {cell.slot for place in self.story.places for cell in place.cells}
        self.slots = sorted(slots)
        self.x0, self.y0 = box.x + 46, box.y + 54
        self.w = (box.right - 16 - self.x0) / max(len(self.slots), 1)
        self.w = min(self.w, 90.0)
        self.h = min(34.0, (box.bottom - 12 - self.y0) / max(len(self.story.places), 1))

    def draw(self, reel: Reel) -> None:
        """Draw all."""
        box = self.box
        reel.text(box.x + 16, box.y + 24, words.STATE, size=13, weight=600, fill="ink")
        note = words.STATE_NOTE if self.story.reduces else words.STATE_NOTE_COPY
        reel.text(box.right - 16, box.y + 24, note, size=11, fill="muted", anchor="end")
        for k, slot in enumerate(self.slots):
            if self.w >= 20:
                reel.text(self.x0 + (k + 0.5) * self.w, box.y + 47, f"c{slot}", size=11,
                          font="mono", fill="muted", anchor="middle")  # fmt: skip
        for row, place in enumerate(self.story.places):
            y = self.y0 + row * self.h
            if self.h >= 12:
                size = min(12.0, self.h - 2)
                middle = y + self.h / 2
                put(reel, [patch(box.x + 16, middle - 5, 10, 10, place.place, radius=2.5)], 0, 0)
                name = words.tag(place.rank, place.place).removeprefix("R")
                reel.text(box.x + 31, middle + 4, name, size=size, font="mono", fill="muted")
            for cell in place.cells:
                self._cell(reel, cell, self.x0 + self.slots.index(cell.slot) * self.w, y)

    def _cell(self, reel: Reel, cell: Cell, x: float, y: float) -> None:
        gap = min(3.0, 0.1 * self.h)
        w, h = self.w - gap, self.h - gap
        rank = self.story.places[cell.place].rank
        ref = reel.ref(kind="cell", rank=rank, slot=cell.slot)
        reel.pick(x, y, w, h, ref)
        pace = self.view.pace
        for change, span in zip(cell.changes, pace.spans(cell.changes), strict=True):
            self._look(reel, change, (x, y, w, h), span)
        for number in self.view.comes.get((cell.place, cell.slot), ()):
            reel.rect(x, y, w, h, stroke="ink", width=1.6, dash=(3.5, 2.5), radius=4,
                      during=pace.flights[number], z=2)  # fmt: skip

    def _look(
        self, reel: Reel, change: Change, box: tuple[float, float, float, float], span: Span
    ) -> None:
        x, y, w, h = box
        mark, who = change.mark, change.content.who
        fill = {Mark.COMPLETE: "ink", Mark.PASSED: None, Mark.EMPTY: None}.get(mark, "track")
        if fill is not None:
            reel.rect(x, y, w, h, fill=fill, radius=3, during=span)
        else:
            stroke = "hollow" if mark is Mark.PASSED else "slot"
            reel.rect(x + 0.5, y + 0.5, w - 1, h - 1, stroke=stroke, width=1, radius=3, during=span)
        if mark is Mark.EMPTY or not who or w < 9 or h < 9:
            return
        ink = {Mark.COMPLETE: "inverse", Mark.PASSED: "soft"}.get(mark, "ink")
        text = str(len(who)) if self.story.reduces else str(self._origin(who))
        size = min(12.0, h * 0.55)
        tall = h >= 22
        reel.text(x + w / 2, y + (h * 0.4 if tall else h / 2) + 0.36 * size, text, size=size,
                  font="mono", weight=500 if mark is Mark.PASSED else 700, fill=ink,
                  anchor="middle", during=span, z=1)  # fmt: skip
        if tall and mark is not Mark.PASSED:
            self._ticks(reel, mark, who, box, span)

    def _origin(self, who: frozenset[int]) -> int:
        rank = self.story.places[min(who)].rank
        return min(who) if rank is None else rank

    def _ticks(
        self,
        reel: Reel,
        mark: Mark,
        who: frozenset[int],
        box: tuple[float, float, float, float],
        span: Span,
    ) -> None:
        """Draw a tick a rank below a number."""
        x, y, w, h = box
        n = self.story.n if self.story.reduces else 1
        room = min(w - 8, 60.0)
        each = room / n
        left, top = x + (w - room) / 2, y + h - 8
        line = "inkedge" if mark is Mark.COMPLETE else "edge"
        for k in range(n):
            rank = k if self.story.reduces else min(who)
            style: dict[str, Any] = {"during": span, "z": 1, "radius": 0.5}
            if rank in who:
                token = edge(rank).replace("edge", line)
                reel.rect(left + k * each + 0.5, top, each - 1, 4, fill=hue(rank), stroke=token,
                          width=0.6, **style)  # fmt: skip
            elif mark is not Mark.COMPLETE:
                reel.rect(left + k * each + 0.5, top, each - 1, 4, fill="slot", **style)


def flight(reel: Reel, view: Cells, box: Box) -> None:
    """Draw what each rank has on its way: to whom, which chunk, whose parts, how far."""
    story = view.story
    reel.text(box.x + 16, box.y + 22, words.IN_FLIGHT, size=13, weight=600, fill="ink")
    sizes = sorted({m.size_bytes for m in story.messages if m.size_bytes is not None})
    if sizes:
        text = format_bytes(sizes[0]) if len(sizes) == 1 else (
            f"{format_bytes(sizes[0])} to {format_bytes(sizes[-1])}")  # fmt: skip
        reel.text(box.right - 16, box.y + 22, words.each(text), size=11, fill="muted", anchor="end")
    pitch = min(17.5, (box.h - 38) / max(len(story.places), 1))
    if pitch < 7.5:
        return
    for row, place in enumerate(story.places):
        y = box.y + 44 + row * pitch
        mine = [
            (view.pace.flights[k], k)
            for k, m in enumerate(story.messages)
            if m.src == place.place and not m.local
        ]
        mine.sort()
        now = -FOREVER
        tag = words.tag(place.rank, place.place)
        for k, ((start, end), number) in enumerate(mine):
            start = max(start, now)
            if start > now:
                idle = words.NOT_YET if k == 0 else words.BETWEEN
                _idle(reel, box, y, tag, idle, (now, start))
            if end > start:
                _row(reel, view, box, y, story.messages[number], (start, end))
            now = max(start, end)
        _idle(reel, box, y, tag, words.ALL_SENT if mine else words.SENDS_NOTHING, (now, FOREVER))


def _idle(reel: Reel, box: Box, y: float, tag: str, text: str, span: Span) -> None:
    reel.text(box.x + 16, y, tag, size=11, fill="muted", during=span)
    reel.text(box.x + 92, y, text, size=11, fill="muted", during=span)


def _row(reel: Reel, view: Cells, box: Box, y: float, message: Message, span: Span) -> None:
    """Draw one message on its way."""
    story = view.story
    tags = [words.tag(story.places[p].rank, p) for p in (message.src, message.dst)]
    ref = reel.ref(**words.message_ref(story, message))
    reel.pick(box.x + 10, y - 12, box.w - 20, 16, ref, during=span)
    reel.text(box.x + 16, y, f"{tags[0]} → {tags[1]}", size=11, weight=500, fill="text",
              during=span)  # fmt: skip
    reel.text(box.x + 92, y, words.chunk(message, brief=True), size=11, weight=700, fill="ink",
              during=span)  # fmt: skip
    who = message.pieces[0].payload.who
    n = story.n if story.reduces else 1
    room = min(64.0, 8.0 * n)
    each = room / n
    for k in range(n):
        rank = k if story.reduces else min(who or {0})
        x = box.x + 132 + k * each
        inside = who is not None and rank in who
        fill, line = (hue(rank), edge(rank)) if inside else ("track", None)
        reel.rect(x + 0.5, y - 8, each - 1, 8, fill=fill, stroke=line, width=0.6, radius=1,
                  during=span)  # fmt: skip
    if who is not None and story.reduces:
        reel.text(box.x + 206, y, words.of(len(who), story.n), size=11, font="mono", fill="text",
                  during=span)  # fmt: skip
    x, w = box.x + 268, box.right - 16 - (box.x + 268)
    if message.t_end_ns is None:
        reel.text(x, y, words.NO_END, size=11, fill="muted", during=span)
        return
    reel.rect(x, y - 6, w, 4, fill="track", radius=2, during=span)
    reel.rect(x, y - 6, 0, 4, to=(x, y - 6, w, 4), during=span, ease=False, fill="ink", radius=2,
              z=1)  # fmt: skip


def legend(reel: Reel, view: Cells, box: Box) -> None:
    """Draw whose colour is whose, and the signs."""
    reel.text(box.x + 16, box.y + 20, words.COLOURS, size=11, fill="muted")
    ranks = [place for place in view.story.places if place.rank is not None]
    each = (box.w - 32) / max(len(ranks), 1)
    for k, place in enumerate(ranks):
        x = box.x + 16 + k * each
        put(reel, [patch(x, box.y + 27, each - 4, 7, place.place, radius=2)], 0, 0)
        if each >= 16:
            reel.text(x + (each - 4) / 2, box.y + 46, words.tag(place.rank, place.place), size=10,
                      fill="text", anchor="middle")  # fmt: skip
    look = Look(bars=True, w=9, h=20)
    items = samples(view)
    x, y = box.x + 18, box.y + 55
    pitch = (box.w - 32) / max(len(items), 1)
    for k, (mark, _, who, text) in enumerate(items):
        left = x + k * pitch
        shapes = tile(look, mark or (Mark.OWN if who else Mark.EMPTY), "", who, n=view.n,
                      reduces=view.story.reduces)  # fmt: skip
        put(reel, shapes, left, y)
        if mark is None:
            put(reel, arriving(look), left, y)
        for line, word in enumerate(text.split(" ", 1)):
            at = y + (14 if " " not in text else 8 + 12 * line)
            reel.text(left + 17, at, word, size=11, fill="text")
