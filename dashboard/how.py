"""How could this be done? A recorded call's inputs, put through an algorithm of the library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ScheduleError, TopologyError
from ..sim.bind import BoundSchedule
from ..sim.library import algorithms, build
from ..sim.replay import Replay, simulate
from ..sim.topology import parse as parse_topology
from ..traces.schema import DTYPES, Kind, Role, When
from ..traces.trace import Trace

TOPOLOGY = "fully:10GB/s,5us"


@dataclass(frozen=True, slots=True)
class Way:
    """An algorithm that does what a call did.

    Attributes:
        algorithm: Its name.
        doc: What it is, in one line.
        steps, messages: How many it takes.
        time_ns: Simulated time on `TOPOLOGY`.
    """

    algorithm: str
    doc: str
    steps: int
    messages: int
    time_ns: int


def ways(trace: Trace, call: int) -> list[Way]:
    """Return the algorithms that could have done a call, the fastest first.

    Args:
        trace: What was recorded.
        call: Index into `trace.calls()`.
    """
    found = []
    for entry in algorithms(trace.calls()[call].collective):
        try:
            replay = _replay(trace, call, entry.name)
        except (ScheduleError, TopologyError):
            continue  # it does not fit this group size or these elements, or needs a switch
        schedule = replay.schedule
        sent = (
            schedule.src[schedule.messages.first_row] != schedule.dst[schedule.messages.first_row]
        )
        found.append(
            Way(entry.name, entry.doc, schedule.n_steps, int(sent.sum()), replay.duration_ns)
        )
    return sorted(found, key=lambda way: way.time_ns)


def could_be(trace: Trace, call: int, algorithm: str) -> Trace:
    """Return a simulated trace that does a call's work, with its own inputs where recorded.

    Args:
        trace: What was recorded.
        call: Index into `trace.calls()`.
        algorithm: Name of an algorithm of the library; nothing else, since it comes from a page.

    Raises:
        ScheduleError: The call or algorithm is unknown, or the one does not fit the other.
    """
    if not 0 <= call < len(trace.calls()):
        raise ScheduleError(f"call {call} of {len(trace.calls())}: there is no such call")
    replay = _replay(trace, call, algorithm)
    rows = _rows(trace, call)
    op = trace.events["reduce_op"][rows[0]] or "SUM"
    inputs: Any = _inputs(trace, rows, replay.bound)
    return replay.trace(inputs=inputs, op=op)


def _replay(trace: Trace, call: int, algorithm: str) -> Replay:
    rows = _rows(trace, call)
    events = trace.events
    first = rows[0]
    group = trace.meta.groups[events["group"][first] or 0] if trace.meta.groups else None
    n = len(group.ranks) if group else len(rows)
    collective = trace.calls()[call].collective
    schedule = build(collective, algorithm, n, root=events["root"][first])
    dtype = events["dtype"][first] or "float32"
    bound = schedule.bind((events["size_bytes"][first] or 0) // DTYPES[dtype], dtype)
    return simulate(bound, parse_topology(TOPOLOGY, n))


def _rows(trace: Trace, call: int) -> list[int]:
    """Return the collective rows of a call, in the order of their group ranks."""
    wanted = trace.calls()[call]
    rows = [
        int(row) for row in trace.where(kind=Kind.COLLECTIVE) if trace.call_of(int(row)) == wanted
    ]
    return sorted(rows, key=lambda row: trace.events["group_rank"][row] or 0)


def _inputs(
    trace: Trace, rows: list[int], bound: BoundSchedule
) -> list[npt.NDArray[Any] | None] | None:
    """Return each rank's input (None: it has none), or None where one was not recorded whole."""
    inputs: list[npt.NDArray[Any] | None] = []
    for place, row in enumerate(rows):
        if bound.input_elements(place) == 0:
            inputs.append(None)
            continue
        states = trace.states_of(row, when=When.BEFORE, role=Role.INPUT)
        values = [trace.values(int(state)) for state in states]
        known = [value.reshape(-1) for value in values if value is not None]
        flat = np.concatenate(known) if known else np.zeros(0)
        if len(known) != len(states) or len(flat) != bound.input_elements(place):
            return None
        inputs.append(flat)
    return inputs if len(inputs) == bound.schedule.group_size else None
