"""Recordings read back: whole, torn, damaged, hostile, and rewritten without loss."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import chunkscope
from chunkscope.errors import ChunkscopeError, TraceFormatError
from chunkscope.traces.record.reader import read_recording, write_recording
from chunkscope.traces.record.recorder import Recorder
from chunkscope.traces.schema import DTYPES, EVENTS, STATES, Kind, Provenance, Type
from chunkscope.traces.trace import Clock, Group, Meta, Process, Site, Trace

HEADER = {"r": "header", "schema_version": 1, "run": "x", "host": "ada", "pid": 7}
CALL = {"r": "call", "n": 0, "kind": "collective", "provenance": "called", "group": 0, "rank": 0}
GROUP = {"r": "group", "n": 0, "ranks": [0, 1]}


def begin(seq: int, **more: Any) -> dict[str, Any]:
    return {"r": "begin", "seq": seq, "call": 0, "t": 10 * seq, **more}


def end(seq: int, **more: Any) -> dict[str, Any]:
    return {"r": "end", "seq": seq, "t": 10 * seq + 5, **more}


def folder_of(path: Path, *lines: dict[str, Any] | bytes, name: str = "ada-7") -> Path:
    """Write a recording with one file of these lines; a line given as bytes is written as it is."""
    path.mkdir(exist_ok=True)
    (path / "run.json").write_text('{"schema_version": 1, "run": "x"}')
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    (path / f"{name}.rec.jsonl").write_bytes(b"\n".join(raw) + (b"\n" if raw else b""))
    return path


def test_events_are_begins_with_their_ends(tmp_path: Path) -> None:
    trace = read_recording(
        folder_of(tmp_path, HEADER, GROUP, CALL, begin(0), begin(1), end(1), end(0, start=2))
    )
    assert trace.events["t_issue_ns"].to_list() == [0, 10]
    assert trace.events["t_start_ns"].to_list() == [2, None]
    assert trace.events["t_end_ns"].to_list() == [5, 15]
    assert trace.events["coll_seq"].to_list() == [0, 1]
    assert trace.events["file"].to_list() == ["ada-7"] * 2


def test_event_without_an_end_has_begun_or_was_never_looked_at(tmp_path: Path) -> None:
    calls = [{**CALL, "n": 1, "is_async": True}, {**CALL, "n": 2, "kind": "wait"}]
    lines = [begin(0), {**begin(1), "call": 1}, {**begin(2), "call": 1}]
    wait = {**begin(3, parent=1), "call": 2}
    trace = read_recording(folder_of(tmp_path, HEADER, GROUP, CALL, *calls, *lines, wait))
    assert trace.events["status"].to_list() == ["begun", "begun", "unobserved", "begun"]
    assert trace.meta.processes[0].closed is False


def test_threads_may_write_out_of_order(tmp_path: Path) -> None:
    trace = read_recording(folder_of(tmp_path, HEADER, GROUP, CALL, begin(1), begin(0), end(0)))
    assert trace.events["seq"].to_list() == [0, 1]
    assert trace.events["status"].to_list() == ["ok", "begun"]


def test_what_an_end_brings_goes_to_its_event_whatever_the_order(tmp_path: Path) -> None:
    lines = [begin(1), begin(0), end(1, set={"peer": 5}), end(0)]
    trace = read_recording(folder_of(tmp_path, HEADER, GROUP, CALL, *lines))
    assert trace.events["peer"].to_list() == [None, 5]


def test_last_end_of_an_event_holds(tmp_path: Path) -> None:
    lines = [begin(0), end(0, status="error", error="x"), {**end(0), "t": 99}]
    trace = read_recording(folder_of(tmp_path, HEADER, GROUP, CALL, *lines))
    assert trace.events.row(0)["t_end_ns"] == 99
    assert trace.events["error"].to_list() == [None]
    assert "left out" not in str(trace.meta.notes)


def test_what_lies_in_an_event_of_a_deleted_segment_is_gone_with_all_inside(tmp_path: Path) -> None:
    folder_of(tmp_path, HEADER)
    later = {**HEADER, "file": "ada-7", "segment": 2, "seq": 10, "calls": 5}
    lines = [begin(10, parent=3), begin(11, parent=10), end(11), begin(12), begin(13, parent=12)]
    trace = read_recording(folder_of(tmp_path, later, GROUP, CALL, *lines, name="ada-7.2"))
    assert trace.events["seq"].to_list() == [12, 13]
    assert "the first 5 calls are not kept any more; 1 of what" in str(trace.meta.notes)


TORN = [
    pytest.param(b'{"r":"end","seq":1,"t":', id="cut in the middle"),
    pytest.param(b"\x00\x00\x00", id="zeros"),
    pytest.param(b'{"r":"note","text":"\xff"}', id="no UTF-8"),
    pytest.param(b'{"r":"begin","seq":0,"ca{"r":"note","text":"x"}', id="two in one"),
    pytest.param(b"[" * 100_000, id="deep"),
]


@pytest.mark.parametrize("torn", TORN)
@pytest.mark.parametrize("place", [2, 4, 9])
def test_damaged_line_is_left_out_and_named(torn: bytes, place: int, tmp_path: Path) -> None:
    lines: list[Any] = [HEADER, GROUP, CALL, begin(0), end(0), begin(1), end(1)]
    lines.insert(place, torn)
    trace = read_recording(folder_of(tmp_path, *lines))
    assert trace.events["t_end_ns"].to_list() == [5, 15]
    line = min(place + 1, len(lines))
    assert trace.meta.notes[0] == (f"ada-7.rec.jsonl: 1 line is damaged and left out ({line})")


def test_lines_are_numbered_beyond_the_first_block(tmp_path: Path) -> None:
    many = [line for seq in range(8000) for line in (begin(seq), end(seq))]
    lines: list[Any] = [HEADER, GROUP, CALL, *many]
    lines[10_002:10_003] = [b"torn", b"", lines[10_002]]
    trace = read_recording(folder_of(tmp_path, *lines))
    assert len(trace) == 8000
    assert trace.events["t_end_ns"].values.tolist() == list(range(5, 80_000, 10))
    assert "1 line is damaged and left out (10003)" in trace.meta.notes[0]
    lines[10_004] = {**lines[10_004], "seq": "x"}
    with pytest.raises(TraceFormatError, match=r"rec.jsonl:10005: .*`int`, got `str`"):
        read_recording(folder_of(tmp_path, *lines))


def test_cut_anywhere_a_recording_still_opens(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run")
    for _ in range(2):
        call = recorder.begin("collective", collective="all_reduce", rank=0)
        recorder.state(call, "before", "input", 0, torch.ones(100))
        recorder.end(call)
    recorder.close()
    (file,) = (tmp_path / "run").glob("*.rec.jsonl")
    whole = file.read_bytes()
    events = -1
    for size in range(0, len(whole) + 1, 7):
        file.write_bytes(whole[:size])
        trace = read_recording(tmp_path / "run")
        assert len(trace) >= events
        events = len(trace)
    assert events == 2


def test_definition_lost_to_damage_costs_its_events_and_is_noted(tmp_path: Path) -> None:
    second = {**CALL, "n": 1, "rank": 0}
    lines = [HEADER, GROUP, b'{"r":"call","n":0,"ki', second, begin(0), {**begin(1), "call": 1}]
    trace = read_recording(folder_of(tmp_path, *lines))
    assert trace.events["seq"].to_list() == [1]
    assert "1 events are left out: the record of their call is damaged" in str(trace.meta.notes)


def test_what_hangs_in_the_air_is_noted(tmp_path: Path) -> None:
    state = {"r": "state", "seq": 9, "s": [["before", "input", 0, 5, None]]}
    here = {"r": "state", "seq": 0, "s": [["before", "input", 0, 5, {"at": 0, "size": 4}]]}
    lines = [HEADER, GROUP, CALL, begin(0, parent=8), end(3), state, here]
    trace = read_recording(folder_of(tmp_path, *lines))
    notes = "\n".join(trace.meta.notes)
    for part in (
        "1 ends are left out",
        "1 events name a parent that is missing",
        "1 states are left out",
        "1 states have lost what describes their tensor",
        "1 states have lost their bytes: ada-7.tensors is missing",
    ):
        assert part in notes
    assert trace.events["parent"][0] is None


def test_empty_file_is_opened_and_said(tmp_path: Path) -> None:
    trace = read_recording(folder_of(tmp_path))
    assert len(trace) == 0
    assert trace.meta.notes == ("ada-7.rec.jsonl is empty: its process wrote nothing",)
    assert (trace.meta.processes[0].host, trace.meta.processes[0].pid) == ("ada", 7)


def test_missing_file_of_a_rank_is_opened_and_said(tmp_path: Path) -> None:
    trace = read_recording(folder_of(tmp_path, HEADER, GROUP, CALL, begin(0)))
    assert trace.meta.world_size == 2
    assert trace.meta.notes == (
        "rank 1 has no file: nothing was recorded there, or the file is missing",
    )


def test_dropped_records_are_said(tmp_path: Path) -> None:
    trace = read_recording(folder_of(tmp_path, HEADER, {"r": "dropped", "records": 3}))
    assert "ada-7.rec.jsonl: 3 records could not be written" in trace.meta.notes


def test_groups_of_different_files_are_the_same_by_ranks_and_order(tmp_path: Path) -> None:
    pair = {"r": "group", "n": 0, "ranks": [0, 1]}
    folder_of(tmp_path, HEADER, pair, {**pair, "n": 1}, {**CALL, "group": 1}, begin(0))
    other = {**HEADER, "pid": 8}
    one = {"r": "group", "n": 0, "ranks": [1]}
    calls = [{**CALL, "rank": 1, "group": 2}, begin(0)]
    groups = [one, {**pair, "n": 1}, {**pair, "n": 2}]
    trace = read_recording(folder_of(tmp_path, other, *groups, *calls, name="ada-8"))
    assert trace.events["group"].to_list() == [1, 1]
    assert [(group.ranks, group.ordinal) for group in trace.meta.groups] == [
        ((0, 1), 0),
        ((0, 1), 1),
        ((1,), 0),
    ]


def test_launcher_says_how_a_process_ended(tmp_path: Path) -> None:
    folder_of(tmp_path, HEADER, GROUP, CALL, begin(0))
    launcher = {**HEADER, "pid": 3, "launcher": True}
    ended = {"r": "exit", "pid": 7, "signal": 9}
    trace = read_recording(folder_of(tmp_path, launcher, ended, name="launcher-ada-3"))
    (process,) = trace.meta.processes
    assert (process.pid, process.signal, process.exit_code) == (7, 9, None)


WRONG = {
    "newer": ([{**HEADER, "schema_version": 2}], 1, "schema_version 2"),
    "no version": ([{"r": "header"}], 1, "missing required field `schema_version`"),
    "two headers": ([HEADER, HEADER], 2, r"\$.r: found a second header"),
    "unknown record": ([HEADER, {"r": "teapot"}], 2, r"\$.r: Invalid value 'teapot'"),
    "unknown kind": ([HEADER, {**CALL, "kind": "x"}], 2, r"\$.kind: Invalid enum value 'x'"),
    "a text for a number": ([HEADER, GROUP, CALL, begin(0, t="x")], 4, r"\$.t: Expected `int`"),
    "negative seq": ([HEADER, GROUP, CALL, begin(-1)], 4, r"\$.seq: Expected `int` >= 0"),
    "huge number": ([HEADER, {**CALL, "rank": 2**70}], 2, r"\$.rank: Expected `int` <="),
    "no object": ([HEADER, b"[1, 2]"], 2, "Expected `object`, got `array`"),
    "bad base64": (
        [HEADER, {"r": "state", "seq": 0, "s": [["before", "input", 0, 0, "?"]]}],
        2,
        r"\$.s\[0\]\[4\]",
    ),
    "same seq twice": ([HEADER, GROUP, CALL, begin(4), begin(4)], None, "two events have seq 4"),
    "ranks twice": (
        [HEADER, {**GROUP, "ranks": [0, 0]}, CALL, begin(0)],
        None,
        r"groups\[0\].ranks: found \[0, 0\]",
    ),
    "data of another shape": (
        [
            HEADER,
            GROUP,
            CALL,
            {"r": "tensor", "n": 0, "dtype": "float32", "shape": [3]},
            begin(0, s=[["before", "input", 0, 0, "AAAA"]]),
        ],
        None,
        "3 bytes of data do not fill the shape",
    ),
    "no number": (
        [HEADER, GROUP, CALL, begin(0, s=[["before", "input", 0, None, {"min": "small"}]])],
        4,
        r"\$.s\[0\]\[4\].min: Invalid enum value 'small'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_record_is_refused_with_file_line_and_field(name: str, tmp_path: Path) -> None:
    lines, line, message = WRONG[name]
    with pytest.raises(TraceFormatError, match=message) as caught:
        read_recording(folder_of(tmp_path, *lines))
    assert caught.value.line == line
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema_version": 9, "run": "x"}', "schema_version 9"),
        ('{"run": "x"}', "found None"),
        ("no JSON", "found no JSON"),
        ("[]", "found no object"),
        ('{"schema_version": 1, "run": "x", "meta": {"teapots": 1}}', r"\$.meta.teapots"),
    ],
)
def test_wrong_run_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    folder_of(tmp_path, HEADER)
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(TraceFormatError, match=message):
        read_recording(tmp_path)


def test_state_points_past_the_end_of_its_file(tmp_path: Path) -> None:
    item = ["before", "input", 0, None, {"at": 2, "size": 4}]
    folder_of(tmp_path, HEADER, GROUP, CALL, begin(0, s=[item]))
    (tmp_path / "ada-7.tensors").write_bytes(b"12345")
    trace = read_recording(tmp_path)
    assert trace.states["data"][0] is None
    assert "ada-7.tensors ends before them" in str(trace.meta.notes)


# Rewriting: what is read back equals what was written.

INTS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
CELLS = {
    Type.INT: INTS,
    Type.FLOAT: st.floats(),
    Type.BOOL: st.booleans(),
    Type.TEXT: TEXTS,
    Type.INTS: st.lists(INTS, max_size=3),
    Type.BYTES: st.binary(max_size=300),
}
WORDS = {
    "kind": st.sampled_from([kind.value for kind in Kind]),
    "provenance": st.sampled_from([each.value for each in Provenance]),
    "status": st.sampled_from(["ok", "error", "begun", "unobserved"]),
    "when": st.sampled_from(["before", "after"]),
    "role": st.sampled_from(["input", "output", "slot", "payload"]),
    "dtype": st.sampled_from([*DTYPES, "odd"]),
}


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Traces with any cells, but for references and sizes, which must fit."""
    n, m = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    files = sorted(draw(st.lists(st.sampled_from(["a", "b/../c", ""]), min_size=n, max_size=n)))

    def column(name: str, type: Type, rows: int) -> list[Any]:
        cell = WORDS.get(name, CELLS[type])
        if name in ("group", "site", "schedule"):
            cell = st.integers(0, 0)
        if name not in ("kind", "provenance"):
            cell = st.none() | cell
        return draw(st.lists(cell, min_size=rows, max_size=rows))

    events = {spec.name: column(spec.name, spec.type, n) for spec in EVENTS}
    events["file"], events["seq"] = files, list(range(n))
    events["parent"] = draw(
        st.lists(st.none() | st.integers(0, max(n - 1, 0)), min_size=n, max_size=n)
    )
    states = {spec.name: column(spec.name, spec.type, m) for spec in STATES} if n else {}
    if n:
        states["event"] = sorted(draw(st.lists(st.integers(0, n - 1), min_size=m, max_size=m)))
        states["dtype"] = [None] * m  # else the bytes would have to fill the shape
    meta = Meta(
        versions={"torch": "2"},
        world_size=2,
        groups=(Group((0, 1), 0, "label", "gloo"),),
        processes=(Process("a", "host", 1, None, 0, False, None, 9, 5),),
        clocks=(Clock("a", 1, 2),),
        sites=(Site("x.py", 3, "f", ("line",), 2, ("g",)),),
        schedules=("text\n",),
        topology="{}",
        model={"seed": None, "x": [1.5]},
        notes=("note",),
    )
    return Trace.build(events, states, meta)


