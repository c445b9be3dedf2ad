"""What links carried and when: by hand, and that it adds up whatever is shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chunkscope.errors import TopologyError
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.replay import Replay, simulate
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.topology import parse

# 1 byte a nanosecond and 1 µs a link.
EASY = "1GB/s,1us"


def run(rows: list[Transfer], n: int, topology: str, **how: Any) -> Replay:
    plan = Schedule.of("all_reduce", "test", n, rows, input=range(4), output=range(4))
    return simulate(plan.bind(4000, "int8"), parse(topology, n), **how)


def test_a_link_carries_its_messages_one_after_the_other() -> None:
    rows = [Transfer(step, 0, 0, 1, step, step) for step in range(2)]
    links = run(rows, 2, f"line:{EASY}").links
    steps = links.over_time("r0", "r1")
    assert steps.time_ns.tolist() == [0, 1000, 2000, 3000, 4000]
    assert steps.rate_Bps.tolist() == [0, 1e9, 0, 1e9]
    assert steps.size_bytes == 2000
    assert links.by_time(4)[links.ends.index(("r0", "r1"))].tolist() == [0, 1000, 0, 1000]
    assert links.by_time(3).sum() == 2000
    assert links.busiest(1) == [("r0", "r1", 2000, 0.5)]


def test_shared_links_are_full_and_each_message_has_its_share() -> None:
    # 1,000 and 2,000 bytes into rank 0: half each for 2,000 ns, then one alone.
    rows = [Transfer(0, 0, 1, 0, 0, 0), Transfer(0, 0, 2, 0, 1, 1, 2)]
    links = run(rows, 3, f"star:{EASY}").links
    into = links.over_time("switch", "r0")
    assert (into.time_ns.tolist(), into.rate_Bps.tolist()) == ([0, 2000, 5000], [0, 1e9])
    longer = links.over_time("r2", "switch")
    assert longer.time_ns.tolist() == [0, 2000, 4000, 5000]
    assert longer.rate_Bps.tolist() == [0, 0.5e9, 1e9]
    assert links.by_time(5)[links.ends.index(("r1", "switch"))].tolist() == [0, 0, 500, 500, 0]


def test_links_that_are_not_shared_may_carry_more_than_they_can() -> None:
    rows = [Transfer(0, 0, rank, 0, rank, rank) for rank in (1, 2)]
    links = run(rows, 3, f"star:{EASY}", sharing=False).links
    assert links.over_time("switch", "r0").rate_Bps.tolist() == [0, 2e9]
    assert links.busiest(1)[0].utilisation == 2000 / 3000


def test_what_passes_at_once_counts_beside_what_flows() -> None:
    rows = [Transfer(0, 0, 1, 0, 0, 0), Transfer(0, 1, 1, 0, 1, 1, 2)]
    links = run(rows, 2, "line:1GB/s,1ns", burst_bytes=2000).links
    assert links.over_time("r1", "r0").size_bytes == pytest.approx(3000)
    assert links.by_time(3).sum() == pytest.approx(3000)


def test_an_unknown_link_is_named() -> None:
    with pytest.raises(TopologyError, match="no link from 'r0' to 'r9'"):
        run([], 2, "ring").links.over_time("r0", "r9")


def test_headers_count_and_a_replay_without_messages_has_no_load() -> None:
    replay = run([Transfer(0, 0, 0, 1, 0, 0)], 2, f"line:{EASY}", header_bytes=16)
    assert replay.links.over_time("r0", "r1").size_bytes == 1016
    empty = run([], 2, f"line:{EASY}").links
    assert empty.by_time(3).sum() == 0
    assert empty.utilisation.tolist() == [0, 0]


def test_loads_add_up_and_never_exceed_the_links() -> None:
    texts = ["ring:3GB/s,700ns", "star:2GB/s,0ns", "two-level"]
    for k, entry in enumerate(algorithms(group_size=6)):
        bound = build(entry.collective, entry.name, 6).bind(6 * 1000, "float32")
        text = "star:2GB/s,1us" if bound.schedule.helpers else texts[k % 3]
        links = simulate(bound, parse(text, 6)).links
        table = links.by_time(7)
        np.testing.assert_allclose(table.sum(axis=1), links.size_bytes, rtol=1e-9)
        most = links.rate_Bps * links.duration_ns / 7e9
        assert (table <= most[:, None] * (1 + 1e-9)).all()
        hottest = links.busiest(1)[0]
        steps = links.over_time(hottest.src, hottest.dst)
        assert steps.size_bytes == pytest.approx(hottest.size_bytes)
        rate = links.rate_Bps[links.ends.index((hottest.src, hottest.dst))]
        assert steps.rate_Bps.max(initial=0) <= rate * (1 + 1e-9)
