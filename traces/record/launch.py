"""Runs a program and records every Python process of it that uses torch.distributed.

code = run_recorded(["train.py", "--epochs", "1"], Path("chunkscope-out/run"))

The program runs as it is, in a child process, or in several that are the ranks of a job. A folder
that is first on PYTHONPATH holds a `sitecustomize`, which Python imports in the child and in every
Python below it; what they need to know stands in the environment. Not reached: Pythons started with
-I, -E or -S.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from ...errors import RecorderError
from .children import Child, collected_signals, follow
from .folder import ENV_FOLDER, ENV_RUN, claim_new
from .job import job_id
from .launcher_file import LauncherFile
from .options import VARIABLES, Options

SITE = Path(__file__).resolve().parent / "site"


def run_recorded(
    argv: Sequence[str],
    folder: Path,
    *,
    options: Options | None = None,
    ranks: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> int:
    """Run a program, record it into a folder, and return its exit code.

    Args:
        argv: A script and its arguments, `-m`, a module and its arguments, or `--` and a command.
        folder: Made where it is missing. It must hold no recording, but one of the same job that
            another host's launcher has begun.
        options: What to keep; all that is kept by default.
        ranks: Processes to start as the ranks of one job on this machine, with the variables that
            `init_process_group` reads. Each line that one writes gets its rank before it. None
            runs the program once, as it is.
        say: Called with a sentence for the user where ranks are stopped.

    Returns:
        The exit code, with ranks that of the first that failed; 128 + n for signal n, as shells
        have it.

    Raises:
        RecorderError: There is no such program, or the folder cannot be recorded into.
    """
    if ranks is not None and ranks < 1:
        raise RecorderError(f"number of ranks is {ranks}, expected 1 or more")
    command = command_of(argv)
    if shutil.which(command[0]) is None:  # said before the folder is taken
        raise RecorderError(f"cannot run {command[0]}: No such file or directory")
    run = claim_new(folder, None if ranks is not None else job_id(command, os.environ))
    options = options or Options()
    with ExitStack() as stack:
        log = stack.enter_context(LauncherFile(folder, run, command, ranks))
        environment = environment_of(folder, run, options)
        if options.wire is not None:
            from .wire import tap

            environment.update(stack.enter_context(tap(folder, run, options)))
        signals = stack.enter_context(collected_signals())
        children = _start(command, environment, ranks)
        code = follow(children, signals, ended=log.write_exit, say=say)
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


def recording_variables(
    folder: Path,
    run: str | None,
    options: Options | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment variables that make Python processes record themselves.

    Args:
        folder: Folder of the recording.
        run: Id of the run; None leaves it to the processes to find one that they share.
        options: What to keep.
        base: Environment whose PYTHONPATH is kept; this process's by default.
    """
    found = (os.environ if base is None else base).get("PYTHONPATH")
    return {
        "PYTHONPATH": f"{SITE}{os.pathsep}{found}" if found else str(SITE),
        ENV_FOLDER: str(folder.resolve()),
        **({} if run is None else {ENV_RUN: run}),
        **(options or Options()).to_environment(),
    }


def environment_of(
    folder: Path,
    run: str,
    options: Options | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return an environment in which Python processes record themselves, as the options say.

    Args:
        folder: Folder of the recording.
        run: Id of the run.
        options: What to keep.
        base: Environment to start from; this process's by default.
    """
    given = os.environ if base is None else base
    others = {name: value for name, value in given.items() if name not in VARIABLES.values()}
    return {**others, **recording_variables(folder, run, options, given)}


def rank_variables(rank: int, ranks: int, port: int) -> dict[str, str]:
    """Return the environment variables of one rank of a job on this machine.

    Args:
        rank: The rank.
        ranks: Number of ranks.
        port: Port on which rank 0 will listen.
    """
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def free_port() -> int:
    """Return a TCP port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start(command: list[str], environment: dict[str, str], ranks: int | None) -> list[Child]:
    """Start the program, once or as ranks."""
    if ranks is None:
        return [Child(_popen(command, environment))]
    # Through a pipe Python keeps its output back until much has come together; a person who follows
    # a run wants each line. A pseudo-terminal would do it, too, but it mixes stdout with stderr and
    # makes programs draw colours. Threads: as many as torchrun gives ranks that share a machine.
    shared = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", **environment}
    port = free_port()
    children: list[Child] = []
    try:
        for rank in range(ranks):
            own = {**shared, **rank_variables(rank, ranks, port)}
            children.append(Child(_popen(command, own, is_piped=True, has_input=rank == 0), rank))
    except BaseException:
        for child in children:
            child.process.kill()
            child.process.wait()
        raise
    return children


def _popen(
    command: list[str],
    environment: dict[str, str],
    *,
    is_piped: bool = False,
    has_input: bool = True,
) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE if is_piped else None
    stdin = None if has_input else subprocess.DEVNULL
    try:
        return subprocess.Popen(command, env=environment, stdin=stdin, stdout=pipe, stderr=pipe)
    except OSError as error:
        raise RecorderError(f"cannot run {command[0]}: {error.strerror or error}") from None
