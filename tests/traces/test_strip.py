"""What is taken out of a trace before it is shared, and what is left."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

import chunkscope
from chunkscope.sim.source import load_trace
from chunkscope.traces.schema import EVENTS, STATES, Type
from chunkscope.traces.strip import strip
from chunkscope.traces.trace import Clock, Group, Meta, Process, Site, Trace
from chunkscope.traces.validate import WORDS

SECRET = "SECRET of/ada"


def said(number: int = 0) -> str:
    return f"{SECRET} {number}"


def trace_of_secrets() -> Trace:
    """Return a trace that has a secret in every text and every list of bytes."""
    events: dict[str, Any] = {
        spec.name: [said(), said(), said(1)]
        for spec in EVENTS
        if spec.type is Type.TEXT and spec.name not in WORDS
    }
    events |= {"kind": ["send"] * 3, "provenance": ["called", "executed", "wire"]}
    events |= {"seq": [0, 1, 2], "status": ["error"] * 3, "group": [0] * 3, "site": [0, 0, 1]}
    events |= {"schedule": [0] * 3, "size_bytes": [4, 5, 6], "t_end_ns": [7, 8, 9]}
    states: dict[str, Any] = {
        spec.name: [said() if spec.type is Type.TEXT else SECRET.encode()]
        for spec in STATES
        if spec.type in (Type.TEXT, Type.BYTES) and spec.name not in WORDS
    }
    states |= {"event": [1], "when": ["before"], "role": ["input"], "shape": [[3]]}
    states |= {"min": [1.5], "max": [2.5], "mean": [2.0], "nan": [0], "digest": [77]}
    meta = Meta(
        versions={"torch": f"2.13.0+{said()}", said(): "1", "python": "3.11.7", "mine": said()},
        world_size=2,
        groups=(Group((0, 1), 0, said(), said()), Group((1, 0), 0, "12", "cpu:gloo,cuda:nccl")),
        processes=(Process(said(), said(), 4711, 0), Process(said(1), said(), 4712, 1)),
        clocks=(Clock(said(1), 5, 6),),
        sites=(
            Site(said(), 3, said(), (said(),), 2, (f"{said()}:34 {said(2)}", said())),
            Site(said(), 9, said(), (said(),), 8),
        ),
        schedules=(
            f"collective broadcast\nalgorithm {said()}\ngroup_size 2\nhelper {said()}\n"
            f"# {said()}\nroot 0\ninput 0:1\noutput 0:1\n0 0  r0[0] -> r1[0]\n"
            f"0 0  r0[0] -> {SECRET.replace(' ', '')}[0]\n",
        ),
        topology=f'{{"{said()}": 1}}',
        model={"policy": said(), said(): 1, "seed": 3, "deep": [said()]},
        notes=(said(),),
    )
    return Trace.build(events, states, meta)


@pytest.mark.parametrize("form", ["t.jsonl", "t.parquet", "folder"])
def test_no_secret_is_left_in_any_file(form: str, tmp_path: Path) -> None:
    chunkscope.write(trace_of_secrets(), tmp_path / "secret.jsonl")
    assert SECRET in (tmp_path / "secret.jsonl").read_text()
    chunkscope.write(strip(trace_of_secrets()), tmp_path / form)
    paths = [path for path in [tmp_path / form, *(tmp_path / form).rglob("*")] if path.is_file()]
    assert paths
    encoded = base64.b64encode(SECRET.encode())[:16]
    for path in paths:
        raw = path.read_bytes()
        for form_of_it in (b"SECRET", encoded, SECRET.encode("utf-16-le")):
            assert form_of_it not in raw
    assert "SECRET" not in repr([strip(trace_of_secrets()).events.row(k) for k in range(3)])


def test_what_is_left_tells_what_happened() -> None:
    trace = trace_of_secrets()
    shared = strip(trace)
    for name in ("kind", "provenance", "seq", "status", "size_bytes", "t_end_ns", "site", "group"):
        assert shared.events[name].to_list() == trace.events[name].to_list()
    assert shared.states["shape"].to_list() == [[3]]
    assert (shared.meta.world_size, shared.meta.groups[0].ranks) == (2, (0, 1))
    assert shared.meta.versions == {"torch": "2.13.0", "python": "3.11.7"}
    assert shared.meta.groups[1] == Group((1, 0), 0, "12", "cpu:gloo,cuda:nccl")
    assert shared.meta.model == {"seed": 3}
    assert shared.meta.notes == ("stripped of values, paths, hosts",)


def test_equal_names_get_equal_placeholders() -> None:
    shared = strip(trace_of_secrets())
    assert shared.events["file"].to_list() == ["process-1", "process-1", "process-2"]
    assert shared.events["host"].to_list() == ["host-1", "host-1", "host-2"]
    assert shared.events["thread"].to_list() == ["thread-1", "thread-1", "thread-2"]
    assert [(each.file, each.host, each.pid) for each in shared.meta.processes] == [
        ("process-1", "host-1", 1),
        ("process-2", "host-1", 2),
    ]
    assert shared.meta.clocks[0].file == "process-2"
    first, second = shared.meta.sites
    assert (first.file, first.line, first.function) == ("file-1", 3, "function-1")
    assert (second.file, second.line) == ("file-1", 9)
    assert first.stack == ("file-1:34 function-3", "a frame")


def test_words_that_everybody_knows_stay() -> None:
    events = {
        "kind": ["collective", "send"],
        "provenance": ["called", "called"],
        "api": ["all_gather_into_tensor", "DistributedDataParallel.forward"],
        "collective": ["all_gather", None],
        "algorithm": ["ring", None],
        "reduce_op": ["SUM", None],
        "dtype": ["float8_e5m2", "int64"],
        "thread": ["MainThread", "not a Python thread"],
        "error": ["DistNetworkError: ada:29500", "ValueError: /home/ada"],
    }
    shared = strip(Trace.build(events), keep=["ring"])
    for name in ("api", "collective", "algorithm", "reduce_op", "dtype", "thread"):
        assert shared.events[name].to_list() == events[name]
    assert shared.events["error"].to_list() == ["DistNetworkError", "ValueError"]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"values": False}, "data"),
        ({"paths": False}, "thread"),
        ({"hosts": False}, "host"),
    ],
)
def test_each_can_be_left_in(options: dict[str, bool], kept: str) -> None:
    trace = trace_of_secrets()
    shared = strip(trace, **options)
    columns = dict.fromkeys(("thread", "host"), shared.events) | {"data": shared.states}
    whole = dict.fromkeys(("thread", "host"), trace.events) | {"data": trace.states}
    for name, table in columns.items():
        is_same = table[name].to_list() == whole[name][name].to_list()
        assert is_same == (name == kept)
    assert "SECRET" not in str(shared.events["error"].to_list()) + str(shared.meta.notes)


def test_nothing_to_strip_changes_nothing() -> None:
    trace = trace_of_secrets()
    assert strip(trace, values=False, paths=False, hosts=False) == trace


def test_stripped_schedule_can_be_read(tmp_path: Path) -> None:
    trace = load_trace("all_reduce:ring:3")
    shared = strip(trace, keep=["ring"])
    assert shared.meta.schedules == trace.meta.schedules
    assert "algorithm-1" in strip(trace).meta.schedules[0]
    chunkscope.write(shared, tmp_path / "t.parquet")
    assert chunkscope.read(tmp_path / "t.parquet") == shared
