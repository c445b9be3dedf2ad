"""The diff: what it compares and what never, the first divergence in causal order, its meaning."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chunkscope
from chunkscope.errors import TraceMismatch
from chunkscope.traces.diff import diff
from chunkscope.traces.diff.report import TraceDiff, What
from chunkscope.traces.schema import EVENTS, STATES
from chunkscope.traces.trace import Group, Meta, Trace, encode

Cells = dict[str, list[Any]]


def simulated(
    collective: str = "all_reduce",
    algorithm: str = "ring",
    n: int = 3,
    count: int = 12,
    dtype: str = "float32",
    **parameters: Any,
) -> Trace:
    schedule = chunkscope.build(collective, algorithm, n, **parameters)
    bound = schedule.bind(count, dtype)
    inputs = [np.arange(bound.input_elements(rank)) + 10.0 * rank for rank in range(n)]
    replay = chunkscope.simulate(bound, chunkscope.topology("full", n))
    return replay.trace(inputs=inputs)


RING = simulated()


def changed(trace: Trace, change: Callable[[Cells, Cells], None]) -> Trace:
    """Return the trace after a change to its cells, by column."""
    events = {spec.name: trace.events[spec.name].to_list() for spec in EVENTS}
    states = {spec.name: trace.states[spec.name].to_list() for spec in STATES}
    change(events, states)
    return Trace.build(events, states, trace.meta)


def with_cell(trace: Trace, row: int, **cells: Any) -> Trace:
    def put(events: Cells, states: Cells) -> None:
        for name, value in cells.items():
            events[name][row] = value

    return changed(trace, put)


def without(trace: Trace, rows: list[int]) -> Trace:
    """Return the trace without some events; messages that follow keep their numbers' order."""
    keep = [row for row in range(len(trace)) if row not in rows]
    place = {row: k for k, row in enumerate(keep)}

    def drop(events: Cells, states: Cells) -> None:
        for name, cells in events.items():
            events[name] = [cells[row] for row in keep]
        events["parent"] = [place.get(parent) for parent in events["parent"]]
        kept = [k for k, event in enumerate(states["event"]) if event in place]
        for name, cells in states.items():
            states[name] = [cells[k] for k in kept]
        states["event"] = [place[event] for event in states["event"]]

    return changed(trace, drop)


def first_row(trace: Trace, **cells: Any) -> int:
    return int(trace.where(**cells)[0])


def first(found: TraceDiff) -> str:
    assert found.first is not None
    return found.first.text


CASES = [
    ("all_reduce", "ring", {}),
    ("all_reduce", "tree", {}),
    ("all_gather", "ring", {}),
    ("reduce_scatter", "ring", {}),
    ("broadcast", "tree", {"root": 1}),
    ("reduce", "chain", {"root": 2}),
]


@pytest.mark.parametrize(("collective", "algorithm", "parameters"), CASES)
def test_a_trace_equals_itself(collective: str, algorithm: str, parameters: dict[str, int]) -> None:
    trace = simulated(collective, algorithm, 4, **parameters)
    found = diff(trace, trace, times=True)
    assert found.same
    assert found.differences == ()
    assert found.compared == f"{len(trace)} events and {len(trace.states)} states"
    assert found.notes == ()


def test_times_are_compared_on_request_from_the_start_of_each_trace() -> None:
    times = ("t_issue_ns", "t_start_ns", "t_end_ns")

    def later(events: Cells, states: Cells) -> None:
        for name in times:
            events[name] = [t + 1_000_000 for t in events[name]]

    assert diff(RING, changed(RING, later), times=True).same
    row = first_row(RING, kind="recv", step=1, rank=2)
    slow = with_cell(RING, row, t_end_ns=(RING.events["t_end_ns"][row] or 0) + 5)
    assert diff(RING, slow).same
    found = diff(RING, slow, times=True)
    assert found.total == 1
    assert found.first is not None
    assert (found.first.what, found.first.column, found.first.b - found.first.a) == (
        What.TIME,
        "t_end_ns",
        5,
    )


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_interleaving_of_independent_events_does_not_matter(random: Any) -> None:
    """Shuffling rows, files and times changes nothing, as long as each edge keeps its order."""

    def shuffle(events: Cells, states: Cells) -> None:
        keys = [random.random() for _ in events["seq"]]
        by_edge: dict[tuple[Any, ...], list[int]] = {}
        for row in range(len(keys)):
            edge = tuple(events[name][row] for name in ("kind", "rank", "peer", "channel"))
            by_edge.setdefault(edge, []).append(row)
        for rows in by_edge.values():
            for row, key in zip(rows, sorted(keys[row] for row in rows), strict=True):
                keys[row] = key
        order = sorted(range(len(keys)), key=keys.__getitem__)
        for number, row in enumerate(order):
            events["seq"][row] = number
            events["file"][row] = "other"
            events["t_issue_ns"][row] = events["t_start_ns"][row] = number * 7

    assert diff(RING, changed(RING, shuffle)).same


