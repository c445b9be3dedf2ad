"""The sentences of the pictures: what there is, what happens in each step, how it ends."""

from __future__ import annotations

from ..story import Mark, Message, Story
from .words import combines, count, rank, result, results


def things(story: Story, numbers: bool) -> str:
    """Return what a cell holds: number or chunk."""
    return "number" if numbers else "chunk"


def sentence(story: Story, step: int, *, numbers: bool) -> str:
    """Return what happens in a step, in one sentence of at most 80 characters."""
    beat = story.steps[step]
    thing = things(story, numbers)
    family = (story.algorithm or "").split("_")[0]
    if beat.told is not None and not _has_own_words(story, family):
        return beat.told
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


def _has_own_words(story: Story, family: str) -> bool:
    """Return whether the sentences here say more than those of the algorithm."""
    if family == "gloo":
        return story.collective == "all_reduce"
    return family in ("ring", "chain", "tree") and story.collective != "barrier"


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
        f"to get {'it' if _cells_at_root(story) == 1 else 'them'}.",
        "all_gather": f"Every rank holds {held} of its own; all are to get all of them.",
        "gather": f"Every rank holds {held} of its own; {_root(story)} is to get all of them.",
        "scatter": f"{_root(story).capitalize()} holds {_at_root(story, thing)}; every rank is to "
        "get its own part of them.",
        "all_to_all": f"Every rank holds {held}, and all have something for each other.",
        "barrier": "Nobody may go on until all ranks have come.",
        "send_recv": _holders(story, held),
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
    cells = _cells_at_root(story)
    return f"a {thing}" if cells == 1 else f"{count(cells)} {thing}s"


def _cells_at_root(story: Story) -> int:
    """Return the number of cells of the root that hold something when the call begins."""
    return sum(c.changes[0].mark is not Mark.EMPTY for c in story.places[story.root or 0].cells)


def _holders(story: Story, held: str) -> str:
    """Return who holds something when ranks begin to send and receive as they please."""
    full = [
        place.place
        for place in story.places
        if any(cell.changes[0].mark is not Mark.EMPTY for cell in place.cells)
    ]
    return f"{_who(story, full[0]) if len(full) == 1 else 'Every rank'} holds {held}."


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
        "gather": f"Done: {_root(story)} holds the {thing}s of all ranks.",
        "scatter": f"Done: every rank holds its own part of what {_root(story)} had.",
        "all_to_all": "Done: every rank holds what the others had for it.",
        "barrier": "Done: every rank knows that all have come.",
        "send_recv": "Done: all that was sent has arrived.",
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
        "send_recv": f"{both} give their {thing} to the next rank.",
        "barrier": f"{both} wait here until {get} have come.",
    }.get(story.collective, f"{both} call {story.collective}.")


def _one_each(story: Story) -> bool:
    return all(p.n_elements in (None, 1) for p in story.places)
