"""The Simulate panel: pick a collective, watch it at once, compare its time with others'."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from ...errors import ChunkscopeError, ScheduleError, TopologyError
from ...sim.algorithms import ALGORITHMS
from ...sim.cost import lower_bound_ns
from ...sim.library import algorithms
from ...sim.spec import Spec
from ...sim.topology import parse as parse_topology
from ...units import format_Bps, format_ns, parse_bytes
from ..figures import familiar, size_chart, times_by_size
from ..library import MAX_RANKS, address_of, checked, default_of, spec_of
from .parts import badge, copy_button, icon

TOPOLOGIES = (
    "ring:100GB/s,1us",
    "star:25GB/s,5us",
    "line:100GB/s,1us",
    "fully:100GB/s,1us",
    "two-level:2x4:100GB/s,1us:10GB/s,5us",
)
DEBOUNCE_MS = 150
# Ranks that can still be told apart in the panel's small picture.
PREVIEW_UP_TO = 16
FIELDS = ("collective", "algorithm", "ranks", "bytes", "topology")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the panel says about a simulated run.

    Attributes:
        time_ns, bound_ns, busbw_Bps: Duration, lower bound on this topology, bus bandwidth.
        others: Name and duration of each algorithm that fits, the fastest first.
    """

    time_ns: int
    bound_ns: float
    busbw_Bps: float
    others: tuple[tuple[str, int], ...]


def outcome(spec: Spec) -> Outcome:
    """Return the time of a spec, and those of familiar algorithms with the same settings.

    Raises:
        ChunkscopeError: The spec makes no sense.
    """
    replay = spec.simulate()
    others = {}
    for entry in familiar(spec.collective, replay.schedule.algorithm):
        if entry.name == replay.schedule.algorithm:
            others[entry.name] = replay.duration_ns
        elif entry.sizes.fits(spec.ranks):
            with suppress(TopologyError):  # it needs a switch that is not there
                others[entry.name] = replace(spec, algorithm=entry.name).simulate().duration_ns
    return Outcome(
        time_ns=replay.duration_ns,
        bound_ns=lower_bound_ns(replay),
        busbw_Bps=replay.busbw_Bps,
        others=tuple(sorted(others.items(), key=lambda pair: pair[1])),
    )


def read_form(
    collective: str, algorithm: str | None, ranks: Any, size: str | None, topology: str | None
) -> tuple[Spec | None, dict[str, str]]:
    """Return the spec that the fields describe, or None, and what is wrong by field."""
    spec = Spec(collective, algorithm)
    try:
        spec = checked(replace(spec, ranks=int(ranks) if str(ranks).strip() else 0))
        spec.schedule()
    except (ValueError, TypeError) as error:
        return None, {"ranks": str(error)}
    try:
        spec = replace(spec, size_bytes=parse_bytes(size) if size and size.strip() else None)
        checked(spec).bound()
    except ValueError as error:
        return None, {"bytes": str(error)}
    try:
        spec = replace(spec, topology=topology.strip() if topology and topology.strip() else None)
        parse_topology(spec.topology or "ring", spec.ranks)
        spec.simulate()
    except TopologyError as error:
        return None, {"topology": str(error)}
    except ScheduleError as error:
        return None, {"algorithm": str(error)}
    return spec, {}


def panel() -> Component:
    """Return the panel, set to a ring all_reduce."""
    collectives = list(dict.fromkeys(name for name, _ in ALGORITHMS))
    chevron = icon("down")
    fields = [
        dmc.Select(
            id="sim-collective", label="Collective", value="all_reduce", data=collectives,
            allowDeselect=False, rightSection=chevron,
        ),
        dmc.Select(
            id="sim-algorithm", label="Algorithm", value="ring", allowDeselect=False,
            data=[entry.name for entry in algorithms("all_reduce")], rightSection=chevron,
        ),
        dmc.NumberInput(
            id="sim-ranks", label="Ranks", value=4, min=1, max=MAX_RANKS, allowDecimal=False,
            clampBehavior="none", debounce=DEBOUNCE_MS,
        ),
        dmc.TextInput(
            id="sim-bytes", label="Bytes", value="64 MiB", debounce=DEBOUNCE_MS,
            className="mono-input", spellCheck=False,
        ),
        dmc.Autocomplete(
            id="sim-topology", label="Topology", value=TOPOLOGIES[0], data=list(TOPOLOGIES),
            debounce=DEBOUNCE_MS, className="mono-input wide", filter={"function": "showAll"},
        ),
    ]  # fmt: skip
    numbers = html.Dl(
        [
            html.Div([html.Dt(label), html.Dd("–", id=ident)])
            for label, ident in (
                ("Time", "sim-time"), ("Lower bound", "sim-bound"), ("Bus bandwidth", "sim-busbw"),
            )
        ],
        className="sim-numbers",
    )  # fmt: skip
    actions = html.Div(
        [
            dcc.Link("Open in the player", id="sim-open", href="/", className="button-ink"),
            html.Div(id="sim-command", className="sim-command"),
        ],
        className="sim-actions",
    )
    return html.Aside(
        [
            html.Div([html.H2("Simulate"), badge("simulated")], className="sim-head"),
            html.Div(fields, className="sim-fields"),
            html.Div(html.Div(id="sim-player"), id="sim-preview", className="sim-preview"),
            numbers,
            html.Div(
                [
                    html.Div(
                        [
                            html.Span("Same settings, other algorithms"),
                            html.Button(
                                "Time by size", id="sim-chart", type="button", className="linked"
                            ),
                        ],
                        className="note sim-note",
                    ),
                    html.Div(id="sim-others"),
                ],
                className="sim-others",
            ),
            actions,
            dcc.Store(id="sim-film"),
            dcc.Store(id="sim-spec"),
            dmc.Modal(html.Div(id="chart-body"), id="chart", size=748, title="Time by size"),
        ],
        className="panel sim",
    )


