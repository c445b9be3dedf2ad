"""The chain that decides a replay: why each stage waited, by hand; and that its parts add up."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from chunkscope.sim.causes import Wait
from chunkscope.sim.critical import PARTS, Stage
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.order import POLICIES, Policy
from chunkscope.sim.replay import Replay, simulate
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.topology import parse

# 1 byte a nanosecond and 1 µs a link: a message of 1,000 bytes takes 2,000 ns over one link.
EASY = "1GB/s,1us"


def run(rows: list[Transfer], n: int, text: str = "fully", **how: Any) -> Replay:
    order = {name: how.pop(name) for name in ("window", "after") if name in how}
    every = range(4)
    plan = Schedule.of("all_reduce", "test", n, rows, input=every, output=every, **order)
    return simulate(plan.bind(4000, "int8"), parse(f"{text}:{EASY}", n), **how)


def told(replay: Replay) -> list[tuple[int, str, float, float]]:
    return [(s.row, str(s.waited_for), s.begin_ns, s.end_ns) for s in replay.chain]


def test_a_message_waits_for_its_data_or_for_the_step_before() -> None:
    rows = [Transfer(0, 0, 0, 1, 0, 0), Transfer(1, 0, 1, 2, 0, 0)]
    assert told(run(rows, 3)) == [(0, "nothing", 0, 2000), (1, "data", 2000, 4000)]
    rows = [Transfer(0, 0, 0, 1, 0, 0), Transfer(1, 0, 0, 2, 1, 1)]
    assert told(run(rows, 3)) == [(0, "nothing", 0, 2000), (1, "step", 2000, 4000)]


def test_a_window_lets_a_step_wait_for_one_further_back() -> None:
    rows = [Transfer(step, 0, 0, 1, step, step, 1 + (step == 1)) for step in range(3)]
    assert [row for row, *_ in told(run(rows, 2))] == [0, 1, 2]
    chain = run(rows, 2, "fully", window=2).chain
    assert [(stage.row, stage.waited_for) for stage in chain][-1] == (2, Wait.STEP)
    assert [stage.row for stage in chain] == [0, 2]


def test_a_write_waits_for_a_slot_that_is_still_read() -> None:
    rows = [
        Transfer(0, 0, 0, 1, 1, 1, 3),  # rank 0 is busy for 4,000 ns
        Transfer(1, 0, 0, 1, 0, 0),  # then it reads slot 0
        Transfer(2, 0, 2, 0, 0, 0),  # which this overwrites
        Transfer(3, 0, 0, 2, 0, 2, 2),
    ]
    chain = run(rows, 3, window=4, after=[(1, 0)]).chain
    assert [(stage.row, str(stage.waited_for)) for stage in chain] == [
        (0, "nothing"), (1, "after"), (2, "slot"), (3, "data"),
    ]  # fmt: skip
    assert [stage.end_ns - stage.begin_ns for stage in chain] == [4000, 0, 0, 3000]


def test_writes_of_one_slot_wait_for_each_other() -> None:
    rows = [Transfer(0, 0, rank, 0, 0, 0, 1, True) for rank in (1, 2)]
    chain = run(rows, 3, reduce_Bps=1e9).chain
    assert [(s.row, str(s.waited_for), s.bytes_ns, s.write_ns) for s in chain] == [
        (0, "nothing", 1000, 1000),
        (1, "slot", 0, 1000),
    ]


def test_a_late_rank_and_a_notice_have_their_parts() -> None:
    late = run([Transfer(0, 0, 0, 1, 0, 0)], 2, delay_ns={0: 700}).chain
    assert [(s.waited_for, s.late_ns, s.latency_ns, s.bytes_ns) for s in late] == [
        (Wait.RANK, 700, 1000, 1000)
    ]
    receiver = run([Transfer(0, 0, 0, 1, 0, 0)], 2, delay_ns={1: 9000}).chain
    assert [(s.waited_for, s.late_ns, s.end_ns) for s in receiver] == [(Wait.RANK, 9000, 9000)]
    told_first = run([Transfer(0, 0, 0, 1, 0, 0)], 2, rendezvous_bytes=1000).chain
    assert [(s.waited_for, s.notice_ns, s.end_ns) for s in told_first] == [
        (Wait.NOTICE, 1000, 3000)
    ]


def test_sharing_is_told_with_the_link_where_it_was() -> None:
    rows = [Transfer(0, 0, rank, 0, rank, rank) for rank in (1, 2)]
    (stage,) = run(rows, 3, "star").chain
    assert (stage.bytes_ns, stage.shared_ns, stage.link) == (1000, 1000, ("switch", "r0"))
    (alone,) = run(rows, 3, "star", sharing=False).chain
    assert (alone.shared_ns, alone.link) == (0, None)


def test_a_message_waits_for_a_port_at_either_end() -> None:
    rows = [Transfer(0, 0, 0, rank, rank, rank) for rank in (1, 2)]
    assert told(run(rows, 3, ports=1)) == [(0, "nothing", 0, 2000), (1, "port", 2000, 4000)]
    rows = [Transfer(0, 0, rank, 0, rank, rank) for rank in (1, 2)]
    assert told(run(rows, 3, ports=1)) == [(0, "nothing", 0, 2000), (1, "port", 2000, 4000)]
    assert len(run(rows, 3, ports=2).chain) == 1


def test_a_link_that_slows_down_takes_its_time_from_then_on() -> None:
    replay = run([Transfer(0, 0, 0, 1, 0, 0)], 2, changes="r0-r1:x2@1500ns")
    (stage,) = replay.chain
    assert (stage.bytes_ns, stage.shared_ns, stage.end_ns) == (1000, 500, 2500)
    steps = replay.links.over_time("r0", "r1")
    assert steps.time_ns.tolist() == [0, 1000, 1500, 2500]
    assert steps.rate_Bps.tolist() == [0, 1e9, 0.5e9]
    assert replay.links.busiest(1)[0].size_bytes == 1000


@pytest.mark.parametrize(("policy", "why"), [("rank_step", "step"), ("lockstep", "step")])
def test_steps_of_the_receiver_and_of_all_count_where_the_policy_says_so(
    policy: Policy, why: str
) -> None:
    rows = [Transfer(0, 0, 0, 1, 0, 0, 2), Transfer(1, 0, 2, 1, 2, 2)]
    assert told(run(rows, 3)) == [(0, "nothing", 0, 3000)]
    assert told(run(rows, 3, policy=policy)) == [(0, "nothing", 0, 3000), (1, why, 3000, 5000)]


@pytest.mark.parametrize("policy", POLICIES)
def test_stages_follow_each_other_and_their_parts_add_up(policy: Policy) -> None:
    for k, entry in enumerate(algorithms(group_size=5)[POLICIES.index(policy) :: 3]):
        bound = build(entry.collective, entry.name, 5).bind(5 * 1000, "float32")
        text = "star:2GB/s,300ns" if bound.schedule.helpers else ("two-level", "ring")[k % 2]
        how: dict[str, Any] = {"reduce_Bps": 2e9 if k % 5 else None, "delay_ns": {k % 5: 1234.5}}
        how |= {"rendezvous_bytes": 0} if k % 4 == 0 else {}
        replay = simulate(bound, parse(text, 5), policy=policy, **how)
        chain = replay.chain
        assert chain[0].begin_ns == 0
        assert chain[-1].end_ns == replay.written_ns.max()
        assert all(one.end_ns == two.begin_ns for one, two in pairwise(chain))
        for stage in chain:
            assert parts(stage) == pytest.approx(stage.end_ns - stage.begin_ns, abs=1e-3)
            assert min(getattr(stage, f"{part}_ns") for part in PARTS) >= -1e-6


def parts(stage: Stage) -> float:
    return sum(getattr(stage, f"{part}_ns") for part in PARTS)
