"""Small pictures of traces, for the cards of the start page."""

from __future__ import annotations

from ...traces.trace import Trace
from ..film import Film, Step
from ..reel import Reel
from ..story import Story, tell
from ..theme import THEMES
from .forms import Form
from .frame import meta
from .full import FullCells
from .layout import Box, columns_of, family, ring, tree
from .movers import Movers, Pen
from .numbers import plain
from .pace import HOLD_S, by_steps, clock_of
from .tiles import patch, put

SIZE = (500, 335)
# More rows than this are not told apart in a small picture.
MOST_ROWS = 5


PEN = Pen(head=12, link=2.5, trail=3, label=17, short=True)


class SmallCells(FullCells):
    """The cells in sizes that are still read in a small picture."""

    def choose(self, card_w: float) -> float:
        """Choose how cells look in a card of a width; return the card's height."""
        super().choose(card_w)
        self.index_size = 0.0
        self.form = Form(94, 1, self.look.w, 47, 0, 0, 40, 20, 19, 37)
        return self.form.card_h

    def choose_block(self, room: float) -> tuple[float, float]:
        """Choose how cells look without a card, as in a tree; return width and height of all."""
        size = super().choose_block(room)
        self.tag_size = 19.0
        return size

    def _title_size(self) -> float:
        return 19.0


def thumbnail(trace: Trace, theme: str = "light") -> str:
    """Return a small picture of a trace's first call, as SVG text.

    Args:
        trace: The trace.
        theme: light or dark.

    Raises:
        ValueError: The trace has no collective call, or the theme is unknown.
    """
    from ..paint.svg import svg

    if theme not in THEMES:
        raise ValueError(f"unknown theme {theme!r}; known: {', '.join(THEMES)}")
    story = tell(trace)
    film = _call(story) if story.textbook else _messages(story)
    if not film.steps:
        return svg(film, film.duration_s, theme=theme, embed=False)
    step = film.steps[min(round(0.35 * len(film.steps)), len(film.steps) - 1)]
    return svg(film, step.start_s + 0.45 * (step.end_s - step.start_s), theme=theme, embed=False)


def _messages(story: Story) -> Film:
    """Return the ranks with their cells and what moves, without words."""
    pace = by_steps(story)
    view = SmallCells(story, pace)
    w, h = SIZE
    view.middle_x = w / 2
    reel = Reel()
    reel.panel("stage", 0, 0, w, h)
    found = family(story)
    if found is not None:
        box = Box(24, 20, w - 48, h - 40)
        leaves = max(view.n - len(found.children), 1)
        size = view.choose_block(box.w / leaves - 70)
        layout = tree(found, box, *size, 64)
    else:
        columns = columns_of(view.n)
        box = Box(22, 20, w - 44, h - 40)
        card_w = box.w / (columns + (columns - 1) * (0.75 if columns <= 2 else 0.52))
        card_h = view.choose(min(card_w, 165.0))
        layout = ring(view.n, box, min(card_w, 165.0), card_h, story.links(), apart=(32, 24))
    view.draw(reel, layout, framed=found is None)
    Movers(view, layout, lifts=found is not None, pen=PEN).draw(reel)
    steps = [Step(*span, "", None, "") for span in pace.steps]
    return reel.film(size=(w, h), view="thumbnail", duration_s=pace.duration_s, steps=steps,
                     phases=(), clock=pace.clock, meta=meta(story))  # fmt: skip


def _call(story: Story) -> Film:
    """Return what goes into a bare call and what comes out."""
    w, h = 400, 268
    reel = Reel()
    reel.panel("stage", 0, 0, w, h)
    ranks = [place for place in story.places if place.rank is not None][:MOST_ROWS]
    pitch = min(56.0, (h - 60) / max(len(ranks), 1))
    top = (h - pitch * len(ranks)) / 2
    giver = story.root if story.kind is not None and story.kind.input_at_root else None
    for k, place in enumerate(ranks):
        y = top + (k + 0.5) * pitch
        put(reel, [patch(24, y - 7, 14, 14, place.place, radius=3)], 0, 0)
        for x, values, ink, paper in (
            (52, place.inputs, "ink", "cell"),
            (294, place.outputs, "inverse", "ink"),
        ):
            if not values:
                continue
            text = plain(values[0], story.dtype) + (" …" if len(values) > 1 else "")
            if paper == "cell" and giver not in (None, place.place):
                ink = "soft"
                reel.rect(x + 0.75, y - 15.25, 80.5, 30.5, stroke="hollow", width=1.5, radius=5)
            else:
                reel.rect(x, y - 16, 82, 32, fill=paper, radius=5)
            size = min(19.0, 70 / (0.6 * len(text)))
            reel.text(x + 41, y + 0.365 * size, text, size=size, weight=700, font="mono", fill=ink,
                      anchor="middle", z=1)  # fmt: skip
        for x in (138, 258):
            reel.line(x, y, x + 20, y, stroke="link", width=5)
            reel.poly([(x + 30, y), (x + 18, y - 8), (x + 18, y + 8)], fill="link")
    reel.rect(172, 26, 82, h - 52, stroke="muted", width=1.5, dash=(6, 4), radius=12)
    word = story.op or story.collective.replace("_", " ")
    size = min(22.0, 120 / max(len(word), 1))
    reel.text(213, h / 2 + 0.36 * size, word, size=size, weight=700, fill="ink", anchor="middle")
    clock = clock_of([HOLD_S, HOLD_S + 1], [0.0, float(story.duration_ns)], story.duration_ns)
    return reel.film(size=(w, h), view="thumbnail", duration_s=2 * HOLD_S, steps=(), phases=(),
                     clock=clock, meta=meta(story))  # fmt: skip
