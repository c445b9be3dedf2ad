"""Which group and which collective call of one trace is which of the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..columns import Rows
from ..schema import Provenance
from ..trace import Group
from .align import align
from .keys import pack
from .select import Side

NO_CALL = -1  # number of the call of a row that is outside of one


class CommonCall(NamedTuple):
    """One collective call as the two sides hold it.

    Attributes:
        group: Number of the group among those of both sides.
        name: Name of the collective.
        row_a: A row of A that belongs to it; None where A lacks the call.
        row_b: The same of B.
    """

    group: int
    name: str
    row_a: int | None
    row_b: int | None


@dataclass(frozen=True, slots=True, eq=False)
class CommonCalls:
    """The groups and calls of both sides, numbered alike.

    Attributes:
        groups: Every group that the compared rows name, those of A first.
        group_a, group_b: Number of each compared row's group; 0 is no group, so that they start
            at 1.
        calls: The calls; those that both hold, and those that one lacks.
        call_a, call_b: Number of each compared row's call, or NO_CALL.
        only_a, only_b: Groups (numbers) that the other side lacks.
        notes: What to say about how groups were paired.
    """

    groups: list[Group]
    group_a: Rows
    group_b: Rows
    calls: list[CommonCall]
    call_a: Rows
    call_b: Rows
    only_a: list[int]
    only_b: list[int]
    notes: list[str]


def common_calls(a: Side, b: Side) -> CommonCalls:
    """Number the groups and calls of both sides alike.

    Groups are the same where their ranks and ordinal are. Calls are counted in each group; where
    the names of the calls differ, they are aligned like a text diff, so that one call more does
    not shift all that follow.
    """
    groups, tables, notes = _common_groups(a, b)
    numbers = []
    for side, table in zip((a, b), tables, strict=True):
        column = side.trace.events["group"]
        index = np.array([*table, 0], np.int64)
        numbers.append(np.where(column.valid[side.rows], index[column.values[side.rows]], 0))
    used = [set(np.unique(n[n > 0]).tolist()) for n in numbers]
    keys = _call_keys(a, b, numbers[0], numbers[1])
    calls: list[CommonCall] = []
    listed = [_calls_of(side, key, n) for side, key, n in zip((a, b), keys, numbers, strict=True)]
    index_maps: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for stream in sorted({(call.group, call.attempt) for side in listed for call in side}):
        ours, theirs = ([c for c in side if (c.group, c.attempt) == stream] for side in listed)
        names = sorted({c.name for c in ours + theirs})
        tokens = [[names.index(c.name) for c in side] for side in (ours, theirs)]
        for i, j in align(tokens[0], tokens[1]):
            one, two = (None if i is None else ours[i]), (None if j is None else theirs[j])
            if one is not None and two is not None and one.name == two.name:
                index_maps[0][one.key] = index_maps[1][two.key] = len(calls)
                calls.append(CommonCall(stream[0], one.name, one.row, two.row))
                continue
            if one is not None:
                index_maps[0][one.key] = len(calls)
                calls.append(CommonCall(stream[0], one.name, one.row, None))
            if two is not None:
                index_maps[1][two.key] = len(calls)
                calls.append(CommonCall(stream[0], two.name, None, two.row))
    of_row = [_numbered(key, table) for key, table in zip(keys, index_maps, strict=True)]
    return CommonCalls(
        groups,
        numbers[0],
        numbers[1],
        calls,
        of_row[0],
        of_row[1],
        sorted(used[0] - used[1]),
        sorted(used[1] - used[0]),
        notes,
    )


def _numbered(key: Rows, numbers: dict[int, int]) -> Rows:
    """Return the number of each key, NO_CALL where it has none."""
    distinct, inverse = np.unique(key, return_inverse=True)
    table = np.array([numbers.get(k, NO_CALL) for k in distinct.tolist()], np.int64)
    return table[inverse] if len(key) else np.zeros(0, np.int64)


class _Listed(NamedTuple):
    key: int
    group: int
    attempt: int
    name: str
    row: int


def _common_groups(a: Side, b: Side) -> tuple[list[Group], tuple[list[int], list[int]], list[str]]:
    """Return the groups of both sides, and the number of each side's own among them."""
    numbers: dict[tuple[tuple[int, ...], int], int] = {}
    groups: list[Group] = []
    tables: list[list[int]] = []
    lone = [_only_group(side) for side in (a, b)]
    notes = []
    for number, side in enumerate((a, b)):
        table = []
        for k, group in enumerate(side.trace.meta.groups):
            key = (group.ranks, group.ordinal)
            if number == 1 and k == lone[1] and _same_size(a, b, lone) and key not in numbers:
                first = a.trace.meta.groups[lone[0] or 0]
                key = (first.ranks, first.ordinal)
                notes.append(
                    f"A's group of ranks {_few(first.ranks)} was compared with "
                    f"B's group of ranks {_few(group.ranks)}"
                )
            if key not in numbers:
                groups.append(group)
                numbers[key] = len(groups)
            table.append(numbers[key])
        tables.append(table)
    return groups, (tables[0], tables[1]), notes


def _only_group(side: Side) -> int | None:
    """Return the one group (index into meta.groups) that a side's rows name, if it is one."""
    column = side.trace.events["group"]
    named = np.unique(column.values[side.rows][column.valid[side.rows]])
    return int(named[0]) if len(named) == 1 else None


def _same_size(a: Side, b: Side, lone: list[int | None]) -> bool:
    """Return whether each side has one group and one of them is a simulation's, of one size.

    A simulation numbers its ranks from 0, whichever ranks the real group has.
    """
    if lone[0] is None or lone[1] is None:
        return False
    if Provenance.SIMULATED not in (a.provenance, b.provenance):
        return False
    one, two = a.trace.meta.groups[lone[0]], b.trace.meta.groups[lone[1]]
    return len(one.ranks) == len(two.ranks)


def _few(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")


def _call_keys(a: Side, b: Side, group_a: Rows, group_b: Rows) -> tuple[Rows, Rows]:
    """Return a number for each row's (group, attempt, coll_seq), -1 outside of a collective."""
    columns = [(group_a, group_b)]
    for name in ("attempt", "coll_seq"):
        cells = []
        for side in (a, b):
            column = side.trace.events[name]
            cells.append(column.values[side.rows])  # 0 where null: attempts start there
        columns.append((cells[0], cells[1]))
    keys = pack(columns, len(a.rows), len(b.rows))
    inside = [side.trace.events["coll_seq"].valid[side.rows] for side in (a, b)]
    return np.where(inside[0], keys[0], -1), np.where(inside[1], keys[1], -1)


def _calls_of(side: Side, key: Rows, group: Rows) -> list[_Listed]:
    """Return a side's calls in order of (group, attempt, coll_seq)."""
    collective, attempt = side.trace.events["collective"], side.trace.events["attempt"]
    distinct, first = np.unique(key, return_index=True)
    listed = []
    for k, at in zip(distinct.tolist(), first.tolist(), strict=True):
        row = int(side.rows[at])
        if k >= 0:
            name = collective[row] or "?"
            listed.append(_Listed(k, int(group[at]), attempt[row] or 0, name, row))
    return listed
