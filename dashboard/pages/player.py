"""The player page: the picture, the bar beneath, and the inspector beside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote, unquote

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from ...errors import ChunkscopeError, ScheduleError
from ...traces.trace import Trace
from ...units import format_bytes, format_ns
from ..facts import call_title
from ..how import TOPOLOGY, ways
from ..library import Library, spec_of
from ..story import Story
from .inspector import close_button, inspect, nothing
from .parts import aria, badge, data, failure, icon, shell

# Above this, the simple view cannot be read any more.
SIMPLE_UP_TO = 8


def layout(library: Library, address: str, search: str) -> Component:
    """Return the player page of a trace, on the call and view that the search part names.

    Raises:
        ChunkscopeError: The trace cannot be opened.
    """
    trace = library.trace(address)
    calls = trace.calls()
    if not calls:
        body: Component = html.Div(
            failure("Nothing to play", _why_nothing(trace)), className="lone"
        )
        return shell("player", _trail(library, address), [], body)
    asked = {name: values[0] for name, values in parse_qs(search.lstrip("?")).items()}
    call = int(asked["call"]) if asked.get("call", "").isdecimal() else 0
    call = min(call, len(calls) - 1)
    where = {"address": address, "call": call, "view": _view(library, address, call, asked)}
    story = library.story(address, call)
    actions = [
        dmc.SegmentedControl(
            id="view",
            value=where["view"],
            data=[
                {"value": "simple", "label": "Simple"},
                {"value": "full", "label": "Full"},
            ],
        ),
        html.Button(
            [icon("link"), html.Span("Copy link")],
            id="copy-link",
            type="button",
            className="button",
        ),
        html.Div(_export_menu(where), id="export"),
    ]
    trail = [*_trail(library, address), html.Div(_call_trail(trace, where), id="call-trail")]
    return shell("player", trail, actions, _body(library, where, story))


def _view(library: Library, address: str, call: int, asked: Mapping[str, str]) -> str:
    view = asked.get("view")
    if view in ("simple", "full"):
        return view
    return "simple" if library.story(address, call).n <= SIMPLE_UP_TO else "full"


def _body(library: Library, where: dict[str, Any], story: Story) -> Component:
    tabs = dmc.Tabs(
        [
            dmc.TabsList(
                [
                    dmc.TabsTab("State", value="state"),
                    dmc.TabsTab("In flight", value="flight"),
                    dmc.TabsTab("Message", value="message"),
                    close_button(),
                ]
            ),
            dmc.TabsPanel([html.Div(id="pane-state"), html.Div(id="pane-legend")], value="state"),
            dmc.TabsPanel(html.Div(id="pane-flight"), value="flight"),
            dmc.TabsPanel(html.Div(nothing(), id="inspect", className="inspect"), value="message"),
        ],
        id="tabs",
        value="state",
        keepMounted=True,
    )
    return html.Div(
        [
            html.Div(
                [
                    html.Div(_headline(story), id="headline", className="headline"),
                    html.Div(html.Div(id="pane-main"), className="pane-box"),
                ],
                className="player-left",
            ),
            html.Aside(tabs, id="inspector", className="panel inspector"),
            html.Div(id="player-root"),
            html.Div(id="film-error", className="film-error", role="alert", hidden=True),
            dmc.Modal(html.Div(id="how-body"), id="how", size=760, title="How could this be done?"),
            dcc.Store(id="where", data=where),
            dcc.Store(id="film", data=_film(library, where)),
            dcc.Store(id="wish"),
            dcc.Store(id="selected"),
            dcc.Store(id="asked-how"),
            html.Div(id="mounted", hidden=True),
        ],
        id="player-page",
        className="player",
        **data(view=where["view"], inspector="closed"),
    )


def _film(library: Library, where: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page's script needs to load the film."""
    calls = library.trace(where["address"]).calls()
    url = f"/film/{where['view']}/{where['call']}/{where['address']}"
    return {**where, "url": url, "calls": len(calls)}


def _why_nothing(trace: Trace) -> str:
    if not len(trace):
        return "This trace has no events: the program made no torch.distributed call."
    return f"This trace has {len(trace):,} events, but no collective call among them."


