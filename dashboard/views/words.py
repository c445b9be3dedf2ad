"""Every word of the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...units import format_bytes
from ..story import Mark, Message, Story
from ..theme import MONO_EM

if TYPE_CHECKING:
    from .cellview import Cells

_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
           "eleven", "twelve")  # fmt: skip

LEGEND = {
    Mark.OWN: "own number",
    Mark.PARTIAL: "sum so far",
    Mark.COMPLETE: "finished",
    Mark.PASSED: "passed on",
    Mark.EMPTY: "still empty",
    Mark.UNKNOWN: "not known whose",
}
# In a barrier nothing is added up: what counts is whom a rank has heard of.
HEARD = {
    Mark.OWN: "only itself",
    Mark.PARTIAL: "heard of some",
    Mark.COMPLETE: "heard of all",
}
ARRIVING = "arriving"
MORE = "…"
OTHERS = "others’ messages"
DOTS = "dots: messages of the other ranks"
NOT_RECORDED = ("what happens inside", "was not recorded")
ROUTE_NOT_RECORDED = ("the route was", "not recorded")
HOW = "How could this be done?"
AFTER_CALL = "tensor after the call"
CALL_STARTS, CALL_RETURNS = "call starts", "call returns"
NO_VALUES = "values were not recorded"
NO_CALL = "no call was recorded"
NO_END = "no end was recorded"

# The full view.
SENDS, STATE, IN_FLIGHT = "Sends", "State", "In flight"
STATE_NOTE, STATE_NOTE_COPY = "ranks combined in each chunk", "whose chunk each rank has"
NOT_YET, BETWEEN = "waits for its turn", "waits for what it sends next"
ALL_SENT, SENDS_NOTHING = "has sent everything", "sends nothing"
COLOURS = "Colour = contributing rank"
LOGICAL = "logical picture: who sends to whom"
BETWEEN_HOSTS = "between hosts"

_SIGNS = {"SUM": "+", "AVG": "+", "PRODUCT": "×", "BAND": "&", "BOR": "|", "BXOR": "^"}
_RESULTS = {
    "SUM": "sum", "AVG": "average", "PRODUCT": "product", "MIN": "smallest", "MAX": "largest",
}  # fmt: skip
_ADDS = {"SUM": "adds", "AVG": "adds", "PRODUCT": "multiplies"}


def count(n: int) -> str:
    """Return a small number as a word."""
    return _COUNTS[n] if n < len(_COUNTS) else str(n)


def plural(n: int, noun: str) -> str:
    """Return a number and a noun: no steps, 1 rank, 2 ranks."""
    return f"{n} {noun}" if n == 1 else f"{n or 'no'} {noun}s"


# What is said in brackets after the family, and families that are not written as their names are.
_VARIANTS = ("tutorial", "list", "monitored", "segmented", "bidirectional", "channels")
_FAMILIES = {"nvls": "In-switch", "pat": "PAT", "torus2d": "2-D torus", "torus3d": "3-D torus"}


def title(story: Story) -> str:
    """Return the film's title: what and on how many ranks."""
    return f"{name(story)} · {plural(story.n, 'rank')}"


def name(story: Story) -> str:
    """Return the operation's name: as torch spells it where only the call is known."""
    if story.textbook or story.algorithm is None:
        return story.collective
    family, _, variant = story.algorithm.partition("_")
    if variant not in _VARIANTS:
        family, variant = story.algorithm.replace("_", "-"), ""
    family = _FAMILIES.get(family) or family[:1].upper() + family[1:]
    text = f"{family} {story.collective.replace('_', '-')}"
    return f"{text} ({variant})" if variant else text


def badge(story: Story) -> str:
    """Return how this is known, in a word or two."""
    if story.provenance in ("simulated", "imported"):
        return story.provenance
    word = "wire" if story.provenance == "wire" else "recorded"
    return f"{word} · {story.backend}" if story.backend else word


def rank(number: int | None, place: int) -> str:
    """Return the name of a place: Rank 3, or Switch for a helper."""
    return "Switch" if number is None else f"Rank {number}"


def tag(number: int | None, place: int) -> str:
    """Return the short name of a place: R3, or S1 for a helper."""
    return f"S{place}" if number is None else f"R{number}"


def each(text: str) -> str:
    """Return a size as that of each message."""
    return f"{text} a message"


def of(some: int, all_: int) -> str:
    """Return a share as words: 6 of 8."""
    return f"{some} of {all_}"


def line(where: str) -> str:
    """Return a place in a file without the file's name."""
    return f"line {where.rpartition(':')[2]}"


def network(shape: str) -> str:
    """Return what a topology is called in the middle of the stage."""
    return {"graph": "every link"}.get(shape, f"{shape}, every link")


def subtitle(story: Story) -> str:
    """Return size, operation and ranks of a call."""
    parts = [plural(story.n, "rank")]
    chunks = len({cell.slot for place in story.places for cell in place.cells})
    if chunks > 1:
        parts.append(f"{chunks} chunks")
    if story.size_bytes is not None:
        parts.append(format_bytes(story.size_bytes))
    kind = ", ".join(word for word in ((story.op or "").lower(), story.dtype or "") if word)
    return " · ".join([*parts, kind] if kind else parts)


