"""A proof that every output is the sum of exactly one part of each rank, found in one walk.

    are_proven(schedule, moved, order)      # True: nothing is wrong; False: look closer

Every value is an input or the sum of two values. If those below a sum form a tree in which no rank
has two inputs, nothing was added twice; if an output's tree has an input of every rank, nothing is
lacking. So each different output is walked through once, and no sets of ranks are kept: a ring's
outputs are n trees of n inputs, however many places hold them. Values that are the sum of the same
two are one value, so that ranks that add the same, as in a butterfly, are told once.

What is proven here is certain. What is not may be right all the same, where trees overlap so much
that sets of ranks are less work; and what is wrong is not told in words. `verify` goes through both
with sets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .compiled import kernel, run
from .flow import EMPTY, chunks_at_start, n_cells, outputs_by_block
from .order import Moves, Order
from .schedule import Ints, Schedule

Flags = npt.NDArray[np.bool_]

# Values looked at, for each move, before sets of ranks promise to be less work.
_PATIENCE = 8
# Of so many sums, as a power of two, it is remembered which two values they have.
_MOST_KNOWN = 20


def are_proven(schedule: Schedule, moved: Moves, order: Order) -> bool:
    """Return whether it is certain that no move and no output has anything wrong with it.

    Args:
        schedule: The schedule.
        moved: Its moves.
        order: The order of its rows.
    """
    cells = n_cells(schedule)
    adding = int(schedule.n_slots.sum(where=schedule.reduce, dtype=np.int64))
    held: Any = chunks_at_start(schedule)
    # Values are numbered: first the inputs, by cell, then the sums.
    fits = cells + adding <= np.iinfo(np.int32).max
    value: Any = np.arange(cells, dtype=np.int32 if fits else np.int64)
    parts = np.empty((adding, 2), value.dtype)
    pending: Any = np.empty((order.n_pending, 2), value.dtype)
    lately = np.full(_known(order), -1, value.dtype)
    n = run(_sum_up, len(moved))(order, held, value, pending, parts, lately, schedule.group_size)
    if n < 0 or (n > 0 and not schedule.kind.reduces):
        return False
    due = np.zeros(cells + n, np.bool_)
    for end in outputs_by_block(schedule):
        if schedule.chunk_elements is not None:  # nothing is due of an empty chunk
            end = end.where(schedule.chunk_elements[end.chunk] > 0)
        if (held[end.cell] != end.chunk).any():
            return False
        due[value[end.cell]] = True
    if not schedule.kind.reduces:
        return True
    if schedule.group_size > 1 and due[:cells].any():
        return False
    trees = run(_are_trees, len(moved))
    seen, waiting = np.full((2, schedule.group_size), -1, value.dtype)
    patience = _PATIENCE * (len(moved) + n)
    under = np.zeros(n, np.bool_)
    return bool(
        trees(parts, due[cells:], under, cells, order.slots_a_place, seen, waiting, patience)
    )


def _known(order: Order) -> int:
    """Return how many sums are remembered: a power of two, enough for those of two waves."""
    return 1 << min(int(4 * order.n_pending).bit_length(), _MOST_KNOWN)


@kernel
def _sum_up(
    order: Order,
    held: Ints,
    value: Ints,
    pending: Ints,
    parts: Ints,
    lately: Ints,
    group_size: int,
) -> int:
    """Make all moves and number the sums; return how many there are, -1 where a chunk is wrong.

    Args:
        order: The order of all rows.
        held: Chunk in each cell, (cells,).
        value: Value in each cell, (cells,).
        pending: Chunk and value of what was read and is not yet written, (n_pending, 2).
        parts: The two values of each sum, the lower one first, (sums, 2).
        lately: Sums met lately, found by their parts.
        group_size: Number of ranks.
    """
    o = order
    n_inputs, n = len(value), 0
    read, write = 0, 0
    for wave in range(len(o.read_ends)):
        base = o.base[wave]
        for k in range(read, o.read_ends[wave]):
            row = o.reads[k]
            cell, at = int(o.src[row]) * o.slots_a_place + o.src_slot[row], o.first[row] - base
            for slot in range(o.n_slots[row]):
                if held[cell + slot] == EMPTY:
                    return -1
                pending[at + slot, 0] = held[cell + slot]
                pending[at + slot, 1] = value[cell + slot]
        for k in range(write, o.write_ends[wave]):
            row = o.writes[k]
            cell, at = int(o.dst[row]) * o.slots_a_place + o.dst_slot[row], o.first[row] - base
            for slot in range(o.n_slots[row]):
                chunk, new = pending[at + slot, 0], pending[at + slot, 1]
                there = held[cell + slot]
                if o.reduce[row] and there != EMPTY:
                    if there != chunk:
                        return -1
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
                elif o.reduce[row] and o.dst[row] < group_size:
                    return -1
                held[cell + slot] = chunk
                value[cell + slot] = new
        read, write = o.read_ends[wave], o.write_ends[wave]
    return n


@kernel
def _are_trees(
    parts: Ints,
    due: Flags,
    under: Flags,
    n_inputs: int,
    slots_a_place: int,
    seen: Ints,
    waiting: Ints,
    patience: int,
) -> bool:
    """Return whether all sums are trees with at most one input a rank, those due with each rank's.

    Args:
        parts: The two values of each sum, (sums, 2).
        due: Whether each sum is an output, (sums,).
        under: Whether each sum was met within another one, (sums,), none yet.
        n_inputs: The number of the first sum among the values.
        slots_a_place: Cells of each place.
        seen: Tree in which an input of each rank was seen last, (ranks,), all -1.
        waiting: Room for values that are yet to be looked at, (ranks,).
        patience: How many values may be looked at.
    """
    for tree in range(len(due) - 1, -1, -1):
        if under[tree] and not due[tree]:
            continue
        waiting[0] = n_inputs + tree
        n_waiting, n_seen = 1, 0
        while n_waiting:
            n_waiting -= 1
            value = waiting[n_waiting]
            patience -= 1
            if value < n_inputs:
                place = value // slots_a_place
                if seen[place] == tree:
                    return False
                seen[place] = tree
                n_seen += 1
                continue
            # Each value that waits has an input of some rank, so there cannot be more of them.
            if patience < 0 or n_seen + n_waiting + 2 > len(seen):
                return False
            under[value - n_inputs] = True
            waiting[n_waiting] = parts[value - n_inputs, 1]
            waiting[n_waiting + 1] = parts[value - n_inputs, 0]
            n_waiting += 2
        if due[tree] and n_seen < len(seen):
            return False
    return True
