"""What each rank did all the time: sent, received, reduced, or waited, and for whom.

activity = replay.activity
activity.waiting_ns[3]              # how long rank 3 had nothing under way, but more to come
activity.waits[0]                   # who waited longest for whom
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import kernel, run

if TYPE_CHECKING:
    from .replay import Replay

Ints = npt.NDArray[Any]  # of any width
Floats = npt.NDArray[np.float64]

STATES = ("late", "sending", "receiving", "exchanging", "reducing", "waiting", "done")
_LATE, _SENDING, _RECEIVING, _EXCHANGING, _REDUCING, _WAITING, _DONE = range(len(STATES))


class RankWait(NamedTuple):
    """How long a rank waited for another place.

    Attributes:
        rank: The rank that waited.
        on: The place that it waited for.
        time_ns: How long, all times together.
    """

    rank: int
    on: int
    time_ns: float


@dataclass(frozen=True, slots=True, eq=False)
class Activity:
    """How long each rank was in each state; at any moment it is in one, so they sum up.

    A message is under way from when it leaves until its last byte is there. All arrays are
    nanoseconds of shape (ranks,), and sum up to the duration.

    Attributes:
        late_ns: It had not come yet.
        sending_ns: A message from it was under way, none to it.
        receiving_ns: A message to it was under way, none from it.
        exchanging_ns: Both.
        reducing_ns: No message was, and something was copied or reduced there.
        waiting_ns: None of these, but more was to come.
        done_ns: Nothing more was to come.
        waits: Who waited for whom, the longest first. A wait that a message ends was for the rank
            at its other end; under lockstep for the rank that was last in the step before.
    """

    late_ns: Floats
    sending_ns: Floats
    receiving_ns: Floats
    exchanging_ns: Floats
    reducing_ns: Floats
    waiting_ns: Floats
    done_ns: Floats
    waits: tuple[RankWait, ...]

    @property
    def idle_ns(self) -> Floats:
        """How long nothing was under way at each rank: late, waiting or done, (ranks,)."""
        return self.late_ns + self.waiting_ns + self.done_ns

    def table(self) -> Iterator[dict[str, float]]:
        """Yield the times of each rank by the state's name."""
        columns = [getattr(self, f"{state}_ns").tolist() for state in STATES]
        for times in zip(*columns, strict=True):
            yield dict(zip(STATES, times, strict=True))


def activity(replay: Replay) -> Activity:
    """Return what each rank of a replay did all the time.

    Example:
        >>> from .library import build
        >>> from .replay import simulate
        >>> from .topology import parse
        >>> bound = build("broadcast", "chain", 3, segments=1).bind(1000, "int8")
        >>> activity(simulate(bound, parse("line:1GB/s,1us", 3))).waits
        (RankWait(rank=2, on=1, time_ns=2000.0),)
    """
    schedule, times, write_ns = replay.schedule, replay.times, replay._work.write_ns
    first_row = schedule.messages.first_row
    sent = np.flatnonzero(schedule.src[first_row] != schedule.dst[first_row])
    sent_row = first_row[sent]
    write = np.flatnonzero(np.broadcast_to(write_ns > 0, len(schedule)))
    moments = _Moments(
        src=schedule.src[sent_row],
        dst=schedule.dst[sent_row],
        at=schedule.dst[write],
        late_ns=_late(replay),
    )
    writing = (times.written - write_ns)[write]
    when = np.concatenate([times.start[sent], times.arrived[sent], writing, times.written[write]])
    # Beginnings before ends, so that what follows at once is no wait.
    ends = np.concatenate([np.repeat([0, 1], len(sent)), np.repeat([0, 1], len(write))])
    n_places = schedule.n_places
    spent = np.zeros((n_places, len(STATES)))
    waited = np.zeros(2 * len(sent) + len(write))
    run(_tally, len(when))(
        moments,
        np.lexsort((ends, when)),
        when,
        replay.exact_duration_ns,
        np.zeros((3, n_places), np.int32),
        np.zeros(n_places),
        spent,
        waited,
    )
    who = np.concatenate([moments.src, moments.dst, moments.at])
    if replay.parameters.policy == "lockstep":
        whom = _last_before(replay)[np.concatenate([sent_row, sent_row, write])]
    else:
        whom = np.concatenate([moments.dst, moments.src, schedule.src[write]])
    columns = zip(STATES, spent[: schedule.group_size].T.copy(), strict=True)
    return Activity(
        **{f"{state}_ns": column for state, column in columns},
        waits=_waits(who, whom, waited, schedule.group_size, n_places),
    )


