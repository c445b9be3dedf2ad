"""The step model's second pass: event by event, with messages that share links.

It needs no order of the rows to begin with, and it is exact where messages meet: whenever a
message's bytes begin or end to flow, the rates of those that share links with it, directly or
through others, are worked out anew by progressive filling.

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

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

# Links whose fair shares are this close are full at the same time.
EQUAL = 1 + 1e-12
# Events this close together, relative to the time, are one moment: sums that should be equal.
MOMENT = 1e-14

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
# Columns of `rates`: capacity, what is left of it.
RATE, ROOM = range(2)
# Columns of `hops`: next and previous hop on the link.
AFTER, BEFORE = range(2)
# Columns of `routes`: latency, rate of the slowest link.
LATENCY, SLOWEST = range(2)
# Rows of `lists`, which are stacks and queues of numbers, and entries of `size`, their lengths.
N_HEAP, N_STACK, N_TOUCHED, N_SEARCH = range(4)
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
        size: Lengths of heap, stack and touched; number of the last search.
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


Pick = Callable[[Any], Any]


def play(program: Program, pick: Pick, start: Floats, arrived: Floats, written: Floats) -> bool:
    """Fill in the times of all messages and rows; return whether all of them happened.

    Args:
        program: What has to be done.
        pick: Returns a kernel as it is to be run.
        start, arrived, written: As in `program_order.walk`.
    """
    state = _state(program, pick, start, arrived, written)
    tail = np.full(len(state.steps), -1, np.int32)
    last_row = np.full(len(state.messages), -1, np.int32)
    last_step = np.full(len(state.lanes), -1, np.int32)
    pick(_order_accesses)(state, state.keys[:, AT].copy())
    pick(_order_steps)(state, last_row, last_step, tail)
    return bool(pick(_play)(state) == len(program.step))


def _state(p: Program, pick: Pick, start: Floats, arrived: Floats, written: Floats) -> State:
    n_rows, n, n_links = len(p.step), len(p.size_bytes), len(p.link_rate)
    slots = p.n_slots.astype(np.int64)
    rows = _table(np.int32, p.step, p.message, p.src_key, p.dst_key, slots, -1, slots + 1)
    has_two = len(p.dst_lane) > 0
    waits = np.bincount(p.message, slots, n) + (2 if has_two else 1)
    after_at, after_pair = np.zeros(0, np.int64), np.zeros(0, np.int64)
    if len(p.after):
        waits += np.bincount(p.message[p.after[:, 0]], minlength=n)
        after_pair = np.argsort(p.after[:, 1], kind="stable")
        after_at = np.zeros(n_rows + 1, np.int64)
        np.cumsum(np.bincount(p.after[:, 1], minlength=n_rows), out=after_at[1:])
    dst_lane = p.dst_lane if has_two else np.full(n, -1)
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
        rates=_table(np.float64, p.link_rate, 0),
        hops=np.empty((n * most_hops, 2), np.int32),
        routes=_table(np.float64, p.latency_ns, p.rate),
        access=np.empty(2 * int(slots.sum()), np.int32),
        path_starts=p.path_starts,
        path_links=p.path_links,
        after=p.after,
        after_written=p.after_written,
        after_at=after_at,
        after_pair=after_pair,
        ready_ns=p.ready_ns,
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
        size=np.zeros(4, np.int64),
        most_hops=most_hops,
        window=p.window,
        is_lockstep=p.is_lockstep,
    )


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


@kernel
def _order_accesses(s: State, fill: Array) -> None:
    """Put the accesses of each key in order: by step, reads before writes, by row."""
    low = 0
    while low < len(s.rows):
        high = low
        while high < len(s.rows) and s.rows[high, STEP] == s.rows[low, STEP]:
            high += 1
        for row in range(low, high):
            for key in range(s.rows[row, SRC_KEY], s.rows[row, SRC_KEY] + s.rows[row, N_SLOTS]):
                s.access[fill[key]] = s.rows[row, MESSAGE]
                fill[key] += 1
        for row in range(low, high):
            for key in range(s.rows[row, DST_KEY], s.rows[row, DST_KEY] + s.rows[row, N_SLOTS]):
                s.access[fill[key]] = ~row
                fill[key] += 1
        low = high


@kernel
def _order_steps(s: State, last_row: Array, last_step: Array, tail: Array) -> None:
    """Chain the rows of each message, the steps of each lane and the members of each step."""
    used = 0
    for row in range(len(s.rows)):
        m = s.rows[row, MESSAGE]
        has_two = s.messages[m, DST_LANE] >= 0
        if last_row[m] >= 0:
            s.rows[last_row[m], NEXT_ROW] = row
        else:
            used = _join(s, 2 * m, s.rows[row, STEP], used, last_step, tail)
            if has_two:
                used = _join(s, 2 * m + 1, s.rows[row, STEP], used, last_step, tail)
            if not s.is_lockstep:
                s.steps[s.messages[m, SRC_STEP], TO_DO] += 1
        last_row[m] = row
        if s.is_lockstep:
            s.steps[s.messages[m, SRC_STEP], TO_DO] += 1
        if has_two:
            s.steps[s.messages[m, DST_STEP], TO_DO] += 1


@kernel
def _join(s: State, member: int, number: int, used: int, last_step: Array, tail: Array) -> int:
    """Add a message (2 m at its source, 2 m + 1 at its destination) to a lane's step.

    Returns how many steps there are now.
    """
    m, end = member // 2, member % 2
    lane = s.messages[m, SRC_LANE + end]
    step = last_step[lane]
    if step < 0 or s.steps[step, NUMBER] != number:
        if step < 0:
            s.lanes[lane, ENTERING] = used
            s.lanes[lane, DOING] = used
        else:
            s.steps[step, NEXT_STEP] = used
        step = used
        s.steps[step, NUMBER] = number
        last_step[lane] = step
        used += 1
    s.messages[m, SRC_STEP + end] = step
    before = tail[step]
    if before < 0:
        s.steps[step, MEMBER] = member
    else:
        s.messages[before // 2, NEXT_SRC + before % 2] = member
    tail[step] = member
    return used


@kernel
def _play(s: State) -> int:
    """Let everything happen; return how many rows were written."""
    n, done, now = len(s.messages), 0, 0.0
    for key in range(len(s.keys)):
        _release(s, key)
    for lane in range(len(s.lanes)):
        _enter(s, lane)
    while True:
        if s.size[N_STACK] > 0:
            s.size[N_STACK] -= 1
            item = s.stack[s.size[N_STACK]]
            if item >= n:
                time = _write_at(s, item - n, now)
                if time > now:
                    _push(s, item, time)
                    continue
                _wrote(s, item - n, now)
                done += 1
            elif len(s.ready_ns) > 0 and s.ready_ns[item] > now:
                s.messages[item, WHAT] = START
                _push(s, item, s.ready_ns[item])
            else:
                _begin(s, item, now)
        elif s.size[N_HEAP] > 0 and s.time[s.heap[0]] <= now + now * MOMENT:
            item = _pop(s)
            if item >= n:
                _wrote(s, item - n, now)
                done += 1
            elif s.messages[item, WHAT] == ARRIVE:
                _arrive(s, item, now)
            elif s.messages[item, WHAT] == BEGIN:
                _flow(s, item, now)
            else:  # it could not start before its rank was there
                s.stack[s.size[N_STACK]] = item
                s.size[N_STACK] += 1
        elif s.size[N_TOUCHED] > 0:
            _settle(s, now)
        elif s.size[N_HEAP] > 0:
            now = s.time[s.heap[0]]
        else:
            return done


@kernel
def _write_at(s: State, row: int, now: float) -> float:
    """Return when a row that waits for nothing more is written."""
    time = now
    if len(s.late_ns) > 0:
        time = max(time, s.late_ns[row])
    if len(s.write_ns) > 0:
        time += s.write_ns[row]
    return time


@kernel
def _begin(s: State, m: int, now: float) -> None:
    """Start a message: its reads are done, and its latency begins."""
    s.start[m] = now
    row = s.messages[m, FIRST_ROW]
    while row >= 0:
        _did_access(s, s.rows[row, SRC_KEY], s.rows[row, N_SLOTS])
        row = s.rows[row, NEXT_ROW]
    path = s.messages[m, PATH]
    begin = now + s.routes[path, LATENCY]
    if s.bytes[m, SIZE] > 0 and s.path_starts[path + 1] > s.path_starts[path]:
        s.messages[m, WHAT] = BEGIN
        _push(s, m, begin)
    else:
        s.messages[m, WHAT] = ARRIVE
        _push(s, m, begin + s.bytes[m, SIZE] / s.routes[path, SLOWEST])


@kernel
def _flow(s: State, m: int, now: float) -> None:
    """Let a message's bytes flow from now on."""
    s.messages[m, WHAT] = ARRIVE
    s.bytes[m, SINCE] = now
    path = s.messages[m, PATH]
    hop = m * s.most_hops
    for k in range(s.path_starts[path], s.path_starts[path + 1]):
        link = s.path_links[k]
        first = s.links[link, ON_LINK]
        s.hops[hop, AFTER] = first
        s.hops[hop, BEFORE] = -1
        if first >= 0:
            s.hops[first, BEFORE] = hop
        s.links[link, ON_LINK] = hop
        s.links[link, COUNT] += 1
        _touch(s, link)
        hop += 1


