"""Ways and the messages on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ..film import FOREVER, MOTION
from ..reel import Reel, Span
from ..story import Message, Story
from . import words
from .cellview import Cells
from .layout import AIR, Layout, Point, along, lengths
from .metrics import text_width
from .sums import Sums
from .tiles import Shape, arrowhead, patch, put
from .timing import shared

# Begin, end and time of a straight piece of a way, and whether the motion is eased.
Leg = tuple[Point, Point, Span, bool]


@dataclass(frozen=True, slots=True)
class Pen:
    """Sizes of ways and messages.

    Attributes:
        head: Length of an arrowhead.
        link: Width of a way.
        trail: Width of the line behind a message.
        label: Size of a barcode's name on its way.
        short: Whether that name is c5 instead of chunk 5.
        idle: Colour of a way.
    """

    head: float = 15.0
    link: float = 3.0
    trail: float = 4.0
    label: float = 18.0
    short: bool = False
    idle: str = "link"


# So many messages of one step go side by side on one way; more are one bundle.
MOST_BESIDE = 2


class Movers:
    """Draws the ways and what moves on them.

    Args:
        view: How cells look.
        layout: Where ranks are.
        lifts: Whether a message lifts out of its cell, as in a tree, where rows are near.
        pen: Sizes of lines.
        dashed: Ways that are drawn dashed.
        dots: Messages that are drawn as dots.
    """

    def __init__(
        self,
        view: Cells,
        layout: Layout,
        *,
        lifts: bool,
        pen: Pen | None = None,
        dashed: frozenset[tuple[int, int]] = frozenset(),
        dots: frozenset[int] = frozenset(),
    ) -> None:
        self.view = view
        self.pen = pen or Pen()
        self.names_inside = view.names_inside
        self.labels = view.look.bars and view.has_chunks and not self.names_inside
        self.dots = dots
        self.trail: dict[str, Any] = {"stroke": "ink", "width": self.pen.trail}
        self.dashed = dashed
        self.layout = layout
        self.lifts = lifts
        self.bundles = _bundles(view.story)
        self.beside = set() if lifts or layout.ways else self._second()

    def _second(self) -> set[int]:
        """Return the messages that set out while another one is on their way: they go beside it."""
        second: set[int] = set()
        busy: dict[tuple[int, int], tuple[float, int]] = {}
        flights = sorted((f, k) for k, f in enumerate(self.view.pace.flights))
        for (start, end), k in flights:
            message = self.view.story.messages[k]
            if k not in self.bundles:
                continue
            way = (message.src, message.dst)
            until, other = busy.get(way, (start, k))
            if start < until and other not in second:
                second.add(k)
            busy[way] = (max(end, until), k)
        return second

    def draw(self, reel: Reel) -> None:
        """Draw all ways, messages and sums."""
        if self.layout.ways:
            self._step_ways(reel)
        else:
            for link in self.view.story.links():
                self._way(reel, *link)
        for number, message in self.bundles.items():
            if number in self.dots:
                self._dot(reel, number, message)
            else:
                self._message(reel, number, message)
        Sums(self.view, self.layout).draw(reel)

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
        """Draw the way of a link, all the time or while it is used in this direction."""
        dash = (6.0, 4.0) if (src, dst) in self.dashed else ()
        points, shown = self.layout.routes[src, dst], self._shown(src, dst)
        jumps = (src, dst) in self.layout.jumps
        self._arrow(reel, points, shown, self._spans(src, dst), dash, jumps)

    def _step_ways(self, reel: Reel) -> None:
        """Draw each message's own way while its step is on; those of the first from the start."""
        steps = self.view.pace.steps
        for number, points in self.layout.ways.items():
            if number in self.dots or number not in self.bundles:
                continue
            step = self.view.story.messages[number].step
            flight = self._flight(number)
            since = min(steps[step][0], flight[0]) if step else -FOREVER
            shown = (since, max(steps[step][1], flight[1]))
            self._arrow(reel, points, shown, [flight], ())

    def _flight(self, number: int) -> Span:
        """Return when a message is under way: in all of its flight, or in a share of it."""
        return shared(self.view.pace.flights[number], self.layout.spans.get(number, (0.0, 1.0)))

    def _arrow(
        self,
        reel: Reel,
        points: Sequence[Point],
        shown: Span,
        spans: Sequence[Span],
        dash: tuple[float, ...],
        jumps: bool = False,
    ) -> None:
        """Draw a way in grey, with a head that turns to ink while something is on it."""
        since, until = shown
        shaft = along(points, 0, self.pen.head * 0.7)
        always = since <= -FOREVER and until >= FOREVER
        during = None if always else shown
        for k, (a, b) in enumerate(pairwise(shaft)):
            if jumps and k == 1:
                continue
            reel.line(*a, *b, stroke=self.pen.idle, width=self.pen.link, z=-2, during=during,
                      dash=dash)  # fmt: skip
        (ax, ay), (bx, by) = points[-2], points[-1]
        length = math.hypot(bx - ax, by - ay) or 1.0
        way = ((bx - ax) / length, (by - ay) / length)
        times = [since]
        for start, end in spans:
            put(reel, [self._head(way, self.pen.idle)], bx, by, during=(times[-1], start), z=-1)
            put(reel, [self._head(way, "ink")], bx, by, during=(start, end), z=-1)
            times.append(end)
        put(reel, [self._head(way, self.pen.idle)], bx, by, during=(times[-1], until), z=-1)

    def _head(self, way: Point, ink: str) -> Shape:
        long = self.pen.head
        return arrowhead(*way, ink, long=long, wide=long * 16 / 15)

    def _points(self, number: int) -> tuple[Point, ...]:
        """Return the corners of a message's way, from edge to edge."""
        if number in self.layout.ways:
            return self.layout.ways[number]
        message = self.view.story.messages[number]
        return self.layout.routes[message.src, message.dst]

    def _ends(self, number: int, message: Message, w: float, h: float) -> tuple[Point, ...]:
        """Return the way of a message's middle: from the sender's edge to before the arrowhead."""
        points = self._points(number)
        first, last = _reach(points[0], points[1], w, h), _reach(points[-2], points[-1], w, h)
        last += self.pen.head + 3
        if (message.src, message.dst) in self.layout.jumps:
            return *along(points[:2], first, 0), *along(points[2:], 0, last)
        way = along(points, 0 if self.lifts else first, last)
        if self.lifts:
            spot = self.layout.spots[message.src]
            k = self._cell_number(message)
            x, y = self.view.corner(spot, k, self.view.framed)
            way = ((x + self.view.look.w / 2, y + self.view.look.h / 2), points[0], way[-1])
        return way

    def _is_upright(self, message: Message) -> bool:
        route = self.layout.routes[message.src, message.dst]
        return abs(route[-1][1] - route[0][1]) >= abs(route[-1][0] - route[0][0])

    def _aside(self, message: Message, way: tuple[Point, ...], size: Point) -> tuple[Point, ...]:
        """Return a way moved away from the label of the message that is on it already."""
        w, h = size
        dx, dy = 0.0, 0.7 * h  # there is no room for a whole one
        if self._is_upright(message):
            dx, dy = (-w - 8 if way[0][0] < self.view.middle_x else w + 8), 0.0
        return tuple((x + dx, y + dy) for x, y in way)

    def _cell_number(self, message: Message) -> int:
        slots = [cell.slot for cell in self.view.story.places[message.src].cells]
        slot = message.pieces[0].src_slot
        return slots.index(slot) if slot in slots else 0

    def _message(self, reel: Reel, number: int, message: Message) -> None:
        """Draw a message on its way: its cell in an ink frame, a trail behind it."""
        start, end = self._flight(number)
        name = self.view.name_of(message) if self.names_inside else ""
        shapes, w, h = self.view.token(message, name)
        way = self._ends(number, message, w, h)
        is_beside = number in self.beside
        if is_beside:
            way = self._aside(message, way, (w, h))
        over = end
        if message.t_end_ns is None:
            # Nobody saw it arrive: it stays half way.
            way = (way[0], _between(way[0], way[-1], 0.5))
            over = start + min(1.0, (end - start) / 2)
        ref = reel.ref(**words.message_ref(self.view.story, message))
        tail = self._points(number)[0]
        lifts = self.lifts and len(way) > 2
        jumps = (message.src, message.dst) in self.layout.jumps
        for k, (begin, goal, span) in enumerate(_legs(way, (start, over), lifts, jumps)):
            lifting = lifts and k == 0
            leg = (begin, goal, span, len(way) == 2)
            fades = (1.0, 1.0) if not jumps else (1.0, 0.0) if k == 0 else (0.0, 1.0)
            if jumps and k == 1:
                tail = way[-2]
            behind = None if lifting or is_beside else tail
            self._leg(reel, shapes, (w, h), leg, behind, ref, fades)
            if self.labels:
                self._label(reel, message, (w, h), leg, is_beside)
            if not lifting and not is_beside:
                during = (span[1], end)
                reel.line(*tail, *goal, during=during, z=1, layer=MOTION, **self.trail)
                tail = goal
        if over < end:
            leg = (way[-1], way[-1], (over, end), False)
            self._leg(reel, shapes, (w, h), leg, None, ref)
            if self.labels:
                self._label(reel, message, (w, h), leg, is_beside)

    def _dot(self, reel: Reel, number: int, message: Message) -> None:
        """Draw a message that is not to be read: a dot in its sender's colour."""
        way = along(self._points(number), 6, 8)
        for (ax, ay), (bx, by), span in _legs(way, self._flight(number), lifts=False):
            put(reel, [patch(-6, -6, 12, 12, message.src, radius=6)], ax, ay, to=(bx, by),
                during=span, ease=False, z=1)  # fmt: skip

    def _leg(
        self,
        reel: Reel,
        shapes: list[Shape],
        size: Point,
        leg: Leg,
        tail: Point | None,
        ref: int,
        fades: Span = (1.0, 1.0),
    ) -> None:
        """Draw a message on a straight piece of its way, with the trail behind it."""
        begin, goal, span, ease = leg
        w, h = size
        a, b = (begin[0] - w / 2, begin[1] - h / 2), (goal[0] - w / 2, goal[1] - h / 2)
        put(reel, shapes, *a, to=b, during=span, ease=ease, opacity=fades, z=2)
        reel.pick(*a, w, h, ref, to=(*b, w, h), during=span, ease=ease)
        if tail is not None:
            reel.line(*tail, *begin, to=(*tail, *goal), during=span, ease=ease, z=1, **self.trail)

    def _label(self, reel: Reel, message: Message, box: Point, leg: Leg, is_beside: bool) -> None:
        """Write which chunk a barcode on its way is: above it, or beside where it goes upright."""
        (ax, ay), (bx, by), span, ease = leg
        size = self.pen.label
        text = words.chunk(message, brief=self.pen.short)
        w, h = box
        route = self.layout.routes[message.src, message.dst]
        style: dict[str, Any] = {"size": size, "weight": 600, "fill": "ink", "z": 3,
                                 "during": span, "ease": ease}  # fmt: skip
        is_upright = self._is_upright(message)
        if not is_upright and not self.lifts and not is_beside:
            up = h / 2 + 0.55 * size
            if bx < ax and (message.dst, message.src) in self.layout.routes:
                up = -h / 2 - 1.15 * size  # the other way runs above
            # It stays between the cards, whose names it would cover.
            low, high = sorted((route[0][0], route[-1][0]))
            half = text_width(text, size, 600) / 2
            if 2 * half > high - low:
                return
            ax, bx = (min(max(x, low + half), high - half) for x in (ax, bx))
            reel.text(ax, ay - up, text, to=(bx, by - up), anchor="middle", **style)
            return
        right = (ax < self.view.middle_x) is not (is_beside and is_upright)
        shift = w / 2 + 0.66 * size if right else -w / 2 - 0.66 * size
        down = size / 3
        reel.text(ax + shift, ay + down, text, to=(bx + shift, by + down),
                  anchor="start" if right else "end", **style)  # fmt: skip


