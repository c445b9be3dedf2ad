"""Paths: the shortest by latency, the same each time, and none where there is none."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from chunkscope.errors import TopologyError
from chunkscope.sim.routing import Routes
from chunkscope.sim.topology import Routing, Topology, parse


def nodes(routes: Routes, src: int, dst: int) -> list[tuple[str, str]]:
    return [routes.links.ends[link] for link in routes.between(src, dst)]


def test_ring_goes_the_shorter_way_round() -> None:
    routes = Routes(parse("ring", 5))
    assert nodes(routes, 0, 2) == [("r0", "r1"), ("r1", "r2")]
    assert nodes(routes, 0, 3) == [("r0", "r4"), ("r4", "r3")]
    assert nodes(routes, 3, 3) == []


def test_two_level_goes_through_the_switches() -> None:
    routes = Routes(parse("two-level:2x2", 4))
    assert nodes(routes, 0, 1) == [("r0", "host0"), ("host0", "r1")]
    hops = ["r0", "host0", "switch", "host1", "r3"]
    assert nodes(routes, 0, 3) == list(pairwise(hops))


def test_latency_counts_before_hops() -> None:
    graph = nx.Graph()
    graph.add_edge("a", "b", bandwidth_Bps=1e9, latency_ns=100)
    graph.add_edge("a", "c", bandwidth_Bps=1e9, latency_ns=10)
    graph.add_edge("c", "b", bandwidth_Bps=1e6, latency_ns=10)
    routes = Routes(Topology.of(graph, ["a", "b"]))
    assert nodes(routes, 0, 1) == [("a", "c"), ("c", "b")]
    paths = routes.paths(np.array([0, 1, 0]), np.array([1, 0, 0]))
    assert paths.latency_ns[paths.pair].tolist() == [20, 20, 0]
    assert paths.rate[paths.pair].tolist() == [1e6 / 1e9, 1e6 / 1e9, np.inf]
    assert np.diff(paths.starts)[paths.pair].tolist() == [2, 2, 0]


def test_without_latency_the_fewest_hops_win() -> None:
    graph = nx.Graph()
    for a, b in (("a", "x"), ("x", "y"), ("y", "b"), ("a", "z"), ("z", "b")):
        graph.add_edge(a, b, bandwidth_Bps=1e9, latency_ns=0)
    assert nodes(Routes(Topology.of(graph, ["a", "b"])), 0, 1) == [("a", "z"), ("z", "b")]


def test_ties_do_not_depend_on_the_order_of_the_edges() -> None:
    edges = [("a", "x"), ("x", "b"), ("a", "y"), ("y", "b")]
    found = []
    for order in (edges, edges[::-1]):
        graph = nx.Graph()
        graph.add_nodes_from(["a", "b", "x", "y"])
        for a, b in order:
            graph.add_edge(a, b, bandwidth_Bps=1e9, latency_ns=5)
        found.append(nodes(Routes(Topology.of(graph, ["a", "b"])), 0, 1))
    assert found[0] == found[1]
    assert found[0] == [("a", "x"), ("x", "b")]


def test_no_path_names_both_ranks() -> None:
    topology = parse("line", 4).without_link("r1", "r2")
    with pytest.raises(TopologyError, match=r"no path from rank 0 \(r0\) to rank 3 \(r3\)"):
        Routes(topology).between(0, 3)


def test_one_way_link_leads_one_way() -> None:
    topology = parse("line", 2).without_link("r1", "r0", both_ways=False)
    assert nodes(Routes(topology), 0, 1) == [("r0", "r1")]
    with pytest.raises(TopologyError, match="no path from rank 1"):
        Routes(topology).between(1, 0)


def test_helpers_sit_on_nodes() -> None:
    routes = Routes(parse("star", 2), ["switch"])
    assert nodes(routes, 0, 2) == [("r0", "switch")]
    with pytest.raises(TopologyError, match="helper 'nvls' of the schedule is no node"):
        Routes(parse("star", 2), ["nvls"])


def test_a_switch_that_reduces_is_the_node_that_all_ranks_are_linked_to() -> None:
    routes = Routes(parse("dgx-h100", 8), ["switch"])
    assert nodes(routes, 3, 8) == [("r3", "nvswitch0")]
    for text, n in (("dgx-h100x2", 16), ("dual-plane:2x4", 8)):  # none, and two
        with pytest.raises(TopologyError, match="helper 'switch' of the schedule is no node"):
            Routes(parse(text, n), ["switch"])


@pytest.mark.parametrize(("text", "n"), [("leaf-spine:4x4x4", 16), ("fat-tree:4x1", 16)])
def test_by_destination_no_two_messages_of_a_shift_share_a_link_of_a_fat_tree(
    text: str, n: int
) -> None:
    routes = Routes(replace(parse(text, n), routing=Routing.DESTINATION))
    rank = np.arange(n)
    for shift in range(1, n):
        links = routes.paths(rank, (rank + shift) % n).links
        assert len(set(links.tolist())) == len(links)


@pytest.mark.parametrize(
    "text", ["star", "fat-tree:4", "leaf-spine:2x3x4", "dual-plane:2x4", "fully"]
)
def test_all_routes_at_once_are_those_of_single_searches(text: str) -> None:
    topology = parse(text, 8).with_link(*_a_link_of_rank_2(text), bandwidth_Bps=7e9)
    routes = Routes(topology)
    src, dst = np.divmod(np.arange(64), 8)
    paths = routes.paths(src, dst)
    for message, pair in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        path = paths.pair[message]
        links = routes.between(*pair)
        assert paths.links[paths.starts[path] : paths.starts[path + 1]].tolist() == list(links)
        rates = [routes.links.rate[link] for link in links]
        assert paths.rate[path] == min(rates, default=np.inf)
        assert paths.latency_ns[path] == sum(routes.links.latency_ns[link] for link in links)


def _a_link_of_rank_2(text: str) -> tuple[str, str]:
    return "r2", parse(text, 8).network.neighbours("r2")[0]


def test_random_graphs_are_routed_as_networkx_does() -> None:
    for seed in range(6):
        graph = nx.gnp_random_graph(12, 0.25, seed=seed, directed=True)
        for a, b in graph.edges:
            graph.edges[a, b].update(bandwidth_Bps=1e9, latency_ns=1 + (a * 7 + b * 3 + seed) % 4)
        topology = Topology.of(graph)
        paths = Routes(topology).paths(*np.divmod(np.arange(144), 12), lost_ok=True)
        far = dict(nx.all_pairs_dijkstra_path_length(graph, weight="latency_ns"))
        for message, (a, b) in enumerate(np.ndindex(12, 12)):
            found = paths.latency_ns[paths.pair[message]]
            assert found == far[a].get(b, 0)
            lost = a != b and b not in far[a]
            assert np.isinf(paths.rate[paths.pair[message]]) == (lost or a == b)
