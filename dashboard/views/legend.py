"""The legend of the simple view: only signs that occur."""

from __future__ import annotations

from ..reel import Reel
from ..story import Mark
from . import words
from .cellview import Cells
from .metrics import text_width
from .tiles import Look, arriving, patch, put, tile

LEAST_GAP = 12.0
DOTS_W = 42.0
ORDER = (Mark.OWN, Mark.PARTIAL, Mark.COMPLETE, Mark.PASSED, Mark.EMPTY, Mark.UNKNOWN)


def samples(view: Cells) -> list[tuple[Mark | None, str, set[int], str]]:
    """Return sign, number, ranks and words of each sample; None stands for arriving."""
    cells = [cell for place in view.story.places for cell in place.cells]
    marks = {change.mark for cell in cells for change in cell.changes}
    n = min(view.n, 4)
    some = set(range(max(n - 1, 1)))
    whole = set(range(n))
    who = {Mark.OWN: {1 % n}, Mark.PARTIAL: some, Mark.COMPLETE: whole, Mark.PASSED: some,
           Mark.EMPTY: set(), Mark.UNKNOWN: set()}  # fmt: skip
    if not view.story.reduces:
        who[Mark.COMPLETE] = {view.story.root or 0}
    out: list[tuple[Mark | None, str, set[int], str]] = []
    for mark in ORDER:
        if mark in marks:
            text = view_text(view, who[mark]) if mark is not Mark.EMPTY else ""
            out.append((mark, text, who[mark], words.legend(view.story, mark, view.numbers)))
    if view.story.messages:
        mark = Mark.OWN if view.story.reduces else Mark.EMPTY
        last = {n - 2 if n > 2 else 0}
        text = view_text(view, last) if view.story.reduces else ""
        out.append((None, text, last if mark is Mark.OWN else set(), words.ARRIVING))
    return out


def view_text(view: Cells, who: set[int]) -> str:
    """Return a sample's number: what ranks holding 1, 2, 3 and 4 would have together."""
    if view.names:
        return "a" if len(who) == 1 else "a+b"
    if not view.numbers:
        return ""
    numbers = [rank + 1 for rank in who]
    op = view.story.op
    if not view.story.reduces or not numbers:
        return str(numbers[0]) if numbers else ""
    if op == "PRODUCT":
        total = 1
        for value in numbers:
            total *= value
        return str(total)
    return str(min(numbers) if op == "MIN" else max(numbers) if op == "MAX" else sum(numbers))


def _sample(
    reel: Reel, view: Cells, x: float, y: float, item: tuple[Mark | None, str, set[int], str]
) -> tuple[float, float]:
    """Draw a sample with its upper left corner at (x, y); return its width and the text's y."""
    mark, text, who, _ = item
    n = min(view.n, 4)
    if view.look.bars:
        look = Look(bars=True, w=14, h=40)
        n = view.n
        who = who if len(who) < 4 or mark is not Mark.COMPLETE else set(range(n))
    else:
        look = Look(False, 44, 22, 16, 5, 3, 3)
    shapes = tile(look, mark or (Mark.OWN if who else Mark.EMPTY), text, who, n=n,
                  reduces=view.story.reduces)  # fmt: skip
    put(reel, shapes, x, y)
    if mark is None:
        frame = arriving(look)
        put(reel, frame, x, y)
    return look.w, y + (look.h / 2 if look.bars else 15)


def row(reel: Reel, view: Cells, *, dots: bool = False) -> None:
    """Draw the legend in a row below the cards; with `dots`, say what those are."""
    items = samples(view)
    palette = view.look.bars
    right = 1228.0 - (view.n * 26 + 14 if palette else 0)
    sample_w = 14.0 if view.look.bars else 44.0
    widths = [sample_w + 12 + text_width(item[3], 18) for item in items]
    if dots:
        widths.append(DOTS_W + text_width(words.OTHERS, 18))
    used = sum(widths) + len(widths) * LEAST_GAP
    notes = (words.legend_note(view), words.legend_note_lines(view)[-1], "")
    note = next(n for n in notes if not n or used + text_width(n, 18) + 52 <= right)
    gap = (right - text_width(note, 18) - 40 - 52 - sum(widths)) / len(widths)
    gap = min(30.0, max(LEAST_GAP, gap))
    x, y = 52.0, 569.0 if not view.look.bars else 564.0
    baseline = (y + 20 if palette else y + 15) + 5.5
    for item, w in zip(items, widths, strict=False):
        x += 6 if item[0] is None else 0
        width, middle = _sample(reel, view, x, y, item)
        reel.text(x + width + 12, middle + 5.5, item[3], size=18, weight=500, fill="text")
        x += w + gap
    if dots:
        for k in range(2):
            put(reel, [patch(x + 18 * k, baseline - 12 + 0.5, 12, 12, k, radius=6)], 0, 0)
        reel.text(x + DOTS_W, baseline, words.OTHERS, size=18, weight=500, fill="text")
    reel.text(right, baseline, note, size=18, weight=500, fill="text", anchor="end")
    if palette:
        _palette(reel, view, right + 14)


def _palette(reel: Reel, view: Cells, x: float) -> None:
    """Draw each rank's colour with its number."""
    for place in view.story.places:
        if place.rank is None:
            continue
        put(reel, [patch(x, 568, 22, 13, place.place, radius=3)], 0, 0)
        reel.text(x + 11, 601, str(place.rank), size=16, font="mono", weight=500, fill="text",
                  anchor="middle")  # fmt: skip
        x += 26


def column(reel: Reel, view: Cells) -> None:
    """Draw the legend as a column in the upper left corner, where a tree leaves room."""
    x, y = 52.0, 151.0
    for item in samples(view):
        width, middle = _sample(reel, view, x, y, item)
        reel.text(x + width + 12, middle + 5.5, item[3], size=18, weight=500, fill="text")
        y += 45 if not view.look.bars else 54
    for k, line in enumerate(words.legend_note_lines(view)):
        reel.text(x, y + 16 + 23 * k, line, size=18, weight=500, fill="text")
