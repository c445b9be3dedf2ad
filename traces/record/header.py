"""The first record of a process's file: who writes it, with what, and when."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import torch

from ..schema import SCHEMA_VERSION
from .clock import clock_id
from .folder import host_name
from .options import Options
from .writer import clean


def header(run: str, options: Options) -> dict[str, Any]:
    """Return the fields of a file's first record, as they are now.

    Args:
        run: Id of the run.
        options: What is kept.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return {
        "schema_version": SCHEMA_VERSION,
        "run": run,
        "host": host_name(),
        "clock": clock_id(),
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "attempt": int(attempt) if attempt.isdigit() else 0,
        "versions": versions(),
        "monotonic_ns": time.monotonic_ns(),
        "wall_ns": time.time_ns(),
        **({"options": kept} if (kept := options.to_json()) else {}),
    }


def versions() -> dict[str, str]:
    """Return the versions that decide what a recording means."""
    from ... import __version__

    python = ".".join(map(str, sys.version_info[:3]))
    return {"chunkscope": __version__, "torch": str(torch.__version__), "python": python}


def thread_name() -> str:
    """Return this thread's name; one that Python did not start gets no name from us."""
    # current_thread() would name such a thread, and leave the name to the program.
    thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
    return clean(thread.name) if thread is not None else "not a Python thread"
