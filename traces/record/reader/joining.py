"""Joins the segments of a process to one file; those before the first that is left are gone.

A segment defines what it names, and its numbers are those of the process, so that records of
several segments fit together. What hangs on an event of a deleted segment went with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from . import records as rec
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
        whole.begins += each.begins
        whole.ends += each.ends
        whole.rows += each.rows
        whole.notes += each.notes
    whole.is_closed = segments[-1].is_closed
    whole.last_ns = max(
        (each.last_ns for each in segments if each.last_ns is not None), default=None
    )
    later = [each.header for each in segments if each.header.segment]
    if later and (later[0].segment != 1 or first.header.segment or not first.begins):
        _forget(whole, later[0])
    return whole


def _forget(whole: RecordFile, oldest: rec.Header) -> None:
    """Leave out what hangs on events of deleted segments, and say how many calls went with them."""
    is_gone = _gone(whole, oldest.seq)
    n_ends = len(whole.ends)
    whole.begins = [begin for begin in whole.begins if not is_gone(begin.seq)]
    whole.rows = [row for row in whole.rows if not is_gone(row.seq or 0)]
    whole.ends = [end for end in whole.ends if not is_gone(end.seq)]
    for each in whole.segments:
        each.states = [state for state in each.states if not is_gone(state[0])]
    later = n_ends - len(whole.ends)
    whole.notes.append(
        f"{whole.name}: the first {oldest.calls} calls are not kept any more"
        + (f"; {later} of what they began ended later" if later else "")
    )


def _gone(whole: RecordFile, first_seq: int) -> Callable[[int], bool]:
    """Return what tells whether an event lies, or lay in one, in a deleted segment."""
    kept: set[int] = set()
    dropped: set[int] = set()
    events = [(begin.seq, begin.parent) for begin in whole.begins]
    events += [(row.seq or 0, row.parent) for row in whole.rows]

    def is_gone(seq: int) -> bool:
        return seq not in kept and (seq < first_seq or seq in dropped)

    for seq, parent in sorted(events, key=lambda event: event[0]):
        (dropped if parent is not None and is_gone(parent) else kept).add(seq)
    return is_gone