# What a row can get wrong, and the sentence that must come first.
WRONG = [
    (
        {"kind": "recv", "rank": 2, "step": 1},
        {"slot": 9},
        "rank 2, all_reduce #0, step 1: receives from rank 1 into slot 9, expected slot 2",
    ),
    (
        {"kind": "send", "rank": 0, "step": 0},
        {"size_bytes": 99},
        "rank 0, all_reduce #0, step 0: size_bytes of the send to rank 1 is 99 bytes, "
        "expected 16 bytes",
    ),
    (
        {"kind": "recv", "rank": 1, "step": 0},
        {"reduces": False},
        "rank 1, all_reduce #0, step 0: what comes from rank 0 overwrites slot 2, expected that "
        "it is combined with it",
    ),
    (
        {"kind": "collective", "rank": 0},
        {"reduce_op": "MAX"},
        "rank 0, all_reduce #0: the reduce op is MAX, expected SUM",
    ),
    (
        {"kind": "collective", "rank": 1},
        {"status": "begun"},
        "rank 1, all_reduce #0: it ended as begun, expected ok",
    ),
    (
        {"kind": "send", "rank": 1, "step": 1},
        {"step": 3},
        "rank 1, all_reduce #0, step 1: sends to rank 2 from slot 2 in step 3 instead",
    ),
]


@pytest.mark.parametrize(("where", "cells", "sentence"), WRONG)
def test_a_wrong_cell_is_one_difference_and_one_sentence(
    where: dict[str, Any], cells: dict[str, Any], sentence: str
) -> None:
    found = diff(RING, with_cell(RING, first_row(RING, **where), **cells))
    assert found.total == 1
    assert first(found) == sentence
    assert found.first is not None
    assert found.first.column == next(iter(cells))


def test_contributors_say_whose_part_is_missing_or_twice() -> None:
    row = first_row(RING, kind="recv", rank=2, step=2)
    state = int(RING.states_of(row, role="payload")[0])
    due = RING.states["contributors"][state]
    assert due == [0, 1, 2]
    for wrong, meaning in (
        ([0, 1], "rank 2's own part is missing"),
        ([2], "the parts of ranks 0, 1 are missing"),
        ([0, 1, 1, 2], "rank 1's part is in it twice"),
        ([0, 1, 2, 7], "rank 7's part should not be in it"),
    ):

        def put(events: Cells, states: Cells, wrong: list[int] = wrong) -> None:
            states["contributors"][state] = wrong

        found = diff(RING, changed(RING, put))
        shown = ",".join(map(str, wrong))
        assert first(found) == (
            f"rank 2, all_reduce #0, step 2: received {{{shown}}} from rank 1, "
            f"expected {{0,1,2}}: {meaning}"
        )


