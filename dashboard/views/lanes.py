"""Ranks side by side, and messages in lanes above and below them.

    spots = row_of(8, BOX, 130, 131)
    lanes = Lanes(story, spots, BOX, token_w=70, token_h=48)
    lanes.ways[3]              # message 3: up from its sender, along a lane, down to its receiver
    lanes.spans[3]             # when: shares of its flight

What goes to the right runs above the cards, what goes to the left below. So partners that swap do
not meet, messages of one distance keep that distance from each other, and how far away a partner
is can be seen. A switch lies above all as a beam, and what goes there goes straight up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

from ..reel import Span
from ..story import Message, Story
from .layout import AIR, Box, Point
from .timing import spans

# Length of an arrowhead and the air before it.
HEAD = 18.0
# Places at a card's edge, as shares of its width from its middle, in the direction of travel.
OUT, IN = 0.27, 0.1
# More ranks do not fit side by side.
MOST_IN_ROW = 16


def row_of(groups: Sequence[int], box: Box, card_h: float, gap: float = 17.0) -> list[Box]:
    """Return cards side by side in the middle of a box, wider gaps between groups of them.

    Args:
        groups: Number of cards in each group, from left to right.
        box: The room that there is.
        card_h: Height of a card.
        gap: Between two cards of a group.
    """
    n = sum(groups)
    wide = 2.2 * gap
    w = min(260.0, (box.w - (n - len(groups)) * gap - (len(groups) - 1) * wide) / n)
    used = n * w + (n - len(groups)) * gap + (len(groups) - 1) * wide
    spare = (box.w - used) / max(n - 1, 1) if n > 1 else 0.0
    x = box.x if n > 1 else box.x + (box.w - w) / 2
    y = box.y + (box.h - card_h) / 2
    spots = []
    for size in groups:
        for _ in range(size):
            spots.append(Box(x, y, w, card_h))
            x += w + gap + spare
        x += wide - gap
    return spots


def least_zone(token_h: float) -> float:
    """Return how much height one lane needs, from a card to the end of the room."""
    return AIR + HEAD + token_h


def far(story: Story) -> bool:
    """Return whether messages go farther than to a neighbour in the ring of ranks.

    Or whether neighbours swap messages of several chunks, for which a ring's ways are too near.
    """
    n, links = story.n, set(story.links())
    swaps = any((b, a) in links for a, b in links)
    many = any(len(m.pieces) > 1 for m in story.messages if not m.local)
    return (swaps and many) or any(
        max(a, b) >= n or (b - a) % n not in (1, n - 1) for a, b in links
    )


def emphasised(story: Story) -> dict[int, int]:
    """Return the rank that is shown in full in each step where each sends to most of the others.

    The others' messages would cover each other there. It is a rank in the middle.
    """
    n = story.n
    found = {}
    for k, beat in enumerate(story.steps):
        messages = [story.messages[m] for m in beat.messages]
        pairs = {(m.src, m.dst) for m in messages if not m.local}
        if len(pairs) > max(2 * n, 0.8 * n * (n - 1)) and max(map(max, pairs)) < n:
            found[k] = (n - 1) // 2
    return found


def dots(story: Story) -> frozenset[int]:
    """Return the messages that are shown as dots only, beside a rank that is shown in full."""
    rank_of = emphasised(story)
    return frozenset(
        m
        for k, rank in rank_of.items()
        for m in story.steps[k].messages
        if rank != _side_of(story, k, story.messages[m])
    )


def _side_of(story: Story, step: int, message: Message) -> int:
    """Return the end of a message that matters: where sums are made, else where it is from."""
    return message.dst if story.steps[step].reduces else message.src


@dataclass(frozen=True, slots=True)
class _Trunk:
    """Messages that share a lane."""

    numbers: tuple[int, ...]
    low: float
    high: float


class Lanes:
    """Finds the ways of all messages of a story.

    Args:
        story: The call.
        spots: The cards of its places, ranks in one row.
        box: The room that there is.
        token_w: Width of a message.
        token_h: Height of a message.
        beside: Messages that are dots.
    """

    def __init__(
        self,
        story: Story,
        spots: Sequence[Box],
        box: Box,
        *,
        token_w: float,
        token_h: float,
        beside: Collection[int] = (),
    ) -> None:
        self.story = story
        self.spots = spots
        self.box = box
        self.token_w = token_w
        self.token_h = token_h
        self.beside = beside
        self.top = min(spot.y for spot in spots[: story.n])
        self.bottom = max(spot.bottom for spot in spots[: story.n])
        self.ways: dict[int, tuple[Point, ...]] = {}
        self.spans: dict[int, Span] = {}
        self._find()

    def _find(self) -> None:
        """Find the way of each message that leaves its place."""
        n = self.story.n
        for beat in self.story.steps:
            moving = [m for m in beat.messages if not self.story.messages[m].local]
            straight = [m for m in moving if max(self._ends(m)) >= n]
            self.ways |= {m: self._straight(m) for m in straight}
            for right in (True, False):
                side = [m for m in moving if m not in straight and self._goes_right(m) is right]
                self._side([m for m in side if m not in self.beside], right)
                self._free([m for m in side if m in self.beside], right)

    def _ends(self, number: int) -> tuple[int, int]:
        message = self.story.messages[number]
        return message.src, message.dst

    def _goes_right(self, number: int) -> bool:
        src, dst = self._ends(number)
        return self.spots[dst].x > self.spots[src].x

    def _straight(self, number: int) -> tuple[Point, ...]:
        """Return a way straight up to a beam, or down from it."""
        src, dst = self._ends(number)
        up = dst >= self.story.n
        card, beam = (
            (self.spots[src], self.spots[dst]) if up else (self.spots[dst], self.spots[src])
        )
        x = card.centre[0] + (0.2 if up else -0.2) * card.w
        x = min(max(x, beam.x + 12), beam.right - 12)
        ends = (x, card.y - AIR), (x, beam.bottom + AIR)
        return ends if up else ends[::-1]

    def _side(self, numbers: Sequence[int], right: bool) -> None:
        """Find the ways of the messages of a step that go to one side.

        Those of one sender share a lane, or those of one receiver.
        """
        if not numbers:
            return
        fans_out = _most(src for src, _ in map(self._ends, numbers)) > 1
        fans_in = not fans_out and _most(dst for _, dst in map(self._ends, numbers)) > 1
        trunks = self._trunks(numbers, right, 0 if fans_out else 1 if fans_in else None)
        lanes = _lanes(trunks)
        zone = self.top - self.box.y if right else self.box.bottom - self.bottom
        first = AIR + HEAD + self.token_h / 2
        room = zone - first - self.token_h / 2
        pitch = min(self.token_h + 6, room / max(lanes)) if max(lanes) else 0.0
        arrivals = self._arrivals(trunks)
        found = {}
        for trunk, lane in zip(trunks, lanes, strict=True):
            y = self.top - first - lane * pitch if right else self.bottom + first + lane * pitch
            for number in trunk.numbers:
                found[number] = self._corners(number, right, y, *arrivals[number])
        self.ways |= found
        self.spans |= spans(found, token_w=self.token_w, token_h=self.token_h)

    def _trunks(self, numbers: Sequence[int], right: bool, shared: int | None) -> list[_Trunk]:
        """Return the messages of a side by what they share: sender (0), receiver (1) or nothing."""
        groups: dict[Hashable, list[int]] = {}
        for number in numbers:
            key = number if shared is None else self._ends(number)[shared]
            groups.setdefault(key, []).append(number)
        trunks = []
        for group in groups.values():
            xs = [x for m in group for x in (self._out_x(m, right), self._in_x(m, right, 0, 1))]
            trunks.append(_Trunk(tuple(group), min(xs), max(xs)))
        return trunks

    def _arrivals(self, trunks: Sequence[_Trunk]) -> dict[int, tuple[int, int]]:
        """Return each message's place among those that arrive at its card, and their number."""
        comes: dict[int, list[_Trunk]] = {}
        for trunk in trunks:
            for dst in dict.fromkeys(self._ends(m)[1] for m in trunk.numbers):
                comes.setdefault(dst, []).append(trunk)
        found = {}
        for dst, several in comes.items():
            for k, trunk in enumerate(several):
                for m in trunk.numbers:
                    if self._ends(m)[1] == dst:
                        found[m] = (k, len(several))
        return found

    def _out_x(self, number: int, right: bool) -> float:
        spot = self.spots[self._ends(number)[0]]
        return spot.centre[0] + (OUT if right else -OUT) * spot.w

    def _in_x(self, number: int, right: bool, k: int, several: int) -> float:
        spot = self.spots[self._ends(number)[1]]
        share = 0.5 * (IN + OUT) if several == 1 else IN + k * 0.34 / (several - 1)
        return spot.centre[0] - (share if right else -share) * spot.w

    def _corners(
        self, number: int, right: bool, y: float, k: int, several: int
    ) -> tuple[Point, ...]:
        start, end = self._out_x(number, right), self._in_x(number, right, k, several)
        edge = self.top - AIR if right else self.bottom + AIR
        return (start, edge), (start, y), (end, y), (end, edge)

    def _free(self, numbers: Sequence[int], right: bool) -> None:
        """Find the ways of dots: a height for each sender, and the same pace for all."""
        n = self.story.n
        zone = self.top - self.box.y if right else self.box.bottom - self.bottom
        for number in numbers:
            src, dst = self._ends(number)
            off = 16 + (zone - 24) * src / max(n - 1, 1)
            y = self.top - off if right else self.bottom + off
            self.ways[number] = self._corners(number, right, y, dst % 3, 3)
            share = abs(dst - src) / max(n - 1, 1)
            self.spans[number] = (0.5 - share / 2, 0.5 + share / 2)


def _most(values: Iterable[int]) -> int:
    """Return how often the most frequent value occurs."""
    return max(Counter(values).values(), default=0)


def _lanes(trunks: Sequence[_Trunk]) -> list[int]:
    """Return a lane for each trunk, short ones next to the cards, so that none lie on each other.

    Example:
        >>> _lanes([_Trunk((0,), 0, 300), _Trunk((1,), 100, 200), _Trunk((2,), 250, 400)])
        [1, 0, 0]
    """
    order = sorted(range(len(trunks)), key=lambda k: (trunks[k].high - trunks[k].low, k))
    lanes = [0] * len(trunks)
    used: list[list[_Trunk]] = []
    for k in order:
        mine = trunks[k]
        lane = 0
        while lane < len(used) and any(
            mine.low < other.high and other.low < mine.high for other in used[lane]
        ):
            lane += 1
        if lane == len(used):
            used.append([])
        used[lane].append(mine)
        lanes[k] = lane
    return lanes
