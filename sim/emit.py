"""A Replay as a Trace: the same events and states that an execution on real ranks records.

Rows lie in program order: first the collective of each rank, then for each row of the schedule its
send, its recv and its reduce.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..traces.columns import Column
from ..traces.schema import EVENTS, Kind, Provenance, Status, Type
from ..traces.trace import Group, Meta, Process, Trace
from .emit_states import Shown, states
from .schedule import Schedule
from .values import compute

if TYPE_CHECKING:
    from .replay import Replay

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

FILE = "sim"
_TYPES = {spec.name: spec.type for spec in EVENTS}


def emit(replay: Replay, inputs: Sequence[Any] | None, op: str) -> Trace:
    """Return the trace of a replay; see `Replay.trace`."""
    bound, schedule = replay.bound, replay.schedule
    places = _Places.of(schedule)
    values = None if inputs is None else compute(bound, inputs, op)
    events = _events(replay, places, op if schedule.kind.reduces else None)
    shown = Shown(places.message, places.send, places.recv, places.writer)
    version = str(replay.model["version"])
    return Trace.build(
        events,
        states(bound, shown, values),
        Meta(
            versions={"chunkscope": version},
            world_size=schedule.group_size,
            groups=(Group(tuple(range(schedule.group_size))),),
            processes=(Process(FILE, host="", pid=0),),
            schedules=(schedule.to_text(),),
            topology=replay.topology.to_json(),
            model=replay.model,
        ),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Where the events of a schedule lie in the trace: row numbers, and the rows they are of.

    Attributes:
        n_ranks: Collective events, one a rank, come first.
        message: Rows of the schedule that are messages.
        send, recv: Their events.
        arriving: Rows that are messages and reduce.
        reduce: Their reduce events.
        local: Rows within a place.
        work: Their events.
        writer: For each row, the event that shows its destination before and after.
        total: Number of events.
    """

    n_ranks: int
    message: Ints
    send: Ints
    recv: Ints
    arriving: Ints
    reduce: Ints
    local: Ints
    work: Ints
    writer: Ints
    total: int

    @staticmethod
    def of(schedule: Schedule) -> _Places:
        n = schedule.group_size
        is_local = schedule.src == schedule.dst
        count = np.where(is_local, 1, np.where(schedule.reduce, 3, 2))
        first = n + np.cumsum(count) - count
        message = np.flatnonzero(~is_local)
        arriving = np.flatnonzero(~is_local & schedule.reduce)
        local = np.flatnonzero(is_local)
        return _Places(
            n_ranks=n,
            message=message,
            send=first[message],
            recv=first[message] + 1,
            arriving=arriving,
            reduce=first[arriving] + 2,
            local=local,
            work=first[local],
            writer=first + count - 1,
            total=n + int(count.sum()),
        )

    @property
    def collective(self) -> Ints:
        """The ranks' collective events."""
        return np.arange(self.n_ranks)


