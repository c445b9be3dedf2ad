"""`chunkscope compare`, as a person meets it."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import chunkscope
from chunkscope.cli import main
from chunkscope.dashboard import comparison_page

STAR = ["-n", "8", "--topology", "star:10GB/s,1us", "-a", "ring", "-a", "recursive_doubling"]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, and leave fonts out of pages: cutting them takes long."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(comparison_page, "face_rule", lambda *args: "")


def compare(*words: str, code: int = 0) -> Result:
    """Run the command in this process and check its exit code."""
    result = CliRunner().invoke(main, ["compare", *words])
    assert result.exit_code == code, result.output
    return result


def test_it_answers_in_one_sentence_and_a_table() -> None:
    lines = compare("all_reduce", *STAR).output.splitlines()
    assert lines[0] == "all_reduce on 8 ranks of star:10GB/s,1us"
    assert re.fullmatch(r"Use recursive_doubling below [\d.]+ KiB and ring above\.", lines[1])
    table = [line for line in lines if re.match(r" *\d+ [KMG]iB ", line)]
    assert len(table) == 21
    assert "recursive_doubling" in table[0].split("µs")[0]
    assert table[-1].split()[:3] == ["1", "GiB", "ring"]
    assert max(map(len, lines)) <= 100
    assert lines[-2].startswith("step model")
    assert lines[-1] == "Wrote chunkscope-out/compare-all_reduce-8.html"
    assert "Use recursive_doubling" in Path("chunkscope-out/compare-all_reduce-8.html").read_text()


def test_all_shows_every_algorithm_and_star_the_fastest() -> None:
    output = compare(
        "all_reduce", *STAR, "--sizes", "1KiB:1MiB:x32", "--all", "--csv", "t.csv"
    ).output
    rows = {line.split("  ")[0]: line for line in output.splitlines() if "µs" in line}
    assert set(rows) == {"ring", "recursive_doubling", "lower bound"}
    assert [rows[name].count("*") for name in ("ring", "recursive_doubling")] == [1, 2]


def test_json_and_csv_are_for_programs() -> None:
    words = ("--sizes", "1KiB,1MiB", "--json", "--csv", "times.csv")
    facts = json.loads(compare("all_reduce", *STAR, *words).stdout)
    assert facts["winner"] == ["recursive_doubling", "ring"]
    assert len(facts["crossovers"]) == 1
    rows = list(csv.DictReader(Path("times.csv").read_text().splitlines()))
    assert [row["algorithm"] for row in rows] == ["ring", "recursive_doubling"] * 2
    assert not Path("chunkscope-out").exists()


def test_options_of_the_model_count() -> None:
    words = ("all_reduce", *STAR, "--sizes", "1MiB", "--json")
    plain, strict = (
        json.loads(compare(*words, *more).stdout) for more in ((), ("--policy", "lockstep"))
    )
    assert (plain["model"]["policy"], strict["model"]["policy"]) == ("dataflow", "lockstep")


def test_the_foot_says_what_is_not_default() -> None:
    options = "--ports 1 --jitter 10% --seed 3 --slow-rank 2:x3 --header 40 --delay 1:2us"
    words = shlex.split(options)
    output = compare("all_reduce", *STAR, "--sizes", "1KiB", "--csv", "t.csv", *words).output
    (foot,) = (line for line in output.splitlines() if line.startswith("step model"))
    for said in ("header 40 B", "delay rank 1 2.00 µs", "ports 1", "jitter 0.1", "seed 3",
                 "slow rank 2 3.0"):  # fmt: skip
        assert said in foot
    assert "rendezvous" not in foot


def test_own_algorithms_and_parameters() -> None:
    Path("mine.py").write_text(
        "import chunkscope\n"
        "def turned(group_size):\n"
        "    plan = chunkscope.build('all_reduce', 'ring_tutorial', group_size)\n"
        "    return plan\n"
    )
    words = ("-n", "4", "-a", "mine.py:turned", "-a", "ring_segmented:segments=4")
    output = compare("all_reduce", *words, "--sizes", "1MiB", "--html", "page.html").output
    assert "ring_tutorial" in output
    assert "ring_segmented:segments=4" in output
    assert "Wrote page.html" in output


def test_what_is_left_out_is_said() -> None:
    words = ("-n", "6", "--sizes", "1KiB,2KiB", "--csv", "times.csv")
    output = compare("all_gather", *words).output
    assert re.search(r"^Left out .*recursive_doubling.* does not fit 6 ranks", output, re.M)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("all_reduce", "--sizes", "1KiB:1XiB"), "\n  1KiB:1XiB\n       ^"),
        (("all_reduce", "-a", "rink"), "did you mean 'ring'"),
        (("all_reduce", "--topology", "rink"), "rink"),
        (("all_reduce", "-n", "0"), "expected 1 or more"),
        (("allreduce",), "did you mean 'all_reduce'"),
    ],
)
def test_errors_are_one_message(words: tuple[str, ...], message: str) -> None:
    output = compare(*words, code=2).output
    assert output.startswith("chunkscope: ")
    assert message in output


def test_open_passes_over_the_page_of_a_comparison() -> None:
    from chunkscope.commands.common import newest

    CliRunner().invoke(main, ["sim", "all_reduce", "-o", "chunkscope-out/run.jsonl"])
    compare("all_reduce", *STAR, "--sizes", "1KiB")
    assert newest() == Path("chunkscope-out/run.jsonl")
    assert len(chunkscope.read(newest())) > 0
