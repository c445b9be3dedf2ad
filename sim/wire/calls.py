"""The collective calls of a recording, as what each of them asked gloo for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...traces.schema import Kind, Provenance, Role, Status, When
from ...traces.trace import Trace
from .plans import Asked

# A group's process group in one attempt of the job: (attempt, group).
Stream = tuple[int, int]


@dataclass(frozen=True, slots=True)
class CalledCall:
    """One collective call that the program made.

    Attributes:
        stream: Attempt and group.
        coll_seq: Number of the call in its group.
        rows: Event row of each group rank that was recorded.
        asked: What it asked for.
        issue_ns: When the first rank called; None if not known.
        failed: Whether every recorded rank's call ended in an error.
    """

    stream: Stream
    coll_seq: int
    rows: dict[int, int]
    asked: Asked
    issue_ns: int | None
    failed: bool


_COLUMNS = (
    *("attempt", "group", "coll_seq", "group_rank", "rank", "collective", "api", "root"),
    *("size_bytes", "dtype", "reduce_op", "splits", "t_issue_ns", "status"),
)


def called_calls(trace: Trace) -> dict[Stream, list[CalledCall]]:
    """Return the calls of each group as the program made them, in order."""
    events = trace.events
    mask = events["kind"].where(Kind.COLLECTIVE.value)
    mask &= events["provenance"].where(Provenance.CALLED.value)
    mask &= events["coll_seq"].valid & events["group"].valid
    at = np.flatnonzero(mask)
    cells = {name: events[name].take(at).to_list() for name in _COLUMNS}
    n_inputs = _count_inputs(trace)
    found: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for k, key in enumerate(zip(cells["attempt"], cells["group"], cells["coll_seq"], strict=True)):
        found[key[0] or 0, key[1], key[2]].append(k)
    calls: dict[Stream, list[CalledCall]] = defaultdict(list)
    for (attempt, group, coll_seq), members in sorted(found.items()):
        ranks = trace.meta.groups[group].ranks
        places = {_place(cells, k, ranks): k for k in members}
        rows = {place: int(at[k]) for place, k in places.items() if place is not None}
        issued = [cells["t_issue_ns"][k] for k in members if cells["t_issue_ns"][k] is not None]
        calls[attempt, group].append(
            CalledCall(
                (attempt, group),
                coll_seq,
                rows,
                _asked(cells, places, len(ranks), int(n_inputs[at[members[0]]])),
                min(issued, default=None),
                all(cells["status"][k] == Status.ERROR for k in members),
            )
        )
    return calls


def _place(cells: dict[str, list[Any]], k: int, ranks: tuple[int, ...]) -> int | None:
    place, rank = cells["group_rank"][k], cells["rank"][k]
    if place is None and rank in ranks:
        return ranks.index(rank)
    return None if place is None else int(place)


def _count_inputs(trace: Trace) -> np.ndarray[Any, Any]:
    """Return how many input tensors each event has, (events,)."""
    states = trace.states
    given = states["role"].where(Role.INPUT.value) & states["when"].where(When.BEFORE.value)
    return np.bincount(states["event"].values[given], minlength=len(trace))


def _asked(
    cells: dict[str, list[Any]], places: dict[int | None, int], size: int, n_inputs: int
) -> Asked:
    """Return what a call asked for: as its ranks say, the first one that says it."""

    def said(name: str) -> Any:
        return next((cells[name][k] for k in places.values() if cells[name][k] is not None), None)

    return Asked(
        collective=said("collective") or "",
        api=said("api") or "",
        group_size=size,
        root=said("root"),
        size_bytes=-1 if said("size_bytes") is None else int(said("size_bytes")),
        dtype=said("dtype"),
        reduce_op=said("reduce_op"),
        n_inputs=n_inputs or None,
        splits=_splits(cells["splits"], places, size),
    )


def _splits(
    given: list[Any], places: dict[int | None, int], size: int
) -> tuple[tuple[int, ...], ...] | None:
    """Return the elements that each rank sends to each other; None where all are even.

    A rank's splits are those of its inputs, then those of its outputs. What a rank sends is also
    what the other one gets, so that a rank without a recording is told of by the others.
    """
    known = {
        place: given[k]
        for place, k in places.items()
        if place is not None and given[k] is not None and len(given[k]) == 2 * size
    }
    if not known:
        return None
    sent = [[0] * size for _ in range(size)]
    for place, splits in known.items():
        for other in range(size):
            sent[other][place] = splits[size + other]
    for place, splits in known.items():
        sent[place] = list(splits[:size])
    return tuple(tuple(row) for row in sent)
