"""Writes a Trace as the folder of a recording, complete: nothing is left for the reader to count.

One file of records for each file that the events came from. Metadata stands whole in `run.json`.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ....errors import ChunkscopeError
from ...metadata import meta_to_json
from ...schema import SCHEMA_VERSION
from ...trace import Trace
from ..folder import RECORDS, RUN_FILE, TENSORS, new_run
from ..writer import INLINE_BYTES, number
from . import records as rec

_OF_TENSOR = ("dtype", "shape", "strides", "storage", "offset")
_OF_VALUE = ("digest", "digest_of", "min", "max", "mean", "nan", "first", "contributors")
_ENCODE = msgspec.json.Encoder().encode


def write_recording(trace: Trace, folder: Path) -> None:
    """Write a trace as a recording folder, whole or not at all.

    Args:
        trace: The trace.
        folder: Made, or replaced where it holds a trace that this function wrote.

    Raises:
        ChunkscopeError: The folder cannot be written, or holds something else.
    """
    if folder.exists() and not _may_replace(folder):
        raise ChunkscopeError(f"cannot write {folder}: it is there and is no rewritten recording")
    beside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    try:
        beside.mkdir(parents=True)
        _write(trace, beside)
        if folder.exists():
            old = beside.with_suffix(".old")
            os.replace(folder, old)
            os.replace(beside, folder)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(beside, folder)
    except OSError as error:
        raise ChunkscopeError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _may_replace(folder: Path) -> bool:
    try:
        found = os.listdir(folder)
        return not found or b'"meta"' in (folder / RUN_FILE).read_bytes()
    except OSError:
        return False


def _write(trace: Trace, folder: Path) -> None:
    run = {"schema_version": trace.meta.schema_version, "run": new_run()}
    meta = meta_to_json(trace.meta)
    (folder / RUN_FILE).write_bytes(_ENCODE({**run, "meta": meta}) + b"\n")
    taken: set[str] = set()
    bounds = _file_bounds(trace)
    for part, (first, last) in enumerate(pairwise(bounds)):
        name = trace.events["file"][first] if first < last else None
        stem = name if name and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name) else "part"
        while stem in taken:
            stem = f"part-{part}"
            part += len(bounds)
        taken.add(stem)
        header = rec.Header(
            schema_version=SCHEMA_VERSION,
            run=str(run["run"]),
            counted=True,
            file=name,
            part=len(taken) - 1,
        )
        _Part(trace, folder, stem).write(header, first, last)


def _file_bounds(trace: Trace) -> list[int]:
    """Return where a new file begins in the rows, and the end; at least one file."""
    file = trace.events["file"]
    codes = np.where(file.valid, file.values, -1)
    starts = np.flatnonzero(np.diff(codes)) + 1
    return [0, *starts.tolist(), len(codes)]


class _Part:
    """One file of records being written."""

    def __init__(self, trace: Trace, folder: Path, stem: str) -> None:
        self.trace = trace
        self._records = folder / (stem + RECORDS)
        self._beside = folder / (stem + TENSORS)
        self._blob: list[bytes] = []
        self._blob_bytes = 0
        self._numbers: dict[bytes, int] = {}

    def write(self, header: rec.Header, first: int, last: int) -> None:
        """Write the rows from `first` to before `last`, and their states."""
        lines = [_ENCODE(header)]
        events = self.trace.events.take(np.arange(first, last))
        cells = {name: column.to_list() for name, column in events.columns.items()}
        names = [spec.name for spec in rec.OF_CALL]
        for row in range(last - first):
            call = {name: cells[name][row] for name in names if cells[name][row] is not None}
            own = {name: cells[name][row] for name in rec.OF_ROW}
            number_ = self._intern("call", call, lines)
            lines.append(
                _ENCODE(
                    rec.Row(
                        number_,
                        seq=own["seq"],
                        parent=own["parent"],
                        batch=own["batch"],
                        attempt=own["attempt"],
                        host=own["host"],
                        issue=own["t_issue_ns"],
                        start=own["t_start_ns"],
                        end=own["t_end_ns"],
                        status=own["status"],
                        error=own["error"],
                    )
                )
            )
        self._write_states(lines, first, last)
        if self._blob:
            self._beside.write_bytes(b"".join(self._blob))
        self._records.write_bytes(b"\n".join(lines) + b"\n")

    def _write_states(self, lines: list[bytes], first: int, last: int) -> None:
        event = self.trace.states["event"].values
        low, high = np.searchsorted(event, (first, last))
        states = self.trace.states.take(np.arange(low, high))
        cells = {name: column.to_list() for name, column in states.columns.items()}
        for row in range(len(states)):
            tensor = {name: cells[name][row] for name in _OF_TENSOR}
            known = {name: cell for name, cell in tensor.items() if cell is not None}
            number_ = self._intern("tensor", known, lines) if known else None
            item = [cells["when"][row], cells["role"][row], cells["index"][row], number_]
            item.append(self._value({name: cells[name][row] for name in (*_OF_VALUE, "data")}))
            lines.append(_ENCODE({"r": "state", "seq": cells["event"][row], "s": [item]}))

    def _intern(self, kind: str, fields: dict[str, Any], lines: list[bytes]) -> int:
        text = kind.encode() + _ENCODE(fields)
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self._numbers)
            lines.append(_ENCODE({"r": kind, "n": found, **fields}))
        return found

    def _value(self, cells: dict[str, Any]) -> Any:
        kept = {name: cell for name, cell in cells.items() if cell is not None}
        for name in ("min", "max", "mean"):
            if name in kept:
                kept[name] = number(kept[name])
        data = kept.get("data")
        if data is not None and len(data) > INLINE_BYTES:
            kept.pop("data")
            kept["at"], kept["size"] = self._blob_bytes, len(data)
            self._blob.append(data)
            self._blob_bytes += len(data)
        return data if list(kept) == ["data"] else kept or None
