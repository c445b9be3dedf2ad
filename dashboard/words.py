"""Every word of the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .numbers import size_text
from .story import Mark, Message, Story
from .theme import MONO_EM

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
ARRIVING = "arriving"
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
    """Return a number and a noun: 1 rank, 2 ranks."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def title(story: Story) -> str:
    """Return the film's title: what and on how many ranks."""
    return f"{name(story)} · {plural(story.n, 'rank')}"


def name(story: Story) -> str:
    """Return the operation's name: as torch spells it where only the call is known."""
    if story.textbook or story.algorithm is None:
        return story.collective
    words = story.algorithm.replace("_", " ").split()
    family, variant = words[0], " ".join(words[1:])
    text = f"{family.capitalize()} {story.collective.replace('_', '-')}"
    return f"{text} ({variant})" if variant else text


def badge(story: Story) -> str:
    """Return how this is known, in a word or two."""
    if story.provenance in ("simulated", "imported"):
        return story.provenance
    return f"recorded · {story.backend}" if story.backend else "recorded"


def rank(number: int | None, place: int) -> str:
    """Return the name of a place: Rank 3, or Switch 1 for a helper."""
    return f"Rank {place}" if number is None else f"Rank {number}"


def tag(number: int | None, place: int) -> str:
    """Return the short name of a place: R3, or S1 for a helper."""
    return f"S{place}" if number is None else f"R{number}"


def each(text: str) -> str:
    """Return a size as that of each message."""
    return f"{text} a message"


def of(some: int, all_: int) -> str:
    """Return a share as words: 6 of 8."""
    return f"{some} of {all_}"


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
        parts.append(size_text(story.size_bytes))
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


def _piece(text: str, strength: int) -> tuple[str, float, int]:
    air = MONO_EM if strength == 0 else 0.0
    return text, MONO_EM * len(text) + air, strength


def operator(story: Story) -> str:
    """Return the large word in the operator of a bare call."""
    others = {"all_gather": "GATHER", "gather": "GATHER", "all_to_all": "EXCHANGE",
              "barrier": "WAIT"}  # fmt: skip
    return others.get(story.collective, story.op or story.collective)


def chunk(message: Message, *, brief: bool = False) -> str:
    """Return the name of what a message carries: chunk 5, or c5."""
    if len(message.pieces) > 1:
        first, last = message.pieces[0].dst_slot, message.pieces[-1].dst_slot
        return f"c{first}–{last}" if brief else f"{len(message.pieces)} chunks"
    piece = message.pieces[0]
    number = piece.dst_slot if piece.payload.chunk is None else piece.payload.chunk
    return f"c{number}" if brief else f"chunk {number}"


def things(story: Story, numbers: bool) -> str:
    """Return what a cell holds: number or chunk."""
    return "number" if numbers else "chunk"


def sentence(story: Story, step: int, *, numbers: bool) -> str:
    """Return what happens in a step, in one sentence of at most 80 characters."""
    beat = story.steps[step]
    thing = things(story, numbers)
    family = (story.algorithm or "").split("_")[0]
    if story.collective == "all_reduce" and story.phases:
        return _all_reduce(story, step, family, thing)
    if beat.reduces:
        if family == "ring":
            if step == 0:
                k = len(story.places[0].cells)
                return f"Every rank sends one of its {count(k)} {thing}s to its neighbour."
            return f"The neighbour {combines(story.op)} {_own(thing)} and passes it on."
        if family == "chain":
            return f"Each rank {combines(story.op)} and hands the {result(story.op)} on."
        return f"Each sender hands its {thing} to a rank that {combines(story.op)}."
    if family == "ring":
        if step == 0:
            return f"Every rank sends its own {thing} to its neighbour."
        return "Every rank passes on what it has just received."
    if family == "chain":
        return f"Each rank keeps a copy of every {thing} and hands it on."
    if family == "tree":
        senders = {story.messages[m].src for m in beat.messages}
        if len(senders) == 1:
            return f"{_who(story, min(senders))} gives a copy of its {thing} to another rank."
        return f"Every rank that has the {thing} gives a copy to one that has not."
    return _plain(story, beat.messages)


def _own(thing: str) -> str:
    return "number" if thing == "number" else "part"


def _all_reduce(story: Story, step: int, family: str, thing: str) -> str:
    beat = story.steps[step]
    ring = family == "ring" or story.phases[0] == "Reduce-scatter"
    k = len(story.places[0].cells)
    if beat.reduces and ring:
        if step == 0:
            return f"Every rank sends one of its {count(k)} {thing}s to its neighbour."
        if thing == "number":
            return f"The neighbour {combines(story.op)} number and passes it on."
        return "Each rank adds its own part to the chunk that arrives and passes it on."
    if beat.reduces:
        return f"Each rank hands its {result(story.op)} up to its parent, which " + (
            f"{combines(story.op)}."
        )
    if ring:
        return f"The finished {results(story.op)} go once more around, until every rank has all."
    return f"The finished {result(story.op)} goes back down, from each parent to its children."


