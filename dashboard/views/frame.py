"""What stands around the stage: title, progress, badge, phase, sentence and the control bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ..film import FOREVER, MOTION, Film, Step
from ..reel import Reel
from ..scene import format_ns
from ..story import Story
from . import words
from .metrics import text_width
from .pace import Pace

W, H = 1280, 720
LEFT, RIGHT = 24, 1256
STAGE = (24, 124, 1232, 488)
# More steps than this show as one piece of the scrubber a phase.
MOST_PIECES = 32


@dataclass(frozen=True, slots=True)
class BarForm:
    """Sizes of a control bar: one for talks, and a lower one for the full view."""

    box: tuple[float, float, float, float]
    small: float  # radius of the step buttons
    large: float  # radius of the play button
    back_x: float
    play_x: float
    forward_x: float
    track_x: float
    track_w: float
    track_y: float
    track_h: float
    label_y: float
    font: float
    time_x: float
    speed: tuple[float, float, float, float]

    @property
    def middle(self) -> float:
        """Height of the buttons' middle."""
        return self.box[1] + self.box[3] / 2


TALK = BarForm((24, 624, 1232, 80), 22, 28, 70, 130, 190, 248, 722, 649, 10, 690, 18, 1152,
               (1172, 644, 68, 40))  # fmt: skip
LOW = BarForm((24, 656, 1232, 52), 15, 19, 54, 94, 134, 176, 818, 672, 7, 697, 13, 1160,
              (1178, 667, 60, 30))  # fmt: skip


def ground(reel: Reel) -> None:
    """Draw the ground of the frame."""
    reel.panel("frame", 0, 0, W, H)
    reel.rect(0, 0, W, H, fill="bg", z=-9)


def plate(
    reel: Reel, name: str, x: float, y: float, w: float, h: float, radius: float = 12
) -> None:
    """Begin a panel and draw its plate."""
    reel.panel(name, x, y, w, h)
    reel.rect(x + 0.5, y + 0.5, w - 1, h - 1, fill="panel", stroke="line", width=1, radius=radius,
              z=-8)  # fmt: skip


def badge(reel: Reel, story: Story, right: float, y: float, *, h: float = 38) -> float:
    """Draw how the trace is known; return its left edge.

    Recorded is a solid outline with a filled dot, simulated a dashed one with a hollow dot.
    """
    size = 18 * h / 38
    text = words.badge(story)
    w = text_width(text, size) + 1.66 * h
    x = right - w
    made_up = story.provenance in ("simulated", "imported")
    reel.rect(x + 0.75, y + 0.75, w - 1.5, h - 1.5, stroke="muted", width=1.5, radius=h / 2,
              dash=(6, 4) if made_up else ())  # fmt: skip
    dot, cx, cy = 0.16 * h, x + 0.62 * h, y + h / 2
    if made_up:
        reel.rect(cx - dot + 1, cy - dot + 1, 2 * dot - 2, 2 * dot - 2, stroke="text", width=2,
                  radius=dot)  # fmt: skip
    else:
        reel.rect(cx - dot, cy - dot, 2 * dot, 2 * dot, fill="text", radius=dot)
    reel.text(x + h, y + h / 2 + 0.36 * size, text, size=size, weight=500, fill="text")
    return x


def header(reel: Reel, story: Story, progress: Sequence[tuple[str, float, float]]) -> None:
    """Draw title, badge and the one figure of progress: (text, from, to) in film seconds."""
    reel.panel("header", LEFT, 24, RIGHT - LEFT, 38)
    left = badge(reel, story, RIGHT, 24)
    room = left - 28 - max((text_width(text, 26, 700) for text, _, _ in progress), default=0) - 24
    title = words.title(story)
    size = 32.0
    while text_width(title, size, 700) > room - LEFT and size > 20:
        size -= 1
    reel.text(LEFT, 54.5, title, size=size, weight=700, fill="ink")
    for text, start, end in progress:
        reel.text(left - 28, 52, text, size=26, weight=700, fill="ink", anchor="end",
                  during=(start, end))  # fmt: skip


def caption(
    reel: Reel,
    phases: Sequence[tuple[str, float, float]],
    sentences: Sequence[tuple[str, float, float]],
) -> None:
    """Draw the phase's chip and the sentence, each with the film seconds in which it shows."""
    reel.panel("caption", LEFT, 72, RIGHT - LEFT, 40)
    for text, start, end in phases:
        during = (start, end)
        reel.rect(LEFT, 72, 196, 40, fill="ink", radius=8, during=during)
        reel.text(LEFT + 98, 99.8, text, size=22, weight=700, fill="inverse", anchor="middle",
                  during=during, z=1)  # fmt: skip
    x = LEFT + 214 if phases else LEFT
    for text, start, end in sentences:
        size = 24.0
        while text_width(text, size) > RIGHT - x and size > 18:
            size -= 0.5
        reel.text(x, 100.5, text, size=size, weight=500, fill="text", during=(start, end))


