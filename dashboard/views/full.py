"""The full view: where the ranks are, what they send when, the state of every cell."""

from __future__ import annotations

from typing import Any

from ...units import format_Bps
from ..film import FOREVER, Film
from ..reel import Reel
from ..story import Story
from . import frame, levels, sentences, words
from .cellview import Cells
from .forms import Form
from .gantt import Gantt
from .lanes import MOST_IN_ROW, Lanes, far, row_of
from .lanes import dots as dots_of
from .layout import Box, Layout, columns_of, family, ring, tree
from .metrics import text_width
from .movers import Movers, Pen
from .pace import STEP_S, Pace, linear
from .statetable import StateTable, flight, legend
from .tiles import Look

STAGE = Box(24, 64, 800, 356)
GANTT = Box(24, 432, 800, 212)
STATE = Box(836, 64, 420, 306)
FLIGHT = Box(836, 382, 420, 168)
LEGEND = Box(836, 562, 420, 82)
SHORTEST_S, LONGEST_S = 4.0, 60.0
PEN = Pen(head=9, link=2, trail=2.5, label=12, short=True, idle="idle")


class FullCells(Cells):
    """The cells in the sizes of the full view: always barcodes."""

    def choose(self, card_w: float) -> float:
        """Choose how cells look in a card of a width; return the card's height."""
        self.numbers = self.names = False
        self.pad = 11.0
        self.index_size = 10.0
        inner = card_w - 2 * self.pad
        w = min(22.0, max(2.5, 0.72 * inner / self.most))
        self.look = Look(bars=True, w=w, h=47)
        self.moving = Look(bars=True, w=19, h=40)
        self.rows, self.columns = 1, self.most
        self.form = Form(96, 1, w, 47, 0, 0, 40, 15, 17, 29)
        return self.form.card_h

    def choose_block(self, room: float) -> tuple[float, float]:
        """Choose how cells look without a card, as in a tree; return width and height of all."""
        self.numbers = self.names = False
        self.tag_size = 15.0
        w = max(4.0, min(22.0, (room - (self.most - 1) * 6) / self.most))
        self.look = Look(bars=True, w=w, h=44)
        self.moving = Look(bars=True, w=17, h=34)
        self.columns = self.most
        return self.most * w + (self.most - 1) * 6, 44.0

    @property
    def token_h(self) -> float:
        """Height of a message."""
        return self.moving.full_h + 12

    def tag(self, rank: int | None, place: int) -> str:
        """Return how a place is called in its card."""
        return words.tag(rank, place)

    def _title_size(self) -> float:
        return 11.0 if self.slim else 15.0


def build(story: Story) -> Film:
    """Return the full view's film of a call; of a bare call, the textbook picture."""
    if story.textbook:
        from . import textbook

        return textbook.build(story)
    length = min(max(STEP_S * len(story.steps), SHORTEST_S), LONGEST_S)
    pace = linear(story, length_s=length)
    reel = Reel()
    frame.ground(reel)
    view = FullCells(story, pace)
    view.middle_x = STAGE.centre[0]
    told = _header(reel, story, pace)
    frame.plate(reel, "stage", *STAGE, radius=10)
    _stage(reel, view)
    frame.plate(reel, "gantt", *GANTT, radius=10)
    Gantt(story, pace, GANTT).draw(reel)
    frame.plate(reel, "state", *STATE, radius=10)
    StateTable(view, STATE).draw(reel)
    frame.plate(reel, "flight", *FLIGHT, radius=10)
    flight(reel, view, FLIGHT)
    frame.plate(reel, "legend", *LEGEND, radius=10)
    legend(reel, view, LEGEND)
    frame.bar(reel, pace, _pieces(story, pace), story.phases, form=frame.LOW)
    return frame.film(reel, "full", story, pace, told, subtitle=words.subtitle(story))


def _pieces(story: Story, pace: Pace) -> list[tuple[float, float, int]]:
    """Return the scrubber's pieces: one a phase, since its axis is time."""
    if not pace.steps:
        return [(pace.end_s - 0.01, pace.end_s, 0)]
    out: list[tuple[float, float, int]] = []
    for k in range(max(len(story.phases), 1)):
        own = [
            span
            for span, beat in zip(pace.steps, story.steps, strict=True)
            if (beat.phase or 0) == k
        ]
        if own and own[-1][1] > own[0][0]:
            out.append((own[0][0], own[-1][1], k))
    return out or [(pace.steps[0][0], pace.end_s, 0)]