@kernel
def _arrive(s: State, m: int, now: float) -> None:
    """Note that the last byte of a message is there, and take it off its links."""
    s.arrived[m] = now
    if s.bytes[m, SPEED] > 0:
        path = s.messages[m, PATH]
        hop = m * s.most_hops
        for k in range(s.path_starts[path], s.path_starts[path + 1]):
            link = s.path_links[k]
            before, after = s.hops[hop, BEFORE], s.hops[hop, AFTER]
            if before >= 0:
                s.hops[before, AFTER] = after
            else:
                s.links[link, ON_LINK] = after
            if after >= 0:
                s.hops[after, BEFORE] = before
            s.links[link, COUNT] -= 1
            _touch(s, link)
            hop += 1
    row = s.messages[m, FIRST_ROW]
    while row >= 0:
        _ready_row(s, row)
        _let_go(s, row, False)
        row = s.rows[row, NEXT_ROW]
    if not s.is_lockstep:
        _did(s, s.messages[m, SRC_LANE], s.messages[m, SRC_STEP])


@kernel
def _wrote(s: State, row: int, now: float) -> None:
    """Note that a row is written."""
    s.written[row] = now
    _did_access(s, s.rows[row, DST_KEY], s.rows[row, N_SLOTS])
    _let_go(s, row, True)
    m = s.rows[row, MESSAGE]
    if s.is_lockstep:
        _did(s, s.messages[m, SRC_LANE], s.messages[m, SRC_STEP])
    if s.messages[m, DST_LANE] >= 0:
        _did(s, s.messages[m, DST_LANE], s.messages[m, DST_STEP])