def bar(
    reel: Reel,
    pace: Pace,
    pieces: Sequence[tuple[float, float, int]],
    labels: Sequence[str],
    *,
    ends: tuple[str, str] | None = None,
    form: BarForm = TALK,
) -> None:
    """Draw the control bar.

    Args:
        reel: Where to draw.
        pace: The film's times.
        pieces: Start and end in film seconds and phase of each piece of the scrubber.
        labels: Name of each phase, written below.
        ends: Words below the two ends instead, where there is nothing in between.
        form: Sizes.
    """
    plate(reel, "bar", *form.box)
    _buttons(reel, pace, form)
    boxes = _pieces([phase for _, _, phase in pieces], form)
    reel.pick(form.track_x, form.track_y - 12, form.track_w, 34, reel.ref(action="scrub"))
    y, h = form.track_y, form.track_h
    for (x, w), (start, end, _) in zip(boxes, pieces, strict=True):
        reel.rect(x, y, w, h, fill="slot", radius=3)
        full: dict[str, Any] = {"fill": "ink", "radius": 3, "z": 1}
        reel.rect(x, y, 0, h, to=(x, y, w, h), during=(start, end), ease=False, **full)
        reel.rect(x, y, w, h, during=(end, FOREVER), **full)
        _knob(reel, form, x, x + w, (start, end))
    first, last = boxes[0], boxes[-1]
    _knob(reel, form, first[0], first[0], (-FOREVER, pieces[0][0]))
    _knob(reel, form, last[0] + last[1], last[0] + last[1], (pieces[-1][1], FOREVER))
    for (_, before, _), (start, _, _), (x, _) in zip(pieces, pieces[1:], boxes[1:], strict=False):
        _knob(reel, form, x, x, (before, start))
    _labels(reel, form, pieces, boxes, labels, ends)
    total = format_ns(pace.clock.ns[-1], pace.clock)
    reel.text(form.time_x, form.middle + 0.37 * form.font, f"{{}} / {total} {pace.clock.unit}",
              size=form.font, weight=600, font="mono", fill="text", anchor="end",
              clock=True)  # fmt: skip
    _speed(reel, form)


def _speed(reel: Reel, form: BarForm) -> None:
    x, y, w, h = form.speed
    size = h / 2
    reel.rect(x + 0.75, y + 0.75, w - 1.5, h - 1.5, stroke="card_edge", width=1.5, radius=h * 0.22)
    reel.text(x + 0.24 * w, form.middle + 0.35 * size, "1×", size=size, weight=700, fill="ink")
    cx, cy, r = x + 0.77 * w, form.middle, 0.15 * h
    reel.poly([(cx - r, cy - r / 2), (cx + r, cy - r / 2), (cx, cy + 0.7 * r)], fill="muted")
    reel.pick(x, y, w, h, reel.ref(action="speed"))


def _pieces(phases: Sequence[int], form: BarForm) -> list[tuple[float, float]]:
    """Return x and width of each piece: 3 px apart, 14 between phases."""
    gaps = [0, *(14 if a != b else 3 for a, b in pairwise(phases))]
    w = (form.track_w - sum(gaps)) / len(phases)
    out, x = [], form.track_x
    for gap in gaps:
        x += gap
        out.append((x, w))
        x += w
    return out


def _knob(reel: Reel, form: BarForm, x1: float, x2: float, during: tuple[float, float]) -> None:
    y, size = form.track_y + form.track_h / 2, form.track_h
    for r, fill, z in ((1.4 * size, "panel", 2), (1.1 * size, "ink", 3)):
        box, end = (x1 - r, y - r, 2 * r, 2 * r), (x2 - r, y - r, 2 * r, 2 * r)
        reel.rect(*box, to=end if x1 != x2 else None, during=during, ease=False, fill=fill,
                  radius=r, z=z, layer=MOTION)  # fmt: skip


def _labels(
    reel: Reel,
    form: BarForm,
    pieces: Sequence[tuple[float, float, int]],
    boxes: Sequence[tuple[float, float]],
    labels: Sequence[str],
    ends: tuple[str, str] | None,
) -> None:
    """Write the phases' names below the scrubber, the active one in ink."""
    if ends is not None:
        over = pieces[-1][1]
        x2 = boxes[-1][0] + boxes[-1][1]
        _label(reel, form, form.track_x, ends[0], "start", (-FOREVER, over))
        _label(reel, form, x2, ends[1], "end", (over, FOREVER))
        return
    for k, label in enumerate(labels):
        own = [i for i, piece in enumerate(pieces) if piece[2] == k]
        if not own:
            continue
        start = pieces[own[0]][0] if k else -FOREVER
        end = pieces[own[-1]][1] if k < len(labels) - 1 else FOREVER
        text = label[:1].lower() + label[1:]
        _label(reel, form, boxes[own[0]][0], text, "start", (start, end))