def _header(reel: Reel, story: Story, pace: Pace) -> list[str]:
    """Draw title, step, time, phases and badge; return each step's sentence."""
    reel.panel("header", 24, 10, 1232, 44)
    reel.text(24, 33, words.name(story), size=24, weight=600, fill="ink")
    reel.text(24, 53, words.subtitle(story), size=13, fill="muted")
    n = len(story.steps)
    shown = [(words.plural(n, "step"), -FOREVER, pace.steps[0][0] if n else FOREVER)]
    for k, (start, end) in enumerate(pace.steps):
        shown.append((frame.step_name(story, k), start, end if k < n - 1 else FOREVER))
    for text, start, end in shown:
        reel.text(822, 32, text, size=16, weight=600, fill="ink", anchor="end", during=(start, end))
    reel.text(822, 52, f"t = {{}} {pace.clock.unit}", size=13, font="mono", fill="muted",
              anchor="end", clock=True)  # fmt: skip
    left = frame.badge(reel, story, 1256, 18, h=30)
    w = (left - 12 - 836 - 8) / 2
    for k, name in enumerate(story.phases):
        own = [pace.steps[i] for i, beat in enumerate(story.steps) if beat.phase == k]
        first, last = k == 0, k == len(story.phases) - 1
        active = (-FOREVER if first else own[0][0], FOREVER if last else own[-1][1])
        _pill(reel, Box(836 + k * (w + 8), 16, w, 34), f"{k + 1}  {name}", active)
    return [sentences.sentence(story, k, numbers=False) for k in range(n)]


def _pill(reel: Reel, box: Box, text: str, active: tuple[float, float]) -> None:
    x, y = box.x + box.w / 2, box.y + box.h / 2 + 5
    reel.rect(box.x + 0.5, box.y + 0.5, box.w - 1, box.h - 1, fill="panel", stroke="line", width=1,
              radius=8)  # fmt: skip
    reel.rect(*box, fill="ink", radius=8, during=active)
    size = min(14.0, 14 * (box.w - 16) / text_width(text, 14, 600))
    style: dict[str, Any] = {"size": size, "weight": 600, "anchor": "middle", "z": 1}
    reel.text(x, y, text, fill="inverse", during=active, **style)
    for span in ((-FOREVER, active[0]), (active[1], FOREVER)):
        reel.text(x, y, text, fill="muted", during=span, **style)


# The stage.


def _stage(reel: Reel, view: FullCells) -> None:
    story = view.story
    found = family(story)
    if found is not None:
        leaves = view.n - len(found.children)
        box = Box(STAGE.x + 34, STAGE.y + 30, STAGE.w - 68, STAGE.h - 74)
        block_w, block_h = view.choose_block(box.w / max(leaves, 1) - 70)
        layout = tree(found, box, block_w, block_h, 60)
        view.draw(reel, layout, framed=False)
        Movers(view, layout, lifts=True, pen=PEN).draw(reel)
        _spoken(reel, view, STAGE.bottom - 16, STAGE.w - 80)
        return
    if 2 < story.n <= MOST_IN_ROW and far(story):
        _row(reel, view)
        return
    hosts = _hosts(story)
    columns = columns_of(view.n)
    top, bottom = (46, 28) if hosts else (36, 36)
    box = Box(STAGE.x + 34, STAGE.y + top, STAGE.w - 68, STAGE.h - top - bottom)
    card_w = min(230.0, box.w / (columns + (columns - 1) * 0.53))
    card_h = view.choose(card_w)
    links = story.links()
    helpers = sum(place.rank is None for place in story.places)
    layout = ring(view.n, box, card_w, card_h, links, helpers=helpers, apart=(31, 24))
    across = _across(links, hosts)
    _hulls(reel, story, layout, hosts)
    view.draw(reel, layout, framed=True)
    Movers(view, layout, lifts=False, pen=PEN, dashed=across).draw(reel)
    low = layout.spots[-1].y if view.n > 2 else STAGE.bottom - 20
    high = layout.spots[0].bottom
    middle = (low + high) / 2 if view.n > 2 else STAGE.bottom - 44
    # Between the two upright ways and the names of what moves on them.
    room = STAGE.w - 68 - card_w - 110 if view.n > 2 else STAGE.w - 80
    _spoken(reel, view, middle, room)
    rate = _rates(story, hosts)
    reel.text(STAGE.centre[0], middle + 20, rate, size=12, fill="muted", anchor="middle")


def _row(reel: Reel, view: FullCells) -> None:
    """Draw ranks that send far side by side, with lanes around them, below their switches."""
    story = view.story
    above = levels.levels(story)
    box = Box(STAGE.x + 20, STAGE.y + 14, STAGE.w - 40, STAGE.h - 66)
    used = levels.height(above)
    room = Box(box.x, box.y + used, box.w, box.h - used)
    groups = [bar.last - bar.first + 1 for bar in above[0]] if above else [view.n]
    helpers = [place for place in story.places if place.rank is None]
    slots = row_of(groups, room, 0.0, gap=9.0)
    card_h = view.choose(slots[0].w)
    view.moving = Look(bars=True, w=17, h=28)
    view.slim = slots[0].w < 60
    y = room.bottom - card_h if helpers else room.y + (room.h - card_h) / 2
    spots = [Box(slot.x, y, slot.w, card_h) for slot in slots]
    spots += [Box(room.x, room.y, room.w, 40.0) for _ in helpers]
    widest = view.fit_tokens(slots[1].x - slots[0].x - 12)
    dots = dots_of(story)
    lanes = Lanes(story, spots, room, token_w=widest, token_h=view.token_h, beside=dots)
    # Times are the trace's own here, so all messages take all of theirs.
    layout = Layout(tuple(spots), {}, lanes.ways)
    levels.draw(reel, above, spots, box)
    view.draw(reel, layout, framed=True)
    Movers(view, layout, lifts=False, pen=PEN, dots=dots).draw(reel)
    _spoken(reel, view, STAGE.bottom - 32, STAGE.w - 80)
    rate = _rates(story, _hosts(story))
    text = f"{words.DOTS} · {rate}" if dots else rate
    reel.text(STAGE.centre[0], STAGE.bottom - 13, text, size=12, fill="muted", anchor="middle")


