"""The file of a tap: groups and messages, collected and written a batch at a time.

What is collected is on disk half a second later, payload bytes before the record that names them.
Any thread may write. Nothing here raises: what cannot be written is counted, and said in the file
when that is possible again.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from binascii import b2a_base64
from pathlib import Path
from typing import TYPE_CHECKING

from ...schema import SCHEMA_VERSION
from ..clock import clock_id
from ..folder import TENSORS, host_name, open_exclusively
from ..writer import INLINE_BYTES, dump

if TYPE_CHECKING:
    from .messages import Ends, Message

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
        self._lock = threading.RLock()
        self._records: list[bytes] = []
        self._size_bytes = 0
        self._seq = 0
        self._groups: dict[tuple[tuple[int, ...], int], int] = {}
        self._dropped = 0
        self._is_torn = False
        self._has_said = False
        header = {
            "r": "header",
            "schema_version": SCHEMA_VERSION,
            "run": run,
            "host": host_name(),
            "pid": os.getpid(),
            "tap": True,
            "clock": clock_id(),
            "monotonic_ns": time.monotonic_ns(),
            "wall_ns": time.time_ns(),
        }
        os.write(self._fd, dump(header))

    def group(self, ranks: tuple[int, ...], ordinal: int, label: str) -> int:
        """Return the number of a group, and write it where it is new."""
        key = (ranks, ordinal)
        with self._lock:
            if key not in self._groups:
                number = self._groups[key] = len(self._groups)
                record = {"r": "group", "n": number, "ranks": ranks, "ordinal": ordinal}
                self._add(dump({**record, "label": label, "backend": "gloo"}))
            return self._groups[key]

    def number(self) -> int:
        """Return the number of the next message."""
        with self._lock:
            self._seq += 1
            return self._seq - 1

    def message(self, ends: Ends, message: Message) -> None:
        """Write a message, whole or as far as it came."""
        if message.seq is None:
            message.seq = self.number()
        source = message.source
        more = b"" if not ends.attempt else b',"attempt":%d' % ends.attempt
        for name, value in (
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
                self._value(message),
            )
        )

    def _value(self, message: Message) -> bytes:
        """Return what was kept of a payload, as a record has it."""
        size = message.size
        if message.end_ns is None:
            return b""
        if message.is_lost:
            return b""
        if message.at is not None:
            return b',"value":{"at":%d,"size":%d}' % (message.at, size)
        if len(message.data) == size:
            if size <= INLINE_BYTES:
                return b',"value":"%b"' % b2a_base64(message.data, newline=False)
            at = self.reserve(size)
            if not self.store(at, message.data):
                return b""
            return b',"value":{"at":%d,"size":%d}' % (at, size)
        first = b2a_base64(message.data, newline=False)
        digest = b""
        if message.crc is not None:
            digest = b'"digest":%d,"digest_of":"all",' % message.crc
        return b',"value":{%b"first":"%b"}' % (digest, first)

    def reserve(self, size: int) -> int:
        """Return where in the `.tensors` file so many bytes may be stored."""
        with self._lock:
            self._tensors_end += size
            return self._tensors_end - size

    def store(self, at: int, data: bytes | memoryview) -> bool:
        """Write payload bytes to the `.tensors` file, and return whether they are all there."""
        try:
            with self._lock:
                if self._tensors is None:
                    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)
                    self._tensors = os.open(self._tensors_path, flags, 0o666)
            view = memoryview(data)
            while view:
                written = os.pwrite(self._tensors, view, at)
                view, at = view[written:], at + written
        except OSError as error:
            self._say(error)
            return False
        return True

    def note(self, text: str) -> None:
        """Write something that a reader of the trace should know."""
        self._add(dump({"r": "note", "text": text}))

    def flush(self) -> None:
        """Write what is collected."""
        with self._lock:
            if not self._records:
                return
            batch, count = b"".join(self._records), len(self._records)
            self._records.clear()
            self._size_bytes = 0
            if self._dropped:
                batch = dump({"r": "dropped", "records": self._dropped}) + batch
            if self._is_torn:
                batch = b"\n" + batch
            try:
                written = os.write(self._fd, batch)
            except OSError as error:
                self._drop(count, error)
                return
            self._is_torn = written < len(batch)
            if self._is_torn:
                self._dropped = 0
                self._drop(batch.count(b"\n", written), None)
            else:
                self._dropped = 0

    def close(self) -> None:
        """Write the last record."""
        self._add(dump({"r": "close", "t": time.monotonic_ns()}))
        self.flush()

    def _add(self, record: bytes) -> None:
        with self._lock:
            self._records.append(record)
            self._size_bytes += len(record)
            if self._size_bytes >= BATCH_BYTES:
                self.flush()

    def _drop(self, records: int, error: OSError | None) -> None:
        """Count records that are lost."""
        self._dropped += records
        self._say(error)

    def _say(self, error: OSError | None) -> None:
        """Say once that something is lost; the launcher passes on what is on standard error."""
        if not self._has_said:
            self._has_said = True
            why = "the disk took only a part" if error is None else error.strerror or str(error)
            sys.stderr.write(f"the wire tap loses records: {why}\n")
            sys.stderr.flush()
