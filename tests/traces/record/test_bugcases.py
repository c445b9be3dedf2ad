"""Situations from bug reports under the recorder: outcome and trace agree, and `check` says why.

The situations are no part of this repository; where they are not beside it, the tests are skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chunkscope
from chunkscope.traces.check import Code, check
from chunkscope.traces.trace import Trace

ROOT = Path(__file__).resolve().parents[3]
CASES = next(
    (
        place / "shared" / "cases" / "bugcases.py"
        for place in (ROOT, ROOT.parent)
        if (place / "shared" / "cases" / "bugcases.py").is_file()
    ),
    None,
)
pytestmark = [
    pytest.mark.ranks,
    pytest.mark.timeout(300),
    pytest.mark.skipif(CASES is None, reason="the bug situations are not beside the repository"),
]

# Torch is loaded once; each situation forks a process of its own, and that one its ranks. Those
# that hang go first, so that the others run meanwhile.
DRIVER = """
import importlib.util, json, os, sys, traceback
from pathlib import Path
import torch, torch.distributed
import torch.distributed.nn.functional, torch.distributed._functional_collectives
import chunkscope, chunkscope.traces.record.start

path, folder, at_once, timeout_s = sys.argv[1], Path(sys.argv[2]), 5, 4
spec = importlib.util.spec_from_file_location("bugcases", path)
cases = sys.modules["bugcases"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)

def run(name):
    log = os.open(folder / f"{name}.log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1), os.dup2(log, 2)
    function, n, limit, _, env = cases.CASES[name]
    cases.CASES[name] = function, n, limit, timeout_s, env
    with chunkscope.record(folder / name):
        outcome = cases.run(name)
    (folder / f"{name}.json").write_text(json.dumps(outcome))

slow = [name for name in ("B37", "B33", "B31", "B43", "B45", "B58") if name in cases.CASES]
waiting, running = slow + [name for name in cases.CASES if name not in slow], 0
while waiting or running:
    while waiting and running < at_once:
        name, running = waiting.pop(0), running + 1
        if os.fork() == 0:
            try:
                run(name)
            except BaseException:
                traceback.print_exc()
            os._exit(0)
    os.wait()
    running -= 1
"""


class Situations:
    """What happened in each situation, and what was recorded of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = sorted(path.stem for path in folder.glob("*.json"))
        self.trace = lru_cache(maxsize=None)(self._trace)

    def _trace(self, name: str) -> Trace:
        return chunkscope.read(self.folder / name)

    def outcome(self, name: str) -> dict[int, tuple[str, Any]]:
        """Return what each rank told: ok and a value, error and its text, died, HANG."""
        path = self.folder / f"{name}.json"
        log = (self.folder / f"{name}.log").read_text(errors="replace")
        assert path.exists(), f"{name} did not run: {log[-2000:]}"
        found = json.loads(path.read_text())["ranks"]
        return {int(rank): (kind, value) for rank, (kind, value) in found.items()}

    def calls(self, name: str, rank: int) -> list[dict[str, Any]]:
        """Return a rank's collective calls, sends and recvs in order."""
        trace = self.trace(name)
        rows = [
            {**trace.events.row(int(row)), "row": int(row)}
            for kind in ("collective", "send", "recv")
            for row in trace.where(kind=kind, rank=rank)
        ]
        return sorted(rows, key=lambda row: row["seq"])

    def after(self, name: str, rank: int, call: int = -1) -> list[list[Any]]:
        """Return what a call left in each of its outputs, in their shape."""
        trace, row = self.trace(name), self.calls(name, rank)[call]["row"]
        return [
            np.asarray(trace.values(int(s))).tolist() for s in trace.states_of(row, when="after")
        ]

    def codes(self, name: str) -> set[Code]:
        """Return what check finds that is no harmless thing."""
        return {found.code for found in check(self.trace(name)).findings if not found.harmless}

    def message(self, name: str, code: Code) -> str:
        """Return what check says of one code."""
        return next(str(f) for f in check(self.trace(name)).findings if f.code is code)


@pytest.fixture(scope="module")
def situations(tmp_path_factory: pytest.TempPathFactory) -> Situations:
    assert CASES is not None
    folder = tmp_path_factory.mktemp("bugcases")
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(CASES), str(folder)],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return Situations(folder)


def names() -> list[str]:
    """Return the situations that there are, read without running anything."""
    if CASES is None:
        return ["none"]
    lines = CASES.read_text(encoding="utf-8").splitlines()
    return [line.split("'")[1] for line in lines if line.startswith("@case('")]


