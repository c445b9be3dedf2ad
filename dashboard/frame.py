"""What stands around the stage: title, progress, badge, phase, sentence and the control bar."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from . import words
from .film import FOREVER
from .metrics import text_width
from .pace import Pace
from .reel import Reel
from .scene import format_ns
from .story import Story

W, H = 1280, 720
LEFT, RIGHT = 24, 1256
STAGE = (24, 124, 1232, 488)
BAR = (24, 624, 1232, 80)
# The scrubber, and more steps than this show as one piece a phase.
TRACK_X, TRACK_W, TRACK_Y = 248, 722, 649
MOST_PIECES = 32


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
) -> None:
    """Draw the control bar.

    Args:
        reel: Where to draw.
        pace: The film's times.
        pieces: Start and end in film seconds and phase of each piece of the scrubber.
        labels: Name of each phase, written below.
        ends: Words below the two ends instead, where there is nothing in between.
    """
    plate(reel, "bar", *BAR)
    _buttons(reel, pace)
    boxes = _pieces([phase for _, _, phase in pieces])
    reel.pick(TRACK_X, TRACK_Y - 12, TRACK_W, 34, reel.ref(action="scrub"))
    for (x, w), (start, end, _) in zip(boxes, pieces, strict=True):
        reel.rect(x, TRACK_Y, w, 10, fill="slot", radius=3)
        full: dict[str, Any] = {"fill": "ink", "radius": 3, "z": 1}
        reel.rect(
            x, TRACK_Y, 0, 10, to=(x, TRACK_Y, w, 10), during=(start, end), ease=False, **full
        )
        reel.rect(x, TRACK_Y, w, 10, during=(end, FOREVER), **full)
        _knob(reel, x, x + w, (start, end))
    first, last = boxes[0], boxes[-1]
    _knob(reel, first[0], first[0], (-FOREVER, pieces[0][0]))
    _knob(reel, last[0] + last[1], last[0] + last[1], (pieces[-1][1], FOREVER))
    for (_, before, _), (start, _, _), (x, _) in zip(pieces, pieces[1:], boxes[1:], strict=False):
        _knob(reel, x, x, (before, start))
    _labels(reel, pieces, boxes, labels, ends)
    total = format_ns(pace.clock.ns[-1], pace.clock)
    reel.text(1152, 671, f"{{}} / {total} {pace.clock.unit}", size=18, weight=600, font="mono",
              fill="text", anchor="end", clock=True)  # fmt: skip
    reel.rect(1172.75, 644.75, 66.5, 38.5, stroke="card_edge", width=1.5, radius=9)
    reel.text(1188, 671, "1×", size=20, weight=700, fill="ink")
    reel.poly([(1218, 661), (1230, 661), (1224, 668)], fill="muted")
    reel.pick(1172, 644, 68, 40, reel.ref(action="speed"))


def _pieces(phases: Sequence[int]) -> list[tuple[float, float]]:
    """Return x and width of each piece: 3 px apart, 14 between phases."""
    gaps = [0, *(14 if a != b else 3 for a, b in pairwise(phases))]
    w = (TRACK_W - sum(gaps)) / len(phases)
    out, x = [], float(TRACK_X)
    for gap in gaps:
        x += gap
        out.append((x, w))
        x += w
    return out


def _knob(reel: Reel, x1: float, x2: float, during: tuple[float, float]) -> None:
    y = TRACK_Y + 5
    for r, fill, z in ((13, "panel", 2), (10, "ink", 3)):
        box, end = (x1 - r, y - r, 2 * r, 2 * r), (x2 - r, y - r, 2 * r, 2 * r)
        reel.rect(*box, to=end if x1 != x2 else None, during=during, ease=False, fill=fill,
                  radius=r, z=z, layer=2)  # fmt: skip


def _labels(
    reel: Reel,
    pieces: Sequence[tuple[float, float, int]],
    boxes: Sequence[tuple[float, float]],
    labels: Sequence[str],
    ends: tuple[str, str] | None,
) -> None:
    """Write the phases' names below the scrubber, the active one in ink."""
    y = 690
    if ends is not None:
        over = pieces[-1][1]
        x2 = boxes[-1][0] + boxes[-1][1]
        _label(reel, TRACK_X, y, ends[0], "start", (-FOREVER, over))
        _label(reel, x2, y, ends[1], "end", (over, FOREVER))
        return
    for k, label in enumerate(labels):
        own = [i for i, piece in enumerate(pieces) if piece[2] == k]
        if not own:
            continue
        start = pieces[own[0]][0] if k else -FOREVER
        end = pieces[own[-1]][1] if k < len(labels) - 1 else FOREVER
        _label(reel, boxes[own[0]][0], y, label[:1].lower() + label[1:], "start", (start, end))


def _label(
    reel: Reel, x: float, y: float, text: str, anchor: str, active: tuple[float, float]
) -> None:
    common: dict[str, Any] = {"size": 18, "anchor": anchor}
    reel.text(x, y, text, weight=700, fill="ink", during=active, **common)
    if active[0] > -FOREVER:
        reel.text(x, y, text, weight=400, fill="muted", during=(-FOREVER, active[0]), **common)
    if active[1] < FOREVER:
        reel.text(x, y, text, weight=400, fill="muted", during=(active[1], FOREVER), **common)


def _buttons(reel: Reel, pace: Pace) -> None:
    """Draw step back, play or pause, step forward."""
    cy = 664
    for cx, action in ((70, "back"), (190, "forward")):
        reel.rect(cx - 22, cy - 22, 44, 44, stroke="card_edge", width=1.5, radius=22)
        reel.pick(cx - 22, cy - 22, 44, 44, reel.ref(action=action))
    reel.rect(102, cy - 28, 56, 56, fill="ink", radius=28)
    reel.pick(102, cy - 28, 56, 56, reel.ref(action="play"))
    _skip(reel, 70, cy, -1, "ink", None)
    _skip(reel, 190, cy, 1, "ink", (-FOREVER, pace.end_s))
    _skip(reel, 190, cy, 1, "hollow", (pace.end_s, FOREVER))
    going, over = (-FOREVER, pace.end_s), (pace.end_s, FOREVER)
    for x in (120, 133):
        reel.rect(x, cy - 11, 7, 22, fill="inverse", radius=1.5, during=going, z=1)
    reel.poly([(122, cy - 13), (145, cy), (122, cy + 13)], fill="inverse", during=over, z=1)


def _skip(
    reel: Reel, cx: float, cy: float, way: int, ink: str, during: tuple[float, float] | None
) -> None:
    tip, back = cx + way * 7, cx - way * 8
    reel.poly([(back, cy - 9.5), (tip, cy), (back, cy + 9.5)], fill=ink, during=during)
    reel.rect(tip - 1.75 + way * 0.5, cy - 9.5, 3.5, 19, fill=ink, radius=1, during=during)


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
