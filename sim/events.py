"""The step model's second pass: event by event, with messages that share links.

It needs no order of the rows to begin with, and it is exact where messages meet: whenever a
message's bytes begin or end to flow, the rates of those that share links with it, directly or
through others, are worked out anew by progressive filling.

Accesses of a key are let go in runs: a write alone, reads together; the next run goes when all of
the run before are done. A lane enters a step when those far enough back are done.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import kernel
from .event_queue import pop, push
from .event_state import (
    AFTER,
    ARRIVE,
    AT,
    BEFORE,
    BEGIN,
    COUNT,
    DOING,
    DST_KEY,
    DST_LANE,
    DST_STEP,
    END,
    ENTERING,
    FIRST_ROW,
    IDLE_SINCE,
    LATENCY,
    LEFT,
    MEMBER,
    MESSAGE,
    MESSAGE_WAITS,
    N_CHANGES,
    N_HEAP,
    N_SLOTS,
    N_STACK,
    N_TOUCHED,
    NEXT_ROW,
    NEXT_SRC,
    NEXT_STEP,
    NUMBER,
    ON_LINK,
    PATH,
    PENDING,
    RATE,
    ROW_WAITS,
    SAVED,
    SINCE,
    SIZE,
    SLOWEST,
    SPEED,
    SRC_KEY,
    SRC_LANE,
    SRC_STEP,
    START,
    STEP,
    TO_DO,
    WHAT,
    Array,
    Pick,
    State,
    state_of,
)
from .program_order import Program
from .sharing import settle, touch

Floats = npt.NDArray[np.float64]

# Events this close together, relative to the time, are one moment: sums that should be equal.
MOMENT = 1e-14


class Changes(NamedTuple):
    """When messages changed their speeds.

    Attributes:
        message: Of each change, in order of time, (changes,).
        time_ns: When, (changes,).
        rate: To how many bytes a nanosecond, (changes,).
    """

    message: Array
    time_ns: Floats
    rate: Floats


def play(program: Program, pick: Pick, start: Floats, arrived: Floats, written: Floats) -> bool:
    """Fill in the times of all messages and rows; return whether all of them happened.

    Args:
        program: What has to be done.
        pick: Returns a kernel as it is to be run.
        start, arrived, written: As in `program_order.walk`.
    """
    return _run(state_of(program, pick, start, arrived, written), pick) == len(program.step)


def changes(program: Program, pick: Pick) -> Changes:
    """Return when messages changed their speeds; `play` returned True for the same program."""
    room = 4 * len(program.size_bytes)
    while True:
        n = len(program.size_bytes)
        state = state_of(program, pick, np.zeros(n), np.zeros(n), np.zeros(len(program.step)), room)
        _run(state, pick)
        found = int(state.size[N_CHANGES])
        if found <= room:
            times = state.changes[:found]
            return Changes(state.change_of[:found], times[:, 0], times[:, 1])
        room = found


def _run(state: State, pick: Pick) -> int:
    """Let everything happen; return how many rows were written."""
    tail = np.full(len(state.steps), -1, np.int32)
    last_row = np.full(len(state.messages), -1, np.int32)
    last_step = np.full(len(state.lanes), -1, np.int32)
    pick(_order_accesses)(state, state.keys[:, AT].copy())
    pick(_order_steps)(state, last_row, last_step, tail)
    return int(pick(_play)(state))


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
        if has_two and s.dst_does:
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
        _advance(s, lane, s.lanes[lane, DOING], now)
    while True:
        if s.size[N_STACK] > 0:
            s.size[N_STACK] -= 1
            item = s.stack[s.size[N_STACK]]
            if item >= n:
                time = _write_at(s, item - n, now)
                if time > now:
                    push(s, item, time)
                    continue
                _wrote(s, item - n, now)
                done += 1
            elif len(s.ready_ns) > 0 and s.ready_ns[item] > now:
                s.messages[item, WHAT] = START
                push(s, item, s.ready_ns[item])
            else:
                _begin(s, item, now)
        elif s.size[N_HEAP] > 0 and s.time[s.heap[0]] <= now + now * MOMENT:
            item = pop(s)
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
            settle(s, now)
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
    if len(s.extra_ns) > 0:
        begin += s.extra_ns[m]
    if s.bytes[m, SIZE] > 0 and s.path_starts[path + 1] > s.path_starts[path]:
        s.messages[m, WHAT] = BEGIN
        push(s, m, begin)
    else:
        s.messages[m, WHAT] = ARRIVE
        push(s, m, begin + s.bytes[m, SIZE] / s.routes[path, SLOWEST])


@kernel
def _flow(s: State, m: int, now: float) -> None:
    """Let a message's bytes flow from now on."""
    s.messages[m, WHAT] = ARRIVE
    s.bytes[m, SINCE] = now
    path = s.messages[m, PATH]
    if s.burst_bytes > 0:
        s.bytes[m, LEFT] -= _take_saved(s, path, s.bytes[m, SIZE], now)
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
        touch(s, link)
        hop += 1


