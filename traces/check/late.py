"""Who came last to the collective calls, and by how much."""

from __future__ import annotations

from dataclasses import dataclass

from ...units import format_ns
from .arrivals import is_whole, issue_times
from .run import Call, Run, plural

# Calls that are named one by one.
NAMED = 3


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late one rank came.

    Attributes:
        rank: Global rank.
        last: Calls to which it came last.
        late_ns: Time that it alone cost: from the rank before it, summed over those calls.
    """

    rank: int
    last: int
    late_ns: int


def lateness(run: Run) -> tuple[list[Lateness], list[tuple[int, Call, int]]]:
    """Return how late each rank came, the latest first, and its calls: (late_ns, call, rank).

    A call counts where all ranks of its group are known to have made it. Times within the bound of
    the clocks' error tell nothing and are left out.
    """
    error = {clock.file: clock.error_ns for clock in run.trace.meta.clocks}
    bound = sum(sorted(error.values())[-2:])
    ranks: dict[int, list[int]] = {}
    calls = []
    for call in run.all_calls():
        if len(call.rows) < 2 or not is_whole(run, call):
            continue
        order, times = issue_times(run, call)
        if len(order) < 2:
            continue
        late = int(times[-1] - times[-2])
        if late > bound:
            ranks.setdefault(order[-1], []).append(late)
            calls.append((late, call, order[-1]))
    table = [Lateness(rank, len(found), sum(found)) for rank, found in ranks.items()]
    calls.sort(key=lambda item: -item[0])
    return sorted(table, key=lambda item: -item.late_ns), calls


def late_lines(run: Run, most: int = 8) -> list[str]:
    """Return lines about who came last; empty where no call can tell.

    Args:
        run: The run.
        most: Ranks that are listed.
    """
    table, calls = lateness(run)
    if not table:
        return []
    if len(calls) == 1:
        late, call, rank = calls[0]
        place = run.place(call.rows[rank])
        return [
            f"rank {rank} came last to {run.call_name(call)}{place}, {format_ns(late)} after the "
            "rank before it."
        ]
    lines = [
        f"Who came last to {len(calls):,} collective calls, and how long after the rank before it:"
    ]
    for item in table[:most]:
        each = format_ns(item.late_ns / item.last)
        lines.append(
            f"  rank {item.rank}: last {plural(item.last, 'time')}, "
            f"{format_ns(item.late_ns)} in all, {each} a time"
        )
    lines.append("The longest waits for one rank:")
    for late, call, rank in calls[:NAMED]:
        row = call.rows[rank]
        lines.append(
            f"  rank {rank} came to {run.call_name(call)}{run.place(row)} {format_ns(late)} late"
        )
    return lines
