"""What a check says: typed findings, and the whole as text or JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any


class Code(StrEnum):
    """What a finding is about."""

    NEVER_ARRIVED = "never_arrived"  # ranks wait for one that did not make the call
    MISMATCH = "mismatch"  # the ranks' calls differ in kind, dtype, op, root or size
    ORDER = "order"  # a rank makes two calls in the other order
    GROUP_ORDER = "group_order"  # ranks make their groups in different orders
    SPLITS = "splits"  # all_to_all: what one rank sends is not what the other expects
    ERROR = "error"  # a call raised by itself, not because of the others
    DEADLOCK = "deadlock"  # ranks wait for each other in a circle
    NOT_RECEIVED = "not_received"  # a send without its recv
    NOT_SENT = "not_sent"  # a recv without its send
    TAGS = "tags"  # a send and a recv with different tags
    SIZES = "sizes"  # a send and its recv of different sizes
    DTYPES = "dtypes"  # a send and its recv of different types
    SELF_SEND = "self_send"  # a rank sends to itself
    DIED = "died"  # a process was killed, or ended inside a call
    STUCK = "stuck"  # a call did not end, and nothing above tells why
    NOT_WAITED = "not_waited"  # an asynchronous call that nobody waited for
    ALIASED = "aliased"  # several outputs of one call lie in the same memory
    WRONG_RESULT = "wrong_result"  # an output does not hold what the inputs make it
    SHAPES = "shapes"  # ranks reduce tensors of equal size and different shape
    WIRE = "wire"  # the messages inside native gloo are not those of its schedule
    # What probes tell, see `chunkscope.probe`.
    NO_PROBE = "no_probe"  # a value is no sum of probes
    TWICE = "twice"  # a rank's part is in it more than once
    MISSING = "missing"  # a rank's part is not in it
    EXTRA = "extra"  # a part is in it that should not be
    MISPLACED = "misplaced"  # an element lies where another belongs


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a person should know about a run.

    Attributes:
        code: What it is about.
        message: One or two sentences: who, where, and what that means.
        look: What to look at next, one line each.
        harmless: Whether the run may be right all the same.
        ranks: Global ranks that it is about, those that are likely to blame.
        attempt: Restart of the job that it happened in.
        group: Group, an index into the trace's groups.
        coll_seq: Number of the collective call in its group.
        site: Line of the program to look at, an index into the trace's sites.
        rows: Rows of the trace's events that show it.
        t_ns: When it began; None where that is not known.
    """

    code: Code
    message: str
    look: tuple[str, ...] = ()
    harmless: bool = False
    ranks: tuple[int, ...] = ()
    attempt: int = 0
    group: int | None = None
    coll_seq: int | None = None
    site: int | None = None
    rows: tuple[int, ...] = ()
    t_ns: int | None = None

    def __str__(self) -> str:
        return self.message

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON's types; what is not there is left out."""
        cells = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            name: list(cell) if isinstance(cell, tuple) else cell
            for name, cell in cells.items()
            if cell is not None
        }


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found, and what it looked at.

    Attributes:
        findings: What was found; what is likely to be the cause comes first, the harmless last.
        looked_at: What was looked at, such as "17 calls and 4 messages of 4 ranks".
        late: Lines about who came last; empty where nothing can be said.
        notes: What could not be looked at, and why.
    """

    findings: tuple[Finding, ...]
    looked_at: str
    late: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no problem was found; something harmless may have been."""
        return all(finding.harmless for finding in self.findings)

    def to_text(self, limit: int = 10) -> str:
        """Return the report for a person: the verdict, then what to look at.

        Args:
            limit: Findings that are told; the others are counted.
        """
        problems = [finding for finding in self.findings if not finding.harmless]
        harmless = [finding for finding in self.findings if finding.harmless]
        lines = [_verdict(len(problems), self.looked_at)]
        for finding in problems[:limit]:
            lines += ["", finding.message, *(f"  {line}" for line in finding.look)]
        lines += _more(len(problems) - limit, "problem")
        if harmless:
            lines += ["", "Worth a look, and likely harmless:"]
            for finding in harmless[:limit]:
                lines += [f"  {finding.message}", *(f"    {line}" for line in finding.look)]
            lines += _more(len(harmless) - limit, "such thing")
        if self.late:
            lines += ["", *self.late]
        if self.notes:
            lines += ["", *(f"Note: {note}" for note in self.notes)]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the report as JSON text."""
        found = {
            "ok": self.ok,
            "looked_at": self.looked_at,
            "findings": [finding.to_json() for finding in self.findings],
            "late": list(self.late),
            "notes": list(self.notes),
        }
        return json.dumps(found, indent=2, ensure_ascii=False)


def _verdict(problems: int, looked_at: str) -> str:
    if not problems:
        return f"No problem found in {looked_at}."
    if problems == 1:
        return f"One problem found in {looked_at}."
    return f"{problems} problems found in {looked_at}, the likely cause first."


def _more(number: int, noun: str) -> list[str]:
    return [f"... and {number} more {noun}{'s' * (number > 1)} (--json lists all)"] * (number > 0)
