"""How could this be done? The same inputs through algorithms of the library; charts of times."""

from __future__ import annotations

import numpy as np
import pytest

from chunkscope.dashboard.figures import size_chart, times_by_size
from chunkscope.dashboard.how import could_be, ways
from chunkscope.errors import ScheduleError
from chunkscope.sim.spec import Spec
from chunkscope.traces.trace import Group, Meta, Trace


def called(collective: str, inputs: list[list[float]], op: str | None = "SUM") -> Trace:
    """A call of some ranks as torch saw it: inputs, but no messages."""
    n = len(inputs)
    events = {
        "file": [f"h-{r}" for r in range(n)],
        "seq": [0] * n,
        "rank": list(range(n)),
        "group_rank": list(range(n)),
        "group": [0] * n,
        "coll_seq": [0] * n,
        "kind": ["collective"] * n,
        "provenance": ["called"] * n,
        "collective": [collective] * n,
        "reduce_op": [op] * n,
        "root": [1 if collective == "broadcast" else None] * n,
        "size_bytes": [4 * len(inputs[0])] * n,
        "dtype": ["float32"] * n,
        "t_issue_ns": [0] * n,
        "t_end_ns": [1] * n,
    }
    states = {
        "event": list(range(n)),
        "when": ["before"] * n,
        "role": ["input"] * n,
        "index": [0] * n,
        "dtype": ["float32"] * n,
        "shape": [[len(values)] for values in inputs],
        "data": [np.array(values, "<f4").tobytes() for values in inputs],
    }
    return Trace.build(events, states, Meta(groups=(Group(tuple(range(n))),)))


def outputs(trace: Trace) -> list[list[float]]:
    found = []
    for row in trace.where(kind="collective"):
        (state,) = trace.states_of(int(row), when="after", role="output")
        values = trace.values(int(state))
        assert values is not None
        found.append(values.reshape(-1).tolist())
    return found


@pytest.mark.parametrize("algorithm", ["ring", "tree", "gloo"])
def test_recorded_inputs_go_through_an_algorithm(algorithm: str) -> None:
    trace = called("all_reduce", [[1.0, 5.0], [2.0, 7.0], [4.0, 9.0]])
    simulated = could_be(trace, 0, algorithm)
    assert outputs(simulated) == [[7.0, 21.0]] * 3
    assert simulated.events["provenance"].texts == ("simulated",)


def test_the_recorded_operation_is_used() -> None:
    trace = called("all_reduce", [[1.0], [2.0], [4.0]], op="MAX")
    assert outputs(could_be(trace, 0, "tree")) == [[4.0]] * 3


def test_broadcast_keeps_its_root() -> None:
    trace = called("broadcast", [[0.0], [123.0], [0.0]], op=None)
    assert outputs(could_be(trace, 0, "tree")) == [[123.0]] * 3


def test_ways_are_the_algorithms_that_fit_the_fastest_first() -> None:
    trace = called("all_reduce", [[1.0] * 64] * 4)
    found = ways(trace, 0)
    assert {"ring", "tree"} <= {way.algorithm for way in found}
    times = [way.time_ns for way in found]
    assert times == sorted(times)
    ring = next(way for way in found if way.algorithm == "ring")
    assert (ring.steps, ring.messages) == (6, 24)


def test_inputs_that_were_not_kept_whole_are_left_out() -> None:
    trace = called("all_reduce", [[1.0], [2.0]])
    bare = Trace.build(
        {name: trace.events[name].to_list() for name in trace.events.columns}, {}, trace.meta
    )
    simulated = could_be(bare, 0, "ring")
    assert len(simulated.calls()) == 1
    states = range(len(simulated.states))
    assert all(simulated.values(state) is None for state in states)


@pytest.mark.parametrize("algorithm", ["evil.py:run", "os:system", "nonsense"])
def test_only_names_of_the_library_are_taken(algorithm: str) -> None:
    with pytest.raises(ScheduleError, match="unknown algorithm"):
        could_be(called("all_reduce", [[1.0], [2.0]]), 0, algorithm)


def test_a_call_that_is_not_there() -> None:
    with pytest.raises(ScheduleError, match="call 3 of 1"):
        could_be(called("all_reduce", [[1.0], [2.0]]), 3, "ring")


def test_curves_cross_where_bytes_begin_to_matter() -> None:
    spec = Spec("all_reduce", "ring", 8, topology="fully:100GB/s,1us")
    curves = {curve.algorithm: curve for curve in times_by_size(spec, (1 << 10, 1 << 28))}
    ring, tree = curves["ring"].time_ns, curves["tree"].time_ns
    assert tree[0] < ring[0]
    assert ring[1] < tree[1]


def test_chart_draws_the_chosen_one_in_ink() -> None:
    curves = times_by_size(Spec("all_reduce", "ring", 4), (1 << 10, 1 << 20))
    light = size_chart(curves, "ring", "light")
    lines = {trace.name: trace.line for trace in light.data}
    assert lines["ring"].color == "#141a22"
    assert lines["tree"].color != lines["ring"].color
    assert lines["tree"].dash != "solid"
    dark = size_chart(curves, "ring", "dark")
    assert dark.data[0].line.color == "#f2f5f8"
    assert light.layout.paper_bgcolor == "rgba(0,0,0,0)"
