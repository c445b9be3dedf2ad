"""Collective calls that do not match across the ranks of their group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from .finding import Code, Finding
from .run import Call, Run, names, plural

# What must be equal on all ranks of a call, the most telling first, and how it is said.
_EQUAL = {
    "collective": "calls",
    "dtype": "has dtype",
    "reduce_op": "reduces with",
    "root": "has root",
    "size_bytes": "has",
}
# Calls further on that are searched for one that came in another order.
_NEAR = 16


def mismatches(run: Run) -> Iterator[Finding]:
    """Yield the first call of each group in which ranks differ."""
    for calls in run.calls.values():
        differing = _differing(run, calls)
        found = [call for call in calls if _is_told(run, call, differing.get(call.coll_seq, ()))]
        swapped = _swapped(run, calls)
        if swapped is not None:
            yield swapped
            continue
        if found:
            yield _finding(run, found, differing[found[0].coll_seq])


def _differing(run: Run, calls: list[Call]) -> dict[int, list[str]]:
    """Return the columns that differ within each call, by coll_seq."""
    rows = np.array([row for call in calls for row in call.rows.values()], np.int64)
    sizes = np.array([len(call.rows) for call in calls])
    starts = np.cumsum(sizes) - sizes
    found: dict[int, list[str]] = {}
    for name in _EQUAL:
        column = run.events[name]
        values = np.where(column.valid[rows], column.values[rows].astype(np.int64), -1)
        differs = values != np.repeat(values[starts], sizes)
        for k in np.flatnonzero(np.add.reduceat(differs, starts)).tolist():
            found.setdefault(calls[k].coll_seq, []).append(name)
    return found


def _is_told(run: Run, call: Call, columns: tuple[str, ...] | list[str]) -> bool:
    """Return whether what differs matters: uneven sizes may be meant."""
    if list(columns) != ["size_bytes"]:
        return bool(columns)
    uneven = any(run.cell(row, "splits") is not None for row in call.rows.values())
    is_ok = all(run.is_ok(row) for row in call.rows.values())
    kind = run.cell(next(iter(call.rows.values())), "collective")
    return kind != "all_to_all" and not (uneven and is_ok)


def _finding(run: Run, found: list[Call], columns: list[str]) -> Finding:
    call = found[0]
    rows = list(call.rows.values())
    column = next(name for name in _EQUAL if name in columns)
    if column == "collective":
        columns = [column]  # the rest follows from it
    sides = _sides(run, rows, column)
    kinds = {run.cell(row, "collective") for row in rows}
    subject = run.call_name(call) if len(kinds) == 1 else f"call #{call.coll_seq}"
    group = "" if len(kinds) == 1 else run.of_group(call.group)
    text = "; ".join(
        f"{run.by_place(side)} {_verb(column, len(side))} {_shown(run, side[0], column)}"
        for side in sides
    )
    look = []
    for other in columns:
        if other != column:
            parts = [
                f"{names([run.cell(row, 'rank') for row in side])}: {_shown(run, side[0], other)}"
                for side in _sides(run, rows, other)
            ]
            look.append(f"{other} differs as well: {'; '.join(parts)}")
    if column == "collective":
        look.append("after this, each rank's later calls of the group meet the wrong ones")
    stuck = [row for row in rows if not run.is_ok(row)]
    if not stuck:
        look.append("no rank noticed: the results are wrong, or will be")
    look += run.errors(stuck)
    look += [
        f"rank {rank}: {run.ending(rank, call.attempt)}"
        for rank in call.rows
        if run.crashed(rank, call.attempt)
    ]
    if len(found) > 1:
        look.append(f"{plural(len(found) - 1, 'later call')} of the group differ too")
    odd = sides[0]
    return Finding(
        Code.MISMATCH,
        f"{subject}{group} does not match across ranks: {text}",
        tuple(look),
        ranks=tuple(sorted(run.cell(row, "rank") for row in odd)),
        attempt=call.attempt,
        group=call.group,
        coll_seq=call.coll_seq,
        site=run.cell(odd[0], "site"),
        rows=tuple(rows),
        t_ns=min((run.cell(row, "t_issue_ns") or 0 for row in rows), default=None),
    )


def _sides(run: Run, rows: list[int], column: str) -> list[list[int]]:
    """Return the rows by their cell, the odd ones out first."""
    found: dict[Any, list[int]] = {}
    for row in rows:
        found.setdefault(run.cell(row, column), []).append(row)
    return sorted(found.values(), key=len)


def _verb(column: str, count: int) -> str:
    verb = _EQUAL[column]
    if count == 1:
        return verb
    return {"calls": "call", "reduces with": "reduce with"}.get(verb, verb.replace("has", "have"))


def _shown(run: Run, row: int, column: str) -> str:
    value = run.cell(row, column)
    if column == "root":
        ranks = run.group(run.cell(row, "group")).ranks
        return "none" if value is None or value >= len(ranks) else f"rank {ranks[value]}"
    if column == "size_bytes":
        return run.tensors(row) or "nothing"
    return "none" if value is None else str(value)


# Order


def _swapped(run: Run, calls: list[Call]) -> Finding | None:
    """Return the first call that one rank makes later than others, and another one instead."""
    if not calls:
        return None
    marks = _marks(run)
    told: list[dict[int, tuple[int, int]]] = []
    for rank in run.group(calls[0].group).ranks:
        rows = ((call.coll_seq, call.rows.get(rank)) for call in calls)
        mine = {seq: (marks[row], row) for seq, row in rows if row is not None and marks[row] >= 0}
        told += [mine] if mine else []
    if not told:
        return None
    first = told[0]
    for mine in told[1:]:
        for seq in sorted(first.keys() & mine.keys()):
            a, b = first[seq], mine[seq]
            if a[0] == b[0]:
                continue
            if _comes(first, seq, b[0], mine) and _comes(mine, seq, a[0], first):
                return _order_finding(run, calls, seq, a[1], b[1])
    return None


def _marks(run: Run) -> list[int]:
    """Return a number for each row, equal where calls look alike: line, kind, op, type, size.

    -1 stands for rows of which the line is not known.
    """
    columns = [run.events[name] for name in ("site", "collective", "reduce_op", "dtype")]
    columns.append(run.events["size_bytes"])
    if not len(run.events):
        return []
    cells = np.stack([np.where(c.valid, c.values.astype(np.int64), -1) for c in columns])
    _, marks = np.unique(cells, axis=1, return_inverse=True)
    found: list[int] = np.where(columns[0].valid, marks.reshape(-1), -1).tolist()
    return found


def _comes(
    theirs: dict[int, tuple[int, int]], seq: int, wanted: int, mine: dict[int, tuple[int, int]]
) -> bool:
    """Return whether a call comes a little later on another rank, where this one makes another."""
    for later in range(seq + 1, seq + 1 + _NEAR):
        if later in theirs and theirs[later][0] == wanted:
            return later not in mine or mine[later][0] != wanted
    return False


def _order_finding(run: Run, calls: list[Call], seq: int, row_a: int, row_b: int) -> Finding:
    call = next(call for call in calls if call.coll_seq == seq)
    rank_a, rank_b = run.cell(row_a, "rank"), run.cell(row_b, "rank")
    kind = {run.cell(row_a, "collective"), run.cell(row_b, "collective")}
    what = f"{kind.pop()} #{seq}" if len(kind) == 1 else f"call #{seq}"
    texts = [
        f"rank {rank} makes {run.cell(row, 'collective')} ({run.tensors(row)}){run.place(row)}"
        for rank, row in ((rank_a, row_a), (rank_b, row_b))
    ]
    stuck = [row for row in call.rows.values() if not run.is_ok(row)]
    look = (
        f"rank {rank_b} makes these two calls in the other order than rank {rank_a}",
        *(() if stuck else ("no rank noticed: the tensors of different calls were combined",)),
    )
    return Finding(
        Code.ORDER,
        f"{what}{run.of_group(call.group)} comes in another order on rank {rank_b}: "
        f"{texts[0]}, but {texts[1]}",
        look,
        ranks=(rank_b,),
        attempt=call.attempt,
        group=call.group,
        coll_seq=seq,
        site=run.cell(row_b, "site"),
        rows=(row_a, row_b),
        t_ns=min(run.cell(row, "t_issue_ns") or 0 for row in (row_a, row_b)),
    )


# Splits of all_to_all


def split_mismatches(run: Run) -> Iterator[Finding]:
    """Yield the all_to_all calls in which a rank expects another size than its peer sends."""
    for call in run.all_calls():
        rows = call.rows
        if not all(run.cell(row, "collective") == "all_to_all" for row in rows.values()):
            continue
        ranks = run.group(call.group).ranks
        sends, expects = {}, {}
        for rank, row in rows.items():
            found = _splits(run, row, len(ranks))
            if found is not None:
                sends[rank], expects[rank] = found
        wrong = [
            (src, dst, sends[src][ranks.index(dst)], expects[dst][ranks.index(src)])
            for src in sends
            for dst in expects
            if sends[src][ranks.index(dst)] != expects[dst][ranks.index(src)]
        ]
        if wrong:
            yield _splits_finding(run, call, wrong)


def _splits(run: Run, row: int, n: int) -> tuple[list[int], list[int]] | None:
    """Return the elements that a rank sends to each and expects from each; None if unknown."""
    splits = run.cell(row, "splits")
    if splits is not None and len(splits) == 2 * n:
        return splits[:n], splits[n:]
    sizes = []
    for when in ("before", "after"):
        states = run.trace.states_of(row, when=when).tolist()
        shapes = [run.trace.states["shape"][state] for state in states]
        if not shapes or any(shape is None for shape in shapes):
            return None
        counts = [int(np.prod(shape)) for shape in shapes]
        sizes.append(counts)
    if splits is not None or any(len(counts) not in (1, n) for counts in sizes):
        return None
    even = [counts if len(counts) == n and n > 1 else [counts[0] // n] * n for counts in sizes]
    return even[0], even[1]


def _splits_finding(run: Run, call: Call, wrong: list[tuple[int, int, int, int]]) -> Finding:
    src, dst, sent, expected = min(wrong, key=lambda pair: (pair[0] == pair[1], pair))
    row = call.rows[dst]
    text = (
        f"{run.call_name(call)}: rank {src} sends {plural(sent, 'element')} to rank {dst} "
        f"({_at(run, call.rows[src])}), which expects {expected} ({_at(run, row)})"
    )
    look = [
        f"rank {a} sends {plural(n, 'element')} to "
        f"{'itself' if a == b else f'rank {b}'}, which expects {m}"
        for a, b, n, m in wrong
        if (a, b) != (src, dst)
    ]
    blame = Counter(rank for pair in wrong for rank in set(pair[:2])).most_common()
    look = look[:4] + run.errors(list(call.rows.values()))
    return Finding(
        Code.SPLITS,
        text,
        tuple(look),
        ranks=tuple(sorted(rank for rank, count in blame if count == blame[0][1])),
        attempt=call.attempt,
        group=call.group,
        coll_seq=call.coll_seq,
        site=run.cell(row, "site"),
        rows=tuple(call.rows.values()),
        t_ns=min(run.cell(each, "t_issue_ns") or 0 for each in call.rows.values()),
    )


def _at(run: Run, row: int) -> str:
    return run.place(row).strip() or f"rank {run.cell(row, 'rank')}"


def errors(run: Run, told: set[int]) -> Iterator[Finding]:
    """Yield calls that raised by themselves: neither another rank's trouble nor told already.

    Args:
        run: The run.
        told: Rows that other findings name.
    """
    status = run.events["status"].where("error")
    found: dict[tuple[Any, ...], list[int]] = {}
    for row in np.flatnonzero(status).tolist():
        if row in told or not run.raised(row) or run.cell(row, "kind") == "wait":
            continue
        key = (
            run.cell(row, "attempt"),
            run.cell(row, "kind"),
            run.cell(row, "collective"),
            run.cell(row, "site"),
            run.error(row, 60),
        )
        found.setdefault(key, []).append(row)
    for rows in found.values():
        yield _error_finding(run, rows)


def _error_finding(run: Run, rows: list[int]) -> Finding:
    first = min(rows, key=lambda row: run.cell(row, "t_issue_ns") or 0)
    ranks = sorted({run.cell(row, "rank") for row in rows if run.cell(row, "rank") is not None})
    who = names(ranks) if ranks else "a process"
    look = []
    if "Detected mismatch between collectives" in str(run.cell(first, "error")):
        look.append(
            "the recorded calls agree; torch's debug mode counts sends and recvs as well, so that "
            "it raises where only some ranks made one"
        )
    seq, group = run.cell(first, "coll_seq"), run.cell(first, "group")
    if seq is not None and group is not None:
        call = next(
            c
            for c in run.calls.get((run.cell(first, "attempt") or 0, group), [])
            if c.coll_seq == seq
        )
        others = [row for row in call.rows.values() if row not in rows and run.is_waiting(row)]
        if others:
            look.append(f"{run.by_place(others)} waited for it in vain")
    if len(rows) > len(ranks):
        look.append(f"raised {plural(len(rows), 'time')} in all")
    return Finding(
        Code.ERROR,
        f"{who} failed in {run.what(first)}: {run.error(first, 240)}",
        tuple(look),
        ranks=tuple(ranks),
        attempt=run.cell(first, "attempt") or 0,
        group=group,
        coll_seq=seq,
        site=run.cell(first, "site"),
        rows=tuple(rows),
        t_ns=run.cell(first, "t_issue_ns"),
    )
