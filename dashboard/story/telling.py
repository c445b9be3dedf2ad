"""How a Story is read out of a Trace."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ScheduleError
from ...sim.schedule import Schedule
from ...sim.topology import Topology
from ...traces.schema import Kind, Role, Status
from ...traces.trace import Call, Trace
from . import Beat, Content, Message, Piece, Place, Story
from .holdings import Slot, cells, divided, replay
from .pairing import Flight, flights, levels
from .recorded import Recorded

if TYPE_CHECKING:
    from ...sim.algorithms.registry import Phase


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
        self.recorded = Recorded(trace)
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
        hosts = self.trace.events["host"]
        for row in self.calling:
            place = self._place_of(row)
            if hosts[row] is not None and place is not None:
                names.setdefault(place, hosts[row])
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
        from ...sim.text import parse

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
        from ...sim.collectives import COLLECTIVES

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

    @cached_property
    def _step_index(self) -> dict[int, int]:
        return {step: k for k, step in enumerate(self._steps)}

    def _moves(self) -> list[list[tuple[int, Slot, Slot, bool]]]:
        steps: list[list[tuple[int, Slot, Slot, bool]]] = [[] for _ in self._steps]
        for number, flight in enumerate(self.flights):
            for part in flight.parts.values():
                for src, dst in part.slots():
                    move = (number, (flight.src, src), (flight.dst, dst), part.reduces)
                    steps[self._step_index[flight.step or 0]].append(move)
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
        values = self.recorded.tensor(self._row_of.get(place), role)
        if values is None or not slots:
            return
        pieces = self._cut(np.asarray(values), place, [slot for _, slot in slots], role)
        for slot, piece in zip(slots, pieces, strict=True):
            content = held[slot]
            held[slot] = Content(content.chunk, content.who, tuple(piece.tolist()))

    def _cut(
        self, values: np.ndarray[Any, Any], place: int, slots: list[int], role: Role
    ) -> list[np.ndarray[Any, Any]]:
        """Return a tensor in pieces, one a slot: as the plan cuts it, else all alike."""
        schedule = self.schedule
        if schedule is not None and schedule.chunk_elements is not None:
            of = schedule.input_of if role is Role.INPUT else schedule.output_of
            own, chunks = of(place)
            sizes = schedule.chunk_elements[chunks]
            if list(own) == slots and int(sizes.sum()) == len(values):
                return np.split(values, np.cumsum(sizes)[:-1])
        return np.array_split(values, len(slots))

    def _place_of(self, row: int) -> int | None:
        """Return the group_rank of a collective row; None where it has no rank."""
        place, rank = (self.trace.events[name][row] for name in ("group_rank", "rank"))
        return self.group_rank.get(rank) if place is None else int(place)

    @cached_property
    def _row_of(self) -> dict[int, int]:
        """The collective row of each place that called."""
        rows: dict[int, int] = {}
        for row in self.calling:
            place = self._place_of(row)
            if place is not None:
                rows.setdefault(place, row)
        return rows

    def _said(self, number: int, dst: Slot, what: str) -> Content:
        """Return what the trace says of one slot of a message."""
        return self.recorded.content(self.flights[number], dst[1], what)

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The messages and what they carry."""
        found = replay(self.start, self._moves(), self._said)
        out = []
        for number, flight in enumerate(self.flights):
            parts = [flight.parts[k] for k in sorted(flight.parts)]
            pieces = tuple(
                Piece(src, dst, *found[number, (flight.dst, dst)])
                for part in parts
                for src, dst in part.slots()
            )
            sizes = [part.size_bytes for part in parts if part.size_bytes is not None]
            start = self._since(flight.t_start_ns)
            end = self._since(flight.t_end_ns)
            out.append(
                Message(
                    src=flight.src,
                    dst=flight.dst,
                    step=self._step_index[flight.step or 0],
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
            rows = self._row_of
            got = {p: self.recorded.tensor(rows.get(p), Role.OUTPUT) for p in range(self.n)}
            drawn = divided(drawn, got)
        helpers = {p for m in messages for p in (m.src, m.dst) if p >= self.n}
        events = self.trace.events
        out = []
        for place in [*range(self.n), *sorted(helpers)]:
            row = self._row_of.get(place)
            site = None if row is None else events["site"][row]
            inputs, n_in = self.recorded.first(row, Role.INPUT)
            outputs, n_out = self.recorded.first(row, Role.OUTPUT)
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
        planned = self._planned_phases()
        phases = self._phase_names(reducing, planned)
        beats, start = [], 0
        for k, group in enumerate(by_step):
            start = max(start, min(messages[m].t_start_ns for m in group))
            step = self._steps[k]
            at = sum(phase.first_step <= step for phase in planned) - 1
            told = planned[at].sentence_at(step) if at >= 0 else None
            phase = None if not phases else at if planned else 0 if reducing[k] else 1
            beats.append(Beat(step, phase, tuple(group), reducing[k], start, told))
        return tuple(beats), phases

    def _planned_phases(self) -> Sequence[Phase]:
        """Return the phases of the schedule, none where it is not known."""
        if self.schedule is None:
            return ()
        from ...sim.library import phases

        return phases(self.schedule)

    def _phase_names(self, reducing: Sequence[bool], planned: Sequence[Phase]) -> tuple[str, ...]:
        """Return the names of two phases; none where there are more or fewer."""
        if planned:
            return tuple(p.name.capitalize() for p in planned) if len(planned) == 2 else ()
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
