"""The inspector: everything about the message, cell or rank that was clicked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dash import html
from dash.development.base_component import Component

from ...traces.trace import Site, Trace
from ...units import format_Bps, format_bytes, format_ns
from ..details import (
    Earlier,
    Holding,
    LinkSpeed,
    MessageDetails,
    message_details,
    place_details,
)
from ..story import Story
from ..theme import hue
from .parts import aria, badge, data, icon, rank_name

# Squares of contributors are drawn up to so many ranks.
MAX_SQUARES = 16


def inspect(trace: Trace, story: Story, ref: Mapping[str, Any]) -> list[Component]:
    """Return the inspector's content for a thing of the film."""
    kind = ref.get("kind")
    if kind in ("message", "cell"):
        details = message_details(trace, story, ref)
        if details is not None:
            return message(story, details, cell=ref if kind == "cell" else None)
    if kind in ("rank", "cell"):
        return rank(trace, story, int(ref.get("rank") or 0))
    if kind == "call":
        return rank(trace, story, 0)
    return nothing()


def nothing() -> list[Component]:
    """Return what stands there while nothing is selected."""
    words = "Click a moving chunk, a cell, an arrow or a bar to see who sent what, when and why."
    return [html.Div(words, className="inspect-nothing")]


def message(
    story: Story, details: MessageDetails, cell: Mapping[str, Any] | None = None
) -> list[Component]:
    """Return the sections about a message, in the order who, time, speed, state, caller, how known.

    Args:
        story: The call.
        details: What is known of the message.
        cell: The film's ref where a cell was clicked that the message wrote.
    """
    sections: list[Component | None] = [
        _who(story, details, cell),
        _time(details),
        _speed(details.speed),
        _state(story, details),
        _called_at(details.site),
    ]
    return [*(section for section in sections if section is not None), _known(story, details)]


def rank(trace: Trace, story: Story, number: int) -> list[Component]:
    """Return the sections about a rank: what it handed in and got back, when, and from where."""
    place = next((p for p in story.places if p.rank == number), None)
    if place is None:
        return nothing()
    head = html.Div(
        [
            html.H3([rank_name(place.rank, place.place)]),
            html.P(f"{story.collective}, group rank {place.place} of {story.n}"),
        ],
        className="inspect-who",
    )
    times = _rows(
        [
            ("Called", _ns(place.t_start_ns), "since the first rank's call"),
            ("Returned", _ns(place.t_end_ns), _took(place.t_start_ns, place.t_end_ns)),
        ]
    )
    holdings = place_details(trace, story, place.place)
    sections = [
        _section(head),
        _section(times, "Time"),
        _section(_holdings(story, holdings), "Tensors"),
        _called_at(place.site),
        html.Div([badge(story.provenance)], className="inspect-known"),
    ]
    return [section for section in sections if section is not None]


def _section(content: Any, title: str = "", aside: Any = None) -> Component | None:
    if content is None:
        return None
    head = html.Div([html.H4(title), html.Span(aside, className="muted")], className="inspect-head")
    return html.Section([head, content] if title else [content])


def _who(story: Story, details: MessageDetails, cell: Mapping[str, Any] | None) -> Component | None:
    carried = next((h for h in details.holdings if h.label == "Arrives"), None)
    chunk = f"chunk {details.chunk}" if details.chunk is not None else ""
    facts = [details.step]
    if details.size_bytes is not None:
        facts.append(format_bytes(details.size_bytes))
    if details.n_elements is not None and details.dtype is not None:
        facts.append(f"{details.n_elements:,} × {details.dtype}".replace(",", "\u202f"))
    if details.n_parts > 1:
        facts.append(f"{details.n_parts} pieces in one message")
    facts.append(f"{'added' if details.reduces else 'copied'} at rank {details.dst.rank}")
    title = [
        rank_name(details.src.rank, details.src.place),
        html.Span("→", className="arrow"),
        rank_name(details.dst.rank, details.dst.place),
        html.Span(chunk, className="muted"),
    ]
    lines: list[Component] = [html.H3(title), html.P(", ".join(facts))]
    if cell is not None:
        wrote = f"Slot {cell.get('slot')} of rank {cell.get('rank')}: this message wrote it."
        lines.append(html.P(wrote, className="muted"))
    token = _token(story, carried) if carried is not None else None
    return _section(html.Div([token, html.Div(lines)], className="inspect-who"))


def _token(story: Story, holding: Holding) -> Component | None:
    """Return the moving chunk as it looks in the picture: one slot a rank, rank 0 at the bottom."""
    if holding.who is None or story.n > MAX_SQUARES:
        return None
    slots = [html.I(style=_hue(k) if k in holding.who else {}) for k in reversed(range(story.n))]
    return html.Div(slots, className="token")


def _hue(place: int) -> dict[str, str]:
    token = hue(place)
    return {
        "background": f"var(--cs-{token})",
        "borderColor": f"var(--cs-edge{token.removeprefix('hue')})",
    }


