"""What the links of a topology carried, and when.

replay.links.busiest(3)                     # the links that carried most for their rate
time_ns, rate_Bps = replay.links.over_time("r0", "r1")
replay.links.by_time(100)                   # bytes of each link in each hundredth of the time
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import TopologyError
from .engine import Times, Work

if TYPE_CHECKING:
    from .replay import Replay

Ints = npt.NDArray[Any]  # of any width
Floats = npt.NDArray[np.float64]

# A message had its path for itself if it took no longer than alone by this much, relative to time.
_ROUNDING = 1e-9
# What is shorter is as long as this.
_MOMENT_NS = 1e-3
# Cells of a table that are added up at once.
_AT_ONCE = 1 << 22


class LinkLoad(NamedTuple):
    """What one link carried.

    Attributes:
        src, dst: Nodes that it leads from and to.
        size_bytes: Bytes that crossed it, headers included.
        utilisation: Share of what it could have carried in the whole time.
    """

    src: str
    dst: str
    size_bytes: int
    utilisation: float


class Steps(NamedTuple):
    """A rate that changes at moments.

    Attributes:
        time_ns: The moments, from 0 to the whole time, (moments,).
        rate_Bps: The rate from each moment to the next, (moments - 1,).
    """

    time_ns: Floats
    rate_Bps: Floats

    @property
    def size_bytes(self) -> float:
        """The bytes of the whole time."""
        return float(self.rate_Bps @ np.diff(self.time_ns)) / 1e9


@dataclass(frozen=True, eq=False, repr=False)
class LinkLoads:
    """What each directed link carried.

    Where both directions of a link share its rate, all is counted as one of them.

    Attributes:
        ends: Names of the nodes that each link leads from and to.
        rate_Bps: What each could carry, on average where that changed, (links,).
        size_bytes: What each carried, headers included, (links,).
        duration_ns: The whole time.
    """

    ends: tuple[tuple[str, str], ...]
    rate_Bps: Floats
    size_bytes: Floats
    duration_ns: float
    _work: Work
    _times: Times
    _shares: bool

    def __repr__(self) -> str:
        return f"LinkLoads({len(self.ends)} links)"

    @property
    def utilisation(self) -> Floats:
        """Share of what each link could have carried in the whole time, (links,).

        It may be more than 1 where messages do not share links.
        """
        could = self.rate_Bps * self.duration_ns / 1e9
        return np.divide(self.size_bytes, could, out=np.zeros_like(could), where=could > 0)

    def busiest(self, n: int) -> list[LinkLoad]:
        """Return the n links that carried most for their rate, the busiest first."""
        use, found = self.utilisation, []
        for k in np.argsort(-use, kind="stable")[:n].tolist():
            src, dst = self.ends[k]
            found.append(LinkLoad(src, dst, round(self.size_bytes[k]), float(use[k])))
        return found

    def over_time(self, src: str, dst: str) -> Steps:
        """Return how much flowed over a link, and when.

        Args:
            src, dst: Nodes that it leads from and to.

        Raises:
            TopologyError: There is no such link.

        Example:
            >>> from .library import build
            >>> from .replay import simulate
            >>> from .topology import parse
            >>> bound = build("broadcast", "flat", 3).bind(1000, "int8")
            >>> replay = simulate(bound, parse("star:1GB/s,1us", 3))
            >>> replay.links.over_time("r0", "switch")
            Steps(time_ns=array([   0., 2000., 4000.]), rate_Bps=array([0.e+00, 1.e+09]))
        """
        if (src, dst) not in self.ends:
            raise TopologyError(f"no link from {src!r} to {dst!r} in what was simulated")
        link, program = self.ends.index((src, dst)), self._work.program
        hops = np.flatnonzero(program.path_links % len(self.ends) == link)
        on_link = np.zeros(len(program.rate), np.bool_)
        on_link[np.searchsorted(program.path_starts, hops, side="right") - 1] = True
        flows = self._flows.of(on_link[self._flows.path])
        time = np.concatenate([[0.0, self.duration_ns], flows.begin_ns, flows.end_ns])
        moments, which = np.unique(time, return_inverse=True)
        change = np.concatenate([[0.0, 0.0], flows.rate, -flows.rate])
        rate = np.cumsum(np.bincount(which, change, len(moments)))[:-1]
        rate[np.abs(rate) <= _ROUNDING * flows.rate.max(initial=0.0)] = 0.0
        changes = np.append(np.flatnonzero(np.diff(rate, prepend=-1.0)), len(rate))
        return Steps(moments[changes], rate[changes[:-1]] * 1e9)

    def by_time(self, n_bins: int) -> Floats:
        """Return the bytes that each link carried in each of so many equal times, (links, bins)."""
        work, flows = self._work, self._flows
        of_path = flows.by_time(len(work.program.rate), self.duration_ns, n_bins)
        starts = work.program.path_starts
        links = work.program.path_links % len(self.ends)
        path = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        total = np.zeros((len(self.ends), n_bins))
        for low in range(0, len(links), max(1, _AT_ONCE // n_bins)):
            some = slice(low, low + max(1, _AT_ONCE // n_bins))
            np.add.at(total, links[some], of_path[path[some]])
        return total

    @cached_property
    def _flows(self) -> _Flows:
        return flows(self._work, self._times, shares=self._shares)


def begins(work: Work, times: Times, message: Ints) -> Floats:
    """Return when the bytes of some messages begin to flow, (messages,)."""
    p, start = work.program, times.start[message]
    begin: Floats = start + p.latency_ns[paths_at(work, message, start)]
    return begin + p.extra_ns[message] if len(p.extra_ns) else begin


def paths_at(work: Work, message: Ints, time_ns: Floats) -> Ints:
    """Return the number of each message's path at a time, among those of all epochs."""
    epoch = np.searchsorted(work.epochs.change_ns, time_ns, side="right")
    return work.program.pair[message] + epoch * len(work.paths.rate)


