"""Measures the messages of a real group: ping-pong between pairs, and one ring.

    measured = measure_machine(4)       # 4 processes on this machine, or the group that is there
    fitting.fit(measured)

Sizes are interleaved, so that what else the machine does hits all of them alike.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ScheduleError
from ..traces.record.ranks import Ranks
from .fitting import Level, Measurements
from .library import build
from .schedule import Schedule

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# Each 5 times the one before: 96 bytes to 1.5 MB, and no power of two that people then ask for.
SIZES_BYTES = tuple(96 * 5**k for k in range(7))
_REDUCED_BYTES = 1 << 20
_MOST_PAIRS = 4
_MOST_TIMES = 50


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: How often everything is measured.
        slot_s: Seconds that the messages of one size take in a round, where one takes less.
        sizes_bytes: Sizes of the messages.
    """

    rounds: int = 5
    slot_s: float = 0.05
    sizes_bytes: tuple[int, ...] = SIZES_BYTES


def measure_machine(
    n_ranks: int, effort: Effort | None = None, *, timeout: float = 300.0
) -> Measurements | None:
    """Measure the messages between ranks.

    Inside torchrun (where RANK and WORLD_SIZE are set) this process is one of the ranks; elsewhere
    the ranks are processes of their own on this machine.

    Args:
        n_ranks: Number of ranks, 2 or more; inside torchrun there are as many as there are.
        effort: How much is measured.
        timeout: Seconds that processes of our own may take.

    Returns:
        What was measured; None in ranks above 0 inside torchrun.

    Raises:
        ScheduleError: There are fewer than two ranks.
        RanksError: A rank failed or did not return in time.
    """
    effort = effort or Effort()
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        _check(int(os.environ["WORLD_SIZE"]))
        return _join_and_measure(effort)
    _check(n_ranks)
    with Ranks(n_ranks, preload=(__name__, f"{__package__}.execute")) as ranks:
        found: list[Measurements | None] = ranks.run(measure, effort, timeout=timeout)
    return found[0]


def _check(n_ranks: int) -> None:
    if n_ranks < 2:
        raise ScheduleError(f"number of ranks is {n_ranks}, expected 2 or more to measure between")


def _join_and_measure(effort: Effort) -> Measurements | None:
    """Be one rank of a job that torchrun started."""
    import torch.distributed as dist

    joined_here = not dist.is_initialized()
    if joined_here:
        dist.init_process_group("gloo")
    found = measure(effort)
    if joined_here:
        dist.destroy_process_group()
    return found


def measure(effort: Effort) -> Measurements | None:
    """Measure on every rank of the default group at once; rank 0 returns what was found."""
    import torch.distributed as dist

    from ..traces.record.clock import clock_id

    n = dist.get_world_size()
    clocks: list[Any] = [None] * n
    dist.all_gather_object(clocks, clock_id())
    names = list(dict.fromkeys(clocks))
    hosts = tuple(names.index(clock) for clock in clocks)
    groups = [[rank for rank in range(n) if hosts[rank] == host] for host in range(len(names))]
    inside = None
    if 1 < len(groups) < n:
        inside = _level([group for group in groups if len(group) > 1], effort)
        level = _level([[group[0] for group in groups]], effort)
    else:
        level = _level([list(range(n))], effort)
    reduce_Bps = _gathered(_reduce_Bps())
    if dist.get_rank() != 0:
        return None
    return Measurements(hosts, level, inside, float(np.median(reduce_Bps)))


def _level(rings: Sequence[Sequence[int]], effort: Effort) -> Level:
    """Measure messages between neighbours in disjoint rings, all at once for the rings' own."""
    ring_of = _Ring.of_this_rank(rings)
    wires = {size: _Wire(ring_of, size) for size in effort.sizes_bytes}
    pairs = _spread(rings)
    times = {}
    for size, wire in wires.items():
        wire.ping_pong(*pairs[0], 2)  # the first message of a pair waits for its connection
        for pair in pairs[1:]:
            wire.ping_pong(*pair, 1)
        wire.ring(1)
        one_ns = max(_gathered(wire.ping_pong(*pairs[0], 1)))
        times[size] = int(np.clip(effort.slot_s * 1e9 / (2 * one_ns), 1, _MOST_TIMES))
    one_way: dict[int, list[float]] = {size: [] for size in wires}
    ring: dict[int, list[float]] = {size: [] for size in wires}
    for _ in range(effort.rounds):
        for size, wire in wires.items():
            one_way[size] += [wire.ping_pong(*pair, times[size]) for pair in pairs]
            ring[size].append(wire.ring(times[size]))
    return Level(
        np.array(effort.sizes_bytes),
        np.array([np.max(_by_rank(one_way[size]), axis=0) for size in wires]),
        np.array([np.max(_by_rank(ring[size]), axis=0) for size in wires]),
    )


