"""The commands that record, join and strip, as a person meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import chunkscope
from chunkscope.cli import main


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def chunkscope_(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == code, result.output
    return result


def recording(name: str, host: str, run: str = "night") -> None:
    """Write the recording of a host that called a barrier."""
    Path(name).mkdir()
    Path(name, "run.json").write_text(json.dumps({"schema_version": 1, "run": run}))
    call = {"kind": "collective", "provenance": "called", "collective": "barrier", "rank": 0}
    lines = [
        {"r": "header", "schema_version": 1, "run": run, "host": host, "pid": 7},
        {"r": "call", "n": 0, **call},
        {"r": "begin", "seq": 0, "call": 0, "t": 1},
        {"r": "end", "seq": 0, "t": 2},
    ]
    Path(name, f"{host}-7.rec.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))


def test_ranks_of_a_command_and_its_exit_code(capfd: pytest.CaptureFixture[str]) -> None:
    words = ("record", "-o", "run", "-n", "2", "--", "sh", "-c", "echo hi; exit 3")
    output = chunkscope_(*words, code=3).output
    assert sorted(capfd.readouterr().out.splitlines()) == ["[rank 0] hi", "[rank 1] hi"]
    assert "nothing was recorded" in output
    assert "Next: chunkscope open run" in output


def test_options_reach_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKSCOPE_STACK", "2")
    monkeypatch.setenv("CHUNKSCOPE_STATE", "full")
    words = ["--state", "none", "--only", "all_reduce,send", "--keep-last", "9", "--max-bytes"]
    line = 'env | grep "^CHUNKSCOPE_" | sort > seen'
    chunkscope_("record", "-o", "run", *words, "1KiB", "--", "sh", "-c", line)
    seen = dict(line.split("=", 1) for line in Path("seen").read_text().splitlines())
    assert seen.pop("CHUNKSCOPE_RECORD") == str(Path("run").resolve())
    assert seen.pop("CHUNKSCOPE_RUN")
    assert seen == {
        "CHUNKSCOPE_STATE": "none",
        "CHUNKSCOPE_ONLY": "all_reduce,send",
        "CHUNKSCOPE_KEEP_LAST": "9",
        "CHUNKSCOPE_MAX_BYTES": "1024",
        "CHUNKSCOPE_STACK": "2",
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "allreduce"], "known are all_reduce"),
        (["--state", "some"], "'none', 'sample', 'full'"),
        (["--keep-last", "0"], "expected 1 or more"),
        (["--wire-payload", "half"], "none of digest, whole and no size"),
        (["--max-bytes", "many"], "many"),
        (["-n", "0"], "less than 1"),
    ],
)
def test_bad_values_name_the_choices(words: list[str], message: str) -> None:
    assert message in chunkscope_("record", *words, "--", "true", code=2).output
    assert not Path("chunkscope-out").exists()


def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKSCOPE_KEEP_LAST", "few")
    assert "CHUNKSCOPE_KEEP_LAST is 'few'" in chunkscope_("record", "--", "true", code=2).output


def test_nothing_to_run() -> None:
    assert "nothing to run" in chunkscope_("record", code=2).output


def test_variables_for_where_no_launcher_can_run() -> None:
    output = chunkscope_("record", "--env", "-o", "a b", "--wire-payload", "4KiB").output
    assert f"export CHUNKSCOPE_RECORD='{Path('a b').resolve()}'" in output
    assert "export CHUNKSCOPE_WIRE=4096" in output
    assert "export CHUNKSCOPE_RUN=" in output
    assert "export PYTHONPATH=" in output
    assert not Path("a b").exists()


def test_merge_into_a_folder_and_into_a_file() -> None:
    recording("one", "ada")
    recording("two", "bob")
    output = chunkscope_("merge", "both", "one", "two").output
    assert output.splitlines()[2:] == ["Wrote both", "Next: chunkscope open both"]
    assert {p.host for p in chunkscope.read("both").meta.processes} == {"ada", "bob"}
    chunkscope_("merge", "both.jsonl", "one", "two")
    assert sorted(path.name for path in Path.cwd().iterdir()) == [
        "both",
        "both.jsonl",
        "one",
        "two",
    ]


def test_merge_of_other_runs_says_how() -> None:
    recording("one", "ada")
    recording("two", "bob", run="day")
    assert "--force" in chunkscope_("merge", "both", "one", "two", code=2).output
    chunkscope_("merge", "--force", "both", "one", "two")


def test_strip_takes_out_hosts() -> None:
    recording("one", "ada")
    chunkscope_("strip", "one", "shared.jsonl")
    assert "ada" not in Path("shared.jsonl").read_text()
    chunkscope_("strip", "--keep-hosts", "one", "kept.jsonl")
    assert "ada" in Path("kept.jsonl").read_text()