class _Cells:
    """Columns under construction: cells are put at rows, all others are null."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.values: dict[str, Array] = {}
        self.valid: dict[str, Mask] = {}
        self.texts: dict[str, tuple[str, ...]] = {}

    def put(self, name: str, rows: Ints, values: Any) -> None:
        """Set cells; a text or None is the same in all rows."""
        if values is None:
            return
        if name not in self.values:
            numpy_type = {Type.BOOL: np.bool_, Type.TEXT: np.int32}.get(_TYPES[name], np.int64)
            self.values[name] = np.zeros(self.n, numpy_type)
            self.valid[name] = np.zeros(self.n, np.bool_)
        if isinstance(values, str):
            texts = self.texts.setdefault(name, ())
            if values not in texts:
                self.texts[name] = texts = (*texts, values)
            values = texts.index(values)
        self.values[name][rows] = values
        self.valid[name][rows] = True

    def columns(self) -> dict[str, Column]:
        return {
            name: Column(_TYPES[name], values, self.valid[name], self.texts.get(name, ()))
            for name, values in self.values.items()
        }


def _events(replay: Replay, places: _Places, op: str | None) -> dict[str, Column]:
    bound, schedule = replay.bound, replay.schedule
    cells = _Cells(places.total)
    every = np.arange(places.total)
    cells.put("file", every, FILE)
    cells.put("seq", every, every)
    cells.put("group", every, 0)
    cells.put("coll_seq", every, 0)
    cells.put("provenance", every, Provenance.SIMULATED.value)
    cells.put("collective", every, schedule.collective)
    cells.put("algorithm", every, schedule.algorithm)
    cells.put("dtype", every, bound.dtype)
    cells.put("status", every, Status.OK.value)
    _put_collectives(cells, replay, places, op)
    start, arrived, written = replay.t_start_ns, replay.t_arrived_ns, replay.t_written_ns
    writing = replay.t_writing_ns
    src, dst = schedule.src.astype(np.int64), schedule.dst.astype(np.int64)
    source, target = (src, dst, schedule.src_slot), (dst, src, schedule.dst_slot)
    ends = _Ends(cells, replay)
    ends.put(Kind.SEND, places.message, places.send, source, start, arrived)
    ends.put(Kind.RECV, places.message, places.recv, target, start, arrived)
    ends.put(Kind.REDUCE, places.arriving, places.reduce, target, writing, written)
    reduces = schedule.reduce[places.local]
    for kind, chosen in ((Kind.COPY, ~reduces), (Kind.REDUCE, reduces)):
        rows, at = places.local[chosen], places.work[chosen]
        ends.put(kind, rows, at, target, start, written)
    cells.put("reduces", places.send, schedule.reduce[places.message])
    cells.put("reduces", places.recv, schedule.reduce[places.message])
    for at in (places.reduce, places.work[reduces]):
        cells.put("reduce_op", at, op)
    return cells.columns()


def _put_collectives(cells: _Cells, replay: Replay, places: _Places, op: str | None) -> None:
    schedule, at = replay.schedule, places.collective
    begin = np.zeros(places.n_ranks, np.int64)
    for rank, late in replay.parameters.delay_ns.items():
        begin[rank] = round(late)
    end = np.zeros(schedule.n_places, np.int64)
    np.maximum.at(end, schedule.src, replay.t_arrived_ns)
    np.maximum.at(end, schedule.dst, replay.t_written_ns)
    cells.put("kind", at, Kind.COLLECTIVE.value)
    for name in ("place", "rank", "group_rank"):
        cells.put(name, at, at)
    cells.put("schedule", at, 0)
    cells.put("reduce_op", at, op)
    cells.put("root", at, schedule.root)
    cells.put("size_bytes", at, replay.bound.size_bytes)
    cells.put("t_issue_ns", at, begin)
    cells.put("t_start_ns", at, begin)
    cells.put("t_end_ns", at, np.maximum(begin, end[: places.n_ranks]))


class _Ends:
    """Puts the cells of events that are about a row of the schedule."""

    def __init__(self, cells: _Cells, replay: Replay) -> None:
        self.cells = cells
        self.bound = replay.bound
        self.offset, self.lies = _offsets(replay)

    def put(
        self,
        kind: Kind,
        rows: Ints,
        at: Ints,
        end: tuple[Ints, Ints, Ints],
        start: Ints,
        stop: Ints,
    ) -> None:
        """Put events of one kind.

        Args:
            kind: The kind.
            rows: Rows of the schedule.
            at: Their events.
            end: Place, peer and slot of every row.
            start, stop: Times of every row.
        """
        cells, schedule = self.cells, self.bound.schedule
        place, peer, slot = (column[rows] for column in end)
        is_rank, peer_is_rank = place < schedule.group_size, peer < schedule.group_size
        cells.put("kind", at, kind.value)
        cells.put("place", at, place)
        for name in ("rank", "group_rank", "parent"):
            cells.put(name, at[is_rank], place[is_rank])
        cells.put("peer", at[peer_is_rank], peer[peer_is_rank])
        cells.put("peer_group_rank", at, peer)
        for name in ("step", "channel", "n_slots"):
            cells.put(name, at, getattr(schedule, name)[rows])
        cells.put("message", at, schedule.messages.ordinal[rows])
        cells.put("part", at, schedule.messages.part[rows])
        cells.put("slot", at, slot)
        cell = place * schedule.slots_a_place + slot
        lies = self.lies[cell]
        cells.put("offset_bytes", at[lies], self.offset[cell[lies]] * self.bound.itemsize)
        cells.put("size_bytes", at, self.bound.row_bytes[rows])
        cells.put("t_issue_ns", at, start[rows])
        cells.put("t_start_ns", at, start[rows])
        cells.put("t_end_ns", at, stop[rows])


def _offsets(replay: Replay) -> tuple[Ints, Mask]:
    """Return where each cell starts in its rank's tensor, and whether it lies in one at all."""
    schedule = replay.schedule
    layouts = [replay.bound.layout(place) for place in range(schedule.n_places)]
    offset = np.concatenate([layout.offset_elements for layout in layouts])
    lies = np.array([name != "scratch" for layout in layouts for name in layout.buffer], np.bool_)
    return offset, lies
