"""Topologies: what the presets build, and what a wrong text is told."""

from __future__ import annotations

import networkx as nx
import pytest

from chunkscope.errors import TopologyError
from chunkscope.sim.topology import NodeKind, Topology, parse


@pytest.mark.parametrize(
    ("text", "n_ranks", "n_nodes", "n_links"),
    [
        ("ring", 1, 1, 0),
        ("ring", 2, 2, 1),
        ("ring", 5, 5, 5),
        ("line", 1, 1, 0),
        ("line", 5, 5, 4),
        ("star", 1, 2, 1),
        ("star", 6, 7, 6),
        ("fully", 1, 1, 0),
        ("full", 5, 5, 10),
        ("two-level", 8, 8 + 2 + 1, 8 + 2),
        ("two-level:4x2", 8, 8 + 4 + 1, 8 + 4),
        ("two-level", 1, 1 + 1 + 1, 1 + 1),
        ("two-level", 7, 7 + 7 + 1, 7 + 7),
    ],
)
def test_presets_have_the_nodes_and_links_they_should(
    text: str, n_ranks: int, n_nodes: int, n_links: int
) -> None:
    topology = parse(text, n_ranks)
    assert topology.n_ranks == n_ranks
    assert len(topology.graph) == n_nodes
    assert len(topology.links) == n_links
    assert len(topology.graph.edges) == 2 * n_links, "each link leads both ways"
    assert nx.is_strongly_connected(topology.graph)


@pytest.mark.parametrize(
    ("link", "bandwidth_Bps", "latency_ns"),
    [
        ("100GB/s,1us", 100e9, 1000),
        ("1GiB/s,500ns", 2**30, 500),
        ("200Gbit/s,2µs", 25e9, 2000),
        ("12.5GB/s, 0.1ms", 12.5e9, 100_000),
        ("1e9B/s,0ns", 1e9, 0),
        ("25GB/s", 25e9, 1000),
    ],
)
def test_rates_are_read_in_the_units_people_write(
    link: str, bandwidth_Bps: float, latency_ns: float
) -> None:
    edge = parse(f"line:{link}", 2).graph.edges["r0", "r1"]
    assert edge["bandwidth_Bps"] == pytest.approx(bandwidth_Bps)
    assert edge["latency_ns"] == pytest.approx(latency_ns)


def test_two_level_is_fast_inside_and_slow_outside() -> None:
    topology = parse("two-level:2x4:100GB/s,1us:10GB/s,5us", 8)
    assert topology.hosts == {"host0": (0, 1, 2, 3), "host1": (4, 5, 6, 7)}
    assert topology.graph.edges["r5", "host1"] == {"bandwidth_Bps": 100e9, "latency_ns": 1000}
    assert topology.graph.edges["switch", "host0"] == {"bandwidth_Bps": 10e9, "latency_ns": 5000}
    kinds = {node: topology.kind_of(node) for node in ("r0", "host0", "switch")}
    assert kinds == {"r0": NodeKind.RANK, "host0": NodeKind.HOST, "switch": NodeKind.SWITCH}


