"""What went wrong in a recorded run: who never came, what does not match, who waits for whom.

    report = check(trace)
    report.ok               # False where there is a problem
    print(report.to_text()) # the verdict, then what to look at

Everything is read from the trace; nothing is run. What other findings explain, such as the
time-outs of ranks that wait for a missing one, is told with its cause and not once more.
"""

from __future__ import annotations

import numpy as np

from ..trace import Trace
from .arrivals import died, group_order, groups_not_made, never_arrived
from .finding import Code, Finding, Report
from .late import late_lines
from .matching import errors, mismatches, split_mismatches
from .pairs import message_findings, not_waited, pair
from .run import Run, names, plural
from .tensors import aliased, shapes, wrong_results
from .waits import deadlocks

__all__ = ["Code", "Finding", "Report", "check"]


def check(trace: Trace, *, late: bool | None = None) -> Report:
    """Check a recorded run: calls across ranks, messages, processes, tensors.

    Args:
        trace: A trace of any provenance; a recording of the user's program tells most.
        late: Whether to tell who came last to each call; None does where no problem was found.

    Example:
        >>> check(Trace.build({})).ok
        True
    """
    run = Run(trace)
    pairs = pair(run)
    circles = list(deadlocks(run, pairs))
    found = [*groups_not_made(run), *group_order(run), *mismatches(run), *split_mismatches(run)]
    found = [*found, *circles, *_not_in(circles, list(never_arrived(run)))]
    circle = {row for finding in circles for row in finding.rows}
    found += [*message_findings(run, pairs, circle), *not_waited(run, pairs)]
    found += [*aliased(run), *shapes(run), *wrong_results(run)]
    found += errors(run, {row for finding in found for row in finding.rows})
    found += died(run, {(f.attempt, rank) for f in found if not f.harmless for rank in f.ranks})
    found += _unexplained(run, found)
    found.sort(key=lambda f: (f.harmless, f.attempt, _follows(f), f.t_ns or 0))
    is_ok = all(finding.harmless for finding in found)
    wants_late = is_ok if late is None else late
    return Report(
        tuple(found),
        _looked_at(run),
        tuple(late_lines(run)) if wants_late else (),
        tuple(trace.meta.notes),
    )


def _not_in(circles: list[Finding], absences: list[Finding]) -> list[Finding]:
    """Return the missing ranks that no circle explains."""
    told = {rank for finding in circles for rank in finding.ranks}
    return [finding for finding in absences if not told.issuperset(finding.ranks)]


def _follows(finding: Finding) -> bool:
    """Return whether a finding is more likely a consequence than a cause."""
    return finding.code in (Code.STUCK, Code.DIED)


def _unexplained(run: Run, found: list[Finding]) -> list[Finding]:
    """Return one finding for what did not end, where nothing tells why."""
    if any(not finding.harmless for finding in found):
        return []
    status = run.events["status"]
    rows = np.flatnonzero(status.where("begun") | status.where("error")).tolist()
    if not rows:
        return []
    first = min(rows, key=lambda row: run.cell(row, "t_issue_ns") or 0)
    ranks = sorted({run.cell(row, "rank") for row in rows if run.cell(row, "rank") is not None})
    look = []
    if run.cell(first, "error"):
        look.append(f"rank {run.cell(first, 'rank')} got: {run.error(first)}")
    look += [
        f"rank {rank}: {ending}"
        for rank in ranks[:8]
        if (ending := run.ending(rank, run.cell(first, "attempt") or 0))
        and "in order" not in ending
    ]
    return [
        Finding(
            Code.STUCK,
            f"{plural(len(rows), 'event')} of {names(ranks) if ranks else 'the run'} did not end "
            f"well, and the recorded calls agree. The first: rank {run.cell(first, 'rank')} in "
            f"{run.what(first)} ({run.took(first)})",
            tuple(look),
            ranks=tuple(ranks),
            attempt=run.cell(first, "attempt") or 0,
            group=run.cell(first, "group"),
            coll_seq=run.cell(first, "coll_seq"),
            site=run.cell(first, "site"),
            rows=tuple(rows[:100]),
            t_ns=run.cell(first, "t_issue_ns"),
        )
    ]


def _looked_at(run: Run) -> str:
    ranks = {rank for rank in run.events["rank"].to_list() if rank is not None}
    n_calls = sum(len(calls) for calls in run.calls.values())
    parts = [plural(n_calls, "collective call")] if n_calls or not len(run.messages) else []
    if len(run.messages):
        parts.append(f"{len(run.messages):,} sends and recvs")
    return f"{' and '.join(parts)} of {plural(len(ranks), 'rank')}"
