"""What the states of a trace say of tensors and slots."""

from __future__ import annotations

import numpy as np

from ...traces.schema import Role, When
from ...traces.trace import Trace
from . import Content, Values
from .pairing import Flight, Part

# More numbers than this are not kept: no view shows them.
MOST_VALUES = 4096
# So many of a tensor's first values are shown where not all were kept.
FIRST_VALUES = 16


class Recorded:
    """Reads values and contributors from a trace's states."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        # States lie in the order of their events.
        self._events = trace.states["event"].values

    def _states(self, row: int, when: When, role: Role) -> list[int]:
        first, last = np.searchsorted(self._events, [row, row + 1])
        states = self.trace.states
        return [
            s
            for s in range(int(first), int(last))
            if states["when"][s] == when and states["role"][s] == role
        ]

    def _values(self, state: int) -> Values | None:
        """Return all values of a state; None where they are too many or were not all kept."""
        shape = self.trace.states["shape"][state]
        size = None if shape is None else int(np.prod(shape))
        if size is not None and size > MOST_VALUES:
            return None
        values = self.trace.values(state)
        if values is None or np.iscomplexobj(values) or size not in (None, values.size):
            return None
        return tuple(values.reshape(-1).tolist())

    def tensor(self, row: int | None, role: Role) -> Values | None:
        """Return all values of a call's inputs or outputs, one after the other."""
        if row is None:
            return None
        parts = [self._values(state) for state in self._states(row, _when(role), role)]
        if not parts or any(part is None for part in parts):
            return None
        return tuple(value for part in parts if part is not None for value in part)

    def first(self, row: int | None, role: Role) -> tuple[Values | None, int | None]:
        """Return a call's tensors, or their first values, and how many elements they have."""
        if row is None:
            return None, None
        states = self._states(row, _when(role), role)
        shapes = [self.trace.states["shape"][state] for state in states]
        known = bool(shapes) and all(shape is not None for shape in shapes)
        size = sum(int(np.prod(shape)) for shape in shapes) if known else None
        whole = self.tensor(row, role)
        if whole is not None or not states:
            return whole, len(whole) if whole is not None else size
        some = self.trace.values(states[0])
        if some is None or np.iscomplexobj(some):
            return None, size
        return tuple(some.reshape(-1)[:FIRST_VALUES].tolist()), size

    def content(self, flight: Flight, slot: int, what: str) -> Content:
        """Return what the trace says of one destination slot of a message.

        Args:
            flight: The message.
            slot: The slot at its destination.
            what: payload, before or after.

        Returns:
            A Content, empty where the trace says nothing.
        """
        for part in flight.parts.values():
            slots = [dst for _, dst in part.slots()]
            if slot not in slots:
                continue
            for row, when, role in _where(part, what):
                for state in () if row is None else self._states(row, when, role):
                    return self._content(state, slots.index(slot), len(slots))
        return Content()

    def _content(self, state: int, k: int, n_slots: int) -> Content:
        contributors = self.trace.states["contributors"][state]
        who = None if contributors is None else frozenset(contributors)
        values = self._values(state)
        if values is not None and n_slots > 1:
            values = tuple(np.array_split(np.asarray(values), n_slots)[k].tolist())
        return Content(None, who, values)


def _when(role: Role) -> When:
    return When.BEFORE if role is Role.INPUT else When.AFTER


def _where(part: Part, what: str) -> tuple[tuple[int | None, When, Role], ...]:
    """Return the (event row, when, role) at which a trace may have kept a content."""
    if what == "payload":
        return ((part.send, When.BEFORE, Role.PAYLOAD), (part.recv, When.AFTER, Role.PAYLOAD))
    when = When.BEFORE if what == "before" else When.AFTER
    return ((part.reduce, when, Role.SLOT), (part.recv, when, Role.SLOT))
