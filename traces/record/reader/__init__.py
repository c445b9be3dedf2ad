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

from ....errors import TraceFormatError
from ...columns import no_collection
from ...metadata import meta_from_json
from ...trace import Meta, Trace
from ...validate import check_version
from ..folder import RECORDS, RUN_FILE
from . import records as rec
from .assembly import assemble
from .decoding import Decoder
from .folding import FileFolder
from .record_file import RecordFile
from .rewriter import write_recording

__all__ = ["read_recording", "write_recording"]


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
    decoder, folder = Decoder(path), FileFolder()
    try:
        with path.open("rb") as content:
            for numbers, records in decoder.decode(content):
                folder.add(numbers, records)
                records.clear()  # what the next block takes is still in the processor's cache
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TraceFormatError(error.strerror or str(error), file=str(path)) from None
    header = folder.header or _guessed_header(path.name.removesuffix(RECORDS))
    check_version(header.schema_version, str(path), 1)
    file = folder.file(path, header)
    file.notes[:0] = _notes(path, decoder, has_header=folder.header is not None)
    return file


def _notes(path: Path, decoder: Decoder, *, has_header: bool) -> list[str]:
    notes = []
    if decoder.is_empty:
        notes.append(f"{path.name} is empty: its process wrote nothing")
    elif not has_header:
        notes.append(f"{path.name} has no header: its first line is damaged")
    if damaged := decoder.damaged:
        where = ", ".join(map(str, damaged[:5])) + (", ..." if len(damaged) > 5 else "")
        plural = "line is" if len(damaged) == 1 else "lines are"
        notes.append(f"{path.name}: {len(damaged)} {plural} damaged and left out ({where})")
    return notes


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
