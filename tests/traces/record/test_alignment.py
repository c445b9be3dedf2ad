"""Recordings of several hosts: opened, their times are those of rank 0's clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chunkscope
from chunkscope.traces.trace import Trace

AHEAD_NS = -5_000_000_000_000  # what rank 1's clock is ahead of rank 0's
BOOT_NS = 9_000_000_000_000


def host(rank: int, true_ns: int) -> int:
    """Return a moment of rank 0's clock as the rank's own host reads it."""
    return BOOT_NS + true_ns + (0 if rank == 0 else AHEAD_NS)


def write(
    folder: Path,
    rank: int,
    events: list[tuple[dict[str, Any], int, int]],
    *,
    clock: str | None = None,
    extra: tuple[dict[str, Any], ...] = (),
) -> None:
    """Write a rank's file.

    Args:
        folder: The recording.
        rank: The rank, on host h0 or h1.
        events: Cells, and the true moments of issue and end.
        clock: Name of its clock; h0 or h1 by default.
        extra: More records.
    """
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"schema_version": 1, "run": "x"}))
    lines: list[dict[str, Any]] = [
        {
            "r": "header",
            "schema_version": 1,
            "run": "x",
            "host": f"h{rank}",
            "clock": f"h{rank}" if clock is None else clock,
            "pid": 1,
            "monotonic_ns": host(rank, 0),
            "wall_ns": 10**18 + rank * 1_000,
        },
        {"r": "group", "n": 0, "ranks": [0, 1], "label": "0", "backend": "gloo"},
        *extra,
    ]
    for seq, (cells, issue, end) in enumerate(events):
        base = {"provenance": "called", "group": 0, "rank": rank, "group_rank": rank}
        lines += [
            {"r": "call", "n": seq, **base, **cells},
            {"r": "begin", "seq": seq, "call": seq, "t": host(rank, issue)},
            {"r": "end", "seq": seq, "t": host(rank, end)},
        ]
    lines.append({"r": "close", "t": host(rank, 2_000_000)})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / f"h{rank}-1.rec.jsonl").write_text(text)


def collective(name: str, size_bytes: int = 8, **cells: Any) -> dict[str, Any]:
    return {"kind": "collective", "collective": name, "size_bytes": size_bytes, **cells}


def message(kind: str, rank: int) -> dict[str, Any]:
    return {"kind": kind, "peer": 1 - rank, "peer_group_rank": 1 - rank, "tag": 0, "size_bytes": 8}


def moments(trace: Trace, rank: int) -> list[int]:
    """Return issue and end of a rank's events, as true moments."""
    rows = trace.where(rank=rank)
    columns = (trace.events["t_issue_ns"].values[rows], trace.events["t_end_ns"].values[rows])
    return (np.stack(columns, 1).reshape(-1) - BOOT_NS).tolist()


def check(trace: Trace, error_ns: int) -> None:
    """Check that the clocks are aligned, with this error, which holds."""
    first, second = trace.meta.clocks
    assert (first.offset_ns, first.error_ns) == (0, 0)
    assert second.error_ns == pytest.approx(error_ns, rel=0.02, abs=2)
    assert abs(second.offset_ns - -AHEAD_NS) <= second.error_ns
    (note,) = trace.meta.notes
    assert note.startswith("clocks of 2 hosts aligned to within")


def test_one_clock_is_taken_as_it_is(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(tmp_path / "run", rank, [(collective("barrier"), 1_000, 2_000)], clock="one")
    trace = chunkscope.read(tmp_path / "run")
    assert [(c.file, c.offset_ns, c.error_ns) for c in trace.meta.clocks] == [
        ("h0-1", 0, 0),
        ("h1-1", 0, 0),
    ]
    assert trace.meta.notes == ()
    assert moments(trace, 1) == [1_000 + AHEAD_NS, 2_000 + AHEAD_NS]


def test_measured_clocks(tmp_path: Path) -> None:
    events = [(collective("broadcast", size_bytes=0, root=0), 500, 900)]  # bounds nothing
    write(tmp_path / "run", 0, events)
    measured = {"r": "clock", "clock": "h1", "to": "h0"}
    bounds = {"low": -AHEAD_NS - 3_000, "high": -AHEAD_NS + 1_000}
    write(tmp_path / "run", 1, events, extra=({**measured, "t": host(1, 0), **bounds},))
    trace = chunkscope.read(tmp_path / "run")
    check(trace, 2_000)  # and less than an ns for the drift within a microsecond
    issue, end = moments(trace, 1)
    assert abs(issue - 500) <= 2_001
    assert end - issue == 400
    assert trace.meta.processes[1].last_ns == trace.meta.processes[0].last_ns - 1_000


def test_a_message_narrows_what_was_measured(tmp_path: Path) -> None:
    write(tmp_path / "run", 0, [(message("send", 0), 1_000, 1_200)])
    measured = {"r": "clock", "clock": "h1", "to": "h0", "t": host(1, 0)}
    bounds = {"low": -AHEAD_NS - 90_000, "high": -AHEAD_NS + 90_000}
    events = [(message("recv", 1), 0, 1_400)]  # 400 ns later
    write(tmp_path / "run", 1, events, extra=({**measured, **bounds},))
    trace = chunkscope.read(tmp_path / "run")
    check(trace, (90_000 + 400) // 2)
    assert moments(trace, 1)[1] >= moments(trace, 0)[0]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((collective("all_reduce"), collective("all_reduce")),) * 2,
        ((message("send", 0), message("recv", 0)), (message("recv", 1), message("send", 1))),
        (
            (collective("broadcast", root=0), collective("reduce", root=0)),
            (collective("broadcast", root=0), collective("reduce", root=0)),
        ),
    ],
)
def test_the_run_itself_bounds_the_clocks(first: Any, second: Any, tmp_path: Path) -> None:
    write(tmp_path / "run", 0, [(first[0], 1_000, 1_500), (first[1], 3_000, 3_600)])
    write(tmp_path / "run", 1, [(second[0], 900, 1_600), (second[1], 3_100, 3_700)])
    trace = chunkscope.read(tmp_path / "run")
    check(trace, (600 + 500) // 2)


def test_a_broadcast_of_nothing_bounds_nothing(tmp_path: Path) -> None:
    for rank in (0, 1):
        events = [(collective(name, size_bytes=0), 10, 20) for name in ("all_reduce", "all_gather")]
        write(tmp_path / "run", rank, events)
    trace = chunkscope.read(tmp_path / "run")
    (note,) = trace.meta.notes
    assert note.startswith("several hosts: their clocks are not aligned (h1: ")
    assert [clock.file for clock in trace.meta.clocks] == ["h0-1"]
    assert moments(trace, 1) == [1_010, 1_020] * 2  # by the wall clock, which is 1 µs ahead


def test_an_aligned_trace_survives_every_form(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(tmp_path / "run", rank, [(collective("barrier"), 1_000, 2_000)])
    trace = chunkscope.read(tmp_path / "run")
    check(trace, 1_000)
    for name in ("again.jsonl", "again"):
        chunkscope.write(trace, tmp_path / name)
        assert chunkscope.read(tmp_path / name) == trace
