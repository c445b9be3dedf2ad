"""Topologies of many kinds, their routes, and graph files."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from chunkscope.errors import TopologyError
from chunkscope.sim.formats.graphs import read_topology
from chunkscope.sim.library import build
from chunkscope.sim.presets import PRESETS
from chunkscope.sim.replay import simulate
from chunkscope.sim.routing import Routes
from chunkscope.sim.topology import NodeKind, Routing, Topology, parse


def way(topology: Topology, src: int, dst: int) -> list[str]:
    """Return the nodes between two ranks."""
    links = Routes(topology).path(src, dst)
    assert [link.b for link in links[:-1]] == [link.a for link in links[1:]]
    return [link.b for link in links[:-1]]


@pytest.mark.parametrize(
    ("text", "n", "n_nodes", "n_links"),
    [
        ("mesh:4x3", 12, 12, 17),
        ("torus:4x3", 12, 12, 24),
        ("torus:2x2x2", 8, 8, 12),
        ("torus:5", 5, 5, 5),
        ("torus@50GB/s,1us", 16, 16, 32),
        ("hypercube", 16, 16, 32),
        ("fat-tree:4", 16, 16 + 20, 48),
        ("fat-tree:4x2", 32, 32 + 20, 64),
        ("leaf-spine:4x2x8", 32, 32 + 6, 32 + 8),
        ("dragonfly:4x2x2", 72, 72 + 36, 72 + 54 + 36),
        ("rails:4x8", 32, 32 + 4 + 32 + 9, 32 + 32 + 32 + 8),
        ("dual-plane:2x4", 8, 8 + 6, 16 + 4),
        ("dgx1-v100", 8, 8 + 4, 16 + 8),
        ("dgx-a100", 8, 8 + 1 + 8, 8 + 8),
        ("dgx-h100x4", 32, 32 + 4 + 32 + 9, 32 + 32 + 32 + 8),
        ("nvl72", 72, 72 + 1 + 72, 72 + 72),
        ("mi250x", 8, 8 + 4, 12 + 8),
        ("mi300x", 8, 8 + 8, 28 + 8),
        ("pcie-x8", 8, 8 + 6 + 1, 8 + 4 + 1 + 1),
    ],
)
def test_nodes_and_links(text: str, n: int, n_nodes: int, n_links: int) -> None:
    topology = parse(text, n)
    assert (len(topology.graph), len(topology.links)) == (n_nodes, n_links)
    assert nx.is_strongly_connected(topology.graph)
    assert Topology.from_json(topology.to_json()) == topology


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("n", [1, 2, 4, 8, 16])
def test_every_preset_takes_ranks_and_runs_a_ring(name: str, n: int) -> None:
    topology = parse(name, n)
    assert topology.ranks == tuple(f"r{rank}" for rank in range(n))
    places = [node for node in topology.graph if topology.kind_of(node) is NodeKind.RANK]
    assert len(places) == n, "a place without a rank is left out"
    replay = simulate(build("all_reduce", "ring", n).bind(1 << 16), topology)
    assert (replay.duration_ns > 0) == (n > 1)


@pytest.mark.parametrize(
    ("text", "n", "at", "says"),
    [
        ("torus:8x9", 64, 6, "8x9 is 72 ranks, but there are 64"),
        ("torus:8xa", 64, 8, "'a' is no size, expected AxB or AxBxC as 4x2"),
        ("hypercube", 6, 0, "a power of two of ranks, not 6"),
        ("fat-tree:3", 4, 9, "3 ports, expected an even number"),
        ("fat-tree:2", 9, 9, "2 is 2 ranks, but there are 9"),
        ("dgx-h100x1", 32, 0, "dgx-h100x1 is 8 ranks, but there are 32"),
        ("dgx-h100x0", 8, 9, "expected 1 machine or more"),
        ("dgx-h100x2:100GB/s", 8, 11, "'100GB/s' is more than this topology takes"),
        ("dgx-h10", 8, 0, "did you mean dgx-h100?"),
        ("torus:4x2@1GB/s@2GB/s", 8, 16, "'2GB/s' is more than this topology takes"),
    ],
)
def test_errors_point_at_the_character(text: str, n: int, at: int, says: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(text, n)
    message, shown, caret = str(caught.value).splitlines()
    assert says in message
    assert (shown, caret) == (f"  {text}", f"  {' ' * at}^")


def test_torus_goes_one_dimension_after_the_other_the_shorter_way() -> None:
    torus = parse("torus:5x4", 20)
    assert way(torus, 0, 7) == ["r1", "r2"], "2 along the first, then 1 along the second"
    assert way(torus, 0, 4) == [], "around the end"
    assert way(torus, 0, 10) == ["r5"], "up, where both ways are as long"
    assert way(torus, 0, 19) == ["r4"]


def test_mesh_does_not_go_around() -> None:
    assert way(parse("mesh:4x1", 4), 0, 3) == ["r1", "r2"]


def test_torus_that_lacks_a_link_is_routed_around_it() -> None:
    torus = parse("torus:4x4", 16).without_link("r0", "r1")
    nodes = ["r0", *way(torus, 0, 1), "r1"]
    assert len(nodes) == 4
    assert ("r0", "r1") not in pairwise(nodes)


def test_ecmp_uses_all_cores_and_the_same_one_for_the_same_pair() -> None:
    tree = parse("fat-tree:4", 16)
    assert tree.routing is Routing.ECMP
    routes = Routes(tree)
    pairs = [(src, dst) for src in range(16) for dst in range(16) if src != dst]
    cores = {pair: routes.path(*pair)[2].b for pair in pairs if pair[0] // 4 != pair[1] // 4}
    assert {name for name in cores.values() if name.startswith("core")} == {
        f"core{k}" for k in range(4)
    }
    again = Routes(tree)
    assert all(again.path(*pair)[2].b == core for pair, core in cores.items())
    src, dst = np.array(pairs).T
    paths = routes.paths(src, dst)
    for number, pair in enumerate(pairs):
        low, high = paths.starts[paths.pair[number]], paths.starts[paths.pair[number] + 1]
        assert tuple(paths.links[low:high].tolist()) == routes.between(*pair)


def test_paths_of_a_machine_stay_inside_where_they_can() -> None:
    machines = parse("dgx-h100x2", 16)
    assert way(machines, 0, 7) == ["nvswitch0"]
    assert way(machines, 3, 11) == ["nic0.3", "rail3", "nic1.3"]
    assert machines.hosts == {"host0": tuple(range(8)), "host1": tuple(range(8, 16))}


@pytest.mark.parametrize(
    ("text", "n", "size_bytes", "seconds"),
    [
        ("torus:4x2@12.5GB/s,1us", 8, 64e6, 8.988017920e-3),
        ("torus:8x8@12.5GB/s,1us", 64, 64e6, 1.033216128e-2),
        ("torus:8x8@12.5GB/s,0ns", 64, 64e6, 1.008016128e-2),
    ],
)
def test_rings_on_tori_equal_simgrid(text: str, n: int, size_bytes: float, seconds: float) -> None:
    """SimGrid 3.32 SMPI, allreduce lr, with its 16 bytes a message."""
    bound = build("all_reduce", "ring", n).bind(int(size_bytes), "uint8")
    replay = simulate(bound, parse(text, n), policy="rank_step", header_bytes=16)
    assert replay.exact_duration_ns / 1e9 == pytest.approx(seconds, rel=1e-12)


GRAPHML = """<?xml version="1.0"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="b" for="edge" attr.name="bandwidth_Bps" attr.type="string"/>
  <key id="l" for="edge" attr.name="latency_ns" attr.type="string"/>
  <key id="k" for="node" attr.name="kind" attr.type="string"/>
  <graph edgedefault="undirected">
    <node id="a"><data key="k">rank</data></node>
    <node id="s"><data key="k">switch</data></node>
    <node id="b"><data key="k">rank</data></node>
    <edge source="a" target="s"><data key="b">10GB/s</data><data key="l">1us</data></edge>
    <edge source="s" target="b"><data key="b">{}</data><data key="l">1us</data></edge>
  </graph>
