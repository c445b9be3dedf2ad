"""What each slot holds, step by step, and the sign that its cell carries.

Contents are replayed from the messages: within a step every send reads before anything is written.
What the trace recorded (values, contributors) wins over what is derived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from . import Cell, Change, Content, Mark, Message, Piece, Values

Slot = tuple[int, int]  # place, slot


def is_complete(content: Content, reduces: bool, n: int) -> bool:
    """Return whether a content is what the call is to deliver."""
    if content.who is None:
        return False
    return len(content.who) == n if reduces else bool(content.who)


def mark_of(content: Content, *, reduces: bool, n: int) -> Mark:
    """Return the sign of a content, as long as it has not been passed on."""
    if content.who is None:
        return Mark.UNKNOWN if content.chunk is not None or content.values else Mark.EMPTY
    if not content.who:
        return Mark.EMPTY
    if is_complete(content, reduces, n):
        return Mark.COMPLETE
    return Mark.OWN if len(content.who) == 1 else Mark.PARTIAL


def cells(
    start: dict[Slot, Content],
    messages: Sequence[Message],
    *,
    reduces: bool,
    n: int,
    shown: Iterable[Slot],
) -> list[Cell]:
    """Return the cells and their changes.

    Args:
        start: What each slot holds at the beginning.
        messages: All messages, in order.
        reduces: Whether the collective combines.
        n: Number of ranks.
        shown: The slots that have a cell.
    """
    accesses = _accesses(messages)
    out = []
    for place, slot in shown:
        content = start.get((place, slot), Content())
        changes = [Change(None, False, mark_of(content, reduces=reduces, n=n), content)]
        uses = accesses.get((place, slot), [])
        for at, (number, piece, writes) in enumerate(uses):
            if writes:
                content = piece.after
                if messages[number].t_end_ns is not None:
                    mark = mark_of(content, reduces=reduces, n=n)
                    changes.append(Change(number, True, mark, content))
            elif not is_complete(content, reduces, n) and _dead(messages, uses[at + 1 :], content):
                changes.append(Change(number, False, Mark.PASSED, content))
        out.append(Cell(place, slot, tuple(changes)))
    return out


def _dead(
    messages: Sequence[Message], later: list[tuple[int, Piece, bool]], content: Content
) -> bool:
    """Return whether nothing uses a content again: it is overwritten, or never looked at."""
    if content.who is None:
        return False
    for number, _, writes in later:
        return writes and not messages[number].reduces
    return True


def divided(drawn: Sequence[Cell], outputs: Mapping[int, Values | None]) -> list[Cell]:
    """Return cells with AVG's last division, which is no row, as a change at the end of the call.

    Args:
        drawn: The cells of all places.
        outputs: The values that each place got; None where they were not recorded.
    """
    out = list(drawn)
    for place, values in outputs.items():
        done = [
            k
            for k, cell in enumerate(drawn)
            if cell.place == place and cell.changes[-1].mark is Mark.COMPLETE
        ]
        sizes = [len(drawn[k].changes[-1].content.values or ()) for k in done]
        if values is None or sum(sizes) != len(values):
            continue
        for k, piece in zip(done, np.split(np.array(values), np.cumsum(sizes)[:-1]), strict=True):
            content = replace(drawn[k].changes[-1].content, values=tuple(piece.tolist()))
            last = Change(None, True, Mark.COMPLETE, content)
            out[k] = replace(drawn[k], changes=(*drawn[k].changes, last))
    return out


def _accesses(messages: Sequence[Message]) -> dict[Slot, list[tuple[int, Piece, bool]]]:
    """Return each slot's (message, piece, writes) in order; reads come first within a step."""
    out: dict[Slot, list[tuple[int, Piece, bool]]] = {}
    by_step: dict[int, list[int]] = {}
    for number, message in enumerate(messages):
        by_step.setdefault(message.step, []).append(number)
    for step in sorted(by_step):
        for writes in (False, True):
            for number in by_step[step]:
                message = messages[number]
                for piece in message.pieces:
                    slot = piece.dst_slot if writes else piece.src_slot
                    place = message.dst if writes else message.src
                    out.setdefault((place, slot), []).append((number, piece, writes))
    return out


def replay(
    start: dict[Slot, Content],
    steps: Sequence[Sequence[tuple[int, Slot, Slot, bool]]],
    recorded: Callable[[int, Slot, str], Content],
) -> dict[tuple[int, Slot], tuple[Content, Content, Content]]:
    """Return payload, before and after for each (message, destination slot).

    Args:
        start: What each slot holds at the beginning.
        steps: The moves of each step: message, source slot, destination slot, whether it reduces.
        recorded: What the trace says of (message, destination slot, "payload" | "before" |
            "after"); an empty Content where it says nothing.
    """
    held = dict(start)
    out = {}
    for moves in steps:
        sent = {
            (number, dst): merge(recorded(number, dst, "payload"), held.get(src, Content()))
            for number, src, dst, _ in moves
        }
        for number, _, dst, reduces in moves:
            payload = sent[number, dst]
            before = merge(recorded(number, dst, "before"), held.get(dst, Content()))
            derived = _combined(before, payload) if reduces else payload
            held[dst] = merge(recorded(number, dst, "after"), derived)
            out[number, dst] = (payload, before, held[dst])
    return out


def _combined(before: Content, payload: Content) -> Content:
    who = None if before.who is None or payload.who is None else before.who | payload.who
    return Content(payload.chunk if before.chunk is None else before.chunk, who, None)


def merge(first: Content, second: Content) -> Content:
    """Return the first content, completed by the second where it is silent."""
    return Content(
        second.chunk if first.chunk is None else first.chunk,
        second.who if first.who is None else first.who,
        second.values if first.values is None else first.values,
    )
