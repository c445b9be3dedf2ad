"""all_to_all: valid for all sizes, as its formulas, and with blocks of different sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chunkscope.errors import ScheduleError
from chunkscope.sim.algorithms.all_to_all import hosts
from chunkscope.sim.closed import closed_form
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.replay import simulate
from chunkscope.sim.schedule import Schedule
from chunkscope.sim.topology import parse
from chunkscope.sim.values import compute
from chunkscope.sim.verify import verify
from chunkscope.traces.record.ranks import Ranks

SIZES = [*range(1, 34), 63, 64, 65, 100]
NAMES = [entry.name for entry in algorithms("all_to_all")]


def sent(schedule: Schedule) -> tuple[int, int, int]:
    """Return steps, messages and blocks that leave their rank."""
    leaves = schedule.src != schedule.dst
    ways = np.stack([schedule.step, schedule.src, schedule.dst])[:, leaves]
    steps = len(np.unique(schedule.step[leaves]))
    return steps, len(np.unique(ways, axis=1).T), int(schedule.n_slots[leaves].sum())


def bits(n: int) -> int:
    return (n - 1).bit_length()


def grid(n: int) -> tuple[int, int, int]:
    a, b = hosts(n)
    inside, across = b - 1, a - 1
    return inside + across, n * (inside + across), n * (inside * a + across * b)


FORMULAS: dict[str, Any] = {
    "direct": lambda n: (min(1, n - 1), n * (n - 1), n * (n - 1)),
    "gloo": lambda n: (n - 1, n * (n - 1), n * (n - 1)),
    "pairwise": lambda n: (n - 1, n * (n - 1), n * (n - 1)),
    "bruck": lambda n: (bits(n), n * bits(n), n * sum(far.bit_count() for far in range(n))),
    "hierarchical": grid,
}


@pytest.mark.parametrize("name", NAMES)
def test_valid_and_as_its_formula_says(name: str) -> None:
    for n in SIZES:
        schedule = build("all_to_all", name, n)
        assert verify(schedule) == [], n
        assert sent(schedule) == FORMULAS[name](n), n


@pytest.mark.parametrize("name", NAMES)
def test_blocks_of_different_sizes_arrive(name: str) -> None:
    """Numbers that tell origin, receiver and place, moved by the schedule."""
    for n in (1, 2, 3, 5, 6, 8):
        splits = np.random.default_rng(n).integers(0, 7, (n, n))
        splits[:, 0] += splits.sum(axis=1).max() - splits.sum(axis=1)  # all send as much
        bound = build("all_to_all", name, n).bind(int(splits[0].sum()), "int64", splits.tolist())
        named = [[blocks(splits, src, dst) for dst in range(n)] for src in range(n)]
        moved = compute(bound, [np.concatenate(row) for row in named])
        for dst in range(n):
            found, due = moved.outputs[dst], np.concatenate([row[dst] for row in named])
            assert found is not None
            assert found.tolist() == due.tolist(), (n, dst)


def blocks(splits: Any, src: int, dst: int) -> Any:
    """Return a block whose numbers tell where it comes from, where it goes, and their order."""
    return np.arange(splits[src, dst]) + 100 * dst + 10_000 * src


def test_in_pairs_where_that_is_possible() -> None:
    for n in (2, 4, 8, 16):
        rows = build("all_to_all", "pairwise", n).transfers
        steps = {(row.step, row.src, row.dst) for row in rows if row.src != row.dst}
        assert all((step, dst, src) in steps for step, src, dst in steps)


def test_bruck_wins_when_small_and_loses_when_large() -> None:
    topology = parse("star:1GB/s,500ns", 16)

    def time_ns(name: str, size: int) -> int:
        return simulate(build("all_to_all", name, 16).bind(size, "int8"), topology).duration_ns

    assert time_ns("bruck", 16) < time_ns("pairwise", 16)
    assert time_ns("bruck", 16_000_000) > time_ns("pairwise", 16_000_000)


@pytest.mark.parametrize(("n", "given"), [(12, 3), (12, 4), (12, 1), (12, 12), (35, 7)])
def test_hosts_of_any_size_that_divides(n: int, given: int) -> None:
    schedule = build("all_to_all", "hierarchical", n, ranks_per_host=given)
    assert verify(schedule) == []
    leaves = schedule.src != schedule.dst
    across = leaves & (schedule.src // given != schedule.dst // given)
    assert (schedule.src % given == schedule.dst % given)[across].all()
    terms = closed_form("all_to_all", "hierarchical", n, 420, ranks_per_host=given)
    a = n // given
    assert terms.latencies == a + given - 2
    assert terms.sent_bytes == pytest.approx((given - 1) * 420 / given + (a - 1) * 420 / a)


@pytest.mark.parametrize("given", [0, 5, -1])
def test_hosts_that_cannot_be(given: int) -> None:
    with pytest.raises(ScheduleError, match=f"ranks_per_host is {given}, expected a divisor of 12"):
        build("all_to_all", "hierarchical", 12, ranks_per_host=given)


def exchanged(splits: list[list[int]]) -> list[str]:
    """In a rank: by each algorithm, blocks of three columns; return those that go wrong."""
    import torch
    import torch.distributed as dist

    import chunkscope

    rank, n = dist.get_rank(), dist.get_world_size()
    mine = torch.arange(3 * sum(splits[rank]), dtype=torch.int32).view(-1, 3) + 1000 * rank
    due = torch.empty(sum(row[rank] for row in splits), 3, dtype=torch.int32)
    dist.all_to_all_single(due, mine, [row[rank] for row in splits], splits[rank])
    by_element = [[3 * rows for rows in row] for row in splits]
    wrong = []
    for entry in algorithms("all_to_all"):
        schedule = build("all_to_all", entry.name, n)
        found = chunkscope.execute(schedule, mine, splits=by_element)
        if found is None or not torch.equal(found, due):
            wrong.append(entry.name)
    return wrong


@pytest.mark.ranks
@pytest.mark.parametrize("n", [4, 6])
def test_blocks_of_different_sizes_on_real_ranks(n: int) -> None:
    splits = [[(3 * src + dst) % 4 for dst in range(n)] for src in range(n)]
    longest = max(map(sum, splits))
    for row in splits:
        row[0] += longest - sum(row)
    with Ranks(n, preload=("chunkscope.sim.execute",)) as ranks:
        assert ranks.run(exchanged, splits) == [[]] * n
