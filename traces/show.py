"""A trace in words: a summary, and one line an event, for people who read in a terminal.

for line in summary(trace):
    print(line)
header, rows = event_rows(trace, trace.where(rank=2, kind="send"))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..units import format_bytes, format_ns
from .columns import Rows
from .schema import Kind, Provenance, Role, Status, When
from .trace import Call, Trace

HEADER = ("time", "rank", "what", "step", "chunk slot", "size", "took", "values", "called at")
SHOWN_VALUES = 4


def provenances(trace: Trace) -> list[str]:
    """Return the provenances of a trace's events, the most frequent first.

    Example:
        >>> provenances(Trace.build({"kind": ["send"], "provenance": ["wire"]}))
        ['wire']
    """
    return [name for name, _ in Counter(trace.events["provenance"].to_list()).most_common() if name]


def duration_ns(trace: Trace) -> int | None:
    """Return the time from the first issue to the last end, or None where none is known."""
    start, end = trace.events["t_issue_ns"], trace.events["t_end_ns"]
    if not start.valid.any() or not end.valid.any():
        return None
    return int(end.values[end.valid].max() - start.values[start.valid].min())


def summary(trace: Trace) -> list[str]:
    """Return what a person wants to know first, one sentence a line."""
    ranks = sorted({rank for rank in trace.events["rank"].to_list() if rank is not None})
    size = trace.meta.world_size or len(ranks)
    took = duration_ns(trace)
    lines = [
        f"{', '.join(provenances(trace)) or 'empty'} trace of {size} rank{'s' * (size != 1)}: "
        f"{len(trace):,} events, {len(trace.states):,} tensor states"
        + ("" if took is None else f", {format_ns(took)}")
    ]
    algorithms = _algorithms(trace)
    calls = Counter(
        " ".join(filter(None, (call.collective, algorithms.get(call)))) for call in trace.calls()
    )
    if calls:
        lines.append("calls: " + ", ".join(f"{n} × {name}" for name, n in calls.items()))
    lines += _on_the_wire(trace)
    statuses = Counter(trace.events["status"].to_list())
    lines += [f"{statuses[s]} events {words}" for s, words in _STATUS_WORDS.items() if statuses[s]]
    lines += [f"note: {note}" for note in trace.meta.notes]
    return lines


_STATUS_WORDS = {
    Status.ERROR: "ended in an error",
    Status.BEGUN: "have no end",
    Status.UNOBSERVED: "were never waited for",
}


def _algorithms(trace: Trace) -> dict[Call, str]:
    """Return how each call was done, in words, where that is known."""
    rows = trace.where(kind=Kind.COLLECTIVE)
    rows = rows[trace.events["algorithm"].valid[rows]]
    names = trace.events["algorithm"].take(rows).to_list()
    return {
        trace.call_of(row): f"by {name}" for row, name in zip(rows.tolist(), names, strict=True)
    }


def _on_the_wire(trace: Trace) -> list[str]:
    """Return how many messages a tap saw, and how many of them were placed in a call."""
    sends = trace.where(kind=Kind.SEND, provenance=Provenance.WIRE)
    if not len(sends):
        return []
    size = int(trace.events["size_bytes"].values[sends].sum())
    inside = trace.events["coll_seq"].valid[sends]
    placed = int((inside & trace.events["step"].valid[sends]).sum())
    own = int((~inside & trace.events["parent"].valid[sends]).sum())
    words = [f"{placed:,} in the calls' plans"]
    words += [f"{own:,} the program's own"] if own else []
    words += [f"{rest:,} unmatched"] if (rest := len(sends) - placed - own) else []
    return [f"wire: {len(sends):,} messages, {format_bytes(size)}: {', '.join(words)}"]


def by_time(trace: Trace, rows: Rows) -> Rows:
    """Return event rows in the order in which they happened: issue, then file and seq."""
    issued = trace.events["t_issue_ns"]
    return rows[np.lexsort((rows, issued.values[rows], ~issued.valid[rows]))]


def event_rows(trace: Trace, rows: Rows) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Return a header and one tuple of texts an event, in the order given.

    Args:
        trace: The trace.
        rows: Numbers of event rows.
    """
    issued = trace.events["t_issue_ns"]
    origin = int(issued.values[issued.valid].min()) if issued.valid.any() else 0
    return HEADER, [_event(trace, int(row), origin) for row in rows]


