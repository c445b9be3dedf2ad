"""Joining recording folders: nothing is lost, nothing is mixed up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import chunkscope
from chunkscope.errors import ChunkscopeError, TraceFormatError
from chunkscope.traces.merge import merge
from chunkscope.traces.trace import Trace

RUN = {"schema_version": 1, "run": "night"}


def recording(
    folder: Path, *, host: str, rank: int, run: str = "night", stem: str = "", **fields: Any
) -> Path:
    """Write what a process of a two-rank run leaves."""
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps({**RUN, "run": run}))
    stem = stem or f"{host}-7"
    base = {"kind": "collective", "provenance": "called", "collective": "all_reduce"}
    state = ["before", "input", 0, 0, {"at": 0, "size": 4}]
    lines = [
        {"r": "header", "schema_version": 1, "run": run, "host": host, "pid": 7, **fields},
        {"r": "group", "n": 0, "ranks": [0, 1], "label": "0", "backend": "gloo"},
        {"r": "tensor", "n": 0, "dtype": "float32", "shape": [1]},
        {"r": "call", "n": 0, **base, "group": 0, "group_rank": rank, "rank": rank},
        {"r": "begin", "seq": 0, "call": 0, "t": 100, "s": [state]},
        {"r": "end", "seq": 0, "t": 200},
        {"r": "close", "t": 300},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / f"{stem}.rec.jsonl").write_text(text)
    (folder / f"{stem}.tensors").write_bytes(bytes([0, 0, 128, 63 + rank]))
    return folder


def sums(trace: Trace) -> dict[int, list[float]]:
    found = {}
    for row in range(len(trace)):
        (state,) = trace.states_of(row)
        values = trace.values(int(state))
        assert values is not None
        found[trace.events["rank"][row]] = values.tolist()
    return found


def test_two_hosts_become_one_trace(tmp_path: Path) -> None:
    folders = [recording(tmp_path / name, host=name, rank=k) for k, name in enumerate("ab")]
    merge(tmp_path / "both", folders)
    trace = chunkscope.read(tmp_path / "both")
    assert {(p.host, p.rank) for p in trace.meta.processes} == {("a", 0), ("b", 1)}
    assert [call.coll_seq for call in trace.calls()] == [0]
    assert len(trace.meta.groups) == 1
    assert not any("no file" in note for note in trace.meta.notes)
    assert sums(trace).keys() == {0, 1}
    assert chunkscope.read(folders[0]).meta.world_size == 2  # the folders stay as they were


def test_equal_names_get_new_ones_and_keep_their_tensors(tmp_path: Path) -> None:
    one = recording(tmp_path / "one", host="localhost", rank=0, monotonic_ns=1)
    two = recording(tmp_path / "two", host="localhost", rank=1, monotonic_ns=2)
    merge(tmp_path / "both", [one, two])
    trace = chunkscope.read(tmp_path / "both")
    assert sorted(p.file for p in trace.meta.processes) == ["localhost-7", "localhost-7-2"]
    alone = {**sums(chunkscope.read(one)), **sums(chunkscope.read(two))}
    assert sums(trace) == alone
    assert alone[0] != alone[1]


def test_segments_follow_the_file_that_they_are_named_after(tmp_path: Path) -> None:
    one = recording(tmp_path / "one", host="h", rank=0, monotonic_ns=1)
    two = recording(tmp_path / "two", host="h", rank=1, monotonic_ns=2)
    recording(two, host="h", rank=1, stem="h-7.3", file="h-7", segment=3, seq=5, monotonic_ns=3)
    merge(tmp_path / "both", [one, two])
    header = json.loads((tmp_path / "both" / "h-7.3.rec.jsonl").read_text().splitlines()[0])
    assert header["file"] == "h-7-2"


def test_damaged_and_empty_files_are_kept(tmp_path: Path) -> None:
    folder = recording(tmp_path / "a", host="a", rank=0)
    with (folder / "a-7.rec.jsonl").open("ab") as file:
        file.write(b'{"r":"beg\xff')
    (folder / "a-8.rec.jsonl").touch()
    merge(tmp_path / "out", [folder])
    for path in folder.iterdir():
        if path.name != "run.json":
            assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert chunkscope.read(tmp_path / "out") == chunkscope.read(folder)


def test_other_runs_are_refused_unless_forced(tmp_path: Path) -> None:
    one = recording(tmp_path / "a", host="a", rank=0)
    two = recording(tmp_path / "b", host="b", rank=1, run="day")
    with pytest.raises(ChunkscopeError, match=r"is of run day, and .* of run night.*--force"):
        merge(tmp_path / "out", [one, two])
    assert not (tmp_path / "out").exists()
    merge(tmp_path / "out", [one, two], force=True)
    assert len(chunkscope.read(tmp_path / "out").meta.processes) == 2


def test_a_folder_given_twice_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    one = recording(tmp_path / "a", host="a", rank=0)
    with pytest.raises(ChunkscopeError, match=r"a-7\.rec\.jsonl is in another .* give each once"):
        merge(tmp_path / "out", [one, one])
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    one = recording(tmp_path / "a", host="a", rank=0)
    before = sorted(path.name for path in one.iterdir())
    with pytest.raises(ChunkscopeError, match="is there already"):
        merge(one, [one])
    assert sorted(path.name for path in one.iterdir()) == before


def test_what_is_no_recording_is_said(tmp_path: Path) -> None:
    one = recording(tmp_path / "a", host="a", rank=0)
    for path, message in ((tmp_path, "no run.json"), (one / "a-7.rec.jsonl", "no run.json")):
        with pytest.raises(TraceFormatError, match=message):
            merge(tmp_path / "out", [one, path])
    chunkscope.write(chunkscope.read(one), tmp_path / "again")
    with pytest.raises(TraceFormatError, match="written again"):
        merge(tmp_path / "out", [tmp_path / "again"])
    with pytest.raises(ChunkscopeError, match="nothing to join"):
        merge(tmp_path / "out", [])
