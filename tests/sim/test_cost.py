"""Bounds: against numbers worked out by hand."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from chunkscope.sim import cost
from chunkscope.sim.collectives import COLLECTIVES
from chunkscope.sim.cuts import Border, Cut, hardest_cut
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.needs import Needs
from chunkscope.sim.replay import simulate
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.topology import Topology, parse

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


@pytest.mark.parametrize(
    ("collective", "factor"),
    [
        ("all_reduce", 2 * 7 / 8),
        ("reduce_scatter", 7 / 8),
        ("all_gather", 7 / 8),
        ("all_to_all", 7 / 8),
        ("gather", 7 / 8),
        ("scatter", 7 / 8),
        ("broadcast", 1),
        ("reduce", 1),
    ],
)
def test_bandwidths_are_those_of_nccl_tests(collective: str, factor: float) -> None:
    replay = simulate(build(collective, None, 8).bind(8 * 500, "float16"), parse("ring", 8))
    seconds = replay.exact_duration_ns / 1e9
    assert replay.algbw_Bps == pytest.approx(8 * 500 * 2 / seconds)
    assert replay.busbw_Bps == pytest.approx(replay.algbw_Bps * factor)


# What must cross: all of the data by hand, for sets {0, 1} and {2, 3} and the root 0.


@pytest.mark.parametrize(
    ("collective", "leaving", "entering"),
    [
        ("all_reduce", [800, 800], [800, 800]),
        ("reduce_scatter", [400, 400], [400, 400]),
        ("all_gather", [400, 400], [400, 400]),
        ("broadcast", [800, 0], [0, 800]),
        ("reduce", [0, 800], [800, 0]),
        ("gather", [0, 400], [400, 0]),
        ("scatter", [400, 0], [0, 400]),
        ("all_to_all", [800, 800], [800, 800]),
        ("barrier", [0, 0], [0, 0]),
    ],
)
def test_what_must_leave_and_enter_two_halves(
    collective: str, leaving: list[float], entering: list[float]
) -> None:
    root = 0 if COLLECTIVES[collective].rooted else None
    plan = build(collective, None, 4, root=root)
    needs = Needs.of(plan.bind(0 if collective == "barrier" else 800, "int8"))
    halves = np.array([0, 0, 1, 1])
    assert needs.leaving(halves).tolist() == leaving
    assert needs.entering(halves).tolist() == entering


def test_uneven_splits_need_what_they_say() -> None:
    splits = [[0, 10, 20], [5, 0, 25], [30, 0, 0]]
    bound = build("all_to_all", None, 3).bind(30, "int8", splits=splits)
    needs = Needs.of(bound)
    assert needs.leaving(np.arange(3)).tolist() == [30, 30, 30]
    assert needs.entering(np.arange(3)).tolist() == [35, 10, 45]
    bound = build("all_gather", "direct", 3).bind(60, "int8", splits=[10, 20, 30])
    assert Needs.of(bound).entering(np.array([0, 1, 1])).tolist() == [50, 10]


# Cuts: which set of ranks has the narrowest border for what must cross.


def cut_of(collective: str, n: int, text: str, count: int = 4800) -> Cut:
    bound = build(collective, None, n).bind(count, "int8")
    cut = simulate(bound, parse(text, n)).bounds.cut
    assert cut is not None
    return cut


def test_hosts_that_share_a_slow_way_out_set_the_bound() -> None:
    cut = cut_of("all_gather", 8, "two-level:2x4:10GB/s,1us:1GB/s,2us")
    assert (cut.ranks, cut.size_bytes, cut.capacity_Bps) == ((0, 1, 2, 3), 2400, 1e9)
    assert cut.time_ns == 2400 + 2000
    assert cut.text == "2.34 KiB into ranks 0-3 at 1 GB/s"


def test_hosts_count_together_where_parts_must_become_one() -> None:
    cut = cut_of("all_reduce", 8, "two-level:4x2:10GB/s,0ns:1GB/s,0ns")
    # Six times the data over the four hosts' ways out, for 2 * 3 messages between hosts.
    assert (cut.n_sets, cut.size_bytes, cut.capacity_Bps) == (4, 6 * 4800, 4e9)
    assert "4 sets of ranks together" in cut.text


@pytest.mark.parametrize(
    ("text", "n", "links"),
    [("line", 8, 1), ("ring", 8, 2), ("mesh:4x2", 8, 2), ("torus:4x4", 16, 8), ("hypercube", 8, 4)],
)
def test_all_to_all_meets_the_bisection(text: str, n: int, links: int) -> None:
    cut = cut_of("all_to_all", n, f"{text}:1GB/s,0ns", count=n * 100)
    assert cut.size_bytes == (n // 2) ** 2 * 100
    assert cut.capacity_Bps == links * 1e9


def test_what_is_below_a_switch_is_a_set_whatever_its_ranks_are_called() -> None:
    graph = nx.Graph()
    fast, slow = {"bandwidth_Bps": 10e9, "latency_ns": 0}, {"bandwidth_Bps": 1e9, "latency_ns": 0}
    for rank in range(40):
        graph.add_edge(f"r{rank}", f"leaf{rank % 4}", **fast)
    for leaf in range(4):
        graph.add_edge(f"leaf{leaf}", "spine", **slow)
    border = Border.of(Topology.of(graph, [f"r{rank}" for rank in range(40)]))
    cut = hardest_cut(border, Needs.of(build("all_gather", None, 40).bind(4000, "int8")))
    assert cut is not None
    assert [rank % 4 for rank in cut.ranks] == [0] * 10
    assert cut.time_ns == 3000, "what the other 30 ranks have"


def test_flows_find_the_cut_that_no_pattern_shows() -> None:
    # Two cliques of three, their ranks in no order, joined by one thin link.
    graph = nx.Graph()
    for clique in ((0, 3, 5), (1, 2, 4)):
        for a, b in combinations(clique, 2):
            graph.add_edge(a, b, bandwidth_Bps=10e9, latency_ns=0)
    graph.add_edge(5, 1, bandwidth_Bps=1e9, latency_ns=0)
    topology = Topology.of(graph, list(range(6)))
    for name, expected in (("all_reduce", 600), ("broadcast", 600), ("all_gather", 300)):
        bound = build(name, None, 6).bind(600, "int8")
        found = simulate(bound, topology).bounds.cut
        assert found is not None
        assert set(found.ranks) in ({0, 3, 5}, {1, 2, 4})
        assert found.time_ns == expected


def test_ranks_on_one_node_need_no_link() -> None:
    graph = nx.Graph()
    graph.add_edge("a", "b", bandwidth_Bps=1e9, latency_ns=0)
    topology = Topology.of(graph, ["a", "a", "b", "b"])
    replay = simulate(build("all_gather", None, 4).bind(400, "int8"), topology)
    assert replay.bounds.cut is not None
    assert (replay.bounds.cut.ranks, replay.bounds.cut_ns) == ((0, 1), 200)


def test_every_collective_has_a_bound_and_says_what_decides() -> None:
    for name in {entry.collective for entry in algorithms()}:
        bound = build(name, None, 4).bind(0 if name == "barrier" else 64 << 20, "int8")
        found = simulate(bound, parse("ring", 4)).bounds
        assert found.time_ns > 0
        assert ("latency" in found.text) == (name == "barrier")


def test_late_ranks_and_their_way_belong_to_the_latency_bound() -> None:
    bound = build("all_reduce", "ring", 5).bind(5, "int8")
    replay = simulate(bound, parse("line:1000GB/s,1us", 5), delay_ns={1: 9000})
    assert replay.bounds.latency_ns == 9000 + 3000
