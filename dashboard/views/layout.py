"""Where ranks stand and which way messages go.

layout = ring(4, Box(52, 144, 1176, 405), 462, 131, links)
layout.spots[0]            # Box of rank 0
layout.routes[0, 1]        # points from the edge of rank 0 to the edge of rank 1
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ..reel import Span
from ..story import Story

Point = tuple[float, float]
Links = Sequence[tuple[int, int]]

# Air between a card's edge and the line that ends at it.
AIR = 4.0


class Box(NamedTuple):
    """A rectangle."""

    x: float
    y: float
    w: float
    h: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.w

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y + self.h

    @property
    def centre(self) -> Point:
        """Its middle."""
        return self.x + self.w / 2, self.y + self.h / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things are.

    Attributes:
        spots: A box a place: the card, or in a tree the block of cells.
        routes: Points of the way of each link (src, dst), from edge to edge.
        ways: Where each message has a way of its own, its points by the message's number; such a
            way shows only in its step.
        spans: When messages are under way, as shares of their flights, by the message's number;
            what is left out takes all of it.
        jumps: Links whose route leaves the picture after its second point and comes in again at
            its third.
    """

    spots: tuple[Box, ...]
    routes: dict[tuple[int, int], tuple[Point, ...]]
    ways: dict[int, tuple[Point, ...]] = field(default_factory=dict)
    spans: dict[int, Span] = field(default_factory=dict)
    jumps: frozenset[tuple[int, int]] = frozenset()


def columns_of(n: int) -> int:
    """Return the number of columns in which n ranks stand in two rows."""
    return n if n <= 2 else (n + 1) // 2


def ring(
    n: int,
    box: Box,
    card_w: float,
    card_h: float,
    links: Links,
    *,
    helpers: int = 0,
    apart: Point = (36, 40),
) -> Layout:
    """Return ranks clockwise in two rows, and straight ways between neighbours.

    Args:
        n: Number of ranks.
        box: The room that there is.
        card_w: Width of a card.
        card_h: Height of a card.
        links: Pairs that exchange messages.
        helpers: Number of helpers, which stand side by side in the middle.
        apart: How far from the middle the two ways of a pair that sends both ways lie, on
            upright and on level ways.
    """
    columns = columns_of(n)
    step = (box.w - card_w) / max(columns - 1, 1)
    if n <= 2:
        y = box.y + (box.h - card_h) / 2
        left = box.x if n == 2 else box.x + (box.w - card_w) / 2
        spots = [Box(left + k * step, y, card_w, card_h) for k in range(n)]
    else:
        spots = [Box(box.x + k * step, box.y, card_w, card_h) for k in range(columns)]
        below = n - columns
        low = box.bottom - card_h
        for k in range(below):
            share = 0.5 if below == 1 else 1 - k / (below - 1)
            spots.append(Box(box.x + share * (box.w - card_w), low, card_w, card_h))
    for k in range(helpers):
        x = box.x + box.w * (k + 1) / (helpers + 1) - card_w / 2
        spots.append(Box(x, box.y + (box.h - card_h) / 2, card_w, card_h))
    pairs = set(links)
    routes = {}
    for src, dst in links:
        both = (dst, src) in pairs
        routes[src, dst] = _way(spots, src, dst, apart if both else (0.0, 0.0), box)
    return Layout(tuple(spots), routes)


def _way(spots: Sequence[Box], src: int, dst: int, apart: Point, box: Box) -> tuple[Point, ...]:
    """Return the way between two cards: level, upright, around others, or slanting."""
    a, b = spots[src], spots[dst]
    if abs(a.y - b.y) < 1:
        y = a.y + a.h / 2
        left, right = min(a.x, b.x), max(a.x, b.x)
        between = any(left < s.x < right and abs(s.y - a.y) < 1 for s in spots)
        if between:
            return _around(spots, src, dst, box)
        if b.x > a.x:
            return (a.right + AIR, y - apart[0]), (b.x - AIR, y - apart[0])
        return (a.x - AIR, y + apart[0]), (b.right + AIR, y + apart[0])
    low, high = max(a.x, b.x), min(a.right, b.right)
    if high - low > 12:
        x = (low + high) / 2
        half = min(apart[1], (high - low) / 2 - 6)
        if b.y > a.y:
            return (x + half, a.bottom + AIR), (x + half, b.y - AIR)
        return (x - half, a.y - AIR), (x - half, b.bottom + AIR)
    return slanting(a, b, apart[0] / 2)


