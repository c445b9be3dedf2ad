"""The wire tap: every message that native gloo sends between ranks, without privileges.

with tap(folder, run, Options(wire="digest")) as variables:
    subprocess.run(command, env={**environment, **variables})
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ....errors import RecorderError
from ..options import Options
from ..writer import warn_once

START_S = 20.0
END_S = 10.0


@contextlib.contextmanager
def tap(folder: Path, run: str, options: Options) -> Iterator[dict[str, str]]:
    """Run a tap while a program runs.

    Args:
        folder: Folder of the recording, which this run owns.
        run: Id of the run.
        options: `wire` says what to keep of payloads; without it there is no tap.

    Yields:
        The environment variables by which the program's processes find the tap.

    Raises:
        RecorderError: The tap cannot be started.
    """
    if options.wire is None:
        yield {}
        return
    beside = Path(tempfile.mkdtemp(prefix="chunkscope-tap-"))
    control = beside / "control"
    try:
        said = beside / "said"
        process = _start(folder, run, options.wire, control, said)
        try:
            yield {"CHUNKSCOPE_TAP": str(control)}
        finally:
            _end(process, said)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _start(folder: Path, run: str, wire: str, control: Path, said: Path) -> subprocess.Popen[bytes]:
    """Start the tap's process, in a session of its own: Ctrl-C is not for it.

    Its standard error is a file: nobody reads along, and a pipe would fill and hold it up.
    """
    module = f"{__name__}.proxy"
    words = [sys.executable, "-m", module, str(folder), run, wire, str(control)]
    with said.open("wb") as stderr:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_S
    while not control.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.communicate()
            why = _lines(said)[-1:] or ["it did not start"]
            raise RecorderError(f"{folder}: the wire tap cannot run: {why[0]}")
        time.sleep(0.01)
    return process


def _end(process: subprocess.Popen[bytes], said: Path) -> None:
    """Let the tap write what it has and end, and pass on what it had to say."""
    code = process.poll()
    if code is not None:
        why = "".join(f": {line}" for line in _lines(said)[-1:])
        warn_once(f"chunkscope: the wire tap ended before the program, by itself ({code}){why}")
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    if code is None:
        for line in dict.fromkeys(_lines(said)):
            warn_once(f"chunkscope: {line}")


def _lines(said: Path) -> list[str]:
    return said.read_text(errors="replace").strip().splitlines()