def _bundles(story: Story) -> dict[int, Message]:
    """Return the messages to draw: many that one rank sends another in one step are one."""
    together: dict[tuple[int, int, int], list[int]] = {}
    for number, message in enumerate(story.messages):
        if not message.local:
            together.setdefault((message.step, message.src, message.dst), []).append(number)
    found = {}
    for numbers in together.values():
        if len(numbers) > MOST_BESIDE:
            pieces = [piece for m in numbers for piece in story.messages[m].pieces]
            numbers = [numbers[0]]
            found[numbers[0]] = replace(story.messages[numbers[0]], pieces=tuple(pieces))
        else:
            found |= {m: story.messages[m] for m in numbers}
    return dict(sorted(found.items()))


def _legs(
    way: Sequence[Point], span: Span, lifts: bool, jumps: bool = False
) -> Iterator[tuple[Point, Point, Span]]:
    """Yield the straight pieces of a way and when each is travelled, at an even pace.

    Where it lifts out of its cell first, that takes a short share whatever the distance. Where it
    jumps, its outer pieces take half of the time each.
    """
    if jumps:
        middle = (span[0] + span[1]) / 2
        yield way[-4], way[-3], (span[0], middle)
        yield way[-2], way[-1], (middle, span[1])
        return
    stops = lengths(way)
    lift = 0.15 if lifts else 0.0
    rest = sum(stops[1:] if lifts else stops) or 1.0
    now = span[0]
    for k, length in enumerate(stops):
        share = lift if lifts and k == 0 else (1 - lift) * length / rest
        end = span[1] if k == len(stops) - 1 else now + (span[1] - span[0]) * share
        yield way[k], way[k + 1], (now, end)
        now = end


def _reach(a: Point, b: Point, w: float, h: float) -> float:
    """Return how far from its middle the edge of a box lies, in the direction from a to b."""
    length = math.hypot(b[0] - a[0], b[1] - a[1]) or 1.0
    dx, dy = abs(b[0] - a[0]) / length, abs(b[1] - a[1]) / length
    return min(w / 2 / dx if dx > 1e-9 else math.inf, h / 2 / dy if dy > 1e-9 else math.inf) + AIR


def _between(a: Point, b: Point, share: float) -> Point:
    return a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share