def _plain(story: Story, messages: tuple[int, ...]) -> str:
    """Return who sends to whom, for an algorithm that nothing more is known of."""
    first = story.messages[messages[0]]
    if len(messages) == 1:
        return f"{_who(story, first.src)} sends to {_who(story, first.dst).lower()}."
    ranks = len({story.messages[m].src for m in messages})
    what = "numbers that are added at the other end" if first.reduces else "copies"
    return f"{count(ranks).capitalize()} ranks send {what}."


def _who(story: Story, place: int) -> str:
    return rank(story.places[place].rank, place)


def intro(story: Story, *, numbers: bool) -> str:
    """Return what there is at the beginning and what is wanted."""
    thing = things(story, numbers)
    cells = len([c for c in story.places[0].cells if c.changes[0].mark is not Mark.EMPTY])
    held = f"a {thing}" if cells == 1 else f"{count(cells)} {thing}s"
    goal = {
        "all_reduce": f"Every rank holds {held}; all are to get the {_goal(story, cells)}.",
        "reduce_scatter": f"Every rank holds {held}; each is to get one of the "
        f"{results(story.op)}.",
        "reduce": f"Every rank holds {held}; {_root(story)} is to get the {_goal(story, cells)}.",
        "broadcast": f"{_root(story).capitalize()} holds {_at_root(story, thing)}; every rank is "
        "to get it.",
        "all_gather": f"Every rank holds {held} of its own; all are to get all of them.",
    }
    if story.n == 1:
        return "There is one rank, so nothing has to move."
    return goal.get(story.collective, f"Every rank holds {held}.")


def _goal(story: Story, cells: int) -> str:
    word = result(story.op) if cells == 1 else results(story.op)
    return f"{word} over the ranks"


def _root(story: Story) -> str:
    return _who(story, story.root or 0).lower()


def _at_root(story: Story, thing: str) -> str:
    cells = len(story.places[story.root or 0].cells)
    return f"a {thing}" if cells == 1 else f"{count(cells)} {thing}s"


def done(story: Story, *, numbers: bool) -> str:
    """Return how it ends."""
    if not story.finished:
        return unfinished(story)
    if story.n == 1:
        return "Done: the one rank has had its result from the start."
    thing = things(story, numbers)
    cells = len(story.places[0].cells)
    result_of = (
        f"{result(story.op) if cells == 1 else count(cells) + ' ' + results(story.op)}"
        if numbers
        else f"{thing}s, complete"
        if cells > 1
        else f"complete {thing}"
    )
    same = f"the same {result_of}" if cells > 1 or numbers else f"the {result_of}"
    return {
        "all_reduce": f"Done: every rank holds {same}.",
        "reduce": f"Done: {_root(story)} holds the {result_of}.",
        "reduce_scatter": f"Done: every rank holds one of the {results(story.op)}.",
        "broadcast": f"Done: every rank holds what {_root(story)} had.",
        "all_gather": f"Done: every rank holds the {thing}s of all ranks.",
    }.get(story.collective, "Done.")


def unfinished(story: Story) -> str:
    """Return where a call that has no end stood still."""
    open_ones = [m for m in story.messages if m.t_end_ns is None]
    if open_ones:
        return f"The recording ends here: {_waits(story, open_ones[0])}."
    missing = [p for p in story.places if p.rank is not None and p.row is None]
    if missing:
        return f"The recording ends here: {rank(missing[0].rank, 0).lower()} never called."
    return "The recording ends here: no end was seen."


def _waits(story: Story, message: Message) -> str:
    src, dst = _who(story, message.src).lower(), _who(story, message.dst).lower()
    return f"what {src} sent to {dst} was not seen to arrive"


def legend(story: Story, mark: Mark, numbers: bool) -> str:
    """Return what a sign means."""
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


def textbook(story: Story) -> str:
    """Return what a bare call does, in one sentence."""
    both = "Both ranks" if story.n == 2 else "All ranks"
    get = "both" if story.n == 2 else "all"
    root = _root(story)
    thing, things_ = ("number", "numbers") if _one_each(story) else ("tensor", "tensors")
    word = result(story.op)
    if word in ("smallest", "largest"):
        word += " number"
    return {
        "all_reduce": f"{both} hand in a {thing}, and {get} get the {word} back.",
        "reduce": f"{both} hand in a {thing}, and {root} gets the {word}.",
        "broadcast": f"{root.capitalize()} gives its {thing} to every other rank.",
        "all_gather": f"{both} hand in a {thing}, and {get} get every {thing} back.",
        "gather": f"{both} hand in a {thing}, and {root} gets all of them.",
        "scatter": f"{root.capitalize()} gives each rank one of its {things_}.",
        "reduce_scatter": f"{both} hand in {things_}, and each gets one {word}.",
        "all_to_all": f"{both} give every rank one of their {things_}.",
        "barrier": f"{both} wait here until {get} have come.",
    }.get(story.collective, f"{both} call {story.collective}.")


def _one_each(story: Story) -> bool:
    return all(p.n_elements in (None, 1) for p in story.places)
