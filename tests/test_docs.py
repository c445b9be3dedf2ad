"""Every command shown in the documents is run, and prints what the documents show."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

from chunkscope.sim.algorithms import ALGORITHMS

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*.md")),
]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.M | re.S)
SET_UP = ("pip", "python3", "git", "cd", "source", "apt-get")  # checked by reading, not by running
SERVES = ("open", "demo")


class Shown(NamedTuple):
    """A command in a document, and the output shown below it."""

    command: str
    output: str


def shown(document: str) -> Iterator[Shown]:
    """Yield the commands of a document's console blocks, in order."""
    for language, block in BLOCK.findall((ROOT / document).read_text(encoding="utf-8")):
        if language == "console":
            for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
                command, _, output = part.replace("\\\n", "").partition("\n")
                yield Shown(command.split("  #")[0].strip(), output)


def environment() -> dict[str, str]:
    """Return an environment in which `chunkscope` is found and no browser opens."""
    bin_folder = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": bin_folder + os.pathsep + os.environ["PATH"],
        "BROWSER": "true",
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }


def run(command: str, folder: Path) -> str:
    """Run a command and return what it printed; one that serves is stopped when it says where."""
    words = shlex.split(command)
    if words[0] == "chunkscope" and words[1] in SERVES:
        return run_server(words, folder)
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_server(words: list[str], folder: Path) -> str:
    """Start a command that serves, wait for the address, and press Ctrl-C."""
    server = subprocess.Popen(
        words, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True, bufsize=1
    )
    printed = []
    try:
        assert server.stdout is not None
        for line in server.stdout:
            printed.append(line)
            if "http://127.0.0.1" in line:
                break
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) in (0, 130, -signal.SIGINT)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    assert any("http://127.0.0.1" in line for line in printed), "".join(printed)
    return "".join(printed)


def check_set_up(command: str) -> None:
    """Check a line that would change the machine: its extras and targets must exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra in re.findall(r"chunkscope\[([\w,]+)\]", command):
        assert set(extra.split(",")) <= set(project["optional-dependencies"]), command
    if command.startswith("make "):
        target = command.split()[1]
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), command


@pytest.mark.ranks
@pytest.mark.timeout(300)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_print_what_the_document_shows(document: str, tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    checker = doctest.OutputChecker()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for command, output in shown(document):
        if command.split()[0] in (*SET_UP, "make"):
            check_set_up(command)
            continue
        printed = run(command, tmp_path)
        if output.strip():
            assert checker.check_output(output, printed, flags), f"$ {command}\n{printed}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_blocks_run(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with patch.dict(ALGORITHMS):  # a document may register one
        for language, block in BLOCK.findall((ROOT / document).read_text(encoding="utf-8")):
            if language == "python" and "def test_" not in block:
                exec(compile(block, document, "exec"), names)


@pytest.mark.ranks
@pytest.mark.timeout(300)
def test_the_test_in_the_readme_passes_once_its_golden_is_written(tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    (block,) = [text for language, text in blocks if language == "python" and "def test_" in text]
    (tmp_path / "test_readme.py").write_text(block, encoding="utf-8")
    pytest_ = f"{shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider test_readme.py"
    run(f"{pytest_} --chunkscope-update", tmp_path)
    assert "all_reduce" in (tmp_path / "golden" / "average-2.txt").read_text()
    assert "1 passed" in run(pytest_, tmp_path)


def test_readme_shows_commands() -> None:
    commands = [command for command, _ in shown("README.md")]
    assert {"make demo", "make test"} <= set(commands)
    assert sum(command.startswith("chunkscope ") for command in commands) >= 5


def test_the_ring_in_the_document_is_the_one_that_its_commands_use() -> None:
    blocks = BLOCK.findall((ROOT / "docs/own-schedules.md").read_text(encoding="utf-8"))
    example = (ROOT / "tests/examples/own_ring.py").read_text(encoding="utf-8")
    ring = example[example.index("def ring") :]
    assert any(ring in block for _, block in blocks)
