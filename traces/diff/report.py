"""What a diff says: typed differences, and the whole as text or JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from ...errors import TraceMismatch


class What(StrEnum):
    """What a difference is about."""

    WORLD_SIZE = "world_size"  # the jobs have different numbers of ranks; nothing else is compared
    GROUP = "group"  # a process group that one side lacks
    CALL = "call"  # a collective call that one side lacks
    MESSAGE = "message"  # a message that one side lacks, at both of its ends
    EVENT = "event"  # another event that one side lacks
    COLUMN = "column"  # a column of an event
    STATE = "state"  # a tensor state that one side lacks
    STATE_COLUMN = "state_column"  # contributors, dtype or shape of a state
    VALUES = "values"  # the numbers in a state
    TIME = "time"  # a time, counted from the start of the trace
    LINE = "line"  # a line of a schedule's text


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs. A is what was expected, B what was found.

    Attributes:
        what: What it is about.
        text: One sentence for a person.
        a: What A has; None where it has nothing there.
        b: What B has, likewise.
        column: Column that differs, where one does.
        rank: Global rank at which it shows.
        collective: Name of the collective call that it is in.
        coll_seq: Number of that call in its group.
        step: Step of the schedule.
        kind: Kind of the event.
        row_a: Row of A's events table.
        row_b: Row of B's events table.
        state_a: Row of A's states table.
        state_b: Row of B's states table.
        line_a: Line of A's text, from 1, where two schedules are compared.
        line_b: Line of B's text, likewise.
    """

    what: What
    text: str
    a: Any = None
    b: Any = None
    column: str | None = None
    rank: int | None = None
    collective: str | None = None
    coll_seq: int | None = None
    step: int | None = None
    kind: str | None = None
    row_a: int | None = None
    row_b: int | None = None
    state_a: int | None = None
    state_b: int | None = None
    line_a: int | None = None
    line_b: int | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class TraceDiff:
    """How two traces, or two schedules, differ.

    Attributes:
        a: What A is, in a few words.
        b: What B is.
        differences: What differs, in causal order; the first ones where there are very many.
        total: Number of differences.
        compared: What was compared, such as "96 events and 120 states".
        notes: What was not compared, and why.
    """

    a: str
    b: str
    differences: tuple[Difference, ...]
    total: int
    compared: str
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return self.total == 0

    @property
    def first(self) -> Difference | None:
        """The first divergence in causal order; None where nothing differs."""
        return self.differences[0] if self.differences else None

    def check(self) -> None:
        """Raise TraceMismatch, with the text of the diff, where something differs."""
        if not self.same:
            raise TraceMismatch(self.to_text())

    def to_text(self, limit: int = 20) -> str:
        """Return the diff for a person: what was compared, and the first `limit` differences."""
        lines = [f"A: {self.a}", f"B: {self.b}"]
        if self.same:
            lines.append(f"No differences: {self.compared} compared.")
        else:
            many = "1 difference" if self.total == 1 else f"{self.total} differences"
            lines.append(f"{many} ({self.compared} compared). The first in causal order:")
            shown = self.differences[:limit]
            lines += [f"  {difference.text}" for difference in shown]
            if self.total > len(shown):
                lines.append(f"  ... and {self.total - len(shown)} more")
        lines += [f"Note: {note}." for note in self.notes]
        return "\n".join(lines)

    def to_json(self, limit: int | None = None) -> str:
        """Return the diff as JSON text; odd floats are strings, nulls are left out."""
        listed = self.differences if limit is None else self.differences[:limit]
        return json.dumps(
            {
                "same": self.same,
                "a": self.a,
                "b": self.b,
                "compared": self.compared,
                "total": self.total,
                "differences": [_json_of(difference) for difference in listed],
                "notes": list(self.notes),
            },
            indent=2,
            ensure_ascii=False,
        )

    def __str__(self) -> str:
        return self.to_text()


def _json_of(difference: Difference) -> dict[str, Any]:
    cells = {field.name: getattr(difference, field.name) for field in fields(difference)}
    return {name: _plain(cell) for name, cell in cells.items() if cell is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return list(value) if isinstance(value, tuple) else value
