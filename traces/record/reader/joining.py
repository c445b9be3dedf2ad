"""Joins the segments of a process to one file; those before the first that is left are gone.

A segment defines what it names, and its numbers are those of the process, so that records of
several segments fit together. What hangs on an event of a deleted segment went with it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...columns import Mask, joined_tables
from . import records as rec
from .counting import Ints
from .record_file import RecordFile


def join_segments(files: Iterable[RecordFile]) -> list[RecordFile]:
    """Return one file a process; files of other kinds as they are."""
    joined: list[RecordFile] = []
    of_process: dict[str, list[RecordFile]] = {}
    for file in files:
        header = file.header
        if header.counted or header.launcher or header.tap:
            joined.append(file)
        else:
            of_process.setdefault(file.name, []).append(file)
    for segments in of_process.values():
        is_whole = len(segments) == 1 and not segments[0].header.segment
        joined.append(segments[0] if is_whole else _joined(segments))
    return joined


def _joined(segments: list[RecordFile]) -> RecordFile:
    segments.sort(key=lambda file: file.header.segment or 0)
    first = segments[0]
    whole = RecordFile(first.path, first.header, segments=tuple(segments))
    for each in segments:
        whole.groups |= each.groups
        whole.sites |= each.sites
        whole.tensors |= each.tensors
        whole.schedules |= each.schedules
        whole.calls |= each.calls
        whole.sets += [(len(whole.ends) + row, cells) for row, cells in each.sets]
        whole.begins = joined_tables([whole.begins, each.begins])
        whole.ends = joined_tables([whole.ends, each.ends])
        whole.rows = joined_tables([whole.rows, each.rows])
        whole.notes += each.notes
    whole.is_closed = segments[-1].is_closed
    whole.last_ns = max(
        (each.last_ns for each in segments if each.last_ns is not None), default=None
    )
    later = [each.header for each in segments if each.header.segment]
    if later and (later[0].segment != 1 or first.header.segment or not len(first.begins)):
        _forget(whole, later[0])
    return whole


def _forget(whole: RecordFile, oldest: rec.Header) -> None:
    """Leave out what hangs on events of deleted segments, and say how many calls went with them."""
    kept_seqs, dropped_seqs = _divided(whole, oldest.seq)

    def are_kept(seq: Ints) -> Mask:
        is_later = (seq >= oldest.seq) & ~np.isin(seq, dropped_seqs)
        return np.asarray(np.isin(seq, kept_seqs) | is_later)

    whole.begins = whole.begins.take(are_kept(whole.begins["seq"].values))
    whole.rows = whole.rows.take(are_kept(whole.rows["seq"].values))
    kept = are_kept(whole.ends["seq"].values)
    row = np.cumsum(kept) - 1
    whole.sets = [(int(row[end]), cells) for end, cells in whole.sets if kept[end]]
    whole.ends = whole.ends.take(kept)
    for each in whole.segments:
        each.states = each.states.where(are_kept(each.states.seq))
    later = int((~kept).sum())
    whole.notes.append(
        f"{whole.name}: the first {oldest.calls} calls are not kept any more"
        + (f"; {later} of what they began ended later" if later else "")
    )


def _divided(whole: RecordFile, first_seq: int) -> tuple[Ints, Ints]:
    """Return the seqs of events to keep, and of those that lie in one of a deleted segment."""
    kept: set[int] = set()
    dropped: set[int] = set()
    events: list[tuple[int, int | None]] = []
    for table in (whole.begins, whole.rows):
        events += zip(table["seq"].values.tolist(), table["parent"].to_list(), strict=True)
    for seq, parent in sorted(events, key=lambda event: event[0]):
        if parent is None or parent in kept or (parent >= first_seq and parent not in dropped):
            kept.add(seq)
        else:
            dropped.add(seq)
    return np.array(sorted(kept), np.int64), np.array(sorted(dropped), np.int64)