@kernel
def _take_saved(s: State, path: int, size: float, now: float) -> float:
    """Return how many bytes of a message pass at once, since its links saved them up while idle."""
    for k in range(s.path_starts[path], s.path_starts[path + 1]):
        link = s.path_links[k]
        if s.links[link, COUNT] == 0:
            more = (now - s.rates[link, IDLE_SINCE]) * s.rates[link, RATE]
            s.rates[link, SAVED] = min(s.burst_bytes, s.rates[link, SAVED] + more)
            s.rates[link, IDLE_SINCE] = now
        size = min(size, s.rates[link, SAVED])
    for k in range(s.path_starts[path], s.path_starts[path + 1]):
        s.rates[s.path_links[k], SAVED] -= size
    return size


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
            s.rates[link, IDLE_SINCE] = now
            touch(s, link)
            hop += 1
    row = s.messages[m, FIRST_ROW]
    while row >= 0:
        _ready_row(s, row)
        _let_go(s, row, False)
        row = s.rows[row, NEXT_ROW]
    if not s.is_lockstep:
        _did(s, s.messages[m, SRC_LANE], s.messages[m, SRC_STEP], now)


@kernel
def _wrote(s: State, row: int, now: float) -> None:
    """Note that a row is written."""
    s.written[row] = now
    _did_access(s, s.rows[row, DST_KEY], s.rows[row, N_SLOTS])
    _let_go(s, row, True)
    m = s.rows[row, MESSAGE]
    if s.is_lockstep:
        _did(s, s.messages[m, SRC_LANE], s.messages[m, SRC_STEP], now)
    if s.dst_does:
        _did(s, s.messages[m, DST_LANE], s.messages[m, DST_STEP], now)


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
def _did(s: State, lane: int, step: int, now: float) -> None:
    """Note that one thing of a lane's step is done."""
    s.steps[step, TO_DO] -= 1
    if s.steps[step, TO_DO] == 0 and s.lanes[lane, DOING] == step:
        _advance(s, lane, step, now)


@kernel
def _advance(s: State, lane: int, step: int, now: float) -> None:
    """Let a lane go on from a step to the first where something is to be done."""
    while step >= 0 and s.steps[step, TO_DO] == 0:
        step = s.steps[step, NEXT_STEP]
    s.lanes[lane, DOING] = step
    _enter(s, lane, now)


@kernel
def _enter(s: State, lane: int, now: float) -> None:
    """Let a lane enter all steps that it may."""
    doing = s.lanes[lane, DOING]
    while s.lanes[lane, ENTERING] >= 0:
        step = s.lanes[lane, ENTERING]
        if doing >= 0 and s.steps[doing, NUMBER] <= s.steps[step, NUMBER] - s.window:
            return
        s.lanes[lane, ENTERING] = s.steps[step, NEXT_STEP]
        member = s.steps[step, MEMBER]
        while member >= 0:
            m, end = member // 2, member % 2
            if len(s.notice_ns) > 0 and (end == 1 or s.is_lockstep):
                s.ready_ns[m] = max(s.ready_ns[m], now + s.notice_ns[m])
            _ready_message(s, m)
            member = s.messages[m, NEXT_SRC + end]
