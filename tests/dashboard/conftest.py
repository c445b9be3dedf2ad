"""Traces that the pictures are tested with: simulated ones, and bare calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from chunkscope.sim.library import build
from chunkscope.sim.replay import simulate
from chunkscope.sim.topology import parse
from chunkscope.sim.values import default_inputs
from chunkscope.traces.trace import Group, Meta, Site, Trace, encode


def _simulated(
    collective: str = "all_reduce",
    algorithm: str = "ring",
    n: int = 4,
    *,
    count: int | None = None,
    root: int | None = None,
    values: bool = True,
    topology: str = "ring:100GB/s,1us",
    op: str = "SUM",
) -> Trace:
    rooted = {} if root is None else {"root": root}
    bound = build(collective, algorithm, n, **rooted).bind(count or 4 * n, "float32")
    replay = simulate(bound, parse(topology, n))
    return replay.trace(default_inputs(bound), op=op) if values else replay.trace()


def _called(
    collective: str,
    inputs: Sequence[Sequence[float] | None],
    outputs: Sequence[Sequence[float] | None],
    *,
    op: str | None = None,
    root: int | None = None,
    line: str = "dist.all_reduce(tensor)",
    missing: Sequence[int] = (),
    open_ranks: Sequence[int] = (),
) -> Trace:
    """Return the trace of one call of which only the ends were seen."""
    events: list[dict[str, Any]] = []
    states: list[dict[str, Any]] = []
    for rank in range(len(inputs)):
        if rank in missing:
            continue
        over = rank not in open_ranks
        row = len(events)
        events.append(
            {
                "file": f"host-{rank}", "seq": 0, "kind": "collective", "provenance": "called",
                "api": collective, "collective": collective, "rank": rank, "group": 0,
                "group_rank": rank, "coll_seq": 0, "reduce_op": op, "root": root,
                "dtype": "float32", "t_issue_ns": 1000 * rank, "t_start_ns": 1000 * rank,
                "t_end_ns": 380_000 if over else None, "status": "ok" if over else "begun",
                "site": 0,
            }
        )  # fmt: skip
        tensors = [("before", "input", inputs[rank])]
        if over:
            tensors.append(("after", "output", outputs[rank]))
        for when, role, held in tensors:
            if held is not None:
                states.append(
                    {
                        "event": row, "when": when, "role": role, "index": 0, "dtype": "float32",
                        "shape": [len(held)], "data": encode(held, "float32"),
                    }
                )  # fmt: skip
    columns = {name: [event[name] for event in events] for name in events[0]}
    cells = {name: [state[name] for state in states] for name in states[0]} if states else {}
    meta = Meta(
        world_size=len(inputs),
        groups=(Group(tuple(range(len(inputs))), 0, "", "gloo"),),
        sites=(Site("/home/me/lesson.py", 14, "main", (f"    {line}",), 14),),
    )
    return Trace.build(columns, cells, meta)


@pytest.fixture(scope="session")
def simulated() -> Callable[..., Trace]:
    """Return a function that simulates a collective."""
    return _simulated


@pytest.fixture(scope="session")
def called() -> Callable[..., Trace]:
    """Return a function that makes the trace of a bare call."""
    return _called
