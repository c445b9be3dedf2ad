"""What a person sees who types something wrong: where, what was found, what was expected."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import chunkscope
from chunkscope.cli import main
from chunkscope.sim.spec import Spec
from chunkscope.traces.trace import Trace


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def chunkscope_(*words: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(main, list(words))


def refused(*words: str) -> str:
    """Run a command that must be refused with exit code 2, and return its message."""
    result = chunkscope_(*words)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.output


def test_group_size_zero() -> None:
    assert "group size is 0, expected 1 or more" in refused("sim", "all_reduce", "-n", "0")


def test_unknown_collective() -> None:
    assert "all_reduce" in refused("sim", "allreduce")


def test_unknown_algorithm_names_those_that_exist_and_the_nearest() -> None:
    message = refused("sim", "all_reduce", "-a", "rin")
    assert "'rin'" in message
    assert "gloo" in message
    assert "tree" in message
    assert re.search(r"did you mean.*ring", message)


def test_algorithm_that_does_not_fit_the_group_size() -> None:
    Path("ring.txt").write_text(chunkscope.build("all_reduce", "ring", 4).to_text())
    message = refused("sim", "all_reduce", "-a", "ring.txt", "-n", "3")
    assert "4" in message
    assert "3" in message


def test_count_that_an_equal_split_cannot_divide() -> None:
    message = refused("sim", "all_gather", "-n", "3", "--bytes", "40")
    assert "10 elements" in message
    assert "3 ranks" in message


def test_bytes_that_are_no_multiple_of_the_element() -> None:
    message = refused("sim", "all_reduce", "--bytes", "10")
    assert "10 bytes" in message
    assert "float32" in message


def test_size_that_is_none() -> None:
    assert "'lots'" in refused("sim", "all_reduce", "--bytes", "lots")


def test_topology_points_at_the_character() -> None:
    message = refused("sim", "all_reduce", "--topology", "ring:100XB/s")
    text, caret = message.splitlines()[-2:]
    assert text.strip() == "ring:100XB/s"
    assert text[caret.index("^")] in "1X"


@pytest.mark.parametrize(
    ("topology", "says"),
    [
        ("rign", "did you mean ring?"),
        ("dgx-h100x0", "expected 1 machine or more"),
        ("ring:2*moon:2", "unknown dimension 'moon'"),
        ("torus:99999x99999", "more than 500,000 nodes"),
        ("broken.json", "broken.json: is neither GraphML nor JSON"),
        ("small.json", "small.json: has places for 2 ranks, but there are 4"),
        ("folder.graphml", "folder.graphml: cannot be read: Is a directory"),
    ],
)
def test_topologies_that_cannot_be(topology: str, says: str) -> None:
    Path("folder.graphml").mkdir()
    small = chunkscope.topology("star", 2).to_json()
    Path("small.json").write_text(small)
    Path("broken.json").write_text(small[:-7])
    assert says in " ".join(refused("sim", "all_reduce", "--topology", topology).split())


def test_ranks_without_a_path() -> None:
    topology = chunkscope.topology("line", 4).without_link("r1", "r2")
    schedule = chunkscope.build("all_reduce", "ring", 4)
    with pytest.raises(chunkscope.ChunkscopeError, match=r"no path.*1.*2"):
        chunkscope.simulate(schedule.bind(16, "float32"), topology)


@pytest.mark.ranks
def test_recording_with_a_missing_process_file_opens_and_says_so() -> None:
    assert chunkscope_("run", "all_reduce", "-n", "2", "-o", "run").exit_code == 0
    files = sorted(Path("run").glob("*.rec.jsonl"))
    whole = chunkscope.read("run")
    gone = next(f for f in files if "1" in _ranks_in(whole, f))
    gone.unlink()
    trace = chunkscope.read("run")
    assert 0 < len(trace) < len(whole)
    assert any("rank 1" in note for note in trace.meta.notes)
    assert "rank 1 has no file" in chunkscope_("show", "run").output


def _ranks_in(trace: Trace, file: Path) -> set[str]:
    rows = trace.where(file=file.name.removesuffix(".rec.jsonl"))
    return {str(trace.events["rank"][int(row)]) for row in rows}


def test_empty_trace() -> None:
    chunkscope.write(Trace.build({}), Path("empty.jsonl"))
    result = chunkscope_("show", "empty.jsonl")
    assert result.exit_code == 0
    assert "0 events" in result.output
    message = refused("export", "empty.jsonl", "empty.svg")
    assert "no collective" in message


def test_traces_of_different_world_size() -> None:
    chunkscope.write(Spec("all_reduce", ranks=2).trace(), Path("two.jsonl"))
    chunkscope.write(Spec("all_reduce", ranks=3).trace(), Path("three.jsonl"))
    result = chunkscope_("diff", "two.jsonl", "three.jsonl")
    assert result.exit_code == 1
    assert "2 ranks" in result.output
    assert "3 ranks" in result.output
    assert "jobs of different size" in result.output


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/version").exists(), reason="no /proc")
@pytest.mark.parametrize("name", ["trace.jsonl", "film.svg", "film.html"])
def test_output_that_cannot_be_written(name: str) -> None:
    # A folder in /proc refuses everybody, root included.
    target = f"/proc/version/{name}"
    words = ("sim", "all_reduce", "-o") if name.endswith("jsonl") else ("export", "all_reduce")
    message = refused(*words, target)
    assert "/proc/version" in message


def test_unreadable_file_says_what_it_looks_like() -> None:
    Path("picture.jsonl").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    message = refused("show", "picture.jsonl")
    assert "picture.jsonl" in message
    assert "PNG" in message


def test_no_such_file() -> None:
    assert "gone.parquet" in refused("show", "gone.parquet")


def test_newer_schema_names_both_versions() -> None:
    chunkscope.write(Spec("all_reduce", ranks=2).trace(), Path("new.jsonl"))
    text = Path("new.jsonl").read_text().replace('"schema_version":1', '"schema_version":99')
    Path("new.jsonl").write_text(text)
    message = refused("show", "new.jsonl")
    assert "99" in message
    assert "1" in message
    assert "upgrade" in message


def test_unknown_export_format_names_the_known() -> None:
    message = refused("export", "all_reduce", "film.avi")
    for suffix in (".html", ".gif", ".mp4", ".png", ".svg"):
        assert suffix in message


def test_port_in_use_takes_the_next_and_says_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = subprocess.Popen(
            [sys.executable, "-m", "chunkscope", "open", ".", "--port", str(port), "--no-browser"],
            stdout=subprocess.PIPE,
            text=True,
        )
        printed = []
        try:
            assert server.stdout is not None
            for line in server.stdout:
                printed.append(line)
                if "http://" in line:
                    break
        finally:
            server.kill()
            server.communicate(timeout=20)
    text = "".join(printed)
    assert f"{port} is in use" in text
    assert re.search(rf"http://127\.0\.0\.1:(?!{port}\b)\d+", text)


SCRIPT = """
import sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
dist.all_reduce(torch.ones(1))
print("ready", flush=True)
for _ in range(600):  # a signal just before a long sleep would be seen only after it
    time.sleep(0.1)
"""


@pytest.mark.ranks
def test_ctrl_c_while_recording_keeps_what_was_recorded(tmp_path: Path) -> None:
    Path("wait.py").write_text(SCRIPT)
    words = ["record", "-o", "cut", "wait.py", str(tmp_path / "store")]
    watched = subprocess.Popen(
        [sys.executable, "-m", "chunkscope", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert watched.stdout is not None
        assert watched.stdout.readline().strip() == "ready"
        time.sleep(0.2)
        watched.send_signal(signal.SIGINT)
        watched.communicate(timeout=30)
    finally:
        watched.kill()
        watched.wait()
    trace = chunkscope.read(Path("cut"))
    rows = trace.where(kind="collective", collective="all_reduce")
    assert [trace.events["status"][int(row)] for row in rows] == ["ok"]
    shutil.rmtree("cut")
