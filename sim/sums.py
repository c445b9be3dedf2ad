"""Whether every output is the sum of exactly one part of each rank: a proof, found in one walk.

    found = doubts(schedule, moved, order)
    found.chunks[5]         # False: nothing is added twice in chunk 5, and nothing is lacking
    found.any               # False: nothing at all is wrong with what the rows move

Every value is an input or the sum of two values. If those below a sum form a tree in which no rank
has two inputs, nothing was added twice; if an output's tree has an input of every rank, nothing is
lacking. So each different output is walked through once, and no sets of ranks are kept: a ring's
outputs are n trees of n inputs, however many places hold them. Values that are the sum of the same
two are one value, so that ranks that add the same, as in a butterfly, are told once.

What is proven here is certain. A chunk in doubt may be right all the same, where trees overlap so
much that sets of ranks are less work; and what is wrong is not told in words. `verify` goes through
both with sets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import kernel, run
from .flow import EMPTY, chunks_at_start, n_cells, outputs_by_block
from .order import Moves, Order
from .schedule import Schedule

Flags = npt.NDArray[np.bool_]

# Values looked at, for each move, before sets of ranks promise to be less work.
_PATIENCE = 4
# Of so many sums, as a power of two, it is remembered which two values they have.
_MOST_KNOWN = 20


class Doubts(NamedTuple):
    """What is not proven about a schedule.

    Attributes:
        chunks: Whether a part of each chunk may be added twice or lack at the end, (chunks + 1,);
            the last one stands for no chunk.
        flawed: Whether a row moves nothing or the wrong chunk, or an output ends with it.
    """

    chunks: Flags
    flawed: bool

    @property
    def any(self) -> bool:
        """Whether there is anything."""
        return self.flawed or bool(self.chunks.any())


def doubts(schedule: Schedule, moved: Moves, order: Order) -> Doubts:
    """Return what is not proven about what a schedule's rows move.

    Args:
        schedule: The schedule.
        moved: Its moves.
        order: The order of its rows.
    """
    cells, start = n_cells(schedule), chunks_at_start(schedule)
    adding = int(schedule.n_slots.sum(where=schedule.reduce, dtype=np.int64))
    # Values are numbered: first the inputs, by cell, then the sums.
    fits = cells + adding <= np.iinfo(np.int32).max
    held, value = start.copy(), np.arange(cells, dtype=np.int32 if fits else np.int64)
    parts = np.empty((adding, 2), value.dtype)
    pending: Any = np.empty((order.n_pending, 2), value.dtype)
    lately = np.full(_known(order), -1, value.dtype)
    doubt = np.zeros(schedule.n_chunks + 1, np.bool_)
    walk = run(_sum_up, len(moved))
    flawed, n = walk(order, held, value, pending, parts, lately, doubt, schedule.group_size)
    # Where nothing is reduced a chunk has one contributor, its origin, and no sum is right.
    ranks = schedule.group_size if schedule.kind.reduces else 1
    due = np.zeros(n, np.bool_)
    for end in outputs_by_block(schedule):
        if schedule.chunk_elements is not None:  # nothing is due of an empty chunk
            end = end.where(schedule.chunk_elements[end.chunk] > 0)
        right = held[end.cell] == end.chunk
        flawed = flawed or not right.all()
        outputs = value[end.cell[right]]
        due[outputs[outputs >= cells] - cells] = True
        if ranks > 1:
            doubt[end.chunk[right][outputs < cells]] = True
    seen, waiting = np.full((2, ranks), -1, value.dtype)
    patience = _PATIENCE * (len(moved) + n)
    slots = order.slots_a_place if ranks > 1 else cells
    under = np.zeros(n, np.bool_)
    run(_look, len(moved))(parts, due, under, start, slots, seen, waiting, patience, doubt)
    return Doubts(doubt, bool(flawed))


def _known(order: Order) -> int:
    """Return how many sums are remembered: a power of two, enough for those of two waves."""
    return 1 << min(int(4 * order.n_pending).bit_length(), _MOST_KNOWN)


@kernel
def _sum_up(
    order: Order,
    held: Any,
    value: Any,
    pending: Any,
    parts: Any,
    lately: Any,
    doubt: Flags,
    group_size: int,
) -> tuple[bool, int]:
    """Make all moves and number the sums; return whether a chunk is wrong, and how many there are.

    Args:
        order: The order of all rows.
        held: Chunk in each cell, (cells,).
        value: Value in each cell, (cells,).
        pending: Chunk and value of what was read and is not yet written, (n_pending, 2).
        parts: The two values of each sum, the lower one first, (sums, 2).
        lately: Sums met lately, found by their parts.
        doubt: Whether each chunk is in doubt, (chunks + 1,).
        group_size: Number of ranks.
    """
    o = order
    n_inputs, n, flawed = len(value), 0, False
    read, write = 0, 0
    for wave in range(len(o.read_ends)):
        base = o.base[wave]
        for k in range(read, o.read_ends[wave]):
            row = o.reads[k]
            cell, at = int(o.src[row]) * o.slots_a_place + o.src_slot[row], o.first[row] - base
            for slot in range(o.n_slots[row]):
                pending[at + slot, 0] = held[cell + slot]
                pending[at + slot, 1] = value[cell + slot]
        for k in range(write, o.write_ends[wave]):
            row = o.writes[k]
            cell, at = int(o.dst[row]) * o.slots_a_place + o.dst_slot[row], o.first[row] - base
            for slot in range(o.n_slots[row]):
                chunk, new = pending[at + slot, 0], pending[at + slot, 1]
                there = held[cell + slot]
                if chunk == EMPTY:
                    flawed = True
                    doubt[EMPTY] = True
                    if o.reduce[row] and there != EMPTY:
                        continue
                elif o.reduce[row] and there == EMPTY:
                    flawed = flawed or o.dst[row] < group_size
                elif o.reduce[row] and there != chunk:
                    # What is there keeps its name, as in `walk_chunks`.
                    flawed = True
                    doubt[there] = True
                    doubt[chunk] = True
                    chunk = there
                elif o.reduce[row]:
                    low, high = min(new, value[cell + slot]), max(new, value[cell + slot])
                    place = (int(low) * 40503 + int(high) * 30011) & (len(lately) - 1)
                    known = lately[place]
                    if known < 0 or parts[known, 0] != low or parts[known, 1] != high:
                        known = n
                        lately[place] = n
                        parts[n, 0] = low
                        parts[n, 1] = high
                        n += 1
                    new = n_inputs + known
                held[cell + slot] = chunk
                value[cell + slot] = new
        read, write = o.read_ends[wave], o.write_ends[wave]
    return flawed, n


@kernel
def _look(
    parts: Any,
    due: Flags,
    under: Flags,
    start: Any,
    slots_a_place: int,
    seen: Any,
    waiting: Any,
    patience: int,
    doubt: Flags,
) -> None:
    """Doubt the chunks of all sums that are no trees, or outputs without an input of each rank.

    Args:
        parts: The two values of each sum, (sums, 2).
        due: Whether each sum is an output, (sums,).
        under: Whether each sum was met within another one, (sums,), none yet.
        start: Chunk in each cell at the start, (cells,).
        slots_a_place: Cells of each place.
        seen: Tree in which an input of each rank was seen last, (ranks,), all -1.
        waiting: Room for values that are yet to be looked at, (ranks,).
        patience: How many values may be looked at.
        doubt: Whether each chunk is in doubt, (chunks + 1,).
    """
    n_inputs = len(start)
    for tree in range(len(due) - 1, -1, -1):
        if under[tree] and not due[tree]:
            continue
        waiting[0] = n_inputs + tree
        n_waiting, n_seen, right = 1, 0, True
        while n_waiting and right:
            if patience == 0:
                doubt[:] = True
                return
            patience -= 1
            n_waiting -= 1
            value = waiting[n_waiting]
            if value < n_inputs:
                place = value // slots_a_place
                right = seen[place] != tree
                seen[place] = tree
                n_seen += 1
            elif n_seen + n_waiting + 2 > len(seen):
                right = False  # since each value that waits has an input of some rank
            else:
                under[value - n_inputs] = True
                waiting[n_waiting] = parts[value - n_inputs, 1]
                waiting[n_waiting + 1] = parts[value - n_inputs, 0]
                n_waiting += 2
        if not right or (due[tree] and n_seen < len(seen)):
            value = n_inputs + tree
            while value >= n_inputs:
                value = parts[value - n_inputs, 0]
            doubt[start[value]] = True
