"""Who never came: to a collective call, to init_process_group, to new_group."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...units import format_ns
from ..schema import Kind
from .finding import Code, Finding
from .run import Call, Run, names, plural


def never_arrived(run: Run) -> Iterator[Finding]:
    """Yield, for each group, the first call that some of its ranks did not make.

    Ranks count their calls without gaps, so that a rank is missing only where it made fewer calls
    than others; calls that a bounded recording dropped are not missed.
    """
    for (attempt, group), calls in run.calls.items():
        reached: dict[int, int] = dict.fromkeys(run.group(group).ranks, -1)
        for call in calls:
            for rank in call.rows:
                reached[rank] = call.coll_seq
        least = min(reached.values())
        beyond = [call for call in calls if call.coll_seq > least]
        if not beyond:
            continue
        first = beyond[0]
        absent = [rank for rank, seq in reached.items() if seq < first.coll_seq]
        yield _absent(run, first, absent, attempt)


def _absent(run: Run, call: Call, absent: list[int], attempt: int) -> Finding:
    """Return the finding for ranks that did not make a call which others made."""
    rows = list(call.rows.values())
    stuck = [row for row in rows if not run.is_ok(row)]
    name, who = run.call_name(call), names(absent)
    look = [_where_is(run, rank, attempt, stuck or rows) for rank in absent[:8]]
    if not stuck:
        message = (
            f"{who} did not make {name}, which {run.by_place(rows)} ended in order: "
            "not recorded there, or nobody needed to wait for it"
        )
    else:
        message = f"{who} never arrived: {run.wait_in(stuck, name)}"
        look += run.errors(stuck)
    return Finding(
        Code.NEVER_ARRIVED,
        message,
        tuple(look),
        harmless=not stuck,
        ranks=tuple(absent),
        attempt=attempt,
        group=call.group,
        coll_seq=call.coll_seq,
        site=run.cell((stuck or rows)[0], "site"),
        rows=tuple(stuck or rows),
        t_ns=_first_issue(run, rows),
    )


def _where_is(run: Run, rank: int, attempt: int, waiting: list[int]) -> str:
    """Return what a rank that did not come did last."""
    if not run.has_file(rank, attempt):
        return (
            f"rank {rank} left no recording: its process called nothing of torch.distributed, "
            "did not start, or its file is missing"
        )
    last, ending = run.last_row(rank, attempt), run.ending(rank, attempt)
    how = "" if ending is None else f"; {ending}"
    if last is None:
        return f"rank {rank} made no call at all{how}"
    if run.cell(last, "t_end_ns") is None:
        return f"rank {rank} is in {run.what(last)}, {run.took(last)}{how}"
    came = _first_issue(run, waiting)
    ended = run.cell(last, "t_end_ns")
    ago = ""
    if came is not None and came > ended:
        ago = f", which ended {format_ns(came - ended)} before the others came"
    failed = "" if run.is_ok(last) else f" and failed ({run.error(last, 80)})"
    return f"rank {rank} last called {run.what(last)}{ago}{failed}{how}"


def _first_issue(run: Run, rows: list[int]) -> int | None:
    times = [run.cell(row, "t_issue_ns") for row in rows]
    return min((time for time in times if time is not None), default=None)


# Groups


def groups_not_made(run: Run) -> Iterator[Finding]:
    """Yield the init_process_group and new_group calls in which ranks wait for others."""
    rows = run.trace.where(kind=Kind.GROUP).tolist()
    makers = [row for row in rows if run.cell(row, "collective") != "destroy_process_group"]
    pending: dict[tuple[int, str, int | None], list[int]] = {}
    for row in makers:
        if not run.is_ok(row):
            key = (
                run.cell(row, "attempt") or 0,
                run.cell(row, "collective") or "",
                run.cell(row, "group"),
            )
            pending.setdefault(key, []).append(row)
    for (attempt, what, group), stuck in pending.items():
        if any(run.raised(row) for row in stuck) or group is None:
            continue  # told as an error
        same = [
            row
            for row in makers
            if run.cell(row, "group") == group and run.cell(row, "collective") == what
        ]
        came = {run.cell(row, "rank") for row in same}
        # Every rank of the job makes every group, its members or not.
        due = range(run.trace.meta.world_size or 0)
        absent = sorted(set(due if what == "new_group" else run.group(group).ranks) - came)
        yield _group_finding(run, what, group, attempt, stuck, absent)


def _group_finding(
    run: Run, what: str, group: int, attempt: int, stuck: list[int], absent: list[int]
) -> Finding:
    asked = f"{what} of {plural(len(run.group(group).ranks), 'rank')}"
    if what == "new_group":
        asked = f"new_group of {names(run.group(group).ranks)}"
    lead = f"{names(absent)} never arrived: " if absent else ""
    look = [_where_is(run, rank, attempt, stuck) for rank in absent[:8]] + run.errors(stuck)
    return Finding(
        Code.NEVER_ARRIVED if absent else Code.STUCK,
        f"{lead}{run.wait_in(stuck, asked)}",
        tuple(look),
        ranks=tuple(absent),
        attempt=attempt,
        group=group,
        site=run.cell(stuck[0], "site"),
        rows=tuple(stuck),
        t_ns=_first_issue(run, stuck),
    )


def group_order(run: Run) -> Iterator[Finding]:
    """Yield ranks that make their groups in another order than others."""
    made: dict[tuple[int, int], list[int]] = {}
    for row in run.trace.where(kind=Kind.GROUP, collective="new_group").tolist():
        rank = run.cell(row, "rank")
        if rank is not None and run.cell(row, "group") is not None:
            made.setdefault((run.cell(row, "attempt") or 0, rank), []).append(row)
    for attempt in sorted({key[0] for key in made}):
        ranks = sorted(rank for at, rank in made if at == attempt)
        first = made[attempt, ranks[0]]
        for rank in ranks[1:]:
            mine = made[attempt, rank]
            asked = [
                [run.group(run.cell(r, "group")).ranks for r in rows] for rows in (first, mine)
            ]
            k = next((k for k, (a, b) in enumerate(zip(*asked)) if a != b), None)
            if k is None:
                continue
            pair = (first[k], mine[k])
            texts = [
                f"rank {run.cell(row, 'rank')} makes the group of "
                f"{names(run.group(run.cell(row, 'group')).ranks)}{run.place(row)}"
                for row in pair
            ]
            is_ok = all(run.is_ok(row) for row in (*first, *mine))
            yield Finding(
                Code.GROUP_ORDER,
                f"ranks make their groups in different orders: as number {k + 1}, "
                f"{texts[0]}, but {texts[1]}",
                ("every rank must call new_group for every group, in the same order",),
                harmless=is_ok,
                ranks=(rank,),
                attempt=attempt,
                site=run.cell(mine[k], "site"),
                rows=pair,
                t_ns=_first_issue(run, list(pair)),
            )
            break


def died(run: Run, told: set[tuple[int, int]]) -> Iterator[Finding]:
    """Yield processes that were killed or ended inside a call.

    Where there is another problem, a process that was stopped after its calls was stopped because
    of it: a launcher ends all ranks when one has failed.

    Args:
        run: The run.
        told: (attempt, rank) that other findings name already; empty where there are none.
    """
    for process in run.trace.meta.processes:
        rank = process.rank
        if rank is None or (process.attempt, rank) in told:
            continue
        last = run.last_row(rank, process.attempt)
        inside = last is not None and run.cell(last, "status") == "begun"
        if process.signal is None and (process.closed or not inside):
            continue
        if told and not inside and not run.crashed(rank, process.attempt):
            continue
        ending = run.ending(rank, process.attempt) or ""
        place = ""
        if last is not None:
            place = f" inside {run.what(last)}" if inside else f" after {run.what(last)}"
        yield Finding(
            Code.DIED,
            f"rank {rank}{place}: {ending}",
            ranks=(rank,),
            attempt=process.attempt,
            site=None if last is None else run.cell(last, "site"),
            rows=() if last is None else (last,),
            t_ns=process.last_ns,
        )


def is_whole(run: Run, call: Call) -> bool:
    """Return whether all ranks of the group made a call."""
    return len(call.rows) == len(run.group(call.group).ranks)


def issue_times(run: Run, call: Call) -> tuple[list[int], np.ndarray]:
    """Return the ranks of a call and when each issued it, in order of time."""
    issued = run.events["t_issue_ns"]
    rows = [row for row in call.rows.values() if issued.valid[row]]
    times = issued.values[rows]
    order = np.argsort(times, kind="stable")
    ranks = [run.cell(rows[k], "rank") for k in order]
    return ranks, times[order]
