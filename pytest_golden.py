"""Golden files of the pytest plugin: what a test compares with, and what a failure says.

Loaded when a test first asks for a golden, so that a run without any loads neither this nor numpy.
"""

from __future__ import annotations

import html
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from .errors import ChunkscopeError
from .traces.atomic import replacing
from .traces.diff import diff
from .traces.diff.align import align
from .traces.golden import FIRST_LINE, to_text
from .traces.golden_parse import parse
from .traces.schema import Kind, Provenance
from .traces.trace import Trace

_CONTEXT_LINES = 3
_CHANGED_LINES = 16
_WIDTH = 200
UPDATE = "--chunkscope-update"


class HasText(Protocol):
    """A schedule, as far as a golden needs it."""

    def to_text(self) -> str:
        """Return the schedule as text."""


@dataclass(slots=True)
class Session:
    """What happened to goldens in this process.

    Attributes:
        update: Whether goldens are rewritten.
        pages: Folder for the pages of failed comparisons.
        used: Goldens that a test compared with.
        written: What was written to each golden in this run.
        reports: Sections for the report of each failed test: heading and text.
    """

    update: bool
    pages: Path
    used: set[Path] = field(default_factory=set)
    written: dict[Path, str] = field(default_factory=dict)
    reports: dict[str, list[tuple[str, str]]] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Golden:
    """A golden file, equal to a trace or schedule whose text it holds.

    Attributes:
        path: The file.
        test: Id of the test that asked for it.
        values: Whether the digests of tensors are compared.
        session: The run that it belongs to.
    """

    path: Path
    test: str
    values: bool
    session: Session

    def __eq__(self, other: object) -> bool:
        text = text_of(other, self.values)
        if text is None:
            return NotImplemented
        self.session.used.add(self.path)
        if self.session.update:
            self._write(text)
        elif not self.path.is_file():
            pytest.fail(
                f"there is no golden {shown(self.path)} yet; to write it from what this test "
                f'found, run: pytest "{self.test}" {UPDATE}',
                pytrace=False,
            )
        return self.text() == text

    __hash__ = None  # type: ignore[assignment]  # equal by content

    def __repr__(self) -> str:
        return f"golden({self.path.stem!r})"

    def text(self) -> str:
        """Return what the file holds."""
        return self.path.read_text(encoding="utf-8")

    def _write(self, text: str) -> None:
        before = self.session.written.setdefault(self.path, text)
        if before != text:
            pytest.fail(
                f"golden {shown(self.path)} was written twice in this run, with different texts: "
                "give the two comparisons names of their own",
                pytrace=False,
            )
        if not self.path.is_file() or self.text() != text:
            with replacing(self.path) as temp:
                temp.write_text(text, encoding="utf-8")

    def explain(self, found: Any) -> list[str]:
        """Return what a failed comparison says in four lines; the rest goes to the test's report.

        Pytest cuts what follows an assertion after eight lines.
        """
        actual = text_of(found, self.values)
        if actual is None:
            return [f"{self!r} holds a trace or a schedule, found {type(found).__name__}"]
        expected = self.text()
        kind = "trace" if isinstance(found, Trace) else "schedule"
        sentences = _sentences(expected, found, self.values)
        lines = [f"the {kind} is not the one in {shown(self.path)}"]
        lines += [f"First divergence: {sentences[0]}"] if sentences else []
        changes = ["- golden   + found", *changed_lines(expected, actual)]
        more = [f"then: {sentence}" for sentence in sentences[1:4]]
        name = re.sub(r"[^\w.-]+", "-", f"{self.test}-{self.path.stem}").strip("-")
        page = self.session.pages / f"{name[-120:]}.html"
        try:
            write_page(page, expected, found, [*lines, *more, "", *changes])
            lines.append(f"Both in the player: {shown(page)}")
        except Exception as error:  # whatever fails here must not hide why the test failed
            lines.append(f"No page with both was written: {type(error).__name__}: {error}")
        lines.append(f'If the change is meant: pytest "{self.test}" {UPDATE}')
        self.session.reports.setdefault(self.test, []).append(
            (f"golden {self.path.stem}", "\n".join([*more, *changes]))
        )
        return lines


def text_of(found: object, values: bool) -> str | None:
    """Return the golden text of a trace or schedule; None for anything else."""
    if isinstance(found, Trace):
        return to_text(with_contributors(found), values=values)
    text = getattr(found, "to_text", None)
    return str(text()) if callable(text) and hasattr(found, "algorithm") else None


