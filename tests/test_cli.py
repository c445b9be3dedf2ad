"""The command line, as a person meets it."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import chunkscope
from chunkscope.cli import main
from chunkscope.commands.console import progress
from chunkscope.sim.spec import Spec


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def chunkscope_(*words: str, code: int = 0) -> Result:
    """Run the command line in this process and check its exit code."""
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize("name", list(main.commands))
def test_help_has_one_example_that_parses(name: str) -> None:
    text = chunkscope_(name, "--help").output
    examples = re.findall(rf"Example: chunkscope ({name}.*)", text)
    assert len(examples) == 1, text
    words = shlex.split(examples[0].split(" >>")[0])
    command = main.commands[name]
    assert isinstance(command.make_context(name, words[1:]), click.Context)


def test_help_lists_every_command_in_full_sentences() -> None:
    lines = chunkscope_("--help").output.split("Commands:")[1].strip().splitlines()
    assert len(lines) == len(main.commands)
    assert all(line.rstrip().endswith(".") and not line.rstrip().endswith("..") for line in lines)


def test_sim_alone_is_a_ring_of_four_on_sixteen_elements() -> None:
    output = chunkscope_("sim", "all_reduce").output
    assert "all_reduce by ring, 4 ranks, 64 B of float32" in output
    lines = output.strip().splitlines()
    assert len(lines) <= 8, "a summary, no wall"
    assert "6.00 µs (lower bound 2.00 µs, 3.00 ×)" in lines[1]
    assert lines[-1].startswith("Next: chunkscope open chunkscope-out/sim-all_reduce-ring-4.jsonl")
    trace = chunkscope.read("chunkscope-out/sim-all_reduce-ring-4.jsonl")
    assert len(trace.where(kind="send")) == 24


def test_sim_without_output_takes_a_new_name_each_time() -> None:
    for _ in range(3):
        chunkscope_("sim", "all_reduce")
    names = sorted(path.name for path in Path("chunkscope-out").iterdir())
    assert names == [f"sim-all_reduce-ring-4{n}.jsonl" for n in ("-2", "-3", "")]


def test_sim_json_tells_the_model() -> None:
    words = "-a ring -n 8 --bytes 64MiB --topology ring:100GB/s,1us --json -o big.jsonl"
    facts = json.loads(chunkscope_("sim", "all_reduce", *words.split()).output)
    expected = 14 * (1000 + 64 * 2**20 / 8 / 100)
    assert facts["duration_ns"] == pytest.approx(expected, abs=1)
    assert facts["model"]["policy"] == "dataflow"
    assert facts["bounds"]["decides"] == "896 MiB into all ranks together at 1.60 TB/s"
    assert sum(stage["bytes_ns"] for stage in facts["chain"]) == pytest.approx(expected - 14_000)
    assert facts["links"][0]["size_bytes"] == 14 * 8 * 2**20
    assert [rank["waiting"] for rank in facts["ranks"]] == [0] * 8
    assert Path("big.jsonl").exists()


def test_sim_detail_shows_bounds_links_chain_and_ranks() -> None:
    output = chunkscope_("sim", "broadcast", "-a", "chain", "-n", "4", "--detail").output
    for title in ("Lower bounds", "Busiest links", "The chain that decides", "What ranks did"):
        assert title in output
    assert "rank 3 waited" in output
    assert "(step 4, r1 -> r2) waited for data; 1.00 µs latency" in output


def test_sim_writes_no_trace_of_millions_of_transfers_unless_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chunkscope.commands.making._TRACE_UP_TO", 23)
    output = chunkscope_("sim", "all_reduce").output
    assert "No trace written: it would hold 24 transfers" in output
    assert not Path("chunkscope-out").exists()
    chunkscope_("sim", "all_reduce", "-o", "asked.jsonl")
    assert Path("asked.jsonl").exists()


def test_own_algorithm_by_file_and_function() -> None:
    Path("mine.py").write_text(
        "import chunkscope\n"
        "def ring(group_size):\n"
        "    return chunkscope.build('all_reduce', 'ring', group_size)\n"
    )
    assert "4 ranks" in chunkscope_("sim", "all_reduce", "-a", "mine.py:ring").output
    assert "valid" in chunkscope_("verify", "mine.py:ring", "-n", "3").output


def test_verify_says_valid_or_names_the_finding() -> None:
    assert "valid (24 transfers in 6 steps" in chunkscope_("verify", "all_reduce:ring:4").output
    text = chunkscope.build("all_reduce", "ring", 4).to_text()
    lines = text.splitlines(keepends=True)
    row = next(k for k, line in enumerate(lines) if "+>" in line)
    Path("broken.txt").write_text("".join(lines[:row] + lines[row + 1 :]))
    result = chunkscope_("verify", "broken.txt", code=1)
    assert "POSTCONDITION" in result.output
    findings = json.loads(chunkscope_("verify", "broken.txt", "--json", code=1).output)["findings"]
    assert {"code", "place", "step", "row", "message"} == set(findings[0])


def test_show_filters_by_rank_kind_and_step() -> None:
    chunkscope_("sim", "all_reduce", "-o", "run.jsonl")
    words = ("--rank", "2", "--kind", "send", "--step", "3")
    output = chunkscope_("show", "run.jsonl", *words).output
    assert "simulated trace of 4 ranks" in output
    assert output.count("send to 3") == 1
    rows = json.loads(chunkscope_("show", "run.jsonl", *words, "--json").output)
    assert [(row["rank"], row["kind"], row["step"]) for row in rows] == [(2, "send", 3)]


def test_diff_exit_codes_and_json() -> None:
    chunkscope_("sim", "all_reduce", "-o", "a.jsonl")
    chunkscope_("sim", "all_reduce", "-a", "ring_tutorial", "-o", "b.jsonl")
    chunkscope_("diff", "a.jsonl", "a.jsonl")
    assert "rank" in chunkscope_("diff", "a.jsonl", "b.jsonl", code=1).output
    report = json.loads(chunkscope_("diff", "a.jsonl", "b.jsonl", "--json", code=1).output)
    assert report["same"] is False
    chunkscope_("diff", "all_reduce:ring:4", "a.jsonl")


def test_diff_of_schedules() -> None:
    for name in ("ring", "ring_tutorial"):
        Path(f"{name}.txt").write_text(chunkscope.build("all_reduce", name, 4).to_text())
    chunkscope_("diff", "ring.txt", "ring.txt")
    chunkscope_("diff", "ring.txt", "ring_tutorial.txt", code=1)


def test_export_of_a_spec_is_one_command() -> None:
    output = chunkscope_("export", "all_reduce:ring:4", "slide.svg").output
    assert output.startswith("Wrote slide.svg (")
    assert "<svg" in Path("slide.svg").read_text()[:200]


def test_list_names_algorithms_and_collectives() -> None:
    output = chunkscope_("list").output
    for word in ("gloo", "tree", "chain", "reduce_scatter"):
        assert word in output
    rows = json.loads(chunkscope_("list", "broadcast", "--json").output)
    assert {row["collective"] for row in rows} == {"broadcast"}
    assert {"tree", "chain"} <= {row["algorithm"] for row in rows}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    assert "_CHUNKSCOPE_COMPLETE" in chunkscope_("completion", shell).output


def test_spec_writes_the_command_that_makes_it() -> None:
    spec = Spec("all_reduce", "tree", 8, size_bytes=64 * 2**20, topology="star")
    words = "chunkscope sim all_reduce -a tree -n 8 --bytes 64MiB --topology star"
    assert spec.command() == words


@pytest.mark.ranks
def test_run_into_a_file_leaves_the_file_alone() -> None:
    output = chunkscope_("run", "all_reduce", "-n", "2", "-o", "ring.jsonl").output
    assert "Wrote ring.jsonl" in output
    assert [path.name for path in Path.cwd().iterdir()] == ["ring.jsonl"]
    assert len(chunkscope.read("ring.jsonl").where(kind="send")) == 4


def test_a_reader_that_has_enough_ends_show_quietly() -> None:
    chunkscope_("sim", "all_reduce", "-n", "8", "-o", "run.jsonl")
    done = subprocess.run(
        f"{sys.executable} -m chunkscope show run.jsonl --limit 0 --json | head -1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout
    assert not done.stderr


@pytest.mark.parametrize(("patience_s", "shown"), [(0.0, True), (60.0, False)])
def test_a_bar_shows_on_a_terminal_once_something_takes_long(
    patience_s: float, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = os.openpty()
    monkeypatch.setattr("chunkscope.commands.console._PATIENCE_S", patience_s)
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        with progress("Thinking") as tell:
            for _ in range(100):
                time.sleep(0.02)
                tell(1, 4)
                if not shown or select.select([ours], [], [], 0)[0]:
                    break
        os.set_blocking(ours, False)
        found = b""
        with suppress(BlockingIOError):
            found = os.read(ours, 1 << 16)
    os.close(ours)
    assert (b"Thinking" in found) == shown


def test_no_bar_where_output_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("Thinking") as tell:
        tell(1, 2)
    assert capsys.readouterr() == ("", "")
