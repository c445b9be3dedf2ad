"""The simple view: understood in ten seconds by somebody who sees it first.

Ranks as cards with their cells, one chunk moving on each way, one sentence, one progress figure.
Where only the call is known, `textbook` draws it instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..film import FOREVER, Film
from ..reel import Reel
from ..story import Story
from . import frame, levels, sentences, words
from .cellview import Cells
from .forms import BEAM_H, LOW_NAME_W
from .frame import STAGE
from .grid import BESIDE, Grid, grid_of
from .lanes import MOST_IN_ROW, Lanes, emphasised, far, least_zone, row_of
from .lanes import dots as dots_of
from .layout import Box, Family, Layout, columns_of, family, fan_spans, ring, tree
from .legend import column as legend_column
from .legend import row as legend_row
from .levels import Level
from .movers import Movers
from .pace import Pace, by_steps
from .timing import in_time

INNER = Box(52, 144, 1176, 405)  # room of the cards, above the legend
TREE = Box(52, 148, 1176, 446)
MOST_IN_TREE = 4  # cells
MOST_LEAVES = 8
NAME_W = 124  # room of a rank's name beside its cells


def build(story: Story) -> Film:
    """Return the simple view's film of a call."""
    if story.textbook:
        from . import textbook

        return textbook.build(story)
    reel = Reel()
    pace = by_steps(story)
    frame.ground(reel)
    view = Cells(story, pace)
    found = _family(view)
    dots: frozenset[int] = frozenset()
    grid = grid_of(story) if found is None else None
    few = found is None and grid is None and story.n <= MOST_IN_ROW
    above = levels.levels(story) if few else ()
    if found is not None:
        layout = _tree(view, found)
    elif grid is not None:
        layout = _grid(view, grid)
    elif above or (2 < story.n <= MOST_IN_ROW and (far(story) or family(story) is not None)):
        dots = dots_of(story)
        layout = _row(view, above, dots)
    else:
        layout = _ring(view)
    told = _words(reel, story, pace, numbers=view.numbers or view.names)
    frame.plate(reel, "stage", *STAGE)
    levels.draw(reel, above, layout.spots, INNER)
    view.draw(reel, layout, framed=found is None)
    for step, rank in (emphasised(story) if dots else {}).items():
        x, y, w, h = layout.spots[rank]
        reel.rect(x + 1.25, y + 1.25, w - 2.5, h - 2.5, stroke="ink", width=2.5, radius=10,
                  during=pace.steps[step], z=1)  # fmt: skip
    Movers(view, layout, lifts=found is not None or view.low, dots=dots).draw(reel)
    reel.panel("legend", STAGE[0], STAGE[1] + 440, STAGE[2], 48)
    if found is None:
        legend_row(reel, view, dots=bool(dots))
    else:
        legend_column(reel, view)
    _bar(reel, story, pace)
    return frame.film(reel, "simple", story, pace, told)


def _family(view: Cells) -> Family | None:
    """Return the tree to draw; None for what is no tree, or none of a few cells at each rank.

    A tree around a switch is a beam and what hangs on it.
    """
    found = family(view.story)
    own = {len(place.cells) for place in view.story.places if place.rank is not None}
    if found is None or found.root >= view.n or len(own) > 1 or max(own) > MOST_IN_TREE:
        return None
    return found if view.n - len(found.children) <= MOST_LEAVES or view.n > MOST_IN_ROW else None


def _ring(view: Cells) -> Layout:
    """Return the cards' places, and choose how cells look in them."""
    columns = columns_of(view.n)
    card_w = {1: 462.0, 2: 462.0, 3: 300.0, 4: 198.0}.get(columns, INNER.w / columns * 0.8)
    card_h = view.choose(card_w)
    links = view.story.links()
    token_w = view.token_w
    if view.look.bars and any((dst, src) in links for src, dst in links):
        token_w = view.fit_tokens(card_w / 2)
    apart = (view.token_h / 2 + 6, token_w / 2 + 10)
    helpers = sum(place.rank is None for place in view.story.places)
    return ring(view.n, INNER, card_w, card_h, links, helpers=helpers, apart=apart)


