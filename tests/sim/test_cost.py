"""Bounds: against numbers worked out by hand."""

from __future__ import annotations

import pytest

from chunkscope.sim import cost
from chunkscope.sim.collectives import COLLECTIVES
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.replay import simulate
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.topology import parse

GB = 1e9


@pytest.mark.parametrize(
    ("n", "ports", "steps"), [(1, 1, 0), (2, 1, 1), (8, 1, 3), (9, 1, 4), (9, 2, 2), (10, 2, 3)]
)
def test_latency_bound_counts_how_fast_news_spreads(n: int, ports: int, steps: int) -> None:
    assert cost.latency_bound_ns(n, 10, ports) == steps * 10


@pytest.mark.parametrize(
    ("collective", "expected"),
    [("all_reduce", 1200), ("reduce_scatter", 600), ("all_gather", 600), ("broadcast", 800)],
)
def test_bandwidth_bound_is_the_textbooks(collective: str, expected: int) -> None:
    bound = build(collective, None, 4).bind(800, "int8")
    assert cost.bandwidth_bound_ns(bound, GB) == expected


def test_ring_meets_the_bandwidth_bound_without_latency() -> None:
    bound = build("all_reduce", "ring", 8).bind(8000, "int8")
    replay = simulate(bound, parse("star:1GB/s,0ns", 8))
    assert replay.duration_ns == cost.lower_bound_ns(replay) == 2 * 7 * 1000


def test_farthest_rank_sets_the_latency_bound() -> None:
    bound = build("all_reduce", "ring", 5).bind(5, "int8")
    replay = simulate(bound, parse("line:1000GB/s,1us", 5))
    assert cost.lower_bound_ns(replay) == 4000
    rooted = build("broadcast", "tree", 5, root=2).bind(5, "int8")
    assert cost.lower_bound_ns(simulate(rooted, parse("line:1000GB/s,1us", 5))) == 2000


def test_one_message_meets_its_bound() -> None:
    bound = build("broadcast", "tree", 2).bind(1000, "int8")
    replay = simulate(bound, parse("line:1GB/s,1us", 2), message_ns=50)
    assert replay.duration_ns == cost.lower_bound_ns(replay) == 2050


def test_a_rank_behind_a_slow_link_sets_the_bound() -> None:
    bound = build("all_reduce", "ring", 4).bind(4000, "int8")
    topology = parse("star:1GB/s,0ns", 4).with_link("r3", "switch", bandwidth_Bps=0.01e9)
    replay = simulate(bound, topology)
    assert cost.lower_bound_ns(replay) == 400_000
    assert replay.duration_ns >= 400_000


def test_without_sharing_links_have_no_bound_on_bytes() -> None:
    bound = build("all_reduce", "ring", 4).bind(4000, "int8")
    replay = simulate(bound, parse("star:1GB/s,1us", 4), sharing=False)
    assert cost.lower_bound_ns(replay) == 2000


@pytest.mark.parametrize(("n", "count"), [(1, 1000), (4, 0)])
def test_nothing_to_move_costs_nothing(n: int, count: int) -> None:
    bound = build("all_reduce", "ring", n).bind(count, "int8")
    assert cost.lower_bound_ns(simulate(bound, parse("ring", n))) == 0


def test_switch_that_reduces_may_beat_what_ranks_can_do() -> None:
    rows = [Transfer(0, 0, rank, 4, 0, 0, 1, True) for rank in range(4)]
    rows += [Transfer(1, 0, 4, rank, 0, 0) for rank in range(4)]
    schedule = Schedule.of("all_reduce", "nvls", 4, rows, input=[0], output=[0], helpers=["switch"])
    replay = simulate(schedule.bind(1000, "int8"), parse("star:1GB/s,0ns", 4))
    assert replay.duration_ns == 2000
    assert cost.lower_bound_ns(replay) <= 2000


def test_every_collective_has_needs() -> None:
    known = {entry.collective for entry in algorithms()}
    for name in known & set(COLLECTIVES):
        needs = cost.Needs.of(build(name, None, 4).bind(64, "float32"))
        assert needs.total_bytes > 0
        assert needs.in_bytes.sum() <= needs.total_bytes