def _label(
    reel: Reel, form: BarForm, x: float, text: str, anchor: str, active: tuple[float, float]
) -> None:
    common: dict[str, Any] = {"size": form.font, "anchor": anchor}
    y = form.label_y
    reel.text(x, y, text, weight=700, fill="ink", during=active, **common)
    if active[0] > -FOREVER:
        reel.text(x, y, text, weight=400, fill="muted", during=(-FOREVER, active[0]), **common)
    if active[1] < FOREVER:
        reel.text(x, y, text, weight=400, fill="muted", during=(active[1], FOREVER), **common)


def _buttons(reel: Reel, pace: Pace, form: BarForm) -> None:
    """Draw step back, play or pause, step forward."""
    cy = form.middle
    going, over = (-FOREVER, pace.end_s), (pace.end_s, FOREVER)
    for cx, r, action in (
        (form.back_x, form.small, "back"),
        (form.forward_x, form.small, "forward"),
        (form.play_x, form.large, "play"),
    ):
        look: dict[str, Any] = (
            {"fill": "ink"} if action == "play" else {"stroke": "card_edge", "width": 1.5}
        )
        reel.rect(cx - r, cy - r, 2 * r, 2 * r, radius=r, **look)
        reel.pick(cx - r, cy - r, 2 * r, 2 * r, reel.ref(action=action))
    scale = form.small / 22
    _skip(reel, form.back_x, cy, -1, scale, "ink", None)
    _skip(reel, form.forward_x, cy, 1, scale, "ink", going)
    _skip(reel, form.forward_x, cy, 1, scale, "hollow", over)
    cx, u = form.play_x, form.large / 28
    for x in (-10, 3):
        reel.rect(cx + x * u, cy - 11 * u, 7 * u, 22 * u, fill="inverse", radius=1.5 * u,
                  during=going, z=1)  # fmt: skip
    reel.poly([(cx - 8 * u, cy - 13 * u), (cx + 15 * u, cy), (cx - 8 * u, cy + 13 * u)],
              fill="inverse", during=over, z=1)  # fmt: skip


def _skip(
    reel: Reel,
    cx: float,
    cy: float,
    way: int,
    scale: float,
    ink: str,
    during: tuple[float, float] | None,
) -> None:
    tip, back, half = cx + way * 7 * scale, cx - way * 8 * scale, 9.5 * scale
    reel.poly([(back, cy - half), (tip, cy), (back, cy + half)], fill=ink, during=during)
    w = 3.5 * scale
    reel.rect(tip - w / 2 + way * 0.5, cy - half, w, 2 * half, fill=ink, radius=1, during=during)


def step_name(story: Story, k: int) -> str:
    """Return a step's number as people count."""
    return f"Step {k + 1} of {len(story.steps)}"


def film(
    reel: Reel, view: str, story: Story, pace: Pace, told: Sequence[str], **about: Any
) -> Film:
    """Return the film of a view that is drawn.

    Args:
        reel: What was drawn.
        view: Name of the view.
        story: What it tells.
        pace: How its time runs.
        told: A sentence a step.
        about: More for `meta`.
    """
    beats = zip(pace.steps, story.steps, told, strict=True)
    return reel.film(
        size=(W, H),
        view=view,
        duration_s=pace.duration_s,
        steps=[
            Step(start, end, step_name(story, k), beat.phase, text)
            for k, ((start, end), beat, text) in enumerate(beats)
        ],
        phases=story.phases,
        clock=pace.clock,
        meta=meta(story, **about),
    )


def meta(story: Story, **more: Any) -> dict[str, Any]:
    """Return what the page is told about a film."""
    return {
        "title": words.title(story),
        "badge": words.badge(story),
        "provenance": story.provenance,
        "ranks": [place.rank for place in story.places if place.rank is not None],
        "duration_ns": story.duration_ns,
        "calls": [
            {"collective": call.collective, "coll_seq": call.coll_seq, "group": call.group,
             "title": f"{call.collective} #{call.coll_seq}"}
            for call in story.calls
        ],
        "call": story.call,
        "textbook": story.textbook,
        "finished": story.finished,
        "notes": list(story.notes),
        **more,
    }  # fmt: skip
