"""Tensors that a call could not fill: aliased outputs, strided views, results that are not due."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..schema import Role, When
from .finding import Code, Finding
from .run import Call, Run, names

# Calls whose values are compared; more would take longer than anybody waits.
MOST_CALLS = 20_000


def aliased(run: Run) -> Iterator[Finding]:
    """Yield calls of which several outputs lie in the same memory."""
    states = run.trace.states
    rows = np.flatnonzero(states["role"].where(Role.OUTPUT) & states["index"].valid)
    rows = rows[states["storage"].valid[rows] & (states["index"].values[rows] > 0)]
    told: set[Any] = set()
    for event in np.unique(states["event"].values[rows]).tolist():
        site = run.cell(event, "site")
        outputs = run.trace.states_of(event, role=Role.OUTPUT, when=When.AFTER).tolist()
        places: dict[tuple[Any, ...], list[int]] = {}
        for state in outputs:
            if np.prod(states["shape"][state] or [0]):
                key = (states["storage"][state], states["offset"][state])
                places.setdefault(key, []).append(states["index"][state])
        same = next((found for found in places.values() if len(found) > 1), None)
        if same is None or site in told:
            continue
        told.add(site)
        yield _finding(
            run,
            Code.ALIASED,
            [event],
            f"rank {run.cell(event, 'rank')}, {run.what(event)}: outputs "
            f"{names(same).removeprefix('ranks ')} of the list are the same memory, so that all "
            "of them show what was written last",
            ["a list made by [tensor] * n holds one tensor n times; make n tensors"],
        )


def shapes(run: Run) -> Iterator[Finding]:
    """Yield calls that combine tensors of equal size and different shape."""
    told: set[Any] = set()
    if not len(run.trace.states):
        return
    for call in run.all_calls():
        rows = list(call.rows.values())
        if run.cell(rows[0], "collective") not in ("all_reduce", "reduce", "broadcast"):
            continue
        found: dict[tuple[int, ...], list[int]] = {}
        for row in rows:
            shape = run.shape(row)
            if shape is not None:
                found.setdefault(tuple(shape), []).append(row)
        sizes = {int(np.prod(shape)) for shape in found}
        key = tuple(run.cell(row, "site") for row in rows)
        if len(found) < 2 or len(sizes) > 1 or key in told:
            continue
        told.add(key)
        text = "; ".join(
            f"{run.by_place(same)} {'has' if len(same) == 1 else 'have'} {list(shape)}"
            for shape, same in found.items()
        )
        yield _finding(
            run,
            Code.SHAPES,
            rows,
            f"{run.call_name(call)} combines tensors of different shape: {text}",
            ["they are combined in flat order, element by element"],
            harmless=True,
        )


def wrong_results(run: Run) -> Iterator[Finding]:
    """Yield calls that move data and whose outputs are not what the inputs make them.

    Only calls that do not reduce: those must be equal to the bit. What ranks other than the
    destination hold after a reduce is no result, and is never looked at.
    """
    told: set[Any] = set()
    if not len(run.trace.states):
        return
    for count, call in enumerate(run.all_calls()):
        if count >= MOST_CALLS:
            return
        row = next(iter(call.rows.values()))
        key = (run.cell(row, "collective"), run.cell(row, "site"))
        if key in told or not _is_comparable(run, call):
            continue
        wrong = [
            (rank, state, due)
            for rank, state, due in _due(run, call)
            if due is not None
            and run.trace.states["data"][state] not in (None, due)
            and not _has_aliases(run, call.rows[rank])
        ]
        if wrong:
            told.add(key)
            yield _wrong(run, call, wrong)


def _is_comparable(run: Run, call: Call) -> bool:
    rows = call.rows.values()
    return (
        len(call.rows) == len(run.group(call.group).ranks)
        and all(run.is_ok(row) for row in rows)
        and len({(run.cell(row, "collective"), run.cell(row, "dtype")) for row in rows}) == 1
    )


def _due(run: Run, call: Call) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield rank, output state, and the bytes that are due in it, None where they are unknown."""
    ranks = run.group(call.group).ranks
    rows = [call.rows[rank] for rank in ranks]
    kind, root = run.cell(rows[0], "collective"), run.cell(rows[0], "root")
    inputs = [_kept(run, row, When.BEFORE) for row in rows]
    outputs = [run.trace.states_of(row, when=When.AFTER).tolist() for row in rows]
    if kind == "broadcast" and root is not None:
        for rank, states in zip(ranks, outputs):
            for state, due in zip(states, inputs[root]):
                yield rank, state, due
    elif kind in ("all_gather", "gather"):
        whole = _joined([_joined(parts) for parts in inputs])
        for rank, states in zip(ranks, outputs):
            if kind == "all_gather" or rank == ranks[root or 0]:
                yield from _cut(run, rank, states, whole)
    elif kind == "scatter" and root is not None:
        whole = _joined(inputs[root])
        share = None if whole is None else len(whole) // len(ranks)
        for k, (rank, states) in enumerate(zip(ranks, outputs)):
            if whole is None or share is None or len(inputs[root]) not in (1, len(ranks)):
                return
            parts = inputs[root]
            due = parts[k] if len(parts) > 1 else whole[k * share : (k + 1) * share]
            for state in states[:1]:
                yield rank, state, due


