"""What each slot holds while a schedule runs: which chunk, and whose parts are in it.

    whose = flow(build("all_reduce", "ring", 4))
    whose.chunk[5]                      # chunk that row 5 carries
    whose.contributors("payload", 5)    # [0, 1]: the ranks whose parts it carries

Contributors are exact here, and how often each one is inside; `verify` does with sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ScheduleError
from .compiled import kernel, run
from .order import Moves, Order, moves, order_of, waves
from .schedule import Ints, Schedule

# Chunk of a cell that holds nothing, inside arrays only.
EMPTY = -1
# Rows times ranks above which `flow` refuses: three arrays of as many counts of two bytes.
LARGEST_FLOW = 30_000_000

_Ints32 = npt.NDArray[np.int32]
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


class Chunks(NamedTuple):
    """Chunks of a walk through all moves, EMPTY where there is none.

    Attributes:
        carried: Chunk that each move carries, (moves,).
        before: Chunk that its destination held before, (moves,).
        after: Chunk that its destination holds then, (moves,).
        final: Chunk in each cell at the end, (cells,).
    """

    carried: _Ints32
    before: _Ints32
    after: _Ints32
    final: _Ints32


def inputs(schedule: Schedule) -> Held:
    """Return what the cells hold at the start."""
    return _held(schedule, [schedule.input_of(place) for place in range(schedule.group_size)])


def outputs(schedule: Schedule) -> Held:
    """Return what the cells must hold at the end."""
    return _held(schedule, [schedule.output_of(place) for place in range(schedule.group_size)])


def _held(schedule: Schedule, lists: list[tuple[tuple[int, ...], Ints]]) -> Held:
    shared = {id(one): one for one, _ in lists}  # most ranks have the same list
    arrays = {key: np.array(one, np.int64) for key, one in shared.items()}
    slots = [arrays[id(one)] for one, _ in lists]
    place = np.repeat(np.arange(len(lists)), [len(one) for one in slots])
    cell = place * schedule.slots_a_place + np.concatenate(slots)
    return Held(cell, np.concatenate([chunks for _, chunks in lists]), place)


def n_cells(schedule: Schedule) -> int:
    """Return how many cells there are."""
    return schedule.n_places * schedule.slots_a_place


def walk_chunks(schedule: Schedule, moved: Moves, order: Order) -> Chunks:
    """Return the chunks of all moves.

    A copy brings its chunk along; a reduce leaves the chunk that is there.

    Args:
        schedule: The schedule.
        moved: Its moves.
        order: Their order.
    """
    held = np.full(n_cells(schedule), EMPTY, np.int32)
    start = inputs(schedule)
    held[start.cell] = start.chunk
    carried, before, after = (np.empty(len(moved.row), np.int32) for _ in range(3))
    reduces = schedule.reduce[moved.row]
    walk = run(_walk_chunks, len(schedule))
    walk(order, moved.src, moved.dst, reduces, held, carried, before, after)
    return Chunks(carried, before, after, held)


@kernel
def _walk_chunks(
    order: Order,
    src: Ints,
    dst: Ints,
    reduces: npt.NDArray[np.bool_],
    held: _Ints32,
    carried: _Ints32,
    before: _Ints32,
    after: _Ints32,
) -> None:
    """Fill in the chunks of all moves; `held` has those of the cells."""
    read, write = 0, 0
    for wave in range(len(order.read_ends)):
        for k in range(read, order.read_ends[wave]):
            carried[order.reads[k]] = held[src[order.reads[k]]]
        for k in range(write, order.write_ends[wave]):
            move = order.writes[k]
            before[move] = held[dst[move]]
            if not reduces[move] or before[move] == EMPTY:
                held[dst[move]] = carried[move]
            after[move] = held[dst[move]]
        read, write = order.read_ends[wave], order.write_ends[wave]


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
        return self.chunks.carried[self.moves.first].astype(np.int64)

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
    shape = (len(moved.row), schedule.group_size)
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
    chunks = walk_chunks(schedule, moved, order_of(schedule, moved))
    return Flow(schedule, moved, chunks, counts, state)
