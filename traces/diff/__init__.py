"""Comparing two traces, or two schedules.

    found = diff(simulated, recorded)
    found.same                  # True where both moved the same data the same way
    print(found)                # the first divergence in causal order, and what it means

One provenance a side is compared, by keys and never by time, so that two runs that differ only in
the interleaving of independent events are equal. A is what was expected, B what was found.
"""

from __future__ import annotations

from ..trace import Trace
from .describe import Describer
from .find import Finder
from .report import Difference, TraceDiff, What
from .schedules import HasText, diff_schedules
from .select import Level, Side, select, world_size
from .states import Tolerance, Values


def diff(
    a: Trace | HasText,
    b: Trace | HasText,
    *,
    values: Values | str = Values.EXACT,
    times: bool = False,
    level: Level | str | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    limit: int = 1000,
) -> TraceDiff:
    """Compare two traces, or two schedules.

    Args:
        a: What was expected.
        b: What was found.
        values: "exact" compares values bit by bit; "close" within a tolerance for the dtype;
            "ignore" not at all.
        times: Whether times, counted from the start of each trace, are compared as well.
        level: "collective" compares calls alone, "message" also what happened inside them; None
            takes the deepest that both sides have.
        rtol: Relative tolerance for "close", in place of the dtype's.
        atol: Absolute tolerance for "close", in place of the dtype's.
        limit: How many differences are described; all are counted.

    Raises:
        TypeError: One is a trace and the other a schedule.
        ValueError: `values` or `level` is none of those above.

    Example:
        >>> a = Trace.build({"kind": ["send"], "provenance": ["executed"], "slot": [3]})
        >>> b = Trace.build({"kind": ["send"], "provenance": ["executed"], "slot": [4]})
        >>> diff(a, b).first.column
        'slot'
    """
    if not isinstance(a, Trace) and not isinstance(b, Trace):
        return diff_schedules(a, b, limit)
    if not isinstance(a, Trace) or not isinstance(b, Trace):
        raise TypeError("a trace can be compared with a trace, a schedule with a schedule")
    chosen = Level(level) if level is not None else None
    sizes = world_size(a), world_size(b)
    side_a, side_b, _, notes = select(a, b, chosen)
    if None not in sizes and sizes[0] != sizes[1]:
        return _other_job(side_a, side_b, sizes)
    found = Finder(side_a, side_b, Values(values), Tolerance(rtol, atol), times)
    return TraceDiff(
        a=_summary(side_a),
        b=_summary(side_b),
        differences=tuple(Describer(found).first(limit)),
        total=sum(len(batch.row_a) for batch in found.batches),
        compared=f"{_count(found.n_events, 'event')} and {_count(found.n_states, 'state')}",
        notes=tuple(dict.fromkeys([*notes, *found.notes])),
    )


def _other_job(a: Side, b: Side, sizes: tuple[int | None, int | None]) -> TraceDiff:
    text = (
        f"world size is {sizes[1]}, expected {sizes[0]}: the traces are of jobs of different "
        "size, and nothing else was compared"
    )
    found = Difference(What.WORLD_SIZE, text, sizes[0], sizes[1])
    return TraceDiff(_summary(a), _summary(b), (found,), 1, "the world sizes")


def _summary(side: Side) -> str:
    n_calls = len(side.trace.calls())
    size = world_size(side.trace)
    parts = [side.provenance.value if side.provenance is not None else "no events"]
    if size is not None:
        parts.append(_count(size, "rank"))
    parts += [_count(n_calls, "call"), _count(len(side.trace), "event")]
    return ", ".join(parts + [note for note in side.trace.meta.notes if "cut" in note])


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
