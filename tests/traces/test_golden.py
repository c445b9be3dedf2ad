"""The golden text: what a reviewer reads, the same for every interleaving, and read back whole."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

import chunkscope
from chunkscope.errors import TraceFormatError
from chunkscope.traces.diff import diff
from chunkscope.traces.golden import to_text
from chunkscope.traces.golden_parse import parse
from chunkscope.traces.schema import EVENTS, STATES, Provenance
from chunkscope.traces.trace import Group, Meta, Trace


def simulated(collective: str, algorithm: str, n: int, **parameters: Any) -> Trace:
    schedule = chunkscope.build(collective, algorithm, n, **parameters)
    bound = schedule.bind(12 * n, "float32")
    inputs = [np.arange(bound.input_elements(rank)) + 10.0 * rank for rank in range(n)]
    return chunkscope.simulate(bound, chunkscope.topology("full", n)).trace(inputs=inputs)


CASES = [
    ("all_reduce", "ring", 2, {}),
    ("all_reduce", "tree", 5, {}),
    ("all_gather", "ring", 3, {}),
    ("reduce_scatter", "ring", 4, {}),
    ("broadcast", "tree", 4, {"root": 2}),
    ("reduce", "chain", 3, {"root": 0}),
    ("all_reduce", "ring", 1, {}),
]


# The digests of 4 and of 2 float32 ones.
ONES_4, ONES_2 = (zlib.crc32(np.ones(n, "<f4").tobytes()) for n in (4, 2))


def test_the_text_is_what_a_reviewer_reads() -> None:
    schedule = chunkscope.build("all_reduce", "ring", 2)
    replay = chunkscope.simulate(schedule.bind(4, "float32"), chunkscope.topology("full", 2))
    lines = to_text(replay.trace(inputs=[np.ones(4), np.ones(4)])).splitlines()
    assert lines[:8] == [
        "chunkscope golden 1",
        "world 2",
        "group 0: ranks 0 1",
        "call 0: all_reduce #0 group=0 algorithm=ring op=SUM bytes=16 dtype=float32",
        f"  begin r0 before.input[0]={{0}}:{ONES_4:08x}",
        f"  begin r1 before.input[0]={{1}}:{ONES_4:08x}",
        "  step 0",
        f"    send r0 +> r1 #0 slot=1 bytes=8 at=8 before.payload[1]={{0}}:{ONES_2:08x}",
    ]
    assert lines[-1].startswith("  end r1 after.output[0]={0,1}:")
    assert sum("reduce r" in line for line in lines) == 2


@pytest.mark.parametrize(("collective", "algorithm", "n", "parameters"), CASES)
def test_a_trace_read_back_is_the_same_to_a_diff(
    collective: str, algorithm: str, n: int, parameters: dict[str, int]
) -> None:
    trace = simulated(collective, algorithm, n, **parameters)
    text = to_text(trace)
    back = parse(text)
    assert to_text(back) == text
    found = diff(back, trace)
    assert found.same, found.to_text()
    assert found.compared.split(" and ")[0].startswith(f"{len(trace)} event")
    assert f" {len(trace.states)} state" in found.compared
    assert len(back.calls()) == 1


def test_the_interleaving_and_the_times_do_not_show() -> None:
    trace = simulated("all_reduce", "ring", 3)
    events = {spec.name: trace.events[spec.name].to_list() for spec in EVENTS}
    states = {spec.name: trace.states[spec.name].to_list() for spec in STATES}
    events["seq"] = events["seq"][::-1]
    events["file"] = ["elsewhere"] * len(trace)
    events["host"] = ["node-9"] * len(trace)
    for name in ("t_issue_ns", "t_start_ns", "t_end_ns"):
        events[name] = [t * 3 + 17 for t in events[name]]
    assert to_text(Trace.build(events, states, trace.meta)) == to_text(trace)
    assert "sim" not in to_text(trace).replace("simulated", "")


def test_without_values_other_numbers_have_the_same_text() -> None:
    schedule = chunkscope.build("all_reduce", "ring", 2).bind(4, "float32")
    replay = chunkscope.simulate(schedule, chunkscope.topology("full", 2))
    a, b = (replay.trace(inputs=[np.full(4, x), np.ones(4)]) for x in (1.0, 2.0))
    assert to_text(a) != to_text(b)
    assert to_text(a, values=False) == to_text(b, values=False)
    assert ":" not in to_text(a, values=False).split("call 0:")[1]


def test_calls_of_the_user_are_told_with_their_function_and_read_back() -> None:
    trace = Trace.build(
        {
            "kind": ["collective", "collective", "send", "recv", "wait"],
            "provenance": ["called"] * 5,
            "file": ["a", "b", "a", "b", "b"],
            "seq": [0, 0, 1, 1, 2],
            "rank": [3, 5, 3, 5, 5],
            "group_rank": [0, 1, 0, 1, 1],
            "peer": [None, None, 5, 3, None],
            "peer_group_rank": [None, None, 1, 0, None],
            "group": [1] * 5,
            "coll_seq": [7, 7, None, None, None],
            "collective": ["all_gather", "all_gather", None, None, None],
            "api": ["all_gather_object", "all_gather_object", "send", "recv", None],
            "size_bytes": [8, 16, 4, 4, None],
            "dtype": ["int64", "int64", "float32", "float32", None],
            "message": [None, None, 0, 0, None],
            "tag": [None, None, 9, 9, None],
            "status": ["ok", "begun", "ok", "ok", "ok"],
        },
        {"event": [0], "when": ["before"], "role": ["input"], "index": [0], "shape": [[1, 1]]}
        | {"dtype": ["int64"], "digest": [255], "digest_of": ["sample"]},
        Meta(world_size=6, groups=(Group((0, 1)), Group((3, 5)))),
    )
    text = to_text(trace)
    assert text.splitlines() == [
        "chunkscope golden 1",
        "world 6",
        "group 0: ranks 3 5",
        "outside of a call group=0",
        "    send r3 -> r5 #0 bytes=4 dtype=float32 tag=9",
        "    recv r5 <- r3 #0 bytes=4 dtype=float32 tag=9",
        "call 0: all_gather #0 group=0 bytes=8 dtype=int64 api=all_gather_object",
        "  begin r3 before.input[0]=[1x1]:~000000ff",
        "  begin r5 bytes=16",
        "  end r3",
        "  end r5 status=begun",
    ]
    back = parse(text, provenance=Provenance.CALLED)
    assert to_text(back) == text
    assert back.events["t_end_ns"][int(back.where(status="begun")[0])] is None


def test_an_algorithm_of_the_users_own_shows_no_folder() -> None:
    trace = Trace.build(
        {"kind": ["collective"], "provenance": ["executed"], "coll_seq": [0], "rank": [0]}
        | {"collective": ["all_reduce"], "algorithm": ["/home/me/my plans.py:ring"]}
    )
    assert "algorithm=my_plans.py:ring" in to_text(trace)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "found an empty file, expected 'chunkscope golden 1'"),
        ("hello", 1, "found 'hello'"),
        ("chunkscope golden 1\nworld two", 2, "found 'world two'"),
        ("chunkscope golden 1\n\nthrow r0", 3, "expected world, group, call"),
        ("chunkscope golden 1\ncall 0: x #0\n  step 0\n    send q0", 4, "'q0' cannot be read"),
        ("chunkscope golden 1\ncall 0: x #0\n  end r0", 3, "found 'end r0'"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text: str, line: int, message: str) -> None:
    with pytest.raises(TraceFormatError, match=message) as caught:
        parse(text, file="golden/x.txt")
    assert caught.value.line == line
    assert "golden/x.txt" in str(caught.value)