def _grid(view: Cells, grid: Grid) -> Layout:
    """Return cards in rows and columns, and the ways between neighbours."""
    links = view.story.links()
    box = grid.room(INNER, links)
    gap = 106.0
    card_w = min(260.0, (box.w - (grid.columns - 1) * gap) / grid.columns)
    if grid.rows > 2:
        card_h = (box.h - (grid.rows - 1) * 48.0) / grid.rows
        view.choose_low(card_w, card_h)
    else:
        card_h = view.choose(card_w)
    token_w = view.fit_tokens(BESIDE - 12)
    apart = (view.token_h / 2 + 2, token_w / 2 + 6)
    right = LOW_NAME_W / 2 if view.low else 0.0  # beside the names
    return grid.layout(box, card_w, card_h, links, apart, right)


def _row(view: Cells, above: Sequence[Level], dots: frozenset[int]) -> Layout:
    """Return cards side by side, below their switches if there are some, and lanes around them."""
    story = view.story
    helpers = [place for place in story.places if place.rank is None]
    view.tall = True
    used = levels.height(above)
    box = Box(INNER.x, INNER.y + used, INNER.w, INNER.h - used)
    groups = [bar.last - bar.first + 1 for bar in above[0]] if above else [view.n]
    spots = row_of(groups, box, 0.0)
    card_h = view.choose(spots[0].w)
    if (box.h - card_h) / 2 < least_zone(view.token_h):
        view.numbers = view.names = False  # barcodes are lower
        card_h = view.choose(spots[0].w)
    y = box.bottom - card_h if helpers else box.y + (box.h - card_h) / 2
    spots = [Box(spot.x, y, spot.w, card_h) for spot in spots]
    wide = INNER.w / max(len(helpers), 1)
    spots += [
        Box(INNER.x + k * wide, INNER.y, wide - (16 if k < len(helpers) - 1 else 0), BEAM_H)
        for k in range(len(helpers))
    ]
    widest = view.fit_tokens(spots[1].x - spots[0].x - 36)
    lanes = Lanes(story, spots, box, token_w=widest, token_h=view.token_h, beside=dots)
    view.pace, spans = in_time(story, view.pace, lanes.spans)
    return Layout(tuple(spots), {}, lanes.ways, spans)


def _tree(view: Cells, found: Family) -> Layout:
    leaves = view.n - len(found.children)
    room = TREE.w / max(leaves, 1) - NAME_W
    block_w, block_h = view.choose_block(room)
    if view.look.bars:
        view.fit_tokens(room)
    layout = tree(found, TREE, block_w, block_h, NAME_W)
    view.pace, spans = in_time(view.story, view.pace, fan_spans(view.story, layout))
    return replace(layout, spans=spans)


def _words(reel: Reel, story: Story, pace: Pace, *, numbers: bool) -> list[str]:
    """Draw header and caption; return each step's sentence."""
    n = len(story.steps)
    told = [sentences.sentence(story, k, numbers=numbers) for k in range(n)]
    progress = [(words.plural(n, "step"), -FOREVER, pace.steps[0][0] if n else FOREVER)]
    for k, (start, end) in enumerate(pace.steps):
        progress.append((frame.step_name(story, k), start, end if k < n - 1 else FOREVER))
    frame.header(reel, story, progress)
    phases = []
    for k, name in enumerate(story.phases):
        own = [pace.steps[i] for i, beat in enumerate(story.steps) if beat.phase == k]
        first, last = k == 0, k == len(story.phases) - 1
        start = -FOREVER if first else own[0][0]
        phases.append((name, start, FOREVER if last else own[-1][1]))
    spoken = [
        (sentences.intro(story, numbers=numbers), -FOREVER, pace.steps[0][0] if n else FOREVER)
    ]
    for text, (start, end) in zip(told, pace.steps, strict=True):
        if spoken[-1][0] == text:
            spoken[-1] = (text, spoken[-1][1], end)
        else:
            spoken.append((text, start, end))
    if n:
        spoken.append((sentences.done(story, numbers=numbers), pace.end_s, FOREVER))
    frame.caption(reel, phases, spoken)
    return told


def _bar(reel: Reel, story: Story, pace: Pace) -> None:
    """Draw the control bar: a piece a step, or a piece a phase where there are many steps."""
    pieces = [
        (start, end, beat.phase or 0)
        for (start, end), beat in zip(pace.steps, story.steps, strict=True)
    ]
    if not pieces:
        pieces = [(pace.end_s - 0.01, pace.end_s, 0)]
    if len(pieces) > frame.MOST_PIECES:
        merged = []
        for phase in sorted({piece[2] for piece in pieces}):
            own = [piece for piece in pieces if piece[2] == phase]
            merged.append((own[0][0], own[-1][1], phase))
        pieces = merged
    frame.bar(reel, pace, pieces, story.phases)