def test_links_have_labels_for_a_picture() -> None:
    labels = {link.label for link in parse("two-level:2x2:100GB/s,1us:12.5GB/s,5us", 4).links}
    assert labels == {"100 GB/s", "12.5 GB/s"}


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("rung", 0, "unknown topology 'rung'; known: ring, line, star, fully, hypercube, mesh"),
        ("", 0, "unknown topology ''"),
        ("ring:fast", 5, "'fast' is no number"),
        ("ring:100GB/x,1us", 5, "unknown unit"),
        ("ring:0GB/s", 5, "not above zero"),
        ("ring:-1GB/s", 5, "no number"),
        ("ring:nanGB/s", 5, "no number"),
        ("ring:1e999GB/s", 5, "not finite"),
        ("ring:1GB/s,5", 11, "unknown unit"),
        ("ring:1GB/s, 5", 12, "unknown unit"),
        ("ring:1GB/s,-5us", 11, "no number"),
        ("ring:1GB/s,1us,2us", 15, "expected BANDWIDTH,LATENCY"),
        ("ring:1GB/s:2GB/s", 11, "more than this topology takes"),
        ("two-level:3x4", 10, "3x4 is 12 ranks, but there are 8"),
        ("two-level:2xb", 12, "'b' is no size"),
        ("two-level:0x8", 10, "'0' is no size"),
        ("two-level:8", 10, "expected HOSTSxRANKS"),
        ("two-level:2x4:1GB/s:oops", 20, "'oops' is no number"),
    ],
)
def test_error_points_at_the_character(text: str, at: int, says: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(text, 8)
    message, shown, caret = str(caught.value).rsplit("\n", 2)
    assert says in message
    assert shown == f"  {text}"
    assert caret.index("^") - 2 == at


def test_group_of_nobody_is_refused() -> None:
    with pytest.raises(TopologyError, match="0 ranks, expected 1 or more"):
        parse("ring", 0)


@pytest.mark.parametrize("text", ["ring", "line", "star", "fully", "two-level:2x3"])
def test_json_keeps_everything(text: str) -> None:
    topology = parse(text, 6).with_link("r0", *_peer(text), latency_ns=7, both_ways=False)
    again = Topology.from_json(topology.to_json())
    assert again == topology
    assert dict(again.graph.nodes(data=True)) == dict(topology.graph.nodes(data=True))
    edges = {(a, b): about for a, b, about in topology.graph.edges(data=True)}
    assert {(a, b): about for a, b, about in again.graph.edges(data=True)} == edges
    assert (again.ranks, again.name, again.shape) == (topology.ranks, topology.name, topology.shape)


def _peer(text: str) -> list[str]:
    return ["switch" if text == "star" else "host0" if text.startswith("two") else "r1"]


ONE_NODE = '{"name":"x","shape":"x","ranks":["a"],"nodes":[["a","rank"]],"links":['


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "JSON is no topology"),
        ("[]", "JSON is no topology"),
        ('{"name": 5}', "JSON is no topology"),
        (ONE_NODE, "JSON is no topology"),
        (ONE_NODE + '["a","b",1.0,1.0,true]]}', "'b', which is no node"),
        (ONE_NODE + '["a","a",-1.0,1.0,true]]}', "bandwidth_Bps is -1"),
        ('{"name":"x","shape":"x","ranks":["b"],"nodes":[["a","rank"]],"links":[]}', "'b'"),
        ('{"name":"x","shape":"x","ranks":["a"],"nodes":[["a","moon"]],"links":[]}', "'moon'"),
    ],
)
def test_json_that_is_no_topology_is_refused(text: str, says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        Topology.from_json(text)


def test_own_graph_becomes_a_topology() -> None:
    graph = nx.Graph()
    graph.add_node("tor", kind="switch")
    for rank in range(3):
        graph.add_node(rank, kind="rank", host=f"h{rank // 2}")
        graph.add_edge(rank, "tor", bandwidth_Bps=1e9, latency_ns=10)
    topology = Topology.of(graph, name="mine")
    assert topology.ranks == ("0", "1", "2")
    assert topology.hosts == {"h0": (0, 1), "h1": (2,)}
    assert topology.graph.edges["tor", "2"] == {"bandwidth_Bps": 1e9, "latency_ns": 10}


def test_directed_graph_keeps_its_one_way_links() -> None:
    graph = nx.DiGraph()
    graph.add_edge("a", "b", bandwidth_Bps=1e9, latency_ns=10)
    topology = Topology.of(graph)
    assert list(topology.graph.edges) == [("a", "b")]
    assert not topology.links[0].both_ways


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"latency_ns": 1}, "lacks bandwidth_Bps"),
        ({"bandwidth_Bps": 1}, "lacks latency_ns"),
        ({"bandwidth_Bps": 0, "latency_ns": 1}, "bandwidth_Bps is 0, expected a number above 0"),
        ({"bandwidth_Bps": float("nan"), "latency_ns": 1}, "bandwidth_Bps is nan"),
        ({"bandwidth_Bps": float("inf"), "latency_ns": 1}, "bandwidth_Bps is inf"),
        ({"bandwidth_Bps": 1, "latency_ns": -1}, "latency_ns is -1, expected 0 or more"),
    ],
)
def test_graph_with_impossible_rates_is_refused(about: dict[str, float], says: str) -> None:
    graph = nx.Graph()
    graph.add_edge("a", "b", **about)
    with pytest.raises(TopologyError, match=f"link from 'a' to 'b'.*{says}"):
        Topology.of(graph)


def test_rank_must_be_placed_on_a_node() -> None:
    graph = nx.Graph()
    graph.add_edge("a", "b", bandwidth_Bps=1e9, latency_ns=10)
    with pytest.raises(TopologyError, match="rank 1 is placed on node 'c', which does not exist"):
        Topology.of(graph, ["a", "c"])


def test_a_link_can_be_slowed_or_removed_and_the_topology_stays_as_it_was() -> None:
    topology = parse("ring:1GB/s,1us", 4)
    slow = topology.with_link("r0", "r1", bandwidth_Bps=1e6)
    assert slow.graph.edges["r1", "r0"]["bandwidth_Bps"] == 1e6
    assert slow.graph.edges["r1", "r2"]["bandwidth_Bps"] == 1e9
    cut = topology.without_link("r0", "r1", both_ways=False)
    assert not cut.graph.has_edge("r0", "r1")
    assert cut.graph.has_edge("r1", "r0")
    assert topology == parse("ring:1GB/s,1us", 4)
    with pytest.raises(nx.NetworkXError):
        topology.graph.remove_edge("r0", "r1")
    with pytest.raises(TopologyError, match="no link from 'r0' to 'r2'; known: r1, r3"):
        topology.with_link("r0", "r2", latency_ns=1)
    with pytest.raises(TopologyError, match="bandwidth_Bps is 0"):
        topology.with_link("r0", "r1", bandwidth_Bps=0)
