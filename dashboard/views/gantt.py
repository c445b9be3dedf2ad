"""The sends of the full view: a row a sender, a bar a message, a playhead."""

from __future__ import annotations

import math
from typing import Any

from ..film import FOREVER, MOTION
from ..reel import Reel
from ..scene import film_s
from ..story import Mark, Message, Story
from ..story.holdings import mark_of
from . import words
from .layout import Box
from .pace import Pace, seen
from .tiles import share_token

HEAD = 34.0  # above the rows
FOOT = 26.0  # below them, for the axis
LEFT = 52.0  # for the senders' names


class Gantt:
    """Draws when each message travelled.

    Args:
        story: The call.
        pace: The film's times, linear in the trace's.
        box: The panel.
    """

    def __init__(self, story: Story, pace: Pace, box: Box) -> None:
        self.story = story
        self.pace = pace
        self.box = box
        self.x0, self.x1 = box.x + LEFT, box.right - 18
        senders = [p.place for p in story.places]
        self.row_h = min(34.0, (box.h - HEAD - FOOT) / max(len(senders), 1))
        self.y = {place: box.y + HEAD + k * self.row_h for k, place in enumerate(senders)}
        self.lanes = _lanes(story)

    def x(self, ns: float) -> float:
        """Return where a trace time lies."""
        share = seen(self.story) * ns / max(self.story.duration_ns, 1)
        return self.x0 + (self.x1 - self.x0) * share

    def draw(self, reel: Reel) -> None:
        """Draw all."""
        reel.text(self.box.x + 18, self.box.y + 21, words.SENDS, size=13, weight=600, fill="ink")
        self._phases(reel)
        self._rows(reel)
        self._axis(reel)
        for number, message in enumerate(self.story.messages):
            if not message.local:
                self._bar(reel, number, message)
        self._playhead(reel)

    def _rows(self, reel: Reel) -> None:
        for place in self.story.places:
            y = self.y[place.place] + self.row_h / 2
            tag = words.tag(place.rank, place.place)
            reel.line(self.x0, y, self.x1, y, stroke="line", width=1, z=-2)
            if self.row_h >= 11:
                reel.text(self.box.x + 18, y + 4, tag, size=11, weight=500, fill="muted")

    def _phases(self, reel: Reel) -> None:
        """Name the phases above the rows, where each begins."""
        story, x = self.story, self.x0
        for k, name in enumerate(story.phases):
            own = [i for i, beat in enumerate(story.steps) if beat.phase == k]
            if not own:
                continue
            start = self.pace.steps[own[0]][0] if k else -FOREVER
            end = self.pace.steps[own[-1]][1] if k < len(story.phases) - 1 else FOREVER
            if k:
                x = self.x(story.steps[own[0]].t_start_ns)
                reel.line(x, self.box.y + 10, x, self.box.bottom - FOOT, stroke="line", width=1,
                          z=-1)  # fmt: skip
            at: dict[str, Any] = {"size": 11}
            label_x, label_y = x + (6 if k else 12), self.box.y + 21
            text = name[:1].lower() + name[1:]
            reel.text(label_x, label_y, text, weight=700, fill="ink", during=(start, end), **at)
            for span in ((-FOREVER, start), (end, FOREVER)):
                reel.text(label_x, label_y, text, fill="muted", during=span, **at)

    def _axis(self, reel: Reel) -> None:
        clock = self.pace.clock
        y = self.box.bottom - FOOT + 16
        reel.text(self.box.x + 18, y, clock.unit, size=11, fill="muted")
        total = self.story.duration_ns / clock.unit_ns
        step = _nice(total / 10) if total else 1.0
        decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step < 1 else 0
        for k in range(int(total / step + 1e-9) + 1):
            x = self.x(k * step * clock.unit_ns)
            if k * step > total + 1e-9 or (k and x > self.x1 - 4):
                break
            text = f"{k * step:.{decimals}f}" if k else "0"
            reel.text(x, y, text, size=11, font="mono", fill="muted",
                      anchor="middle")  # fmt: skip

    def _bar(self, reel: Reel, number: int, message: Message) -> None:
        """Draw a message's bar: still to come, on its way, over."""
        lane, lanes = self.lanes[number]
        inner = self.row_h - min(4.0, 0.2 * self.row_h)
        h = inner / lanes
        y = self.y[message.src] + (self.row_h - inner) / 2 + lane * h
        h = max(h - (1.0 if lanes > 1 else 0.0), 1.5)
        x = self.x(message.t_start_ns)
        open_end = message.t_end_ns is None
        end_ns = message.t_end_ns if message.t_end_ns is not None else self.story.duration_ns
        w = max((self.box.right - 8 if open_end else self.x(end_ns)) - x - 1, 1.5)
        start, end = self.pace.flights[number]
        ref = reel.ref(**words.message_ref(self.story, message))
        reel.pick(x, y, w, h, ref)
        style: dict[str, Any] = {"radius": min(2.5, h / 3)}
        fill = self._fill(message)
        reel.rect(x, y, w, h, fill="track", during=(-FOREVER, start), **style)
        if open_end:
            self._open(reel, (x, y, w, h), start, fill, style)
            return
        reel.rect(x, y, 0, h, to=(x, y, w, h), during=(start, end), ease=False, fill=fill,
                  layer=MOTION, z=1, **style)  # fmt: skip
        reel.rect(x, y, w, h, stroke="ink", width=1.3, during=(start, end), layer=MOTION, z=2,
                  **style)  # fmt: skip
        reel.rect(x, y, w, h, fill=fill, during=(end, FOREVER), **style)
        self._label(reel, message, (x, y, w, h), start, end)

    def _open(
        self,
        reel: Reel,
        box: tuple[float, float, float, float],
        start: float,
        fill: str,
        style: dict[str, Any],
    ) -> None:
        """Draw a bar whose end nobody saw: filled as far as was recorded, open at the edge."""
        x, y, w, h = box
        over = film_s(self.pace.clock, self.pace.clock.ns[-1])
        known = (x, y, max(self.x(self.story.duration_ns) - x, 0.0), h)
        reel.rect(x, y, 0, h, to=known, during=(start, over), ease=False, fill=fill,
                  layer=MOTION, z=1, **style)  # fmt: skip
        reel.rect(*known, fill=fill, during=(max(start, over), FOREVER), **style)
        edge = [(x + w, y), (x, y), (x, y + h), (x + w, y + h)]
        reel.poly(edge, stroke="ink", width=1.3, during=(start, FOREVER), layer=MOTION, z=2)

    def _label(
        self, reel: Reel, message: Message, box: tuple[float, ...], start: float, end: float
    ) -> None:
        x, y, w, h = box
        text = words.chunk(message, brief=True)[1:]
        size = min(10.5, h * 0.82)
        if w < 0.62 * size * len(text) + 4 or size < 7.5:
            return
        common: dict[str, Any] = {"size": size, "font": "mono", "anchor": "middle"}
        at = (x + w / 2, y + h / 2 + 0.36 * size, text)
        reel.text(*at, fill="faint", during=(-FOREVER, start), **common)
        complete = self._mark(message) is Mark.COMPLETE
        reel.text(*at, fill="inverse" if complete else "ink", during=(end, FOREVER), **common)

    def _mark(self, message: Message) -> Mark:
        payload = message.pieces[0].payload
        return mark_of(payload, reduces=self.story.reduces, n=self.story.n)

    def _fill(self, message: Message) -> str:
        """Return a bar's colour: the darker, the more ranks are in it; ink where all are."""
        if self._mark(message) is Mark.COMPLETE:
            return "ink"
        who = message.pieces[0].payload.who
        if who is None or self.story.n <= 2:
            return "fill2"
        return share_token(len(who), self.story.n)

    def _playhead(self, reel: Reel) -> None:
        clock = self.pace.clock
        start, end = film_s(clock, 0), film_s(clock, clock.ns[-1])
        last = self.x(self.story.duration_ns)
        top, bottom = self.box.y + 30, self.box.bottom - FOOT + 2
        for a, b, during in (
            (self.x0, self.x0, (-FOREVER, start)),
            (self.x0, last, (start, end)),
            (last, last, (end, FOREVER)),
        ):
            style: dict[str, Any] = {"during": during, "ease": False, "layer": MOTION, "z": 4}
            reel.line(a, top, a, bottom, to=(b, top, b, bottom), stroke="ink", width=1.6, **style)
            flag = [(-5.0, 0.0), (5.0, 0.0), (0.0, 7.0)]
            reel.poly(flag, offset=(a, top - 6), to=(b, top - 6), fill="ink", **style)


def _nice(step: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `step`."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(k * power for k in (1, 2, 5, 10) if k * power >= step * 0.999)


def _lanes(story: Story) -> dict[int, tuple[int, int]]:
    """Return (lane, lanes) of each message: those of a sender that overlap share its row."""
    out: dict[int, tuple[int, int]] = {}
    for place in story.places:
        mine = [k for k, m in enumerate(story.messages) if m.src == place.place and not m.local]
        mine.sort(key=lambda k: story.messages[k].t_start_ns)
        ends: list[int] = []
        lanes = {}
        for k in mine:
            message = story.messages[k]
            end = message.t_end_ns if message.t_end_ns is not None else story.duration_ns + 1
            free = [i for i, until in enumerate(ends) if until <= message.t_start_ns]
            lane = free[0] if free else len(ends)
            ends[lane : lane + 1] = [end]
            lanes[k] = lane
        out |= {k: (lane, max(len(ends), 1)) for k, lane in lanes.items()}
    return out