def _time(details: MessageDetails) -> Component | None:
    rows = []
    if details.issued_ns is not None and details.issued_ns < details.started_ns:
        rows.append(("Issued", _ns(details.issued_ns), ""))
    waited: Any = ""
    if details.cause is not None:
        pause = details.started_ns - (details.issued_ns or details.cause.start_ns)
        words = (
            f"waited {format_ns(pause)} for " if details.issued_ns is not None else "waited for "
        )
        waited = [words, _link(details.cause)]
    rows.append(("Started", _ns(details.started_ns), waited))
    if details.ended_ns is None:
        rows.append(("Ended", "–", "no end was recorded"))
    else:
        travelled = f"travelled {format_ns(details.ended_ns - details.started_ns)}"
        rows.append(("Ended", _ns(details.ended_ns), travelled))
    return _section(html.Div([_timeline(details), _rows(rows)]), "Time")


def _timeline(details: MessageDetails) -> Component | None:
    """Return the bar: the message before on the same link, waiting, and this one's travel."""
    if details.ended_ns is None:
        return None
    start, end = details.started_ns, details.ended_ns
    issued = details.issued_ns if details.issued_ns is not None else start
    previous = details.previous
    left = min(issued, start)
    if previous is not None and start - previous.start_ns < 6 * max(end - left, 1):
        left = min(left, previous.start_ns)
    else:
        previous = None
    whole = max(end - left, 1)

    def piece(name: str, a: int, b: int, words: str) -> Component:
        style = {
            "left": f"{100 * (a - left) / whole:.2f}%",
            "width": f"{100 * (b - a) / whole:.2f}%",
        }
        return html.Div(html.Span(words), className=f"line-{name}", style=style)

    label = f"chunk {details.chunk}" if details.chunk is not None else "it"
    pieces = []
    if previous is not None:
        pieces.append(piece("before", previous.start_ns, min(previous.end_ns, start),
                            previous.name.partition(" from ")[0]))  # fmt: skip
    waits_from = max(issued, previous.end_ns if previous is not None else issued)
    if start > waits_from:
        wide = (start - waits_from) / whole > 0.12
        pieces.append(piece("waits", waits_from, start, "waits" if wide else ""))
    pieces.append(piece("travels", start, end, f"{label} travels"))
    return html.Div(pieces, className="timeline")


def _link(earlier: Earlier) -> Component:
    return html.Button(earlier.name, className="linked", type="button", **data(select=earlier.key))


def _rows(rows: Sequence[tuple[str, str, Any]]) -> Component:
    cells = [
        html.Div([html.Dt(name), html.Dd(value, className="mono"), html.Dd(words)])
        for name, value, words in rows
    ]
    return html.Dl(cells, className="inspect-rows")


def _ns(time_ns: int | None) -> str:
    return "–" if time_ns is None else format_ns(time_ns)


def _took(start_ns: int | None, end_ns: int | None) -> str:
    if end_ns is None:
        return "no end was recorded"
    return "" if start_ns is None else f"took {format_ns(end_ns - start_ns)}"


def _speed(speed: LinkSpeed | None) -> Component | None:
    if speed is None:
        return None
    if speed.link_Bps is None:
        return _section(html.Div(format_Bps(speed.speed_Bps), className="speed mono"), "Speed")
    share = min(speed.speed_Bps / speed.link_Bps, 1.0)
    aside = f"{speed.link}, {format_Bps(speed.link_Bps)}"
    if speed.latency_ns:
        aside += f", latency {format_ns(speed.latency_ns)}"
    percent = "< 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"
    line = html.Div(
        [
            html.Span(format_Bps(speed.speed_Bps), className="speed mono"),
            html.Div(html.I(style={"width": f"{100 * share:.2f}%"}), className="bar"),
            html.Span(percent, className="mono"),
        ],
        className="speed-line",
    )
    return _section(line, "Speed", aside)


def _state(story: Story, details: MessageDetails) -> Component | None:
    slot = "Slot" if details.slot is None else f"Slot {details.slot}"
    aside = "ranks in it: derived" if details.derived else None
    content = _holdings(story, details.holdings)
    return _section(content, f"{slot} at rank {details.dst.rank}", aside)


