"""A check of a whole recording: the run, and the messages inside native gloo where it has them.

report = check_recording(chunkscope.read("chunkscope-out/run"))
print(report.to_text())
"""

from __future__ import annotations

from dataclasses import replace

from ..traces.check import Code, Finding, Report, check
from ..traces.schema import Provenance
from ..traces.trace import Trace


def check_recording(trace: Trace, *, late: bool | None = None) -> Report:
    """Check a recorded run, and whether what went over the wire is what gloo's schedules say.

    Args:
        trace: The recording.
        late: See `traces.check.check`.

    Example:
        >>> check_recording(Trace.build({})).ok
        True
    """
    report = check(trace, late=late)
    if not report.ok or not trace.events["provenance"].where(Provenance.WIRE).any():
        return report  # the messages of a call that failed are not those of its schedule
    from .wire import compare

    found = compare(trace)
    if found.same:
        note = f"the messages inside native gloo are those of its schedules ({found.compared})"
        return replace(report, notes=(*report.notes, note))
    first = found.first
    wire = Finding(
        Code.WIRE,
        f"the messages inside native gloo are not those of its schedules: {first}",
        ("chunkscope diff --plan lists all differences",),
        harmless=True,
        ranks=() if first is None or first.rank is None else (first.rank,),
        coll_seq=None if first is None else first.coll_seq,
    )
    return replace(report, findings=(*report.findings, wire))
