"""Runs a program and records every Python process of it that uses torch.distributed.

code = run_recorded(["train.py", "--epochs", "1"], Path("chunkscope-out/run"))

The program runs as it is, in a child process. A folder that is first on PYTHONPATH holds a
`sitecustomize`, which Python imports in the child and in every Python below it; what they need to
know stands in the environment. Not reached: Pythons started with -I, -E or -S.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...errors import RecorderError
from ..schema import SCHEMA_VERSION
from .folder import (
    ENV_FOLDER,
    ENV_RUN,
    ENV_STATE,
    claim_new,
    host_name,
    open_exclusively,
)
from .writer import clean, dump, warn_once

SITE = Path(__file__).resolve().parent / "site"
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_recorded(argv: Sequence[str], folder: Path, *, state: str = "full") -> int:
    """Run a program, record it into a folder, and return its exit code.

    Args:
        argv: A script and its arguments, `-m`, a module and its arguments, or `--` and a command.
        folder: Made where it is missing; must not hold a recording.
        state: What to keep of tensors: none, sample or full.

    Returns:
        The exit code; 128 + n where signal n ended the program, as shells have it.

    Raises:
        RecorderError: There is no such program, or the folder cannot be recorded into.
    """
    command = command_of(argv)
    run = claim_new(folder)
    started = time.monotonic_ns()
    environment = environment_of(folder, run, state)
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise RecorderError(f"cannot run {command[0]}: {error.strerror or error}") from None
    with _pass_on(child):
        code = child.wait()
    _write_exit(folder, run, child.pid, code, command, started)
    return 128 - code if code < 0 else code


def command_of(argv: Sequence[str]) -> list[str]:
    """Return the command that runs what `chunkscope record` was given.

    Example:
        >>> command_of(["--", "torchrun", "train.py"])
        ['torchrun', 'train.py']
    """
    if not argv:
        raise RecorderError("nothing to run: give a script, -m and a module, or -- and a command")
    if argv[0] == "--":
        if len(argv) < 2:
            raise RecorderError("nothing to run: a command is missing after --")
        return list(argv[1:])
    if argv[0] == "-m":
        if len(argv) < 2:
            raise RecorderError("nothing to run: a module is missing after -m")
        return [sys.executable, *argv]
    if not Path(argv[0]).exists():
        raise RecorderError(f"{argv[0]}: there is no such script; a command goes after --")
    return [sys.executable, *argv]


def environment_of(
    folder: Path, run: str, state: str = "full", base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment in which Python processes record themselves.

    Args:
        folder: Folder of the recording.
        run: Id of the run.
        state: What to keep of tensors.
        base: Environment to start from; this process's by default.
    """
    environment = dict(os.environ if base is None else base)
    found = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{SITE}{os.pathsep}{found}" if found else str(SITE)
    environment[ENV_FOLDER] = str(folder.resolve())
    environment[ENV_RUN] = run
    environment[ENV_STATE] = state
    return environment


@contextmanager
def _pass_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass signals to the child and live on: what it recorded is still to be completed.

    A terminal sends Ctrl-C to the child as well, and then it is not sent a second time.
    """

    def handle(number: int, frame: object) -> None:
        has_it = number == signal.SIGINT and sys.stdin is not None and _is_foreground()
        if not has_it and child.poll() is None:
            child.send_signal(number)

    previous = {}
    try:
        for number in _PASSED_ON:
            previous[number] = signal.signal(number, handle)
    except ValueError:  # not the main thread: signals are somebody else's
        pass
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_foreground() -> bool:
    """Return whether a terminal's Ctrl-C reaches our process group."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


def _write_exit(
    folder: Path, run: str, pid: int, code: int, command: Sequence[str], started: int
) -> None:
    """Write how the child ended, in a file of the launcher's own."""
    header = {
        "r": "header",
        "schema_version": SCHEMA_VERSION,
        "run": run,
        "host": host_name(),
        "pid": os.getpid(),
        "launcher": True,
        "monotonic_ns": started,
        "wall_ns": time.time_ns(),
        "command": [clean(part) for part in command],
    }
    ended = {"r": "exit", "pid": pid, "t": time.monotonic_ns()}
    ended["signal" if code < 0 else "code"] = abs(code)
    try:
        descriptor, _ = open_exclusively(folder, f"launcher-{host_name()}-{os.getpid()}")
        with os.fdopen(descriptor, "wb") as file:
            file.write(dump(header) + dump(ended))
    except OSError as error:  # the program has ended well, and its exit code counts
        warn_once(
            f"chunkscope: how the program ended is not in the recording {folder}: "
            f"{error.strerror or error}"
        )
