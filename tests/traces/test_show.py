"""A trace in words."""

from __future__ import annotations

import chunkscope
from chunkscope.sim.spec import Spec
from chunkscope.traces import show
from chunkscope.traces.trace import Trace


def test_summary_tells_ranks_events_and_calls() -> None:
    lines = show.summary(Spec("all_reduce", "ring", 4).trace())
    assert lines[0].startswith("simulated trace of 4 ranks: 64 events")
    assert lines[1] == "calls: 1 × all_reduce by ring"


def test_summary_tells_what_did_not_end() -> None:
    trace = Trace.build(
        {
            "kind": ["collective", "send"],
            "status": ["begun", "error"],
            "collective": ["barrier"] * 2,
        }
    )
    assert "1 events have no end" in show.summary(trace)
    assert "1 events ended in an error" in show.summary(trace)


def test_events_show_values_before_and_after() -> None:
    trace = Spec("all_reduce", "tree", 2, size_bytes=4).trace()
    rows = trace.where(kind="reduce")
    header, events = show.event_rows(trace, rows)
    line = dict(zip(header, events[0], strict=True))
    assert line["values"] == "[1.0] → [3.0]"
    assert line["what"] == "reduce SUM"


def test_events_come_in_the_order_of_their_issue() -> None:
    trace = Spec("broadcast", "chain", 3).trace()
    rows = show.by_time(trace, trace.where(kind="send"))
    issued = [trace.events["t_issue_ns"][int(row)] for row in rows]
    assert issued == sorted(issued)


def test_long_values_are_cut_with_a_mark() -> None:
    trace = chunkscope.Trace.build(
        {"kind": ["send"]},
        {"event": [0], "dtype": ["int64"], "shape": [[9]], "data": [bytes(72)]},
    )
    assert show.values_text(trace, 0) == "[0, 0, 0, 0, …]"
