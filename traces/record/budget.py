"""How many bytes of tensor data a process may write."""

from __future__ import annotations

import os
import threading

from .folder import host_name
from .writer import Writer


class Budget:
    """How many bytes of tensor data a process may still write.

    Args:
        limit: Bytes that all files of the process may have.
        writer: Writes into this file that no bytes are left.
        before: Budget of the file before; the limit is for both.
    """

    def __init__(self, limit: int, writer: Writer, before: Budget | None = None) -> None:
        self.limit = limit
        self._writer = writer
        self._lock: threading.Lock = threading.Lock() if before is None else before._lock
        self._left: list[int] = [limit] if before is None else before._left
        self._taken = 0
        self._is_said = False

    def take(self, size: int) -> bool:
        """Return whether so many bytes may be written, and count them."""
        with self._lock:
            if size <= self._left[0]:
                self._left[0] -= size
                self._taken += size
                return True
            is_said, self._is_said = self._is_said, True
        if not is_said:
            text = (
                f"{host_name()}-{os.getpid()} has used up max_bytes ({self.limit}): "
                "later states have no data, only what describes it"
            )
            self._writer.write_json({"r": "note", "text": text})
        return False

    def give_back(self) -> None:
        """Let later files have the bytes of this one."""
        with self._lock:
            self._left[0] += self._taken
            self._taken = 0
