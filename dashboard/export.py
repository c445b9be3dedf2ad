"""A film becomes a file: png, svg, gif, mp4 or html, without a browser.

    export("run.parquet", "ring.mp4")
    export("all_reduce:ring:4", "ring.gif", theme="dark")
    export(trace, "step-3.png", at=4.2)

Defaults suit a slide: simple view, light theme, equal steps, a hold at both ends; GIFs loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import ChunkscopeError
from ..traces.atomic import replacing
from ..traces.trace import Trace
from .film import Film
from .film import film as make_film
from .views.thumbnail import thumbnail as thumbnail

Progress = Callable[[int, int], None]
SUFFIXES = (".html", ".gif", ".mp4", ".png", ".svg")
FPS, GIF_FPS = 30, 15
# The simple view is made for so many ranks.
SIMPLE_RANKS = 8
LARGEST = 8192


def export(
    source: Trace | Film | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    view: str | None = None,
    theme: str = "light",
    size: tuple[int, int] = (1280, 720),
    fps: int | None = None,
    seconds: float | None = None,
    at: float | None = None,
    call: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Write a film of a trace to a file; the suffix decides which kind.

    Args:
        source: A trace, a film, a trace's path, or a short spec such as ``all_reduce:ring:4``.
        path: Where to write: .html, .gif, .mp4, .png or .svg. It is replaced when all is done.
        view: simple or full; by default simple, and in HTML full from 9 ranks on.
        theme: light or dark.
        size: Width and height in px.
        fps: Frames a second of .gif (15) and .mp4 (30).
        seconds: How long the steps take together; by default 1.2 s each.
        at: Moment of .png and .svg in film seconds; by default one that tells much.
        call: Which collective call of the trace, from 0.
        progress: Called with (frames done, frames in all).

    Raises:
        ChunkscopeError: The suffix or an argument is not known, or the file cannot be written.
        MissingExtra: A package for this kind of file is missing; it names the pip line.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    _check(target, suffix, theme, size, fps, seconds)
    film = _film(source, suffix, view, call)
    with replacing(target) as temp:
        _write(film, temp, suffix, theme, size, fps, seconds, at, progress)


def _check(
    target: Path,
    suffix: str,
    theme: str,
    size: tuple[int, int],
    fps: int | None,
    seconds: float | None,
) -> None:
    if suffix not in SUFFIXES:
        raise ChunkscopeError(
            f"{target}: unknown kind of file {suffix or 'without suffix'!r}, "
            f"expected {', '.join(SUFFIXES)}"
        )
    if theme not in ("light", "dark"):
        raise ChunkscopeError(f"theme is {theme!r}, expected light or dark")
    if not all(16 <= length <= LARGEST for length in size):
        raise ChunkscopeError(f"size is {size[0]}x{size[1]}, expected 16 to {LARGEST} each")
    if fps is not None and not 1 <= fps <= 120:
        raise ChunkscopeError(f"fps is {fps}, expected 1 to 120")
    if seconds is not None and not 0 < seconds <= 3600:
        raise ChunkscopeError(f"seconds is {seconds}, expected more than 0, at most 3600")


def _film(
    source: Trace | Film | str | os.PathLike[str], suffix: str, view: str | None, call: int | None
) -> Film:
    if isinstance(source, Film):
        return source
    if not isinstance(source, Trace):
        from ..sim.source import load_trace

        source = load_trace(os.fspath(source))
    if view is None:
        few = len(set(source.events["rank"].to_list()) - {None}) <= SIMPLE_RANKS
        view = "simple" if few or suffix != ".html" else "full"
    try:
        return make_film(source, call, view=view)
    except ValueError as error:
        raise ChunkscopeError(str(error)) from error


def telling(film: Film) -> float:
    """Return a moment that tells much: early, while messages travel; of a bare call, the end."""
    if not film.steps or film.meta.get("textbook"):
        return film.duration_s
    step = film.steps[min(round(0.35 * len(film.steps)), len(film.steps) - 1)]
    return step.start_s + 0.5 * (step.end_s - step.start_s)


def _write(
    film: Film,
    path: Path,
    suffix: str,
    theme: str,
    size: tuple[int, int],
    fps: int | None,
    seconds: float | None,
    at: float | None,
    progress: Progress | None,
) -> None:
    moment = telling(film) if at is None else at
    if suffix == ".svg":
        from .paint.svg import svg

        path.write_text(svg(film, moment, theme=theme, size=size), "utf-8")
    elif suffix == ".html":
        from .webfile import page

        path.write_text(page(film, theme=theme), "utf-8")
    elif suffix == ".png":
        from .paint.skia import Canvas

        path.write_bytes(Canvas(film, theme=theme, size=size).png(moment))
    else:
        from . import video

        rate = fps or (GIF_FPS if suffix == ".gif" else FPS)
        settings: dict[str, Any] = {"theme": theme, "size": size, "fps": rate, "seconds": seconds}
        write = video.gif if suffix == ".gif" else video.mp4
        write(film, path, progress=progress, **settings)
        return
    if progress is not None:
        progress(1, 1)
