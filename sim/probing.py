"""Reading probes back from a trace: did every part go where its collective takes it?

    report = check_probes(open_trace(path), "all_reduce")
    report.ok
    print(report.to_text())

The program made its inputs with `chunkscope.probe`. Calls of the collective are checked by their
outputs; the messages inside them, and those of a collective that the program wrote itself with
sends and recvs, by what they carry: the first wrong one is named with its line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import ChunkscopeError
from ..traces.check.finding import Finding, Report
from ..traces.check.run import Call, Run, plural
from ..traces.schema import Kind
from ..traces.trace import Trace
from .collectives import Collective
from .collectives import collective as named
from .probed_calls import call_findings, probed
from .probed_end import final_findings
from .probed_messages import Messages, misplaced, payloads, wrong_messages


def check_probes(trace: Trace, collective: str, *, root: int | None = None) -> Report:
    """Check what became of the probes that went into a collective.

    Args:
        trace: A recording whose tensors were kept whole.
        collective: The collective, as torch spells it: calls of that name are checked, and sends
            and recvs outside of any call as one collective of that kind.
        root: Group rank of the root, for sends and recvs of the program's own.

    Raises:
        ScheduleError: There is no such collective.
        ChunkscopeError: Nothing in the trace carries a probe.
    """
    kind = named(collective)
    run = Run(trace)
    found: list[Finding] = []
    notes: list[str] = []
    n_calls = n_plain = n_messages = 0
    for call in run.all_calls():
        if {run.cell(row, "collective") for row in call.rows.values()} != {kind.name}:
            continue
        given = probed(run, call, kind)
        if given is None:
            n_plain += 1
            continue
        n_calls += 1
        found += [*_inside(run, call, kind), *call_findings(run, call, kind, given)]
    for messages in _own(run, kind):
        n_messages += len(messages.payloads)
        # What comes after a wrong message is wrong because of it.
        on_the_way = [*wrong_messages(messages), *misplaced(messages)]
        found += on_the_way or final_findings(messages, root)
        if kind.rooted and root is None:
            notes.append(
                f"what each rank ends with{run.of_group(messages.group)} is not judged: give the "
                "group rank of the root (--root)"
            )
    if not n_calls and not n_messages:
        raise ChunkscopeError(
            f"no {collective} call and no message of the trace carries a probe: make the inputs "
            "with chunkscope.probe(rank, world_size, shape), and record with --state full"
        )
    if n_plain:
        notes.append(f"{plural(n_plain, f'{collective} call')} without probes left out")
    found.sort(key=lambda finding: (finding.attempt, finding.t_ns or 0))
    parts = [plural(n_calls, f"{collective} call")] if n_calls else []
    if n_messages:
        parts.append(f"{n_messages:,} sends and recvs")
    return Report(tuple(found), f"the probes of {' and '.join(parts)}", (), tuple(notes))


def _inside(run: Run, call: Call, kind: Collective) -> Iterator[Finding]:
    """Yield the first wrong message inside a recorded call, as executed or on the wire."""
    events = run.events
    rows = np.flatnonzero(
        (events["kind"].where(Kind.SEND) | events["kind"].where(Kind.RECV))
        & events["attempt"].where(call.attempt)
        & events["group"].where(call.group)
        & events["coll_seq"].where(call.coll_seq)
    )
    if not len(rows):
        return
    dtype = run.cell(next(iter(call.rows.values())), "dtype")
    messages = Messages.read(run, kind, call.attempt, call.group, payloads(run, rows, dtype))
    if messages is not None:
        yield from wrong_messages(messages)


def _own(run: Run, kind: Collective) -> Iterator[Messages]:
    """Yield the messages of the program's own that carry probes, group by group."""
    keys: dict[tuple[Any, Any], list[int]] = {}
    for row in run.messages.tolist():
        if run.cell(row, "group") is not None:
            key = (run.cell(row, "attempt"), run.cell(row, "group"))
            keys.setdefault(key, []).append(row)
    for (attempt, group), rows in keys.items():
        messages = Messages.read(run, kind, attempt or 0, group, payloads(run, rows))
        if messages is not None:
            yield messages
