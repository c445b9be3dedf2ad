"""The recorder: what a process does with torch.distributed, written down as it happens.

with chunkscope.record("chunkscope-out/run"):
    dist.all_reduce(tensor)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
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
    folder: str | os.PathLike[str], *, state: str = "full", run: str | None = None
) -> Iterator[Recorder]:
    """Record every torch.distributed call of this process while the block runs.

    Args:
        folder: Folder of the recording. All processes of a run may share it; another run's is
            refused.
        state: What to keep of tensors: `none`, `sample`, or `full` (up to 64 KiB a tensor, a
            sample of larger ones).
        run: Id of the run; where it is None, ranks with the same parent process are one run.

    Yields:
        The recorder. Nested blocks for the same folder share one.

    Raises:
        RecorderError: The folder holds another run, or cannot be written.
    """
    from .start import start, stop

    outer = current()
    if outer is not None and outer.folder.resolve() == Path(folder).resolve():
        yield outer
        return
    recorder = start(folder, state=state, run=run)
    try:
        yield recorder
    finally:
        stop(recorder)
