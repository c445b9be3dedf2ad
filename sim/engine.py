"""The step model's two passes over a wait graph: messages alone, and messages that share links.

Both give a time to every node of the graph. The first takes each message at the full rate of its
path, wave by wave in numpy. If no two messages ever met on a link, its times are those of max-min
sharing as well; else the second goes through the events one by one.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .network import Flows
from .order import WaitGraph
from .routing import Links, Paths

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What has to be done, and how long each piece takes on its own.

    Attributes:
        graph: What waits for what.
        ready_ns: Earliest time of each node, (nodes,).
        latency_ns: Latency of each message's path, its fixed cost included, (messages,).
        size_bytes: Bytes of each message on the wire, headers included, (messages,).
        write_ns: What writing each row costs, (rows,).
        paths: The messages' paths.
        links: The links.
    """

    graph: WaitGraph
    ready_ns: Floats
    latency_ns: Floats
    size_bytes: Floats
    write_ns: Floats
    paths: Paths
    links: Links

    @property
    def n_messages(self) -> int:
        """Number of messages, local rows among them."""
        return len(self.size_bytes)

    @property
    def wire_ns(self) -> Floats:
        """Time of each message's bytes at the full rate of its path."""
        return np.asarray(self.size_bytes / self.paths.rate)

    def begin_ns(self, times: Floats) -> Floats:
        """Return when the first byte of each message enters its path, (messages,)."""
        return np.asarray(times[: self.n_messages] + self.latency_ns)


def alone(work: Work) -> Floats:
    """Return the time of each node if every message has its path for itself, (nodes,).

    Raises:
        ScheduleError: Code DEADLOCK: the wait graph has a cycle; the message prints it.
    """
    graph, n = work.graph, work.n_messages
    times = work.ready_ns.copy()
    first = np.zeros(graph.n_nodes)
    first[n : 2 * n] = work.latency_ns
    second = np.zeros(graph.n_nodes)
    second[n : 2 * n] = work.wire_ns
    second[2 * n : 2 * n + len(work.write_ns)] = work.write_ns
    starts, heads = graph.successors()
    waiting = np.bincount(graph.head, minlength=graph.n_nodes)
    ready = np.flatnonzero(waiting == 0)
    n_done = 0
    while len(ready):
        n_done += len(ready)
        # Two sums, as the other pass has them, so that both round alike.
        times[ready] = times[ready] + first[ready] + second[ready]
        low, count = starts[ready], starts[ready + 1] - starts[ready]
        before = np.cumsum(count) - count
        after = heads[np.arange(int(count.sum())) + np.repeat(low - before, count)]
        np.maximum.at(times, after, np.repeat(times[ready], count))
        np.subtract.at(waiting, after, 1)
        ready = np.unique(after[waiting[after] == 0])
    if n_done < graph.n_nodes:
        graph.levels()  # raises, and prints the cycle
    return times


def shared(work: Work) -> Floats:
    """Return the time of each node if messages share links by max-min fairness, (nodes,)."""
    return _Run(work).times()


# What an event of the queue is about.
_READY, _BEGIN, _ARRIVE = 0, 1, 2


class _Run:
    """One run through the events in order of time.

    The queue holds (time, number, what, node or message, version); equal times are taken together,
    and links are shared anew once after all of them.
    """

    def __init__(self, work: Work) -> None:
        self.n = work.n_messages
        starts, heads = work.graph.successors()
        bounds, flat = starts.tolist(), heads.tolist()
        self.after = [flat[a:b] for a, b in pairwise(bounds)]
        self.waiting = np.bincount(work.graph.head, minlength=work.graph.n_nodes).tolist()
        self.time: list[float] = work.ready_ns.tolist()
        self.latency: list[float] = work.latency_ns.tolist()
        self.write: list[float] = work.write_ns.tolist()
        on_wire = (work.size_bytes > 0) & (np.diff(work.paths.starts) > 0)
        self.on_wire: list[bool] = on_wire.tolist()
        self.flows = Flows(work.links, work.paths, work.size_bytes)
        self.version = [0] * self.n
        self.queue: list[tuple[float, int, int, int, int]] = []
        self.number = 0

    def times(self) -> Floats:
        for node in [k for k, count in enumerate(self.waiting) if count == 0]:
            self.push(self.time[node], _READY, node)
        while self.queue:
            now = self.queue[0][0]
            while self.queue and self.queue[0][0] == now:
                _, _, what, which, version = heapq.heappop(self.queue)
                self.take(now, what, which, version)
            for message, arrival in self.flows.settle(now):
                self.version[message] += 1
                self.push(arrival, _ARRIVE, message, self.version[message])
        return np.array(self.time)

    def push(self, time: float, what: int, which: int, version: int = 0) -> None:
        self.number += 1
        heapq.heappush(self.queue, (time, self.number, what, which, version))

    def take(self, now: float, what: int, which: int, version: int) -> None:
        if what == _READY:
            self.finish(which, now)
        elif what == _BEGIN:
            self.flows.add(which, now)
        elif version == self.version[which]:
            self.flows.remove(which)
            self.finish(self.n + which, now)

    def finish(self, node: int, now: float) -> None:
        """Note that a node's time has come, and let go what waited for it alone."""
        done = [node]
        for at in done:
            self.time[at] = now
            for other in self.after[at]:
                self.waiting[other] -= 1
                if self.waiting[other] == 0 and self.let_go(other, now):
                    done.append(other)

    def let_go(self, node: int, now: float) -> bool:
        """Return whether a node that waits for nothing more is done at once; else queue its end."""
        time = max(self.time[node], now)
        if self.n <= node < 2 * self.n:
            message = node - self.n
            time += self.latency[message]
            if self.on_wire[message]:
                self.push(time, _BEGIN, message)
                return False
        elif 2 * self.n <= node < 2 * self.n + len(self.write):
            time += self.write[node - 2 * self.n]
        if time > now:
            self.push(time, _READY, node)
        return time <= now
