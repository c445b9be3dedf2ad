"""The errors of chunkscope: one root, and a class for each kind of input that can be wrong."""

from __future__ import annotations


class ChunkscopeError(Exception):
    """Root of every error that chunkscope raises on purpose."""


class ScheduleError(ChunkscopeError, ValueError):
    """A schedule, an algorithm's name or its arguments are wrong.

    Args:
        message: What is wrong, what was found, what was expected.
        code: Short name of the rule that was broken, such as ``"RACE"``; None for plain bad input.
        place: Place (rank or helper) where it shows.
        step: Step at which it shows.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        place: int | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.place = place
        self.step = step


class TopologyError(ChunkscopeError, ValueError):
    """A topology cannot be read, built or routed on."""


class TraceFormatError(ChunkscopeError, ValueError):
    """A file is no trace, or a damaged, newer or hostile one.

    Args:
        message: What was found and what was expected.
        file: Path of the file, as the user named it.
        line: Line number from 1, where lines exist.
        field: Path to the field, such as ``"$.events[3].kind"``.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
    ) -> None:
        where = ":".join(str(part) for part in (file, line) if part is not None)
        parts = [part for part in (where, field, message) if part]
        super().__init__(": ".join(parts))
        self.file = file
        self.line = line
        self.field = field


class TraceMismatch(ChunkscopeError, AssertionError):
    """Two traces that should be equal differ."""


class RecorderError(ChunkscopeError, RuntimeError):
    """A recording cannot be started where or how it was asked for."""


class MissingExtra(ChunkscopeError, ImportError):
    """A feature needs an optional package; the message names the pip line.

    Example:
        >>> str(MissingExtra("Parquet files", "parquet", "pyarrow"))
        "Parquet files need pyarrow: pip install 'chunkscope[parquet]'"
    """

    def __init__(self, what: str, extra: str, package: str) -> None:
        super().__init__(f"{what} need {package}: pip install 'chunkscope[{extra}]'")
        self.extra = extra


class RanksError(ChunkscopeError, RuntimeError):
    """A rank of `Ranks` raised, died or did not return in time.

    Args:
        message: What each rank did, with tracebacks and where the stuck ones stood.
        failed: Ranks that raised or died.
        stuck: Ranks that had not returned when the time was over.
    """

    def __init__(
        self, message: str, *, failed: tuple[int, ...] = (), stuck: tuple[int, ...] = ()
    ) -> None:
        super().__init__(message)
        self.failed = failed
        self.stuck = stuck