def _around(spots: Sequence[Box], src: int, dst: int, box: Box) -> tuple[Point, ...]:
    """Return a way through the corridor between the rows, past the cards in between."""
    a, b = spots[src], spots[dst]
    top = a.y < box.y + box.h / 2
    # Each pair has its own lane and its own place at a card's edge.
    lane = 0.24 + 0.12 * ((src * 3 + dst) % 5)
    shift = 0.3 if b.x > a.x else -0.3
    xa, xb = a.centre[0] + shift * a.w / 2, b.centre[0] - shift * b.w / 2
    rows = sorted({spot.y for spot in spots})
    gap = (rows[1] - rows[0] - a.h) if len(rows) > 1 else box.h / 2
    if top:
        y = a.bottom + gap * lane
        return (xa, a.bottom + AIR), (xa, y), (xb, y), (xb, b.bottom + AIR)
    y = a.y - gap * lane
    return (xa, a.y - AIR), (xa, y), (xb, y), (xb, b.y - AIR)


def slanting(a: Box, b: Box, apart: float = 0.0) -> tuple[Point, ...]:
    """Return a straight way between the middles of two boxes, cut at their edges."""
    (ax, ay), (bx, by) = a.centre, b.centre
    length = math.hypot(bx - ax, by - ay) or 1.0
    nx, ny = -(by - ay) / length * apart, (bx - ax) / length * apart
    start = _edge(a, (bx - ax) / length, (by - ay) / length)
    end = _edge(b, (ax - bx) / length, (ay - by) / length)
    return (start[0] + nx, start[1] + ny), (end[0] + nx, end[1] + ny)


def _edge(box: Box, dx: float, dy: float) -> Point:
    """Return where a line from the middle of a box leaves it, with some air."""
    half_w, half_h = box.w / 2 + AIR, box.h / 2 + AIR
    reach = min(half_w / abs(dx) if dx else math.inf, half_h / abs(dy) if dy else math.inf)
    return box.centre[0] + dx * reach, box.centre[1] + dy * reach


@dataclass(frozen=True, slots=True)
class Family:
    """A tree: each place's parent, row (root 0) and children in the order of their steps."""

    root: int
    parent: dict[int, int]
    row: dict[int, int]
    children: dict[int, tuple[int, ...]]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return max(self.row.values()) + 1


def family(story: Story) -> Family | None:
    """Return the tree along which messages go; None where they do not go along a tree."""
    parent: dict[int, int] = {}
    turn: dict[int, int] = {}
    steps = len(story.steps)
    up = sum(1 for beat in story.steps if beat.reduces)
    for message in story.messages:
        if message.local:
            continue
        child, above = (message.src, message.dst) if message.reduces else (message.dst, message.src)
        if parent.setdefault(child, above) != above:
            return None
        # Row 1 for what reaches the root last, or leaves it first.
        down = (
            up - message.step if message.reduces else message.step - (up if up < steps else 0) + 1
        )
        if turn.setdefault(child, down) != down:
            return None
    roots = [place for place in range(len(story.places)) if place not in parent]
    if len(roots) != 1 or len(story.places) < 2:
        return None
    row = {roots[0]: 0, **turn}
    if any(row[parent[child]] >= row[child] for child in parent):
        return None
    children: dict[int, tuple[int, ...]] = {}
    for child in sorted(parent, key=lambda c: (-row[c], c)):
        children[parent[child]] = (*children.get(parent[child], ()), child)
    branches = any(len(below) > 1 for below in children.values())
    is_tree = branches or (story.algorithm or "").startswith("tree")
    return Family(roots[0], parent, row, children) if is_tree else None


