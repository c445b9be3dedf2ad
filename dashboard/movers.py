"""Ways and the messages on them, and the sum that an arrival makes."""

from __future__ import annotations

import math
from itertools import pairwise

from . import words
from .cellview import Cells
from .film import FOREVER
from .layout import AIR, Layout, Point, along, lengths
from .reel import Reel, Span
from .story import Message
from .tiles import Shape, arrowhead, put

HEAD = 15.0  # length of an arrowhead
# Weight and ink of signs, operands and the result.
_STRENGTHS = ((500, "muted"), (500, "text"), (800, "ink"))


class Movers:
    """Draws the ways and what moves on them.

    Args:
        view: How cells look.
        layout: Where ranks are.
        lifts: Whether a message lifts out of its cell, as in a tree, where rows are near.
    """

    def __init__(self, view: Cells, layout: Layout, *, lifts: bool) -> None:
        self.view = view
        self.layout = layout
        self.lifts = lifts

    def draw(self, reel: Reel) -> None:
        """Draw all ways, messages and sums."""
        for link in self.view.story.links():
            self._way(reel, *link)
        told: set[tuple[int, int]] = set()
        for number, message in enumerate(self.view.story.messages):
            if message.local:
                continue
            self._message(reel, number, message)
            if message.reduces and (message.dst, message.step) not in told:
                told.add((message.dst, message.step))
                self._sum(reel, number, message)

    def _spans(self, src: int, dst: int) -> list[Span]:
        """Return when a way is busy."""
        flights = zip(self.view.pace.flights, self.view.story.messages, strict=True)
        return sorted(f for f, m in flights if (m.src, m.dst) == (src, dst))

    def _shown(self, src: int, dst: int) -> Span:
        """Return when a way is drawn: where both directions use it in turn, each in its time."""
        story, pace = self.view.story, self.view.pace
        if not self.lifts or not story.phases:
            return -FOREVER, FOREVER
        turn = next(k for k, beat in enumerate(story.steps) if beat.phase == 1)
        copies = not any(m.reduces for m in story.messages if (m.src, m.dst) == (src, dst))
        at = pace.steps[turn][0]
        return (at, FOREVER) if copies else (-FOREVER, at)

    def _way(self, reel: Reel, src: int, dst: int) -> None:
        """Draw a way in grey, with a head that turns to ink while something is on it."""
        points = self.layout.routes[src, dst]
        since, until = self._shown(src, dst)
        shaft = along(points, 0, HEAD * 0.7)
        always = since <= -FOREVER and until >= FOREVER
        during = None if always else (since, until)
        for a, b in pairwise(shaft):
            reel.line(*a, *b, stroke="link", width=3, z=-2, during=during)
        (ax, ay), (bx, by) = points[-2], points[-1]
        length = math.hypot(bx - ax, by - ay) or 1.0
        way = ((bx - ax) / length, (by - ay) / length)
        times = [since]
        for start, end in self._spans(src, dst):
            put(reel, [arrowhead(*way, "link")], bx, by, during=(times[-1], start), z=-1)
            put(reel, [arrowhead(*way, "ink")], bx, by, during=(start, end), z=-1)
            times.append(end)
        put(reel, [arrowhead(*way, "link")], bx, by, during=(times[-1], until), z=-1)

    def _ends(self, message: Message, w: float, h: float) -> tuple[Point, ...]:
        """Return the way of a message's middle: from the sender's edge to before the arrowhead."""
        points = self.layout.routes[message.src, message.dst]
        first, last = _reach(points[0], points[1], w, h), _reach(points[-2], points[-1], w, h)
        way = along(points, 0 if self.lifts else first, last + HEAD + 3)
        if self.lifts:
            spot = self.layout.spots[message.src]
            k = self._cell_number(message)
            x, y = self.view.corner(spot, k, False)
            way = ((x + self.view.look.w / 2, y + self.view.look.h / 2), points[0], way[-1])
        return way

    def _cell_number(self, message: Message) -> int:
        slots = [cell.slot for cell in self.view.story.places[message.src].cells]
        slot = message.pieces[0].src_slot
        return slots.index(slot) if slot in slots else 0

    def _message(self, reel: Reel, number: int, message: Message) -> None:
        start, end = self.view.pace.flights[number]
        shapes, w, h = self.view.token(message)
        way = self._ends(message, w, h)
        if message.t_end_ns is None:
            # Nobody saw it arrive: it stays half way.
            way = (way[0], _between(way[0], way[-1], 0.5))
        ref = reel.ref(
            kind="message", send=message.send, recv=message.recv, reduce=message.reduce,
            src=self._rank(message.src), dst=self._rank(message.dst),
            chunk=message.pieces[0].payload.chunk, slot=message.pieces[0].dst_slot,
            step=message.step,
        )  # fmt: skip
        stops = lengths(way)
        total = sum(stops) or 1.0
        flight = end - start if message.t_end_ns is not None else 1.0
        lift = 0.15 if self.lifts and len(stops) > 1 else 0.0
        at, begin, now = 0.0, way[0], start
        tail = self.layout.routes[message.src, message.dst][0]
        for goal, length in zip(way[1:], stops, strict=True):
            lifting = lift > 0 and not at
            share = lift if lifting else (1 - lift) * length / (total - (stops[0] if lift else 0))
            span = (now, now + flight * share)
            self._leg(reel, shapes, (w, h), begin, goal, None if lifting else tail, span,
                      len(stops) == 1, ref)  # fmt: skip
            if not lifting:
                tail_span = (span[1], end)
                reel.line(*tail, *goal, stroke="ink", width=4, during=tail_span, z=1, layer=2)
                tail = goal
            at, begin, now = at + length, goal, span[1]
        if message.t_end_ns is None:
            self._leg(reel, shapes, (w, h), begin, begin, tail, (start + 1.0, end), False, ref)
            reel.line(*way[0], *begin, stroke="ink", width=4, during=(start + 1.0, end), layer=2)
        if self.view.look.bars:
            self._label(reel, message, way, (w, h), (start, end))

    def _rank(self, place: int) -> int | None:
        return self.view.story.places[place].rank

    def _leg(
        self,
        reel: Reel,
        shapes: list[Shape],
        size: tuple[float, float],
        begin: Point,
        goal: Point,
        tail: Point | None,
        span: Span,
        ease: bool,
        ref: int,
    ) -> None:
        """Draw a message on a straight piece of its way, with the trail behind it."""
        w, h = size
        a, b = (begin[0] - w / 2, begin[1] - h / 2), (goal[0] - w / 2, goal[1] - h / 2)
        put(reel, shapes, *a, to=b, during=span, ease=ease, z=2)
        reel.pick(*a, w, h, ref, to=(*b, w, h), during=span, ease=ease)
        if tail is not None:
            reel.line(*tail, *begin, to=(*tail, *goal), stroke="ink", width=4, during=span,
                      ease=ease, z=1)  # fmt: skip

    def _label(
        self, reel: Reel, message: Message, way: tuple[Point, ...], size: Point, span: Span
    ) -> None:
        """Write which chunk a barcode on its way is: above it, or beside where it goes upright."""
        if len(message.pieces) == 1:
            piece = message.pieces[0]
            chunk = piece.payload.chunk
            text = f"chunk {piece.dst_slot if chunk is None else chunk}"
        else:
            text = f"{len(message.pieces)} chunks"
        (ax, ay), (bx, by) = way[0], way[-1]
        w, h = size
        style = {"size": 18, "weight": 600, "fill": "ink", "z": 3}
        if abs(by - ay) < abs(bx - ax):
            reel.text(ax, ay - h / 2 - 10, text, to=(bx, by - h / 2 - 10), during=span,
                      anchor="middle", **style)  # fmt: skip
            return
        right = ax < 640
        shift = w / 2 + 12 if right else -w / 2 - 12
        reel.text(ax + shift, ay + 6, text, to=(bx + shift, by + 6), during=span,
                  anchor="start" if right else "end", **style)  # fmt: skip

    def _sum(self, reel: Reel, number: int, message: Message) -> None:
        """Write arriving + own = result, from 40 % of the flight until the step is over."""
        view = self.view
        piece = message.pieces[0]
        if not view.numbers or not (piece.payload.values and piece.before.values):
            return
        start, end = view.pace.flights[number]
        during = (start + 0.4 * (end - start), view.pace.steps[message.step][1])
        spot = self.layout.spots[message.dst]
        for digits in (view.look.digits, 4, 3):
            texts = [view.text(c, digits) for c in (piece.payload, piece.before, piece.after)]
            pieces = words.total(view.story.op, texts[:2], texts[2])
            em = sum(width for _, width, _ in pieces)
            x, y, size, anchor = view.sum_place(spot, em)
            if size >= 18:
                break
        size = max(size, 14.0)
        left = x - em * size if anchor == "end" else x
        for text, width, strong in pieces:
            weight, ink = _STRENGTHS[strong]
            reel.text(left + width * size / 2, y, text, font="mono", size=size, anchor="middle",
                      during=during, weight=weight, fill=ink)  # fmt: skip
            left += width * size


def _reach(a: Point, b: Point, w: float, h: float) -> float:
    """Return how far from its middle the edge of a box lies, in the direction from a to b."""
    length = math.hypot(b[0] - a[0], b[1] - a[1]) or 1.0
    dx, dy = abs(b[0] - a[0]) / length, abs(b[1] - a[1]) / length
    return min(w / 2 / dx if dx > 1e-9 else math.inf, h / 2 / dy if dy > 1e-9 else math.inf) + AIR


def _between(a: Point, b: Point, share: float) -> Point:
    return a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share
