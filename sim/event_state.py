"""What a run of `events` needs and changes: tables, one row a thing, their columns named here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .program_order import Program

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

# Columns of `rows`: step, message, first keys, number of keys, next row of the message (-1: none),
# how many things its writing waits for.
STEP, MESSAGE, SRC_KEY, DST_KEY, N_SLOTS, NEXT_ROW, ROW_WAITS = range(7)
# Columns of `messages`: first row, path, lanes (-1: none), steps of these lanes, next member of the
# lane steps, how many things its start waits for, what it waits for in the queue, the last search
# that saw it (negative once it has its rate).
FIRST_ROW, PATH, SRC_LANE, DST_LANE, SRC_STEP, DST_STEP, NEXT_SRC, NEXT_DST = range(8)
MESSAGE_WAITS, WHAT, SEEN = range(8, 11)
# Columns of `bytes`: size, what is left, rate, since when.
SIZE, LEFT, SPEED, SINCE = range(4)
# Columns of `keys`: next access, end of the accesses, how many are under way.
AT, END, PENDING = range(3)
# Columns of `steps`: step number, what is left to be done, next step of the lane, first member.
NUMBER, TO_DO, NEXT_STEP, MEMBER = range(4)
# Columns of `lanes`: first step that is not entered, and that is not done.
ENTERING, DOING = range(2)
# Columns of `links`: first hop on it, messages on it, whether that changed, the last search that
# saw it, messages whose rates grow.
ON_LINK, COUNT, TOUCHED, SEEN_LINK, GROWING = range(5)
# Columns of `rates`: capacity, what is left of it, bytes saved up, since when it is idle.
RATE, ROOM, SAVED, IDLE_SINCE = range(4)
# Columns of `hops`: next and previous hop on the link.
AFTER, BEFORE = range(2)
# Columns of `routes`: latency, rate of the slowest link.
LATENCY, SLOWEST = range(2)
# Rows of `lists`, which are stacks and queues of numbers, and entries of `size`, their lengths.
N_HEAP, N_STACK, N_TOUCHED, N_SEARCH, N_CHANGES = range(5)
# What a message in the queue waits for.
START, BEGIN, ARRIVE = range(3)


class State(NamedTuple):
    """Everything that a run needs and changes; the columns of the tables are named above.

    Attributes:
        rows, messages, bytes, keys, steps, lanes, links, rates, hops, routes: Tables.
        access: Accesses of all keys, each key's in order: message m reads as m, row r writes as ~r.
        path_starts, path_links: Links of each path.
        after, after_written, after_at, after_pair: `after` of the program, and its pairs by their
            earlier row.
        ready_ns, late_ns, write_ns: As in the program.
        start, arrived, written: What is found out.
        time, heap, place: The queue: time of each item, items in heap order, and where each item
            is, -1 if nowhere. Items: message m, writing of row r as messages + r.
        stack: What can happen now, as items.
        touched, reached, flows, full: Room for lists of links and messages.
        size: Lengths of heap, stack and touched; number of the last search; changes of speeds.
        burst_bytes, extra_ns, notice_ns: As in the program.
        dst_does: Whether a step of the destination's lane is done when all is written there.
        change_of, changes: Room to note which message changed its speed, when and to what; no
            room where nobody asks, (room,) and (room, 2).
    """

    rows: Array
    messages: Array
    bytes: Floats
    keys: Array
    steps: Array
    lanes: Array
    links: Array
    rates: Floats
    hops: Array
    routes: Floats
    access: Array
    path_starts: Array
    path_links: Array
    after: Array
    after_written: Array
    after_at: Array
    after_pair: Array
    ready_ns: Floats
    late_ns: Floats
    write_ns: Floats
    start: Floats
    arrived: Floats
    written: Floats
    time: Floats
    heap: Array
    place: Array
    stack: Array
    touched: Array
    reached: Array
    flows: Array
    full: Array
    size: Array
    most_hops: int
    window: int
    is_lockstep: bool
    burst_bytes: float
    extra_ns: Floats
    notice_ns: Floats
    dst_does: bool
    change_of: Array
    changes: Floats


Pick = Callable[[Any], Any]


def state_of(
    p: Program, pick: Pick, start: Floats, arrived: Floats, written: Floats, room: int = 0
) -> State:
    n_rows, n, n_links = len(p.step), len(p.size_bytes), len(p.link_rate)
    slots = p.n_slots.astype(np.int64)
    rows = _table(np.int32, p.step, p.message, p.src_key, p.dst_key, slots, -1, slots + 1)
    dst_lane = _dst_lane(p)
    has_two = bool((dst_lane >= 0).any())
    waits = np.bincount(p.message, slots, n) + 1 + (dst_lane >= 0)
    after_at, after_pair = np.zeros(0, np.int64), np.zeros(0, np.int64)
    if len(p.after):
        waits += np.bincount(p.message[p.after[:, 0]], minlength=n)
        after_pair = np.argsort(p.after[:, 1], kind="stable")
        after_at = np.zeros(n_rows + 1, np.int64)
        np.cumsum(np.bincount(p.after[:, 1], minlength=n_rows), out=after_at[1:])
    ends = _ends(p, slots)
    counts = np.diff(ends, prepend=0)
    most_hops = int(np.diff(p.path_starts).max(initial=0))
    items = n + (n_rows if len(p.write_ns) or len(p.late_ns) else 0)
    return State(
        rows=rows,
        messages=_table(
            np.int32, p.first_row, p.pair, p.src_lane, dst_lane, 0, 0, -1, -1, waits, 0, 0
        ),
        bytes=_table(np.float64, p.size_bytes, p.size_bytes, 0, 0),
        keys=_table(np.int32, ends - counts, ends, 0),
        steps=_table(np.int32, np.zeros((2 if has_two else 1) * n), 0, -1, -1),
        lanes=np.full((p.n_lanes, 2), -1, np.int32),
        links=_table(np.int32, np.full(n_links, -1), 0, 0, 0, 0),
        rates=_table(np.float64, p.link_rate, 0, p.burst_bytes, 0),
        hops=np.empty((n * most_hops, 2), np.int32),
        routes=_table(np.float64, p.latency_ns, p.rate),
        access=np.empty(2 * int(slots.sum()), np.int32),
        path_starts=p.path_starts,
        path_links=p.path_links,
        after=p.after,
        after_written=p.after_written,
        after_at=after_at,
        after_pair=after_pair,
        ready_ns=_ready_ns(p),
        late_ns=p.late_ns,
        write_ns=p.write_ns,
        start=start,
        arrived=arrived,
        written=written,
        time=np.zeros(items),
        heap=np.empty(items, np.int32),
        place=np.full(items, -1, np.int32),
        stack=np.empty(n + n_rows, np.int32),
        touched=np.empty(n_links, np.int32),
        reached=np.empty(n_links, np.int32),
        flows=np.empty(n, np.int32),
        full=np.empty(n_links, np.int32),
        size=np.zeros(5, np.int64),
        most_hops=most_hops,
        window=p.window,
        is_lockstep=p.is_lockstep,
        burst_bytes=p.burst_bytes,
        extra_ns=p.extra_ns,
        notice_ns=p.notice_ns,
        dst_does=len(p.dst_lane) > 0,
        change_of=np.empty(room, np.int32),
        changes=np.empty((room, 2)),
    )


def _dst_lane(p: Program) -> Array:
    """Return the lane at the destination that each message waits for, -1 for none."""
    if len(p.dst_lane):
        return p.dst_lane
    if len(p.notice_lane) and not p.is_lockstep:
        return np.where(p.notice_ns >= 0, p.notice_lane, -1)
    return np.full(len(p.size_bytes), -1)


def _ready_ns(p: Program) -> Floats:
    """Return the earliest start of each message, room to add notices included."""
    if not len(p.notice_lane):
        return p.ready_ns
    return p.ready_ns.copy() if len(p.ready_ns) else np.zeros(len(p.size_bytes))


def _table(dtype: Any, first: Array, *others: Any) -> Array:
    """Return columns, of which all but the first may be one number, as a table."""
    table = np.empty((len(first), 1 + len(others)), dtype)
    for k, column in enumerate((first, *others)):
        table[:, k] = column
    return table


def _ends(p: Program, slots: Array) -> Array:
    """Return where the accesses of each key end, if they lie one key's after the other's."""
    change = np.zeros(p.n_keys + 1, np.int64)
    for key in (p.src_key, p.dst_key):
        change += np.bincount(key, minlength=p.n_keys + 1)
        change -= np.bincount(key + slots, minlength=p.n_keys + 1)
    return np.cumsum(np.cumsum(change[:-1]))
