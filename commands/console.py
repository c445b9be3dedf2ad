"""What the commands share on the terminal: errors, sizes, names for output, summaries, tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..errors import ChunkscopeError
from ..units import parse_bytes

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Seconds that somebody waits without wondering.
_PATIENCE_S = 2.0


class Commands(click.Group):
    """A group that turns errors into one line on stderr and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; the library's errors and the system's become exit code 2."""
        try:
            return super().invoke(ctx)
        except ChunkscopeError as error:
            fail(str(error))
        except BrokenPipeError:
            raise  # the reader, such as head, has enough: click ends quietly
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            fail(f"{where}{error.strerror or error}")

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which a newcomer meets them."""
        return list(self.commands)


def fail(message: str) -> NoReturn:
    """Print an error and exit with 2."""
    click.echo(f"chunkscope: {message}", err=True)
    sys.exit(2)


def parse_size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return the bytes in an option's text, such as 64MiB; a click callback."""
    try:
        return None if value is None else parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def unused(path: Path) -> Path:
    """Return the path, or the first of path-2, path-3, ... that does not exist."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return candidate


def print_lines(*lines: str, err: bool = False) -> None:
    """Print some lines."""
    for line in lines:
        click.echo(line, err=err)


def print_summary(what: str, result: str, path: Path, following: str, *, err: bool = False) -> None:
    """Print what was made in a few lines, and the command to try next."""
    print_lines(what, result, f"Wrote {path}", f"Next: {following}", err=err)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr while something takes longer than two seconds, on a terminal only.

    Yields a function of how much is done and how much there is; until it is called, the bar only
    shows that time passes.
    """
    from threading import Timer

    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    bar = _Bar(what)
    timer = Timer(_PATIENCE_S, bar.show)
    timer.daemon = True
    timer.start()
    try:
        yield bar.update
    finally:
        timer.cancel()
        bar.stop()


class _Bar:
    """A bar of rich's, which is loaded and shown when it turns out to be needed."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = Lock()
        self._now: tuple[int, int] | None = None
        self._shown: tuple[Progress, TaskID] | None = None
        self._stopped = False

    def show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        with self._lock:
            if self._stopped:
                return
            self._shown = bar, bar.add_task(self._what, total=None)
            bar.start()
        if self._now is not None:
            self.update(*self._now)

    def update(self, done: int, total: int) -> None:
        self._now = done, total
        if self._shown is not None:
            bar, task = self._shown
            bar.update(task, completed=done, total=total)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._shown is not None:
                self._shown[0].stop()


def print_table(header: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table without its empty columns."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    used = [k for k in range(len(header)) if any(row[k] for row in rows)] or [0]
    for k in used:
        table.add_column(header[k], overflow="fold")
    for row in rows:
        table.add_row(*(row[k] for k in used))
    width = None if sys.stdout.isatty() else max(120, int(os.environ.get("COLUMNS", "0") or 0))
    Console(width=width, highlight=False, markup=False).print(table)