def flows(work: Work, times: Times, *, shares: bool) -> _Flows:
    """Return who flowed when at what rate."""
    p = work.program
    crosses = np.diff(p.path_starts)[p.pair] > 0
    message: Ints = np.flatnonzero((p.size_bytes > 0) & crosses)
    begin, end, size = begins(work, times, message), times.arrived[message], p.size_bytes[message]
    alone = size / p.rate[p.pair[message]]
    changing = work.epochs.n_epochs > 1
    if shares and (changing or (end - begin - alone > _ROUNDING * end).any()):
        changed, since, until, moved = _changing(work, times)
        whole = np.bincount(changed, moved, len(p.size_bytes))
        at_once = whole[message] == 0
        flowed = whole[changed] > 0
        # What a burst let pass at once is spread over the message's time.
        moved[flowed] *= (p.size_bytes / np.where(whole > 0, whole, 1.0))[changed[flowed]]
        message, begin, end, size = (
            np.concatenate([one[at_once], other[flowed]])
            for one, other in zip((message, begin, end, size), (changed, since, until, moved))
        )
    for change_ns in work.epochs.change_ns:
        parts = (begin < change_ns) & (change_ns < end)
        first = (change_ns - begin[parts]) / (end - begin)[parts] * size[parts]
        size = np.concatenate([np.where(parts, 0.0, size), size[parts] - first])
        size[np.flatnonzero(parts)] = first
        begin = np.concatenate([begin, np.full(len(first), change_ns)])
        end = np.concatenate([np.where(parts, change_ns, end), end[parts]])
        message = np.concatenate([message, message[parts]])
    return _Flows.filling(paths_at(work, message, begin), begin, end, size)


