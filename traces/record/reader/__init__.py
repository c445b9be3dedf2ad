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
from typing import Any, get_args

import msgspec

from ....errors import TraceFormatError
from ...columns import no_collection
from ...metadata import meta_from_json
from ...trace import Meta, Trace
from ...validate import check_version
from ..folder import RECORDS, RUN_FILE
from . import records as rec
from .assembly import assemble
from .messages import unfold
from .record_file import RecordFile
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
    paths = list(folder.glob("*" + RECORDS))
    if not paths:
        raise TraceFormatError("no recording: there is no *.rec.jsonl in it", file=str(folder))
    with no_collection():
        files = [_parse(path) for path in paths]
        return assemble(folder, [file for file in files if file is not None], meta)


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


def _parse(path: Path) -> RecordFile | None:
    """Return the records of a file; None for one that its process has deleted by now."""
    stem = path.name.removesuffix(RECORDS)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
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
    _sort(file, lines if header is None else lines[1:])
    return file


def _sort(file: RecordFile, lines: list[tuple[int, Any]]) -> None:
    """Put the records of a file where they belong, by kind."""
    found: dict[type, list[Any]] = {kind: [] for kind in get_args(rec.ANY)}
    for _, record in lines:
        found[type(record)].append(record)
    if found[rec.Header]:
        line = next(number for number, record in lines if isinstance(record, rec.Header))
        raise TraceFormatError(
            "found a second header, expected one", file=str(file.path), line=line, field="$.r"
        )
    file.groups = {record.n: record for record in found[rec.Group]}
    file.sites = {record.n: record for record in found[rec.Site]}
    file.tensors = {record.n: record for record in found[rec.Tensor]}
    file.schedules = {record.n: record.text for record in found[rec.Schedule]}
    file.calls = {record.n: record for record in found[rec.Call]}
    file.begins, file.ends, file.rows = found[rec.Begin], found[rec.End], found[rec.Row]
    file.exits = found[rec.Exit]
    file.clocks = found[rec.ClockRecord]
    file.states = [
        (record.seq or 0, record.s)
        for kind in (rec.Begin, rec.Row, rec.StateRecord, rec.End)
        for record in found[kind]
        if record.s
    ]
    unfold(file, found[rec.Message])
    only = file.header.options.get("only")
    if isinstance(only, list):
        file.notes.append(f"nothing but {', '.join(map(str, only))} was recorded")
    file.notes += [record.text for record in found[rec.Note]]
    file.notes += [
        f"{file.path.name}: {record.records} records could not be written"
        for record in found[rec.Dropped]
    ]
    file.is_closed = bool(found[rec.Close])
    times = [record.t for kind in (rec.Begin, rec.End, rec.Close) for record in found[kind]]
    times += [record.end for record in file.rows if record.end is not None]
    file.last_ns = max(times, default=None)


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
            if _is_sound(line):
                raise _refusal(path, number, line, error) from None
            damaged.append(number)
        except (msgspec.MsgspecError, RecursionError):
            damaged.append(number)
    return lines, damaged


def _is_sound(line: bytes) -> bool:
    """Return whether a line is JSON at all; one that was cut or overwritten is not."""
    try:
        msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def _refusal(path: Path, number: int, line: bytes, error: Exception) -> TraceFormatError:
    """Say what is wrong with a sound line; a newer file's records may well be unknown."""
    message, _, where = str(error).partition(" - at ")
    if b'"schema_version"' in line:
        found = re.search(rb'"schema_version"\s*:\s*([^,}\s]+)', line)
        message += f" (schema_version {found[1].decode(errors='replace') if found else '?'})"
    return TraceFormatError(message, file=str(path), line=number, field=where.strip("`") or None)


def _guessed_header(stem: str) -> rec.Header:
    named = re.fullmatch(r"((.+?)-(\d+)(?:-\d+)?)(?:\.(\d+))?", stem)
    if named is None:
        return rec.Header(schema_version=1)
    pid, segment = int(named[3]), int(named[4] or 0)
    return rec.Header(
        schema_version=1,
        host=named[2],
        pid=pid if pid < 2**63 else 0,
        file=named[1] if segment else None,
        segment=segment or None,
    )
