"""What each slot holds while a schedule runs: which chunk, and whose parts are in it.

    whose = flow(build("all_reduce", "ring", 4))
    whose.chunk[5]                      # chunk that row 5 carries
    whose.contributors("payload", 5)    # [0, 1]: the ranks whose parts it carries

Contributors are exact here, and how often each one is inside; `verify` does with sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ScheduleError
from .compiled import kernel, run
from .order import Moves, Order, moves, order_of, waves
from .schedule import Ints, Schedule, Slots

# Chunk of a cell that holds nothing, inside arrays only.
EMPTY = -1
# Rows times ranks above which `flow` refuses: three arrays of as many counts of two bytes.
LARGEST_FLOW = 30_000_000
# Cells that are listed at once.
_BLOCK = 1 << 16

_Numbers = npt.NDArray[Any]
Counts = npt.NDArray[np.uint16]
Masks = npt.NDArray[Any]
Which = Literal["payload", "before", "after"]


class Held(NamedTuple):
    """Which cell holds which chunk, and at which rank: a list of cells.

    Attributes:
        cell: place * slots_a_place + slot, (n,).
        chunk: The chunk in it, (n,).
        place: The place, (n,).
    """

    cell: Ints
    chunk: Ints
    place: Ints

    def where(self, wanted: npt.NDArray[np.bool_]) -> Held:
        """Return those of the cells that are wanted."""
        return Held(*(column[wanted] for column in self))


class Chunks(NamedTuple):
    """Chunks of a walk through all moves, EMPTY where there is none.

    Attributes:
        carried: Chunk that each move carries, (moves,).
        before: Chunk that its destination held before, (moves,); none if it was not asked for.
        final: Chunk in each cell at the end, (cells,).
    """

    carried: _Numbers
    before: _Numbers
    final: _Numbers


def inputs(schedule: Schedule) -> Held:
    """Return what the cells hold at the start, by place."""
    return _joined(inputs_by_block(schedule))


def outputs(schedule: Schedule) -> Held:
    """Return what the cells must hold at the end, by place."""
    return _joined(outputs_by_block(schedule))


def inputs_by_block(schedule: Schedule) -> Iterator[Held]:
    """Yield what the cells hold at the start, some places at a time."""
    kind = schedule.kind
    return _held(schedule, schedule.input, kind.input_at_root, kind.input_chunks)


def outputs_by_block(schedule: Schedule) -> Iterator[Held]:
    """Yield what the cells must hold at the end, some places at a time."""
    kind = schedule.kind
    return _held(schedule, schedule.output, kind.output_at_root, kind.output_chunks)


def _held(
    schedule: Schedule, slots: Slots, at_root: bool, chunks_of: Callable[..., Ints]
) -> Iterator[Held]:
    ranks = np.arange(schedule.group_size)
    if at_root:
        ranks = ranks[schedule.root :][:1]
    shared = np.array(slots.lists, np.int64) if len(slots.lists) == 1 else None
    length = len(slots[int(ranks[0])])
    for low in range(0, len(ranks), max(1, _BLOCK // max(1, length))):
        place = ranks[low : low + max(1, _BLOCK // max(1, length)), None]
        own = shared
        if own is None:
            own = np.array([slots[rank] for rank in place[:, 0].tolist()], np.int64)
        cell = place * schedule.slots_a_place + own.reshape(-1, length)
        chunk = chunks_of(place, schedule.group_size, length)
        yield Held(*(np.broadcast_to(a, cell.shape).reshape(-1) for a in (cell, chunk, place)))


def _joined(blocks: Iterator[Held]) -> Held:
    return Held(*(np.concatenate(columns) for columns in zip(*blocks, strict=True)))


def n_cells(schedule: Schedule) -> int:
    """Return how many cells there are."""
    return schedule.n_places * schedule.slots_a_place


def chunks_at_start(schedule: Schedule) -> _Numbers:
    """Return the chunk that each cell holds at the start, EMPTY where there is none, (cells,)."""
    held = np.full(n_cells(schedule), EMPTY, np.int32)
    for start in inputs_by_block(schedule):
        held[start.cell] = start.chunk
    return held


def walk_chunks(
    schedule: Schedule, moved: Moves, order: Order, *, wants_before: bool = True
) -> Chunks:
    """Return the chunks of all moves.

    A copy brings its chunk along; a reduce leaves the chunk that is there.

    Args:
        schedule: The schedule.
        moved: Its moves.
        order: Their order.
        wants_before: Whether to say what destinations held before.
    """
    held = chunks_at_start(schedule)
    carried = np.empty(len(moved), np.int32)
    before = np.empty(len(moved) if wants_before else 0, np.int32)
    run(_walk_chunks, len(moved))(order, held, carried, before)
    return Chunks(carried, before, held)


@kernel
def _walk_chunks(order: Order, held: _Numbers, carried: _Numbers, before: _Numbers) -> None:
    """Fill in the chunks of all moves; `held` has those of the cells."""
    o = order
    read, write = 0, 0
    for wave in range(len(o.read_ends)):
        for k in range(read, o.read_ends[wave]):
            row = o.reads[k]
            cell = int(o.src[row]) * o.slots_a_place + o.src_slot[row]
            for slot in range(o.n_slots[row]):
                carried[o.first[row] + slot] = held[cell + slot]
        for k in range(write, o.write_ends[wave]):
            row = o.writes[k]
            cell = int(o.dst[row]) * o.slots_a_place + o.dst_slot[row]
            for slot in range(o.n_slots[row]):
                there = held[cell + slot]
                if len(before):
                    before[o.first[row] + slot] = there
                if there == EMPTY or not o.reduce[row]:
                    held[cell + slot] = carried[o.first[row] + slot]
        read, write = o.read_ends[wave], o.write_ends[wave]


@dataclass(frozen=True, eq=False)
class Flow:
    """Whose parts each row carries and finds; made by `flow`.

    Attributes:
        schedule: The schedule.
        moves: Its rows as moves of single slots.
        chunks: The chunks of the moves.
        counts: For "payload", "before" and "after" (the destination, around the write): how often
            each rank's part is inside, (moves, ranks).
        final: The same of each cell at the end, (cells, ranks).
    """

    schedule: Schedule
    moves: Moves
    chunks: Chunks
    counts: dict[Which, Counts]
    final: Counts

    @cached_property
    def chunk(self) -> Ints:
        """Chunk that each row carries in its first slot, -1 where that is empty, (rows,)."""
        return self.chunks.carried[self.moves.first]

    @cached_property
    def payload(self) -> Masks:
        """Ranks whose parts each row carries: bit r for rank r, (rows,).

        uint64 up to 64 ranks, Python's ints above.
        """
        return _masks(self.row_counts("payload"))

    @cached_property
    def before(self) -> Masks:
        """Ranks whose parts the destination held before the row, as `payload`, (rows,)."""
        return _masks(self.row_counts("before"))

    @cached_property
    def after(self) -> Masks:
        """Ranks whose parts the destination holds after the row, as `payload`, (rows,)."""
        return _masks(self.row_counts("after"))

    def row_counts(self, which: Which) -> Counts:
        """Return how often each rank's part is inside, the most of a row's slots, (rows, ranks)."""
        counts = self.counts[which]
        if len(counts) == len(self.schedule):
            return counts
        return np.maximum.reduceat(counts, self.moves.first, axis=0)

    def contributors(self, which: Which, row: int) -> list[int]:
        """Return the ranks whose parts are in a row's payload or destination.

        Args:
            which: payload, before or after.
            row: The row.

        Returns:
            Group ranks in order, each as often as its part is inside.
        """
        first = int(self.moves.first[row])
        stop = first + int(self.schedule.n_slots[row])
        return ranks_in(self.counts[which][first:stop])

    def input_contributors(self, place: int) -> list[int]:
        """Return whose parts a rank's input holds: its own, or none where it has no input."""
        return [place] if self.schedule.input_of(place)[0] else []

    def output_contributors(self, place: int) -> list[int]:
        """Return whose parts a rank's output holds at the end."""
        slots, _ = self.schedule.output_of(place)
        cells = place * self.schedule.slots_a_place + np.array(slots, np.int64)
        return ranks_in(self.final[cells])


