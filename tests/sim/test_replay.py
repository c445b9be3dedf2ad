"""The step model: closed forms to the nanosecond, policies and contention by hand, and its laws."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkscope.errors import ScheduleError, TopologyError
from chunkscope.sim import cost
from chunkscope.sim.closed import closed_form
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.order import POLICIES, Policy
from chunkscope.sim.replay import Replay, simulate
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.topology import Topology, parse

# 1 byte a nanosecond and 1 µs a link: a message of 1,000 bytes takes 2,000 ns over one link.
EASY = "1GB/s,1us"


def plan(
    rows: Sequence[Transfer], n: int, slots: int = 4, *, window: int = 1, after: Any = ()
) -> Schedule:
    """A plan that moves slots about, right or wrong."""
    every = range(slots)
    return Schedule.of(
        "all_reduce", "test", n, rows, input=every, output=every, window=window, after=after
    )


def run(
    rows: Sequence[Transfer],
    n: int,
    topology: str = f"fully:{EASY}",
    *,
    slots: int = 4,
    slot_bytes: int = 1000,
    **how: Any,
) -> Replay:
    order = {name: how.pop(name) for name in ("window", "after") if name in how}
    bound = plan(rows, n, slots, **order).bind(slots * slot_bytes, "int8")
    return simulate(bound, parse(topology, n), **how)


def send(step: int, src: int, dst: int, slot: int = 0, *, to: int | None = None) -> Transfer:
    return Transfer(step, 0, src, dst, slot, slot if to is None else to)


# Closed forms.


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4, 8, 17])
@pytest.mark.parametrize("name", ["ring", "ring_tutorial"])
def test_uncontended_ring_equals_its_closed_form_to_the_nanosecond(
    name: str, n_ranks: int, policy: Policy
) -> None:
    bound = build("all_reduce", name, n_ranks).bind(n_ranks * 12_345, "float32")
    replay = simulate(bound, parse("ring:7GB/s,1.3us", n_ranks), policy=policy)
    expected = 2 * (n_ranks - 1) * (1300 + bound.size_bytes / n_ranks / 7)
    assert replay.duration_ns == round(expected)
    terms = closed_form("all_reduce", "ring", n_ranks, bound.size_bytes)
    assert terms.time_ns(1300, 7e9) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["reduce_scatter", "all_gather"])
def test_half_rings_take_half_the_time(name: str) -> None:
    bound = build(name, "ring", 8).bind(8 * 1000, "float32")
    replay = simulate(bound, parse(f"ring:{EASY}", 8))
    assert replay.duration_ns == 7 * (1000 + 4000)
    assert replay.algbw_Bps == 32_000 / 35_000 * 1e9
    assert replay.busbw_Bps == pytest.approx(replay.algbw_Bps * 7 / 8)


def test_reduce_costs_once_a_step_of_the_first_half() -> None:
    bound = build("all_reduce", "ring", 4).bind(4000, "int8")
    replay = simulate(bound, parse(f"ring:{EASY}", 4), reduce_Bps=0.5e9)
    assert replay.duration_ns == 6 * 2000 + 3 * 2000
    terms = closed_form("all_reduce", "ring", 4, 4000)
    assert replay.duration_ns == terms.time_ns(1000, 1e9, 0.5e9)


def test_fixed_cost_and_header_belong_to_the_message() -> None:
    replay = run([send(0, 0, 1)], 2, message_ns=300, header_bytes=16)
    assert replay.duration_ns == 1000 + 300 + 1000 + 16
    assert replay.link_bytes["r0", "r1"] == 1016


# SimGrid SMPI 3.32, CM02, 12.5e9 B/s and 1 µs a link, 16 bytes a message more: its printed digits.
STAR = "star:12.5GB/s,1us"


def halving(n: int) -> Schedule:
    """Recursive doubling: all_reduce of the whole vector with the rank at distance 1, 2, 4..."""
    bits = range(n.bit_length() - 1)
    rows = [Transfer(k, 0, r, r ^ (1 << k), 0, 0, 1, True) for k in bits for r in range(n)]
    return Schedule.of("all_reduce", "rdb", n, rows, input=[0], output=[0])


def rabenseifner(n: int) -> Schedule:
    """Recursive halving, then recursive doubling, of n chunks."""
    rows, bits = [], n.bit_length() - 1
    for k in range(bits):
        half = n >> (k + 1)
        for r in range(n):
            kept = (r ^ half) // half * half
            rows.append(Transfer(k, 0, r, r ^ half, kept, kept, half, True))
    for k in range(bits):
        half = 1 << k
        for r in range(n):
            own = r // half * half
            rows.append(Transfer(bits + k, 0, r, r ^ half, own, own, half, False))
    return Schedule.of("all_reduce", "rab", n, rows, input=range(n), output=range(n))


@pytest.mark.parametrize(
    ("schedule", "size_bytes", "expected_s"),
    [
        (build("all_reduce", "ring", 8), 64_000_000, 8.988017920e-3),
        (build("all_reduce", "ring", 8), 1_024_000_000, 1.433880179200e-1),
        (build("all_reduce", "ring", 8), 8_000, 2.913792e-5),
        (build("all_reduce", "ring", 64), 64_000_000, 1.033216128e-2),
        (build("all_reduce", "ring", 64), 64_000, 2.622412800e-4),
        (halving(8), 64_000_000, 1.536600384e-2),
        (halving(64), 1024, 1.249920e-5),
        (rabenseifner(8), 64_000_000, 8.972007680e-3),
        (rabenseifner(64), 64_000, 3.409536e-5),
        (build("broadcast", "tree", 8), 64_000_000, 1.536600384e-2),
        (build("broadcast", "tree", 64), 64_000_000, 3.073200768e-2),
        (build("all_gather", "ring", 64), 64_000_000, 5.166080640e-3),
    ],
)
def test_predictions_equal_simgrid_in_all_its_digits(
    schedule: Schedule, size_bytes: int, expected_s: float
) -> None:
    bound = schedule.bind(size_bytes, "int8")
    topology = parse(STAR, schedule.group_size)
    replay = simulate(bound, topology, policy="rank_step", header_bytes=16)
    assert replay.exact_duration_ns / 1e9 == pytest.approx(expected_s, rel=1e-9)


# Policies, one small plan each.


def test_dataflow_sends_early_rank_step_waits_for_both_ends_lockstep_for_all() -> None:
    rows = [send(0, 0, 1), send(1, 2, 1, 1), send(1, 2, 3, 2)]
    starts = {policy: run(rows, 4, policy=policy).t_start_ns.tolist() for policy in POLICIES}
    assert starts["dataflow"] == [0, 0, 0]
    assert starts["rank_step"] == [0, 2000, 0], "rank 1 is busy with its step 0"
    assert starts["lockstep"] == [0, 2000, 2000]


def test_a_read_waits_for_written_and_the_senders_next_step_for_arrived() -> None:
    rows = [
        Transfer(0, 0, 0, 1, 0, 0, 1, True),
        send(1, 0, 2, 1),  # rank 0's next step
        send(1, 1, 2, 0),  # reads what was reduced
    ]
    replay = run(rows, 3, reduce_Bps=1e9)
    assert replay.t_arrived_ns.tolist() == [2000, 4000, 5000]
    assert replay.t_written_ns[0] == 3000
    assert replay.t_start_ns.tolist() == [0, 2000, 3000]


def test_early_arrival_is_held_until_the_slot_has_been_read_and_its_sender_goes_on() -> None:
    rows = [
        Transfer(0, 0, 0, 1, 1, 1, 3),  # rank 0 is busy for 4,000 ns
        send(1, 0, 1, 0),  # then it reads slot 0
        send(2, 2, 0, 0),  # which this is to overwrite
        send(3, 2, 1, 3),
    ]
    replay = run(rows, 3)
    assert replay.t_start_ns.tolist() == [0, 4000, 0, 2000]
    assert replay.t_arrived_ns[2] == 2000
    assert replay.t_written_ns[2] == 4000, "held until the message of row 1 took its snapshot"


def test_writes_of_one_slot_happen_in_program_order() -> None:
    rows = [Transfer(0, 0, 0, 2, 0, 0, 1, True), Transfer(0, 0, 1, 2, 0, 0, 1, True)]
    replay = run(rows, 3, reduce_Bps=0.25e9)
    assert replay.t_arrived_ns.tolist() == [2000, 2000]
    assert replay.t_written_ns.tolist() == [6000, 10000]


@pytest.mark.parametrize(("window", "expected"), [(1, 8000), (2, 6000), (4, 5000)])
def test_window_hides_latency_but_not_bytes(window: int, expected: int) -> None:
    rows = [send(step, 0, 1, step) for step in range(4)]
    assert run(rows, 2, window=window).duration_ns == expected


def test_messages_of_one_step_do_not_wait_for_each_other() -> None:
    replay = run([send(0, 0, 1), send(0, 0, 2, 1)], 3)
    assert replay.t_arrived_ns.tolist() == [2000, 2000]


def test_rows_of_one_message_share_latency_and_times() -> None:
    replay = run([send(0, 0, 1, 0), send(0, 0, 1, 2)], 2)
    assert replay.t_start_ns.tolist() == [0, 0]
    assert replay.t_arrived_ns.tolist() == [3000, 3000]


def test_local_rows_take_no_time_unless_reducing_does() -> None:
    rows = [Transfer(0, 0, 0, 0, 0, 1, 1, True), send(1, 0, 1, 1)]
    assert run(rows, 2).t_arrived_ns.tolist() == [0, 2000]
    replay = run(rows, 2, reduce_Bps=1e9)
    assert replay.t_written_ns.tolist() == [1000, 3000]


def test_empty_messages_take_their_latency() -> None:
    assert run([send(0, 0, 1)], 2, slot_bytes=0).duration_ns == 1000


def test_after_orders_channels() -> None:
    rows = [Transfer(0, 0, 0, 1, 0, 0), Transfer(0, 1, 1, 2, 1, 1)]
    assert run(rows, 3).t_start_ns.tolist() == [0, 0]
    assert run(rows, 3, after=[(1, 0)]).t_start_ns.tolist() == [0, 2000]


def test_rows_that_wait_for_each_other_are_a_deadlock() -> None:
    rows = [send(0, 0, 1, 0), send(0, 1, 0, 1)]
    with pytest.raises(ScheduleError, match=r"policy dataflow: row \d .*row \d ") as caught:
        run(rows, 2, after=[(0, 1), (1, 0)])
    assert caught.value.code == "DEADLOCK"


def test_a_policy_that_waits_more_may_deadlock_alone() -> None:
    rows = [send(0, 0, 1, 0), send(1, 2, 0, 1)]
    assert run(rows, 3, after=[(0, 1)]).t_start_ns.tolist() == [2000, 0]
    for policy in ("rank_step", "lockstep"):
        with pytest.raises(ScheduleError, match=f"deadlock under policy {policy}: row") as caught:
            run(rows, 3, after=[(0, 1)], policy=policy)
        assert caught.value.code == "DEADLOCK"


# The network.


def test_messages_share_a_link_by_hand() -> None:
    # All into rank 0, whose link carries three messages: 2 µs, then 3,000 bytes.
    rows = [send(0, rank, 0, rank) for rank in (1, 2, 3)]
    replay = run(rows, 4, f"star:{EASY}")
    assert replay.t_arrived_ns.tolist() == [5000, 5000, 5000]
    assert replay.link_bytes["switch", "r0"] == 3000
    assert run(rows, 4, f"star:{EASY}", sharing=False).t_arrived_ns.tolist() == [3000] * 3


def test_a_link_that_becomes_free_goes_to_the_others() -> None:
    rows = [send(0, 1, 0, 0), Transfer(0, 0, 2, 0, 1, 1, 2)]
    replay = run(rows, 3, f"star:{EASY}")
    # Half each for 2,000 ns; the longer one has 1,000 bytes left and the link for itself.
    assert replay.t_arrived_ns.tolist() == [2000 + 2000, 2000 + 3000]


def test_reducing_costs_the_same_where_links_are_shared() -> None:
    rows = [Transfer(0, 0, rank, 0, rank, 0, 1, True) for rank in (1, 2)]
    replay = run(rows, 3, f"star:{EASY}", reduce_Bps=1e9)
    assert replay.t_arrived_ns.tolist() == [4000, 4000]
    assert replay.t_written_ns.tolist() == [5000, 6000]


def test_hosts_share_their_way_out() -> None:
    rows = [send(0, rank, rank + 2, 0) for rank in (0, 1)]
    replay = run(rows, 4, "two-level:2x2:10GB/s,0ns:1GB/s,0ns")
    assert replay.t_arrived_ns.tolist() == [2000, 2000]


@pytest.mark.parametrize("segments", [1, 2, 4, 8])
def test_chain_is_a_pipeline(segments: int) -> None:
    bound = build("broadcast", "chain", 5, segments=segments).bind(8000, "int8")
    replay = simulate(bound, parse(f"line:{EASY}", 5))
    assert replay.duration_ns == (5 - 2 + segments) * (1000 + 8000 // segments)
    terms = closed_form("broadcast", "chain", 5, 8000, segments=segments)
    assert replay.duration_ns == terms.time_ns(1000, 1e9)


@pytest.mark.parametrize("name", ["broadcast", "reduce"])
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 5, 8])
def test_tree_takes_a_message_a_level(name: str, n_ranks: int) -> None:
    bound = build(name, "tree", n_ranks).bind(1000, "int8")
    replay = simulate(bound, parse(f"fully:{EASY}", n_ranks), policy="rank_step")
    assert replay.duration_ns == closed_form(name, "tree", n_ranks, 1000).time_ns(1000, 1e9)


def test_a_slow_link_spreads_one_rank_a_step() -> None:
    bound = build("all_reduce", "ring", 4).bind(4000, "int8")
    topology = parse(f"ring:{EASY}", 4).with_link("r0", "r1", bandwidth_Bps=0.1e9)
    replay = simulate(bound, topology)
    schedule = bound.schedule
    start = {
        (int(s), int(r)): int(t) for s, r, t in zip(schedule.step, schedule.src, replay.t_start_ns)
    }
    fast, slow = 2000, 11_000
    assert [start[1, rank] for rank in range(4)] == [slow, slow, fast, fast]
    assert [start[2, rank] for rank in range(4)] == [2 * slow, 2 * slow, slow + fast, 2 * fast]
    assert replay.duration_ns == 6 * slow
    assert {int(schedule.src[row]) for row in replay.critical_path} == {0}


def test_a_late_rank_delays_everybody_and_is_seen() -> None:
    bound = build("all_reduce", "ring", 4).bind(4000, "int8")
    replay = simulate(bound, parse(f"ring:{EASY}", 4), delay_ns={2: 50_000})
    first = replay.t_start_ns[bound.schedule.step == 0]
    assert sorted(first.tolist()) == [0, 0, 0, 50_000]
    assert replay.duration_ns == 50_000 + 6 * 2000
    trace = replay.trace()
    assert trace.events["t_start_ns"][int(trace.where(kind="collective", rank=2)[0])] == 50_000


def test_who_waits_for_a_late_rank_depends_on_the_policy() -> None:
    rows = [send(0, 0, 1), send(0, 2, 3)]
    starts = {
        policy: run(rows, 4, policy=policy, delay_ns={1: 500}).t_start_ns.tolist()
        for policy in POLICIES
    }
    assert starts == {"dataflow": [0, 0], "rank_step": [500, 0], "lockstep": [500, 500]}
    late = run([send(0, 0, 1)], 2, delay_ns={1: 5000})
    assert (late.t_arrived_ns.tolist(), late.t_written_ns.tolist()) == ([2000], [5000])


def test_critical_path_is_a_chain_of_messages_each_waiting_for_the_one_before() -> None:
    bound = build("broadcast", "chain", 4, segments=3).bind(3000, "int8")
    replay = simulate(bound, parse(f"line:{EASY}", 4))
    path = list(replay.critical_path)
    assert replay.t_start_ns[path[0]] == 0
    assert replay.t_written_ns[path[-1]] == replay.duration_ns
    assert replay.t_start_ns[path[1:]].tolist() == replay.t_written_ns[path[:-1]].tolist()
    assert run([], 2).critical_path == ()


# What is refused.


def test_topology_of_another_size_is_refused() -> None:
    bound = build("all_reduce", "ring", 4).bind(4, "float32")
    with pytest.raises(TopologyError, match="has 5 ranks, the schedule 4"):
        simulate(bound, parse("ring", 5))


def test_ranks_without_a_path_are_named() -> None:
    bound = build("all_reduce", "ring", 4).bind(4, "float32")
    with pytest.raises(TopologyError, match=r"no path from rank 1 \(r1\) to rank 2"):
        simulate(bound, parse("line", 4).without_link("r1", "r2"))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"policy": "chaos"}, "unknown policy 'chaos'; known: dataflow, rank_step, lockstep"),
        ({"reduce_Bps": 0.0}, "reduce_Bps is 0.0, expected a number above 0"),
        ({"message_ns": -1}, "message_ns is -1, expected 0 or more"),
        ({"header_bytes": -1}, "header_bytes is -1"),
        ({"delay_ns": {4: 5.0}}, "delay of rank 4, expected 0 to 3"),
        ({"delay_ns": {0: float("nan")}}, "delay_ns of rank 0 is nan"),
    ],
)
def test_impossible_parameters_are_refused(how: dict[str, Any], says: str) -> None:
    with pytest.raises(ScheduleError, match=says):
        simulate(build("all_reduce", "ring", 4), parse("ring", 4), **how)


def test_times_beyond_int64_are_refused_with_the_way_out() -> None:
    bound = build("all_reduce", "ring", 2).bind(10**15, "int8")
    topology = parse("ring:1GB/s,1us", 2).with_link("r0", "r1", bandwidth_Bps=5e4)
    with pytest.raises(ScheduleError, match=r"take 634 years, more than the 292 that .* less data"):
        simulate(bound, topology)
    assert simulate(bound, parse("ring:1GB/s,1us", 2)).duration_ns == 10**15 + 2000


def test_a_replay_shows_itself_in_one_line() -> None:
    replay = run([send(0, 0, 1)], 2)
    assert repr(replay) == f"Replay(all_reduce by test, 2 ranks, 3.91 KiB on fully:{EASY}: 2.00 µs)"


def test_model_says_what_was_simulated() -> None:
    model = run([send(0, 0, 1)], 2, policy="rank_step", sharing=False, header_bytes=16).model
    assert (model["policy"], model["sharing"], model["header_bytes"]) == ("rank_step", "off", 16)
    assert model["topology"] == f"fully:{EASY}"
    assert model["version"]


# Laws, of the algorithms that there are; `test_properties` has those of random schedules.

TEXTS = ["ring:3GB/s,700ns", "line:1GB/s,1us", "star:2GB/s,0ns", "two-level", "fully:1GB/s,5us"]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Topology]:
    n = draw(st.integers(1, 9))
    entry = draw(st.sampled_from(algorithms(group_size=n)))
    count = n * draw(st.integers(0, 5000))
    bound = build(entry.collective, entry.name, n).bind(count, "float32")
    texts = [text for text in TEXTS if "star" in text or not bound.schedule.helpers]
    return bound, parse(draw(st.sampled_from(texts)), n)


@settings(max_examples=30, deadline=None)
@given(cases(), st.sampled_from(POLICIES))
def test_nothing_beats_the_lower_bounds_and_order_of_policies(
    case: tuple[Any, Topology], policy: Policy
) -> None:
    replay = simulate(*case, policy=policy)
    assert replay.duration_ns >= cost.lower_bound_ns(replay)
    assert (replay.written_ns >= replay.arrived_ns).all()
    assert (replay.arrived_ns >= replay.start_ns).all()


@settings(max_examples=20, deadline=None)
@given(cases(), st.sampled_from(POLICIES))
def test_every_byte_goes_over_every_link_of_its_path_and_no_link_is_overfull(
    case: tuple[Any, Topology], policy: Policy
) -> None:
    bound, topology = case
    replay = simulate(bound, topology, policy=policy)
    schedule = bound.schedule
    is_message = schedule.src != schedule.dst
    assert sum(replay.link_bytes.values()) >= bound.row_bytes[is_message].sum()
    for node in set(topology.ranks):
        place = topology.ranks.index(node)
        sent = sum(b for (a, _), b in replay.link_bytes.items() if a == node)
        got = sum(b for (_, to), b in replay.link_bytes.items() if to == node)
        own = bound.row_bytes[is_message & (schedule.src == place)].sum()
        arrived = bound.row_bytes[is_message & (schedule.dst == place)].sum()
        assert sent - own == got - arrived >= 0, "what passes through goes in and out"
    for (a, b), carried in replay.link_bytes.items():
        rate = topology.graph.edges[a, b]["bandwidth_Bps"]
        assert carried * 1e9 / rate <= replay.exact_duration_ns * (1 + 1e-9)


@settings(max_examples=20, deadline=None)
@given(cases(), st.sampled_from(POLICIES))
def test_both_passes_agree_where_no_link_is_shared(
    case: tuple[Any, Topology], policy: Policy
) -> None:
    bound, topology = case
    full = parse("fully:3GB/s,700ns", topology.n_ranks)
    full = topology if bound.schedule.helpers else full
    replay = simulate(bound, full, policy=policy, reduce_Bps=2e9, delay_ns={0: 123.0})
    work = replay._work
    times, met = work.in_program_order()
    events = work.by_events(sharing=not met)
    for name in ("start", "arrived", "written"):
        np.testing.assert_allclose(getattr(events, name), getattr(times, name), rtol=1e-12)


def test_same_inputs_same_trace_in_every_process() -> None:
    code = (
        "import sys, zlib\n"
        "from chunkscope.sim.library import build\n"
        "from chunkscope.sim.replay import simulate\n"
        "from chunkscope.sim.topology import parse\n"
        "from chunkscope.sim.values import default_inputs\n"
        "bound = build('all_reduce', 'tree', 6).bind(1000, 'float32')\n"
        "replay = simulate(bound, parse('two-level', 6))\n"
        "trace = replay.trace(default_inputs(bound))\n"
        "text = repr([trace.events.row(k) for k in range(len(trace))] + [trace.meta]\n"
        "            + [trace.states.row(k) for k in range(len(trace.states))])\n"
        "print(zlib.crc32(text.encode()), len(text), replay.critical_path)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
