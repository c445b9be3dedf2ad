"""Sizes: a schedule with a count of elements and a dtype, and where each slot lies in memory.

    bound = schedule.bind(16, "float32")
    bound.row_bytes[0]          # bytes of the first transfer
    bound.layout(2).buffer      # ("output", "output", ...): where the slots of rank 2 lie

`count` is the size of the whole logical data as nccl-tests has it: all_gather, reduce_scatter,
gather, scatter count all ranks' blocks; all_to_all and send_recv count what one rank sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple, NoReturn

import numpy as np

from ..errors import ScheduleError
from ..traces.schema import DTYPES
from .flow import EMPTY, inputs_by_block, n_cells, outputs_by_block, walk_chunks
from .order import Moves, moves, order_of
from .rows import blocks
from .schedule import Ints, Schedule

Splits = Sequence[int] | Sequence[Sequence[int]]

# Float64 holds whole numbers exactly up to here: 8 PiB.
_MOST_BYTES = 1 << 53


class Layout(NamedTuple):
    """Where each slot of a place lies.

    A slot of the output list lies in the output tensor, an input slot that is no output slot in
    the input tensor, and all others in one scratch buffer.

    Attributes:
        buffer: "input", "output" or "scratch" for each slot.
        offset_elements: Where the slot starts in that buffer, (slots,).
        elements: How many elements it has room for, (slots,).
    """

    buffer: tuple[str, ...]
    offset_elements: Ints
    elements: Ints


class Pieces(NamedTuple):
    """How a rank's input or output tensor is divided.

    Attributes:
        slots: Slot that holds each piece, (pieces,).
        chunks: Chunk in each piece, (pieces,).
        offset_elements: Where the piece starts in the tensor, (pieces,).
        elements: Its length, (pieces,).
    """

    slots: tuple[int, ...]
    chunks: Ints
    offset_elements: Ints
    elements: Ints

    @property
    def total_elements(self) -> int:
        """Elements of the tensor."""
        return int(self.elements.sum())


@dataclass(frozen=True, eq=False)
class BoundSchedule:
    """A schedule and its sizes; made by `Schedule.bind`.

    Attributes:
        schedule: The schedule.
        count: Elements of the whole data.
        dtype: Torch's name of the element type.
        itemsize: Bytes of an element.
        chunk_elements: Elements of each chunk, (chunks,).
        move_chunk: Chunk that each move carries, (moves,); see `order.moves`.
        moves: The rows as moves of single slots.
    """

    schedule: Schedule
    count: int
    dtype: str
    itemsize: int
    chunk_elements: Ints
    move_chunk: Ints
    moves: Moves

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole data: nccl-tests' S."""
        return self.count * self.itemsize

    def with_count(self, count: int) -> BoundSchedule:
        """Return the schedule with another number of elements; which chunk goes where is the same.

        Raises:
            ScheduleError: As in `bind`.
        """
        _check_size(count, self.dtype)
        elements = _chunk_elements(self.schedule, count, None)
        bound = replace(self, count=count, chunk_elements=elements)
        _check_room(bound)
        return bound

    @cached_property
    def row_chunk(self) -> Ints:
        """Chunk in the first source slot of each row, (rows,)."""
        return self.move_chunk if self.moves.single else self.move_chunk[self.moves.first]

    @cached_property
    def row_elements(self) -> Ints:
        """Elements that each row carries, (rows,)."""
        return self._of_rows(self.chunk_elements)

    @cached_property
    def row_bytes(self) -> Ints:
        """Bytes that each row carries, (rows,)."""
        return self._row_bytes()

    @property
    def message_bytes(self) -> Ints:
        """Bytes of each message, (messages,)."""
        messages, sizes = self.schedule.messages, self._row_bytes()
        if messages.alone:
            return sizes
        order = np.argsort(messages.of_row, kind="stable")
        first = np.searchsorted(messages.of_row[order], np.arange(len(messages.first_row)))
        return np.add.reduceat(sizes[order], first)

    def _row_bytes(self) -> Ints:
        return self._of_rows(self.chunk_elements * self.itemsize)

    def _of_rows(self, sizes: Ints) -> Ints:
        """Return the sum of the sizes, given for each chunk, of what each row carries, (rows,)."""
        carried = sizes[self.move_chunk]
        return carried if self.moves.single else np.add.reduceat(carried, self.moves.first)

    def input(self, place: int) -> Pieces:
        """Return how a rank's input tensor is divided; no pieces where it has none."""
        return self._pieces(*self.schedule.input_of(place))

    def output(self, place: int) -> Pieces:
        """Return how a rank's output tensor is divided; no pieces where it has none."""
        return self._pieces(*self.schedule.output_of(place))

    def _pieces(self, slots: tuple[int, ...], chunks: Ints) -> Pieces:
        elements = self.chunk_elements[chunks]
        return Pieces(slots, chunks, np.cumsum(elements) - elements, elements)

    def input_elements(self, place: int) -> int:
        """Return the elements of a rank's input tensor."""
        return self.input(place).total_elements

    def output_elements(self, place: int) -> int:
        """Return the elements of a rank's output tensor."""
        return self.output(place).total_elements

    def scratch_elements(self, place: int) -> int:
        """Return the elements of a place's scratch buffer."""
        layout = self.layout(place)
        scratch = np.array([buffer == "scratch" for buffer in layout.buffer], np.bool_)
        return int(layout.elements[scratch].sum())

    def layout(self, place: int) -> Layout:
        """Return where each slot of a place lies, for all slots up to `slots_a_place`."""
        n_slots = self.schedule.slots_a_place
        elements = self._most_elements[place * n_slots : (place + 1) * n_slots].copy()
        buffer = np.full(n_slots, "scratch", object)
        offset = np.zeros(n_slots, np.int64)
        for name, pieces in (("input", self.input(place)), ("output", self.output(place))):
            slots = np.array(pieces.slots, np.int64)
            buffer[slots] = name
            offset[slots] = pieces.offset_elements
            elements[slots] = pieces.elements
        scratch = buffer == "scratch"
        room = elements[scratch]
        offset[scratch] = np.cumsum(room) - room
        return Layout(tuple(buffer.tolist()), offset, elements)

    @cached_property
    def _most_elements(self) -> Ints:
        """Most elements that anything written into a cell has, (cells,)."""
        most = np.zeros(n_cells(self.schedule), np.int64)
        for rows in blocks(len(self.schedule)):
            carried = self.move_chunk[self.moves.of_rows(rows)]
            np.maximum.at(most, self.moves.targets(rows), self.chunk_elements[carried])
        return most


