"""The file of a tap: groups and messages, collected and written a batch at a time.

What is collected is on disk half a second later. Payload bytes are written before the record that
names them. Nothing here raises: what cannot be written is counted, and said in the file if that is
possible again.
"""

from __future__ import annotations

import os
import time
from binascii import b2a_base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...schema import SCHEMA_VERSION
from ..folder import TENSORS, host_name, open_exclusively
from ..writer import INLINE_BYTES, dump

if TYPE_CHECKING:
    from .messages import Ends, Keep, Message

FLUSH_S = 0.5
BATCH_BYTES = 1 << 18


class WireLog:
    """Writes what a tap sees.

    Args:
        folder: Folder of the recording.
        run: Id of the run.

    Raises:
        OSError: The file cannot be made.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._fd, stem = open_exclusively(folder, f"wire-{host_name()}-{os.getpid()}")
        self._tensors_path = folder / (stem + TENSORS)
        self._tensors: int | None = None
        self._tensors_end = 0
        self._bytes: list[bytes] = []
        self._bytes_at = 0
        self._records: list[bytes] = []
        self._size = 0
        self._seq = 0
        self._groups: dict[Any, int] = {}
        self._dropped = 0
        self._is_torn = False
        self.flush_at: float | None = None
        self._add(
            dump(
                {
                    "r": "header",
                    "schema_version": SCHEMA_VERSION,
                    "run": run,
                    "host": host_name(),
                    "pid": os.getpid(),
                    "tap": True,
                    "monotonic_ns": time.monotonic_ns(),
                    "wall_ns": time.time_ns(),
                }
            )
        )
        self.flush()

    def group(self, ranks: tuple[int, ...], ordinal: int, label: str) -> int:
        """Return the number of a group, and write it where it is new."""
        key = (ranks, ordinal)
        if key not in self._groups:
            number = self._groups[key] = len(self._groups)
            record = {"r": "group", "n": number, "ranks": ranks, "ordinal": ordinal}
            self._add(dump({**record, "label": label, "backend": "gloo"}))
        return self._groups[key]

    def message(self, ends: Ends, message: Message, keep: Keep) -> None:
        """Write a message, whole or as far as it came."""
        source = message.source
        if message.seq is None:
            message.seq, self._seq = self._seq, self._seq + 1
        more = b""
        for name, value in (
            (b"attempt", ends.attempt or None),
            (b"send", message.send_ns),
            (b"recv", message.recv_ns),
            (b"start", message.start_ns),
            (b"end", message.end_ns),
        ):
            if value is not None:
                more += b',"%b":%d' % (name, value)
        self._add(
            b'{"r":"message","seq":%d,"group":%d,"src":%d,"dst":%d,"slot":%d,"bytes":%d%b%b}\n'
            % (
                message.seq,
                ends.group,
                ends.ranks[source],
                ends.ranks[1 - source],
                message.slot,
                message.size,
                more,
                self._value(message, keep),
            )
        )

    def _value(self, message: Message, keep: Keep) -> bytes:
        """Return what was kept of a payload, as a record has it."""
        size = message.size
        if message.end_ns is None:
            return b""
        if message.at is not None:
            return b',"value":{"at":%d,"size":%d}' % (message.at, size)
        if len(message.data) == size:
            if size <= INLINE_BYTES:
                return b',"value":"%b"' % b2a_base64(message.data, newline=False)
            at = self.reserve(size)
            self.store_at(at, message.data)
            return b',"value":{"at":%d,"size":%d}' % (at, size)
        first = b2a_base64(message.data, newline=False)
        digest = b""
        if message.crc is not None:
            digest = b'"digest":%d,"digest_of":"all",' % message.crc
        return b',"value":{%b"first":"%b"}' % (digest, first)

    def reserve(self, size: int) -> int:
        """Return where in the `.tensors` file so many bytes may be stored."""
        at = self._tensors_end
        self._tensors_end += size
        return at

    def store_at(self, at: int, data: bytes | memoryview) -> None:
        """Write payload bytes to the `.tensors` file."""
        if self._tensors is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)
            self._tensors = os.open(self._tensors_path, flags, 0o666)
        view = memoryview(data)
        while view:
            written = os.pwrite(self._tensors, view, at)
            view, at = view[written:], at + written

    def note(self, text: str) -> None:
        """Write something that a reader of the trace should know."""
        self._add(dump({"r": "note", "text": text}))

    def flush(self) -> None:
        """Write what is collected."""
        if self._records:
            os.write(self._fd, b"".join(self._records))
        self._records.clear()
        self._size = 0
        self.flush_at = None

    def close(self) -> None:
        """Write the last record and close the file."""
        self._add(dump({"r": "close", "t": time.monotonic_ns()}))
        self.flush()
        os.close(self._fd)

    def _add(self, record: bytes) -> None:
        self._records.append(record)
        self._size += len(record)
        if self._size >= BATCH_BYTES:
            self.flush()
        elif self.flush_at is None:
            self.flush_at = time.monotonic() + FLUSH_S
