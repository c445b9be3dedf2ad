"""One process's file of records: opened at the first record, one write a record, never an error.

A record is one line of JSON. What repeats (groups, lines of the program, descriptions of tensors
and of calls) is written once, before its first use, and named by number afterwards. Tensor bytes
up to `INLINE_BYTES` stand in the record as base64; longer ones go to a `.tensors` file first.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from .folder import RECORDS, TENSORS, host_name, open_exclusively

INLINE_BYTES = 256


class Writer:
    """Appends records to a file that is opened when the first one comes.

    Nothing here raises: what cannot be written is counted, and warned about once.

    Args:
        folder: Folder of the recording.
        header: Gives the fields of the file's first record.
        stem: Name of the file without its suffix, where that is not `<host>-<pid>`.
        replaces: A writer about to be deleted, whose descriptor this one takes over: a thread that
            still holds it writes into this file, and never into one of the program's.
    """

    def __init__(
        self,
        folder: Path,
        header: Callable[[], dict[str, Any]],
        *,
        stem: str | None = None,
        replaces: Writer | None = None,
    ) -> None:
        self.folder = folder
        self._header = header
        self._wanted = stem
        self._replaces = replaces
        self._header_bytes = 0
        self._lock = threading.RLock()
        self._fd: int | None = None
        self._tensors: int | None = None
        self._end = 0
        self._stem = ""
        self._is_torn = False
        self._dropped = 0
        self._is_closed = False

    @property
    def stem(self) -> str:
        """Name of the file without its suffix; empty until the first record."""
        return self._stem

    def write(self, record: bytes) -> bool:
        """Append one record, a line that ends in a newline; return whether it is written whole."""
        if self._fd is None or self._is_torn or self._dropped:
            return self._write_carefully(record)
        try:
            if os.write(self._fd, record) == len(record):
                return True
            self._is_torn = True
            self._drop(None)
        except OSError as error:
            self._drop(error)
        return False

    def write_json(self, record: dict[str, Any]) -> bool:
        """Append one record given as a dict; return whether it is written whole."""
        return self.write(dump(record))

    def store(self, data: bytes | memoryview) -> int | None:
        """Append tensor bytes to the `.tensors` file and return where they begin; None if lost."""
        with self._lock:
            if self._is_closed:
                return None
            try:
                if self._fd is None:
                    self._open()
                if self._tensors is None:
                    path = self.folder / (self._stem + TENSORS)
                    self._tensors = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
                start = self._end
                view = memoryview(data).cast("B")
                while view:
                    view = view[os.pwrite(self._tensors, view, self._end) :]
                    self._end = start + len(data) - len(view)
            except OSError as error:
                self._drop(error)
                return None
            return start

    def open(self) -> None:
        """Open the file now."""
        with self._lock:
            try:
                if self._fd is None:
                    self._open()
            except OSError as error:
                self._drop(error)

    def delete(self, *, is_named_after: bool) -> None:
        """Take the file and its tensor bytes away.

        Args:
            is_named_after: Whether other files are named after this one, so that it must stay, with
                nothing but its header.
        """
        with self._lock:
            self._is_closed = True
            records, tensors = (self.folder / (self._stem + end) for end in (RECORDS, TENSORS))
            with suppress(OSError):
                if is_named_after:
                    os.truncate(records, self._header_bytes)
                else:
                    records.unlink(missing_ok=True)
            if self._tensors is not None:
                os.close(self._tensors)
                self._tensors = None
                with suppress(OSError):
                    tensors.unlink(missing_ok=True)

    def close(self, record: dict[str, Any] | None) -> None:
        """Append the last record and close the file; later records are lost, and nobody is told."""
        with self._lock:
            if self._fd is not None and not self._is_closed:
                if record is not None:
                    self.write_json(record)
                os.close(self._fd)
                if self._tensors is not None:
                    os.close(self._tensors)
            self._is_closed = True
            self._fd = None

    def forget(self) -> None:
        """Leave the parent's file alone: called in a forked child, which opens its own."""
        self._lock = threading.RLock()
        for descriptor in (self._fd, self._tensors):
            if descriptor is not None:
                os.close(descriptor)
        self._fd = self._tensors = None
        self._end = self._dropped = 0
        self._is_torn = False

    def _open(self) -> None:
        stem = self._wanted or f"{host_name()}-{os.getpid()}"
        descriptor, self._stem = open_exclusively(self.folder, stem)
        if self._replaces is not None and self._replaces._fd is not None:
            os.dup2(descriptor, self._replaces._fd, inheritable=False)
            os.close(descriptor)
            descriptor = self._replaces._fd
        self._replaces = None
        self._fd = descriptor
        header = dump({"r": "header", **self._header()})
        self._header_bytes = len(header)
        self._is_torn = os.write(self._fd, header) != len(header)

    def _write_carefully(self, record: bytes) -> bool:
        with self._lock:
            if self._is_closed:
                return False
            try:
                if self._fd is None:
                    self._open()
                assert self._fd is not None
                if self._dropped:
                    record = dump({"r": "dropped", "records": self._dropped}) + record
                if self._is_torn:
                    record = b"\n" + record
                if os.write(self._fd, record) == len(record):
                    self._is_torn, self._dropped = False, 0
                    return True
                self._is_torn = True
                self._drop(None)
            except OSError as error:
                self._drop(error)
            return False

    def _drop(self, error: OSError | None) -> None:
        self._dropped += 1
        # A write that was cut short is how a full disk begins.
        full = os.strerror(errno.ENOSPC)
        reason = full if error is None else error.strerror or str(error)
        warn_once(f"chunkscope: the recording in {self.folder} loses records: {reason}")


def dump(record: dict[str, Any]) -> bytes:
    """Return a record as a line of JSON; what is no UTF-8 in a text is escaped."""
    try:
        return (json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n").encode("ascii")
    except (TypeError, ValueError):
        return (json.dumps(_plain(record), separators=(",", ":")) + "\n").encode("ascii")


def dump_text(text: str) -> bytes:
    """Return a text as JSON."""
    return dump({"t": clean(text)})[5:-2]


def clean(text: str) -> str:
    """Return a text that can be written as UTF-8: lone surrogates become backslash escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def number(value: float) -> float | str:
    """Return a float as JSON has it: NaN and infinities as strings."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return number(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    return int(value) if hasattr(value, "__index__") else str(value)


_warned: set[str] = set()


def warn_once(text: str) -> None:
    """Warn, once a text and process; where the program makes warnings errors, say nothing."""
    if text in _warned:
        return
    _warned.add(text)
    with suppress(Warning):
        warnings.warn(text, RuntimeWarning, stacklevel=2)
