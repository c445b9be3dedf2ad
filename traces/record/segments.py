"""The files of one process: one, or the last two where only the last calls are kept.

A segment is a file of records and what has been defined in it. With `Options.keep_last` N, a new
segment begins after N calls and the one before the last is deleted, so that the last N calls are on
disk at any moment, and 2 N at most. Each segment defines what it names. The first one is emptied
instead of deleted: the others are named after it.

A thread that took hold of a segment may go on writing into it while another begins the next; only
one that holds it for N calls more finds its records in another file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .callers import Sites
from .options import Options
from .states import States
from .writer import Writer


class Segment:
    """A file of records, and what has been defined in it.

    Args:
        writer: Writes the file.
        options: What to keep.
        before: The segment before, whose numbers go on.
    """

    __slots__ = ("calls", "sites", "states", "writer")

    def __init__(self, writer: Writer, options: Options, before: Segment | None = None) -> None:
        self.writer = writer
        self.states: States = States(options, writer, None if before is None else before.states)
        self.sites: Sites = Sites(writer, options.stack, None if before is None else before.sites)
        self.calls: dict[Any, int] = {}


class Segments:
    """The segment being written, and the one before.

    Args:
        options: What to keep.
        make_writer: Makes a writer, given fields for the header and the writer to take over from.
    """

    def __init__(
        self, options: Options, make_writer: Callable[[dict[str, Any], Writer | None], Writer]
    ) -> None:
        self._options = options
        self._make_writer = make_writer
        self._lock = threading.RLock()
        self._first = make_writer({}, None)
        self._n_segments = 1
        self._n_calls = 0
        self._until = options.keep_last
        self._standing: dict[Any, dict[str, Any]] = {}
        self._before: Segment | None = None
        self.current = Segment(self._first, options)

    def keep(self, key: Any, record: dict[str, Any]) -> None:
        """Write a record that every later segment repeats, the last one of its key."""
        with self._lock:
            if self._until is not None:
                self._standing[key] = record
            self.current.writer.write_json(record)

    def count_call(self, seq: int) -> None:
        """Count a call, and begin a new segment with it where this one is full.

        Args:
            seq: Number of the call.
        """
        if self._until is None:
            return
        with self._lock:
            if self._n_calls >= self._until:
                self._turn(seq)
            self._n_calls += 1

    def close(self, record: dict[str, Any]) -> None:
        """Append the last record and close the files."""
        with self._lock:
            self._until = None
            self.current.writer.close(record)
            if self._before is not None:
                self._before.writer.close(None)

    def forget(self) -> None:
        """Leave the parent's files alone: called in a forked child."""
        for segment in (self.current, self._before):
            if segment is not None:
                segment.writer.forget()

    def _turn(self, seq: int) -> None:
        assert self._options.keep_last is not None
        oldest, self._before = self._before, self.current
        self._until = self._n_calls + self._options.keep_last
        fields = {
            "file": self._first.stem,
            "segment": self._n_segments,
            "seq": seq,
            "calls": self._n_calls,
        }
        self._n_segments += 1
        writer = self._make_writer(fields, None if oldest is None else oldest.writer)
        writer.open()
        for record in self._standing.values():
            writer.write_json(record)
        self.current = Segment(writer, self._options, self._before)
        if oldest is not None:
            oldest.writer.delete(is_named_after=oldest.writer is self._first)
            oldest.states.give_back()
