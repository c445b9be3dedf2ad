"""A recorded run as the checks look at it: its calls across ranks, its processes, its words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...units import format_bytes, format_ns
from ..columns import Rows
from ..schema import Kind, Provenance, Status, When
from ..show import place as place_of_site
from ..trace import Group, Process, Trace

# What gloo and NCCL say in a call that failed because of another rank.
_FOLLOWS = (
    "timed out",
    "timeout",
    "connection closed by peer",
    "connection reset",
    "broken pipe",
    "read error",
    "write error",
    "socket closed",
    "remote process exited",
    "aborted",
    "connection refused",
)


# The place in gloo's sources that its errors begin with.
_SOURCE_LINE = re.compile(r"\[[^\]\s]*/\S+\.cc:\d+\]\s*")
# Addresses, which differ between ranks that say the same.
_ADDRESS = re.compile(r" \[[0-9a-f.:]+\]:\d+(?=[.:\s]|$)")
# Signals that somebody sends to stop a process; the others tell of a crash.
_STOPPED = frozenset({1, 2, 9, 15})


@dataclass(frozen=True, slots=True)
class Call:
    """One collective call of a group, with the row of each rank that made it."""

    attempt: int
    group: int
    coll_seq: int
    rows: dict[int, int]


class Run:
    """A trace, and what several checks ask of it.

    Args:
        trace: The trace.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.events = trace.events

    # Rows

    def cell(self, row: int, column: str) -> Any:
        """Return a cell of the events table."""
        return self.events[column][row]

    @cached_property
    def calls(self) -> dict[tuple[int, int], list[Call]]:
        """Collective calls in order, by (attempt, group)."""
        events = self.events
        rows = np.flatnonzero(
            events["kind"].where(Kind.COLLECTIVE)
            & events["group"].valid
            & events["coll_seq"].valid
            & events["rank"].valid
        )
        found: dict[tuple[int, int], dict[int, Call]] = {}
        names = ("attempt", "group", "coll_seq", "rank")
        cells = [events[name].values[rows].tolist() for name in names]
        for row, attempt, group, seq, rank in zip(rows.tolist(), *cells):
            calls = found.setdefault((attempt, group), {})
            call = calls.get(seq)
            if call is None:
                call = calls[seq] = Call(attempt, group, seq, {})
            call.rows.setdefault(rank, row)
        return {key: [calls[seq] for seq in sorted(calls)] for key, calls in found.items()}

    def all_calls(self) -> Iterator[Call]:
        """Yield all collective calls, group by group."""
        for calls in self.calls.values():
            yield from calls

    @cached_property
    def messages(self) -> Rows:
        """Rows of sends and recvs that the program asked for itself."""
        events = self.events
        is_message = events["kind"].where(Kind.SEND) | events["kind"].where(Kind.RECV)
        asked = events["provenance"].where(Provenance.CALLED) & ~events["coll_seq"].valid
        return np.flatnonzero(is_message & asked)

    def is_ok(self, row: int) -> bool:
        """Return whether an event came to a good end."""
        return bool(self.cell(row, "status") in (None, Status.OK))

    def is_waiting(self, row: int) -> bool:
        """Return whether an event did not end, or ended because of another rank."""
        status = self.cell(row, "status")
        if status == Status.BEGUN:
            return True
        return bool(status == Status.ERROR and follows(self.cell(row, "error")))

    def raised(self, row: int) -> bool:
        """Return whether an event raised by itself."""
        return self.cell(row, "status") == Status.ERROR and not follows(self.cell(row, "error"))

    # Time

    @cached_property
    def end_ns(self) -> int:
        """The last moment that anything is known of."""
        times = [process.last_ns for process in self.trace.meta.processes]
        for name in ("t_issue_ns", "t_end_ns"):
            column = self.events[name]
            if column.valid.any():
                times.append(int(column.values[column.valid].max()))
        return max((time for time in times if time is not None), default=0)

    def waited_ns(self, row: int) -> int:
        """Return how long an event took, or has taken so far."""
        end = self.cell(row, "t_end_ns")
        return max(0, (self.end_ns if end is None else end) - (self.cell(row, "t_issue_ns") or 0))

    def took(self, row: int) -> str:
        """Return how long an event waited, in words."""
        text = format_ns(self.waited_ns(row))
        return text if self.cell(row, "t_end_ns") is not None else f"{text} so far"

    # Processes

    def processes(self, rank: int, attempt: int) -> list[Process]:
        """Return the processes of a rank."""
        found = self.trace.meta.processes
        return [p for p in found if p.rank == rank and p.attempt == attempt]

    def has_file(self, rank: int, attempt: int) -> bool:
        """Return whether anything of a rank was recorded."""
        return bool(self.processes(rank, attempt)) or bool(
            (self.events["rank"].where(rank) & self.events["attempt"].where(attempt)).any()
        )

    def ending(self, rank: int, attempt: int) -> str | None:
        """Return how a rank's process ended, in words; None where nothing is special."""
        for process in self.processes(rank, attempt):
            if process.signal is not None:
                return f"its process was killed by signal {process.signal}{_signal(process.signal)}"
            if process.exit_code:
                return f"its process ended with exit code {process.exit_code}"
            if not process.closed:
                return "its recording stops there: the process was killed, or still runs"
            return "its process ended in order"
        return None

    def crashed(self, rank: int, attempt: int) -> bool:
        """Return whether a rank's process ended by a signal that nobody sends to stop it."""
        return any(
            process.signal is not None and process.signal not in _STOPPED
            for process in self.processes(rank, attempt)
        )

    def last_row(self, rank: int, attempt: int) -> int | None:
        """Return the event that a rank issued last."""
        mine = self.events["rank"].where(rank) & self.events["attempt"].where(attempt)
        issued = self.events["t_issue_ns"]
        rows = np.flatnonzero(mine & issued.valid)
        return int(rows[np.argmax(issued.values[rows])]) if len(rows) else None

    # Words

    def place(self, row: int) -> str:
        """Return " at train.py:34", or nothing where the line is not known."""
        site = self.cell(row, "site")
        return "" if site is None else f" at {place_of_site(self.trace, site)}"

    def group(self, number: int) -> Group:
        """Return a group."""
        return self.trace.meta.groups[number]

    def of_group(self, number: int | None) -> str:
        """Return " of the group of ranks 1 and 3", or nothing for a group of all ranks."""
        if number is None:
            return ""
        group = self.group(number)
        if len(group.ranks) == (self.trace.meta.world_size or 0) and not group.ordinal:
            return ""
        which = f" (number {group.ordinal} of these ranks)" if group.ordinal else ""
        return f" of the group of {names(group.ranks)}{which}"

    def call_name(self, call: Call) -> str:
        """Return "all_reduce #3", with its group where that is not the whole world."""
        kinds = {self.cell(row, "collective") for row in call.rows.values()}
        kind = kinds.pop() if len(kinds) == 1 else "call"
        return f"{kind} #{call.coll_seq}{self.of_group(call.group)}"

    def what(self, row: int) -> str:
        """Return an event of a rank in words, with its line: "send to rank 1 at a.py:3"."""
        kind, peer = self.cell(row, "kind"), self.cell(row, "peer")
        if kind == Kind.WAIT:
            parent = self.cell(row, "parent")
            inner = "an operation" if parent is None else self.what(parent)
            return f"wait(){self.place(row)} for {inner}"
        if kind in (Kind.SEND, Kind.RECV):
            to = "to" if kind == Kind.SEND else "from"
            whom = "anybody" if peer is None else f"rank {peer}"
            name = self.cell(row, "api") or kind
            name = name if name in ("isend", "irecv") else kind
            return f"{name} {to} {whom}{self.place(row)}"
        if kind == Kind.COLLECTIVE:
            seq = self.cell(row, "coll_seq")
            number = "" if seq is None else f" #{seq}"
            group = self.of_group(self.cell(row, "group"))
            return f"{self.cell(row, 'collective')}{number}{group}{self.place(row)}"
        return f"{self.cell(row, 'api') or kind}{self.place(row)}"

    def by_place(self, rows: Sequence[int]) -> str:
        """Return ranks by line: "rank 1 at a.py:3, ranks 0 and 2 at a.py:5"."""
        found: dict[str, list[int]] = {}
        for row in rows:
            found.setdefault(self.place(row), []).append(self.cell(row, "rank"))
        return ", ".join(f"{names(ranks)}{place}" for place, ranks in found.items())

    def wait_in(self, rows: Sequence[int], name: str) -> str:
        """Return who waits, how long and where: "ranks 0 and 1 waited 8.0 s in barrier #3"."""
        longest = max(rows, key=self.waited_ns)
        time = format_ns(self.waited_ns(longest))
        is_over = all(self.cell(row, "t_end_ns") is not None for row in rows)
        verb = "waited" if is_over else "has waited" if len(rows) == 1 else "have waited"
        so_far = "" if is_over else " so far"
        places = {self.place(row) for row in rows}
        if len(places) == 1:
            who = names([self.cell(row, "rank") for row in rows])
            return f"{who} {verb} {time}{so_far} in {name}{places.pop()}"
        return f"{self.by_place(rows)} {verb} {time}{so_far} in {name}"

    def error(self, row: int, limit: int = 160) -> str:
        """Return the error of an event, in one line, not too long."""
        text = _SOURCE_LINE.sub("", str(self.cell(row, "error") or ""))
        text = _ADDRESS.sub("", text)
        text = " ".join(text.partition(" This is typically caused by")[0].split())
        return text if len(text) <= limit else text[: limit - 4] + " ..."

    def errors(self, rows: Iterable[int], most: int = 2) -> list[str]:
        """Return who got which error, a line for each of the first few that differ."""
        found: dict[str, list[int]] = {}
        for row in rows:
            if self.cell(row, "error"):
                found.setdefault(self.error(row), []).append(self.cell(row, "rank"))
        return [f"{names(ranks)} got: {text}" for text, ranks in list(found.items())[:most]]

    def tensors(self, row: int) -> str:
        """Return what the event's first tensor is: "float32 [2, 3], 24 B"."""
        size, dtype = self.cell(row, "size_bytes"), self.cell(row, "dtype")
        shape = self.shape(row)
        parts = [" ".join(filter(None, (dtype, "" if shape is None else str(shape))))]
        parts.append("" if size is None else format_bytes(size))
        return ", ".join(filter(None, parts))

    def shape(self, row: int) -> list[int] | None:
        """Return the shape of the event's first tensor."""
        for when in (When.BEFORE, When.AFTER):
            for state in self.trace.states_of(row, when=when):
                shape: list[int] | None = self.trace.states["shape"][int(state)]
                return shape
        return None


def follows(error: str | None) -> bool:
    """Return whether an error tells of another rank's trouble, such as a time-out.

    Example:
        >>> follows("RuntimeError: Timed out waiting 8000ms for recv operation to complete")
        True
        >>> follows("ValueError: invalid tensor size")
        False
    """
    text = (error or "").lower()
    return any(words in text for words in _FOLLOWS)


def names(ranks: Iterable[int], most: int = 8) -> str:
    """Return ranks in words.

    Example:
        >>> names([2]), names([0, 1, 3])
        ('rank 2', 'ranks 0, 1 and 3')
    """
    items = sorted(ranks)
    if len(items) == 1:
        return f"rank {items[0]}"
    shown = [str(rank) for rank in items[:most]]
    if len(items) > most:
        return f"ranks {', '.join(shown)} and {len(items) - most} more"
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}"


def plural(number: int, noun: str) -> str:
    """Return a number with its noun.

    Example:
        >>> plural(1, "call"), plural(2, "call")
        ('1 call', '2 calls')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _signal(number: int) -> str:
    import signal

    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return ""
