"""The folder of a recording: which run owns it, and what its files are called.

A folder belongs to one run. `run.json` names that run; it is created once, exclusively, and every
process that writes into the folder compares its own run id with it. The id comes from the launcher
(`CHUNKSCOPE_RUN`), from torchrun, or from the parent process that ranks have in common.
"""

from __future__ import annotations

import json
import os
import re
import socket
import uuid
from pathlib import Path
from typing import Any

from ...errors import RecorderError
from ..schema import SCHEMA_VERSION

RUN_FILE = "run.json"
RECORDS = ".rec.jsonl"
TENSORS = ".tensors"
LAUNCHER = "launcher-"  # what the names of launchers' files begin with

# What the launcher tells the processes below it.
ENV_FOLDER = "CHUNKSCOPE_RECORD"
ENV_RUN = "CHUNKSCOPE_RUN"


def new_run() -> str:
    """Return an id for a new run."""
    return uuid.uuid4().hex


def host_name() -> str:
    """Return this host's name, of characters that a file name may have everywhere."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", socket.gethostname()) or "host"


def claim(folder: Path, run: str | None = None) -> str:
    """Make the folder this run's, and return the run's id.

    Args:
        folder: Made where it is missing.
        run: Id of the run; None works it out from the environment and the parent process.

    Raises:
        RecorderError: The folder holds another run, or cannot be written.
    """
    joined = run or os.environ.get(ENV_RUN)
    mine = joined or _common_run()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = _read_run(folder)
        if found is None:
            _create(folder, mine)
            found = _read_run(folder)
    except OSError as error:
        raise RecorderError(
            f"{folder}: cannot record into this folder: {error.strerror or error}"
        ) from error
    is_restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if found != mine or (joined is None and not is_restart and _is_over(folder)):
        raise RecorderError(
            f"{folder}: holds the recording of another run ({found}); "
            "name a new folder, or remove this one"
        )
    return mine


def claim_new(folder: Path, run: str | None = None) -> str:
    """Make the folder a new run's, or join the same run, and return the run's id.

    Args:
        folder: Made where it is missing.
        run: Id that launchers on other hosts have as well, which may have begun already; None
            where there are none.

    Raises:
        RecorderError: The folder holds another recording, or cannot be written.
    """
    found = _read_run(folder) if folder.is_dir() else None
    if found is None and folder.is_dir() and any(folder.glob("*" + RECORDS)):
        raise RecorderError(f"{folder}: holds recording files of another run; name a new folder")
    # Tomorrow's job may have the same port as today's. Who gives an id by hand means that run.
    if found is not None and found == run != os.environ.get(ENV_RUN) and _has_ended(folder):
        raise RecorderError(
            f"{folder}: holds the recording of an earlier run of {run}; "
            "name a new folder, or remove this one"
        )
    return claim(folder, run or new_run())


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a small JSON file, replacing it atomically."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    beside.write_text(json.dumps(value) + "\n", encoding="utf-8")
    os.replace(beside, path)


def open_exclusively(folder: Path, stem: str) -> tuple[int, str]:
    """Open a new file of records, and return its descriptor and the stem that was free."""
    for turn in range(1, 10_000):
        free = stem if turn == 1 else f"{stem}-{turn}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        try:
            return os.open(folder / (free + RECORDS), flags, 0o666), free
        except FileExistsError:
            continue
    raise RecorderError(f"{folder}: {stem}{RECORDS} and 9,998 names after it are taken")


def _create(folder: Path, run: str) -> None:
    text = json.dumps({"schema_version": SCHEMA_VERSION, "run": run}) + "\n"
    beside = folder / f".{RUN_FILE}.{host_name()}.{os.getpid()}.tmp"
    beside.write_text(text, encoding="utf-8")
    try:
        os.link(beside, folder / RUN_FILE)  # fails where it exists, and is never half written
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        if not (folder / RUN_FILE).exists():
            os.replace(beside, folder / RUN_FILE)
    finally:
        beside.unlink(missing_ok=True)


def _read_run(folder: Path) -> str | None:
    try:
        text = (folder / RUN_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    run = found.get("run") if isinstance(found, dict) else None
    return run if isinstance(run, str) else "unknown"


def _common_run() -> str:
    elastic = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if elastic != "none":
        return f"torchrun-{elastic}"
    if {"MASTER_ADDR", "MASTER_PORT", "RANK"} <= set(os.environ):  # ranks of several hosts
        return f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    parent = os.getppid()
    try:  # A number of a process is used again; with its start time it is one process.
        started = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        started = "0"
    return f"{host_name()}-{parent}-{started}"


def _is_over(folder: Path) -> bool:
    """Return whether all processes of this host that wrote into the folder are gone."""
    stem = re.compile(re.escape(host_name()) + r"-(\d+)(?:-\d+)?" + re.escape(RECORDS))
    found = [stem.fullmatch(path.name) for path in folder.glob("*" + RECORDS)]
    pids = {int(match[1]) for match in found if match}
    return bool(pids) and not any(_lives(pid) for pid in pids)


def _has_ended(folder: Path) -> bool:
    """Return whether all launchers that wrote into the folder are done, as far as one can see."""
    own = re.compile(re.escape(LAUNCHER + host_name()) + r"-(\d+)(?:-\d+)?" + re.escape(RECORDS))
    launchers = list(folder.glob(LAUNCHER + "*" + RECORDS))
    for path in launchers:
        if b'{"r":"close"' in path.read_bytes():
            continue
        match = own.fullmatch(path.name)
        if match is None or _lives(int(match[1])):
            return False
    return bool(launchers)


def _lives(pid: int) -> bool:
    if pid == os.getpid():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
