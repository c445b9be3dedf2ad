"""The commands of development: what they say, and what they leave out."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SYSTEM_PACKAGES = ROOT / ".ci" / "system-packages"


@pytest.fixture
def fake_debian(tmp_path: Path) -> Path:
    """A PATH whose Debian has only libgl1, and whose apt-get writes down what it is asked."""
    commands = {
        "dpkg-query": 'case "$*" in *libgl1) printf installed;; *) exit 1;; esac',
        "apt-get": f'echo "$@" >> "{tmp_path}/asked"',
        "id": 'echo "${FAKE_UID:?}"',
    }
    for name, body in commands.items():
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)
    return tmp_path


def run_system_packages(path: str, uid: int) -> str:
    sh = shutil.which("sh")
    assert sh is not None
    done = subprocess.run(
        [sh, str(SYSTEM_PACKAGES)],
        env={"PATH": path, "FAKE_UID": str(uid)},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_root_is_told_what_is_installed_and_gets_it(fake_debian: Path) -> None:
    said = run_system_packages(f"{fake_debian}{os.pathsep}{os.environ['PATH']}", uid=0)
    asked = (fake_debian / "asked").read_text().splitlines()
    assert said.startswith("Going to install these Debian packages for the tests: chromium")
    assert "libgl1" not in said.split()
    assert asked[0].startswith("update")
    assert asked[1].split()[0] == "install"
    assert {"chromium", "libegl1"} <= set(asked[1].split())


def test_anybody_else_is_told_what_to_install(fake_debian: Path) -> None:
    said = run_system_packages(f"{fake_debian}{os.pathsep}{os.environ['PATH']}", uid=1000)
    assert "sudo apt-get install --no-install-recommends chromium libegl1" in said
    assert not (fake_debian / "asked").exists()


def test_other_systems_are_told_what_the_tests_need(fake_debian: Path) -> None:
    (fake_debian / "dpkg-query").unlink()
    assert "browser tests need Chromium" in run_system_packages(str(fake_debian), uid=1000)


def test_make_help_names_every_command() -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make on this machine: apt-get install make")
    said = subprocess.run([make, "-C", str(ROOT), "help"], capture_output=True, text=True).stdout
    for command in ("demo", "test", "check", "bench", "mypy", "format", "clean"):
        assert f"make {command} " in said


def test_an_old_python_is_refused_with_the_way_out(tmp_path: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make on this machine: apt-get install make")
    old = tmp_path / "python3.9"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    venv = tmp_path / "venv"
    done = subprocess.run(
        [make, "-C", str(ROOT), "demo", f"PYTHON={old}", f"VENV={venv}"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode != 0
    assert "chunkscope needs Python 3.11 or newer: make demo PYTHON=python3.11" in done.stdout
    assert not venv.exists()


@pytest.mark.parametrize("name", ["Makefile", "constraints.txt", "pyproject.toml", ".ci/run"])
def test_no_place_of_one_machine_is_written_down(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for sign in ("http://", "https://", "index-url=", "/home/", "/root/", str(ROOT)):
        assert sign not in text, f"{name} names {sign}"
