"""The launcher's own file in a recording: what it ran, and how each child ended."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import RecorderError
from ..schema import SCHEMA_VERSION
from .children import Child
from .folder import LAUNCHER, host_name, open_exclusively
from .writer import clean, dump, warn_once


class LauncherFile:
    """Records of the launcher, written as things happen.

    Args:
        folder: Folder of the recording.
        run: Id of the run.
        command: What is run.
        ranks: Number of ranks that the launcher starts; None where it starts the command once.

    Raises:
        RecorderError: The file cannot be opened. What cannot be written later becomes a warning:
            the program has ended well by then, and its exit code counts.
    """

    def __init__(self, folder: Path, run: str, command: Sequence[str], ranks: int | None) -> None:
        self._folder = folder
        try:
            self._fd, _ = open_exclusively(folder, f"{LAUNCHER}{host_name()}-{os.getpid()}")
        except OSError as error:
            raise RecorderError(
                f"{folder}: cannot record into this folder: {error.strerror or error}"
            ) from None
        self._write(
            {
                "r": "header",
                "schema_version": SCHEMA_VERSION,
                "run": run,
                "host": host_name(),
                "pid": os.getpid(),
                "launcher": True,
                "monotonic_ns": time.monotonic_ns(),
                "wall_ns": time.time_ns(),
                "command": [clean(part) for part in command],
                **({} if ranks is None else {"ranks": ranks}),
            }
        )

    def __enter__(self) -> LauncherFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._write({"r": "close", "t": time.monotonic_ns()})
        with suppress(OSError):
            os.close(self._fd)

    def write_exit(self, child: Child, code: int) -> None:
        """Write how a child ended: its exit code, or -n for signal n."""
        rank = {} if child.rank is None else {"rank": child.rank}
        how = {"signal": -code} if code < 0 else {"code": code}
        self._write(
            {"r": "exit", "pid": child.process.pid, **rank, "t": time.monotonic_ns(), **how}
        )

    def _write(self, record: dict[str, Any]) -> None:
        try:
            line = dump(record)
            if os.write(self._fd, line) == len(line):
                return
            reason = "the disk took only a part"
        except OSError as error:
            reason = error.strerror or str(error)
        warn_once(
            f"chunkscope: how the program ended is not in the recording {self._folder}: {reason}"
        )
