"""Ranks in rows and columns, as they lie in a mesh, a torus or a hypercube.

    grid = grid_of(story)
    if grid is not None: layout = grid.layout(BOX, card_w, card_h, links, apart)

The ends of a torus are not joined by long lines: a way leaves at one edge and comes in at the
opposite one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..story import Story
from .layout import AIR, Box, Layout, Links, Point

MOST_COLUMNS, MOST_ROWS = 6, 4
# Length of a way that leaves at an edge, beside a column and above a row.
BESIDE, ABOVE = 84.0, 36.0
# So many ways may go elsewhere than to a neighbour, as from one row to the next in a ring.
MOST_SLANTS = 4


@dataclass(frozen=True, slots=True)
class Grid:
    """Column and row of each rank.

    Attributes:
        at: Column and row by rank.
        columns, rows: How many there are.
    """

    at: tuple[tuple[int, int], ...]
    columns: int
    rows: int

    def wraps(self, links: Links) -> tuple[bool, bool]:
        """Return whether ways leave at the sides, and above and below."""
        sides = [self._wrap(*link) for link in links]
        return any(side and side[0] for side in sides), any(side and side[1] for side in sides)

    def _wrap(self, src: int, dst: int) -> tuple[int, int] | None:
        """Return in which direction a link leaves the grid; None if it stays inside."""
        (x1, y1), (x2, y2) = self.at[src], self.at[dst]
        if y1 == y2 and self.columns > 2 and abs(x2 - x1) == self.columns - 1:
            return (1 if x1 > x2 else -1), 0
        if x1 == x2 and self.rows > 2 and abs(y2 - y1) == self.rows - 1:
            return 0, (1 if y1 > y2 else -1)
        return None

    def joins(self, src: int, dst: int) -> bool:
        """Return whether two ranks are neighbours, around the ends as well."""
        (x1, y1), (x2, y2) = self.at[src], self.at[dst]
        return abs(x1 - x2) + abs(y1 - y2) == 1 or self._wrap(src, dst) is not None

    def room(self, box: Box, links: Links) -> Box:
        """Return the room of the cards: without that of the ways that leave at the edges."""
        beside, above = self.wraps(links)
        dx, dy = BESIDE * beside, ABOVE * above
        return Box(box.x + dx, box.y + dy, box.w - 2 * dx, box.h - 2 * dy)

    def layout(
        self,
        box: Box,
        card_w: float,
        card_h: float,
        links: Links,
        apart: Point,
        right: float = 0.0,
    ) -> Layout:
        """Return cards and ways.

        Args:
            box: The room of the cards.
            card_w: Width of a card.
            card_h: Height of a card.
            links: Pairs that exchange messages.
            apart: How far from the middle the ways of a pair that sends both ways lie, on level
                and on upright ways.
            right: How far right of a card's middle upright ways run.
        """
        dx = (box.w - card_w) / max(self.columns - 1, 1)
        dy = (box.h - card_h) / max(self.rows - 1, 1)
        spots = [Box(box.x + x * dx, box.y + y * dy, card_w, card_h) for x, y in self.at]
        pairs = set(links)
        routes = {}
        jumps = set()
        for src, dst in links:
            aside = apart if (dst, src) in pairs else (0.0, 0.0)
            wrap = self._wrap(src, dst)
            if wrap is None:
                routes[src, dst] = _straight(spots[src], spots[dst], aside, right)
            else:
                routes[src, dst] = _around(spots[src], spots[dst], wrap, aside, right)
                jumps.add((src, dst))
        return Layout(tuple(spots), routes, jumps=frozenset(jumps))


def grid_of(story: Story) -> Grid | None:
    """Return the grid of a call's network, where its messages go along it; else None."""
    topology = story.topology
    if topology is None or topology.n_ranks != story.n or len(story.places) != story.n:
        return None
    dims = [size for size in topology.dims if size > 1]
    code = topology.shape == "hypercube" and story.n in (4, 8, 16)
    if code:
        dims = [2, 2] if story.n == 4 else [4, story.n // 4]
    if len(dims) != 2:
        return None
    at = [divmod(rank, dims[0])[::-1] for rank in range(story.n)]
    if code:
        at = [(_turn(x), _turn(y)) for x, y in at]
    if dims[1] > dims[0]:
        at = [(y, x) for x, y in at]
    grid = Grid(tuple(at), max(dims), min(dims))
    if grid.columns > MOST_COLUMNS or grid.rows > MOST_ROWS:
        return None
    slants = sum(not grid.joins(*link) for link in story.links())
    return grid if slants <= MOST_SLANTS and slants < len(story.links()) / 2 else None


def _turn(bits: int) -> int:
    """Return the place of two bits in the order 0, 1, 3, 2, in which one bit changes a step."""
    return bits ^ bits >> 1


def _straight(a: Box, b: Box, apart: Point, right: float) -> tuple[Point, ...]:
    """Return a way between two cards; each direction keeps to its own side."""
    if a.y == b.y:
        sign = 1 if b.x > a.x else -1
        y = a.centre[1] - sign * apart[0]
        return (a.centre[0] + sign * (a.w / 2 + AIR), y), (b.centre[0] - sign * (b.w / 2 + AIR), y)
    sign = 1 if b.y > a.y else -1
    x, x2 = (box.centre[0] + right + sign * apart[1] for box in (a, b))
    if a.x != b.x:  # a slant: through the corridor between two rows
        x, x2 = x + sign * a.w / 4, x2 + sign * b.w / 4
    return (x, a.centre[1] + sign * (a.h / 2 + AIR)), (x2, b.centre[1] - sign * (b.h / 2 + AIR))


def _around(a: Box, b: Box, wrap: tuple[int, int], apart: Point, right: float) -> tuple[Point, ...]:
    """Return a way that leaves at one edge of the grid and comes in at the opposite one."""
    if wrap[0]:
        sign, y = wrap[0], a.centre[1] - wrap[0] * apart[0]
        out, back = a.centre[0] + sign * a.w / 2, b.centre[0] - sign * b.w / 2
        return (out + sign * AIR, y), (out + sign * BESIDE, y), (back - sign * BESIDE, y), (
            back - sign * AIR, y)  # fmt: skip
    sign, x = wrap[1], a.centre[0] + right + wrap[1] * apart[1]
    out, back = a.centre[1] + sign * a.h / 2, b.centre[1] - sign * b.h / 2
    return (x, out + sign * AIR), (x, out + sign * ABOVE), (x, back - sign * ABOVE), (
        x, back - sign * AIR)  # fmt: skip