def _cut(
    run: Run, rank: int, states: list[int], whole: bytes | None
) -> Iterator[tuple[int, int, bytes | None]]:
    start = 0
    for state in states:
        data = run.trace.states["data"][state]
        if data is None or whole is None:
            return
        yield rank, state, whole[start : start + len(data)]
        start += len(data)


def _kept(run: Run, row: int, when: When) -> list[bytes | None]:
    states = run.trace.states_of(row, when=when, role=Role.INPUT).tolist()
    return [run.trace.states["data"][state] for state in states]


def _joined(parts: list[bytes | None]) -> bytes | None:
    there = [part for part in parts if part is not None]
    return b"".join(there) if there and len(there) == len(parts) else None


def _wrong(run: Run, call: Call, wrong: list[tuple[int, int, bytes]]) -> Finding:
    from ..trace import decode

    rank, state, due = wrong[0]
    row, states = call.rows[rank], run.trace.states
    got = run.trace.values(state)
    expected = decode(due, states["dtype"][state])
    shown = (_numbers(got), _numbers(expected))
    strided = _strided(run, call)
    if strided:
        cause = (
            f"{strided}: gloo takes the first elements of its memory instead of the tensor's own; "
            "pass a contiguous tensor"
        )
    else:
        cause = "the tensor was changed while the call was under way, or the backend is wrong"
    also = sorted({other for other, *_ in wrong} - {rank})
    verb = "holds" if len(also) == 1 else "hold"
    look = [cause, *([f"{names(also)} {verb} a wrong result, too"] if also else [])]
    return _finding(
        run,
        Code.WRONG_RESULT,
        [row],
        f"rank {rank}, {run.what(row)}: the result is {shown[0]}, "
        f"but the inputs make it {shown[1]}",
        look,
    )


def _strided(run: Run, call: Call) -> str | None:
    for rank, row in call.rows.items():
        for state in run.trace.states_of(row).tolist():
            strides = run.trace.states["strides"][state]
            if strides is not None:
                name = run.trace.states["role"][state]
                return f"{name} of rank {rank} is a view with strides {strides}"
    return None


def _has_aliases(run: Run, row: int) -> bool:
    """Return whether outputs lie in the same memory: told as such."""
    states = run.trace.states_of(row, when=When.AFTER).tolist()
    cells = run.trace.states
    places = [(cells["storage"][state], cells["offset"][state]) for state in states]
    return len(set(places)) < len(places)


def _numbers(values: Any, limit: int = 6) -> str:
    if values is None:
        return "unknown"
    flat = np.ravel(values)
    shown = [
        f"{value:.6g}" if isinstance(value, float) else str(value)
        for value in flat[:limit].tolist()
    ]
    return "[" + ", ".join(shown + ["..."] * (len(flat) > limit)) + "]"


def _finding(
    run: Run, code: Code, rows: list[int], text: str, look: list[str], *, harmless: bool = False
) -> Finding:
    row = rows[0]
    return Finding(
        code,
        text,
        tuple(look),
        harmless=harmless,
        ranks=tuple(sorted({run.cell(each, "rank") for each in rows})),
        attempt=run.cell(row, "attempt") or 0,
        group=run.cell(row, "group"),
        coll_seq=run.cell(row, "coll_seq"),
        site=run.cell(row, "site"),
        rows=tuple(rows),
        t_ns=run.cell(row, "t_issue_ns"),
    )
