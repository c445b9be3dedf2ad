"""The step model's parameters: what each does to a time that is worked out by hand."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import networkx as nx
import numpy as np
import pytest

from chunkscope.commands.common import model_of
from chunkscope.commands.making import sim
from chunkscope.errors import ScheduleError, TopologyError
from chunkscope.sim import planning
from chunkscope.sim.changes import Change, parse_change
from chunkscope.sim.closed import closed_form
from chunkscope.sim.costs import Costs
from chunkscope.sim.library import build
from chunkscope.sim.model import Model
from chunkscope.sim.order import POLICIES
from chunkscope.sim.replay import Replay, simulate
from chunkscope.sim.report import summary
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.spec import Spec
from chunkscope.sim.topology import Topology, parse

# 1 byte a nanosecond and 1 µs a link: a message of 1,000 bytes takes 2,000 ns over one link.
EASY = "1GB/s,1us"


def send(step: int, src: int, dst: int, slot: int = 0, *, reduce: bool = False) -> Transfer:
    return Transfer(step, 0, src, dst, slot, slot, reduce=reduce)


def run(
    rows: Sequence[Transfer],
    n: int,
    topology: str | Topology = f"fully:{EASY}",
    *,
    slot_bytes: int = 1000,
    **how: Any,
) -> Replay:
    every = range(4)
    plan = Schedule.of("all_reduce", "test", n, rows, input=every, output=every)
    if isinstance(topology, str):
        topology = parse(topology, n)
    return simulate(plan.bind(4 * slot_bytes, "int8"), topology, **how)


def arrivals(replay: Replay) -> list[int]:
    return replay.t_arrived_ns.tolist()


# Costs of a machine.


def test_costs_come_from_the_topology_unless_the_model_says_otherwise() -> None:
    costs = Costs(message_ns=300, header_bytes=16.5, reduce_Bps=0.5e9)
    machine = replace(parse(f"fully:{EASY}", 2), costs=costs)
    machine = Topology.from_json(machine.to_json())
    assert machine.costs == costs
    row = [send(0, 0, 1, reduce=True)]
    assert run(row, 2, machine).exact_duration_ns == 2316.5 + 2000
    assert run(row, 2, machine, message_ns=0, reduce_Bps=float("inf")).exact_duration_ns == 2016.5
    assert run(row, 2, machine, header_bytes=0).model["header_bytes"] == 0
    assert run(row, 2, machine).model["message_ns"] == 300


def test_a_file_keeps_its_costs_where_fewer_ranks_are_placed_on_it(tmp_path: Path) -> None:
    costs = Costs(message_ns=300, rendezvous_bytes=4096)
    file = tmp_path / "machine.json"
    file.write_text(replace(parse("star", 8), costs=costs).to_json())
    machine = parse(str(file), 4)
    assert machine.n_ranks == 4
    assert Model().costs(machine) == costs
    assert Model(rendezvous_bytes=0).costs(machine) == replace(costs, rendezvous_bytes=0)


@pytest.mark.parametrize(
    ("costs", "says"),
    [
        ('{"header_bytes": -1}', "header_bytes is -1"),
        ('{"reduce_Bps": 0}', "reduce_Bps is 0.0, expected a number above 0"),
        ('{"colour": 1}', "costs has 'colour', expected any of message_ns, header_bytes"),
    ],
)
def test_impossible_costs_in_a_file_are_refused(costs: str, says: str) -> None:
    text = parse("star", 2).to_json()[:-1] + f',"costs":{costs}}}'
    with pytest.raises(TopologyError, match=says):
        Topology.from_json(text)


# Rendezvous.


@pytest.mark.parametrize("policy", POLICIES)
def test_a_message_with_rendezvous_waits_for_the_receivers_notice(policy: Any) -> None:
    # Both enter the step at once: the notice takes 1,000 ns, then the message its 2,000.
    assert arrivals(run([send(0, 0, 1)], 2, policy=policy, rendezvous_bytes=1000)) == [3000]
    assert arrivals(run([send(0, 0, 1)], 2, policy=policy, rendezvous_bytes=1001)) == [2000]


def test_a_notice_that_came_before_the_data_costs_nothing() -> None:
    # Rank 1 has nothing to send: it is ready for step 1 from the start, long before rank 0 is.
    rows = [send(0, 2, 0), send(1, 0, 1)]
    assert arrivals(run(rows, 3, rendezvous_bytes=0)) == [3000, 5000]
    # Rank 1 sends in step 0, which takes until 3,000: its notice comes at 4,000.
    rows = [send(0, 2, 0), send(0, 1, 2, 1), send(1, 0, 1)]
    assert arrivals(run(rows, 3, rendezvous_bytes=0)) == [3000, 3000, 6000]


def test_a_late_receivers_notice_is_late() -> None:
    late = run([send(0, 0, 1)], 2, rendezvous_bytes=0, delay_ns={1: 500})
    assert arrivals(late) == [3500]
    assert late.t_start_ns.tolist() == [1500]


def test_a_notice_takes_the_way_back() -> None:
    graph = nx.DiGraph()
    graph.add_edge("r0", "r1", bandwidth_Bps=1e9, latency_ns=1000)
    with pytest.raises(TopologyError, match=r"no path from rank 1 \(r1\) back to rank 0 \(r0\)"):
        run([send(0, 0, 1)], 2, Topology.of(graph), rendezvous_bytes=0)
    graph.add_edge("r1", "r0", bandwidth_Bps=1e9, latency_ns=4000)
    assert arrivals(run([send(0, 0, 1)], 2, Topology.of(graph), rendezvous_bytes=0)) == [6000]
    slow = run([send(0, 0, 1)], 2, Topology.of(graph), rendezvous_bytes=0, slow={1: 2})
    assert arrivals(slow) == [2 * 6000]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "double_tree"])
def test_rendezvous_is_the_same_in_program_order_and_by_events(algorithm: str, policy: Any) -> None:
    bound = build("all_reduce", algorithm, 7).bind(7 * 5, "float32")
    model = Model(policy=policy, rendezvous_bytes=20, delay_ns={3: 700}, jitter=0.3)
    work = planning.plan(bound, parse(f"fully:{EASY}", 7), model)
    first, _ = work.in_program_order()
    second = work.by_events(sharing=False)
    for name in ("start", "arrived", "written"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=1e-12)


# Segments.


def test_a_long_message_travels_as_segments_with_a_header_and_a_cost_each() -> None:
    row, each = [send(0, 0, 1)], {"message_ns": 100, "header_bytes": 10}
    assert arrivals(run(row, 2, segment_bytes=1000, **each)) == [1000 + 100 + 1010]
    assert arrivals(run(row, 2, segment_bytes=300, **each)) == [1000 + 4 * 100 + 1000 + 4 * 10]
    assert arrivals(run(row, 2, slot_bytes=0, segment_bytes=300, **each)) == [1000 + 100 + 10]
    assert arrivals(run(row, 2, segment_bytes=300)) == [2000]  # what costs nothing changes nothing


@pytest.mark.parametrize(("collective", "algorithm"), [("all_reduce", "ring"), ("barrier", "tree")])
def test_fixed_costs_and_headers_are_in_the_closed_forms(collective: str, algorithm: str) -> None:
    each = {"message_ns": 300.0, "header_bytes": 16.0}
    bound = build(collective, algorithm, 8).bind(800 if collective == "all_reduce" else 0, "int8")
    replay = simulate(bound, parse(f"fully:{EASY}", 8), policy="lockstep", **each)
    terms = closed_form(collective, algorithm, 8, bound.size_bytes)
    assert replay.exact_duration_ns == pytest.approx(terms.time_ns(1000, 1e9, **each), rel=1e-12)


# Jitter.


def test_jitter_stretches_each_message_by_up_to_its_share() -> None:
    rows = [send(step, 0, 1) for step in range(200)]
    replay = run(rows, 2, jitter=0.1, seed=1)
    took = replay.arrived_ns - replay.start_ns
    assert took.min() >= 2000
    assert took.max() < 2200
    assert 2090 < took.mean() < 2110  # uniform
    assert len(set(took.tolist())) == 200


def test_the_same_seed_draws_the_same() -> None:
    bound, star = build("all_reduce", "ring", 8).bind(800, "float32"), parse("star", 8)
    first, again, other = (simulate(bound, star, jitter=0.2, seed=seed) for seed in (5, 5, 6))
    assert first.times.arrived.tobytes() == again.times.arrived.tobytes()
    assert first.times.arrived.tobytes() != other.times.arrived.tobytes()
    assert first.model["seed"] == 5
    assert "seed" not in simulate(bound, star).model


def test_draws_belong_to_messages_and_not_to_places_in_an_array() -> None:
    few = run([send(0, 0, 1), send(1, 0, 1)], 4, jitter=1.0)
    rows = [send(0, 2, 3), send(0, 0, 1), send(0, 3, 1, 1), send(5, 0, 1), send(6, 0, 1)]
    more = run(rows, 4, jitter=1.0)

    def took(replay: Replay) -> list[float]:
        of = (replay.schedule.src == 0) & (replay.schedule.dst == 1)
        return (replay.arrived_ns - replay.start_ns)[of].tolist()

    assert took(more)[:2] == pytest.approx(took(few), abs=1e-6)


# Slow ranks.


def test_a_slow_rank_takes_longer_for_all_it_does() -> None:
    rows = [send(0, 0, 1, reduce=True), send(0, 2, 3, reduce=True)]
    replay = run(rows, 4, slow={1: 3}, message_ns=100, reduce_Bps=1e9)
    assert arrivals(replay) == [3 * 2100, 2100]
    assert replay.t_written_ns.tolist() == [3 * 3100, 3100]
    assert replay.model["slow"] == {"1": 3}
    # A link between two slow ranks is as slow as the slower.
    assert arrivals(run([send(0, 0, 1)], 2, slow={0: 2, 1: 3})) == [6000]
    # Through a switch each has a link of its own: 3 + 1 µs, and 3 ns a byte.
    assert arrivals(run([send(0, 0, 1)], 2, f"star:{EASY}", slow={1: 3})) == [7000]


# Links.


def test_two_directions_of_a_half_duplex_link_share_its_rate() -> None:
    rows = [send(0, 0, 1), send(0, 1, 0, 1)]
    assert arrivals(run(rows, 2)) == [2000, 2000]
    half = run(rows, 2, duplex="half")
    assert arrivals(half) == [3000, 3000]
    assert half.model["duplex"] == "half"
    assert arrivals(run(rows, 2, duplex="half", sharing=False)) == [2000, 2000]
    one_way = run([send(0, 0, 1)], 2, duplex="half", changes=["r1>r0:fails"])
    assert arrivals(one_way) == [2000]


def test_a_slower_link_and_one_that_failed_from_the_start() -> None:
    row = [send(0, 0, 1)]
    assert arrivals(run(row, 4, f"ring:{EASY}", changes=["r0-r1:x4"])) == [1000 + 4000]
    assert arrivals(run(row, 4, f"ring:{EASY}", changes=["r1>r0:x4"])) == [2000]
    assert arrivals(run(row, 4, f"ring:{EASY}", changes=["r0-r1:2GB/s"])) == [1500]
    around = run(row, 4, f"ring:{EASY}", changes=["r0-r1:fails"])
    assert arrivals(around) == [3 * 1000 + 1000]
    assert around.model["changes"] == ["r0-r1:fails"]


def test_only_paths_that_lose_a_link_change() -> None:
    # Without r0-r1, a grid is no grid; the other paths stay as they were, dimension by dimension.
    grid = parse(f"torus:4x4:{EASY}", 16)
    bound = build("all_to_all", "direct", 16).bind(16 * 16, "int8")
    built = planning.plan(bound, grid, Model()).program
    broken = planning.plan(bound, grid, Model(changes=(Change("r0", "r1"),))).program
    links = [
        [p.path_links[p.path_starts[k] : p.path_starts[k + 1]].tolist() for k in range(240)]
        for p in (built, broken)
    ]
    gone = {int(link) for link in grid.links_between("r0", "r1")}
    changed = [k for k in range(240) if links[0][k] != links[1][k]]
    assert changed == [k for k in range(240) if gone & set(links[0][k])]
    assert not any(gone & set(path) for path in links[1])


def test_ranks_that_are_cut_off_are_named() -> None:
    says = r"no path from rank 0 \(r0\) to rank 1 \(r1\) from the start, since r1-switch failed"
    with pytest.raises(TopologyError, match=says):
        run([send(0, 0, 1)], 2, f"star:{EASY}", changes=["switch-r1:fails"])


def test_a_link_that_does_not_exist_is_named() -> None:
    with pytest.raises(TopologyError, match="no link from 'r0' to 'r7'; known: switch"):
        run([send(0, 0, 1)], 2, f"star:{EASY}", changes=["r0-r7:fails"])


@pytest.mark.parametrize("sharing", [True, False])
def test_a_link_that_slows_down_while_a_message_is_on_it(sharing: bool) -> None:
    # Bytes flow from 1,000 on; half of them are left at 1,500.
    row = [send(0, 0, 1)]
    slowed = run(row, 2, changes=["r0-r1:x4@1500ns"], sharing=sharing)
    assert arrivals(slowed) == [1500 + 4 * 500]
    back = run(row, 2, changes=["r0-r1:x4@1500ns", "r0-r1:x1@1900ns"], sharing=sharing)
    assert arrivals(back) == [1900 + 400]
    assert arrivals(run(row, 2, changes=["r0-r1:x4@2us"], sharing=sharing)) == [2000]


def test_a_link_that_fails_while_it_runs_is_gone_around_until_it_is_back() -> None:
    # The first message goes on over the three other links; the second starts with their latency
    # at 2,000, the third at 6,000 on the link that is back.
    rows = [send(step, 0, 1) for step in range(3)]
    replay = run(rows, 4, f"ring:{EASY}", changes=["r0-r1:fails@1500ns", "r0-r1:x1@5us"])
    assert arrivals(replay) == [2000, 6000, 8000]
    # It shares the way around with what is there already.
    rows = [send(0, 0, 1), send(0, 0, 3, 1)]
    assert arrivals(run(rows, 4, f"ring:{EASY}", changes=["r0-r1:fails@1500ns"])) == [2500, 2500]


def test_cut_off_ranks_matter_only_if_a_message_needs_them_then() -> None:
    row = [send(0, 0, 1)]
    late = run(row, 2, f"star:{EASY}", changes=["switch-r1:fails@3us"])
    assert arrivals(late) == [3000]
    says = r"no path from .* to rank 1 \(r1\) from 2\.90 µs on, since r1-switch failed, .* at 2\.90"
    with pytest.raises(TopologyError, match=says):
        run(row, 2, f"star:{EASY}", changes=["switch-r1:fails@2900ns"])
    # It fails and is back before anybody needs it.
    again = ["switch-r1:fails@100ns", "switch-r1:x1@200ns"]
    assert arrivals(run(row, 2, f"star:{EASY}", changes=again, delay_ns={0: 200})) == [3200]


def test_a_switch_that_reduces_and_is_cut_off_is_named() -> None:
    bound = build("all_reduce", "nvls", 4).bind(16, "float32")
    with pytest.raises(TopologyError, match=r"no path from rank 2 \(r2\) to helper switch"):
        simulate(bound, parse(f"star:{EASY}", 4), changes=["r2-switch:fails"])


# Ports.


def test_messages_wait_for_a_free_port_at_both_ends() -> None:
    rows = [send(0, 0, peer, peer) for peer in (1, 2, 3)]
    free = run(rows, 4)
    assert arrivals(free) == [2000, 2000, 2000]
    assert arrivals(run(rows, 4, ports=3)) == [2000, 2000, 2000]
    assert arrivals(run(rows, 4, ports=2)) == [2000, 2000, 4000]
    assert arrivals(run(rows, 4, ports=1)) == [2000, 4000, 6000]
    into_one = [send(0, peer, 0, peer) for peer in (1, 2, 3)]
    assert sorted(arrivals(run(into_one, 4, ports=1))) == [2000, 4000, 6000]
    # Sending and receiving have ports of their own.
    assert arrivals(run([send(0, 0, 1), send(0, 1, 0, 1)], 2, ports=1)) == [2000, 2000]
    assert run(rows, 4, ports=1).model["ports"] == 1


# What is said.


def test_the_model_says_all_that_is_not_as_usual() -> None:
    rows = [send(0, 0, 1)]
    usual = run(rows, 2).model
    assert json.loads(json.dumps(usual)) == usual
    assert not {"jitter", "seed", "slow", "changes", "ports", "segment_bytes"} & set(usual)
    how = {"jitter": 0.5, "seed": 3, "slow": {0: 2.0}, "segment_bytes": 10, "duplex": "half"}
    told = run(rows, 2, **how, rendezvous_bytes=5, burst_bytes=7).model
    assert told == usual | how | {"slow": {"0": 2.0}, "rendezvous_bytes": 5, "burst_bytes": 7}


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"jitter": -0.1}, "jitter is -0.1, expected 0 or more"),
        ({"jitter": float("nan")}, "jitter is nan"),
        ({"jitter": "10%"}, "jitter is '10%', expected a number"),
        ({"seed": 1.5}, "seed is 1.5, expected 0 or more, whole"),
        ({"seed": 1 << 64}, "seed is 18446744073709551616, expected at most"),
        ({"ports": 0}, "ports is 0, expected 1 or more, whole"),
        ({"ports": True}, "ports is True, expected a number"),
        ({"segment_bytes": 0}, "segment_bytes is 0, expected 1 or more"),
        ({"rendezvous_bytes": -1}, "rendezvous_bytes is -1"),
        ({"reduce_Bps": float("nan")}, "reduce_Bps is nan, expected a number above 0"),
        ({"slow": {0: 0.5}}, "slow of rank 0 is 0.5, expected 1 or more"),
        ({"slow": {4: 2}}, "slow rank 4, expected 0 to 3"),
        ({"duplex": "quarter"}, "duplex is 'quarter', expected full or half"),
        ({"changes": ["r0-r1"]}, "expected :fails, :x4 or :10GB/s after the link"),
        ({"changes": [Change("r0", "r9")]}, "no link from 'r0' to 'r9'"),
    ],
)
def test_impossible_parameters_name_the_field(how: dict[str, Any], says: str) -> None:
    with pytest.raises((ScheduleError, TopologyError), match=says):
        simulate(build("all_reduce", "ring", 4), parse("ring", 4), **how)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("r0-switch:fails", Change("r0", "switch")),
        ("r0-switch:fails@2ms", Change("r0", "switch", 2e6)),
        ("r0>switch:x4@1500ns", Change("r0", "switch", 1500, slower=4, both_ways=False)),
        ("r0-r1:12.5GB/s@1us", Change("r0", "r1", 1000, 12.5e9)),
        ("a-1--b-2:x1.5", Change("a-1", "b-2", slower=1.5)),
        ("nic0.1-leaf0:x1@3s", Change("nic0.1", "leaf0", 3e9, slower=1)),
    ],
)
def test_a_change_reads_as_it_is_written(text: str, change: Change) -> None:
    assert parse_change(text) == change
    assert parse_change(str(change)) == change


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("r0-r1", 5),
        ("r0:fails", 2),
        ("r0-r1:dies", 6),
        ("r0-r1:x0.5", 6),
        ("r0-r1:x2@soon", 9),
        ("r0-r1:10GB/h", 6),
        ("a-1-b:x2", 3),
        ("r0-r1:x1..2", 6),
    ],
)
def test_a_wrong_change_is_pointed_at(text: str, at: int) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_change(text)
    _, shown, caret = str(caught.value).rsplit("\n", 2)
    assert shown == f"  {text}"
    assert caret == f"  {' ' * at}^"


# The command line.

EVERYTHING = Model(
    policy="rank_step",
    sharing=False,
    reduce_Bps=12.5e9,
    message_ns=1500.25,
    header_bytes=16.5,
    delay_ns={2: 1e6, 0: 3.0},
    rendezvous_bytes=float("inf"),
    burst_bytes=1 << 20,
    segment_bytes=1 << 21,
    ports=2,
    jitter=0.125,
    seed=7,
    slow={3: 1.5},
    changes=(Change("r0", "r1", 2e6), Change("r1", "r2", slower=3, both_ways=False)),
    duplex="half",
)


def test_a_command_line_repeats_the_model() -> None:
    spec = Spec("all_reduce", "ring", 4, model=EVERYTHING)
    args = shlex.split(spec.command())[2:]
    words = sim.make_context("sim", args).params
    assert model_of(words) == EVERYTHING
    assert Spec("all_reduce").command() == "chunkscope sim all_reduce"
    assert Spec("all_reduce", model=EVERYTHING).command("run") == "chunkscope run all_reduce"


def test_a_summary_tells_what_is_not_as_usual() -> None:
    machine = replace(parse(f"star:{EASY}", 2), costs=Costs(header_bytes=16))
    lines = list(summary(run([send(0, 0, 1)], 2, machine, jitter=0.1, seed=7)))
    assert "With --jitter 10% --seed 7 --header 16" in lines
    assert not any("With" in line for line in summary(run([send(0, 0, 1)], 2)))


@pytest.mark.parametrize(
    ("flag", "text", "says"),
    [
        ("--link", "r0-r1:dies", "'dies': expected fails, x4 or 10GB/s"),
        ("--slow-rank", "3", "expected RANK:xTIMES"),
        ("--slow-rank", "3:2", "'2' is no factor, expected x2"),
        ("--delay", "2:soon", "time 'soon' is no number with a unit"),
        ("--jitter", "much", "'much' is no share, expected 10% or 0.1"),
        ("--ports", "many", "'many' is no whole number"),
        ("--header", "12 parsecs", "unknown unit"),
    ],
)
def test_a_wrong_option_is_named(flag: str, text: str, says: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        sim.make_context("sim", ["all_reduce", flag, text])
    assert says in str(caught.value)
    assert caught.value.param is not None
    assert flag in caught.value.param.opts
