"""What waits for what in `events`: accesses of keys, steps of lanes, and `after`.

Accesses of a key are let go in runs: a write alone, reads together; the next run goes when all of
the run before are done. A lane enters a step when those far enough back are done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import kernel
from .program_order import Program

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Pick = Callable[[Any], Any]

# Columns of `rows`: message, first keys, number of keys, next row of the message (-1: none), how
# many things its writing waits for.
MESSAGE, SRC_KEY, DST_KEY, N_SLOTS, NEXT_ROW, ROW_WAITS = range(6)
# Columns of `messages`: first row, lanes (-1: none), steps of these lanes, next member of the lane
# steps, how many things its start waits for.
FIRST_ROW, SRC_LANE, DST_LANE, SRC_STEP, DST_STEP, NEXT_SRC, NEXT_DST, MESSAGE_WAITS = range(8)
# Columns of `keys`: next access, end of the accesses, how many are under way.
AT, END, PENDING = range(3)
# Columns of `steps`: step number, what is left to be done, next step of the lane, first member.
NUMBER, TO_DO, NEXT_STEP, MEMBER = range(4)
# Columns of `lanes`: first step that is not entered, and that is not done.
ENTERING, DOING = range(2)


class Order(NamedTuple):
    """Who waits for how much, and who can go.

    Attributes:
        rows, messages, keys, steps, lanes: Tables; their columns are named above.
        access: Accesses of all keys, each key's in order: message m reads as m, row r writes as ~r.
        after_at, after_message, after_written: For each row, where its entries are; the message
            that each entry lets go, and whether when the row is written, and not only arrived.
        ready: What can happen now: message m as m, writing of row r as messages + r.
        n_ready: How many these are, one entry.
        ready_ns, notice_ns: As in the program; `ready_ns` rises as notices are sent.
        window, is_lockstep: As in the program.
        dst_does: Whether a step of the destination's lane is done when all is written there.
    """

    rows: Array
    messages: Array
    keys: Array
    steps: Array
    lanes: Array
    access: Array
    after_at: Array
    after_message: Array
    after_written: Array
    ready: Array
    n_ready: Array
    ready_ns: Floats
    notice_ns: Floats
    window: int
    is_lockstep: bool
    dst_does: bool


def order_of(p: Program, pick: Pick) -> Order:
    """Return the order of a program, at its beginning."""
    n_rows, n = len(p.step), len(p.size_bytes)
    slots = p.n_slots.astype(np.int64)
    dst_lane = _dst_lane(p)
    has_two = bool((dst_lane >= 0).any())
    waits = np.bincount(p.message, slots, n) + 1 + (dst_lane >= 0)
    after_at = after_message = after_written = np.zeros(0, np.int64)
    if len(p.after):
        later, earlier = p.message[p.after[:, 0]], p.after[:, 1]
        waits += np.bincount(later, minlength=n)
        by_earlier = np.argsort(earlier, kind="stable")
        after_at = np.zeros(n_rows + 1, np.int64)
        np.cumsum(np.bincount(earlier, minlength=n_rows), out=after_at[1:])
        after_message = later[by_earlier].astype(np.int64)
        after_written = p.after_written[by_earlier].astype(np.int64)
    ends = _ends(p, slots)
    counts = np.diff(ends, prepend=0)
    order = Order(
        rows=_table(p.message, p.src_key, p.dst_key, slots, -1, slots + 1),
        messages=_table(p.first_row, p.src_lane, dst_lane, 0, 0, -1, -1, waits),
        keys=_table(ends - counts, ends, 0),
        steps=_table(np.zeros((2 if has_two else 1) * n), 0, -1, -1),
        lanes=np.full((p.n_lanes, 2), -1, np.int32),
        access=np.empty(2 * int(slots.sum()), np.int32),
        after_at=after_at,
        after_message=after_message,
        after_written=after_written,
        ready=np.empty(n + n_rows, np.int32),
        n_ready=np.zeros(1, np.int64),
        ready_ns=_ready_ns(p),
        notice_ns=p.notice_ns,
        window=p.window,
        is_lockstep=p.is_lockstep,
        dst_does=len(p.dst_lane) > 0,
    )
    pick(_order_accesses)(order, p.step, order.keys[:, AT].copy())
    last_row, last_step = np.full(n, -1, np.int32), np.full(p.n_lanes, -1, np.int32)
    pick(_order_steps)(order, p.step, last_row, last_step, np.full(len(order.steps), -1, np.int32))
    return order


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


def _table(first: Array, *others: Any) -> Array:
    """Return columns, of which all but the first may be one number, as a table."""
    table = np.empty((len(first), 1 + len(others)), np.int32)
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


@kernel
def _order_accesses(o: Order, steps: Array, fill: Array) -> None:
    """Put the accesses of each key in order: by step, reads before writes, by row."""
    low = 0
    while low < len(steps):
        high = low
        while high < len(steps) and steps[high] == steps[low]:
            high += 1
        for row in range(low, high):
            for key in range(o.rows[row, SRC_KEY], o.rows[row, SRC_KEY] + o.rows[row, N_SLOTS]):
                o.access[fill[key]] = o.rows[row, MESSAGE]
                fill[key] += 1
        for row in range(low, high):
            for key in range(o.rows[row, DST_KEY], o.rows[row, DST_KEY] + o.rows[row, N_SLOTS]):
                o.access[fill[key]] = ~row
                fill[key] += 1
        low = high


@kernel
def _order_steps(o: Order, steps: Array, last_row: Array, last_step: Array, tail: Array) -> None:
    """Chain the rows of each message, the steps of each lane and the members of each step."""
    used = 0
    for row in range(len(steps)):
        m = int(o.rows[row, MESSAGE])
        n_ends = 2 if o.messages[m, DST_LANE] >= 0 else 1
        if last_row[m] >= 0:
            o.rows[last_row[m], NEXT_ROW] = row
        else:
            for end in range(n_ends):
                used = _join(o, 2 * m + end, int(steps[row]), used, last_step, tail)
            if not o.is_lockstep:
                o.steps[o.messages[m, SRC_STEP], TO_DO] += 1
        last_row[m] = row
        if o.is_lockstep:
            o.steps[o.messages[m, SRC_STEP], TO_DO] += 1
        if n_ends == 2 and o.dst_does:
            o.steps[o.messages[m, DST_STEP], TO_DO] += 1


@kernel
def _join(o: Order, member: int, number: int, used: int, last_step: Array, tail: Array) -> int:
    """Add a message (2 m at its source, 2 m + 1 at its destination) to a lane's step.

    Returns how many steps there are now.
    """
    m, end = member // 2, member % 2
    lane = o.messages[m, SRC_LANE + end]
    step = int(last_step[lane])
    if step < 0 or o.steps[step, NUMBER] != number:
        if step < 0:
            o.lanes[lane, ENTERING] = used
            o.lanes[lane, DOING] = used
        else:
            o.steps[step, NEXT_STEP] = used
        step = used
        o.steps[step, NUMBER] = number
        last_step[lane] = step
        used += 1
    o.messages[m, SRC_STEP + end] = step
    before = int(tail[step])
    if before < 0:
        o.steps[step, MEMBER] = member
    else:
        o.messages[before // 2, NEXT_SRC + before % 2] = member
    tail[step] = member
    return used


@kernel
def open_all(o: Order) -> None:
    """Let go what waits for nothing."""
    for key in range(len(o.keys)):
        _release(o, key)
    for lane in range(len(o.lanes)):
        _advance(o, lane, int(o.lanes[lane, DOING]), 0.0)


@kernel
def has_read(o: Order, m: int) -> None:
    """Note that a message has left, and its slots are read."""
    row = int(o.messages[m, FIRST_ROW])
    while row >= 0:
        _did_access(o, int(o.rows[row, SRC_KEY]), int(o.rows[row, N_SLOTS]))
        row = int(o.rows[row, NEXT_ROW])


@kernel
def has_arrived(o: Order, m: int, now: float) -> None:
    """Note that the last byte of a message is there."""
    row = int(o.messages[m, FIRST_ROW])
    while row >= 0:
        _ready_row(o, row)
        _let_go(o, row, 0)
        row = int(o.rows[row, NEXT_ROW])
    if not o.is_lockstep:
        _did(o, int(o.messages[m, SRC_LANE]), int(o.messages[m, SRC_STEP]), now)


@kernel
def has_written(o: Order, row: int, now: float) -> None:
    """Note that a row is written."""
    _did_access(o, int(o.rows[row, DST_KEY]), int(o.rows[row, N_SLOTS]))
    _let_go(o, row, 1)
    m = int(o.rows[row, MESSAGE])
    if o.is_lockstep:
        _did(o, int(o.messages[m, SRC_LANE]), int(o.messages[m, SRC_STEP]), now)
    elif o.dst_does:
        _did(o, int(o.messages[m, DST_LANE]), int(o.messages[m, DST_STEP]), now)


@kernel
def _let_go(o: Order, row: int, written: int) -> None:
    """Let go the messages that wait for a row by `after`."""
    if len(o.after_at) > 0:
        for k in range(o.after_at[row], o.after_at[row + 1]):
            if o.after_written[k] == written:
                _ready_message(o, int(o.after_message[k]))


@kernel
def _ready_message(o: Order, m: int) -> None:
    o.messages[m, MESSAGE_WAITS] -= 1
    if o.messages[m, MESSAGE_WAITS] == 0:
        o.ready[o.n_ready[0]] = m
        o.n_ready[0] += 1


@kernel
def _ready_row(o: Order, row: int) -> None:
    o.rows[row, ROW_WAITS] -= 1
    if o.rows[row, ROW_WAITS] == 0:
        o.ready[o.n_ready[0]] = len(o.messages) + row
        o.n_ready[0] += 1


@kernel
def _did_access(o: Order, key: int, n_slots: int) -> None:
    """Note that one access of some keys is done."""
    for k in range(key, key + n_slots):
        o.keys[k, PENDING] -= 1
        if o.keys[k, PENDING] == 0:
            _release(o, k)


@kernel
def _release(o: Order, key: int) -> None:
    """Let go the next accesses of a key: one write, or all reads up to the next write."""
    at, end = o.keys[key, AT], o.keys[key, END]
    if at == end:
        return
    stop = at + 1
    if o.access[at] >= 0:
        while stop < end and o.access[stop] >= 0:
            stop += 1
    o.keys[key, AT] = stop
    o.keys[key, PENDING] = stop - at
    for k in range(at, stop):
        if o.access[k] >= 0:
            _ready_message(o, int(o.access[k]))
        else:
            _ready_row(o, int(~o.access[k]))


@kernel
def _did(o: Order, lane: int, step: int, now: float) -> None:
    """Note that one thing of a lane's step is done."""
    o.steps[step, TO_DO] -= 1
    if o.steps[step, TO_DO] == 0 and o.lanes[lane, DOING] == step:
        _advance(o, lane, step, now)


@kernel
def _advance(o: Order, lane: int, step: int, now: float) -> None:
    """Let a lane go on from a step to the first where something is to be done."""
    while step >= 0 and o.steps[step, TO_DO] == 0:
        step = int(o.steps[step, NEXT_STEP])
    o.lanes[lane, DOING] = step
    _enter(o, lane, now)


@kernel
def _enter(o: Order, lane: int, now: float) -> None:
    """Let a lane enter all steps that it may."""
    doing = o.lanes[lane, DOING]
    while o.lanes[lane, ENTERING] >= 0:
        step = int(o.lanes[lane, ENTERING])
        if doing >= 0 and o.steps[doing, NUMBER] <= o.steps[step, NUMBER] - o.window:
            return
        o.lanes[lane, ENTERING] = o.steps[step, NEXT_STEP]
        member = int(o.steps[step, MEMBER])
        while member >= 0:
            m, end = member // 2, member % 2
            if len(o.notice_ns) > 0 and (end == 1 or o.is_lockstep):
                o.ready_ns[m] = max(o.ready_ns[m], now + o.notice_ns[m])
            _ready_message(o, m)
            member = int(o.messages[m, NEXT_SRC + end])
