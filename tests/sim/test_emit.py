"""A replay as a trace: what each event and state says, as a recording of an execution has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chunkscope.sim.library import algorithms, build
from chunkscope.sim.replay import simulate
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.text import parse as parse_schedule
from chunkscope.sim.topology import Topology, parse
from chunkscope.sim.values import default_inputs
from chunkscope.traces.trace import Trace

NAMED = [(e.collective, e.name, n) for n in (1, 2, 3, 5) for e in algorithms(group_size=n)]


def ring(values: bool = True, **how: Any) -> Trace:
    bound = build("all_reduce", "ring", 4).bind(16, "float32")
    replay = simulate(bound, parse("ring:1GB/s,1us", 4), **how)
    return replay.trace(default_inputs(bound) if values else None)


def test_first_message_of_a_ring_is_told_at_both_ends() -> None:
    trace = ring(reduce_Bps=1e9)
    common = {
        "file": "sim", "group": 0, "coll_seq": 0, "provenance": "simulated", "status": "ok",
        "collective": "all_reduce", "algorithm": "ring", "step": 0, "channel": 0, "message": 0,
        "part": 0, "slot": 3, "n_slots": 1, "offset_bytes": 48, "size_bytes": 16,
        "dtype": "float32",
    }  # fmt: skip
    here = {"place": 0, "rank": 0, "group_rank": 0, "peer": 1, "peer_group_rank": 1, "parent": 0}
    there = {"place": 1, "rank": 1, "group_rank": 1, "peer": 0, "peer_group_rank": 0, "parent": 1}
    way = {"t_issue_ns": 0, "t_start_ns": 0, "t_end_ns": 1016, "reduces": True}
    work = {"t_issue_ns": 1016, "t_start_ns": 1016, "t_end_ns": 1032, "reduce_op": "SUM"}
    rows = [trace.events.row(row) for row in (4, 5, 6)]
    assert rows[0] == {**common, **here, **way, "seq": 4, "kind": "send"}
    assert rows[1] == {**common, **there, **way, "seq": 5, "kind": "recv"}
    assert rows[2] == {**common, **there, **work, "seq": 6, "kind": "reduce"}


def test_collective_rows_span_what_happens_inside() -> None:
    trace = ring()
    rows = trace.where(kind="collective")
    assert rows.tolist() == [0, 1, 2, 3]
    for row in rows.tolist():
        cells = trace.events.row(row)
        assert (cells["size_bytes"], cells["reduce_op"], cells["schedule"]) == (64, "SUM", 0)
        inside = trace.where(parent=row)
        assert cells["t_end_ns"] == trace.events["t_end_ns"].values[inside].max()
    assert len(trace.calls()) == 1


def test_states_hold_numbers_and_contributors() -> None:
    trace = ring()
    send, recv, reduce = 4, 5, 6
    (sent,) = trace.states_of(send)
    assert trace.states["role"][sent] == "payload"
    assert trace.values(sent).tolist() == [1000.0] * 4
    (got,) = trace.states_of(recv)
    assert trace.values(got).tolist() == [1000.0] * 4
    before, after = trace.states_of(reduce)
    assert trace.values(before).tolist() == [2000.0] * 4
    assert trace.values(after).tolist() == [3000.0] * 4
    cells = [trace.states[name][after] for name in ("when", "role", "index", "contributors")]
    assert cells == ["after", "slot", 3, [0, 1]]
    (end,) = trace.states_of(3, role="output")
    assert trace.values(end).tolist() == [10.0] * 4 + [100.0] * 4 + [1000.0] * 4 + [10000.0] * 4
    assert trace.states["contributors"][end] == [0, 1, 2, 3]


def test_without_inputs_there_are_contributors_but_no_numbers() -> None:
    trace = ring(values=False)
    assert len(trace.states) == len(ring().states)
    assert not trace.states["data"].valid.any()
    assert trace.states["contributors"].valid.all()


def test_plain_recv_shows_its_slot_only_where_there_was_something_before() -> None:
    bound = build("all_reduce", "ring", 2).bind(2, "float32")
    trace = simulate(bound, parse("ring", 2)).trace(default_inputs(bound))
    plain = int(trace.where(kind="recv", reduces=False)[0])
    found = [(trace.states["when"][s], trace.states["role"][s]) for s in trace.states_of(plain)]
    assert sorted(found) == [("after", "payload"), ("after", "slot"), ("before", "slot")]
    gathered = build("all_gather", "ring", 2).bind(2, "float32")
    trace = simulate(gathered, parse("ring", 2)).trace(default_inputs(gathered))
    recv = int(trace.where(kind="recv")[0])
    found = [(trace.states["when"][s], trace.states["role"][s]) for s in trace.states_of(recv)]
    assert sorted(found) == [("after", "payload"), ("after", "slot")]


@pytest.mark.parametrize(("collective", "name", "n"), NAMED)
def test_every_message_is_sent_once_and_received_once(collective: str, name: str, n: int) -> None:
    bound = build(collective, name, n).bind(4 * n, "float32")
    trace = simulate(bound, parse("star", n)).trace(default_inputs(bound))
    schedule = bound.schedule
    messages = int((schedule.src != schedule.dst).sum())
    assert len(trace.where(kind="send")) == len(trace.where(kind="recv")) == messages
    assert len(trace.where(kind="reduce")) == int(schedule.reduce.sum())
    key = ("channel", "message", "part", "size_bytes", "t_start_ns", "t_end_ns")
    ends = []
    for kind, src, dst in (("send", "rank", "peer"), ("recv", "peer", "rank")):
        rows = trace.where(kind=kind).tolist()
        names = (src, dst, *key)
        told = [tuple(trace.events[name][row] for name in names) for row in rows]
        ends.append(sorted(told, key=repr))  # a switch has no rank: None
    assert ends[0] == ends[1]
    assert len(set(ends[0])) == messages


def test_local_rows_are_one_event() -> None:
    rows = [Transfer(0, 0, 0, 0, 0, 1), Transfer(1, 0, 0, 0, 1, 0, 1, True)]
    schedule = Schedule.of("all_reduce", "local", 1, rows, input=[0], output=[0], scratch=[1])
    bound = schedule.bind(2, "float32")
    trace = simulate(bound, parse("ring", 1), reduce_Bps=1e9).trace([[1, 2]])
    assert [trace.events["kind"][row] for row in range(3)] == ["collective", "copy", "reduce"]
    copy, reduce = trace.events.row(1), trace.events.row(2)
    assert "offset_bytes" not in copy, "it goes to scratch memory"
    assert (copy["peer"], copy["t_start_ns"], copy["t_end_ns"]) == (0, 0, 8)
    assert reduce["reduce_op"] == "SUM"
    assert trace.values(trace.states_of(2, when="after")[0]).tolist() == [2.0, 4.0]


def test_helpers_are_places_without_a_rank() -> None:
    up = [Transfer(0, 0, rank, 2, 0, 0, 1, True) for rank in (0, 1)]
    down = [Transfer(1, 0, 2, rank, 0, 0) for rank in (0, 1)]
    schedule = Schedule.of(
        "all_reduce", "in_network", 2, up + down, input=[0], output=[0], helpers=["switch"]
    )
    bound = schedule.bind(1000, "int8")
    replay = simulate(bound, parse("star:1GB/s,1us", 2))
    assert replay.duration_ns == 4000, "up one link, down one link"
    trace = replay.trace(default_inputs(bound))
    at_switch = trace.where(kind="recv", place=2)
    assert len(at_switch) == 2
    cells = trace.events.row(int(at_switch[0]))
    assert {"rank", "group_rank", "parent"}.isdisjoint(cells)
    assert (cells["peer"], cells["peer_group_rank"]) == (0, 0)
    sent = trace.events.row(int(trace.where(kind="send", rank=0)[0]))
    assert "peer" not in sent
    assert sent["peer_group_rank"] == 2


def test_packed_rows_are_parts_of_one_message() -> None:
    rows = [Transfer(0, 0, 0, 1, slot, slot) for slot in (0, 2)]
    schedule = Schedule.of("all_reduce", "packed", 2, rows, input=range(3), output=range(3))
    trace = simulate(schedule.bind(30, "float32"), parse("line", 2)).trace()
    sends = trace.where(kind="send").tolist()
    assert [trace.events["part"][row] for row in sends] == [0, 1]
    assert [trace.events["message"][row] for row in sends] == [0, 0]
    assert len({trace.events["t_end_ns"][row] for row in sends}) == 1


def test_trace_carries_plan_network_and_model() -> None:
    meta = ring(policy="lockstep").meta
    assert parse_schedule(meta.schedules[0]) == build("all_reduce", "ring", 4)
    assert Topology.from_json(meta.topology or "") == parse("ring:1GB/s,1us", 4)
    assert meta.model["policy"] == "lockstep"
    assert meta.groups[0].ranks == (0, 1, 2, 3)
    assert meta.world_size == 4


def test_large_tensors_are_sampled() -> None:
    bound = build("broadcast", "chain", 2, segments=1).bind(100_000, "float32")
    values = np.arange(100_000, dtype=np.float32)
    trace = simulate(bound, parse("line", 2)).trace([values, None])
    (state,) = trace.states_of(0, role="input")
    assert trace.states["data"][state] is None
    assert trace.states["digest_of"][state] == "sample"
    assert trace.values(state).tolist() == list(range(16))
    assert trace.states["max"][state] <= 99_999


def test_average_divides_the_output_alone() -> None:
    bound = build("all_reduce", "ring", 2).bind(2, "float32")
    trace = simulate(bound, parse("ring", 2)).trace([[2, 4], [4, 8]], op="AVG")
    assert trace.values(trace.states_of(0, role="output")[0]).tolist() == [3.0, 6.0]
    slots = [
        trace.values(s).tolist()
        for r in trace.where(kind="reduce")
        for s in trace.states_of(int(r), when="after")
    ]
    assert sorted(slots) == [[6.0], [12.0]]