def tree(found: Family, box: Box, block_w: float, block_h: float, label_w: float) -> Layout:
    """Return a tree of blocks of cells, the root on top.

    A row holds the ranks that send (or receive) in the same step, so one row moves at a time.

    Args:
        found: The tree.
        box: The room that there is.
        block_w: Width of a block of cells.
        block_h: Height of a block, its edges included.
        label_w: Room that a name needs right of a block.
    """
    n = len(found.row)
    order = _in_order(found, found.root)
    leaves = [place for place in order if place not in found.children]
    first, last = box.x + block_w / 2, box.right - label_w - block_w / 2
    pitch = (last - first) / max(len(leaves) - 1, 1)
    x = {place: first + k * pitch for k, place in enumerate(leaves)}
    if len(leaves) == 1:
        x[leaves[0]] = (first + last) / 2
    for place in sorted(found.children, key=lambda p: -found.row[p]):
        below = [x[child] for child in found.children[place]]
        x[place] = (
            below[0] - min(0.2 * pitch, 60)
            if len(below) == 1
            else below[0] + (below[-1] - below[0]) * 0.55
        )
    rows = max(found.n_rows - 1, 1)
    down = (box.h - block_h) / rows
    y = {place: box.y + found.row[place] * down for place in range(n)}
    _make_room(found, x, block_w + label_w)
    spots = tuple(Box(x[p] - block_w / 2, y[p], block_w, block_h) for p in range(n))
    routes: dict[tuple[int, int], tuple[Point, ...]] = {}
    for place, children in found.children.items():
        for k, child in enumerate(sorted(children, key=lambda c: x[c])):
            foot = spots[place].x + block_w * (k + 1) / (len(children) + 1)
            top = (spots[child].centre[0], spots[child].y - AIR)
            end = (foot, spots[place].bottom + AIR + 3)
            routes[child, place] = (top, end)
            routes[place, child] = (end, top)
    return Layout(spots, routes)


def fan_spans(story: Story, layout: Layout) -> dict[int, Span]:
    """Return when messages go of which several meet at a parent in one step, as shares of a flight.

    They set out one after another, from the left and the right in turn.
    """
    fans: dict[tuple[int, int, bool], list[tuple[float, int]]] = {}
    for number, message in enumerate(story.messages):
        if not message.local:
            parent, child = message.dst, message.src
            if not message.reduces:
                parent, child = child, parent
            x = layout.spots[child].x
            fans.setdefault((message.step, parent, message.reduces), []).append((x, number))
    spans: dict[int, Span] = {}
    for fan in fans.values():
        several = [number for _, number in sorted(fan)]
        pause = min(0.12, 0.6 / max(len(several) - 1, 1))
        takes = 1 - pause * (len(several) - 1)
        for k in range(len(several)):
            number = several[(-1) ** k * ((k + 1) // 2)]
            spans[number] = (k * pause, k * pause + takes)
    return spans


def _in_order(found: Family, place: int) -> list[int]:
    """Return the places below a place from left to right: deep branches left, itself after one."""
    out: list[int] = []
    below = found.children.get(place, ())
    for k, child in enumerate(below):
        out += _in_order(found, child)
        if k == 0:
            out.append(place)
    return out or [place]


def _make_room(found: Family, x: dict[int, float], room: float) -> None:
    """Push neighbours of a row apart where a name would run into the next block."""
    for row in range(found.n_rows):
        line = sorted((p for p in found.row if found.row[p] == row), key=lambda p: x[p])
        for left, right in pairwise(line):
            x[right] = max(x[right], x[left] + room)


def along(points: Sequence[Point], skip_start: float, skip_end: float) -> tuple[Point, ...]:
    """Return a way without its first and last so many px."""
    return _cut(_cut(tuple(points), skip_start)[::-1], skip_end)[::-1]


def _cut(points: tuple[Point, ...], px: float) -> tuple[Point, ...]:
    rest = list(points)
    while len(rest) >= 2 and px > 0:
        (ax, ay), (bx, by) = rest[0], rest[1]
        length = math.hypot(bx - ax, by - ay)
        if length > px or len(rest) == 2:
            share = min(px / length, 1.0) if length else 0.0
            rest[0] = (ax + (bx - ax) * share, ay + (by - ay) * share)
            return tuple(rest)
        px -= length
        rest.pop(0)
    return tuple(rest)


def lengths(points: Sequence[Point]) -> list[float]:
    """Return the length of each piece of a way."""
    pairs = pairwise(points)
    return [math.hypot(b[0] - a[0], b[1] - a[1]) for a, b in pairs]