def _headline(story: Story) -> list[Component]:
    facts = []
    if story.size_bytes is not None:
        facts.append(f"{format_bytes(story.size_bytes)} {story.dtype or ''}".strip())
    if story.op and story.reduces:
        facts.append(story.op.lower())
    facts.append(f"{story.n} ranks" if story.n != 1 else "1 rank")
    if len(set(story.hosts)) > 1:
        facts[-1] += f" on {len(set(story.hosts))} hosts"
    chunks = {cell.slot for place in story.places for cell in place.cells}
    if story.messages and len(chunks) > 1:
        facts.append(f"{len(chunks)} chunks")
    time = (
        format_ns(story.duration_ns) if story.finished else f"open, {format_ns(story.duration_ns)}"
    )
    return [
        html.Div(
            [
                html.H1(call_title(story.collective, story.algorithm)),
                html.P(", ".join(facts)),
            ]
        ),
        html.Div([badge(story.provenance), html.P(time)], className="headline-right"),
    ]


def _trail(library: Library, address: str) -> list[Component]:
    """Return the breadcrumbs up to the trace."""
    kind, _, rest = address.partition("/")
    trail: list[Component] = [dcc.Link(library.title, href="/", className="mono trail")]
    name = unquote(rest)
    if kind == "sim":
        spec = spec_of(rest)
        name = f"{spec.collective}:{spec.algorithm}:{spec.ranks}"
    elif kind == "upload":
        name = unquote(rest.partition("/")[2])
    elif kind == "how":
        algorithm, _, origin = rest.split("/", 2)
        name = f"by {unquote(algorithm)}"
        trail += [_slash(), dcc.Link(_name(origin), href="/" + origin, className="trail")]
    return [*trail, _slash(), html.Span(name, className="trail ellipsis", title=name)]


def _name(address: str) -> str:
    return unquote(address).rstrip("/").rpartition("/")[2]


def _slash() -> Component:
    return html.Span("/", className="slash")


def _call_trail(trace: Trace, where: Mapping[str, Any]) -> list[Component]:
    """Return the breadcrumb of the call, its neighbours, and the list of all calls."""
    calls, k = trace.calls(), int(where["call"])
    here = html.Span(f"{calls[k].collective} #{_number(calls[k].coll_seq, k)}", className="here")
    if len(calls) == 1:
        return [_slash(), here]
    back = html.Button(
        [icon("left"), html.Span(f"#{_number(calls[k - 1].coll_seq, k - 1)}" if k else "–")],
        type="button", disabled=k == 0, **data(call=k - 1), **aria("Previous call"),
    )  # fmt: skip
    last = k == len(calls) - 1
    onward = html.Button(
        [html.Span("–" if last else f"#{_number(calls[k + 1].coll_seq, k + 1)}"), icon("right")],
        type="button", disabled=last, **data(call=k + 1), **aria("Next call"),
    )  # fmt: skip
    items = [
        html.Button(
            [
                html.Span(f"#{_number(call.coll_seq, j)}", className="mono muted"),
                html.Span(call.collective),
                html.Span(_group(trace, call.group), className="muted"),
            ],
            type="button",
            className="call-item here" if j == k else "call-item",
            **data(call=j),
        )
        for j, call in enumerate(calls)
    ]
    menu = dmc.Popover(
        [
            dmc.PopoverTarget(
                html.Button(
                    [icon("list")],
                    type="button",
                    className="icon-button",
                    **aria(f"All {len(calls)} calls"),
                )
            ),
            dmc.PopoverDropdown(html.Div(items, className="call-list"), p=6),
        ],
        width=280,
        position="bottom-start",
        shadow="none",
        radius=10,
    )
    return [_slash(), here, html.Div([back, onward], className="neighbours"), menu]


def _number(coll_seq: int | None, k: int) -> int:
    return k if coll_seq is None else coll_seq


def _group(trace: Trace, group: int) -> str:
    if group >= len(trace.meta.groups) or len(trace.meta.groups) == 1:
        return ""
    ranks = trace.meta.groups[group].ranks
    return "ranks " + ", ".join(map(str, ranks[:4])) + (", …" if len(ranks) > 4 else "")


_FORMS = (
    ("html", "HTML", "one file, plays anywhere"),
    ("gif", "GIF", "loops, for slides and chats"),
    ("mp4", "MP4", "sharp, for slides"),
    ("png", "PNG", "this moment"),
    ("svg", "SVG", "this moment, to edit"),
)


