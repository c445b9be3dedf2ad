"""The queue of `events`: things by time, in a heap that knows where each of them is.

Flows whose end is far off need not be in the heap: their rates may change many times before. What
ends up to the `horizon` is in it; beyond, `event_flows.look_further` moves the horizon on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import kernel

# Columns of `things`: the number of the message or row, what it waits for, its place in the heap
# (-1: none).
ID, WHAT, PLACE = range(3)
# What a thing waits for.
START, BEGIN, ARRIVE, WRITE = range(4)
# Entries of `counts`.
N_HEAP, N_FREE, N_EVER = range(3)


class Queue(NamedTuple):
    """What will happen, as far as it is known.

    Attributes:
        time: When each thing happens.
        things: Table of the things.
        heap: Things in heap order.
        free: Numbers that things no longer need.
        counts: Things in the heap; free numbers; numbers that were ever used.
        horizon: Everything up to this time is in the heap, one entry.
    """

    time: npt.NDArray[np.float64]
    things: npt.NDArray[Any]
    heap: npt.NDArray[Any]
    free: npt.NDArray[Any]
    counts: npt.NDArray[Any]
    horizon: npt.NDArray[np.float64]


def queue_of(most: int) -> Queue:
    """Return an empty queue with room for so many things; room that is not used costs nothing."""
    return Queue(
        time=np.empty(most),
        things=np.empty((most, 3), np.int32),
        heap=np.empty(most, np.int32),
        free=np.empty(most, np.int32),
        counts=np.zeros(3, np.int64),
        horizon=np.full(1, -1.0),
    )


@kernel
def new(q: Queue, id: int, what: int) -> int:
    """Return the number of a new thing, which is not in the heap yet."""
    if q.counts[N_FREE] > 0:
        q.counts[N_FREE] -= 1
        thing = int(q.free[q.counts[N_FREE]])
    else:
        thing = int(q.counts[N_EVER])
        q.counts[N_EVER] += 1
    q.things[thing, ID] = id
    q.things[thing, WHAT] = what
    q.things[thing, PLACE] = -1
    return thing


@kernel
def forget(q: Queue, thing: int) -> None:
    """Give the number of a thing back."""
    q.free[q.counts[N_FREE]] = thing
    q.counts[N_FREE] += 1


@kernel
def push(q: Queue, thing: int, time: float) -> None:
    """Put a thing into the heap, or move it to another time."""
    at = int(q.things[thing, PLACE])
    if at < 0:
        at = int(q.counts[N_HEAP])
        q.counts[N_HEAP] += 1
    q.time[thing] = time
    while at > 0:
        above = (at - 1) // 2
        other = q.heap[above]
        if q.time[other] <= time:
            break
        q.heap[at] = other
        q.things[other, PLACE] = at
        at = above
    _sink(q, at, thing)


@kernel
def pop(q: Queue) -> int:
    """Take the first thing out of the heap."""
    first = q.heap[0]
    q.things[first, PLACE] = -1
    q.counts[N_HEAP] -= 1
    if q.counts[N_HEAP] > 0:
        _sink(q, 0, int(q.heap[q.counts[N_HEAP]]))
    return int(first)


@kernel
def _sink(q: Queue, at: int, thing: int) -> None:
    """Put a thing at a place of the heap that is free, or below it."""
    time, size = q.time[thing], q.counts[N_HEAP]
    below = 2 * at + 1
    while below < size:
        right = below + 1
        if right < size and q.time[q.heap[right]] < q.time[q.heap[below]]:
            below = right
        other = q.heap[below]
        if q.time[other] >= time:
            break
        q.heap[at] = other
        q.things[other, PLACE] = at
        at = below
        below = 2 * at + 1
    q.heap[at] = thing
    q.things[thing, PLACE] = at