def _spread(rings: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return neighbours to play ping-pong, a few of them where there are many."""
    pairs = [
        (ring[k], ring[(k + 1) % len(ring)])
        for ring in rings
        for k in range(len(ring) if len(ring) > 2 else 1)
    ]
    at = np.unique(np.linspace(0, len(pairs) - 1, _MOST_PAIRS).round().astype(int))
    return [pairs[k] for k in at]


@dataclass(frozen=True, slots=True)
class _Ring:
    """The ring that this rank is in: an all_gather, which sends and receives and computes nothing.

    Attributes:
        schedule: What is executed.
        group: Its process group.
    """

    schedule: Schedule
    group: ProcessGroup

    @staticmethod
    def of_this_rank(rings: Sequence[Sequence[int]]) -> _Ring | None:
        """Make a group of each ring, and return the one with this rank in it, None for none."""
        import torch.distributed as dist

        found = None
        for ring in rings:
            whole = len(ring) == dist.get_world_size()
            group = dist.group.WORLD if whole else dist.new_group(list(ring))
            if dist.get_rank() in ring:
                assert isinstance(group, dist.ProcessGroup)
                found = _Ring(build("all_gather", "ring", len(ring)), group)
        return found


class _Wire:
    """Messages of one size at this rank."""

    def __init__(self, ring: _Ring | None, size_bytes: int) -> None:
        import torch
        import torch.distributed as dist

        self.rank = dist.get_rank()
        self.sent = torch.zeros(size_bytes, dtype=torch.uint8)
        self.received = torch.zeros_like(self.sent)
        self.around = ring
        if ring is not None:
            self.gathered = self.sent.new_empty(ring.schedule.group_size * size_bytes)

    def ping_pong(self, a: int, b: int, times: int) -> float:
        """Return the median nanoseconds of a message from a to b, at a; 0 elsewhere."""
        import torch.distributed as dist

        dist.barrier()
        if self.rank == a:
            taken = []
            for _ in range(times):
                begin = time.perf_counter_ns()
                dist.send(self.sent, b)
                dist.recv(self.received, b)
                taken.append(time.perf_counter_ns() - begin)
            return float(np.median(taken)) / 2
        if self.rank == b:
            for _ in range(times):
                dist.recv(self.received, a)
                dist.send(self.sent, a)
        return 0.0

    def ring(self, times: int) -> float:
        """Return the nanoseconds of a step of a ring, which every rank does at once; 0 outside."""
        import torch.distributed as dist

        from .execute import execute

        dist.barrier()
        if self.around is None:
            return 0.0
        schedule, group = self.around.schedule, self.around.group
        calls = max(1, times // schedule.n_steps)
        begin = 0
        for call in range(calls + 1):
            if call == 1:  # what buckets have saved up is spent in the first one
                begin = time.perf_counter_ns()
            execute(schedule, self.sent, group=group, output=self.gathered)
        return (time.perf_counter_ns() - begin) / (calls * schedule.n_steps)


def _reduce_Bps() -> float:
    """Return the bytes a second that this rank reduces, while the others do."""
    import torch
    import torch.distributed as dist

    a, b = (torch.ones(_REDUCED_BYTES // 4) for _ in range(2))
    dist.barrier()
    taken = []
    for _ in range(30):
        begin = time.perf_counter_ns()
        a.add_(b)
        taken.append(time.perf_counter_ns() - begin)
    return _REDUCED_BYTES * 1e9 / float(np.median(taken))


def _gathered(number: float) -> list[float]:
    """Return a number of every rank."""
    return [row[0] for row in _by_rank([number])]


def _by_rank(numbers: Sequence[float]) -> list[list[float]]:
    """Return the numbers of every rank, one list a rank."""
    import torch.distributed as dist

    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, list(numbers))
    return found
