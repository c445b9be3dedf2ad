"""Which transfers decided how long a replay took."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .compiled import kernel, run
from .engine import Work
from .order import WaitGraph, wait_graph

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def critical_path(
    work: Work, start_ns: Floats, arrived_ns: Floats, written_ns: Floats
) -> tuple[int, ...]:
    """Return the rows that decided the last write, one a message: each waited for the one before.

    Args:
        work: What was done.
        start_ns, arrived_ns, written_ns: When, (rows,) each.
    """
    schedule = work.schedule
    graph = wait_graph(schedule, work.policy)
    first_row, of_row = schedule.messages.first_row, schedule.messages.of_row
    starts, tails = _predecessors(graph)
    times = np.zeros(graph.n_nodes)
    known = np.concatenate([start_ns[first_row], arrived_ns[first_row], written_ns])
    times[: len(known)] = known
    run(_enter, len(schedule))(starts, tails, times, len(known))
    earliest = np.zeros(graph.n_nodes)
    n, program = len(first_row), work.program
    if len(program.ready_ns):
        earliest[:n] = program.ready_ns
        earliest[2 * n : 2 * n + len(schedule)] = program.late_ns
    node = 2 * n + int(np.argmax(written_ns))
    rows: list[int] = []
    while True:
        row = graph.row_of(node)
        if row is not None and (not rows or of_row[rows[-1]] != of_row[row]):
            rows.append(row)
        before = tails[starts[node] : starts[node + 1]]
        if not len(before) or times[before].max() < earliest[node]:
            return tuple(reversed(rows))
        node = int(before[np.argmax(times[before])])


def _predecessors(graph: WaitGraph) -> tuple[Ints, Ints]:
    """Return the tails sorted by head, and where those of each node start, (nodes + 1,)."""
    order = np.argsort(graph.head, kind="stable")
    counts = np.bincount(graph.head, minlength=graph.n_nodes)
    return np.concatenate([[0], np.cumsum(counts)]), graph.tail[order]


@kernel
def _enter(starts: Ints, tails: Ints, times: Floats, first: int) -> None:
    """Fill in when places enter their steps: nodes from `first` on, each after those before it."""
    for node in range(first, len(times)):
        for k in range(starts[node], starts[node + 1]):
            times[node] = max(times[node], times[tails[k]])
