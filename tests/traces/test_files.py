"""Trace files of every form: nothing is lost between them, and what is no trace is named."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import chunkscope
from chunkscope.errors import ChunkscopeError, TraceFormatError
from chunkscope.traces import files
from chunkscope.traces.schema import EVENTS, STATES, Kind, Provenance, Role, Status, Type, When
from chunkscope.traces.trace import Clock, Group, Meta, Process, Site, Trace

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
INT64 = st.integers(-(2**63) + 1, 2**63 - 1)
FLOAT = st.floats(allow_nan=True, allow_infinity=True)
CELLS: dict[Type, st.SearchStrategy[Any]] = {
    Type.INT: INT64,
    Type.FLOAT: FLOAT,
    Type.BOOL: st.booleans(),
    Type.TEXT: TEXT,
    Type.INTS: st.lists(INT64, max_size=3),
    Type.BYTES: st.binary(max_size=9),
}
WORDS = {"kind": Kind, "provenance": Provenance, "status": Status, "when": When, "role": Role}
# A recording names its files by what they hold: no form may depend on the names inside a trace.
FILES = ("node-7.rec.jsonl", "node-8.rec.jsonl")


def cells_of(specs: Any, n: int, **fixed: Any) -> st.SearchStrategy[dict[str, Any]]:
    def column(spec: Any) -> st.SearchStrategy[Any]:
        if spec.name in fixed:
            return st.just(fixed[spec.name])
        word = WORDS.get(spec.name)
        cell = CELLS[spec.type] if word is None else st.sampled_from([w.value for w in word])
        cells = st.lists(st.none() | cell, min_size=n, max_size=n)
        return cells if spec.name in ("kind", "provenance") else st.none() | cells

    return st.fixed_dictionaries({spec.name: column(spec) for spec in specs})


@st.composite
def metas(draw: st.DrawFn) -> Meta:
    ranks = st.lists(st.integers(0, 999), max_size=4, unique=True).map(tuple)
    integer, text = st.integers(0, 2**40), TEXT
    json = st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53), 2**53)
        | st.floats(allow_nan=False)
        | text,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
        max_leaves=4,
    ).filter(lambda value: value not in ("NaN", "Infinity", "-Infinity"))
    return Meta(
        versions=draw(st.dictionaries(text, text, max_size=2)),
        world_size=draw(st.none() | integer),
        groups=tuple(draw(st.lists(st.builds(Group, ranks, integer, text, text), max_size=2))),
        processes=tuple(
            Process(name, *draw(st.tuples(text, integer, st.none() | integer))) for name in FILES
        ),
        clocks=tuple(draw(st.lists(st.builds(Clock, st.sampled_from(FILES), integer), max_size=1))),
        sites=tuple(draw(st.lists(st.builds(Site, text, integer, text), max_size=2))),
        schedules=tuple(draw(st.lists(text, max_size=2))),
        topology=draw(st.none() | text),
        model=draw(st.dictionaries(text, json, max_size=2)),
        notes=tuple(draw(st.lists(text, max_size=2))),
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    meta = draw(metas())
    n, m = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    m = m if n else 0

    def references(limit: int, size: int) -> list[int | None]:
        choice = st.none() | st.integers(0, limit - 1) if limit else st.none()
        return draw(st.lists(choice, min_size=size, max_size=size))

    split = draw(st.integers(0, n))
    events = draw(
        cells_of(
            EVENTS,
            n,
            file=[FILES[0]] * split + [FILES[1]] * (n - split),
            seq=[*range(split), *range(n - split)],
            parent=references(n, n),
            group=references(len(meta.groups), n),
            site=references(len(meta.sites), n),
            schedule=references(len(meta.schedules), n),
            kind=draw(st.lists(st.sampled_from([k.value for k in Kind]), min_size=n, max_size=n)),
            provenance=draw(
                st.lists(st.sampled_from([p.value for p in Provenance]), min_size=n, max_size=n)
            ),
        )
    )
    owners = sorted(draw(st.lists(st.integers(0, max(n - 1, 0)), min_size=m, max_size=m)))
    data = draw(st.lists(st.none() | st.binary(max_size=9), min_size=m, max_size=m))
    shape = [None if d is None else [len(d)] for d in data]
    states = draw(cells_of(STATES, m, event=owners, data=data, shape=shape, dtype=["uint8"] * m))
    return Trace.build(events, states, meta)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(traces())
@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_one_file_forms_lose_nothing(
    tmp_path_factory: pytest.TempPathFactory, name: str, trace: Trace
) -> None:
    path = tmp_path_factory.mktemp("form") / name
    chunkscope.write(trace, path)
    assert chunkscope.read(path) == trace


def ring(n: int = 3) -> Trace:
    """A small simulated all-reduce with values in it."""
    schedule = chunkscope.build("all_reduce", "ring", n)
    inputs = [np.arange(8, dtype=np.float32) + rank for rank in range(n)]
    replay = chunkscope.simulate(schedule.bind(8, "float32"), chunkscope.topology("full", n))
    return replay.trace(inputs=inputs)


FORMS = ("recording", "trace.jsonl", "trace.parquet")


@pytest.mark.parametrize(("one", "two"), list(itertools.permutations(FORMS, 2)))
def test_a_trace_goes_through_any_two_forms_unchanged(tmp_path: Path, one: str, two: str) -> None:
    trace = ring()
    (tmp_path / "a").mkdir()
    chunkscope.write(trace, tmp_path / "a" / one)
    first = chunkscope.read(tmp_path / "a" / one)
    chunkscope.write(first, tmp_path / two)
    assert first == trace
    assert chunkscope.read(tmp_path / two) == trace


def test_the_content_decides_not_the_name(tmp_path: Path) -> None:
    trace = ring()
    chunkscope.write(trace, tmp_path / "a.parquet")
    (tmp_path / "a.parquet").rename(tmp_path / "a.jsonl")
    assert chunkscope.read(tmp_path / "a.jsonl") == trace


@pytest.mark.parametrize("name", FORMS)
def test_an_empty_trace_opens(tmp_path: Path, name: str) -> None:
    chunkscope.write(Trace.build({}), tmp_path / name)
    assert len(chunkscope.read(tmp_path / name)) == 0


@pytest.mark.parametrize(
    ("content", "looks"),
    [
        (b"", "the file is empty"),
        (pickle.dumps({"a": 1}), "a pickle, which is never opened because it can run code"),
        (b"PK\x03\x04rest", "a zip file, or a PyTorch checkpoint"),
        (b"\x1f\x8b\x08rest", "a gzip file: unpack it first"),
        (b"\x89PNG\r\n", "a PNG picture"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b'{"traceEvents": []}', "a Chrome trace, such as the PyTorch profiler writes"),
        (b'{"a": 1}\n', "JSON of another kind"),
        (b"collective all_reduce\n", "a schedule in text form"),
        (b"hello world\n", "a text file that starts with 'hello world'"),
        (b"\x01\x00\x02", "a binary file of another kind"),
        (b"\xff\xff\xff", "a text file that starts with"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path: Path, content: bytes, looks: str) -> None:
    path = tmp_path / "thing.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceFormatError) as caught:
        chunkscope.read(path)
    assert str(path) in str(caught.value)
    assert looks in str(caught.value)
    assert "expected a recording folder, .jsonl or .parquet" in str(caught.value)


def test_folders_and_paths_that_hold_no_trace_are_said(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="the folder is empty"):
        chunkscope.read(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(TraceFormatError, match=r"holds no recording .*, but notes\.txt"):
        chunkscope.read(tmp_path)
    with pytest.raises(TraceFormatError, match="there is no such file or folder"):
        chunkscope.read(tmp_path / "nowhere.jsonl")
    part = tmp_path / "node-7.rec.jsonl"
    part.write_text('{"record":"header"}\n')
    with pytest.raises(TraceFormatError, match="one process's part of a recording: open its"):
        chunkscope.read(part)


def test_an_unknown_suffix_is_refused_and_the_known_ones_are_named(tmp_path: Path) -> None:
    with pytest.raises(ChunkscopeError, match=r"'\.csv' is none of \.jsonl, \.parquet"):
        chunkscope.write(ring(), tmp_path / "a.csv")


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_an_output_that_cannot_be_written_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ChunkscopeError, match="cannot write"):
        chunkscope.write(ring(), tmp_path / "file" / name)
    (tmp_path / name).mkdir()
    (tmp_path / name / "x").touch()
    with pytest.raises(ChunkscopeError):
        files.FORMATS[1 if name == "t.jsonl" else 2].write(ring(), tmp_path / name)  # type: ignore[misc]


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunkscope.write(ring(), tmp_path / name)
    before = (tmp_path / name).read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(ChunkscopeError, match="No space left on device"):
        chunkscope.write(ring(4), tmp_path / name)
    assert (tmp_path / name).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", FORMS)
def test_texts_that_are_no_utf8_are_escaped(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    trace = Trace.build(
        {"kind": ["send"], "provenance": ["called"], "file": ["a.rec.jsonl"], "seq": [0]}
        | {"error": ["bad \udcff"]}
    )
    chunkscope.write(trace, path)
    assert chunkscope.read(path).events["error"][0] == "bad \\udcff"
