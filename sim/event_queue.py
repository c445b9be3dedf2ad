"""The queue of `events`: items by time, in a heap that knows where each of them is."""

from __future__ import annotations

from .compiled import kernel
from .event_state import N_HEAP, State


@kernel
def push(s: State, item: int, time: float) -> None:
    """Put an item into the queue, or move it to another time."""
    at = s.place[item]
    if at < 0:
        at = s.size[N_HEAP]
        s.size[N_HEAP] += 1
    s.time[item] = time
    while at > 0:
        above = (at - 1) // 2
        other = s.heap[above]
        if s.time[other] <= time:
            break
        s.heap[at] = other
        s.place[other] = at
        at = above
    _sink(s, at, item)


@kernel
def pop(s: State) -> int:
    """Take the first item out of the queue."""
    item = s.heap[0]
    s.place[item] = -1
    s.size[N_HEAP] -= 1
    if s.size[N_HEAP] > 0:
        _sink(s, 0, s.heap[s.size[N_HEAP]])
    return int(item)


@kernel
def _sink(s: State, at: int, item: int) -> None:
    """Put an item at a place of the heap that is free, or below it."""
    time, size = s.time[item], s.size[N_HEAP]
    below = 2 * at + 1
    while below < size:
        right = below + 1
        if right < size and s.time[s.heap[right]] < s.time[s.heap[below]]:
            below = right
        other = s.heap[below]
        if s.time[other] >= time:
            break
        s.heap[at] = other
        s.place[other] = at
        at = below
        below = 2 * at + 1
    s.heap[at] = item
    s.place[item] = at