def bind(
    schedule: Schedule, count: int, dtype: str = "float32", splits: Splits | None = None
) -> BoundSchedule:
    """Return a schedule with its sizes.

    Args:
        schedule: The schedule.
        count: Elements of the whole data, 0 or more. Chunks of a block differ by at most one
            element, larger first.
        dtype: Torch's name of the element type, without the prefix.
        splits: Elements of each rank's block, where the collective divides its data into blocks
            (all_to_all: a list for each sender, one number a receiver). By default all equal.

    Raises:
        ScheduleError: The count is negative, too large or cannot be divided, the dtype is unknown,
            the splits do not fit, a row sends an empty slot, or a slot is too small for what
            arrives.

    Example:
        >>> from .library import build
        >>> bind(build("all_reduce", "ring", 4), 10, "float32").chunk_elements.tolist()
        [3, 3, 2, 2]
    """
    _check_size(count, dtype)
    moved = moves(schedule)
    bound = BoundSchedule(
        schedule=schedule,
        count=count,
        dtype=dtype,
        itemsize=DTYPES[dtype],
        chunk_elements=_chunk_elements(schedule, count, splits),
        move_chunk=_carried_chunks(schedule, moved),
        moves=moved,
    )
    _check_room(bound)
    return bound


def _check_size(count: int, dtype: str) -> None:
    if dtype not in DTYPES:
        raise ScheduleError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
    if count < 0:
        raise ScheduleError(f"count is {count}, expected 0 or more elements")
    size_bytes = count * DTYPES[dtype]
    if size_bytes > _MOST_BYTES:
        raise ScheduleError(
            f"count is {count}: that is {size_bytes} bytes of {dtype}, expected at most "
            f"{_MOST_BYTES}, up to which the step model counts exactly"
        )


def _chunk_elements(schedule: Schedule, count: int, splits: Splits | None) -> Ints:
    """Return the elements of each chunk, (chunks,)."""
    fixed = schedule.chunk_elements
    if fixed is None:
        return _divide(_blocks(schedule, count, splits), schedule.n_chunks)
    total = int(fixed.sum())
    if splits is not None or total != count:
        found = f"count {count}" if splits is None else "splits"
        raise ScheduleError(
            f"{schedule.algorithm}: the plan was made for {total} elements, found {found}"
        )
    return fixed


