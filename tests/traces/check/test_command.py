"""`chunkscope check` on the command line: what it prints, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import chunkscope
from chunkscope.cli import main
from chunkscope.traces.trace import Group, Meta, Trace


def checked(*words: str) -> Result:
    return CliRunner().invoke(main, ["check", *words])


@pytest.fixture
def broken(tmp_path: Path) -> str:
    """A run in which rank 1 calls broadcast where rank 0 calls all_reduce."""
    columns = {
        "file": ["a", "b"],
        "seq": [0, 0],
        "kind": ["collective"] * 2,
        "provenance": ["called"] * 2,
        "rank": [0, 1],
        "group": [0, 0],
        "coll_seq": [0, 0],
        "collective": ["all_reduce", "broadcast"],
    }
    path = tmp_path / "broken.jsonl"
    chunkscope.write(Trace.build(columns, meta=Meta(world_size=2, groups=(Group((0, 1)),))), path)
    return str(path)


def test_problem_is_told_and_exits_with_1(broken: str) -> None:
    result = checked(broken)
    assert result.exit_code == 1
    assert result.output.startswith("One problem found in 1 collective call of 2 ranks.")
    assert "call #0 does not match across ranks" in result.output


def test_json_is_for_other_programs(broken: str) -> None:
    found = json.loads(checked(broken, "--json").output)
    assert [finding["code"] for finding in found["findings"]] == ["mismatch"]


def test_simulated_run_is_fine(tmp_path: Path) -> None:
    plan = chunkscope.build("all_reduce", "ring", 3).bind(6, "int64")
    chunkscope.write(
        chunkscope.simulate(plan, chunkscope.topology("star", 3)).trace(), tmp_path / "a.jsonl"
    )
    result = checked(str(tmp_path / "a.jsonl"))
    assert result.exit_code == 0, result.output
    assert "No problem found" in result.output


def test_what_cannot_be_read_exits_with_2(tmp_path: Path, broken: str) -> None:
    assert checked(str(tmp_path / "nothing")).exit_code == 2
    result = checked(broken, "--collective", "all_reduce")
    assert result.exit_code == 2
    assert "carries a probe" in result.output
    assert checked(broken, "--collective", "all_reduces").exit_code == 2
