"""Small pictures of traces, for the cards of the start page."""

from __future__ import annotations

from ..traces.trace import Trace


def thumbnail(trace: Trace, theme: str = "light") -> str:
    """Return a small picture of a trace's first call, as SVG text.

    Args:
        trace: The trace.
        theme: light or dark.

    Raises:
        ValueError: The trace has no collective call.
    """
    from .film import film
    from .paint.svg import svg

    made = film(trace)
    at = made.steps[len(made.steps) // 3] if made.steps else None
    t = made.duration_s if at is None else at.start_s + 0.5 * (at.end_s - at.start_s)
    return svg(made, t, theme=theme, panel=made.panel("stage"), embed=False)
