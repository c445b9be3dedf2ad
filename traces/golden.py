"""The text of a trace for review: what moved where, and nothing of when.

    chunkscope golden 1
    world 2
    group 0: ranks 0 1
    call 0: all_reduce #0 group=0 algorithm=ring op=SUM bytes=8 dtype=float32
      begin r0 before.input[0]={0}:5a3c0d11
      step 0
        send r0 +> r1 #0 slot=1 bytes=4 at=4 before.payload[1]={0}:77aa0011

One event a line, in causal order: two runs that differ only in the interleaving of independent
events have the same text. A number after a colon is the digest of a tensor, braces hold its
contributors. Times, hosts, paths and versions are left out, as is what follows from the line's
place: `parse` puts it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .columns import Rows
from .diff.select import select
from .schema import DTYPES, Kind, Provenance, Role, Status, When
from .trace import Trace

FIRST_LINE = "chunkscope golden 1"

# Columns of a call by the names that they have here, and those that only a user's call has.
CALL_KEYS = {
    "algorithm": "algorithm",
    "op": "reduce_op",
    "root": "root",
    "bytes": "size_bytes",
    "dtype": "dtype",
    "splits": "splits",
}
CALLED_KEYS = {"api": "api", "is_async": "is_async", "tag": "tag"}
# Columns of a row inside a call, with what they are where they are not said (a user's own call has
# neither channel nor slots).
ROW_KEYS: dict[str, tuple[str, Any]] = {
    "channel": ("channel", 0),
    "slot": ("slot", None),
    "n": ("n_slots", 1),
    "bytes": ("size_bytes", None),
    "at": ("offset_bytes", None),
    "status": ("status", Status.OK.value),
}
_PHASES = {Kind.SEND: 0, Kind.RECV: 1, Kind.REDUCE: 2, Kind.COPY: 3}
_ORDER = ("channel", "peer_group_rank", "tag", "message", "part")


def to_text(trace: Trace, *, values: bool = True) -> str:
    """Return the text of a trace's structure, contributors and digests.

    Args:
        trace: The trace; of several provenances the most detailed one is taken.
        values: Whether digests are in it; without them, runs on other numbers have the same text.

    Example:
        >>> print(to_text(Trace.build({"kind": [], "provenance": []})))
        chunkscope golden 1
        <BLANKLINE>
    """
    return "\n".join([*_Writer(trace, values).lines(), ""])


class _Writer:
    """Writes the lines of one trace."""

    def __init__(self, trace: Trace, values: bool) -> None:
        self.trace, self.values = trace, values
        self.cells = trace.events
        side, *_ = select(trace, trace, None)
        kind = trace.events["kind"]
        self.rows: Rows = side.rows[~kind.where(Kind.GROUP.value)[side.rows]]
        # A call of the user's has no channel and no slots.
        self.called = side.provenance is Provenance.CALLED
        self.call_keys = {**CALL_KEYS, **(CALLED_KEYS if self.called else {})}
        self.groups = self._groups()
        owner = trace.states["event"].values
        self.bounds = np.searchsorted(owner, np.arange(len(trace) + 1))

    def _groups(self) -> dict[int | None, int]:
        """Return the number here of each group that the rows name, by index into meta.groups."""
        column = self.cells["group"]
        used = np.unique(column.values[self.rows][column.valid[self.rows]]).tolist()
        groups = self.trace.meta.groups
        used.sort(key=lambda k: (groups[k].ranks, groups[k].ordinal))
        return {group: number for number, group in enumerate(used)}

    def lines(self) -> Iterator[str]:
        """Yield the lines."""
        yield FIRST_LINE
        if self.trace.meta.world_size is not None:
            yield f"world {self.trace.meta.world_size}"
        for group, number in self.groups.items():
            known = self.trace.meta.groups[group or 0]
            ordinal = f" ordinal {known.ordinal}" if known.ordinal else ""
            yield f"group {number}: ranks {' '.join(map(str, known.ranks))}{ordinal}"
        count: dict[int, int] = {}
        for key, rows in self._calls():
            group, inside = key[0], key[2] >= 0
            if inside:
                yield from self._call(sum(count.values()), count.setdefault(group, 0), rows)
                count[group] += 1
            else:
                yield from self._outside(group, rows)

    def _calls(self) -> list[tuple[tuple[int, int, int], list[int]]]:
        """Return the rows of each call by (group, attempt, coll_seq); -1 is outside of one."""
        found: dict[tuple[int, int, int], list[int]] = {}
        for row in self.rows.tolist():
            group = self.groups.get(self.cells["group"][row], -1)
            coll_seq = self.cells["coll_seq"][row]
            key = (group, self.cells["attempt"][row] or 0, -1 if coll_seq is None else coll_seq)
            found.setdefault(key, []).append(row)
        return sorted(found.items())

    def _call(self, number: int, coll_seq: int, rows: list[int]) -> Iterator[str]:
        calls = [row for row in rows if self.cells["kind"][row] == Kind.COLLECTIVE]
        calls.sort(key=self._rank)
        head = (calls or rows)[0]
        name = self.cells["collective"][head] or "collective"
        group = self.groups.get(self.cells["group"][head])
        parts = [f"call {number}: {name} #{coll_seq}"]
        parts += [] if group is None else [f"group={group}"]
        common = {key: self.cells[column][head] for key, column in self.call_keys.items()}
        parts += [f"{key}={_cell(value)}" for key, value in common.items() if value is not None]
        yield " ".join(parts)
        for row in calls:
            yield f"  begin {self._begin(row, name, common)}"
        step: int | None = -1
        for row in sorted(set(rows) - set(calls), key=self._in_call):
            if self.cells["step"][row] != step:
                step = self.cells["step"][row]
                yield f"  step {_cell(step)}"
            yield f"    {self._row(row, common['dtype'])}"
        for row in calls:
            status = self.cells["status"][row] or "-"
            ended = [] if status == Status.OK else [f"status={status}"]
            yield " ".join([f"  end r{self._rank(row)}", *ended, *self._states(row, When.AFTER)])

    def _begin(self, row: int, name: str, common: dict[str, Any]) -> str:
        """Return what a rank asked for, as far as it is not what the first rank asked for."""
        parts = [f"r{self._rank(row)}"]
        own = self.cells["collective"][row]
        parts += [] if own == name else [f"collective={_cell(own)}"]
        for key, column in self.call_keys.items():
            value = self.cells[column][row]
            parts += [] if value == common[key] else [f"{key}={_cell(value)}"]
        return " ".join([*parts, *self._states(row, When.BEFORE)])

    def _outside(self, group: int, rows: list[int]) -> Iterator[str]:
        yield f"outside of a call group={_cell(None if group < 0 else group)}"
        for row in sorted(rows, key=self._in_call):
            dtype, tag = self.cells["dtype"][row], self.cells["tag"][row]
            parts = [self._row(row, dtype), f"dtype={_cell(dtype)}"]
            parts += [] if tag is None else [f"tag={tag}"]
            yield f"    {' '.join(parts)}"

    def _rank(self, row: int) -> int:
        rank = self.cells["rank"][row]
        return rank if rank is not None else -1

    def _in_call(self, row: int) -> tuple[int, ...]:
        """Return the order of a row within its call."""
        get = self.cells
        step, place = get["step"][row], get["group_rank"][row]
        phase = _PHASES.get(get["kind"][row], len(_PHASES))
        last = [get[name][row] for name in _ORDER]
        return (
            -1 if step is None else step,
            phase,
            get["place"][row] if place is None and get["place"][row] is not None else place or 0,
            *(-1 if cell is None else cell for cell in last),
        )

    def _row(self, row: int, call_dtype: str | None) -> str:
        """Return a message's end, a reduce or a copy."""
        get = self.cells
        kind = get["kind"][row]
        parts = [kind, _end(get["rank"][row], get["place"][row])]
        if get["peer"][row] is not None or get["peer_group_rank"][row] is not None:
            plus = "+" if get["reduces"][row] else "-"
            arrow = f"{plus}>" if kind == Kind.SEND else f"<{plus}"
            parts += [arrow, _end(get["peer"][row], get["peer_group_rank"][row])]
        if (message := get["message"][row]) is not None:
            part = get["part"][row]
            parts.append(f"#{message}" + (f".{part}" if part else ""))
        for key, (column, usual) in ROW_KEYS.items():
            value = get[column][row]
            if value != usual and (value is not None or not self.called):
                parts.append(f"{key}={_cell(value)}")
        if get["dtype"][row] != call_dtype:
            parts.append(f"dtype={_cell(get['dtype'][row])}")
        return " ".join([*parts, *self._states(row)])

    def _states(self, row: int, when: When | None = None) -> list[str]:
        """Return the states of an event, before it first."""
        states = range(int(self.bounds[row]), int(self.bounds[row + 1]))
        cells = self.trace.states
        named = []
        for state in states:
            if when is None or cells["when"][state] == when:
                order = cells["when"][state] == When.AFTER, cells["role"][state] != Role.INPUT
                named.append((order, cells["index"][state] or 0, self._state(state, row)))
        return [text for *_, text in sorted(named)]

    def _state(self, state: int, row: int) -> str:
        cells = self.trace.states
        index, contributors = cells["index"][state], cells["contributors"][state]
        text = f"{cells['when'][state]}.{cells['role'][state]}"
        text += f"[{_cell(index)}]=" if index is not None else "="
        dtype, shape = cells["dtype"][state], cells["shape"][state]
        if dtype is not None and dtype != self.cells["dtype"][row]:
            text += dtype
        if shape is not None and shape != usual_shape(
            self.cells["size_bytes"][row], dtype or self.cells["dtype"][row]
        ):
            text += f"[{'x'.join(map(str, shape))}]"
        if contributors is not None:
            text += "{" + ",".join(map(str, contributors)) + "}"
        digest = self.trace.digest(state) if self.values else None
        sampled = cells["digest_of"][state] == "sample" and cells["data"][state] is None
        return text + ("" if digest is None else f":{'~' if sampled else ''}{digest:08x}")


def usual_shape(size_bytes: int | None, dtype: str | None) -> list[int] | None:
    """Return the shape of a state that is not said: one dimension, as many bytes as the event."""
    if size_bytes is None or dtype not in DTYPES:
        return None
    return [size_bytes // DTYPES[dtype]]


def _end(rank: int | None, place: int | None) -> str:
    """Return an end of a message: a rank, or the place of a helper."""
    return f"r{rank}" if rank is not None else f"p{_cell(place)}"


def _cell(value: Any) -> str:
    """Return a cell as one word; a null is a dash."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return ",".join(map(str, value))
    # A schedule of the user's own is named by its file: the folder is this machine's.
    return "_".join(str(value).rpartition("/")[2].split())
