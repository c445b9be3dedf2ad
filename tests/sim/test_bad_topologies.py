"""Topologies that cannot be: messages name the field, and point at the character in a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from chunkscope.errors import ChunkscopeError, TopologyError
from chunkscope.sim import network
from chunkscope.sim.library import build
from chunkscope.sim.replay import simulate
from chunkscope.sim.topology import Topology, parse

# Text, ranks, where the caret stands, what the message says.
TEXTS = [
    ("", 4, 0, "unknown topology ''"),
    (":", 4, 0, "unknown topology ''"),
    ("rings", 4, 0, "did you mean ring?"),
    ("DGX-H100", 8, 0, "did you mean dgx-h100?"),
    ("fat_tree:4", 4, 0, "did you mean fat-tree?"),
    ("dgx-h100x", 8, 0, "did you mean dgx-h100?"),
    ("dgx-h100x-1", 8, 0, "unknown topology 'dgx-h100x-1'"),
    ("dgx-h100x0", 8, 9, "'0' is no size, expected 1 machine or more"),
    ("nvl72x2", 200, 0, "nvl72x2 is 144 ranks, but there are 200"),
    ("ring:", 4, 5, "bandwidth '' is no number"),
    ("ring@", 4, 5, "bandwidth '' is no number"),
    ("ring@1GB/s,", 4, 11, "time '' is no number"),
    ("ring@0GB/s", 4, 5, "not above zero"),
    ("ring@-1GB/s", 4, 5, "'-1GB/s' is no number"),
    ("ring@nan", 4, 5, "'nan' is no number"),
    ("ring@infGB/s", 4, 5, "'infGB/s' is no number"),
    ("ring@1e400GB/s", 4, 5, "is not finite"),
    ("ring@1GB/s,1e400s", 4, 11, "is not finite"),
    ("ring@1GB/s,-1us", 4, 11, "'-1us' is no number"),
    ("ring@1GB/s,1", 4, 11, "known: ns, us, µs, ms, s"),
    ("ring@1GBB/s", 4, 5, "unknown unit; known: GB/s"),
    ("torus:4x", 8, 8, "'' is no size, expected AxB or AxBxC as 4x2"),
    ("torus:4x-2", 8, 8, "'-2' is no size"),
    ("torus:4x2.5", 8, 8, "'2.5' is no size"),
    ("torus:2x2x2x2x2x2x2", 128, 6, "expected AxB or AxBxC"),
    ("torus:99999x99999", 4, 6, "more than 500,000 nodes"),
    ("torus:9999999999999x1", 4, 6, "'9999999999999' is no size"),
    ("fat-tree:4x0", 4, 11, "'0' is no size"),
    ("fat-tree:5", 4, 9, "5 ports, expected an even number"),
    ("fat-tree:1000", 4, 9, "more than 500,000 nodes"),
    ("dragonfly:1x1x200000", 4, 10, "more than 10,000,000 links"),
    ("fully", 100_000, 0, "more than 10,000,000 links"),
    ("hypercube", 6, 0, "a power of two of ranks, not 6"),
    ("two-level:2x4@1GB/s@2GB/s@3GB/s", 8, 26, "'3GB/s' is more than this topology takes"),
    ("star:\x1b[31m", 3, 5, "is no number"),
    ("cluster.gml", 4, 0, "is no graph file: expected one of .graphml, .xml, .json"),
    ("*", 4, 0, "unknown dimension ''; known: ring, line, fully, switch"),
    ("ring:4*rign:2", 8, 7, "did you mean ring?"),
    ("ring:4*fully:0", 4, 13, "'0' is no size, expected a number of places"),
    ("ring:4*fully:8", 16, 0, "is 32 ranks, but there are 16"),
    ("ring:4*fully", 6, 7, "6 ranks are not divisible by the other sizes, 4"),
    ("ring*fully", 8, 5, "only one dimension may leave its size out"),
    ("ring:4@1GB/s@2GB/s*line:2", 8, 13, "'2GB/s' is more than this topology takes"),
    ("ring:4*fully:2@1furlong/s", 8, 15, "unknown unit"),
    ("switch:99999*switch:99999", 4, 0, "more than 500,000 nodes"),
]


@pytest.mark.parametrize(("text", "n", "at", "says"), TEXTS)
def test_texts(text: str, n: int, at: int, says: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(text, n)
    message, shown, caret = str(caught.value).rsplit("\n", 2)
    assert says in message
    assert shown == "  " + "".join(each if each.isprintable() else "?" for each in text)
    assert caret == f"  {' ' * at}^"


@pytest.mark.parametrize("n", [0, -3, 500_001, 10**12])
def test_numbers_of_ranks(n: int) -> None:
    with pytest.raises(TopologyError, match=r"topology of .* ranks, expected (1 or more|at most)"):
        parse("ring", n)


def linked(a: str = "a", b: str = "b", **about: Any) -> nx.Graph:
    graph = nx.Graph()
    graph.add_edge(a, b, **{"bandwidth_Bps": 1e9, "latency_ns": 5, **about})
    return graph


def with_nodes(**nodes: dict[str, Any]) -> nx.Graph:
    graph = linked()
    graph.add_nodes_from(nodes.items())
    return graph


def doubled() -> nx.MultiGraph:
    graph = nx.MultiGraph(linked())
    graph.add_edge("a", "b", bandwidth_Bps=1e9, latency_ns=5)
    return graph


GRAPHS = [
    (linked(bandwidth_Bps=0), "link from 'a' to 'b': bandwidth_Bps is 0, expected a number above"),
    (linked(bandwidth_Bps=-1), "bandwidth_Bps is -1"),
    (linked(bandwidth_Bps=float("nan")), "bandwidth_Bps is nan"),
    (linked(bandwidth_Bps=float("inf")), "bandwidth_Bps is inf"),
    (linked(bandwidth_Bps=10**400), "bandwidth_Bps: it is 1000000"),
    (linked(bandwidth_Bps=None), "bandwidth_Bps: it is None"),
    (linked(bandwidth_Bps=[1]), "bandwidth_Bps: it is [1]"),
    (linked(bandwidth_Bps="fast"), "bandwidth_Bps: bandwidth 'fast' is no number with a unit"),
    (linked(latency_ns=-1), "latency_ns is -1, expected 0 or more"),
    (linked(latency_ns=float("nan")), "latency_ns is nan"),
    (linked(latency_ns="5 parsecs"), "latency_ns: time '5 parsecs' has unknown unit"),
    (nx.path_graph(2), "link from 0 to 1 lacks bandwidth_Bps"),
    (nx.Graph(), "topology has no rank"),
    (with_nodes(c={"kind": "moon"}), "node 'c' has kind 'moon', expected one of rank, switch"),
    (with_nodes(a={"kind": "rank", "rank": 0}, b={"kind": "rank", "rank": 0}), "placed twice: on"),
    (with_nodes(a={"rank": 0}), "node 'b' has rank 'None', expected a number from 0 to 1"),
    (with_nodes(a={"rank": 0}, b={"rank": 7}), "node 'b' has rank '7'"),
    (with_nodes(a={"rank": 0}, b={"rank": -1}), "node 'b' has rank '-1'"),
    (doubled(), "two links from 'a' to 'b', expected one"),
    (nx.compose(linked("1", "2"), nx.relabel_nodes(linked("x", "2"), {"x": 1})), "called '1'"),
]


@pytest.mark.parametrize(("graph", "says"), GRAPHS, ids=[says for _, says in GRAPHS])
def test_graphs(graph: nx.Graph, says: str) -> None:
    with pytest.raises(TopologyError) as caught:
        Topology.of(graph)
    assert says in str(caught.value)


def test_graphs_that_are_too_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(network, "MOST_NODES", 5)
    with pytest.raises(TopologyError, match="network has 6 nodes, expected at most 5"):
        Topology.of(nx.empty_graph(6))
    (tmp_path / "star.json").write_text(STAR)
    with pytest.raises(TopologyError, match=r"star.json: network has 7 nodes, expected at most 5"):
        parse(str(tmp_path / "star.json"), 6)


def test_ranks_lie_where_the_graph_says() -> None:
    graph = with_nodes(a={"rank": 1}, b={"rank": "0"})
    assert Topology.of(graph).ranks == ("b", "a")
    assert Topology.of(linked(bandwidth_Bps="8Gbit/s", latency_ns="1us")).links[0].label == "1 GB/s"
    with pytest.raises(TopologyError, match="rank 1 is placed on node 'c', which does not exist"):
        Topology.of(graph, ["a", "c"])


def test_a_message_that_has_no_way_is_named() -> None:
    topology = parse("ring:4*fully:2", 8).without_link("r0", "r1").without_link("r0", "r3")
    cut = topology.without_link("r0", "r4")
    bound = build("all_reduce", "ring", 8).bind(8)
    assert simulate(bound, topology).duration_ns > 0, "there is another way"
    with pytest.raises(TopologyError, match=r"no path from rank 0 \(r0\) to rank 1 \(r1\)"):
        simulate(bound, cut)


STAR = parse("star", 6).to_json()
NODE_LINK = json.dumps(nx.node_link_data(linked(), edges="links"))
OWN = parse("star", 2).to_json()
GRAPHML = "\n".join(nx.generate_graphml(linked()))
FILES = [
    ("a.json", b"", "is empty, expected GraphML or JSON"),
    ("a.json", b" \n ", "is empty"),
    ("a.json", bytes(range(256)), "is no UTF-8 text"),
    ("a.json", b"\x89PNG\r\n\x1a\n\0\0", "is no UTF-8 text"),
    ("a.json", NODE_LINK[:-9].encode(), "is neither GraphML nor JSON"),
    ("a.json", OWN[:-5].encode(), "is neither GraphML nor JSON"),
    ("a.json", b"[" * 100_000, "is neither GraphML nor JSON"),
    ("a.json", b"null", "is a JSON list or value"),
    ("a.json", b'{"nodes": 3, "links": []}', "has no list of nodes"),
    ("a.json", b'{"nodes": [], "links": {}}', "has no list of links"),
    ("a.json", b'{"nodes": ["a"], "links": []}', "is no node-link JSON"),
    ("a.json", b'{"nodes": [{"id": {}}], "links": []}', "is no node-link JSON"),
    ("a.json", b'{"nodes": [{"id": 1}], "links": [7]}', "is no node-link JSON"),
    ("a.json", NODE_LINK.replace("1000000000.0", "1e999").encode(), "bandwidth_Bps is inf"),
    ("a.json", NODE_LINK.replace("1000000000.0", "NaN").encode(), "bandwidth_Bps is nan"),
    ("a.json", NODE_LINK.replace("1000000000.0", "true").encode(), "2 ranks, but there are 3"),
    ("a.json", OWN.replace('"switch"', '"r0"', 1).encode(), "two nodes of one name"),
    ("a.json", OWN.replace('"ranks":["r0","r1"]', '"ranks":["r0","r9"]').encode(), "'r9'"),
    ("a.json", OWN.replace('"ranks":["r0","r1"]', '"ranks":[]').encode(), "has no rank"),
    ("a.json", OWN.replace('"ranks":["r0","r1"]', '"ranks":[0]').encode(), "$.ranks[0]"),
    ("a.json", OWN.replace("}", ',"dims":[-2]}').encode(), "dims are [-2]"),
    ("a.json", OWN.replace("}", ',"routing":"magic"}').encode(), "$.routing"),
    ("a.graphml", GRAPHML[:200].encode(), "is no GraphML"),
    ("a.graphml", GRAPHML.replace("</edge>", "").encode(), "is no GraphML"),
    ("a.graphml", GRAPHML.replace(">1000000000.0<", ">lots<").encode(), "is no GraphML"),
    ("a.graphml", GRAPHML.replace('"bandwidth_Bps"', '"speed"').encode(), "lacks bandwidth_Bps"),
    ("a.graphml", b"<html><body>no</body></html>", "is no GraphML"),
    ("a.xml", b"<?xml version='1.0'?>", "is no GraphML"),
]


@pytest.mark.parametrize(("name", "content", "says"), FILES)
def test_files(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TopologyError) as caught:
        parse(str(path), 3)
    assert str(caught.value).startswith(f"{path}: ")
    assert says in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path / "a\0b.json"):
        with pytest.raises(TopologyError, match="cannot be read"):
            parse(str(path), 2)
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(TopologyError, match="cannot be read: Is a directory"):
        parse(str(tmp_path / "folder.json"), 2)


@pytest.mark.parametrize("cut", range(0, len(GRAPHML), 29))
def test_a_graphml_file_that_ends_early_never_gets_through(tmp_path: Path, cut: int) -> None:
    (tmp_path / "a.graphml").write_text(GRAPHML[:cut])
    with pytest.raises(ChunkscopeError):
        parse(str(tmp_path / "a.graphml"), 2)
