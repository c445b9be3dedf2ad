"""Ranks that wait for each other in a circle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..schema import Kind
from .finding import Code, Finding
from .pairs import Pairs
from .run import Run, names


@dataclass(frozen=True, slots=True)
class Wait:
    """What a rank waits in, and for whom."""

    row: int  # the event that does not end
    operation: int  # what it waits for: the event itself, or the one that wait() is for
    ranks: tuple[int, ...]


def deadlocks(run: Run, pairs: Pairs) -> Iterator[Finding]:
    """Yield the circles of ranks, each of which waits for the next."""
    for attempt in sorted({attempt for attempt, _ in _blocked(run)}):
        waits = _waits(run, pairs, attempt)
        circle = _circle({rank: wait.ranks for rank, wait in waits.items()})
        if circle:
            yield _finding(run, attempt, circle, waits)


def _blocked(run: Run) -> dict[tuple[int, int], int]:
    """Return the first event of each (attempt, rank) that waits and does not end well."""
    status = run.events["status"]
    rows = np.flatnonzero(status.where("begun") | status.where("error"))
    issued = run.events["t_issue_ns"].values[rows]
    found: dict[tuple[int, int], int] = {}
    for row in rows[np.argsort(issued, kind="stable")].tolist():
        kind, rank = run.cell(row, "kind"), run.cell(row, "rank")
        if rank is None or kind == Kind.GROUP or not run.is_waiting(row):
            continue
        if kind != Kind.WAIT and run.cell(row, "is_async"):
            continue  # the call returned at once: its wait, if any, is what blocks
        found.setdefault((run.cell(row, "attempt") or 0, rank), row)
    return found


def _waits(run: Run, pairs: Pairs, attempt: int) -> dict[int, Wait]:
    lone = {*pairs.sends, *pairs.recvs}
    found = {}
    for (at, rank), row in _blocked(run).items():
        if at != attempt:
            continue
        parent = run.cell(row, "parent")
        operation = parent if run.cell(row, "kind") == Kind.WAIT and parent is not None else row
        if run.cell(operation, "kind") == Kind.COLLECTIVE:
            ranks = _absent(run, operation, attempt)
        elif operation in lone and run.cell(operation, "peer") is not None:
            ranks = (run.cell(operation, "peer"),)
        else:
            ranks = ()
        found[rank] = Wait(row, operation, ranks)
    return found


def _absent(run: Run, row: int, attempt: int) -> tuple[int, ...]:
    """Return the ranks that a collective call waits for."""
    group, seq = run.cell(row, "group"), run.cell(row, "coll_seq")
    for call in run.calls.get((attempt, group), ()):
        if call.coll_seq == seq:
            return tuple(rank for rank in run.group(group).ranks if rank not in call.rows)
    return ()


def _circle(waits: dict[int, tuple[int, ...]]) -> list[int]:
    """Return ranks of which each waits for the next, and the last for the first; [] for none."""
    done: set[int] = set()
    for start in sorted(waits):
        path: list[int] = []
        stack = [(start, iter(waits[start]))]
        path.append(start)
        while stack:
            rank, following = stack[-1]
            for other in following:
                if other in path:
                    return path[path.index(other) :]
                if other in waits and other not in done:
                    path.append(other)
                    stack.append((other, iter(waits[other])))
                    break
            else:
                done.add(rank)
                path.pop()
                stack.pop()
    return []


def _finding(run: Run, attempt: int, circle: list[int], waits: dict[int, Wait]) -> Finding:
    shown = circle[:8]
    steps = []
    for k, rank in enumerate(shown):
        wait, following = waits[rank], circle[(k + 1) % len(circle)]
        steps.append(f"rank {rank} is in {run.what(wait.row)}, and waits for rank {following}")
    if len(circle) > len(shown):
        steps.append(f"... and so on through {len(circle)} ranks")
    kinds = {run.cell(waits[rank].operation, "kind") for rank in circle}
    if kinds == {Kind.SEND}:
        hint = "all send and none receives: post the recv first (irecv), or use batch_isend_irecv"
    elif kinds == {Kind.RECV}:
        hint = "all receive and none sends: one of them must send first"
    else:
        hint = "each waits for a call that the other makes only afterwards"
    rows = [waits[rank].row for rank in circle]
    longest = max(rows, key=run.waited_ns)
    errors = run.errors(rows)
    return Finding(
        Code.DEADLOCK,
        f"deadlock: {names(circle)} wait for each other ({run.took(longest)})",
        (*steps, hint, *errors),
        ranks=tuple(circle),
        attempt=attempt,
        group=run.cell(waits[circle[0]].operation, "group"),
        site=run.cell(rows[0], "site"),
        rows=tuple(dict.fromkeys([*rows, *(waits[rank].operation for rank in circle)])),
        t_ns=min(run.cell(row, "t_issue_ns") or 0 for row in rows),
    )