def with_contributors(trace: Trace) -> Trace:
    """Return a trace with the contributors that follow from its recorded rows."""
    if not trace.events["provenance"].where(Provenance.EXECUTED.value).any():
        return trace
    from .sim.contributors import derive_contributors

    return derive_contributors(trace)


def compare_traces(a: Trace, b: Trace) -> list[str]:
    """Return what a failed `a == b` of two traces says."""
    found = diff(with_contributors(a), with_contributors(b))
    if found.same:
        return [
            "the traces move the same data the same way, and differ in times or metadata",
            "Compare with `diff(a, b).same` where those do not matter.",
        ]
    return ["the traces differ", *found.to_text(limit=5).splitlines()]


def _sentences(expected: str, found: Trace | HasText, values: bool) -> list[str]:
    """Return what the first differences mean, where the golden can be read back."""
    try:
        if isinstance(found, Trace):
            calls = found.events["provenance"].where(Provenance.CALLED.value)
            provenance = Provenance.CALLED if calls.all() else Provenance.SIMULATED
            golden = parse(expected, provenance=provenance)
            how = "exact" if values else "ignore"
            differences = diff(golden, with_contributors(found), values=how).differences
        else:
            from .sim.text import parse as parse_schedule

            differences = diff(parse_schedule(expected), found).differences
    except ChunkscopeError as error:
        return [f"the golden cannot be read: {error}"]
    return [d.text for d in differences if d.kind != Kind.GROUP]


def changed_lines(expected: str, actual: str) -> list[str]:
    """Return the first lines that differ, with a few equal ones around them."""
    a, b = expected.splitlines(), actual.splitlines()
    marked: list[tuple[str, str]] = []
    for i, j in align(a, b):
        if i is not None and j is not None and a[i] == b[j]:
            marked.append((" ", a[i]))
            continue
        marked += [("-", a[i])] if i is not None else []
        marked += [("+", b[j])] if j is not None else []
    changed = [k for k, (sign, _) in enumerate(marked) if sign != " "]
    if not changed:
        return []
    start = max(changed[0] - _CONTEXT_LINES, 0)
    stop = min(changed[0] + _CHANGED_LINES, changed[-1] + _CONTEXT_LINES + 1, len(marked))
    rest = sum(k >= stop for k in changed)
    lines = [f"{sign} {line}"[:_WIDTH] for sign, line in marked[start:stop]]
    return [*lines, f"  ... and {rest} more lines"] if rest else lines


def shown(path: Path) -> str:
    """Return a path as a person at the prompt writes it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


# The page with both


def write_page(path: Path, expected: str, found: Trace | HasText, lines: list[str]) -> None:
    """Write one HTML file with what differs and a player for each side."""
    from .dashboard.export import export

    films = []
    with tempfile.TemporaryDirectory() as folder:
        for name, trace in (("golden", _playable(expected)), ("found", _as_trace(found))):
            target = Path(folder) / f"{name}.html"
            export(trace, target)
            films.append((name, target.read_text(encoding="utf-8")))
    frames = "".join(
        f'<section><h2>{name}</h2><iframe title="{name}" srcdoc="{html.escape(film)}">'
        "</iframe></section>"
        for name, film in films
    )
    text = html.escape("\n".join(lines))
    with replacing(path) as temp:
        temp.write_text(_PAGE.format(title=html.escape(path.stem), text=text, frames=frames))


def _playable(expected: str) -> Trace:
    """Return the trace of a golden: as it tells it, or of the schedule that it is, simulated."""
    if expected.startswith(FIRST_LINE):
        return parse(expected)
    from .sim.text import parse as parse_schedule

    return _as_trace(parse_schedule(expected))


def _as_trace(found: Any) -> Trace:
    if isinstance(found, Trace):
        return with_contributors(found)
    from .sim.replay import simulate
    from .sim.topology import parse as topology

    count = 4 * found.n_chunks
    ring = topology("full", found.group_size)
    return simulate(found.bind(count, "float32"), ring).trace()


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }}
body {{ margin: 1.5rem }} pre {{ overflow: auto; font-size: 14px }}
main {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(40rem, 1fr)); gap: 1rem }}
iframe {{ width: 100%; aspect-ratio: 16 / 10; border: 1px solid #8886; border-radius: 8px }}
</style></head><body><h1>Golden and found</h1><pre>{text}</pre><main>{frames}</main></body></html>
"""
