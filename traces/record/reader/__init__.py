"""Recording folders as Traces.

    trace = read_recording(Path("chunkscope-out/run"))
    write_recording(trace, Path("copy"))        # read_recording(Path("copy")) == trace

What recorders leave out is worked out here: the k-th collective of a group, the k-th message of a
pair, which event lies in which, and how each event and process ended. Damaged lines are skipped
and noted, because a full disk or a killed process leaves them; a line that is sound JSON but no
record is refused.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from ....errors import TraceFormatError
from ...metadata import meta_from_json
from ...trace import Meta, Trace
from ...validate import check_version
from ..folder import RECORDS, RUN_FILE
from . import records as rec
from .assembly import RecordFile, assemble
from .rewriter import write_recording

__all__ = ["read_recording", "write_recording"]

_DECODER = msgspec.json.Decoder(rec.ANY)


def read_recording(folder: Path) -> Trace:
    """Read the folder of a recording, whatever state its processes left it in.

    Args:
        folder: The folder.

    Raises:
        TraceFormatError: A record is wrong or newer; the message names file, line and field.
    """
    meta = _read_run(folder)
    files = [_parse(path) for path in folder.glob("*" + RECORDS)]
    if not files:
        raise TraceFormatError("no recording: there is no *.rec.jsonl in it", file=str(folder))
    return assemble(folder, files, meta)


def _read_run(folder: Path) -> Meta | None:
    """Return the metadata that a rewritten trace left whole; None for a real recording."""
    path = folder / RUN_FILE
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise TraceFormatError(f"found no JSON ({error})", file=str(path)) from None
    if not isinstance(found, dict):
        raise TraceFormatError("found no object, expected the run's id", file=str(path))
    check_version(found.get("schema_version"), str(path))
    meta = found.get("meta")
    if meta is None:
        return None
    if not isinstance(meta, dict):
        raise TraceFormatError("found no object", file=str(path), field="$.meta")
    return meta_from_json(meta, str(path), version=found["schema_version"])


def _parse(path: Path) -> RecordFile:
    stem = path.name.removesuffix(RECORDS)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceFormatError(error.strerror or str(error), file=str(path)) from None
    lines, damaged = _decode(path, data)
    header = lines[0][1] if lines and isinstance(lines[0][1], rec.Header) else None
    file = RecordFile(path, header or _guessed_header(stem))
    check_version(file.header.schema_version, str(path), 1)
    if not data:
        file.notes.append(f"{path.name} is empty: its process wrote nothing")
    elif header is None:
        file.notes.append(f"{path.name} has no header: its first line is damaged")
    if damaged:
        where = ", ".join(map(str, damaged[:5])) + (", ..." if len(damaged) > 5 else "")
        plural = "line is" if len(damaged) == 1 else "lines are"
        file.notes.append(f"{path.name}: {len(damaged)} {plural} damaged and left out ({where})")
    for line, record in lines if header is None else lines[1:]:
        take = _TAKE.get(type(record))
        if take is None:
            message = "found a second header, expected one a file"
            raise TraceFormatError(message, file=str(path), line=line, field="$.r")
        take(file, record)
    return file


def _decode(path: Path, data: bytes) -> tuple[list[tuple[int, Any]], list[int]]:
    """Return the records with their line numbers, and the numbers of damaged lines."""
    try:
        return list(enumerate(_DECODER.decode_lines(data), 1)), []
    except (msgspec.MsgspecError, RecursionError):
        pass
    lines: list[tuple[int, Any]] = []
    damaged: list[int] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            lines.append((number, _DECODER.decode(line)))
        except msgspec.ValidationError as error:
            raise _refusal(path, number, line, error) from None
        except (msgspec.MsgspecError, RecursionError):
            damaged.append(number)
    return lines, damaged


def _refusal(path: Path, number: int, line: bytes, error: Exception) -> TraceFormatError:
    """Say what is wrong with a sound line; a newer file's records may well be unknown."""
    message, _, where = str(error).partition(" - at ")
    if b'"schema_version"' in line:
        found = re.search(rb'"schema_version"\s*:\s*([^,}\s]+)', line)
        message += f" (schema_version {found[1].decode(errors='replace') if found else '?'})"
    return TraceFormatError(message, file=str(path), line=number, field=where.strip("`") or None)


def _guessed_header(stem: str) -> rec.Header:
    named = re.fullmatch(r"(.+?)-(\d+)(?:-\d+)?", stem)
    host, pid = (named[1], int(named[2])) if named else ("", 0)
    return rec.Header(schema_version=1, host=host, pid=pid if pid < 2**63 else 0)


def _take_begin(file: RecordFile, record: rec.Begin) -> None:
    file.begins.append(record)
    file.last_ns = record.t
    if record.s:
        file.states.append((record.seq, record.s))


def _take_end(file: RecordFile, record: rec.End) -> None:
    file.ends.append(record)
    file.last_ns = record.t
    if record.s:
        file.states.append((record.seq, record.s))


def _take_row(file: RecordFile, record: rec.Row) -> None:
    if record.s:
        file.states.append((record.seq or 0, record.s))
    file.rows.append(record)
    if record.end is not None:
        file.last_ns = record.end


def _take_close(file: RecordFile, record: rec.Close) -> None:
    file.is_closed = True
    file.last_ns = record.t


def _take_dropped(file: RecordFile, record: rec.Dropped) -> None:
    file.notes.append(f"{file.path.name}: {record.records} records could not be written")


_TAKE: dict[type, Any] = {
    rec.Group: lambda file, record: file.groups.__setitem__(record.n, record),
    rec.Site: lambda file, record: file.sites.__setitem__(record.n, record),
    rec.Tensor: lambda file, record: file.tensors.__setitem__(record.n, record),
    rec.Schedule: lambda file, record: file.schedules.__setitem__(record.n, record.text),
    rec.Call: lambda file, record: file.calls.__setitem__(record.n, record),
    rec.Begin: _take_begin,
    rec.End: _take_end,
    rec.Row: _take_row,
    rec.StateRecord: lambda file, record: file.states.append((record.seq, record.s)),
    rec.Exit: lambda file, record: file.exits.append(record),
    rec.Note: lambda file, record: file.notes.append(record.text),
    rec.Dropped: _take_dropped,
    rec.Close: _take_close,
}
