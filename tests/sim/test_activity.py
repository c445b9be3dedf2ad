"""What ranks did all the time, by hand; and that it sums up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chunkscope.sim.activity import STATES, Activity
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.order import POLICIES, Policy
from chunkscope.sim.replay import Replay, simulate
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.topology import parse

# 1 byte a nanosecond and 1 µs a link: a message of 1,000 bytes takes 2,000 ns over one link.
EASY = "1GB/s,1us"


def run(rows: list[Transfer], n: int, **how: Any) -> Replay:
    plan = Schedule.of("all_reduce", "test", n, rows, input=range(2), output=range(2))
    return simulate(plan.bind(2000, "int8"), parse(f"fully:{EASY}", n), **how)


def of_rank(activity: Activity, rank: int) -> dict[str, float]:
    """The states that a rank was in at all."""
    return {state: time for state, time in list(activity.table())[rank].items() if time}


def test_a_chain_waits_from_its_front_and_is_done_from_its_back() -> None:
    bound = build("broadcast", "chain", 4, segments=1).bind(1000, "int8")
    activity = simulate(bound, parse(f"line:{EASY}", 4)).activity
    assert of_rank(activity, 0) == {"sending": 2000, "done": 4000}
    assert of_rank(activity, 1) == {"receiving": 2000, "sending": 2000, "done": 2000}
    assert of_rank(activity, 2) == {"waiting": 2000, "receiving": 2000, "sending": 2000}
    assert of_rank(activity, 3) == {"waiting": 4000, "receiving": 2000}
    assert activity.waits == ((3, 2, 4000.0), (2, 1, 2000.0))


def test_ranks_behind_a_slow_link_wait_for_the_one_before_them() -> None:
    bound = build("all_reduce", "ring", 4).bind(4000, "int8")
    topology = parse(f"ring:{EASY}", 4).with_link("r0", "r1", bandwidth_Bps=0.1e9)
    activity = simulate(bound, topology).activity
    assert activity.waiting_ns[[0, 1]].tolist() == [0, 0], "the slow link is theirs"
    assert {(wait.rank, wait.on) for wait in activity.waits} == {(2, 1), (3, 2)}


def test_reducing_counts_where_nothing_else_is_under_way() -> None:
    rows = [Transfer(0, 0, 0, 1, 0, 0, 1, True), Transfer(1, 0, 1, 0, 0, 0)]
    activity = run(rows, 2, reduce_Bps=1e9).activity
    assert of_rank(activity, 1) == {"receiving": 2000, "reducing": 1000, "sending": 2000}
    assert of_rank(activity, 0) == {"sending": 2000, "waiting": 1000, "receiving": 2000}
    assert activity.waits == ((0, 1, 1000.0),)
    assert activity.idle_ns.tolist() == [1000, 0]


def test_a_rank_is_late_until_it_comes_and_the_others_wait_for_it() -> None:
    activity = run([Transfer(0, 0, 0, 1, 0, 0)], 3, delay_ns={0: 500}).activity
    assert of_rank(activity, 0) == {"late": 500, "sending": 2000}
    assert of_rank(activity, 1) == {"waiting": 500, "receiving": 2000}
    assert of_rank(activity, 2) == {"done": 2500}


def test_both_ways_at_once_is_an_exchange() -> None:
    rows = [Transfer(0, 0, 0, 1, 0, 0), Transfer(0, 0, 1, 0, 1, 1)]
    assert of_rank(run(rows, 2).activity, 0) == {"exchanging": 2000}


def test_under_lockstep_all_wait_for_the_last_of_the_step_before() -> None:
    rows = [Transfer(0, 0, 0, 1, 0, 0, 2), Transfer(0, 0, 2, 3, 0, 0), Transfer(1, 0, 2, 0, 1, 1)]
    activity = run(rows, 4, policy="lockstep").activity
    assert activity.waits == ((2, 1, 1000.0),)


@pytest.mark.parametrize("policy", POLICIES)
def test_states_of_a_rank_sum_up_to_the_duration(policy: Policy) -> None:
    for entry in algorithms(group_size=4)[POLICIES.index(policy) :: 3]:
        bound = build(entry.collective, entry.name, 4).bind(4096, "float32")
        text = "star:2GB/s,300ns" if bound.schedule.helpers else "two-level"
        how = {"reduce_Bps": 2e9, "delay_ns": {2: 1234.5}}
        replay = simulate(bound, parse(text, 4), policy=policy, **how)
        activity = replay.activity
        total = sum(getattr(activity, f"{state}_ns") for state in STATES)
        np.testing.assert_allclose(total, replay.exact_duration_ns, rtol=1e-12)
        assert min(getattr(activity, f"{state}_ns").min() for state in STATES) >= 0
        waited = sum(wait.time_ns for wait in activity.waits)
        assert waited == pytest.approx(activity.waiting_ns.sum(), abs=1e-6)
