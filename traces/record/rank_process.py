"""Inside one process of `Ranks`: join the group, answer calls; and how calls and replies travel."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import multiprocessing
import os
import signal
import socket
import sys
import threading
import traceback
import types
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any, NamedTuple

from .options import Options


class Recording(NamedTuple):
    """How a call is to be recorded."""

    folder: str
    run: str
    options: Options


class Reply(NamedTuple):
    """What came back from a rank: `value` where it returned, else `error` and its first line."""

    value: bytes | None = None
    error: str | None = None
    headline: str = ""
    exception: bytes | None = None


def dump_call(function: Callable[..., Any], args: Sequence[Any]) -> bytes:
    """Pickle a call; a function of a module that is no installed package travels by value."""
    import cloudpickle

    module = sys.modules.get(getattr(function, "__module__", None) or "")
    package = __name__.partition(".")[0]
    file = getattr(module, "__file__", None) or ""
    by_value = (
        module is not None
        and module.__name__.partition(".")[0] not in (package, "__main__")
        and "site-packages" not in Path(file).parts
    )
    if not by_value:
        return dump((function, args))
    cloudpickle.register_pickle_by_value(module)
    try:
        return dump((function, args))
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def dump(value: object) -> bytes:
    """Pickle with cloudpickle, but keep the file names of functions.

    Cloudpickle drops them since 3.1; a recording and a traceback need the user's lines.
    """
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it comes without types
        def reducer_override(self, item: Any) -> Any:
            if not isinstance(item, types.CodeType):
                return super().reducer_override(item)
            make, parts = self.dispatch_table[types.CodeType](item)
            return make, tuple(item.co_filename if p == "<dynamic-code>" else p for p in parts)

    buffer = io.BytesIO()
    Pickler(buffer).dump(value)
    return buffer.getvalue()


def serve(rank: int, n: int, parent: Connection, folder: str, environ: dict[str, str]) -> None:
    """Join the group, then answer calls until the parent closes or dies."""
    os.environ.clear()
    os.environ.update(environ)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    with open(Path(folder) / f"rank-{rank}.stack", "w") as stack_file:
        _announce_main_thread(stack_file)
        ready = _attempt(lambda: _join_group(rank, n, Path(folder) / "store"))
        parent.send(ready)
        if ready.error is None:
            _answer_calls(parent)


def _answer_calls(parent: Connection) -> None:
    while True:
        try:
            request = parent.recv()
        except (EOFError, OSError):
            return
        if request is None:
            return
        payload, recording = request
        parent.send(_attempt(lambda: _call(payload, recording)))  # noqa: B023 - called at once


def _announce_main_thread(stack_file: IO[str]) -> None:
    """Let SIGUSR1 write where every thread stands, below the number of the main thread."""
    stack_file.write(f"{threading.main_thread().ident}\n")
    stack_file.flush()
    faulthandler.register(signal.SIGUSR1, file=stack_file, all_threads=True)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _join_group(rank: int, n: int, store: Path) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)  # as torchrun does: the ranks share the cores
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback[0])
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(n))
    dist.init_process_group("gloo", init_method=store.as_uri(), rank=rank, world_size=n)


def _call(payload: bytes, recording: Recording | None) -> Any:
    import cloudpickle

    function, args = cloudpickle.loads(payload)
    if recording is None:
        return function(*args)
    from .start import start, stop

    recorder = start(recording.folder, recording.options, run=recording.run)
    try:
        return function(*args)
    finally:
        stop(recorder)


def _attempt(function: Callable[[], Any]) -> Reply:
    """Return the reply for a call: its result, or what it raised."""
    import cloudpickle

    try:
        return Reply(value=cloudpickle.dumps(function()))
    except BaseException as error:
        headline = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        text = "".join(traceback.format_exception(error.with_traceback(_of_user(error))))
        pickled = None
        with contextlib.suppress(Exception):
            pickled = cloudpickle.dumps(error)
        return Reply(error=text, headline=f"raised {headline}", exception=pickled)


def _of_user(error: BaseException) -> types.TracebackType | None:
    """Return the traceback from the first frame that is not of this file."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return frames or error.__traceback__