@settings(max_examples=60, deadline=None)
@given(traces())
def test_rewritten_trace_is_equal(tmp_path_factory: pytest.TempPathFactory, trace: Trace) -> None:
    folder = tmp_path_factory.mktemp("rewritten") / "run"
    write_recording(trace, folder)
    assert read_recording(folder) == trace
    shutil.rmtree(folder.parent)


def test_recording_survives_being_rewritten(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run")
    call = recorder.begin("collective", collective="all_reduce", rank=0)
    recorder.state(call, "before", "input", 0, torch.ones(100))
    recorder.state(call, "before", "input", 1, torch.ones(100_000))
    recorder.row("send", parent=call, t_issue_ns=1, t_start_ns=2, t_end_ns=3, slot=np.int64(4))
    recorder.end(call)
    recorder.close()
    trace = chunkscope.read(tmp_path / "run")
    assert trace.events["slot"][1] == 4
    chunkscope.write(trace, tmp_path / "copy")
    assert chunkscope.read(tmp_path / "copy") == trace
    chunkscope.write(trace, tmp_path / "copy")  # what was rewritten may be written again
    assert chunkscope.read(tmp_path / "copy") == trace


def test_real_recording_is_not_overwritten(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run", HEADER)
    with pytest.raises(ChunkscopeError, match=r"cannot write .*run: it is there"):
        write_recording(read_recording(folder), folder)
    assert (folder / "ada-7.rec.jsonl").exists()
