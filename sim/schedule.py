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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ScheduleError
from .collectives import Collective, collective

if TYPE_CHECKING:
    from .bind import BoundSchedule, Splits

Ints = npt.NDArray[np.int64]


class Transfer(NamedTuple):
    """One row of a schedule: `n_slots` slots of `src` go to slots of `dst`.

    With `src == dst` it is a local copy or reduce.
    """

    step: int
    channel: int
    src: int
    dst: int
    src_slot: int
    dst_slot: int
    n_slots: int = 1
    reduce: bool = False


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of a buffer at each rank: one list for all, or one list a rank."""

    lists: tuple[tuple[int, ...], ...]

    def __getitem__(self, place: int) -> tuple[int, ...]:
        return self.lists[0 if len(self.lists) == 1 else place]

    @staticmethod
    def of(slots: SlotLists, group_size: int) -> Slots:
        """Return Slots from one list of slots, or from one list a rank; equal lists become one."""
        if isinstance(slots, Slots):
            return slots
        items: list[Any] = list(slots)
        if not items or isinstance(items[0], int | np.integer):
            return Slots((tuple(int(slot) for slot in items),))
        lists = tuple(tuple(int(slot) for slot in rank) for rank in items)
        if len(lists) != group_size:
            raise ScheduleError(f"{len(lists)} lists of slots for {group_size} ranks")
        return Slots(lists[:1] if len(set(lists)) == 1 else lists)


SlotLists = Slots | Iterable[int] | Sequence[Iterable[int]]


class Messages(NamedTuple):
    """How rows travel together.

    Attributes:
        of_row: Number of the message that a row travels in, over the whole schedule, (rows,);
            local rows have numbers of their own.
        part: Place of the row within its message, (rows,).
        ordinal: k of "the k-th message from src to dst on this channel", (rows,).
        first_row: First row of each message, (messages,).
    """

    of_row: Ints
    part: Ints
    ordinal: Ints
    first_row: Ints


_ROW = (
    ("step", np.int32),
    ("channel", np.int16),
    ("src", np.int32),
    ("dst", np.int32),
    ("src_slot", np.int32),
    ("dst_slot", np.int32),
    ("n_slots", np.int32),
    ("reduce", np.bool_),
)


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
        columns = _columns(rows)
        order = np.argsort(columns["step"], kind="stable")
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        pairs = np.asarray(list(after), np.int64).reshape(-1, 2)
        if ((pairs < 0) | (pairs >= len(order))).any():
            raise ScheduleError(f"`after` names a row beyond the {len(order)} that exist")
        pairs = np.unique(position[pairs], axis=0) if len(pairs) else pairs
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
            after=pairs,
            idempotent=idempotent,
            chunk_elements=None if chunk_elements is None else np.array(chunk_elements, np.int64),
            **columns,
        )

    def __post_init__(self) -> None:
        kind = collective(self.collective)
        if kind.rooted and (self.root is None or not 0 <= self.root < self.group_size):
            raise ScheduleError(
                f"root of {self.collective} is {self.root}, expected 0 to {self.group_size - 1}"
            )
        if not kind.rooted and self.root is not None:
            raise ScheduleError(f"{self.collective} has no root, found {self.root}")
        if self.window < 1:
            raise ScheduleError(f"window is {self.window}, expected 1 or more")
        self._check_rows()
        self._check_buffers()
        self._check_after()

    def _check_rows(self) -> None:
        limits = (
            ("step", 0, None),
            ("channel", 0, None),
            ("src", 0, self.n_places),
            ("dst", 0, self.n_places),
            ("src_slot", 0, None),
            ("dst_slot", 0, None),
            ("n_slots", 1, None),
        )
        for name, low, high in limits:
            values = getattr(self, name)
            bad = (values < low) if high is None else (values < low) | (values >= high)
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                upto = "or more" if high is None else f"to {high - 1}"
                raise ScheduleError(
                    f"row {row}: {name} is {values[row]}, expected {low} {upto}",
                    step=int(self.step[row]),
                )
        for end, slot in (("src", self.src_slot), ("dst", self.dst_slot)):
            self._check_slots(end, getattr(self, end), slot)

    def _check_slots(self, end: str, places: Ints, slots: Ints) -> None:
        declared = self._declared
        ranks = places < self.group_size
        bad = np.zeros(len(self), np.bool_)
        bad[ranks] = (slots + self.n_slots)[ranks] > declared[places[ranks]]
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            place = int(places[row])
            raise ScheduleError(
                f"row {row}: {end}_slot {slots[row]} with {self.n_slots[row]} slot(s) is beyond "
                f"the {declared[place]} slots of rank {place}",
                place=place,
                step=int(self.step[row]),
            )

    def _check_buffers(self) -> None:
        sizes = {}
        for name in ("input", "output"):
            has = self.kind.has_input if name == "input" else self.kind.has_output
            slots: Slots = getattr(self, name)
            ranks = [rank for rank in range(self.group_size) if has(rank, self.root)]
            lengths = {len(slots[rank]): rank for rank in reversed(ranks)}
            if len(lengths) > 1:
                raise ScheduleError(f"{name} lists differ in length: {sorted(lengths)}")
            sizes[name] = next(iter(lengths))
            for rank in ranks[: len(slots.lists)] if len(slots.lists) == 1 else ranks:
                if len(set(slots[rank])) < len(slots[rank]):
                    raise ScheduleError(f"rank {rank}: {name} names a slot twice", place=rank)
        if self.kind.receives == "transposed" and sizes["input"] % self.group_size:
            raise ScheduleError(
                f"{self.collective}: {sizes['input']} input slots, expected a multiple of "
                f"{self.group_size}: as many for each receiver"
            )
        due = self.kind.n_output(self.group_size, sizes["input"])
        if sizes["output"] != due:
            raise ScheduleError(
                f"{self.collective}: {sizes['output']} output slots for {sizes['input']} input "
                f"slots on {self.group_size} ranks, expected {due:g}"
            )
        if self.chunk_elements is not None and (
            self.chunk_elements.shape != (self.n_chunks,) or (self.chunk_elements < 0).any()
        ):
            raise ScheduleError(
                f"{self.chunk_elements.size} chunk sizes for {self.n_chunks} chunks, expected one "
                "each, 0 or more"
            )

    def _check_after(self) -> None:
        row, earlier = self.after[:, 0], self.after[:, 1]
        here = self.src[row]
        apart = (self.src[earlier] != here) & (self.dst[earlier] != here)
        if apart.any():
            pair = int(np.flatnonzero(apart)[0])
            raise ScheduleError(
                f"row {row[pair]}: waits for row {earlier[pair]}, which neither begins nor ends at "
                f"its sender, rank {here[pair]}",
                place=int(here[pair]),
                step=int(self.step[row[pair]]),
            )

    @cached_property
    def _declared(self) -> Ints:
        """Slots of each rank: one more than the last that a list names, (ranks,)."""
        counts = [
            np.array([max(one, default=-1) + 1 for one in slots.lists], np.int64)
            for slots in (self.input, self.output, self.scratch)
        ]
        return np.max([np.broadcast_to(count, self.group_size) for count in counts], axis=0)

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
        declared = int(self._declared.max())
        ends = (self.src_slot + self.n_slots, self.dst_slot + self.n_slots)
        return max(declared, *(int(end.max(initial=0)) for end in ends))

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
        columns = [getattr(self, name).tolist() for name, _ in _ROW]
        return [Transfer(*row) for row in zip(*columns, strict=True)]

    @cached_property
    def messages(self) -> Messages:
        """How the rows travel together."""
        key = np.stack([self.step, self.channel, self.src, self.dst]).astype(np.int64)
        local = self.src == self.dst
        order = np.lexsort((np.arange(len(self)), key[3], key[2], key[1], key[0]))
        sorted_key = key[:, order]
        new = np.ones(len(self), np.bool_)
        new[1:] = (np.diff(sorted_key, axis=1) != 0).any(axis=0) | local[order][1:]
        first = order[new]  # the first row of each message, since the sort is by row last
        group = np.cumsum(new) - 1
        rank = np.argsort(np.argsort(first, kind="stable"), kind="stable")
        of_row = np.empty(len(self), np.int64)
        of_row[order] = rank[group]
        part = np.empty(len(self), np.int64)
        start = np.flatnonzero(new)
        part[order] = np.arange(len(self)) - start[group]
        first_row = np.sort(first)
        return Messages(of_row, part, _ordinals(self, first_row)[of_row], first_row)

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


def _columns(rows: Iterable[Transfer] | Sequence[npt.ArrayLike]) -> dict[str, Any]:
    """Return the eight columns of the rows, by name."""
    items: list[Any] = list(rows)
    if items and isinstance(items[0], tuple):
        given = list(zip(*(Transfer(*item) for item in items), strict=True))
    else:
        given = items or [[] for _ in _ROW]
    if len(given) != len(_ROW):
        raise ScheduleError(f"{len(given)} columns of rows, expected {len(_ROW)}")
    arrays = np.broadcast_arrays(*(np.asarray(column) for column in given))
    return {
        name: np.ascontiguousarray(array.reshape(-1), dtype)
        for (name, dtype), array in zip(_ROW, arrays, strict=True)
    }


def _ordinals(schedule: Schedule, first_row: Ints) -> Ints:
    """Return, for each message, how many went before it on its (channel, src, dst)."""
    keys = (schedule.channel[first_row], schedule.src[first_row], schedule.dst[first_row])
    order = np.lexsort((first_row, *keys[::-1]))
    new = np.zeros(len(order), np.bool_)
    new[:1] = True
    for key in keys:
        new[1:] |= np.diff(key[order]) != 0
    start = np.flatnonzero(new)
    ordinal = np.empty(len(order), np.int64)
    ordinal[order] = np.arange(len(order)) - start[np.cumsum(new) - 1]
    return ordinal