def message_ref(story: Story, message: Message) -> dict[str, Any]:
    """Return what a primitive that stands for a message refers to."""
    piece = message.pieces[0]
    return {
        "kind": "message", "send": message.send, "recv": message.recv, "reduce": message.reduce,
        "src": story.places[message.src].rank, "dst": story.places[message.dst].rank,
        "chunk": piece.payload.chunk, "slot": piece.dst_slot, "step": message.step,
    }  # fmt: skip


def sign(op: str | None) -> str | None:
    """Return the sign between two operands; None for those written max(a, b)."""
    return _SIGNS.get(op or "SUM")


def result(op: str | None) -> str:
    """Return what an operation gives: sum, product, ..."""
    return _RESULTS.get(op or "SUM", "result")


def results(op: str | None) -> str:
    """Return the plural of `result`."""
    word = result(op)
    return word + "s" if word in ("sum", "average", "product", "result") else f"{word} numbers"


def combines(op: str | None) -> str:
    """Return what a rank does with what arrives and its own, as a verb with its object."""
    verb = _ADDS.get(op or "SUM")
    if verb == "adds":
        return "adds what arrives to its own"
    if verb == "multiplies":
        return "multiplies what arrives with its own"
    if op in ("MIN", "MAX"):
        return f"keeps the {'smaller' if op == 'MIN' else 'larger'} of what arrives and its own"
    return "combines what arrives with its own"


def total(op: str | None, operands: Sequence[str], result: str) -> list[tuple[str, float, int]]:
    """Return a sum in pieces: text, width in em with its air, strength (0 sign, 1, 2 result).

    Example:
        >>> [piece[0] for piece in total("SUM", ["700", "100"], "800")]
        ['700', '+', '100', '=', '800']
    """
    mark = sign(op)
    if mark is None:
        call = f"{(op or '').lower()}({', '.join(operands)})"
        return [_piece(call, 1), _piece("=", 0), _piece(result, 2)]
    pieces = [_piece(operands[0], 1)]
    for operand in operands[1:]:
        pieces += [_piece(mark, 0), _piece(operand, 1)]
    return [*pieces, _piece("=", 0), _piece(result, 2)]


def shortened(operands: Sequence[str], most: int) -> list[str]:
    """Return the operands of a sum, those in the middle left out where there are too many.

    Example:
        >>> shortened(["5", "4", "3", "2", "1"], 2)
        ['5', '…', '1']
    """
    return list(operands) if len(operands) <= most else [operands[0], "…", operands[-1]]


def _piece(text: str, strength: int) -> tuple[str, float, int]:
    air = MONO_EM if strength == 0 else 0.0
    return text, MONO_EM * len(text) + air, strength


def operator(story: Story) -> str:
    """Return the large word in the operator of a bare call."""
    others = {"all_gather": "GATHER", "gather": "GATHER", "all_to_all": "EXCHANGE",
              "send_recv": "SHIFT",
              "barrier": "WAIT"}  # fmt: skip
    return others.get(story.collective, story.op or story.collective)


def chunk(message: Message, *, brief: bool = False) -> str:
    """Return the name of what a message carries: chunk 5 or c5, 4 chunks or c4–7, else ×4."""
    if len(message.pieces) > 1:
        slots = [piece.dst_slot for piece in message.pieces]
        first, last = slots[0], slots[-1]
        if brief and slots != list(range(first, last + 1)):
            return f"×{len(slots)}"
        return f"c{first}–{last}" if brief else f"{len(slots)} chunks"
    piece = message.pieces[0]
    number = piece.dst_slot if piece.payload.chunk is None else piece.payload.chunk
    return f"c{number}" if brief else f"chunk {number}"


def legend(story: Story, mark: Mark, numbers: bool) -> str:
    """Return what a sign means."""
    if story.collective == "barrier" and mark in HEARD:
        return HEARD[mark]
    if mark is Mark.OWN and not numbers:
        return "own part"
    if mark is Mark.COMPLETE and not story.reduces:
        return "holds it"
    if mark is Mark.PARTIAL and story.op not in (None, "SUM", "AVG"):
        return f"{result(story.op)} so far"
    return LEGEND[mark]


def legend_note_lines(view: Cells) -> tuple[str, ...]:
    """Return what colour and number stand for, in short lines."""
    if view.names:
        return ("a = part of rank 0,", "b = part of rank 1, …")
    if view.story.collective == "barrier":
        return ("colour = a rank", "that has come")
    if not view.numbers:
        return ("colour =", "contributing rank")
    most, equal = view.elements()
    if most == 1:
        return ("colour = whose", "number is in it")
    if equal:
        return ("a cell holds", f"{most} equal numbers,", "colour = whose")
    return ("a cell shows", f"the first of {most},", "colour = whose")


def legend_note(view: Cells) -> str:
    """Return what colour and number stand for."""
    return " ".join(legend_note_lines(view))
