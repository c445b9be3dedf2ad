"""The start page: the traces of the folder, a place to drop a file, and the Simulate panel."""

from __future__ import annotations

import base64
import time
from typing import Any

import dash_mantine_components as dmc
from dash import MATCH, Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from ...errors import ChunkscopeError
from ..library import MAX_UPLOAD_BYTES, Entry, Library
from . import simulate
from .parts import aria, badge, command, data, failure, icon, shell

# How often the folder is looked at again.
LOOK_AGAIN_MS = 2000


def layout(library: Library) -> Component:
    """Return the start page."""
    search = dmc.TextInput(
        id="find",
        placeholder="Find a trace",
        leftSection=icon("search"),
        rightSection=dmc.Kbd("/"),
        debounce=150,
        w=264,
        **aria("Find a trace"),
    )
    entries = library.entries()
    head = html.Div(
        [
            html.H1("Traces"),
            html.Span(_count(library, entries), id="count", className="muted"),
            dmc.SegmentedControl(
                id="show",
                value="all",
                data=[
                    {"value": "all", "label": "All"},
                    {"value": "recorded", "label": "Recorded"},
                    {"value": "simulated", "label": "Simulated"},
                ],
            ),
        ],
        id="listing-head",
        className="listing-head",
        hidden=not entries,
    )
    left = html.Div(
        [
            head,
            html.Div(_listing(library, entries, "", "all"), id="listing"),
            dcc.Interval(id="look-again", interval=LOOK_AGAIN_MS),
            dcc.Store(id="seen", data=_signature(entries)),
            _drop_area(),
        ],
        className="start-left",
    )
    trail = [html.Span(library.title, className="mono trail")]
    actions = [html.Div(search, id="find-box", hidden=not entries)]
    return shell("start", trail, actions, html.Div([left, simulate.panel()], className="start"))


def _count(library: Library, entries: list[Entry]) -> str:
    return f"{len(entries)} in this folder" if library.only is None else ""


def _signature(entries: list[Entry]) -> str:
    return repr([(entry.name, entry.stamp) for entry in entries])


def _listing(library: Library, entries: list[Entry], find: str, show: str) -> list[Component]:
    if not entries:
        return _empty(library)
    chosen = [e for e in entries if _fits(library, e, find, show)]
    if not chosen:
        what = f"No trace matches '{find}'" if find else f"No {show} trace in this folder"
        clear = dmc.Button("Clear", id="clear", variant="default", size="xs")
        return [html.Div([html.Span(what), clear], className="no-hit")]
    few = " cards-few" if len(entries) <= 4 else ""
    return [html.Div([_card(library, e) for e in chosen], className="cards" + few)]


def _fits(library: Library, entry: Entry, find: str, show: str) -> bool:
    words = find.lower().split()
    if not words and show == "all":
        return True
    found = library.facts(entry)
    if isinstance(found, str):
        return show == "all" and all(word in entry.name.lower() for word in words)
    text = f"{entry.name} {found.title} {found.provenance} {found.algorithm}".lower()
    kind_fits = show == "all" or found.recorded == (show == "recorded")
    return kind_fits and all(word in text for word in words)


def _card(library: Library, entry: Entry) -> Component:
    """Return the card of a trace; one that was not read yet is filled when it is on the page."""
    if library.knows(entry):
        return html.Div(_filled(library, entry), className="card")
    ident = {"part": "card", "name": entry.name, "stamp": str(entry.stamp)}
    waiting = [dmc.Skeleton(className="card-picture", radius=0), dmc.Skeleton(h=70, m=14, w="auto")]
    return html.Div(waiting, id=ident, className="card")


def _filled(library: Library, entry: Entry) -> Component:
    name = entry.name + ("/" if entry.is_folder else "")
    age = html.Span(_ago(time.time() - entry.modified_s), className="muted nowrap")
    found = library.facts(entry)
    if isinstance(found, str):
        where, _, why = found.partition(": ")
        text = why if where.startswith(entry.name) else found
        return html.Div(
            [
                html.Div(failure("This file cannot be opened", text), className="card-picture"),
                html.Div(
                    [html.B(name.rpartition("/")[2] or name, className="ellipsis"), badge_broken()],
                    className="card-line",
                ),
                html.Div(
                    [html.Span(name, className="mono muted ellipsis"), age],
                    className="card-line card-sub",
                ),
            ],
            className="card-body",
        )
    cells = [
        ("Ranks", str(found.ranks)),
        ("Bytes", found.size),
        ("Time", found.time),
        ("Algorithm", found.algorithm),
    ]
    return dcc.Link(
        [
            _picture(entry),
            html.Div([html.B(found.title, className="ellipsis"), badge(found.provenance)],
                     className="card-line"),
            html.Div([html.Span(name, className="mono muted ellipsis"), age],
                     className="card-line card-sub"),
            html.Dl([html.Div([html.Dt(k), html.Dd(v)]) for k, v in cells], className="card-facts"),
        ],
        href="/" + entry.address,
        className="card-body",
    )  # fmt: skip