def _preview(spec: Spec, address: str) -> dict[str, Any]:
    if spec.ranks > PREVIEW_UP_TO:
        words = f"The small picture shows up to {PREVIEW_UP_TO} ranks; the player shows them all."
        return {"url": None, "words": words}
    return {"url": f"/film/simple/0/{address}", "panels": ["stage"]}


def bars(others: tuple[tuple[str, int], ...], chosen: str | None) -> list[Component]:
    """Return one line an algorithm: name, bar, time."""
    longest = max((time_ns for _, time_ns in others), default=0) or 1
    return [
        html.Div(
            [
                html.Span(name.replace("_", " ")),
                html.Div(
                    html.I(style={"width": f"{100 * time_ns / longest:.1f}%"}), className="bar"
                ),
                html.Span(format_ns(time_ns), className="mono"),
            ],
            className="sim-bar chosen" if name == chosen else "sim-bar",
        )
        for name, time_ns in others
    ]


def register(app: Dash) -> None:
    """Register what happens in the panel."""

    @app.callback(
        Output("sim-algorithm", "data"),
        Output("sim-algorithm", "value"),
        Input("sim-collective", "value"),
        State("sim-algorithm", "value"),
        prevent_initial_call=True,
    )
    def offer(collective: str, algorithm: str | None) -> Any:
        names = [entry.name for entry in algorithms(collective)]
        return names, algorithm if algorithm in names else default_of(collective)

    @app.callback(
        *[Output(f"sim-{field}", "error") for field in FIELDS],
        Output("sim-preview", "className"),
        Output("sim-film", "data"),
        Output("sim-time", "children"),
        Output("sim-bound", "children"),
        Output("sim-busbw", "children"),
        Output("sim-others", "children"),
        Output("sim-open", "href"),
        Output("sim-command", "children"),
        Output("sim-spec", "data"),
        *[Input(f"sim-{field}", "value") for field in FIELDS],
    )
    def simulate(
        collective: str, algorithm: str | None, ranks: Any, size: str | None, topology: str | None
    ) -> Any:
        names = [entry.name for entry in algorithms(collective)]
        if algorithm not in names:
            algorithm = default_of(collective)  # the list of algorithms is about to change
        spec, errors = read_form(collective, algorithm, ranks, size, topology)
        shown = [errors.get(field) for field in FIELDS]
        if spec is None:
            return [*shown, "sim-preview stale", *[no_update] * 8]
        try:
            found = outcome(spec)
        except ChunkscopeError as error:
            return [*shown[:4], str(error), "sim-preview stale", *[no_update] * 8]
        address = address_of(spec)
        button = copy_button(
            spec.command(),
            "Copy the command",
            children=[icon("copy"), "Command"],
            copied=[icon("check"), "Copied"],
            variant="default",
        )
        return [
            *shown,
            "sim-preview",
            _preview(spec, address),
            format_ns(found.time_ns),
            format_ns(found.bound_ns),
            format_Bps(found.busbw_Bps),
            bars(found.others, spec.algorithm),
            f"/{address}",
            button,
            address,
        ]

    @app.callback(
        Output("chart-body", "children"),
        Output("chart", "opened"),
        Input("sim-chart", "n_clicks"),
        State("sim-spec", "data"),
        prevent_initial_call=True,
    )
    def chart(clicks: int | None, address: str | None) -> Any:
        if not clicks or not address:
            return no_update, no_update
        spec = spec_of(address.partition("/")[2])
        curves = times_by_size(spec)
        graphs = [
            html.Div(
                dcc.Graph(
                    figure=size_chart(curves, spec.algorithm, theme),
                    config={"displayModeBar": False},
                ),
                className=f"only-{theme}",
            )
            for theme in ("light", "dark")
        ]
        ranks = "1 rank" if spec.ranks == 1 else f"{spec.ranks} ranks"
        words = f"Simulated: {spec.collective} on {ranks}, {spec.topology or 'ring'}."
        return [html.P(words, className="muted"), *graphs], True

    app.clientside_callback(
        ClientsideFunction("chunkscope", "preview"),
        Output("sim-player", "data-film"),
        Input("sim-film", "data"),
    )
