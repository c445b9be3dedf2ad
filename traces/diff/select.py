"""What of two traces is compared: the provenance of each side, its rows and its groups."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ..columns import Mask, Rows
from ..schema import EVENTS, MESSAGES, Kind, Provenance
from ..trace import Trace


class Level(StrEnum):
    """How deep a diff looks."""

    COLLECTIVE = "collective"  # the calls of each rank
    MESSAGE = "message"  # the messages inside them as well


# The most detailed first: a side is compared by the first of these that it holds.
_BY_DETAIL = (
    Provenance.EXECUTED,
    Provenance.SIMULATED,
    Provenance.WIRE,
    Provenance.IMPORTED,
    Provenance.CALLED,
)
_MESSAGE_KINDS = (Kind.SEND, Kind.RECV, Kind.REDUCE, Kind.COPY)


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One side of a diff.

    Attributes:
        trace: The whole trace.
        provenance: How the compared rows are known; None where there are none.
        rows: The compared rows, ascending.
    """

    trace: Trace
    provenance: Provenance | None
    rows: Rows

    def lacks(self, name: str, rows: Rows, other: Side) -> bool:
        """Return whether this side cannot tell what stands in a column of the other.

        Args:
            name: Column of the events.
            rows: The rows of this side that would be compared.
            other: The other side.
        """
        if self.provenance is None or self.provenance is other.provenance:
            return False
        spec = next(spec for spec in EVENTS if spec.name == name)
        if self.provenance not in spec.provenances:
            return True
        return not self.trace.events[name].valid[rows].any()


def world_size(trace: Trace) -> int | None:
    """Return the ranks of the job: as recorded, else as many as the largest group has."""
    if trace.meta.world_size is not None:
        return trace.meta.world_size
    return max((len(group.ranks) for group in trace.meta.groups), default=None)


def select(a: Trace, b: Trace, level: Level | None) -> tuple[Side, Side, Level, list[str]]:
    """Return the two sides, the level at which they can be compared, and what to say about it."""
    chosen = (_most_detailed(a), _most_detailed(b))
    found = level
    if found is None:
        deep = [p in MESSAGES or p is Provenance.IMPORTED for p in chosen]
        same = chosen[0] is chosen[1]
        found = Level.MESSAGE if same or all(deep) or None in chosen else Level.COLLECTIVE
    sides = [_side(trace, p, found) for trace, p in zip((a, b), chosen, strict=True)]
    sides, notes = _common_kinds(sides[0], sides[1])
    for name, side in zip("AB", sides, strict=True):
        left_out = _left_out(side)
        if left_out:
            notes.append(f"{name} also holds {left_out} events, which were not compared")
    if level is None and found is Level.COLLECTIVE:
        shallow = "A" if chosen[0] is Provenance.CALLED else "B"
        notes.append(f"messages were not compared: {shallow} holds calls alone")
    return sides[0], sides[1], found, notes


def _most_detailed(trace: Trace) -> Provenance | None:
    column = trace.events["provenance"]
    return next((p for p in _BY_DETAIL if column.where(p.value).any()), None)


def _side(trace: Trace, provenance: Provenance | None, level: Level) -> Side:
    events = trace.events
    mask = np.zeros(len(trace), np.bool_)
    collective = events["kind"].where(Kind.COLLECTIVE.value)
    if provenance is not None:
        mask = events["provenance"].where(provenance.value)
        # The call that a message of another provenance happened inside of.
        parents = events["parent"].values[mask & events["parent"].valid]
        mask[parents[collective[parents]]] = True
        # A call whose messages are planned belongs to them, seen or not.
        if provenance in MESSAGES:
            mask |= collective & events["schedule"].valid
    if level is Level.COLLECTIVE:
        mask = collective | events["kind"].where(Kind.GROUP.value)
    else:
        mask &= ~events["kind"].where(Kind.WAIT.value)
    return Side(trace, provenance, np.flatnonzero(mask))


def _common_kinds(a: Side, b: Side) -> tuple[list[Side], list[str]]:
    """Leave out the kinds of event that one of two different provenances does not have."""
    if a.provenance is b.provenance or a.provenance is None or b.provenance is None:
        return [a, b], []
    notes = []
    keep = [np.ones(len(side.rows), np.bool_) for side in (a, b)]
    full = {Provenance.SIMULATED, Provenance.EXECUTED}
    for kind in (*_MESSAGE_KINDS, Kind.GROUP):
        masks = [_kind(side, kind) for side in (a, b)]
        there = [bool(mask.any()) for mask in masks]
        if there[0] == there[1]:
            continue
        name, lacking = ("A", a) if there[1] else ("B", b)
        # A simulated or executed trace has every kind of message row that happened.
        if kind is not Kind.GROUP and lacking.provenance in full:
            continue
        keep = [k & ~m for k, m in zip(keep, masks, strict=True)]
        if kind is not Kind.GROUP:
            notes.append(f"{kind} events were not compared: {name} has none")
    sides = [
        Side(side.trace, side.provenance, side.rows[mask])
        for side, mask in zip((a, b), keep, strict=True)
    ]
    return sides, notes


def _kind(side: Side, kind: Kind) -> Mask:
    return side.trace.events["kind"].where(kind.value)[side.rows]


def _left_out(side: Side) -> str:
    """Return the other provenances of a side's calls and messages, in words."""
    events = side.trace.events
    rest = np.ones(len(side.trace), np.bool_)
    rest[side.rows] = False
    rest &= ~(events["kind"].where(Kind.WAIT.value) | events["kind"].where(Kind.GROUP.value))
    found = [
        p.value
        for p in Provenance
        if p is not side.provenance and events["provenance"].where(p.value)[rest].any()
    ]
    return " and ".join(found)
