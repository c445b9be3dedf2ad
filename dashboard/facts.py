"""What a card says about a trace: name, ranks, bytes, time, algorithm, how it is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..traces.schema import Kind, Provenance, Status
from ..traces.trace import Trace
from ..units import format_bytes, format_ns

# From the most detailed to the least: what a trace with several kinds of events is called.
_RANKING = (
    Provenance.WIRE,
    Provenance.EXECUTED,
    Provenance.SIMULATED,
    Provenance.IMPORTED,
    Provenance.CALLED,
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a card says.

    Attributes:
        title: Such as "Ring all_reduce" or "48 all_reduces".
        provenance: The most detailed of its events' provenances.
        ranks: Number of ranks.
        size: Bytes of all calls together, for people.
        time: From the first event to the last, or "open" where no end was seen.
        algorithm: Its name, or "not known".
    """

    title: str
    provenance: str
    ranks: int
    size: str
    time: str
    algorithm: str

    @property
    def recorded(self) -> bool:
        """Whether it happened, rather than was computed."""
        return self.provenance != Provenance.SIMULATED


def facts(trace: Trace) -> Facts:
    """Return what a card says about a trace."""
    events = trace.events
    found = {str(text) for text in events["provenance"].texts}
    provenance = next((p for p in _RANKING if p in found), Provenance.IMPORTED)
    return Facts(
        title=title(trace),
        provenance=str(provenance),
        ranks=trace.meta.world_size or len(_distinct(events["rank"].to_list())),
        size=_size(trace),
        time=_time(trace),
        algorithm=_algorithm(trace) or "not known",
    )


def title(trace: Trace) -> str:
    """Return the name of what a trace holds: its one call, or how many of which."""
    calls = trace.calls()
    names = _distinct(call.collective for call in calls)
    if not calls:
        return f"{len(trace):,} events" if len(trace) else "No events"
    if len(calls) > 1:
        return f"{len(calls)} {names[0]}s" if len(names) == 1 else f"{len(calls)} collectives"
    return call_title(names[0], _algorithm(trace))


def call_title(collective: str, algorithm: str | None) -> str:
    """Return the name of a call.

    Example:
        >>> call_title("all_reduce", "ring"), call_title("broadcast", None)
        ('Ring all_reduce', 'broadcast')
    """
    if not algorithm:
        return collective
    words = algorithm.replace("_", " ")
    return f"{words[0].upper()}{words[1:]} {collective}"


def _distinct(items: Iterable[object]) -> list[str]:
    return [str(item) for item in dict.fromkeys(items) if item is not None]


def _algorithm(trace: Trace) -> str | None:
    rows = trace.where(kind=Kind.COLLECTIVE)
    names = _distinct(trace.events["algorithm"].take(rows))
    return names[0] if len(names) == 1 else ("several" if names else None)


def _size(trace: Trace) -> str:
    """Return the bytes of all calls, each counted once."""
    largest: dict[object, int] = {}
    for row in trace.where(kind=Kind.COLLECTIVE):
        call = trace.call_of(int(row))
        largest[call] = max(largest.get(call, 0), trace.events["size_bytes"][row] or 0)
    return format_bytes(sum(largest.values()))


def _time(trace: Trace) -> str:
    events = trace.events
    rows = trace.where(kind=Kind.COLLECTIVE)
    if not len(rows):
        rows = np.arange(len(trace))
    start, end = events["t_issue_ns"].take(rows), events["t_end_ns"].take(rows)
    if events["status"].take(rows).where(Status.BEGUN).any():
        return "open"
    if not start.valid.any() or not end.valid.any():
        return "not known"
    return format_ns(int(end.values[end.valid].max() - start.values[start.valid].min()))
