"""The recorder of one process: numbers events and writes them down as they happen.

    with record("chunkscope-out/run") as recorder:
        call = recorder.begin("collective", collective="all_reduce", group=0, rank=0)
        recorder.state(call, "before", "input", 0, tensor)
        recorder.end(call)

An event is a `begin` and an `end` record, so that one that never ends is on disk, too. What is the
same each time (everything but times, states and what an event lies in) is written once as a `call`
record. A recorder may be used by any number of threads.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from .callers import Sites
from .folder import claim
from .group_records import Groups
from .header import header, thread_name
from .numbering import Numbering
from .options import Options
from .segments import Segment, Segments
from .states import States
from .writer import Writer, clean, dump, dump_text

# Calls remembered at once; the oldest may be written again.
REMEMBERED = 65536
# Kinds that count as calls where they lie in no other event.
_CALLS = ("collective", "send", "recv")


class _Local(threading.local):
    """What belongs to a thread: whether hooks keep still, and its batch."""

    is_silent = False
    batch = -1


class Recorder:
    """Writes this process's events into a folder.

    Args:
        folder: Folder of the recording; made where it is missing.
        options: What to keep; everything by default.
        run: Id of the run, where all its processes know one.
        writer: Takes the records in place of a file in the folder.

    Raises:
        RecorderError: The folder holds another run, or cannot be written.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        options: Options | None = None,
        *,
        run: str | None = None,
        writer: Writer | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.options = options or Options()
        self.only = frozenset(self.options.only) or None
        self._writer = writer
        self._start()
        self.run = "" if writer is not None else claim(self.folder, run)

    def _start(self) -> None:
        options = self.options
        self._segments = Segments(options, self._make_writer)
        # Where calls are left out or deleted, the others say their numbers.
        self.is_bounded = bool(options.only) or options.keep_last is not None
        self._numbering = Numbering() if self.is_bounded else None
        self.groups = Groups(self._segments.keep)
        self.numbers = itertools.count()
        self.local = _Local()
        self._lock = threading.RLock()
        self._defined = itertools.count()
        self._schedules: dict[str, int] = {}

    def restart(self) -> None:
        """Begin a new file: called in a forked child, which must leave its parent's alone."""
        self._segments.forget()
        self._start()

    @property
    def segment(self) -> Segment:
        """The file being written, and what is defined in it: one for all records of an event."""
        return self._segments.current

    @property
    def writer(self) -> Writer:
        """What writes into the current file."""
        return self._segments.current.writer

    @property
    def states(self) -> States:
        """What describes tensors in the current file."""
        return self._segments.current.states

    @property
    def sites(self) -> Sites:
        """What finds lines of the program, and names them in the current file."""
        return self._segments.current.sites

    def begin(
        self,
        kind: str,
        *,
        parent: int | None = None,
        batch: int | None = None,
        t_issue_ns: int | None = None,
        **columns: Any,
    ) -> int:
        """Write that an event begins, and return its number, `seq`.

        Args:
            kind: See `schema.Kind`.
            parent: seq of the event that this one happens inside of.
            batch: seq of the first event that the same call issued.
            t_issue_ns: When it was asked for, by `time.monotonic_ns`; now by default.
            columns: Cells for other columns of `schema.EVENTS` that are known by now.
        """
        issued = time.monotonic_ns() if t_issue_ns is None else t_issue_ns
        seq = next(self.numbers)
        inside = _inside(parent, batch)
        if self._numbering is not None and parent is None and kind in _CALLS:
            inside += self.number_call(
                seq,
                kind,
                columns.get("group"),
                columns.get("peer_group_rank"),
                columns.get("tag"),
            )
        segment = self.segment
        call = self.call(kind, columns, segment)
        segment.writer.write(
            b'{"r":"begin","seq":%d,"call":%d,"t":%d%b}\n' % (seq, call, issued, inside)
        )
        return seq

    def end(
        self,
        seq: int,
        *,
        t_start_ns: int | None = None,
        t_end_ns: int | None = None,
        status: str = "ok",
        error: str | None = None,
        **columns: Any,
    ) -> None:
        """Write that an event ended.

        Args:
            seq: What `begin` returned.
            t_start_ns: When its work began, where that is known.
            t_end_ns: When it ended; now by default.
            status: See `schema.Status`.
            error: Type and message of the error.
            columns: Cells that were not known at the begin.
        """
        ended = time.monotonic_ns() if t_end_ns is None else t_end_ns
        start = b"" if t_start_ns is None else b',"start":%d' % t_start_ns
        more = b"" if status == "ok" else b',"status":"%b"' % str(status).encode()
        if error is not None:
            more += b',"error":%b' % dump_text(error)
        if columns:
            more += b',"set":%b' % dump(columns)[:-1]
        self.writer.write(b'{"r":"end","seq":%d,"t":%d%b%b}\n' % (seq, ended, start, more))

    def row(
        self,
        kind: str,
        *,
        t_issue_ns: int | None,
        t_start_ns: int | None,
        t_end_ns: int | None,
        parent: int | None = None,
        batch: int | None = None,
        status: str = "ok",
        error: str | None = None,
        **columns: Any,
    ) -> int:
        """Write an event that is over, begin and end in one record, and return its seq."""
        segment = self.segment
        call = self.call(kind, columns, segment)
        seq = next(self.numbers)
        more = _inside(parent, batch)
        for name, value in (("issue", t_issue_ns), ("start", t_start_ns), ("end", t_end_ns)):
            if value is not None:
                more += b',"%b":%d' % (name.encode(), value)
        if status != "ok":
            more += b',"status":"%b"' % str(status).encode()
        if error is not None:
            more += b',"error":%b' % dump_text(error)
        segment.writer.write(b'{"r":"row","seq":%d,"call":%d%b}\n' % (seq, call, more))
        return seq

    def state(
        self, seq: int, when: str, role: str, index: int | None, tensor: torch.Tensor
    ) -> None:
        """Write what a tensor of an event holds now.

        Args:
            seq: The event.
            when: `before` or `after`.
            role: See `schema.Role`.
            index: Tensor in the call's list, or slot of the place.
            tensor: The tensor, or a view of the part meant.
        """
        spot = b"null" if index is None else b"%d" % index
        segment = self.segment
        segment.writer.write(
            b'{"r":"state","seq":%d,"s":[["%b","%b",%b,%b]]}\n'
            % (seq, when.encode(), role.encode(), spot, segment.states.fragment(tensor))
        )

    def number_call(
        self, seq: int, kind: str, group: int | None, peer: int | None, tag: int | None
    ) -> bytes:
        """Count a call of a bounded recording, and return its number as its begin has it.

        With `keep_last`, this call may be the first one of a new segment.

        Args:
            seq: Number of the event.
            kind: See `schema.Kind`.
            group: Number of the group; None for none.
            peer: Group rank at the other end of a send or recv, where it is known.
            tag: Its tag.
        """
        assert self._numbering is not None
        self._segments.count_call(seq)
        return self._numbering.of(kind, group, peer, tag)

    def number_message(self, group: int, peer: int, tag: int | None) -> bytes:
        """Count a message whose source is known only now, and return its number as `set` has it."""
        return b"" if self._numbering is None else self._numbering.of("recv", group, peer, tag)

    def leave_out(self, group: Any) -> None:
        """Count a collective of a process group that is not recorded."""
        info = self.groups.info(group)
        if self._numbering is not None:
            self._numbering.skip(info.number)

    def schedule(self, text: str) -> int:
        """Write the text form of a schedule once, and return its number for the column."""
        with self._lock:
            if text not in self._schedules:
                found = len(self._schedules)
                self._segments.keep(
                    ("schedule", found), {"r": "schedule", "n": found, "text": text}
                )
                self._schedules[text] = found
            return self._schedules[text]

    def site(self) -> int | None:
        """Write the line of the user's program that we are in, and return its number."""
        return self.sites.find(sys._getframe(1)).site

    def group(self, group: Any) -> int:
        """Write a process group once, and return its number for the column.

        Args:
            group: A `torch.distributed.ProcessGroup`; None means the default group.
        """
        if group is None:
            group = torch.distributed.distributed_c10d._get_default_group()
        return self.groups.info(group).number

    def call(self, kind: str, columns: dict[str, Any], segment: Segment | None = None) -> int:
        """Write what stays the same between events once, and return its number."""
        segment = segment or self.segment
        key: Any = (kind, threading.get_ident(), *columns.items())
        try:
            found = segment.calls.get(key)
        except TypeError:  # a list among the cells
            key = (kind, threading.get_ident(), repr(columns))
            found = segment.calls.get(key)
        if found is None:
            cells = {"kind": kind, "provenance": "executed", **columns}
            found = self.define_call(key, cells, segment)
        return found

    def define_call(self, key: Any, cells: dict[str, Any], segment: Segment | None = None) -> int:
        """Write a call record, remember its number under a key, and return it."""
        segment = segment or self.segment
        with self._lock:
            if len(segment.calls) >= REMEMBERED:
                segment.calls.clear()
            number = next(self._defined)
            known = {name: cell for name, cell in cells.items() if cell is not None}
            record = {"r": "call", "n": number, "thread": thread_name(), **known}
            if segment.writer.write_json(record):
                segment.calls[key] = number
            return number

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Keep the hooks of this thread from recording what is called inside."""
        before = self.local.is_silent
        self.local.is_silent = True
        try:
            yield
        finally:
            self.local.is_silent = before

    def clock(self, record: dict[str, Any], *, is_first: bool) -> None:
        """Write how far rank 0's clock is before this host's; bounded files repeat first and last.

        Args:
            record: Made by `clock.Exchange`.
            is_first: Whether it is the first of this process.
        """
        self._segments.keep(("clock", is_first), record)

    def note(self, text: str) -> None:
        """Write something that a reader of the trace should know."""
        self.keep({"r": "note", "text": clean(text)})

    def keep(self, record: dict[str, Any]) -> None:
        """Write a record that every later file of this process repeats, should there be any."""
        self._segments.keep(repr(record), record)

    def close(self) -> None:
        """Write that this process ended its recording, and close the file."""
        self._segments.close({"r": "close", "t": time.monotonic_ns()})

    def _make_writer(self, fields: dict[str, Any], replaces: Writer | None) -> Writer:
        """Return the writer of a file whose header has these fields beside the usual ones."""
        if self._writer is not None:
            return self._writer
        stem = f"{fields['file']}.{fields['segment']}" if fields else None
        return Writer(
            self.folder,
            lambda: {**header(self.run, self.options), **fields},
            stem=stem,
            replaces=replaces,
        )


def _inside(parent: int | None, batch: int | None) -> bytes:
    inside = b"" if parent is None else b',"parent":%d' % parent
    return inside if batch is None else inside + b',"batch":%d' % batch
