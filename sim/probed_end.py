"""The end of a collective that the program wrote itself: does each rank have what is due to it?

What a rank does between two messages is not recorded. So the end is judged by the last that a rank
had of each element: what it received or sent, or what it received added to what it had before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..traces.check.finding import Code, Finding
from ..traces.check.run import names
from ..traces.record.probe import LAYOUTS
from .probed_messages import Messages, Payload
from .probed_words import elements, owners, parts, trouble

Ints = npt.NDArray[np.int64]
Counts = npt.NDArray[np.uint8]


@dataclass(slots=True)
class _Held:
    """What a rank had last of each element.

    Attributes:
        last: Contributions in the last message, or its own part, (elements, labels).
        summed: The same, if everything that came was added since.
        message: 1 + number of that message, 0 for none, (elements,).
        ever: Whether each label's part of the element has ever been here, (elements, labels).
    """

    last: Counts
    summed: Counts
    message: Ints
    ever: npt.NDArray[np.bool_]


class _End(NamedTuple):
    """How a rank ends with some elements.

    Attributes:
        positions: The elements.
        code: What is wrong.
        text: The same in words, without the rank.
        lost: Labels whose parts are missing.
        message: The last message with them, a number; None for none.
    """

    positions: tuple[int, ...]
    code: Code
    text: str
    lost: tuple[int, ...]
    message: int | None


def final_findings(messages: Messages, root: int | None) -> Iterator[Finding]:
    """Yield what ranks end without, and the message in which it got lost.

    Args:
        messages: The messages of one collective.
        root: Group rank of its root; where it has one and it is not known, nothing is judged.
    """
    kind = messages.kind
    if kind.rooted and root is None:
        return
    held = _walk(messages)
    ends: dict[tuple[Any, ...], list[tuple[int, _End]]] = {}
    for rank, mine in enumerate(held):
        if kind.has_output(rank, root):
            for end in _ends(messages, mine, rank, root):
                ends.setdefault((end.positions, end.text), []).append((rank, end))
    lost_in: dict[tuple[int, int], Finding] = {}
    for found in ends.values():
        finding = _finding(messages, found)
        # One message is behind whatever goes on from it.
        key = (finding.rows[0] if finding.rows else 0, len(lost_in) * (not finding.rows))
        lost_in.setdefault(key, finding)
    yield from lost_in.values()


def _walk(messages: Messages) -> list[_Held]:
    size = messages.n_elements
    held = []
    for label in messages.labels:
        own = np.zeros((size, messages.world_size), np.uint8)
        own[:, label] = 1
        held.append(_Held(own, own.copy(), np.zeros(size, np.int64), own > 0))
    for number, (payload, told) in enumerate(zip(messages.payloads, messages.told)):
        at = np.flatnonzero(told.valid)
        place, counts = told.positions[at], told.counts[at]
        mine = held[payload.rank]
        mine.last[place] = counts
        mine.summed[place] = counts if payload.is_send else mine.summed[place] + counts
        mine.message[place] = number + 1
        mine.ever[place] |= counts > 0
    return held


def _ends(messages: Messages, mine: _Held, rank: int, root: int | None) -> Iterator[_End]:
    """Yield what a rank ends with that is not due, elements of one kind together."""
    kind, n, size = messages.kind, len(messages.labels), messages.n_elements
    every = np.arange(size)
    block = every[rank * size // n : (rank + 1) * size // n] if size % n == 0 else every[:0]
    if kind.reduces:
        yield from _sums(messages, mine, block if kind.receives == "block" else every)
        return
    labels = messages.labels if root is None or not kind.input_at_root else [messages.labels[root]]
    positions = block if kind.receives == "transposed" or kind.name == "scatter" else every
    for label in labels:
        # An element tells of this label, or of others.
        told = positions[_shown(messages, positions)[:, label]]
        lacking = told[~mine.ever[told, label]]
        if len(lacking):
            text = f"without {elements(lacking)} of rank {label}'s part"
            message = _message(mine, int(lacking[0]))
            yield _End(tuple(lacking.tolist()), Code.MISSING, text, (label,), message)


def _sums(messages: Messages, mine: _Held, positions: Ints) -> Iterator[_End]:
    due = np.zeros(messages.world_size, np.uint8)
    due[messages.labels] = 1
    wanted = np.where(_shown(messages, positions), due[None, :], 0)
    good = (mine.last[positions] == wanted).all(1) | (mine.summed[positions] == wanted).all(1)
    bad = positions[~good]
    while len(bad):
        first = bad[0]
        alike = (mine.last[bad] == mine.last[first]).all(1)
        alike &= (mine.summed[bad] == mine.summed[first]).all(1)
        same, bad = bad[alike], bad[~alike]
        # Added to what it had, where that comes nearer to what is due.
        added, alone = mine.summed[first], mine.last[first]
        best = added if added.max() <= 1 and added.sum() > alone.sum() else alone
        held = np.repeat(np.arange(messages.world_size), best).tolist()
        wrong = trouble(held, np.flatnonzero(wanted[positions == first][0]).tolist())
        if wrong is not None:
            lost = tuple(k for k in messages.labels if not best[k])
            said = f"{owners(lost)} missing" if lost else wrong[1]
            text = f"with {parts(held)} in {elements(same)}: {said}"
            yield _End(tuple(same.tolist()), wrong[0], text, lost, _message(mine, int(first)))


def _message(mine: _Held, position: int) -> int | None:
    number = int(mine.message[position])
    return number - 1 if number else None


def _shown(messages: Messages, positions: Ints) -> npt.NDArray[np.bool_]:
    """Return of which labels each element tells, (positions, labels)."""
    layout = LAYOUTS[messages.payloads[0].values.dtype.name]
    blocks = layout.blocks(messages.world_size)
    block = np.arange(messages.world_size) // layout.ranks
    return np.asarray(block[None, :] == (positions % blocks)[:, None])


def _finding(messages: Messages, found: list[tuple[int, _End]]) -> Finding:
    """Return the finding for ranks that end alike."""
    run, ranks = messages.run, messages.run.group(messages.group).ranks
    rank, end = found[0]
    who = names([ranks[rank] for rank, _ in found])
    verb = "ends" if len(found) == 1 else "end"
    text = f"{who} {verb} {end.text}"
    look = []
    lost = None
    if end.lost:
        lost, words = _where_lost(messages, end.lost[0], end.positions[0])
        if lost is None:
            look.append(words)
        else:
            text, look = f"{messages.name(lost)}: {words}", [text]
    if end.message is None:
        look.append(f"no message brought {elements(end.positions)} to {names([ranks[rank]])}")
    else:
        last = messages.name(messages.payloads[end.message])
        look.append(f"the last that {names([ranks[rank]])} had of them was {last}")
    shown = lost
    if shown is None and end.message is not None:
        shown = messages.payloads[end.message]
    blamed = [lost.rank] if lost is not None else [rank for rank, _ in found]
    return Finding(
        end.code,
        text,
        tuple(look),
        ranks=tuple(ranks[rank] for rank in blamed),
        attempt=messages.attempt,
        group=messages.group,
        site=None if shown is None else run.cell(shown.row, "site"),
        rows=() if lost is None else (lost.row,),
        t_ns=None if shown is None else shown.t_ns,
    )


def _where_lost(messages: Messages, label: int, position: int) -> tuple[Payload | None, str]:
    """Return the message in which a part of an element got lost, and words.

    It is the first that a rank sent without the part although it had it: its own, or one that it
    had received. None where the part went on, but not far enough.
    """
    ranks = messages.run.group(messages.group).ranks
    has = {messages.labels.index(label)}
    is_sent = False
    for payload, told in zip(messages.payloads, messages.told):
        at = np.flatnonzero(told.valid & (told.positions == position))
        if not len(at):
            continue
        inside = bool(told.counts[at[0], label])
        if not payload.is_send:
            has |= {payload.rank} if inside else set()
        elif inside:
            is_sent = True
        elif payload.rank in has and messages.kind.reduces:
            own = messages.labels[payload.rank] == label
            whose = f"rank {label}'s own part" if own else f"rank {label}'s part, received before,"
            held = parts(told.parts(int(at[0])) or [])
            same = told.valid & (told.counts == told.counts[at[0]]).all(1)
            return payload, f"carries {held} in {elements(told.positions[same])}: {whose} is not in"
    there = names([ranks[rank] for rank in has])
    if not is_sent:
        return None, f"{there} never sent that part of element {position}"
    return None, f"that part of element {position} came to {there} and no further"