def _holdings(story: Story, holdings: Sequence[Holding]) -> Component:
    """Return the table of what was held: ranks in it, first values, mean; then min, max, digest."""
    if not any(holding.recorded for holding in holdings):
        words = (
            "This simulation carries no values."
            if story.provenance == "simulated"
            else "Values were not recorded (policy none)."
        )
        note = html.P(words, className="muted note-line")
        if not any(holding.who is not None for holding in holdings):
            return note
    else:
        note = None
    squares = story.n <= MAX_SQUARES and any(h.who is not None for h in holdings)
    columns = max((len(h.values) for h in holdings), default=0)
    means = any(h.mean is not None for h in holdings)
    head: list[Component] = [html.Th("")]
    if squares:
        head.append(html.Th("Ranks in it", colSpan=2))
    if columns:
        count = {1: "Value", 2: "First two values", 3: "First three values"}
        whole = all(not h.more for h in holdings)
        words = (
            ("Value" if columns == 1 else "Values")
            if whole
            else count.get(columns, "First four values")
        )
        head.append(html.Th(words, colSpan=columns, className="number"))
    if means:
        head.append(html.Th("Mean", className="number"))
    rows = []
    for holding in holdings:
        cells: list[Component] = [html.Th(holding.label, scope="row")]
        if squares:
            cells += _contributors(story, holding)
        shown = _numbers(holding.values)
        cells += [html.Td(text, className="number") for text in shown]
        cells += [html.Td("") for _ in range(columns - len(shown))]
        if means:
            cells.append(html.Td(_number(holding.mean), className="number"))
        rows.append(html.Tr(cells, className="after" if holding.label == "After" else ""))
    table = html.Table(
        [html.Thead(html.Tr(head)), html.Tbody(rows)],
        className="holdings" + (" narrow" if columns == 0 else ""),
    )
    return html.Div([table, _statistics(holdings[-1]) if holdings else None, note])


def _contributors(story: Story, holding: Holding) -> list[Component]:
    if holding.who is None:
        return [html.Td(""), html.Td("")]
    marks = [html.I(style=_hue(k) if k in holding.who else {}) for k in range(story.n)]
    return [
        html.Td(html.Span(marks, className="squares")),
        html.Td(f"{len(holding.who)} of {story.n}", className="nowrap"),
    ]


def _statistics(holding: Holding) -> Component | None:
    facts = []
    for name, value in (("Min", holding.min), ("Max", holding.max)):
        if value is not None:
            facts.append((name, _number(value)))
    if holding.nan is not None:
        facts.append(("NaN", str(holding.nan)))
    if holding.digest is not None:
        raw = f"{holding.digest:08x}"
        facts.append(
            ("Digest of a sample" if holding.sampled else "Digest", f"{raw[:4]} {raw[4:]}")
        )
    if not facts:
        return None
    cells = [html.Div([html.Dt(name), html.Dd(value, className="mono")]) for name, value in facts]
    return html.Dl(cells, className="statistics")


def _numbers(values: Sequence[Any]) -> list[str]:
    """Return numbers with a constant count of decimals, so that they stand under each other."""
    if any(isinstance(v, complex) for v in values):
        return [f"{v:.3g}" for v in values]
    if all(isinstance(v, int) or float(v).is_integer() for v in values) and all(
        abs(v) < 1e7 for v in values
    ):
        suffix = "" if all(isinstance(v, int) for v in values) else ".0"
        return [f"{int(v)}{suffix}" for v in values]
    return [_number(v) for v in values]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if float(value).is_integer() and abs(value) < 1e7:
        return f"{value:.1f}"
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:.4f}" if abs(value) < 1e3 else f"{value:.1f}"
    return f"{value:.3g}"


def _called_at(site: Site | None) -> Component | None:
    if site is None:
        return None
    file = site.file.replace("\\", "/").rpartition("/")[2]
    aside = html.Span(f"{file}:{site.line}", className="mono", title=f"{site.file}:{site.line}")
    if not site.source:
        return _section(
            html.Div(f"in {site.function}" if site.function else ""), "Called at", aside
        )
    lines = list(enumerate(site.source, site.first_line))
    at = next((k for k, (number, _) in enumerate(lines) if number == site.line), 0)
    shown = lines[max(at - 1, 0) : at + 2]
    code = [
        html.Div(
            [html.Span(str(number), className="number"), html.Code(text or " ")],
            className="line here" if number == site.line else "line",
        )
        for number, text in shown
    ]
    return _section(html.Div(code, className="source"), "Called at", aside)


def _known(story: Story, details: MessageDetails) -> Component:
    return html.Div(
        [badge(details.provenance), html.Span(_how_known(story, details), className="muted")],
        className="inspect-known",
    )


def _how_known(story: Story, details: MessageDetails) -> str:
    if details.provenance == "simulated":
        model = story.model
        policy, topology = model.get("policy"), model.get("topology")
        words = "Step model" + (f", policy {policy}" if policy else "")
        return words + (f", on {topology}." if topology else ".")
    over = f" over {story.backend}" if story.backend else ""
    if details.provenance == "executed":
        words = f"Our {story.algorithm or 'schedule'}, run{over} send/recv."
    elif details.provenance == "wire":
        words = "Read from gloo's TCP streams."
    else:
        words = f"Recorded{over}."
    if details.clock_error_ns is not None:
        return f"{words} Clocks agree to ±{format_ns(details.clock_error_ns)}."
    return words


def close_button() -> Component:
    """Return the cross that lets go of what is selected."""
    return html.Button(
        icon("close"), id="inspect-close", type="button", className="icon-button",
        **aria("Close"),
    )  # fmt: skip