def _spoken(reel: Reel, view: FullCells, y: float, room: float) -> None:
    """Write what is going on, in the middle of the stage."""
    story, pace = view.story, view.pace
    n = len(story.steps)
    said = [(sentences.intro(story, numbers=False), -FOREVER, pace.steps[0][0] if n else FOREVER)]
    for k, span in enumerate(pace.steps):
        text = sentences.sentence(story, k, numbers=False)
        if said[-1][0] == text:
            said[-1] = (text, said[-1][1], span[1])
        else:
            said.append((text, *span))
    if n:
        said.append((sentences.done(story, numbers=False), pace.end_s, FOREVER))
    for text, start, end in said:
        size = min(15.0, 15 * room / text_width(text, 15, 500))
        reel.text(STAGE.centre[0], y, text, size=max(size, 11), weight=500, fill="text",
                  anchor="middle", during=(start, end))  # fmt: skip


def _hosts(story: Story) -> dict[str, tuple[int, ...]]:
    """Return the places of each host, where there are several hosts."""
    if story.topology is not None:
        found = dict(story.topology.hosts)
    else:
        found = {}
        for place, name in enumerate(story.hosts):
            found[name] = (*found.get(name, ()), place)
    return found if len(found) > 1 else {}


def _across(
    links: tuple[tuple[int, int], ...], hosts: dict[str, tuple[int, ...]]
) -> frozenset[tuple[int, int]]:
    """Return the ways that lead from one host to another."""
    home = {place: name for name, places in hosts.items() for place in places}
    return frozenset((a, b) for a, b in links if home.get(a) != home.get(b))


def _hulls(reel: Reel, story: Story, layout: Layout, hosts: dict[str, tuple[int, ...]]) -> None:
    """Draw a hull around the cards of each host, where no other host's card lies inside."""
    inside = _rate_inside(story, hosts)
    for name, places in hosts.items():
        spots = [layout.spots[p] for p in places if p < len(layout.spots)]
        if not spots:
            continue
        x, y = min(s.x for s in spots) - 16, min(s.y for s in spots) - 28
        right, bottom = max(s.right for s in spots) + 16, max(s.bottom for s in spots) + 12
        strangers = [s for k, s in enumerate(layout.spots) if k not in places]
        if any(x < s.centre[0] < right and y < s.centre[1] < bottom for s in strangers):
            continue
        reel.rect(x + 0.5, y + 0.5, right - x - 1, bottom - y - 1, fill="hull", stroke="line",
                  width=1, radius=10, z=-4)  # fmt: skip
        reel.text(x + 16, y + 19, name, size=12, weight=600, fill="muted")
        if inside and right - x > 300:
            reel.text((x + right) / 2, y + 19, inside, size=12, fill="muted", anchor="middle")


def _link_rates(story: Story, hosts: dict[str, tuple[int, ...]]) -> tuple[set[float], set[float]]:
    """Return the rates of links inside hosts and of all others."""
    inner: set[float] = set()
    outer: set[float] = set()
    if story.topology is not None:
        host_of = {node: about.get("host") for node, about in story.topology.graph.nodes(data=True)}
        for link in story.topology.links:
            same = host_of.get(link.a) is not None and host_of.get(link.a) == host_of.get(link.b)
            (inner if same and hosts else outer).add(link.bandwidth_Bps)
    return inner, outer


def _rate_inside(story: Story, hosts: dict[str, tuple[int, ...]]) -> str:
    inner, _ = _link_rates(story, hosts)
    return _range(inner)


def _rates(story: Story, hosts: dict[str, tuple[int, ...]]) -> str:
    """Return what the network is, or that the picture is only logical."""
    if story.topology is None:
        return words.LOGICAL
    _, outer = _link_rates(story, hosts)
    shape = story.topology.shape.replace("_", " ").replace("-", " ")
    where = words.BETWEEN_HOSTS if hosts else words.network(shape)
    return f"{where} {_range(outer)}".strip()


def _range(rates: set[float]) -> str:
    if not rates:
        return ""
    low, high = format_Bps(min(rates)), format_Bps(max(rates))
    return low if low == high else f"{low} to {high}"
