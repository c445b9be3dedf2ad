"""The diff of two schedules, by their text: one transfer a line."""

from __future__ import annotations

from typing import Protocol

from .align import align
from .report import Difference, TraceDiff, What


class HasText(Protocol):
    """A schedule, as far as a diff needs it."""

    def to_text(self) -> str:
        """Return the schedule as text."""


def diff_schedules(a: HasText, b: HasText, limit: int) -> TraceDiff:
    """Compare two schedules line by line, aligned where one has lines that the other lacks."""
    lines_a, lines_b = a.to_text().splitlines(), b.to_text().splitlines()
    found = []
    for i, j in align(_aligned_by(lines_a), _aligned_by(lines_b)):
        ours = None if i is None else lines_a[i]
        theirs = None if j is None else lines_b[j]
        if ours != theirs:
            found.append(_difference(ours, theirs, i, j))
    return TraceDiff(
        a=_summary(lines_a),
        b=_summary(lines_b),
        differences=tuple(found[:limit]),
        total=len(found),
        compared=f"{max(len(lines_a), len(lines_b))} lines",
    )


def _difference(a: str | None, b: str | None, i: int | None, j: int | None) -> Difference:
    if a is None:
        text = f"line {(j or 0) + 1}: {_quoted(b)} is not in A"
    elif b is None:
        text = f"line {(i or 0) + 1}: {_quoted(a)} is not in B"
    else:
        text = f"line {(j or 0) + 1}: found {_quoted(b)}, expected {_quoted(a)}"
    lines = (None if i is None else i + 1, None if j is None else j + 1)
    step = _step(b if a is None else a)
    return Difference(What.LINE, text, a, b, step=step, line_a=lines[0], line_b=lines[1])


def _aligned_by(lines: list[str]) -> list[str]:
    """Return what lines are aligned by: transfers as they are, the header's by their names."""
    return [line if line[:1].isdigit() else line.split(" ", 1)[0] for line in lines]


def _quoted(line: str | None) -> str:
    return f"`{(line or '').strip()}`"


def _step(line: str | None) -> int | None:
    """Return the step of a line that is a transfer: its first word."""
    words = (line or "").split()
    return int(words[0]) if words and words[0].isdigit() else None


def _summary(lines: list[str]) -> str:
    """Return the header of a schedule's text in one line."""
    head = [line.split() for line in lines if line.strip() and not line.lstrip()[0].isdigit()]
    cells = {words[0]: " ".join(words[1:]) for words in head if len(words) > 1}
    named = [cells[name] for name in ("collective", "algorithm") if name in cells]
    size = cells.get("group_size")
    return "schedule " + " ".join(named) + (f", {size} ranks" if size else "")