def _export_menu(where: Mapping[str, Any]) -> Component:
    items = [
        html.Button(
            [html.B(name), html.Span(words, className="muted")],
            type="button",
            className="export-item",
            **data(export=f"/export/{form}/{where['view']}/{where['call']}/{where['address']}"),
        )
        for form, name, words in _FORMS
    ]
    menu: Component = dmc.Popover(
        [
            dmc.PopoverTarget(
                html.Button(
                    [icon("download"), html.Span("Export")], type="button", className="button-ink"
                )
            ),
            dmc.PopoverDropdown(
                [*items, html.Div(id="export-note", className="note", role="status")], p=6
            ),
        ],
        width=264,
        position="bottom-end",
        shadow="none",
        radius=10,
    )
    return menu


def _how(library: Library, where: Mapping[str, Any]) -> Component:
    """Return the list of algorithms that could have done the call."""
    address, call = where["address"], int(where["call"])
    found = ways(library.trace(address), call)
    if not found:
        return html.P("No algorithm of the library does this collective on these ranks.")
    longest = max(way.time_ns for way in found) or 1
    rows = [
        dcc.Link(
            [
                html.B(way.algorithm.replace("_", " ")),
                html.Span(way.doc, className="muted"),
                html.Span(f"{way.steps} steps, {way.messages} messages", className="nowrap"),
                html.Div(html.I(style={"width": f"{100 * way.time_ns / longest:.1f}%"}),
                         className="bar"),
                html.Span(format_ns(way.time_ns), className="mono nowrap"),
            ],
            href=f"/how/{quote(way.algorithm)}/{call}/{address}",
            className="how-row",
        )
        for way in found
    ]  # fmt: skip
    note = (
        "The recording does not show what happened inside the call. Each of these does the same "
        f"work with the same inputs; times are simulated on {TOPOLOGY}."
    )
    return html.Div([html.P(note, className="muted"), html.Div(rows, className="how-rows")])


def register(app: Dash, library: Library) -> None:
    """Register what happens on the player page."""

    @app.callback(
        Output("film", "data"),
        Output("call-trail", "children"),
        Output("headline", "children"),
        Output("export", "children"),
        Input("where", "data"),
        State("film", "data"),
        prevent_initial_call=True,
    )
    def change(where: dict[str, Any], film: dict[str, Any]) -> Any:
        if all(film.get(name) == where.get(name) for name in ("address", "call", "view")):
            return [no_update] * 4
        story = library.story(where["address"], int(where["call"]))
        trace = library.trace(where["address"])
        return (
            _film(library, where),
            _call_trail(trace, where),
            _headline(story),
            _export_menu(where),
        )

    @app.callback(
        Output("inspect", "children"),
        Output("tabs", "value"),
        Input("selected", "data"),
        State("where", "data"),
        prevent_initial_call=True,
    )
    def select(selected: dict[str, Any] | None, where: dict[str, Any]) -> Any:
        if not selected:
            return nothing(), "state"
        trace = library.trace(where["address"])
        story = library.story(where["address"], int(where["call"]))
        return inspect(trace, story, selected), "message"

    @app.callback(
        Output("how-body", "children"),
        Output("how", "opened"),
        Input("asked-how", "data"),
        State("where", "data"),
        prevent_initial_call=True,
    )
    def how(asked: int | None, where: dict[str, Any]) -> Any:
        if not asked:
            return no_update, no_update
        try:
            return _how(library, where), True
        except (ScheduleError, ChunkscopeError) as error:
            return failure("This call cannot be simulated", str(error)), True

    for name, output, inputs in (
        ("show", Output("mounted", "children"), [Input("film", "data")]),
        ("view", Output("where", "data"), [Input("view", "value"), State("where", "data")]),
        (
            "goto",
            Output("where", "data", allow_duplicate=True),
            [Input("wish", "data"), State("where", "data"), State("film", "data")],
        ),
        ("copyLink", Output("copy-link", "data-copied"), [Input("copy-link", "n_clicks")]),
        ("letGo", Output("inspect-close", "data-n"), [Input("inspect-close", "n_clicks")]),
    ):
        app.clientside_callback(
            ClientsideFunction("chunkscope", name),
            output,
            *inputs,
            prevent_initial_call=name != "show",
        )
