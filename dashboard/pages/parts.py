"""What several pages show alike: icons, the mark, badges, rank squares, the header, commands."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from ..theme import hue

# Paths in a 16 x 16 box, drawn with a stroke of 1.35.
_ICONS = {
    "search": '<circle cx="7" cy="7" r="4.3"/><path d="M10.2 10.2 13.5 13.5"/>',
    "theme": '<circle cx="8" cy="8" r="5.6"/>'
    '<path d="M8 2.4a5.6 5.6 0 0 1 0 11.2z" class="solid"/>',
    "link": '<path d="M6.7 9.3a2.6 2.6 0 0 0 3.7 0l2-2a2.6 2.6 0 0 0-3.7-3.7l-.7.7"/>'
    '<path d="M9.3 6.7a2.6 2.6 0 0 0-3.7 0l-2 2a2.6 2.6 0 0 0 3.7 3.7l.7-.7"/>',
    "download": '<path d="M8 2.6v7.2M5 7l3 3 3-3M3 13.2h10"/>',
    "upload": '<path d="M8 10V2.8M5 5.6l3-3 3 3M3 9.8v3.4h10V9.8"/>',
    "left": '<path d="M9.8 3.8 5.6 8l4.2 4.2"/>',
    "right": '<path d="M6.2 3.8 10.4 8l-4.2 4.2"/>',
    "down": '<path d="M4 6.2 8 10.2l4-4"/>',
    "close": '<path d="M4 4l8 8M12 4l-8 8"/>',
    "copy": '<rect x="5.4" y="5.4" width="7.6" height="7.6" rx="1.6"/>'
    '<path d="M3 10.4V4.6A1.6 1.6 0 0 1 4.6 3h5.8"/>',
    "check": '<path d="M3.4 8.4 6.6 11.6 12.8 5"/>',
    "help": '<circle cx="8" cy="8" r="5.6"/>'
    '<path d="M6.5 6.6a1.6 1.6 0 1 1 2.3 1.4c-.5.3-.8.6-.8 1.1"/>'
    '<path d="M8 11.1v.1"/>',
    "list": '<path d="M5.8 4.4h7M5.8 8h7M5.8 11.6h7M3.2 4.4h.1M3.2 8h.1M3.2 11.6h.1"/>',
    "simulated": '<path d="M2.8 2.6v10.6h10.6"/><path d="M4.6 11 8 7.8l1.8 1.4 3.2-4"/>',
    "executed": '<rect x="2.6" y="2.6" width="10.8" height="10.8" rx="2.4"/>'
    '<path d="M6.6 5.6v4.8L10.4 8z" class="solid"/>',
    "called": '<path d="M5.6 3C4 3.6 4.6 6.4 3 8c1.6 1.6 1 4.4 2.6 5M10.4 3c1.6.6 1 3.4 2.6 5'
    '-1.6 1.6-1 4.4-2.6 5"/>',
    "wire": '<path d="M1.8 8.4h2.6L6.2 3.6l3.2 9 1.8-4.2h3"/>',
    "imported": '<path d="M8 2.4v6.8M5.2 6.6 8 9.4l2.8-2.8M2.8 9.6v3.6h10.4V9.6"/>',
}


def aria(label: str) -> dict[str, Any]:
    """Return the attribute that names a control for those who do not see it."""
    return {"aria-label": label}


def data(**values: object) -> dict[str, Any]:
    """Return data attributes, which the page's script reads."""
    return {f"data-{name}": value for name, value in values.items()}


def icon(name: str, size: int = 16, colour: str | None = None) -> html.Span:
    """Return an icon in the colour of the text around it (a mask, so that no HTML is injected)."""
    path = _ICONS[name].replace('class="solid"', 'fill="#000" stroke="none"')
    drawing = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="none" stroke="#000" '
        f'stroke-width="1.35" stroke-linecap="round" stroke-linejoin="round">{path}</svg>'
    )
    url = "data:image/svg+xml;base64," + base64.b64encode(drawing.encode()).decode()
    style = {"width": size, "height": size, "--icon": f"url({url})"}
    if colour is not None:
        style["color"] = colour
    hidden: dict[str, Any] = {"aria-hidden": "true"}
    return html.Span(className="icon", style=style, **hidden)


def mark() -> html.A:
    """Return the mark and name, a link to the start page."""
    bars = [html.I(style={"height": height}) for height in (8, 12, 16)]
    return html.A([html.Span(bars, className="mark"), "chunkscope"], href="/", className="brand")


def badge(provenance: str) -> html.Span:
    """Return the badge that says how the events are known; always the same component."""
    known = provenance if provenance in _ICONS else "imported"
    return html.Span(
        [icon(known, 13), provenance], className=f"badge badge-{provenance}", title=MEANING[known]
    )


MEANING = {
    "simulated": "computed by the step model",
    "executed": "our schedule, run for real over send and recv",
    "called": "calls of a program, as torch saw them; what happens inside was not recorded",
    "wire": "messages inside native gloo, read from its TCP streams",
    "imported": "read from a foreign format",
}


def square(group_rank: int, size: int = 10) -> html.I:
    """Return the small square in the colour of a rank of the group."""
    token = hue(group_rank)
    style = {"width": size, "height": size, "background": f"var(--cs-{token})"}
    style["borderColor"] = f"var(--cs-edge{token.removeprefix('hue')})"
    return html.I(className="square", style=style)


def rank_name(rank: int | None, group_rank: int | None) -> html.Span:
    """Return a rank with its square, as it stands in a sentence."""
    if group_rank is None:
        return html.Span(f"rank {rank}", className="rank")
    return html.Span([square(group_rank), f"rank {rank}"], className="rank")


def header(trail: Sequence[Any], actions: Sequence[Any]) -> dmc.AppShellHeader:
    """Return the header of a page: mark and breadcrumbs left, actions and theme right."""
    toggle = dmc.ColorSchemeToggle(
        lightIcon=icon("theme", 18),
        darkIcon=icon("theme", 18),
        variant="subtle",
        size=36,
        **aria("Light or dark"),
    )
    return dmc.AppShellHeader(
        html.Div(
            [
                html.Div([mark(), html.Span(className="rule"), *trail], className="header-left"),
                html.Div([*actions, toggle], className="header-right"),
            ],
            className="header",
        ),
        withBorder=False,
    )


def shell(page: str, trail: Sequence[Any], actions: Sequence[Any], body: Any) -> Component:
    """Return a whole page."""
    whole: Component = dmc.AppShell(
        [header(trail, actions), dmc.AppShellMain(body)],
        header={"height": 56},
        className=f"page page-{page}",
    )
    return whole


def copy_button(text: str, label: str = "Copy", **how: Any) -> dmc.CopyButton:
    """Return a button that copies a text."""
    return dmc.CopyButton(
        children=how.pop("children", icon("copy")),
        copiedChildren=how.pop("copied", icon("check")),
        value=text,
        variant=how.pop("variant", "subtle"),
        color="gray",
        copiedColor="gray",
        buttonProps={"aria-label": label, "className": "copy", **how.pop("buttonProps", {})},
        **how,
    )


def command(text: str) -> html.Div:
    """Return a command line with a button that copies it."""
    return html.Div(
        [
            html.Span("$", className="prompt"),
            html.Code(text),
            copy_button(text, f"Copy: {text}"),
        ],
        className="command",
    )


def failure(title: str, text: str) -> html.Div:
    """Return what stands where a thing cannot be shown."""
    return html.Div([html.B(title), html.P(text)], className="failure", role="alert")