def _event(trace: Trace, row: int, origin: int) -> tuple[str, ...]:
    event = trace.events.row(row)
    issue, end = event.get("t_issue_ns"), event.get("t_end_ns")
    start = event.get("t_start_ns", issue)
    took = "" if end is None or start is None else format_ns(end - start)
    if event.get("status", Status.OK) != Status.OK:
        took = event["status"] if "error" not in event else event["error"]
    slot = event.get("slot")
    n_slots = event.get("n_slots", 1)
    site = event.get("site")
    return (
        "" if issue is None else format_ns(issue - origin),
        _text(event.get("rank")),
        what(event),
        _text(event.get("step")),
        "" if slot is None else (str(slot) if n_slots == 1 else f"{slot}:{slot + n_slots}"),
        format_bytes(event["size_bytes"]) if "size_bytes" in event else "",
        took,
        _values(trace, row),
        "" if site is None else place(trace, site),
    )


def what(event: dict[str, Any]) -> str:
    """Return an event in a few words, such as ``send to 2`` or ``all_reduce SUM``.

    Example:
        >>> what({"kind": "recv", "peer": 1, "reduces": True})
        'recv from 1, added'
    """
    kind, peer = event.get("kind"), event.get("peer")
    if kind == Kind.SEND:
        return "send" if peer is None else f"send to {peer}"
    if kind == Kind.RECV:
        received = "recv" if peer is None else f"recv from {peer}"
        return f"{received}, added" if event.get("reduces") else received
    if kind == Kind.REDUCE:
        return f"reduce {event.get('reduce_op', '')}".rstrip()
    if kind == Kind.COLLECTIVE:
        number = event.get("coll_seq")
        words = [event.get("collective", "collective"), event.get("reduce_op", "")]
        words.append("" if number is None else f"#{number}")
        return " ".join(filter(None, words))
    if kind == Kind.GROUP:
        return str(event.get("api") or "group")
    return str(kind)


def place(trace: Trace, site: int) -> str:
    """Return a site as ``lesson.py:14``."""
    line = trace.meta.sites[site]
    return f"{line.file.rsplit('/', 1)[-1]}:{line.line}"


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _values(trace: Trace, row: int) -> str:
    """Return the numbers before and after an event, as far as they were kept."""
    before = _first(trace, row, When.BEFORE)
    after = _first(trace, row, When.AFTER)
    return " → ".join(filter(None, (before, after)))


def _first(trace: Trace, row: int, when: When) -> str:
    states = trace.states_of(row, when=when)
    roles = [trace.states["role"][int(state)] for state in states]
    texts = [
        values_text(trace, int(state))
        for state, role in zip(states, roles, strict=True)
        if role != Role.PAYLOAD or len(states) == 1
    ]
    return " ".join(texts)


def values_text(trace: Trace, state: int, limit: int = SHOWN_VALUES) -> str:
    """Return the first numbers of a state as text, such as ``[1, 2, 3, 4, …]``; "" if not kept."""
    values = trace.values(state)
    if values is None:
        return ""
    flat = values.reshape(-1)
    shape = trace.states["shape"][state]
    total = int(np.prod(shape)) if shape is not None else len(flat)
    shown = [number(value) for value in flat[:limit].tolist()]
    return "[" + ", ".join(shown + ["…"] * (total > limit)) + "]"


def number(value: object) -> str:
    """Return a number as short as it can be read, up to six digits; floats keep their point.

    Example:
        >>> number(3.0), number(0.1 + 0.2), number(7)
        ('3.0', '0.3', '7')
    """
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.6g}"
    return f"{text}.0" if text.lstrip("-").isdigit() else text
