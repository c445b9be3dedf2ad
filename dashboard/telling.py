"""How a Story is read out of a Trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from ..errors import ScheduleError
from ..sim.schedule import Schedule
from ..sim.topology import Topology
from ..traces.schema import Kind, Role, Status, When
from ..traces.trace import Call, Trace
from .holdings import Slot, cells, replay
from .pairing import Flight, Part, flights, levels
from .story import Beat, Cell, Change, Content, Mark, Message, Piece, Place, Story, Values

# More numbers than this are not kept: no view shows them.
MOST_VALUES = 4096


class Telling:
    """Reads one collective call of a trace."""

    def __init__(
        self, trace: Trace, call: Call | int | None, topology: Topology | None = None
    ) -> None:
        self.trace = trace
        self.calls = tuple(trace.calls())
        self.index = _find(self.calls, call)
        self.call = self.calls[self.index]
        self.topology = topology
        events = trace.events
        rows = events["group"].where(self.call.group) | events["group"].where(None)
        rows &= events["coll_seq"].where(self.call.coll_seq)
        attempt = events["attempt"].where(self.call.attempt)
        rows &= attempt if self.call.attempt else attempt | events["attempt"].where(None)
        self.rows = np.flatnonzero(rows).tolist()
        kinds = events["kind"]
        self.calling = [row for row in self.rows if kinds[row] == Kind.COLLECTIVE]
        groups = trace.meta.groups
        self.ranks = groups[self.call.group].ranks if groups else self._ranks_seen()
        self.group_rank = {rank: k for k, rank in enumerate(self.ranks)}
        self.n = len(self.ranks)

    def _ranks_seen(self) -> tuple[int, ...]:
        ranks = (self.trace.events["rank"][row] for row in self.calling)
        return tuple(sorted({rank for rank in ranks if rank is not None}))

    def story(self) -> Story:
        """Return the story."""
        head = self._head()
        messages = self.messages
        beats, phases = self._beats(messages)
        meta = self.trace.meta
        return Story(
            collective=self.call.collective,
            algorithm=head.get("algorithm"),
            op=head.get("reduce_op"),
            root=head.get("root"),
            provenance=self._provenance(head),
            backend=self._backend(),
            places=self._places(messages),
            messages=messages,
            steps=beats,
            phases=phases,
            duration_ns=self._duration_ns(),
            finished=self._finished(),
            size_bytes=head.get("size_bytes"),
            dtype=head.get("dtype"),
            calls=self.calls,
            call=self.index,
            topology=self._topology(),
            hosts=self._hosts(),
            model=dict(meta.model),
            notes=meta.notes,
        )

    # What the call as a whole is.

    def _head(self) -> dict[str, Any]:
        """Return the cells of the first collective row, completed by the others."""
        head: dict[str, Any] = {}
        for row in self.calling:
            head = {**self.trace.events.row(row), **head}
        return head

    def _provenance(self, head: dict[str, Any]) -> str:
        column = self.trace.events["provenance"]
        inside = [column[row] for row in self.rows if row not in self.calling]
        return str(next((p for p in inside if p), head.get("provenance") or "imported"))

    def _backend(self) -> str:
        groups = self.trace.meta.groups
        return groups[self.call.group].backend if groups else ""

    def _hosts(self) -> tuple[str, ...]:
        names: dict[int, str] = {}
        for row in self.rows:
            cells = self.trace.events.row(row)
            if cells.get("host") and cells.get("rank") in self.group_rank:
                names.setdefault(self.group_rank[cells["rank"]], cells["host"])
        return tuple(names[k] for k in range(self.n)) if len(names) == self.n else ()

    def _topology(self) -> Topology | None:
        if self.topology is not None or self.trace.meta.topology is None:
            return self.topology
        return Topology.from_json(self.trace.meta.topology)

    @cached_property
    def schedule(self) -> Schedule | None:
        """The schedule that was simulated or executed; None where the trace has none."""
        column = self.trace.events["schedule"]
        numbers = [column[row] for row in self.calling if column[row] is not None]
        if not numbers:
            return None
        from ..sim.text import parse

        try:
            schedule = parse(self.trace.meta.schedules[numbers[0]])
        except ScheduleError:
            return None
        return schedule if schedule.group_size == self.n else None

    # Times, since the call began.

    @cached_property
    def start_ns(self) -> int:
        """When the first rank called, or the first message started."""
        times = [self._began(row) for row in self.rows]
        return min((t for t in times if t is not None), default=0)

    def _began(self, row: int) -> int | None:
        start = self.trace.events["t_start_ns"][row]
        began: int | None = self.trace.events["t_issue_ns"][row] if start is None else start
        return began

    def _since(self, t_ns: int | None) -> int | None:
        return None if t_ns is None else max(t_ns - self.start_ns, 0)

    def _duration_ns(self) -> int:
        events = self.trace.events
        ends = [self._since(events["t_end_ns"][row]) for row in self.rows]
        starts = [self._since(self._began(row)) for row in self.rows]
        return max((t for t in (*ends, *starts) if t is not None), default=0)

    def _finished(self) -> bool:
        status = self.trace.events["status"]
        ended = all(status[row] in (Status.OK, None) for row in self.rows)
        return ended and len(self.calling) == self.n

    # Who holds what.

    @cached_property
    def _kind_reduces(self) -> bool:
        from ..sim.collectives import COLLECTIVES

        kind = COLLECTIVES.get(self.call.collective)
        return kind is not None and kind.reduces

    @cached_property
    def flights(self) -> list[Flight]:
        """The messages, their steps filled in."""
        found = flights(self.trace, self.rows, self.group_rank)
        if any(flight.step is None for flight in found):
            for flight, level in zip(found, levels(found), strict=True):
                flight.step = level
            found.sort(key=lambda flight: (flight.step or 0, flight.t_start_ns or 0))
        return found

    @cached_property
    def _steps(self) -> list[int]:
        return sorted({flight.step or 0 for flight in self.flights})

    def _moves(self) -> list[list[tuple[int, Slot, Slot, bool]]]:
        steps: list[list[tuple[int, Slot, Slot, bool]]] = [[] for _ in self._steps]
        for number, flight in enumerate(self.flights):
            for part in flight.parts.values():
                for src, dst in _slots(part):
                    move = (number, (flight.src, src), (flight.dst, dst), part.reduces)
                    steps[self._steps.index(flight.step or 0)].append(move)
        return steps

    @cached_property
    def start(self) -> dict[Slot, Content]:
        """What each slot holds when the call begins."""
        schedule = self.schedule
        held: dict[Slot, Content] = {}
        if schedule is None:
            for steps in self._moves():
                for _, src, dst, reduces in steps:
                    if src not in held:
                        held[src] = Content(None, frozenset({src[0]}))
                    if dst not in held:
                        mine = reduces or self._kind_reduces
                        held[dst] = Content(None, frozenset({dst[0]} if mine else ()))
            places = sorted({place for place, _ in held})
            own = {p: [s for s in sorted(held) if s[0] == p and held[s].who] for p in places}
            for place, owned in own.items():
                self._fill(held, place, owned, Role.INPUT)
            return held
        for place in range(self.n):
            for slot in schedule.output_of(place)[0]:
                held[place, slot] = Content(None, frozenset())
            slots, chunks = schedule.input_of(place)
            for slot, chunk in zip(slots, chunks.tolist(), strict=True):
                origin = schedule.kind.origin(chunk, self.n, schedule.n_chunks, schedule.root)
                who = frozenset({place if origin is None else origin})
                held[place, slot] = Content(chunk, who)
            self._fill(held, place, [(place, slot) for slot in slots], Role.INPUT)
        return held

    def _fill(self, held: dict[Slot, Content], place: int, slots: list[Slot], role: Role) -> None:
        """Enter the values of a rank's tensor into the slots that it is made of."""
        values = self._tensor(place, role)
        if values is None or not slots:
            return
        pieces = np.array_split(np.asarray(values), len(slots))
        for slot, piece in zip(slots, pieces, strict=True):
            content = held[slot]
            held[slot] = Content(content.chunk, content.who, tuple(piece.tolist()))

    def _first(self, place: int, role: Role) -> tuple[Values | None, int | None]:
        """Return a rank's tensor, or its first values, and how many elements it has."""
        row = self._row_of(place)
        if row is None:
            return None, None
        when = When.BEFORE if role is Role.INPUT else When.AFTER
        states = self._states(row, when, role, None)
        shapes = [self.trace.states["shape"][state] for state in states]
        known = bool(shapes) and all(shape is not None for shape in shapes)
        size = sum(int(np.prod(shape)) for shape in shapes) if known else None
        whole = self._tensor(place, role)
        if whole is not None or not states:
            return whole, len(whole) if whole is not None else size
        some = self.trace.values(states[0])
        if some is None or np.iscomplexobj(some):
            return None, size
        return tuple(some.reshape(-1)[:16].tolist()), size

    def _tensor(self, place: int, role: Role) -> Values | None:
        row = self._row_of(place)
        if row is None:
            return None
        when = When.BEFORE if role is Role.INPUT else When.AFTER
        parts = [self._values(state) for state in self._states(row, when, role, None)]
        if not parts or any(part is None for part in parts):
            return None
        return tuple(v for part in parts if part is not None for v in part)

    def _row_of(self, place: int) -> int | None:
        column, ranks = self.trace.events["group_rank"], self.trace.events["rank"]
        for row in self.calling:
            at = column[row]
            if (self.group_rank.get(ranks[row]) if at is None else at) == place:
                return row
        return None

    # States.

    def _states(self, row: int, when: When, role: Role, index: int | None) -> list[int]:
        event = self.trace.states["event"].values
        first, last = np.searchsorted(event, [row, row + 1])
        states = self.trace.states
        return [
            s
            for s in range(int(first), int(last))
            if states["when"][s] == when
            and states["role"][s] == role
            and (index is None or states["index"][s] == index)
        ]

    def _values(self, state: int) -> Values | None:
        shape = self.trace.states["shape"][state]
        if shape is not None and int(np.prod(shape)) > MOST_VALUES:
            return None
        values = self.trace.values(state)
        if values is None or np.iscomplexobj(values):
            return None
        if shape is not None and values.size != int(np.prod(shape)):
            return None
        return tuple(values.reshape(-1).tolist())

    def _recorded(self, number: int, dst: Slot, what: str) -> Content:
        """Return what the trace says of one slot of a message."""
        flight = self.flights[number]
        for part in flight.parts.values():
            pairs = _slots(part)
            at = [k for k, (_, slot) in enumerate(pairs) if slot == dst[1]]
            if not at:
                continue
            for row, when, role in _where(part, what):
                if row is None:
                    continue
                for state in self._states(row, when, role, None):
                    return self._content(state, at[0], len(pairs))
        return Content()

    def _content(self, state: int, k: int, n_slots: int) -> Content:
        contributors = self.trace.states["contributors"][state]
        who = None if contributors is None else frozenset(contributors)
        values = self._values(state)
        if values is not None and n_slots > 1:
            values = tuple(np.array_split(np.asarray(values), n_slots)[k].tolist())
        return Content(None, who, values)

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The messages and what they carry."""
        found = replay(self.start, self._moves(), self._recorded)
        out = []
        for number, flight in enumerate(self.flights):
            parts = [flight.parts[k] for k in sorted(flight.parts)]
            pieces = tuple(
                Piece(src, dst, *found[number, (flight.dst, dst)])
                for part in parts
                for src, dst in _slots(part)
            )
            sizes = [part.size_bytes for part in parts if part.size_bytes is not None]
            start = self._since(flight.t_start_ns)
            end = self._since(flight.t_end_ns)
            out.append(
                Message(
                    src=flight.src,
                    dst=flight.dst,
                    step=self._steps.index(flight.step or 0),
                    pieces=pieces,
                    reduces=any(part.reduces for part in parts),
                    t_start_ns=start if start is not None else end or 0,
                    t_end_ns=end,
                    size_bytes=sum(sizes) if sizes else None,
                    send=parts[0].send,
                    recv=parts[0].recv,
                    reduce=parts[0].reduce,
                    channel=flight.channel,
                )
            )
        return tuple(out)

    def _places(self, messages: Sequence[Message]) -> tuple[Place, ...]:
        shown = self._shown(messages)
        drawn = cells(self.start, messages, reduces=self._kind_reduces, n=self.n, shown=shown)
        if self._head().get("reduce_op") == "AVG":
            drawn = self._averaged(drawn)
        helpers = {p for m in messages for p in (m.src, m.dst) if p >= self.n}
        events = self.trace.events
        out = []
        for place in [*range(self.n), *sorted(helpers)]:
            row = self._row_of(place)
            site = None if row is None else events["site"][row]
            inputs, n_in = self._first(place, Role.INPUT)
            outputs, n_out = self._first(place, Role.OUTPUT)
            lengths = [k for k in (n_in, n_out) if k is not None]
            out.append(
                Place(
                    place=place,
                    rank=self.ranks[place] if place < self.n else None,
                    cells=tuple(cell for cell in drawn if cell.place == place),
                    row=row,
                    site=None if site is None else self.trace.meta.sites[site],
                    inputs=inputs,
                    outputs=outputs,
                    n_elements=max(lengths) if lengths else None,
                    t_start_ns=None if row is None else self._since(self._began(row)),
                    t_end_ns=None if row is None else self._since(events["t_end_ns"][row]),
                    status=None if row is None else events["status"][row],
                )
            )
        return tuple(out)

    def _averaged(self, drawn: list[Cell]) -> list[Cell]:
        """Return the cells with the last division, which is no row, as a change at the end."""
        out = []
        for place in range(self.n):
            mine = [cell for cell in drawn if cell.place == place]
            done = [cell for cell in mine if cell.changes[-1].mark is Mark.COMPLETE]
            outputs = self._tensor(place, Role.OUTPUT)
            sizes = [len(cell.changes[-1].content.values or ()) for cell in done]
            if outputs is not None and sum(sizes) == len(outputs):
                pieces = np.split(np.asarray(outputs), np.cumsum(sizes)[:-1])
                for cell, piece in zip(done, pieces, strict=True):
                    content = replace(cell.changes[-1].content, values=tuple(piece.tolist()))
                    last = Change(None, True, Mark.COMPLETE, content)
                    mine[mine.index(cell)] = replace(cell, changes=(*cell.changes, last))
            out += mine
        return out

    def _shown(self, messages: Sequence[Message]) -> list[Slot]:
        """Return the slots that get a cell: those of tensors, else all that messages touch."""
        if self.schedule is not None:
            lists = (self.schedule.input_of, self.schedule.output_of)
            return sorted({(p, slot) for p in range(self.n) for of in lists for slot in of(p)[0]})
        touched = {(m.src, piece.src_slot) for m in messages for piece in m.pieces}
        return sorted(touched | {(m.dst, piece.dst_slot) for m in messages for piece in m.pieces})

    # Steps and phases.

    def _beats(self, messages: Sequence[Message]) -> tuple[tuple[Beat, ...], tuple[str, ...]]:
        by_step = [list(group) for _, group in groupby(range(len(messages)), _step_of(messages))]
        reducing = [any(messages[k].reduces for k in group) for group in by_step]
        phases = self._phase_names(reducing)
        beats, start = [], 0
        for k, group in enumerate(by_step):
            start = max(start, min(messages[m].t_start_ns for m in group))
            phase = None if not phases else 0 if reducing[k] else 1
            beats.append(Beat(self._steps[k], phase, tuple(group), reducing[k], start))
        return tuple(beats), phases

    def _phase_names(self, reducing: Sequence[bool]) -> tuple[str, ...]:
        """Return the names of the two halves of an all_reduce that has two."""
        if self.schedule is not None:
            from ..sim.library import phases

            told = phases(self.schedule)
            if len(told) == 2 and [k for k, _ in groupby(reducing)] == [True, False]:
                return tuple(phase.name.capitalize() for phase in told)
        turns = [key for key, _ in groupby(reducing)]
        if self.call.collective != "all_reduce" or turns != [True, False]:
            return ()
        slots = {slot for _, slot in self.start}
        return ("Reduce-scatter", "All-gather") if len(slots) > 1 else ("Reduce", "Broadcast")


def _find(calls: Sequence[Call], call: Call | int | None) -> int:
    if not calls:
        raise ValueError("the trace has no collective call")
    if call is None:
        return 0
    if isinstance(call, int):
        if not 0 <= call < len(calls):
            raise ValueError(f"call {call} of {len(calls)}: expected 0 to {len(calls) - 1}")
        return call
    if call not in calls:
        raise ValueError(f"the trace has no call {call}")
    return calls.index(call)


def _step_of(messages: Sequence[Message]) -> Any:
    return lambda k: messages[k].step


def _slots(part: Part) -> list[tuple[int, int]]:
    """Return (source slot, destination slot) of each slot that a part moves."""
    src = part.src_slot if part.src_slot is not None else part.dst_slot or 0
    dst = part.dst_slot if part.dst_slot is not None else src
    return [(src + k, dst + k) for k in range(part.n_slots)]


def _where(part: Part, what: str) -> tuple[tuple[int | None, When, Role], ...]:
    """Return the (event row, when, role) at which a trace may have kept a content."""
    if what == "payload":
        return ((part.send, When.BEFORE, Role.PAYLOAD), (part.recv, When.AFTER, Role.PAYLOAD))
    when = When.BEFORE if what == "before" else When.AFTER
    return ((part.reduce, when, Role.SLOT), (part.recv, when, Role.SLOT))
