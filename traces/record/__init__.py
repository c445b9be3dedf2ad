"""The recorder: what a process does with torch.distributed, written down as it happens.

with chunkscope.record("chunkscope-out/run"):
    dist.all_reduce(tensor)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .recorder import Recorder

_active: list[Recorder] = []


def current() -> Recorder | None:
    """Return the recorder of this process, or None where nothing is recorded."""
    return _active[-1] if _active else None


@contextmanager
def record(
    folder: str | os.PathLike[str],
    *,
    state: str | None = None,
    stack: int = 0,
    only: Sequence[str] = (),
    keep_last: int | None = None,
    max_bytes: int | None = None,
    run: str | None = None,
) -> Iterator[Recorder]:
    """Record every torch.distributed call of this process while the block runs.

    Args:
        folder: Folder of the recording. All processes of a run may share it; another run's is
            refused.
        state: What to keep of tensors: `none`, `sample`, or `full` (up to 64 KiB a tensor, a
            sample of larger ones). By default `full`, and `none` of tensors on a GPU.
        stack: Frames of the program that are kept of each call, beside its own line.
        only: Collectives (`all_reduce`, ...) and kinds (`send`, `recv`) to record; empty for all.
        keep_last: Calls to keep at least, the last ones, and about twice as many at most; None
            for all.
        max_bytes: Bytes of tensor data that this process may write; then states go on without
            data. None for no limit.
        run: Id of the run; where it is None, ranks with the same parent process are one run.

    Yields:
        The recorder. Nested blocks for the same folder share one.

    Raises:
        RecorderError: The folder holds another run, or cannot be written.
        ValueError: An option has a value that it cannot have; the message says which ones it can.
    """
    from .options import Options
    from .start import start, stop

    options = Options(
        state=state, stack=stack, only=tuple(only), keep_last=keep_last, max_bytes=max_bytes
    )

    outer = current()
    if outer is not None and outer.folder.resolve() == Path(folder).resolve():
        yield outer
        return
    recorder = start(folder, options, run=run)
    try:
        yield recorder
    finally:
        stop(recorder)
