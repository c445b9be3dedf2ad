"""Writes an execution into a recording: one row a message at each end, whatever lanes it took.

A row begins when its first lane is issued and ends with its last one. What it carried and what its
slots held is put together from the lanes' parts, each taken at the lane's own moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..traces.schema import Kind, Role, When
from .bind import BoundSchedule
from .program import Action, Part
from .values import held_before

if TYPE_CHECKING:
    from torch import Tensor

    from ..traces.record.recorder import Recorder
    from .schedule import Schedule


class ExecutionLog:
    """The rows of one execution at one rank."""

    def __init__(
        self,
        recorder: Recorder,
        bound: BoundSchedule,
        place: int,
        group: int,
        ranks: Sequence[int],
    ) -> None:
        """Prepare the log.

        Args:
            recorder: Where to write.
            bound: The schedule and its sizes.
            place: Group rank of this rank.
            group: The recorder's number of the group.
            ranks: Global rank of each group rank.
        """
        self.recorder = recorder
        self.bound = bound
        self.place = place
        self.group = group
        self.ranks = ranks
        self.held_before = _held_before(bound.schedule)
        self.layout = bound.layout(place)
        self._call: int | None = None
        self._op: str | None = None
        self._seqs: dict[tuple[Kind, int], int] = {}
        self._starts: dict[tuple[Kind, int], int] = {}
        # Data of rows some lanes of which are still under way.
        self._kept: dict[tuple[int, When, Role], Tensor] = {}

    @contextmanager
    def collective(self, op: str, tensor: Tensor, output: Tensor | None) -> Iterator[None]:
        """Write the collective's row around what happens inside, with inputs and outputs."""
        schedule, recorder = self.bound.schedule, self.recorder
        self._op = op if schedule.kind.reduces else None
        self._nothing = tensor.detach().reshape(-1)[:0]
        started = time.monotonic_ns()
        self._call = recorder.begin(
            Kind.COLLECTIVE,
            t_issue_ns=started,
            **self._common(),
            schedule=recorder.schedule(_text(schedule)),
            reduce_op=self._op,
            root=schedule.root,
            is_async=False,
            size_bytes=self.bound.size_bytes,
            site=recorder.site(),
        )
        if schedule.kind.has_input(self.place, schedule.root):
            recorder.state(self._call, When.BEFORE, Role.INPUT, 0, tensor)
        try:
            yield
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            recorder.end(self._call, t_start_ns=started, status="error", error=text)
            raise
        ended = time.monotonic_ns()
        if output is not None:
            recorder.state(self._call, When.AFTER, Role.OUTPUT, 0, output)
        recorder.end(self._call, t_start_ns=started, t_end_ns=ended)

    def started(self, action: Action, data: Sequence[Tensor]) -> None:
        """A lane of a message is about to leave its slots."""
        at = 0
        for part in action.parts:
            if action.is_first:
                self._begin(Kind.SEND, part.row)
            own = data[at : at + len(part.pieces)]
            at += len(part.pieces)
            whole = self._put(action, part, When.BEFORE, Role.PAYLOAD, own)
            if whole is not None:
                slot = int(self.bound.schedule.src_slot[part.row])
                seq = self._seqs[Kind.SEND, part.row]
                self.recorder.state(seq, When.BEFORE, Role.PAYLOAD, slot, whole)

    def sent(self, action: Action) -> None:
        """A lane of a message has left its slots."""
        if action.is_last:
            for part in action.parts:
                self._end(Kind.SEND, part.row)

    def posted(self, action: Action, slots: Sequence[Tensor]) -> None:
        """A receive is about to be posted, straight into `slots` where these are given."""
        for part in action.parts:
            if action.is_first:
                self._begin(Kind.RECV, part.row)
            if action.staging is None:
                self._before(action, part, slots, Kind.RECV)

    def arrived(
        self, action: Action, part: Part, data: Sequence[Tensor], slots: Sequence[Tensor] | None
    ) -> None:
        """A lane of a row is here, and will be combined into `slots` or lies there already."""
        is_local = action.peer == self.place
        kind = self._writer(part, is_local)
        if not is_local:
            whole = self._put(action, part, When.AFTER, Role.PAYLOAD, data)
            if whole is not None:
                self._slot_state(Kind.RECV, part, When.AFTER, Role.PAYLOAD, whole)
            if kind is not Kind.RECV and action.is_last:
                self._end(Kind.RECV, part.row)
        if kind is not Kind.RECV and action.is_first:
            self._begin(kind, part.row)
        if slots is not None:
            self._before(action, part, slots, kind)

    def written(self, action: Action, part: Part, slots: Sequence[Tensor]) -> None:
        """A lane of a row has been written into its slots."""
        kind = self._writer(part, action.peer == self.place)
        whole = self._put(action, part, When.AFTER, Role.SLOT, slots)
        if whole is not None:
            self._slot_state(kind, part, When.AFTER, Role.SLOT, whole)
        if action.is_last:
            self._end(kind, part.row)

    def _before(self, action: Action, part: Part, slots: Sequence[Tensor], kind: Kind) -> None:
        if not self.held_before[part.row]:
            return
        whole = self._put(action, part, When.BEFORE, Role.SLOT, slots)
        if whole is not None:
            self._slot_state(kind, part, When.BEFORE, Role.SLOT, whole)

    def _slot_state(self, kind: Kind, part: Part, when: When, role: Role, data: Tensor) -> None:
        slot = int(self.bound.schedule.dst_slot[part.row])
        self.recorder.state(self._seqs[kind, part.row], when, role, slot, data)

    def _put(
        self, action: Action, part: Part, when: When, role: Role, data: Sequence[Tensor]
    ) -> Tensor | None:
        """Add a lane's elements to a row's data; return the data when it is whole."""
        if action.is_first and action.is_last and len(data) == 1:
            return data[0]
        key = (part.row, when, role)
        whole = self._kept.get(key)
        if whole is None:
            size = int(self.bound.row_elements[part.row])
            like = data[0] if data else self._nothing
            whole = self._kept[key] = like.new_empty(size)
        for piece, values in zip(part.pieces, data, strict=True):
            whole[piece.at : piece.at + len(values)].copy_(values)
        return self._kept.pop(key) if action.is_last else None

    def _writer(self, part: Part, is_local: bool) -> Kind:
        """Return which row's states show what a row's slots held before and after."""
        if part.reduces:
            return Kind.REDUCE
        return Kind.COPY if is_local else Kind.RECV

    def _begin(self, kind: Kind, row: int) -> None:
        now = time.monotonic_ns()
        self._starts[kind, row] = now
        self._seqs[kind, row] = self.recorder.begin(
            kind, parent=self._call, t_issue_ns=now, **self._common(), **self._cells(kind, row)
        )

    def _end(self, kind: Kind, row: int) -> None:
        started = self._starts.pop((kind, row))
        self.recorder.end(self._seqs.pop((kind, row)), t_start_ns=started)

    def _common(self) -> dict[str, Any]:
        schedule = self.bound.schedule
        return {
            "group": self.group,
            "place": self.place,
            "rank": self.ranks[self.place],
            "group_rank": self.place,
            "collective": schedule.collective,
            "algorithm": schedule.algorithm,
            "dtype": self.bound.dtype,
        }

    def _cells(self, kind: Kind, row: int) -> dict[str, Any]:
        """Return what is known of a row beforehand."""
        schedule = self.bound.schedule
        peer = int(schedule.dst[row] if kind is Kind.SEND else schedule.src[row])
        slot = int(schedule.src_slot[row] if kind is Kind.SEND else schedule.dst_slot[row])
        offset = int(self.layout.offset_elements[slot]) * self.bound.itemsize
        moves = kind in (Kind.SEND, Kind.RECV)
        return {
            "step": int(schedule.step[row]),
            "channel": int(schedule.channel[row]),
            "peer": self.ranks[peer],
            "peer_group_rank": peer,
            "message": int(schedule.messages.ordinal[row]),
            "part": int(schedule.messages.part[row]),
            "reduces": bool(schedule.reduce[row]) if moves else None,
            "reduce_op": self._op if kind is Kind.REDUCE else None,
            "slot": slot,
            "n_slots": int(schedule.n_slots[row]),
            "offset_bytes": None if self.layout.buffer[slot] == "scratch" else offset,
            "size_bytes": int(self.bound.row_bytes[row]),
        }


@lru_cache(maxsize=64)
def _held_before(schedule: Schedule) -> list[bool]:
    return [bool(held) for held in held_before(schedule)]


@lru_cache(maxsize=64)
def _text(schedule: Schedule) -> str:
    return schedule.to_text()
