"""A Schedule: which place sends which slot to which place, in what order.

    ring = chunkscope.build("all_reduce", "ring", 4)
    ring.transfers[0]       # Transfer(step=0, channel=0, src=0, dst=1, src_slot=3, ...)
    print(ring.to_text())

Places 0 .. group_size-1 are ranks; helpers (switches that reduce) come above them. The sender's row
is the receiver's row, so half a message cannot be written. Rows lie in program order: by step, then
as they were given. Rows with equal (step, channel, src, dst) travel as one message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import ScheduleError
from .checks import check
from .collectives import Collective, collective
from .rows import (
    Ints,
    Messages,
    SlotLists,
    Slots,
    Transfer,
    blocks,
    columns_of,
    messages_of,
    numbers,
)

if TYPE_CHECKING:
    from .bind import BoundSchedule, Splits

__all__ = ["Ints", "Messages", "Schedule", "SlotLists", "Slots", "Transfer"]

_WIDEST = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class Schedule:
    """A plan of one collective; build it with `Schedule.of`.

    Attributes:
        collective: Name of the collective, see `collectives`.
        algorithm: Name of the algorithm.
        group_size: Number of ranks.
        input: Slots that hold the input at the start, k-th slot = k-th chunk of the place's input.
        output: Slots that must hold the output at the end, likewise.
        scratch: Slots that hold nothing at the start.
        step, channel, src, dst, src_slot, dst_slot, n_slots, reduce: The rows, one array each.
        root: Rank of the root, where the collective has one.
        channels: Number of channels.
        window: Step s may start at a place when its steps up to s - window are done.
        helpers: Names of the helpers; helper k is place group_size + k.
        after: Pairs (row, earlier), shape (m, 2): `row` starts when `earlier` has arrived (if it
            begins at row's src) or is written (if it ends there).
        idempotent: Whether it is meant for ops alone where a contribution that comes twice does no
            harm (MIN, MAX).
        chunk_elements: Elements of each chunk, where the plan was made for one size; None where
            `bind` divides any count.
    """

    collective: str
    algorithm: str
    group_size: int
    input: Slots
    output: Slots
    scratch: Slots
    step: Ints
    channel: Ints
    src: Ints
    dst: Ints
    src_slot: Ints
    dst_slot: Ints
    n_slots: Ints
    reduce: npt.NDArray[np.bool_]
    root: int | None = None
    channels: int = 1
    window: int = 1
    helpers: tuple[str, ...] = ()
    after: Ints = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    idempotent: bool = False
    chunk_elements: Ints | None = None

    @staticmethod
    def of(
        collective: str,
        algorithm: str,
        group_size: int,
        rows: Iterable[Transfer] | Sequence[npt.ArrayLike],
        *,
        input: SlotLists,
        output: SlotLists,
        scratch: SlotLists = (),
        root: int | None = None,
        window: int = 1,
        helpers: Sequence[str] = (),
        after: Iterable[tuple[int, int]] = (),
        idempotent: bool = False,
        chunk_elements: npt.ArrayLike | None = None,
    ) -> Schedule:
        """Return a schedule, its rows sorted by step and checked.

        Args:
            collective: Name of the collective.
            algorithm: Name of the algorithm.
            group_size: Number of ranks, 1 or more.
            rows: Transfers, or the eight columns of Transfer as arrays (scalars are repeated).
                Arrays that lie by step and are as narrow as the schedule's own become its own.
            input: Input slots: one list for all ranks, or one a rank.
            output: Output slots, likewise.
            scratch: Scratch slots, likewise.
            root: Rank of the root, where the collective has one.
            window: How many steps may be under way at a place.
            helpers: Names of the helpers.
            after: Pairs (row, earlier), counting the rows as given.
            idempotent: Whether it is meant for MIN and MAX alone.
            chunk_elements: Elements of each chunk, if the plan holds for one size alone.

        Raises:
            ScheduleError: A row or the header names a place, slot, step or root that cannot be.

        Example:
            >>> rows = [Transfer(0, 0, 0, 1, 0, 0)]
            >>> Schedule.of("broadcast", "flat", 2, rows, input=[0], output=[0], root=0).n_steps
            1
        """
        if group_size < 1:
            raise ScheduleError(f"group size is {group_size}, expected 1 or more")
        columns = columns_of(rows)
        n_rows = len(columns["step"])
        pairs = np.asarray(list(after), np.int64).reshape(-1, 2)
        if ((pairs < 0) | (pairs >= n_rows)).any():
            raise ScheduleError(f"`after` names a row beyond the {n_rows} that exist")
        if (columns["step"][1:] < columns["step"][:-1]).any():
            order = np.argsort(columns["step"], kind="stable")
            position = np.empty_like(order)
            position[order] = np.arange(n_rows)
            pairs = position[pairs]
            columns = {name: array[order] for name, array in columns.items()}
        return Schedule(
            collective=collective,
            algorithm=algorithm,
            group_size=group_size,
            input=Slots.of(input, group_size),
            output=Slots.of(output, group_size),
            scratch=Slots.of(scratch, group_size),
            root=root,
            channels=int(columns["channel"].max(initial=0)) + 1,
            window=window,
            helpers=tuple(helpers),
            after=np.unique(pairs, axis=0) if len(pairs) else pairs,
            idempotent=idempotent,
            chunk_elements=None if chunk_elements is None else np.array(chunk_elements, np.int64),
            **columns,
        )

    def __post_init__(self) -> None:
        check(self)

    @cached_property
    def n_declared(self) -> Ints:
        """Slots of each rank: one more than the last that a list names, (ranks,)."""
        counts = [
            np.array([max(one, default=-1) + 1 for one in slots.lists], np.int64)
            for slots in (self.input, self.output, self.scratch)
        ]
        most: Ints = np.max([np.broadcast_to(n, self.group_size) for n in counts], axis=0)
        return most

    def __len__(self) -> int:
        return len(self.step)

    @property
    def kind(self) -> Collective:
        """What the collective must do."""
        return collective(self.collective)

    @property
    def n_places(self) -> int:
        """Ranks and helpers."""
        return self.group_size + len(self.helpers)

    @cached_property
    def n_steps(self) -> int:
        """One more than the last step; 0 without rows."""
        return int(self.step.max(initial=-1)) + 1

    @cached_property
    def slots_a_place(self) -> int:
        """Slots of the place that has most, so that (place, slot) can index one array."""
        most = int(self.n_declared.max())
        for rows in blocks(len(self)):
            for slot in (self.src_slot, self.dst_slot):
                most = max(most, int((slot[rows].astype(np.int64) + self.n_slots[rows]).max()))
        return most

    @cached_property
    def n_chunks(self) -> int:
        """Number of chunks of the logical data."""
        place = self.root if self.kind.input_at_root and self.root is not None else 0
        return self.kind.n_chunks(self.group_size, len(self.input[place]))

    def input_of(self, place: int) -> tuple[tuple[int, ...], Ints]:
        """Return a rank's input slots and the chunks in them; both empty where it has none."""
        if place >= self.group_size or not self.kind.has_input(place, self.root):
            return (), np.zeros(0, np.int64)
        slots = self.input[place]
        return slots, self.kind.input_chunks(place, self.group_size, len(slots))

    def output_of(self, place: int) -> tuple[tuple[int, ...], Ints]:
        """Return a rank's output slots and the chunks due in them; both empty where it has none."""
        if place >= self.group_size or not self.kind.has_output(place, self.root):
            return (), np.zeros(0, np.int64)
        slots = self.output[place]
        return slots, self.kind.output_chunks(place, self.group_size, len(slots))

    def place_name(self, place: int) -> str:
        """Return how a place is called: "rank 2", or a helper's name."""
        if place < self.group_size:
            return f"rank {place}"
        return self.helpers[place - self.group_size]

    def row_text(self, row: int) -> str:
        """Return a row in short, for messages: "row 5 (step 1, r2 -> r3)"."""
        src, dst = (
            f"r{place}" if place < self.group_size else self.place_name(place)
            for place in (int(self.src[row]), int(self.dst[row]))
        )
        arrow = "+>" if self.reduce[row] else "->"
        return f"row {row} (step {self.step[row]}, {src} {arrow} {dst})"

    @property
    def transfers(self) -> list[Transfer]:
        """The rows as Transfers, in program order."""
        columns = [getattr(self, name).tolist() for name in Transfer._fields]
        return [Transfer(*row) for row in zip(*columns, strict=True)]

    @cached_property
    def messages(self) -> Messages:
        """How the rows travel together."""
        return messages_of(self.step, self.src == self.dst, self.numbers, self._lanes)

    def _lanes(self) -> Ints:
        """Return the number of each row's (channel, src, dst), (rows,)."""
        n_lanes = self.channels * self.n_places**2
        lane: Any = self.channel.astype(np.int32 if n_lanes <= _WIDEST else np.int64)
        for place in (self.src, self.dst):
            lane *= self.n_places
            lane += place
        numbered: Ints = lane
        return numbered

    @cached_property
    def numbers(self) -> Ints:
        """Number of each row, (rows,)."""
        return numbers(len(self))

    def bind(
        self, count: int, dtype: str = "float32", splits: Splits | None = None
    ) -> BoundSchedule:
        """Return the schedule with its sizes; see `bind.bind`."""
        from .bind import bind

        return bind(self, count, dtype, splits)

    def to_text(self) -> str:
        """Return the schedule as text, one transfer a line; `text.parse` reads it back."""
        from .text import to_text

        return to_text(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return self.to_text() == other.to_text()

    def __hash__(self) -> int:
        return hash((self.collective, self.algorithm, self.group_size, len(self)))
