"""The text form: readable, the same bytes every time, and damage is said by line and field."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chunkscope
from chunkscope.errors import TraceFormatError
from chunkscope.traces.trace import Group, Meta, Trace, encode

TWO = Trace.build(
    {
        "file": ["sim", "sim"],
        "seq": [0, 1],
        "rank": [0, 1],
        "group": [0, 0],
        "kind": ["send", "recv"],
        "provenance": ["simulated", "simulated"],
        "parent": [None, 0],
        "reduces": [True, False],
        "splits": [None, [1, 2]],
    },
    {
        "event": [0],
        "when": ["before"],
        "role": ["payload"],
        "dtype": ["float32"],
        "shape": [[2]],
        "min": [float("-inf")],
        "max": [float("nan")],
        "first": [encode([1.5, float("inf")], "float32")],
        "contributors": [[0, 1]],
        "data": [encode([1.0, 2.0], "float32")],
    },
    Meta(world_size=2, groups=(Group((0, 1)),), model={"rate": float("inf"), "seed": None}),
)


def lines_of(path: Path, trace: Trace = TWO) -> list[str]:
    chunkscope.write(trace, path)
    return path.read_text(encoding="utf-8").splitlines()


def test_the_text_is_what_a_reviewer_expects(tmp_path: Path) -> None:
    assert lines_of(tmp_path / "t.jsonl") == [
        '{"format":"chunkscope trace","schema_version":1,"events":2,"meta":{"world_size":2,'
        '"groups":[{"ranks":[0,1],"ordinal":0,"label":"","backend":""}],'
        '"model":{"rate":"Infinity","seed":null}}}',
        '{"file":"sim","seq":0,"rank":0,"group":0,"kind":"send","provenance":"simulated",'
        '"reduces":true,"states":[{"when":"before","role":"payload","dtype":"float32","shape":[2],'
        '"min":"-Infinity","max":"NaN","first":[1.5,"Infinity"],"contributors":[0,1],"data":"AACAPwAAAEA="}]}',
        '{"file":"sim","seq":1,"parent":0,"rank":1,"group":0,"kind":"recv",'
        '"provenance":"simulated","splits":[1,2],"reduces":false}',
    ]


def test_it_comes_back_and_is_written_the_same_again(tmp_path: Path) -> None:
    chunkscope.write(TWO, tmp_path / "a.jsonl")
    back = chunkscope.read(tmp_path / "a.jsonl")
    assert back.events.equals(TWO.events)
    assert back.states.equals(TWO.states)
    assert back.meta.model == TWO.meta.model
    chunkscope.write(back, tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("line", "old", "new", "message"),
    [
        (1, '"schema_version":1', '"schema_version":7', "schema_version 7, this chunkscope reads"),
        (1, '"schema_version":1', '"schema_version":7', "pip install --upgrade chunkscope"),
        (1, '"schema_version":1', '"schema_version":"x"', "found 'x', expected a version"),
        (1, '"world_size":2', '"world_size":"two"', r"\$\.meta\.world_size"),
        (1, '"world_size":2', '"colour":2', r"\$\.meta\.colour: found an unknown entry"),
        (1, '"ranks":[0,1]', '"ranks":[0,0]', "expected different ranks"),
        (1, '"events":2', '"events":1', "2 events, and the header says 1"),
        (1, '"events":2', '"events":-2', r"\$\.events"),
        (2, '"rank":0', '"rank":"zero"', r"\$\.rank: Expected `int`, got `str`"),
        (2, '"rank":0', '"rank":99999999999999999999', r"\$\.rank"),
        (2, '"rank":0', '"colour":0', "unknown field `colour`"),
        (2, '"kind":"send"', '"kind":"sends"', r"\$\.kind: Invalid enum value 'sends'"),
        (2, '"kind":"send",', "", r"\$\.events\[0\]\.kind: it is missing"),
        (2, '"group":0', '"group":5', r"\$\.events\[0\]\.group: group is 5, expected 0 to 0"),
        (3, '"parent":0', '"parent":2', r"\$\.events\[1\]\.parent: parent is 2, expected 0 to 1"),
        (2, '"shape":[2]', '"shape":[1000000000000]', "8 bytes of data do not fill the shape"),
        (2, '"shape":[2]', '"shape":[-2,-1]', "do not fill the shape"),
        (2, "AACAPwAAAEA=", "AAC?PwAAAEA=", r"\$\.states\[0\]\.data: Invalid base64"),
        (2, '"first":[1.5,', '"first":["x",', r"\$\.states\.first: found 'x' among"),
        (2, '"seq":0', '"seq":' + "[" * 100_000, "nested too deeply|Expected `int`"),
        (2, '"seq":0', '"seq":0,,', "JSON is malformed"),
    ],
)
def test_damage_is_said_by_line_and_field(
    tmp_path: Path, line: int, old: str, new: str, message: str
) -> None:
    path = tmp_path / "t.jsonl"
    lines = lines_of(path)
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new)
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    with pytest.raises(TraceFormatError, match=message) as caught:
        chunkscope.read(path)
    assert caught.value.file == str(path)
    if "events and" not in message:
        assert caught.value.line == line


@settings(deadline=None)
@given(data=st.data())
def test_a_file_cut_anywhere_gives_its_beginning_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "t.jsonl"
    chunkscope.write(TWO, path)
    whole = path.read_bytes()
    size = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:size])
    if size < whole.index(b"\n"):  # without a whole header nothing can be read
        with pytest.raises(TraceFormatError, match=re.escape(str(path))):
            chunkscope.read(path)
        return
    trace = chunkscope.read(path)
    complete = whole[:size].count(b"\n") - 1 + (whole[size : size + 1] == b"\n")
    assert len(trace) == complete
    assert trace.events.equals(TWO.events.take(np.arange(complete)))
    cut = [note for note in trace.meta.notes if "the file was cut" in note]
    assert bool(cut) == (complete < 2)


def test_a_parent_behind_the_cut_is_dropped(tmp_path: Path) -> None:
    trace = Trace.build(
        {"kind": ["send", "collective"], "provenance": ["called"] * 2, "parent": [1, None]}
    )
    lines = lines_of(tmp_path / "t.jsonl", trace)
    (tmp_path / "t.jsonl").write_text("\n".join(lines[:2]))
    cut = chunkscope.read(tmp_path / "t.jsonl")
    assert cut.events["parent"].to_list() == [None]
    assert cut.meta.notes == ("the file was cut: 1 of its 2 events could be read",)


def test_many_blocks_read_as_one(tmp_path: Path) -> None:
    n = 5000  # about 1 MB of text, several blocks
    trace = Trace.build(
        {
            "kind": ["send", "recv"] * (n // 2),
            "provenance": ["executed"] * n,
            "file": [f"file-{k // 100:03d}" for k in range(n)],
            "seq": [k % 100 for k in range(n)],
            "error": [f"text {k}" if k % 3 else None for k in range(n)],
            "splits": [[k] * (k % 4) if k % 5 else None for k in range(n)],
        },
        {"event": list(range(0, n, 2)), "first": [bytes([k % 256]) for k in range(0, n, 2)]},
    )
    chunkscope.write(trace, tmp_path / "t.jsonl")
    assert (tmp_path / "t.jsonl").stat().st_size > 2 * 2**18
    assert chunkscope.read(tmp_path / "t.jsonl") == trace


def test_every_line_is_json_for_anybody(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in lines_of(tmp_path / "t.jsonl")]
    assert [row.get("kind") for row in rows] == [None, "send", "recv"]
    assert not re.search(r":NaN|:Infinity", (tmp_path / "t.jsonl").read_text())
