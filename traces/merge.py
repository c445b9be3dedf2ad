"""Joins the recording folders of one run, such as one from each host, into one folder.

    merge(Path("night"), [Path("night-ada"), Path("night-bob")])
    chunkscope.read("night")            # one trace; the hosts' clocks are aligned

Files are copied as they are, so nothing is lost, damaged lines included. What the recordings say
together (which groups are one, how the clocks stand to each other) is worked out when the folder is
opened, as for any other.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ..errors import ChunkscopeError, TraceFormatError
from .record.folder import RECORDS, RUN_FILE, TENSORS


def merge(out: Path, folders: Sequence[Path], *, force: bool = False) -> None:
    """Join recording folders into a new one, whole or not at all.

    Args:
        out: The new folder; its parent is made where it is missing.
        folders: Recording folders, one or more. They stay as they are.
        force: Join what names different runs, too. The run is then the first one's.

    Raises:
        TraceFormatError: One of them is no recording folder.
        ChunkscopeError: They are of different runs, hold the same file, or `out` cannot be made.
    """
    if not folders:
        raise ChunkscopeError("nothing to join: give the recording folders")
    runs = [_run_of(folder) for folder in folders]
    for folder, run in zip(folders, runs, strict=True):
        if run["run"] != runs[0]["run"] and not force:
            raise ChunkscopeError(
                f"{folder} is of run {run['run']}, and {folders[0]} of run {runs[0]['run']}; "
                "if they are of one job all the same, say --force"
            )
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ChunkscopeError(f"cannot write {out}: it is there already; name a new folder")
    beside = out.with_name(f".{out.name}.{secrets.token_hex(4)}.tmp")
    try:
        beside.mkdir(parents=True)
        (beside / RUN_FILE).write_text(json.dumps(runs[0]) + "\n", encoding="utf-8")
        headers: dict[str, bytes] = {}
        for folder in folders:
            _copy(folder, beside, headers)
        os.replace(beside, out)
    except OSError as error:
        raise ChunkscopeError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _run_of(folder: Path) -> dict[str, Any]:
    """Return what a folder's `run.json` says."""
    path = folder / RUN_FILE
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise TraceFormatError(
            f"found no {RUN_FILE}, expected the folder of a recording", file=str(folder)
        ) from None
    except (OSError, ValueError) as error:
        raise TraceFormatError(f"found no JSON ({error})", file=str(path)) from None
    if not isinstance(found, dict) or not isinstance(found.get("run"), str):
        raise TraceFormatError("found no object with the run's id", file=str(path))
    if "meta" in found:
        raise TraceFormatError(
            "found a trace that was written again; only recordings can be joined", file=str(folder)
        )
    return found


def _copy(folder: Path, target: Path, headers: dict[str, bytes]) -> None:
    """Copy the files of a recording; where a name is taken, under another one.

    Args:
        folder: The recording.
        target: Where to.
        headers: First lines of the files that are there, by stem; added to.
    """
    stems = sorted(path.name.removesuffix(RECORDS) for path in folder.glob("*" + RECORDS))
    own = {stem: _first_line(folder / (stem + RECORDS)) for stem in stems}
    twice = [stem for stem in stems if own[stem] and own[stem] in headers.values()]
    if twice:
        raise ChunkscopeError(
            f"{folder}: {twice[0]}{RECORDS} is in another of the folders, too; give each once"
        )
    names: dict[str, str] = {}
    for stem in stems:
        names[stem] = _free(stem, {*headers, *names.values(), *own} - {stem}, stem in headers)
    for stem, name in names.items():
        headers[name] = own[stem]
        if (folder / (stem + TENSORS)).exists():
            shutil.copyfile(folder / (stem + TENSORS), target / (name + TENSORS))
        _copy_records(folder / (stem + RECORDS), target / (name + RECORDS), names)


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline()


def _free(stem: str, taken: Collection[str], is_taken: bool) -> str:
    """Return a stem that is not taken: itself, or with -2, -3, ... as recorders name files."""
    number, name = 1, stem
    while is_taken:
        number += 1
        name = f"{stem}-{number}"
        is_taken = name in taken
    return name


def _copy_records(source: Path, target: Path, names: dict[str, str]) -> None:
    """Copy a file of records; a header that names another file of its process follows that one."""
    with source.open("rb") as old, target.open("wb") as new:
        header = old.readline()
        try:
            fields = json.loads(header)
            first = fields["file"]
            if names.get(first, first) != first:
                header = json.dumps({**fields, "file": names[first]}).encode() + b"\n"
        except (ValueError, KeyError, TypeError):  # it names none, or is damaged
            pass
        new.write(header)
        shutil.copyfileobj(old, new)