def _blocks(schedule: Schedule, count: int, splits: Splits | None) -> Ints:
    """Return the elements of each block: the whole, a rank's, or a sender's and receiver's."""
    kind, n = schedule.kind, schedule.group_size
    if not kind.by_block:
        if splits is not None:
            raise ScheduleError(f"{kind.name} is not divided into blocks: it takes no splits")
        return np.full(n if kind.by_rank else 1, count, np.int64)
    pairwise = kind.receives == "transposed"
    if splits is None:
        if count % n:
            raise ScheduleError(
                f"{kind.name}: {count} elements cannot be divided equally among {n} ranks; "
                f"use a multiple of {n} (such as {-(-count // n) * n}) or give splits"
            )
        return np.full(n * n if pairwise else n, count // n, np.int64)
    shape = (n, n) if pairwise else (n,)
    try:
        blocks = np.asarray(splits, np.int64)
    except OverflowError:
        raise ScheduleError(f"{kind.name}: splits are {splits}, expected up to {count}") from None
    if blocks.shape != shape:
        raise ScheduleError(f"{kind.name}: splits have shape {blocks.shape}, expected {shape}")
    if (blocks < 0).any():
        raise ScheduleError(f"{kind.name}: splits are {splits}, expected 0 or more each")
    total = int(blocks.sum(axis=-1).max())
    if total != count:
        raise ScheduleError(f"{kind.name}: splits sum up to {total}, expected count {count}")
    return blocks.reshape(-1)


def _divide(blocks: Ints, n_chunks: int) -> Ints:
    """Return the elements of each chunk: each block in equal parts, larger first."""
    a_block = n_chunks // len(blocks)
    if a_block == 0:
        return np.zeros(n_chunks, np.int64)
    part = np.arange(a_block)
    return (blocks[:, None] // a_block + (part < blocks[:, None] % a_block)).reshape(-1)


def _carried_chunks(schedule: Schedule, moved: Moves) -> Ints:
    """Return the chunk that each move carries, (moves,)."""
    order = order_of(schedule, moved)
    carried = walk_chunks(schedule, moved, order, wants_before=False).carried
    if carried.min(initial=0) == EMPTY:
        move = int(np.flatnonzero(carried == EMPTY)[0])
        row = int(moved.row[move])
        place, slot = divmod(int(moved.src[move]), schedule.slots_a_place)
        raise ScheduleError(
            f"{schedule.row_text(row)}: slot {slot} of {schedule.place_name(place)} holds nothing "
            "by then",
            code="EMPTY_READ",
            place=place,
            step=int(schedule.step[row]),
        )
    return carried


def _check_room(bound: BoundSchedule) -> None:
    """Raise where a chunk is written into an input or output slot that is made for a smaller."""
    sizes = bound.chunk_elements
    if not len(sizes) or sizes.min() == sizes.max():
        return
    schedule = bound.schedule
    room = np.full(n_cells(schedule), np.iinfo(np.int64).max)
    for held in chain(inputs_by_block(schedule), outputs_by_block(schedule)):
        room[held.cell] = bound.chunk_elements[held.chunk]
    for rows in blocks(len(schedule)):
        here = bound.moves.of_rows(rows)
        cell = bound.moves.targets(rows)
        tight = np.flatnonzero(bound.chunk_elements[bound.move_chunk[here]] > room[cell])
        if len(tight):
            _refuse(bound, here.start + int(tight[0]), int(room[cell[tight[0]]]))


def _refuse(bound: BoundSchedule, move: int, room: int) -> NoReturn:
    """Raise because a move brings more than there is room for."""
    schedule, chunk = bound.schedule, bound.move_chunk[move]
    row = int(bound.moves.row[move])
    place, slot = divmod(int(bound.moves.dst[move]), schedule.slots_a_place)
    raise ScheduleError(
        f"{schedule.row_text(row)}: chunk {chunk} has {bound.chunk_elements[chunk]} elements, but "
        f"slot {slot} of {schedule.place_name(place)} has room for {room}; use a scratch slot, or "
        f"a count that divides into {schedule.n_chunks} equal chunks",
        place=place,
        step=int(schedule.step[row]),
    )