@pytest.mark.parametrize("name", names())
def test_trace_agrees_with_the_outcome(situations: Situations, name: str) -> None:
    outcome = situations.outcome(name)
    trace = situations.trace(name)
    assert not [note for note in trace.meta.notes if "fail" in note or "damaged" in note]
    for rank, (kind, value) in outcome.items():
        calls = situations.calls(name, rank)
        statuses = [call["status"] for call in calls]
        if kind == "ok" and name not in ("B27", "B55"):  # those catch errors on the way
            assert set(statuses) <= {"ok", "unobserved"}, (rank, statuses)
        elif kind == "error" and name != "B47":  # that one fails in autograd, before any call
            failed = [call for call in calls if call["status"] == "error"]
            assert failed, (rank, statuses)
            told = " ".join(value.replace(" | ", "\n").split())[:100]
            assert " ".join(failed[-1]["error"].split()).startswith(told)
        elif kind == "died":
            assert statuses[-1] == "begun"
            assert not next(p for p in trace.meta.processes if p.rank == rank).closed


# What the program saw is what the trace shows, also where it is wrong.
@pytest.mark.parametrize("name", ["B03", "B05", "B11", "B13", "B14", "B25", "B57"])
def test_values_that_the_program_got_are_in_the_trace(situations: Situations, name: str) -> None:
    for rank, (kind, value) in situations.outcome(name).items():
        if kind != "ok":
            assert name == "B11"
            continue
        if name == "B25":
            assert situations.after(name, rank, 0) == situations.after(name, rank, 1)
            assert situations.after(name, rank) == [value["a"]]
        else:
            assert situations.after(name, rank) == [value["got"]]


@pytest.mark.parametrize(
    "name", ["B02", "B06", "B07", "B08", "B09", "B15", "B23", "B33", "B39", "B40", "B41", "B59"]
)
def test_plain_results_are_in_the_trace(situations: Situations, name: str) -> None:
    for rank, (kind, value) in situations.outcome(name).items():
        if kind != "ok" or value is None:
            continue
        found = situations.after(name, rank)
        if name == "B02":
            assert found == [[]]
        elif name == "B07":
            assert found[1] == value
        else:
            assert (found if name in ("B06", "B39", "B40", "B41") else found[0]) == value


def test_wrong_results_of_strided_views_are_told_with_their_strides(
    situations: Situations,
) -> None:
    for name in ("B03", "B05"):
        assert situations.codes(name) == {Code.WRONG_RESULT}
        (finding,) = check(situations.trace(name)).findings
        assert "a view with strides [2]" in finding.look[0]
    assert "the result is [0, 11], but the inputs make it [0, 10]" in situations.message(
        "B03", Code.WRONG_RESULT
    )


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("B11", Code.ERROR, "result type Float can't be cast"),
        ("B15", Code.ERROR, "invalid tensor size"),
        ("B29", Code.NOT_WAITED, "rank 0 never waited for isend to rank 1"),
        ("B31", Code.TAGS, "with tag 7"),
        ("B33", Code.SIZES, "rank 0 sends float32 [3], 12 B"),
        ("B37", Code.NEVER_ARRIVED, "rank 2 never arrived: ranks 0, 1 and 3 waited"),
        ("B39", Code.ALIASED, "outputs 0 and 1 of the list are the same memory"),
        ("B43", Code.SPLITS, "rank 0 sends 2 elements to rank 1"),
        ("B45", Code.MISMATCH, "gather #0 does not match across ranks"),
        ("B49", Code.ERROR, "Detected mismatch between collectives"),
        ("B58", Code.ERROR, "Incorrect input list size"),
    ],
)
def test_check_names_the_cause_and_nothing_else(
    situations: Situations, name: str, code: Code, words: str
) -> None:
    assert situations.codes(name) == {code}
    assert words in situations.message(name, code)


@pytest.mark.parametrize(
    "name",
    ["B01", "B02", "B06", "B07", "B08", "B09", "B13", "B14", "B17", "B19", "B23", "B35", "B40",
     "B41", "B48", "B51", "B53", "B57", "B59"],
)  # fmt: skip
def test_check_finds_nothing_in_what_is_right(situations: Situations, name: str) -> None:
    assert not situations.codes(name)


def test_shapes_that_differ_are_worth_a_look(situations: Situations) -> None:
    (finding,) = check(situations.trace("B23")).findings
    assert finding.code is Code.SHAPES
    assert finding.harmless


def test_debug_mode_s_false_alarm_is_called_one(situations: Situations) -> None:
    (finding,) = check(situations.trace("B49")).findings
    assert "the recorded calls agree" in finding.look[0]


def test_roots_and_peers_of_subgroups_are_global_where_they_say_so(
    situations: Situations,
) -> None:
    trace = situations.trace("B17")
    (row,) = trace.where(kind="collective", rank=3)
    call = trace.events.row(int(row))
    assert call["root"] == 0
    assert trace.meta.groups[call["group"]].ranks == (1, 3)
    sends = {
        c["rank"]: c for r in (2, 3) for c in situations.calls("B51", r) if c["kind"] == "send"
    }
    assert (sends[2]["peer"], sends[2]["peer_group_rank"]) == (3, 1)
    assert (sends[3]["peer"], sends[3]["peer_group_rank"]) == (2, 0)
