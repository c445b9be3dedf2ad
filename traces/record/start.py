"""Starts and stops recording in this process.

    recorder = start("chunkscope-out/run")
    ...
    stop(recorder)

The hooks are in place while at least one recorder is active. A forked child goes on in a file of
its own; a process that ends in order says so in its file.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing import util
from types import FrameType

import torch.distributed

from . import _active
from .fallback import FunctionHooks
from .folder import ENV_FOLDER, ENV_RUN
from .groups import GroupHooks
from .hooks import Hooks, report
from .options import Options
from .recorder import Recorder
from .selftest import problem
from .wire.client import WireHooks
from .works import PATIENCE_S
from .writer import warn_once

_hooks: Hooks | FunctionHooks | None = None
_groups: GroupHooks | None = None
_wire: WireHooks | None = None
_closing: list[Recorder] = []
_is_registered = False


def start(
    folder: str | os.PathLike[str], options: Options | None = None, *, run: str | None = None
) -> Recorder:
    """Record this process's torch.distributed calls from now on.

    Args:
        folder: Folder of the recording.
        options: What to keep; everything by default.
        run: Id of the run, where all its processes know one.

    Raises:
        RecorderError: The folder holds another run, or cannot be written.
    """
    recorder = Recorder(folder, options, run=run)
    try:
        if _groups is None:
            _install()
        assert _groups is not None
        _groups.adopt(recorder)
    except Exception as error:
        report(error)
    _active.append(recorder)
    return recorder


def stop(recorder: Recorder) -> None:
    """Stop one recorder; its file is closed when the operations under way have ended."""
    _active.remove(recorder)
    _closing.append(recorder)
    if _hooks is not None and _hooks.queued is not None:
        _hooks.queued.settle(recorder, PATIENCE_S)
    if _hooks is None or not _hooks.works.has_open(recorder):
        _close(recorder)
    if not _active:
        _remove()


def start_from_environment() -> None:
    """Record as the launcher of this process asked; never an error, at most a warning."""
    folder = os.environ.get(ENV_FOLDER)
    if not folder or _active:
        return
    try:
        start(folder, Options.from_environment(), run=os.environ.get(ENV_RUN))
    except Exception as error:
        warn_once(f"chunkscope: this process is not recorded: {error}")


def _install() -> None:
    global _hooks, _groups, _wire, _is_registered
    # Those of a recorder with operations under way go on, with what they know of these.
    hooks: Hooks | FunctionHooks = Hooks(_active) if _hooks is None else _hooks
    try:
        hooks.install()
        trouble = problem(_active)
    except Exception as error:
        trouble = f"{type(error).__name__}: {error}"
    if trouble is not None:
        warn_once(
            f"chunkscope: this torch ({torch.__version__}) cannot be recorded at its dispatcher "
            f"({trouble}); recording Python's functions instead: calls from C++ are missed"
        )
        hooks.remove()
        hooks = FunctionHooks(_active)
        hooks.install()
    _hooks = hooks
    _groups = GroupHooks(_active, report)
    _groups.patch()
    _wire = WireHooks(_active)
    _wire.patch()
    if not _is_registered:
        _is_registered = True
        _register()


def _register() -> None:
    """Have forks and the end of the process told to us."""
    os.register_at_fork(after_in_child=_after_fork)
    atexit.register(_at_exit)
    # Children of multiprocessing leave without atexit where they were forked. They drop the
    # finalizers that were there before they began, so each gets its own; we may be in one by now.
    util.register_after_fork(_finalize, _call)
    if multiprocessing.parent_process() is not None:
        _finalize()


def _finalize() -> None:
    util.Finalize(None, _before_exit, exitpriority=0)


def _before_exit() -> None:
    """End the recording where `os._exit` follows, which waits for nothing, and so do we."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != "spawn_main":
        if os.path.basename(frame.f_code.co_filename) in ("popen_fork.py", "forkserver.py"):
            _at_exit(patience_s=0.0)
            return
        frame = frame.f_back


def _call(function: Callable[[], None]) -> None:
    function()


def _remove() -> None:
    global _hooks, _groups, _wire
    if _hooks is not None:
        _hooks.remove()
    if _groups is not None:
        _groups.unpatch()
    if _wire is not None:
        _wire.unpatch()
    if not _closing:
        _hooks = None
    _groups = _wire = None


def _close(recorder: Recorder) -> None:
    if recorder in _closing:
        _closing.remove(recorder)
    recorder.close()


def _at_exit(patience_s: float = PATIENCE_S) -> None:
    """Let callbacks on the way run, and close the files: Python is about to shut down."""
    try:
        if _groups is not None:
            _groups.clocks.cancel()
        if _hooks is not None:
            _hooks.remove()
            _hooks.works.settle(patience_s)
        for recorder in (*_active, *_closing):
            if _hooks is not None and _hooks.queued is not None:
                _hooks.queued.settle(recorder, patience_s)
            recorder.close()
    except Exception as error:
        report(error)


def _after_fork() -> None:
    """Go on in a file of our own, in a forked child."""
    try:
        _closing.clear()
        if _hooks is not None:
            _hooks.works.forget()
            if _hooks.queued is not None:
                _hooks.queued.forget()
        if _groups is not None:
            _groups.clocks.forget()
        for recorder in _active:
            recorder.restart()
    except Exception as error:
        report(error)