class _Moments(NamedTuple):
    """What begins and ends, as a kernel takes it.

    Attributes:
        src, dst: Places of each message, (messages,).
        at: Place of each write that takes time, (writes,).
        late_ns: When each place comes, (places,).
    """

    src: Ints
    dst: Ints
    at: Ints
    late_ns: Floats


@kernel
def _tally(
    m: _Moments,
    order: Ints,
    when: Floats,
    end_ns: float,
    count: Ints,
    since: Floats,
    spent: Floats,
    waited: Floats,
) -> None:
    """Fill in how long each place was in each state, and which beginnings ended a wait.

    Args:
        m: What begins and ends.
        order: Its moments in order of time: starts, then arrivals, then begins and ends of writes.
        when: Times of the moments.
        end_ns: The duration.
        count: Messages from and to each place that are under way, and writes there, (3, places).
        since: When each place's counts changed last, (places,).
        spent: Time of each place in each state, (places, states).
        waited: How long the source of each message had waited when it started, then the
            destination of each, then the place of each write, (2 * messages + writes,).
    """
    n, n_writes = len(m.src), len(m.at)
    for k in range(len(order)):
        moment = order[k]
        now = when[moment]
        if moment < 2 * n:
            i = moment % n
            src, dst = m.src[i], m.dst[i]
            src_waited = _spend(m, src, now, count, since, spent)
            dst_waited = _spend(m, dst, now, count, since, spent)
            change = 1 if moment < n else -1
            count[0, src] += change
            count[1, dst] += change
            if moment < n:
                waited[i] = src_waited
                waited[n + i] = dst_waited
        else:
            i = moment - 2 * n
            place = m.at[i % n_writes]
            at_waited = _spend(m, place, now, count, since, spent)
            count[2, place] += 1 if i < n_writes else -1
            if i < n_writes:
                waited[2 * n + i] = at_waited
    for place in range(len(since)):
        spent[place, _DONE] += _spend(m, place, end_ns, count, since, spent)
        spent[place, _WAITING] -= spent[place, _DONE]


@kernel
def _spend(m: _Moments, place: int, now: float, count: Ints, since: Floats, spent: Floats) -> float:
    """Count a place's time since its last moment; return how much of it was waiting."""
    low = since[place]
    since[place] = now
    if low < m.late_ns[place]:
        come = min(now, m.late_ns[place])
        spent[place, _LATE] += come - low
        low = come
    if count[0, place] > 0:
        state = _EXCHANGING if count[1, place] > 0 else _SENDING
    elif count[1, place] > 0:
        state = _RECEIVING
    else:
        state = _REDUCING if count[2, place] > 0 else _WAITING
    spent[place, state] += now - low
    return now - low if state == _WAITING else 0.0


def _late(replay: Replay) -> Floats:
    """Return when each place comes, (places,)."""
    late = np.zeros(replay.schedule.n_places)
    for rank, delay_ns in replay.parameters.delay_ns.items():
        late[rank] = delay_ns
    return late


def _last_before(replay: Replay) -> Ints:
    """Return the place that was last in the step before each row's, -1 for none, (rows,)."""
    schedule = replay.schedule
    _, first, number = np.unique(schedule.step, return_index=True, return_inverse=True)
    order = np.lexsort((replay.times.written, schedule.step))
    last = order[first[1:] - 1]
    late = _late(replay)
    begin = int(late.argmax()) if late.any() else -1
    before: Ints = np.concatenate([[begin], schedule.dst[last]])[number]
    return before


def _waits(
    who: Ints, whom: Ints, waited: Floats, n_ranks: int, n_places: int
) -> tuple[RankWait, ...]:
    """Return who waited for whom how long, the longest first."""
    counts = np.flatnonzero((waited > 0) & (who < n_ranks) & (whom >= 0))
    pair = who[counts].astype(np.int64) * n_places + whom[counts]
    pairs, which = np.unique(pair, return_inverse=True)
    total = np.bincount(which, waited[counts], len(pairs))
    longest = np.argsort(-total, kind="stable")
    return tuple(
        RankWait(pair // n_places, pair % n_places, time)
        for pair, time in zip(pairs[longest].tolist(), total[longest].tolist(), strict=True)
    )
