"""Describing what a diff found, the first in causal order first."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..trace import Trace
from .find import Batch, Finder
from .order import joined
from .report import Difference, What
from .words import (
    column_sentence,
    contributors_sentence,
    lone_call,
    lone_event,
    lone_group,
    lone_message,
    state_name,
    values_sentence,
    where,
)

_LONE = {
    What.GROUP: lone_group,
    What.CALL: lone_call,
    What.MESSAGE: lone_message,
    What.EVENT: lone_event,
}


class Describer:
    """Turns rows that differ into sentences."""

    def __init__(self, found: Finder) -> None:
        self.found = found
        self.a, self.b = found.a.trace, found.b.trace

    def first(self, limit: int) -> list[Difference]:
        """Return the first differences in causal order."""
        if not self.found.batches:
            return []
        lengths = [len(batch.row_a) for batch in self.found.batches]
        detail = np.repeat([batch.detail for batch in self.found.batches], lengths)
        order = joined([batch.place for batch in self.found.batches]).order(detail)[:limit]
        starts = np.cumsum(lengths) - lengths
        which = np.searchsorted(starts, order, side="right") - 1
        return [
            self._describe(self.found.batches[k], int(entry - starts[k]))
            for k, entry in zip(which.tolist(), order.tolist(), strict=True)
        ]

    def _describe(self, batch: Batch, k: int) -> Difference:
        row_a, row_b, state_a, state_b = (
            None if rows[k] < 0 else int(rows[k])
            for rows in (batch.row_a, batch.row_b, batch.state_a, batch.state_b)
        )
        text, one, two = self._sentence(batch, row_a, row_b, state_a, state_b)
        trace, row = (self.a, row_a) if row_a is not None else (self.b, row_b)
        cells = trace.events.row(row if row is not None else 0)
        return Difference(
            what=batch.what,
            text=text,
            a=one,
            b=two,
            column=batch.column or None,
            rank=cells.get("rank"),
            collective=cells.get("collective"),
            coll_seq=cells.get("coll_seq"),
            step=cells.get("step"),
            kind=cells.get("kind"),
            row_a=row_a,
            row_b=row_b,
            state_a=state_a,
            state_b=state_b,
        )

    def _sentence(
        self,
        batch: Batch,
        row_a: int | None,
        row_b: int | None,
        state_a: int | None,
        state_b: int | None,
    ) -> tuple[str, Any, Any]:
        """Return the sentence of a difference, and what A and B have there."""
        a, b = self.a, self.b
        if row_a is None or row_b is None:
            text = _lone(batch.what, a, row_a, b, row_b)
            return (text, None, text) if row_a is None else (text, text, None)
        if batch.what is What.TIME:
            start_a, start_b = self.found.timeline.start_ns
            one, two = a.events[batch.column][row_a], b.events[batch.column][row_b]
            one = None if one is None else one - start_a
            two = None if two is None else two - start_b
            kind = b.events["kind"][row_b]
            return (
                f"{where(b, row_b)}: {batch.column} of the {kind} is {two}, expected {one}",
                one,
                two,
            )
        if batch.what is What.COLUMN:
            cells = a.events[batch.column][row_a], b.events[batch.column][row_b]
            return column_sentence(a, row_a, b, row_b, batch.column), *cells
        if state_a is None or state_b is None:
            trace, state, row, lacking = (
                (b, state_b, row_b, "A") if state_a is None else (a, state_a, row_a, "B")
            )
            name = state_name(trace, state if state is not None else 0, row)
            text = f"{where(trace, row)}: {name} was not recorded in {lacking}"
            return (text, None, name) if state_a is None else (text, name, None)
        if batch.what is What.VALUES:
            text = values_sentence(
                a, state_a, b, state_b, row_b, self.found.values, self.found.tolerance
            )
            return text, a.digest(state_a), b.digest(state_b)
        one, two = a.states[batch.column][state_a], b.states[batch.column][state_b]
        if batch.column == "contributors":
            return contributors_sentence(a, state_a, b, state_b, row_b), one, two
        name = state_name(b, state_b, row_b)
        return f"{where(b, row_b)}: {batch.column} of {name} is {two}, expected {one}", one, two


def _lone(what: What, a: Trace, row_a: int | None, b: Trace, row_b: int | None) -> str:
    if row_a is not None:
        return _LONE[what](a, row_a, "B")
    assert row_b is not None  # a difference has a row on one side at least
    return _LONE[what](b, row_b, "A")
