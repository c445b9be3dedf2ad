"""What a person names on a command line: a trace, a schedule, or a spec of one to simulate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..errors import ChunkscopeError, ScheduleError, TraceFormatError
from ..traces.files import read
from ..traces.trace import Trace
from .collectives import COLLECTIVES
from .contributors import derive_contributors
from .library import resolve
from .schedule import Schedule
from .spec import parse_spec
from .text import looks_like_schedule, parse
from .wire import annotate


def load(text: str) -> Trace | Schedule:
    """Return the trace or schedule that a path or a spec names.

    Args:
        text: Path of a trace or of a schedule's text file, or a spec such as ``all_reduce:ring:4``,
            which is simulated.

    Raises:
        TraceFormatError: The path does not exist or is no trace.
        ScheduleError: The spec or the schedule is wrong.
    """
    schedule = _schedule_file(text)
    return load_trace(text) if schedule is None else schedule


def load_trace(text: str, *, topology: str | None = None) -> Trace:
    """Return the trace that a path names, or simulate a spec or a schedule's text file.

    Args:
        text: As in `load`.
        topology: Topology to simulate on, for a spec.

    Example:
        >>> len(load_trace("broadcast:chain:2").calls())
        1
    """
    if not Path(text).exists() and text.split(":")[0] in COLLECTIVES:
        return replace(parse_spec(text), topology=topology).trace()
    schedule = _schedule_file(text)
    if schedule is not None:
        spec = parse_spec(f"{schedule.collective}:{text}:{schedule.group_size}")
        return replace(spec, topology=topology, root=schedule.root).trace()
    if not Path(text).exists():
        raise TraceFormatError(
            "no such file or folder, and no spec such as all_reduce:ring:4", file=text
        )
    return open_trace(Path(text))


def open_trace(path: Path) -> Trace:
    """Return the trace in a file or folder, with what its rows tell when put together.

    Messages that a tap saw are joined to calls (`wire.annotate`); contributors are derived.

    Raises:
        TraceFormatError: It is no trace.
    """
    return derive_contributors(annotate(read(path)))


def load_schedule(text: str, *, ranks: int = 4, root: int | None = None) -> Schedule:
    """Return the schedule that a text file, a spec or ``file.py:function`` names.

    Args:
        text: What names it.
        ranks: Group size, where `text` names none.
        root: Root, where the collective has one.

    Raises:
        ScheduleError: Nothing of that name can be built.
    """
    schedule = _schedule_file(text)
    if schedule is not None:
        return schedule
    if text.split(":")[0] in COLLECTIVES:
        spec = parse_spec(text)
        size = spec.ranks if text.rsplit(":", 1)[-1].isdigit() else ranks
        return replace(spec, ranks=size, root=root).schedule()
    if ":" not in text:
        raise ScheduleError(
            f"{text!r} is no schedule file, no COLLECTIVE:ALGORITHM and no FILE.py:FUNCTION"
        )
    return resolve(None, text, ranks, root=root)


def _schedule_file(text: str) -> Schedule | None:
    """Return the schedule in a text file, or None where the path holds something else."""
    path = Path(text)
    if not path.is_file():
        return None
    try:
        with path.open(encoding="utf-8") as file:
            head = file.read(64)
    except (OSError, UnicodeDecodeError):
        return None
    if not looks_like_schedule(head):
        return None
    try:
        return parse(path.read_text(encoding="utf-8"), file=text)
    except UnicodeDecodeError as error:
        raise ChunkscopeError(f"{text}: is no UTF-8 text: {error}") from None