@kernel
def _let_go(s: State, row: int, written: bool) -> None:
    """Let go the messages that wait for a row by `after`."""
    if len(s.after_at) > 0:
        for k in range(s.after_at[row], s.after_at[row + 1]):
            pair = s.after_pair[k]
            if s.after_written[pair] == written:
                _ready_message(s, s.rows[s.after[pair, 0], MESSAGE])


@kernel
def _ready_message(s: State, m: int) -> None:
    s.messages[m, MESSAGE_WAITS] -= 1
    if s.messages[m, MESSAGE_WAITS] == 0:
        s.stack[s.size[N_STACK]] = m
        s.size[N_STACK] += 1


@kernel
def _ready_row(s: State, row: int) -> None:
    s.rows[row, ROW_WAITS] -= 1
    if s.rows[row, ROW_WAITS] == 0:
        s.stack[s.size[N_STACK]] = len(s.messages) + row
        s.size[N_STACK] += 1


@kernel
def _did_access(s: State, key: int, n_slots: int) -> None:
    """Note that one access of some keys is done."""
    for k in range(key, key + n_slots):
        s.keys[k, PENDING] -= 1
        if s.keys[k, PENDING] == 0:
            _release(s, k)


@kernel
def _release(s: State, key: int) -> None:
    """Let go the next accesses of a key: one write, or all reads up to the next write."""
    at, end = s.keys[key, AT], s.keys[key, END]
    if at == end:
        return
    stop = at + 1
    if s.access[at] >= 0:
        while stop < end and s.access[stop] >= 0:
            stop += 1
    s.keys[key, AT] = stop
    s.keys[key, PENDING] = stop - at
    for k in range(at, stop):
        if s.access[k] >= 0:
            _ready_message(s, s.access[k])
        else:
            _ready_row(s, ~s.access[k])


@kernel
def _did(s: State, lane: int, step: int) -> None:
    """Note that one thing of a lane's step is done."""
    s.steps[step, TO_DO] -= 1
    if s.steps[step, TO_DO] == 0 and s.lanes[lane, DOING] == step:
        while step >= 0 and s.steps[step, TO_DO] == 0:
            step = s.steps[step, NEXT_STEP]
        s.lanes[lane, DOING] = step
        _enter(s, lane)


