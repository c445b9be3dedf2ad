"""Exact contributors, and those that are derived from recorded rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chunkscope.errors import ScheduleError
from chunkscope.sim.contributors import NOTE, derive_contributors
from chunkscope.sim.flow import flow, flow_fits
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.replay import simulate
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.topology import parse as topology
from chunkscope.traces.columns import Column
from chunkscope.traces.schema import EVENTS, Type
from chunkscope.traces.trace import Trace

TYPES = {spec.name: spec.type for spec in EVENTS}


# Flow


def test_flow_of_a_ring() -> None:
    ring = build("all_reduce", "ring", 3)
    whose = flow(ring)
    row = next(k for k, t in enumerate(ring.transfers) if (t.step, t.src) == (1, 1))
    assert whose.chunk[row] == 2
    assert whose.contributors("payload", row) == [0, 1]
    assert whose.contributors("before", row) == [2]
    assert whose.contributors("after", row) == [0, 1, 2]
    assert (whose.payload[row], whose.before[row], whose.after[row]) == (0b011, 0b100, 0b111)
    assert whose.input_contributors(1) == [1]
    assert whose.output_contributors(1) == [0, 1, 2]


def test_flow_counts_how_often() -> None:
    rows = [Transfer(step, 0, 1, 0, 0, 0, 1, True) for step in range(3)]
    thrice = flow(Schedule.of("all_reduce", "x", 2, rows, input=[0], output=[0]))
    assert thrice.contributors("after", 2) == [0, 1, 1, 1]


def test_flow_of_rows_with_several_slots() -> None:
    rows = [Transfer(0, 0, 0, 1, 0, 0), Transfer(1, 0, 1, 2, 0, 0, 2)]
    gather = Schedule.of("all_gather", "x", 3, rows, input=[[0], [1], [2]], output=[0, 1, 2])
    whose = flow(gather)
    assert whose.contributors("payload", 1) == [0, 1]
    assert whose.payload.tolist() == [0b001, 0b011]
    assert whose.chunk.tolist() == [0, 0]


def test_what_is_empty_has_no_contributors() -> None:
    rows = [Transfer(0, 0, 1, 2, 0, 0), Transfer(1, 0, 0, 2, 0, 0)]
    whose = flow(Schedule.of("broadcast", "x", 3, rows, input=[0], output=[0], root=0))
    assert whose.contributors("payload", 0) == []
    assert whose.chunk.tolist() == [-1, 0]
    assert whose.output_contributors(1) == []
    assert whose.output_contributors(2) == [0]


def test_more_ranks_than_a_word_has_bits() -> None:
    whose = flow(build("reduce", "tree", 70))
    assert int(whose.after[-1]) == 2**70 - 1


def test_what_is_too_large_to_follow() -> None:
    ring = build("all_reduce", "ring", 256)
    assert not flow_fits(ring)
    with pytest.raises(ScheduleError, match="130560 rows on 256 ranks are too many to follow"):
        flow(ring)


# Derived contributors


def recorded(schedule: Schedule) -> Trace:
    """A trace as the executor records it: what happened, but not whose parts they were."""
    count = 8 * schedule.group_size
    trace = simulate(
        schedule.bind(count, "float32"), topology("star:1GB/s,1us", schedule.group_size)
    ).trace()
    n, m = len(trace.events), len(trace.states)
    events = trace.events.replace(provenance=Column.build(Type.TEXT, ["executed"] * n, n))
    states = trace.states.replace(contributors=Column.build(Type.INTS, None, m))
    return Trace(events, states, trace.meta)


def told(schedule: Schedule) -> list[Any]:
    count = 8 * schedule.group_size
    ranks = topology("star:1GB/s,1us", schedule.group_size)
    return simulate(schedule.bind(count, "float32"), ranks).trace().states["contributors"].to_list()


def altered(trace: Trace, name: str, cells: dict[int, Any]) -> Trace:
    column = trace.events[name].to_list()
    for row, cell in cells.items():
        column[row] = cell
    built = Column.build(TYPES[name], column, len(column))
    return Trace(trace.events.replace(**{name: built}), trace.states, trace.meta)


def contributors(trace: Trace, row: int, **cells: Any) -> list[int] | None:
    (state,) = trace.states_of(row, **cells)
    ranks: list[int] | None = trace.states["contributors"][state]
    return ranks


@pytest.mark.parametrize(
    ("entry", "n"),
    [
        pytest.param(entry, n, id=f"{entry.collective}-{entry.name}-{n}")
        for n in (1, 2, 3, 5)
        for entry in algorithms(group_size=n)
    ],
)
def test_derived_contributors_are_those_of_the_simulation(entry: Any, n: int) -> None:
    schedule = build(entry.collective, entry.name, n)
    derived = derive_contributors(recorded(schedule))
    assert derived.states["contributors"].to_list() == told(schedule)
    assert any(told(schedule))
    assert NOTE in derived.meta.notes
    assert derive_contributors(derived) == derived


def test_the_rows_are_believed_and_not_the_plan() -> None:
    """Rank 1 put what rank 0 sent into another slot than it should have."""
    trace = recorded(build("all_reduce", "ring", 3))
    (recv,) = trace.where(kind="recv", place=1, step=0)
    (reduce,) = trace.where(kind="reduce", place=1, step=0)
    assert trace.events["slot"][recv] == 2
    wrong = derive_contributors(altered(trace, "slot", {recv: 1, reduce: 1}))
    (sent,) = wrong.where(kind="send", place=1, step=1)  # sends slot 2, without rank 0's part
    assert contributors(wrong, sent) == [1]
    assert contributors(derive_contributors(trace), sent) == [0, 1]


def test_a_reduce_that_did_not_happen() -> None:
    trace = recorded(build("all_reduce", "ring", 3))
    (recv,) = trace.where(kind="recv", place=1, step=0)
    (reduce,) = trace.where(kind="reduce", place=1, step=0)
    overwritten = altered(trace, "reduces", {recv: False})
    overwritten = derive_contributors(altered(overwritten, "kind", {reduce: "copy"}))
    (sent,) = overwritten.where(kind="send", place=1, step=1)
    assert contributors(overwritten, sent) == [0]


def test_a_message_that_came_twice_counts_twice() -> None:
    trace = recorded(build("reduce", "chain", 2, segments=2))
    rows = np.concatenate([trace.where(kind=kind, step=1) for kind in ("send", "recv", "reduce")])
    twice = altered(trace, "slot", dict.fromkeys(rows.tolist(), 0))
    twice = derive_contributors(twice)
    (reduce,) = twice.where(kind="reduce", step=1)
    assert contributors(twice, reduce, when="after") == [0, 1, 1]


def test_the_plan_stands_in_for_an_end_that_was_not_recorded() -> None:
    """The sender's file is gone: what rank 1 received is known all the same."""
    trace = recorded(build("all_reduce", "tree", 4))
    kept = [row for row in range(len(trace)) if trace.events["place"][row] != 3]
    place = {row: k for k, row in enumerate(kept)}
    events = {
        name: [trace.events[name][row] for row in kept]
        for name in trace.events.columns
        if name != "parent"
    }
    states = [k for k, event in enumerate(trace.states["event"]) if event in place]
    cells = {name: [trace.states[name][k] for k in states] for name in trace.states.columns}
    cells["event"] = [place[event] for event in cells["event"]]
    partial = derive_contributors(Trace.build(events, cells, trace.meta))
    (reduce,) = partial.where(kind="reduce", place=2)
    assert contributors(partial, reduce, when="after") == [2, 3]


def test_a_call_that_cannot_be_derived_is_noted() -> None:
    trace = recorded(build("all_reduce", "ring", 3))
    row = int(trace.where(kind="recv", place=1, step=0)[0])
    broken = derive_contributors(altered(trace, "slot", {row: 99}))
    assert not any(broken.states["contributors"].to_list())
    assert broken.meta.notes[-1].startswith("contributors not derived: row 0: dst_slot 99 with 1")


def test_a_simulated_trace_stays_as_it_is() -> None:
    ring = build("all_reduce", "ring", 3)
    trace = simulate(ring.bind(3, "float32"), topology("full:1GB/s,1us", 3)).trace()
    assert derive_contributors(trace) is trace
