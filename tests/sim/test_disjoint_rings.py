"""Rings along a topology's links: all ranks, and no link in more than it has room for."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from chunkscope.errors import ScheduleError, TopologyError
from chunkscope.sim.disjoint_rings import disjoint_rings
from chunkscope.sim.library import build
from chunkscope.sim.replay import simulate
from chunkscope.sim.topology import parse
from chunkscope.sim.verify import verify


@pytest.mark.parametrize(
    ("text", "n", "n_rings"),
    [
        ("ring", 6, 2),
        ("torus:4x4", 16, 4),
        ("torus:8x8", 64, 4),
        ("torus:4x8", 32, 4),
        ("torus:3x5", 15, 4),
        ("torus:16x16", 256, 4),
        ("hypercube", 16, 4),
        ("fully", 9, 8),
        ("dgx1-v100", 8, 6),
        ("mi250x", 8, 6),
    ],
)
def test_rings_use_each_link_no_more_than_it_has_room_for(text: str, n: int, n_rings: int) -> None:
    topology = parse(text, n)
    rings = disjoint_rings(topology)
    assert len(rings) == n_rings
    used = Counter(hop for ring in rings for hop in pairwise((*ring, ring[0])))
    slowest = topology.network.bandwidth_Bps[: 1 if text == "ring" else None].min()
    for (a, b), times in used.items():
        rate = topology.graph.edges[f"r{a}", f"r{b}"]["bandwidth_Bps"]
        # A machine's slowest links may lead to its NICs; its GPUs' are 25 and 50 GB/s.
        assert times <= rate / {"dgx1-v100": 25e9, "mi250x": 50e9}.get(text, slowest)
    assert all(sorted(ring) == list(range(n)) for ring in rings)
    assert disjoint_rings(topology) == rings, "the same ones each time"
    assert disjoint_rings(topology, most=1) == rings[:1]


def test_more_rings_take_less_time() -> None:
    topology = parse("dgx1-v100", 8)
    rings = disjoint_rings(topology)
    schedule = build("all_reduce", "ring_channels", 8, rings=rings)
    assert verify(schedule) == []
    one = build("all_reduce", "ring_channels", 8, rings=rings[:1])
    size = 48 << 20
    times = [simulate(each.bind(size, "uint8"), topology).duration_ns for each in (schedule, one)]
    assert times[1] / times[0] == pytest.approx(6, rel=0.05)


def test_rotated_rings_have_a_nic_each() -> None:
    topology = parse("dgx-h100x4", 32)
    times = {}
    for k in (1, 2, 8):
        schedule = build("all_reduce", "ring_channels", 32, channels=k, ranks_per_host=8)
        assert verify(schedule) == []
        crossing = schedule.src // 8 != schedule.dst // 8
        assert len(set(schedule.src[crossing] % 8)) == k
        times[k] = simulate(schedule.bind(1 << 30, "uint8"), topology).duration_ns
    assert times[1] / times[2] == pytest.approx(2, rel=0.05)
    assert times[1] / times[8] == pytest.approx(8, rel=0.05)
    with pytest.raises(ScheduleError, match="ranks_per_host is 3, expected a divisor of 8"):
        build("all_reduce", "ring_channels", 8, ranks_per_host=3)


def test_what_cannot_be() -> None:
    with pytest.raises(TopologyError, match=r"no ring of all 4 ranks .* without switches"):
        disjoint_rings(parse("star", 4))
    with pytest.raises(ScheduleError, match=r"ring 0 is \[0, 1, 1\], expected each rank from 0"):
        build("all_reduce", "ring_channels", 3, rings=[[0, 1, 1]])
