"""Trace files: what exists, how each is recognised, and reading and writing any of them.

    trace = chunkscope.read("run.parquet")       # the form is known by the content
    chunkscope.write(trace, "run.jsonl")         # and chosen by the suffix

A recording is a folder that processes write while they run; `.jsonl` and `.parquet` are one file.
Converting between the three loses nothing. A new format is one more line in `FORMATS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import ChunkscopeError, TraceFormatError
from . import jsonl, parquet
from .columns import Table
from .looks import looks_like
from .metadata import encodable
from .schema import Type
from .trace import Trace

_HEAD_BYTES = 1 << 16
RECORDING_GLOB = "*.rec.jsonl"


@dataclass(frozen=True, slots=True)
class Format:
    """A form of trace files.

    Attributes:
        name: What people call it.
        suffixes: Suffixes that choose it for writing; empty where it is only read. The empty
            suffix stands for a folder.
        recognises: Tells from the path and the first 64 KiB (none of a folder) whether it is one.
        read: Reads it; raises TraceFormatError.
        write: Writes it whole or not at all; None where it is only read.
    """

    name: str
    suffixes: tuple[str, ...]
    recognises: Callable[[Path, bytes], bool]
    read: Callable[[Path], Trace]
    write: Callable[[Trace, Path], None] | None = None


def _is_recording(path: Path, head: bytes) -> bool:
    return path.is_dir() and next(path.glob(RECORDING_GLOB), None) is not None


def _read_recording(path: Path) -> Trace:
    from .record.reader import read_recording

    return read_recording(path)


def _write_recording(trace: Trace, path: Path) -> None:
    from .record.reader import write_recording

    write_recording(trace, path)


FORMATS: list[Format] = [
    Format("recording folder", ("",), _is_recording, _read_recording, _write_recording),
    Format("JSON lines", (".jsonl",), jsonl.recognises, jsonl.read, jsonl.write),
    Format("Parquet", (".parquet",), parquet.recognises, parquet.read, parquet.write),
]


def read(path: str | os.PathLike[str]) -> Trace:
    """Read a trace of any known form; the form is known by the content, not by the name.

    Args:
        path: A file, or the folder of a recording.

    Raises:
        TraceFormatError: There is no such file, it is none of the known forms (the message says
            what it looks like), or it is damaged or newer.
        MissingExtra: Its form needs a package that is not installed.
    """
    found = Path(path)
    head = _head(found)
    form = format_of(found, head)
    if form is None:
        raise TraceFormatError(looks_like(found, head), file=str(path))
    return form.read(found)


def format_of(path: Path, head: bytes | None = None) -> Format | None:
    """Return the form of a file or folder, or None where it is no trace.

    Raises:
        TraceFormatError: The file cannot be opened.
    """
    head = _head(path) if head is None else head
    return next((form for form in FORMATS if form.recognises(path, head)), None)


def write(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace in the form that the suffix names; without a suffix, as a recording folder.

    What was there is replaced when all is written, so that no half file is left.

    Raises:
        ChunkscopeError: The suffix is unknown, or the output cannot be written.
        MissingExtra: The form needs a package that is not installed.
    """
    target = Path(path)
    suffix = "" if target.is_dir() else target.suffix.lower()
    form = next((f for f in FORMATS if f.write is not None and suffix in f.suffixes), None)
    if form is None or form.write is None:
        known = [s for f in FORMATS if f.write for s in f.suffixes if s]
        raise ChunkscopeError(
            f"cannot write {target}: the suffix {suffix!r} is none of {', '.join(known)} "
            "(no suffix: a recording folder)"
        )
    form.write(_encodable(trace), target)


def _head(path: Path) -> bytes:
    try:
        if path.is_dir():
            return b""
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except FileNotFoundError:
        raise TraceFormatError("there is no such file or folder", file=str(path)) from None
    except OSError as error:
        raise TraceFormatError(error.strerror or str(error), file=str(path)) from None


def _encodable(trace: Trace) -> Trace:
    """Return the trace with texts that UTF-8 can hold, as every form writes them."""

    def clean(table: Table) -> Table:
        dirty = {
            name: replace(column, texts=tuple(map(encodable, column.texts)))
            for name, column in table.columns.items()
            if column.type is Type.TEXT and any(encodable(text) != text for text in column.texts)
        }
        return table.replace(**dirty) if dirty else table

    return replace(trace, events=clean(trace.events), states=clean(trace.states))