class _Flows(NamedTuple):
    """Who flowed when at what rate; a message whose rate changes is several.

    Attributes:
        path: Path of each, (flows,).
        begin_ns, end_ns: From when until when, (flows,) each.
        rate: Bytes a nanosecond, (flows,).
    """

    path: Ints
    begin_ns: Floats
    end_ns: Floats
    rate: Floats

    @staticmethod
    def filling(path: Ints, begin_ns: Floats, end_ns: Floats, size_bytes: Floats) -> _Flows:
        """Return flows that carry so many bytes in their time.

        What passes at once is given a moment, so that it has a rate that others can be added to.
        """
        begin_ns = np.minimum(begin_ns, end_ns - _MOMENT_NS).clip(0.0)
        end_ns = np.maximum(end_ns, begin_ns + _MOMENT_NS)
        end_ns = np.maximum(end_ns, np.nextafter(begin_ns, np.inf))
        return _Flows(path, begin_ns, end_ns, size_bytes / (end_ns - begin_ns))

    def of(self, chosen: npt.NDArray[np.bool_]) -> _Flows:
        """Return some of the flows."""
        return _Flows(*(column[chosen] for column in self))

    def by_time(self, n_paths: int, duration_ns: float, n_bins: int) -> Floats:
        """Return the bytes of each path in each of so many equal times, (paths, bins)."""
        edges = np.linspace(0.0, duration_ns, n_bins + 1)
        first, last = (
            np.clip(np.searchsorted(edges, time, side="right") - 1, 0, n_bins - 1)
            for time in (self.begin_ns, self.end_ns)
        )
        shape, cell = (n_paths, n_bins), self.path.astype(np.int64) * n_bins

        def added(bins: Ints, what: Floats) -> Floats:
            cells = np.bincount(cell + bins, weights=what, minlength=n_paths * n_bins)
            return cells.astype(np.float64, copy=False).reshape(shape)

        within = first == last
        begins = np.where(within, self.end_ns, edges[first + 1]) - self.begin_ns
        ends = np.where(within, 0.0, self.end_ns - edges[last])
        total = added(first, self.rate * begins) + added(last, self.rate * ends)
        # Whole bins between: the rate that flows all through them.
        through = np.where(within, 0.0, self.rate)
        after_first = np.minimum(first + 1, n_bins - 1)
        grows = added(after_first, through) - added(last, through)
        total += np.cumsum(grows, axis=1) * (edges[1] - edges[0])
        return total.clip(0.0)


def _changing(work: Work, times: Times) -> tuple[Ints, Floats, Floats, Floats]:
    """Return each message that shared links, from when until when it had one speed, and bytes."""
    changes = work.changes()
    order = np.argsort(changes.message, kind="stable")
    message, begin = changes.message[order], changes.time_ns[order]
    is_last = np.append(np.diff(message) != 0, True)[: len(message)]
    end = np.where(is_last, times.arrived[message], np.append(begin[1:], 0.0)[: len(begin)])
    return message, begin, end, changes.rate[order] * (end - begin)


def link_loads(replay: Replay) -> LinkLoads:
    """Return what the links of a replay carried."""
    work, n_links = replay._work, len(replay._work.links.ends)
    epochs, end = work.epochs, replay.exact_duration_ns
    if epochs.n_epochs > 1:
        who = flows(work, replay.times, shares=replay.parameters.sharing)
        size = who.rate * (who.end_ns - who.begin_ns)
        of_path = np.bincount(who.path, size, len(work.program.rate))
    else:
        of_path = np.bincount(work.program.pair, work.program.size_bytes, len(work.program.rate))
    each = np.repeat(of_path, np.diff(work.program.path_starts))
    total = np.bincount(work.program.path_links % n_links, each, n_links).astype(np.float64)
    lasts = np.diff(np.concatenate([[0.0], epochs.change_ns, [np.inf]]).clip(max=end))
    rates = epochs.link_rate.reshape(epochs.n_epochs, n_links)
    rate = lasts @ rates / end if end > 0 else rates[0]
    return LinkLoads(
        ends=work.links.ends,
        rate_Bps=rate * 1e9,
        size_bytes=total,
        duration_ns=end,
        _work=work,
        _times=replay.times,
        _shares=replay.parameters.sharing,
    )