</graphml>
"""


def test_graphml(tmp_path: Path) -> None:
    (tmp_path / "net.graphml").write_text(GRAPHML.format("5GB/s"))
    topology = parse(str(tmp_path / "net.graphml"), 2)
    assert topology.ranks == ("a", "b")
    assert topology.graph.edges["s", "b"] == {"bandwidth_Bps": 5e9, "latency_ns": 1000.0}


def test_node_link_json_and_our_own(tmp_path: Path) -> None:
    graph = nx.path_graph(3)
    rates = {"bandwidth_Bps": 1e9, "latency_ns": 5}
    nx.set_edge_attributes(graph, dict.fromkeys(graph.edges, rates))
    (tmp_path / "path.json").write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    assert read_topology(tmp_path / "path.json").n_ranks == 3
    star = parse("star", 4)
    (tmp_path / "star.json").write_text(star.to_json())
    assert read_topology(tmp_path / "star.json") == star
    assert parse(str(tmp_path / "star.json"), 2).ranks == ("r0", "r1")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.graphml", "<graphml", "is no GraphML"),
        ("a.graphml", GRAPHML.format("fast"), "link from 's' to 'b': bandwidth_Bps: "),
        ("a.graphml", GRAPHML.format("0B/s"), "link from 's' to 'b': bandwidth_Bps"),
        ("a.graphml", GRAPHML.format("nanB/s"), "bandwidth_Bps"),
        ("a.json", "[1]", "is a JSON list or value"),
        ("a.json", "{}", "JSON has no list of nodes"),
        ("a.json", "{", "is neither GraphML nor JSON"),
        ("a.json", '{"nodes": [], "links": []}', "has no node"),
        ("a.json", '{"nodes": [{"id": 1}], "links": [{"source": 1}]}', "is no node-link JSON"),
        (
            "a.json",
            '{"nodes": [{"id": 1, "kind": "rank"}, {"id": 2, "kind": "cat"}], "links": []}',
            "node 2 has kind 'cat'",
        ),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, name: str, text: str, says: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(TopologyError) as caught:
        parse(str(path), 1)
    assert str(caught.value).startswith(f"{path}: ")
    assert says in str(caught.value)


def test_file_that_is_not_there_or_too_small(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="No such file"):
        parse(str(tmp_path / "none.json"), 2)
    (tmp_path / "star.json").write_text(parse("star", 2).to_json())
    with pytest.raises(TopologyError, match="has places for 2 ranks, but there are 3"):
        parse(str(tmp_path / "star.json"), 3)