def test_values_are_compared_bit_by_bit_or_within_the_dtypes_tolerance() -> None:
    row = first_row(RING, kind="collective", rank=1)
    state = int(RING.states_of(row, role="output")[0])
    values = RING.values(state)
    assert values is not None

    def with_values(change: Any) -> Trace:
        def put(events: Cells, states: Cells) -> None:
            states["data"][state] = encode(change, "float32")

        return changed(RING, put)

    tiny = values.astype(np.float32).copy()
    tiny[3] = np.nextafter(tiny[3], np.float32(1e9))
    nudged = with_values(tiny)
    found = diff(RING, nudged)
    assert found.total == 1
    assert first(found).startswith(
        "rank 1, all_reduce #0: output differs at 1 of 12 elements, first at [3]: "
    )
    assert diff(RING, nudged, values="close").same
    assert not diff(RING, nudged, values="close", rtol=0.0, atol=0.0).same
    far = with_values(values + np.float32(1))
    assert "first at [0]: 31, expected 30, at most 1 apart" in first(
        diff(RING, far, values="close")
    )
    assert diff(RING, far, values="ignore").same
    odd = tiny.copy()
    odd[0] = np.nan
    assert diff(with_values(odd), with_values(odd), values="close").same
    assert not diff(RING, with_values(odd), values="close").same


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32"])
def test_the_tolerance_follows_the_dtype(dtype: str) -> None:
    trace = simulated(dtype=dtype)
    row = first_row(trace, kind="collective", rank=0)
    state = int(trace.states_of(row, role="output")[0])
    # One unit in the last place of every element.
    raw = np.frombuffer(trace.states["data"][state], np.uint8).copy()
    raw[:: len(raw) // 12] ^= 1

    def put(events: Cells, states: Cells) -> None:
        states["data"][state] = raw.tobytes()

    other = changed(trace, put)
    assert not diff(trace, other).same
    assert diff(trace, other, values="close").same == (dtype != "int32")


def test_digests_and_statistics_stand_in_for_bytes_that_were_not_kept() -> None:
    def only_digests(events: Cells, states: Cells) -> None:
        trace = RING
        states["digest"] = [trace.digest(state) for state in range(len(trace.states))]
        for name, reduce in (("min", np.min), ("max", np.max), ("mean", np.mean)):
            states[name] = [float(reduce(trace.values(s))) for s in range(len(trace.states))]
        states["data"] = [None] * len(states["data"])

    digests = changed(RING, only_digests)
    assert diff(RING, digests).same
    assert diff(digests, digests).same

    def wrong(events: Cells, states: Cells) -> None:
        states["digest"][0] += 1

    other = changed(digests, wrong)
    assert "input differs: digest" in first(diff(digests, other))
    assert diff(digests, other, values="close").same  # smallest, largest and mean agree


def test_a_missing_message_is_one_difference() -> None:
    gone = {"step": 1}
    rows = [
        first_row(RING, kind="send", rank=0, **gone),
        first_row(RING, kind="recv", peer=0, **gone),
        first_row(RING, kind="reduce", peer=0, **gone),
    ]

    def renumbered(events: Cells, states: Cells) -> None:
        for row, message in enumerate(events["message"]):
            if events["kind"][row] in ("send", "recv", "reduce") and message is not None:
                src = "rank" if events["kind"][row] == "send" else "peer"
                if events[src][row] == 0 and message > 1:
                    events["message"][row] = message - 1

    fewer = changed(without(RING, rows), renumbered)
    sentence = "all_reduce #0, step 1: the message from rank 0 to rank 1 (slot 1, 16 bytes)"
    found = diff(RING, fewer)
    assert first(found) == f"{sentence} is not in B"
    assert [d.what for d in found.differences] == [What.MESSAGE]
    back = diff(fewer, RING)
    assert first(back) == f"{sentence} is not in A"


def test_one_call_more_does_not_shift_the_others() -> None:
    def calls(names: list[str]) -> Trace:
        n = len(names)
        return Trace.build(
            {
                "kind": ["collective"] * 2 * n,
                "provenance": ["called"] * 2 * n,
                "file": ["a"] * n + ["b"] * n,
                "seq": [*range(n), *range(n)],
                "rank": [0] * n + [1] * n,
                "group_rank": [0] * n + [1] * n,
                "group": [0] * 2 * n,
                "coll_seq": [*range(n), *range(n)],
                "collective": names * 2,
                "t_issue_ns": [*range(n), *range(n)],
            },
            meta=Meta(world_size=2, groups=(Group((0, 1)),)),
        )

    a = calls(["broadcast", "all_reduce", "all_reduce", "barrier"])
    b = calls(["broadcast", "all_gather", "all_reduce", "all_reduce", "barrier"])
    found = diff(a, b)
    assert [d.text for d in found.differences] == ["all_gather #1 of ranks 0, 1 is not in A"]
    swapped = diff(calls(["broadcast", "barrier"]), calls(["all_reduce", "barrier"]))
    assert [(d.what, d.collective) for d in swapped.differences] == [
        (What.CALL, "broadcast"),
        (What.CALL, "all_reduce"),
    ]


def test_the_first_divergence_is_causal_not_by_row() -> None:
    """A receive is posted before its send leaves; what was sent wrong is told first."""
    send = first_row(RING, kind="send", rank=0, step=1)
    recv = first_row(RING, kind="recv", peer=0, step=1)
    late = first_row(RING, kind="send", rank=0, step=2)
    assert first_row(RING, kind="recv", rank=0, step=0) < send

    def put(events: Cells, states: Cells) -> None:
        for row in (late, recv, send):
            events["size_bytes"][row] = 8
        events["seq"] = events["seq"][::-1]

    found = diff(RING, changed(RING, put))
    assert [(d.step, d.kind) for d in found.differences] == [
        (1, "send"),
        (1, "recv"),
        (2, "send"),
    ]


def test_other_numbers_of_ranks_are_said_first_and_alone() -> None:
    found = diff(simulated(n=3), simulated(n=4))
    assert [d.what for d in found.differences] == [What.WORLD_SIZE]
    assert first(found).startswith("world size is 4, expected 3")


def called_like(trace: Trace) -> Trace:
    """Return what torch alone would have recorded of a simulated trace: the calls."""

    def call(events: Cells, states: Cells) -> None:
        n = len(events["kind"])
        events["provenance"] = ["called"] * n
        events["api"] = ["all_reduce"] * n
        events["algorithm"] = events["schedule"] = [None] * n
        events["file"] = [f"node-{rank}" for rank in events["rank"]]
        states["contributors"] = [None] * len(states["event"])

    rows = [row for row in range(len(trace)) if trace.events["kind"][row] != "collective"]
    return changed(without(trace, rows), call)


def test_calls_compare_with_a_simulation_at_the_level_of_calls() -> None:
    called = called_like(RING)
    found = diff(RING, called)
    assert found.same, found.to_text()
    assert found.compared.startswith("3 events")
    assert "messages were not compared: B holds calls alone" in found.notes
    assert "algorithm was not compared: B has none" in found.notes
    assert "B has no contributors of states: not compared" in found.notes
    assert diff(RING, called, level="collective").same


def test_an_executed_trace_compares_with_a_simulation_of_its_group() -> None:
    """A simulation numbers ranks from 0, whichever ranks the group has."""

    def moved(events: Cells, states: Cells) -> None:
        ranks = [4, 6, 7]
        events["provenance"] = ["executed"] * len(events["kind"])
        events["rank"] = [None if r is None else ranks[r] for r in events["rank"]]
        events["peer"] = [None if r is None else ranks[r] for r in events["peer"]]
        events["api"] = ["execute"] * len(events["kind"])

    executed = changed(RING, moved)
    meta = replace(RING.meta, groups=(Group((4, 6, 7), 1),))
    found = diff(RING, Trace(executed.events, executed.states, meta))
    assert found.same, found.to_text()
    assert "A's group of ranks 0, 1, 2 was compared with B's group of ranks 4, 6, 7" in found.notes


def test_a_group_that_only_one_side_has_is_one_difference() -> None:
    def other(events: Cells, states: Cells) -> None:
        events["provenance"] = ["executed"] * len(events["kind"])

    a = changed(RING, other)
    b = Trace(a.events, a.states, replace(a.meta, groups=(Group((0, 1, 2), 1),)))
    found = diff(a, b)
    assert [d.what for d in found.differences] == [What.GROUP, What.GROUP]
    assert "the group of ranks 0, 1, 2 is not in B" in first(found)


def test_what_one_side_does_not_keep_is_left_out_and_said() -> None:
    def no_payloads(events: Cells, states: Cells) -> None:
        keep = [k for k, role in enumerate(states["role"]) if role != "payload"]
        for name, cells in states.items():
            states[name] = [cells[k] for k in keep]

    found = diff(RING, changed(RING, no_payloads))
    assert found.same
    assert any("B has no payload states" in note for note in found.notes)


def test_a_single_lost_state_is_a_difference() -> None:
    row = first_row(RING, kind="collective", rank=2)
    lost = int(RING.states_of(row, role="output")[0])

    def lose(events: Cells, states: Cells) -> None:
        for cells in states.values():
            del cells[lost]

    found = diff(RING, changed(RING, lose))
    assert [d.what for d in found.differences] == [What.STATE]
    assert first(found) == "rank 2, all_reduce #0: output was not recorded in B"


MUTABLE = ("slot", "size_bytes", "step", "message", "peer_group_rank", "status", "reduces")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_diff_mirrors(data: st.DataObject) -> None:
    """diff(a, b) finds what diff(b, a) finds, the sides swapped."""
    sides = []
    for _ in range(2):
        drop = data.draw(st.lists(st.integers(0, len(RING) - 1), max_size=3, unique=True))
        trace = without(RING, drop)
        for _ in range(data.draw(st.integers(0, 2))):
            row = data.draw(st.integers(0, len(trace) - 1))
            name = data.draw(st.sampled_from(MUTABLE))
            value = {"status": "error", "reduces": True}.get(name, data.draw(st.integers(0, 3)))
            trace = with_cell(trace, row, **{name: value})
        sides.append(trace)
    a, b = sides
    forth, back = diff(a, b), diff(b, a)
    assert forth.total == back.total

    def seen(found: TraceDiff, mirrored: bool) -> list[Any]:
        entries = []
        for d in found.differences:
            ours, theirs = (d.row_a, d.row_b), (d.row_b, d.row_a)
            rows = theirs if mirrored else ours
            entries.append((d.what, d.column or "", [-1 if row is None else row for row in rows]))
        return sorted(entries)

    assert seen(forth, False) == seen(back, True)
    assert diff(a, a).same


def test_the_number_of_described_differences_is_bounded_and_all_are_counted() -> None:
    other = simulated(count=24)
    found = diff(RING, other, limit=5)
    assert len(found.differences) == 5
    assert found.total > 100
    assert found.to_text(limit=2).count("\n  ") == 3
    assert f"... and {found.total - 2} more" in found.to_text(limit=2)


def test_the_json_says_all() -> None:
    found = diff(RING, with_cell(RING, 5, slot=9))
    told = json.loads(found.to_json())
    assert told["same"] is False
    assert told["total"] == 1
    entry = told["differences"][0]
    assert (entry["what"], entry["column"], entry["b"]) == ("column", "slot", 9)
    assert entry["text"] == first(found)
    assert "state_a" not in entry


def test_check_raises_an_assertion_with_the_text() -> None:
    diff(RING, RING).check()
    with pytest.raises(TraceMismatch, match="expected slot") as caught:
        diff(RING, with_cell(RING, first_row(RING, kind="send"), slot=9)).check()
    assert isinstance(caught.value, AssertionError)


def test_wrong_words_and_mixed_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="roughly"):
        diff(RING, RING, values="roughly")
    with pytest.raises(TypeError, match="a trace can be compared with a trace"):
        diff(RING, chunkscope.build("all_reduce", "ring", 3))


# Schedules


def test_schedules_compare_by_their_lines() -> None:
    ring = chunkscope.build("all_reduce", "ring", 3)
    assert diff(ring, chunkscope.build("all_reduce", "ring", 3)).same
    rows = list(ring.transfers)
    del rows[4]
    fewer = chunkscope.Schedule.of("all_reduce", "ring", 3, rows, input=range(3), output=range(3))
    found = diff(ring, fewer)
    assert found.total == 1
    line = next(line for line in ring.to_text().splitlines() if line not in fewer.to_text())
    assert f"`{line}` is not in B" in first(found)
    assert found.first is not None
    assert found.first.step == ring.transfers[4].step
    tree = diff(ring, chunkscope.build("all_reduce", "tree", 3))
    assert first(tree) == "line 2: found `algorithm tree`, expected `algorithm ring`"
