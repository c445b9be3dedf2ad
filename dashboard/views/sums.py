"""The sum that an arrival makes: 700 + 100 = 800, beside the rank that adds it up."""

from __future__ import annotations

from collections.abc import Sequence

from ..reel import Reel
from ..story import Story
from . import words
from .cellview import Cells
from .layout import Layout

# Smallest text of a sum.
SMALLEST = 14.0
# Weight and ink of signs, operands and the result.
_STRENGTHS = ((500, "muted"), (500, "text"), (800, "ink"))


class Sums:
    """Writes what is added up where messages arrive.

    Args:
        view: How cells look.
        layout: Where ranks are.
    """

    def __init__(self, view: Cells, layout: Layout) -> None:
        self.view = view
        self.layout = layout

    def draw(self, reel: Reel) -> None:
        """Write one sum for each rank in each step in which something arrives."""
        for numbers in _arrivals(self.view.story).values():
            self._sum(reel, numbers)

    def _sum(self, reel: Reel, numbers: Sequence[int]) -> None:
        """Write arriving + own = result, from 40 % of the flight until the step is over.

        Args:
            reel: Where to draw.
            numbers: Messages that arrive at one slot in one step, in order.
        """
        view = self.view
        messages = [view.story.messages[number] for number in numbers]
        pieces = [message.pieces[0] for message in messages]
        own = pieces[0].before
        if view.story.places[messages[0].dst].rank is None and own.values is None:
            operands = [piece.payload for piece in pieces]  # a switch has nothing of its own
        else:
            operands = [*(piece.payload for piece in pieces[::-1]), own]
        if not view.numbers or len(operands) < 2 or not all(c.values for c in operands):
            return
        if self.layout.ways and (len(messages[0].pieces) > 1 or view.rows > 3):
            return  # one sum for many would be taken for all of them
        start, end = view.pace.flights[numbers[0]]
        during = (start + 0.4 * (end - start), view.pace.steps[messages[0].step][1])
        spot = self.layout.spots[messages[0].dst]
        for digits, most in ((view.look.digits, 8), (4, 8), (4, 2), (3, 2)):
            texts = [view.text(content, digits) for content in (*operands, pieces[-1].after)]
            sum_ = words.total(view.story.op, words.shortened(texts[:-1], most), texts[-1])
            em = sum(width for _, width, _ in sum_)
            x, y, size, anchor = view.sum_place(spot, em)
            if size >= 18:
                break
        if size < SMALLEST:
            return
        left = x - em * size * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        for text, width, strong in sum_:
            weight, ink = _STRENGTHS[strong]
            reel.text(left + width * size / 2, y, text, font="mono", size=size, anchor="middle",
                      during=during, weight=weight, fill=ink)  # fmt: skip
            left += width * size


def _arrivals(story: Story) -> dict[tuple[int, int], list[int]]:
    """Return the messages that make the first sum of a rank in a step, by rank and step."""
    found: dict[tuple[int, int], list[int]] = {}
    for number, message in enumerate(story.messages):
        if message.local or not message.reduces:
            continue
        numbers = found.setdefault((message.dst, message.step), [])
        slot = message.pieces[0].dst_slot
        if not numbers or story.messages[numbers[0]].pieces[0].dst_slot == slot:
            numbers.append(number)
    return found
