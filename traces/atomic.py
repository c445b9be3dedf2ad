"""Outputs appear whole or not at all.

with replacing("run.jsonl") as temp:
    temp.write_bytes(data)      # run.jsonl is replaced when the block ends without an error
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import ChunkscopeError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path beside `path`; what was written there takes its place at the end.

    The folder is made where it is missing. After an error nothing is left behind, and what was at
    `path` before is still there.

    Raises:
        ChunkscopeError: The output cannot be written there.
    """
    target = Path(path)
    temp = target.with_name(f".{target.stem}.{secrets.token_hex(4)}{target.suffix}")
    try:
        if target.is_dir():
            raise IsADirectoryError(None, "a folder of that name is in the way")
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temp
        os.replace(temp, target)
    except OSError as error:
        raise ChunkscopeError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temp.unlink()