@kernel
def _enter(s: State, lane: int) -> None:
    """Let a lane enter all steps that it may."""
    doing = s.lanes[lane, DOING]
    while s.lanes[lane, ENTERING] >= 0:
        step = s.lanes[lane, ENTERING]
        if doing >= 0 and s.steps[doing, NUMBER] <= s.steps[step, NUMBER] - s.window:
            return
        s.lanes[lane, ENTERING] = s.steps[step, NEXT_STEP]
        member = s.steps[step, MEMBER]
        while member >= 0:
            _ready_message(s, member // 2)
            member = s.messages[member // 2, NEXT_SRC + member % 2]


@kernel
def _touch(s: State, link: int) -> None:
    if s.links[link, TOUCHED] == 0:
        s.links[link, TOUCHED] = 1
        s.touched[s.size[N_TOUCHED]] = link
        s.size[N_TOUCHED] += 1


@kernel
def _settle(s: State, now: float) -> None:
    """Share the links whose flows changed, and those that a change of theirs can reach."""
    s.size[N_SEARCH] += 1
    search = s.size[N_SEARCH]
    for k in range(s.size[N_TOUCHED]):
        link = s.touched[k]
        s.links[link, TOUCHED] = 0
        if s.links[link, SEEN_LINK] != search and s.links[link, COUNT] > 0:
            _fill(s, _reach(s, link, search), now)
    s.size[N_TOUCHED] = 0


@kernel
def _reach(s: State, link: int, search: int) -> int:
    """Find the links that a change of one can reach: by their flows, the flows of these, ...

    Returns how many there are, itself among them.
    """
    s.links[link, SEEN_LINK] = search
    s.reached[0] = link
    n_reached, at = 1, 0
    while at < n_reached:
        hop = s.links[s.reached[at], ON_LINK]
        at += 1
        while hop >= 0:
            m = hop // s.most_hops
            if s.messages[m, SEEN] != search:
                s.messages[m, SEEN] = search
                path = s.messages[m, PATH]
                for k in range(s.path_starts[path], s.path_starts[path + 1]):
                    other = s.path_links[k]
                    if s.links[other, SEEN_LINK] != search:
                        s.links[other, SEEN_LINK] = search
                        s.reached[n_reached] = other
                        n_reached += 1
            hop = s.hops[hop, AFTER]
    return n_reached


@kernel
def _fill(s: State, n_links: int, now: float) -> None:
    """Give the flows on the links reached their max-min fair rates, by progressive filling.

    All rates grow together; when a link is full, its flows keep what they have and the others grow
    on.

    Source: D. Bertsekas and R. Gallager, "Data Networks", 2nd edition, section 6.5.2.
    """
    for k in range(n_links):
        link = s.reached[k]
        s.rates[link, ROOM] = s.rates[link, RATE]
        s.links[link, GROWING] = s.links[link, COUNT]
    while n_links > 0:
        level, kept = np.inf, 0
        for k in range(n_links):
            link = s.reached[k]
            if s.links[link, GROWING] > 0:
                s.reached[kept] = link
                kept += 1
                level = min(level, s.rates[link, ROOM] / s.links[link, GROWING])
        n_links = kept
        n_full = 0
        for k in range(n_links):
            link = s.reached[k]
            if s.rates[link, ROOM] / s.links[link, GROWING] <= level * EQUAL:
                s.full[n_full] = link
                n_full += 1
        for k in range(n_full):
            hop = s.links[s.full[k], ON_LINK]
            while hop >= 0:
                m = hop // s.most_hops
                if s.messages[m, SEEN] > 0:
                    s.messages[m, SEEN] = -s.messages[m, SEEN]
                    _set_speed(s, m, level, now)
                    path = s.messages[m, PATH]
                    for j in range(s.path_starts[path], s.path_starts[path + 1]):
                        s.rates[s.path_links[j], ROOM] -= level
                        s.links[s.path_links[j], GROWING] -= 1
                hop = s.hops[hop, AFTER]


@kernel
def _set_speed(s: State, m: int, speed: float, now: float) -> None:
    if speed != s.bytes[m, SPEED]:
        moved = (now - s.bytes[m, SINCE]) * s.bytes[m, SPEED]
        s.bytes[m, LEFT] = max(s.bytes[m, LEFT] - moved, 0.0)
        s.bytes[m, SINCE] = now
        s.bytes[m, SPEED] = speed
        _push(s, m, now + s.bytes[m, LEFT] / speed)


@kernel
def _push(s: State, item: int, time: float) -> None:
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
def _pop(s: State) -> int:
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