def _picture(entry: Entry) -> Component:
    mark = f"?v={entry.stamp[0]}-{entry.stamp[1]}"
    return html.Div(_drawing(entry.address + mark), className="card-picture")


def _drawing(address: str) -> Component:
    """Return the place of a small picture; the page's script loads it when it is seen."""
    return html.Div(className="drawing", **data(picture=address))


def badge_broken() -> Component:
    """Return the badge of a file that cannot be read."""
    return html.Span([icon("close", 13), "unreadable"], className="badge")


def _ago(seconds: float) -> str:
    for unit, size, limit in (("s", 1, 60), ("min", 60, 60), ("h", 3600, 24)):
        if seconds < size * limit:
            return f"{max(int(seconds // size), 0)} {unit} ago"
    days = int(seconds // 86400)
    return "yesterday" if days == 1 else f"{days} days ago"


def _empty(library: Library) -> list[Component]:
    ways = [
        (
            "Look at an example",
            "A ring all_reduce, recorded on 4 real processes, and the same one simulated.",
            "a few seconds, needs torch",
            "chunkscope demo",
            "all_reduce:ring:4",
        ),
        (
            "Record your own program",
            "Your script stays as it is. Every collective of every rank is recorded, "
            "with its caller.",
            "needs torch",
            "chunkscope record train.py",
            "all_reduce:tree:4",
        ),
        (
            "Simulate a collective",
            "No hardware needed. Or set it up in the panel on the right and watch at once.",
            "1 s",
            "chunkscope sim all_reduce -a tree -n 8",
            "broadcast:tree:8",
        ),
    ]
    cards = [
        html.Div(
            [
                html.Div(_drawing(f"sim/{spec}"), className="way-picture"),
                html.Div(
                    [
                        html.Div([html.H2(title), html.Span(cost, className="muted")],
                                 className="way-head"),
                        html.P(text),
                        command(line),
                    ],
                    className="way-text",
                ),
            ],
            className="way",
        )
        for title, text, cost, line, spec in ways
    ]  # fmt: skip
    return [
        html.H1("No traces here yet. Three ways to get one", className="empty-head"),
        html.P(
            ["Each is one command. What it writes to ", html.Code(library.title),
             " appears on this page by itself."],
            className="empty-sub",
        ),
        html.Div(cards, className="ways"),
    ]  # fmt: skip


def _drop_area() -> Component:
    words = html.Div(
        [
            html.B("Open a trace file"),
            html.Div(
                ["Drop it here, or ", html.Span("choose a file", className="underlined"),
                 ". Nothing is uploaded: the dashboard runs on this machine."],
                className="muted",
            ),
            html.Div(id="drop-error", className="field-error", role="alert"),
        ],
        className="drop-words",
    )  # fmt: skip
    forms = html.Div([html.Div(".parquet  .jsonl"), html.Div("recordings by their folder")],
                     className="mono muted drop-forms")  # fmt: skip
    inside = [html.Span(icon("upload", 18), className="drop-icon"), words, forms]
    return dcc.Upload(
        html.Div(inside, className="drop"),
        id="drop",
        max_size=MAX_UPLOAD_BYTES,
        multiple=False,
        className_active="drop-active",
        style={},
    )


def register(app: Dash, library: Library) -> None:
    """Register what happens on the start page."""
    simulate.register(app)

    @app.callback(
        Output("seen", "data"),
        Input("look-again", "n_intervals"),
        State("seen", "data"),
        prevent_initial_call=True,
    )
    def look_again(_: int, seen: str) -> Any:
        signature = _signature(library.entries())
        return no_update if signature == seen else signature

    @app.callback(
        Output("listing", "children"),
        Output("listing-head", "hidden"),
        Output("find-box", "hidden"),
        Output("count", "children"),
        Input("seen", "data"),
        Input("find", "value"),
        Input("show", "value"),
        prevent_initial_call=True,
    )
    def list_again(_: str, find: str | None, show: str) -> Any:
        entries = library.entries()
        listing = _listing(library, entries, find or "", show)
        return listing, not entries, not entries, _count(library, entries)

    @app.callback(
        Output("find", "value"),
        Output("show", "value"),
        Input("clear", "n_clicks"),
        prevent_initial_call=True,
    )
    def clear(clicks: int | None) -> Any:
        return ("", "all") if clicks else (no_update, no_update)

    @app.callback(
        Output("url", "pathname", allow_duplicate=True),
        Output("drop-error", "children"),
        Input("drop", "contents"),
        State("drop", "filename"),
        prevent_initial_call=True,
    )
    def drop(contents: str | None, name: str | None) -> Any:
        if not contents:
            return no_update, no_update
        try:
            raw = base64.b64decode(contents.partition(",")[2])
            return "/" + library.add_upload(name or "trace", raw), ""
        except ChunkscopeError as error:
            return no_update, str(error)

    @app.callback(
        Output({"part": "card", "name": MATCH, "stamp": MATCH}, "children"),
        Input({"part": "card", "name": MATCH, "stamp": MATCH}, "id"),
    )
    def fill(ident: dict[str, str]) -> Any:
        entry = library.entry(ident["name"])
        return no_update if entry is None else _filled(library, entry)
