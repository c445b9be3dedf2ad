"""The metadata of a recording: who took part, and how each process ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ...columns import Table
from ...trace import Group, Meta, Process, Site
from . import records as rec
from .clocks import Alignment
from .record_file import RecordFile


def recorded_meta(
    files: Sequence[RecordFile],
    writers: Sequence[RecordFile],
    groups: Iterable[Group],
    sites: Iterable[Site],
    schedules: Iterable[str],
    notes: Iterable[str],
    table: Table,
    alignment: Alignment,
) -> Meta:
    """Return the metadata of a recording.

    Args:
        files: All its files.
        writers: Those of processes that recorded, one a process.
        groups: The process groups, as events number them.
        sites: Lines of the program, likewise.
        schedules: Text forms of schedules, likewise.
        notes: What was noted of the events so far.
        table: The events.
        alignment: How the files' clocks were made one.
    """
    groups = tuple(groups)
    exits = {(file.header.host, end.pid): end for file in files for end in file.exits}
    ranks = _rank_by_file(table)
    for file in writers:
        if file.header.tap:
            ranks.pop(file.name, None)
    processes = []
    for file in writers:
        header = file.header
        end = exits.get((header.host, header.pid), rec.Exit(header.pid))
        processes.append(
            Process(
                file.name,
                header.host,
                header.pid,
                ranks.get(file.name),
                header.attempt,
                file.is_closed,
                end.code,
                end.signal,
                alignment.last_ns[file.name],
            )
        )
    versions: dict[str, str] = {}
    for file in files:
        for name, version in file.header.versions.items():
            if version not in versions.setdefault(name, version).split(", "):
                versions[name] += f", {version}"
    world = {rank for group in groups for rank in group.ranks}
    said = [*notes, *_missing(world, ranks)]
    for file in files:
        if file.header.launcher:
            said += file.notes
    if not writers:
        said.append("nothing was recorded: no process called torch.distributed")
    said += alignment.notes
    return Meta(
        versions=versions,
        world_size=max(world) + 1 if world else None,
        groups=groups,
        processes=tuple(processes),
        clocks=alignment.clocks,
        sites=tuple(sites),
        schedules=tuple(schedules),
        notes=tuple(dict.fromkeys(said)),
    )


def _rank_by_file(table: Table) -> dict[str, int]:
    ranks: dict[str, int] = {}
    file, rank = table["file"], table["rank"]
    known = np.flatnonzero(rank.valid & file.valid)
    for code in np.unique(file.values[known]).tolist():
        first = known[np.argmax(file.values[known] == code)]
        ranks[file.texts[code]] = int(rank.values[first])
    return ranks


def _missing(world: set[int], ranks: dict[str, int]) -> list[str]:
    missing = sorted(world - set(ranks.values()))
    if not missing:
        return []
    named = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    plural = f"ranks {named} have" if len(missing) > 1 else f"rank {named} has"
    return [f"{plural} no file: nothing was recorded there, or the file is missing"]