def ranks_in(counts: Counts) -> list[int]:
    """Return the ranks that are counted in any of some rows, each as often as it is at most."""
    most = counts.max(axis=0, initial=0)
    return np.repeat(np.arange(len(most)), most).tolist()


def _masks(counts: Counts) -> Masks:
    n = counts.shape[1]
    if n <= 64:
        bits = np.uint64(1) << np.arange(n, dtype=np.uint64)
        masks: Masks = np.where(counts > 0, bits, np.uint64(0)).sum(axis=1, dtype=np.uint64)
        return masks
    packed = np.packbits(counts > 0, axis=1, bitorder="little")
    masks = np.empty(len(counts), object)
    masks[:] = [int.from_bytes(row.tobytes(), "little") for row in packed]
    return masks


def flow_fits(schedule: Schedule) -> bool:
    """Return whether `flow` takes a schedule of this size."""
    return int(schedule.n_slots.sum()) * schedule.group_size <= LARGEST_FLOW


def flow(schedule: Schedule) -> Flow:
    """Return whose parts each row carries and finds, exactly.

    Args:
        schedule: The schedule, valid or not: what is empty has no contributors.

    Raises:
        ScheduleError: It is too large (see `flow_fits`), or it deadlocks.

    Example:
        >>> from .library import build
        >>> flow(build("all_reduce", "tree", 4)).contributors("payload", 2)
        [2, 3]
    """
    if not flow_fits(schedule):
        raise ScheduleError(
            f"{len(schedule)} rows on {schedule.group_size} ranks are too many to follow every "
            f"contributor; rows times ranks may be {LARGEST_FLOW}"
        )
    moved = moves(schedule)
    shape = (len(moved), schedule.group_size)
    payload, before, after = (np.zeros(shape, np.uint16) for _ in range(3))
    state = np.zeros((n_cells(schedule), schedule.group_size), np.uint16)
    start = inputs(schedule)
    state[start.cell, start.place] = 1
    adds = schedule.reduce[moved.row].astype(np.uint16)[:, None]
    for reads, writes in waves(schedule, moved):
        payload[reads] = state[moved.src[reads]]
        cells = moved.dst[writes]
        old = state[cells]
        new = payload[writes] + old * adds[writes]
        before[writes], after[writes], state[cells] = old, new, new
    counts: dict[Which, Counts] = {"payload": payload, "before": before, "after": after}
    chunks = walk_chunks(schedule, moved, order_of(schedule, moved), wants_before=False)
    return Flow(schedule, moved, chunks, counts, state)
