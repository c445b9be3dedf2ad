"""Commands that make a trace or a film: demo, sim, run, list, export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..units import format_bytes
from .common import (
    OUT,
    as_json,
    describe,
    folder_for,
    fresh,
    model,
    new_name,
    opens,
    output,
    plan,
    read_trace,
    serve_dashboard,
    settle,
    spec_of,
    summarise,
    topology,
    write_trace,
)
from .console import print_lines, print_table, progress


@click.command()
@click.option("--no-browser", is_flag=True, help="Print the address, open no browser.")
@click.option("--port", type=int, default=8050, show_default=True)
def demo(no_browser: bool, port: int) -> None:
    """Record a real ring all_reduce and show it.

    Four gloo processes run it; the same schedule is simulated beside it.

    \b
    Example: chunkscope demo
    """
    from ..sim.run import run_collective
    from ..sim.spec import Spec

    spec = Spec("all_reduce", "ring")
    recorded, simulated = OUT / "demo-recorded", OUT / "demo-simulated.jsonl"
    click.echo("Recording a ring all_reduce on 4 gloo processes ...")
    run_collective(spec, fresh(recorded))
    click.echo("Simulating the same schedule ...")
    write_trace(spec.trace(), simulated)
    trace = read_trace(recorded)
    summarise(trace, recorded, f"chunkscope diff {recorded} {simulated}")
    serve_dashboard(recorded, port=port, browser=not no_browser)


# Transfers above which a trace is written only where it was asked for: it takes gigabytes.
_TRACE_UP_TO = 200_000


@click.command()
@plan
@topology
@model
@output
@click.option("--detail", is_flag=True, help="Print bounds, links, the deciding chain and ranks.")
@as_json
@opens
def sim(output: Path | None, detail: bool, as_json: bool, opens: bool, **words: Any) -> None:
    """Simulate a collective on a topology.

    Tells the time it takes, what bounds it, and which transfers decide it, and writes its trace.

    \b
    Example: chunkscope sim all_reduce -a ring -n 8 --bytes 64MiB --topology ring:100GB/s,1us
    """
    from ..sim import report

    spec = spec_of(words)
    with progress("Simulating"):
        replay = spec.simulate()
        told = [] if as_json else list(report.summary(replay))
        more = list(report.details(replay)) if detail and not as_json else []
        facts = report.facts(replay) if as_json else {}
    path = output
    if path is None and (opens or len(replay.schedule) <= _TRACE_UP_TO):
        path = new_name("sim", replay.schedule, ".jsonl")
    if path is not None:
        with progress(f"Writing {path.name}"):
            write_trace(spec.trace(replay), path)
    if as_json:
        found = {"output": None if path is None else str(path)}
        click.echo(json.dumps(found | facts, indent=2))
    else:
        print_lines(f"Simulated {describe(spec, replay.bound)}", *told, *more)
        if path is None:
            n = f"{len(replay.schedule):,} transfers"
            print_lines(f"No trace written: it would hold {n}; -o FILE.parquet writes it")
        else:
            print_lines(f"Wrote {path}", f"Next: chunkscope open {path}")
    if opens and path is not None:
        serve_dashboard(path)


@click.command()
@plan
@click.option(
    "--backend",
    type=click.Choice(["gloo", "nccl"]),
    default="gloo",
    show_default=True,
    help="nccl: rank k on GPU k.",
)
@output
@as_json
@opens
def run(output: Path | None, as_json: bool, opens: bool, backend: str, **words: Any) -> None:
    """Run a schedule on real processes, recorded.

    Every send, recv and tensor state is in the trace.

    Starts the processes itself; inside torchrun it uses the group that is there.

    \b
    Example: chunkscope run all_reduce -a ring -n 4 --bytes 1MiB
    """
    from ..sim.run import run_collective

    spec = spec_of(words)
    path = output or new_name("run", spec.schedule(), "")
    folder = folder_for(path)
    with progress("Running"):
        reports = run_collective(spec, folder, backend=backend)
    if not reports:
        return  # another rank of the same job does
    settle(folder, path)
    trace = read_trace(path)
    if as_json:
        click.echo(json.dumps({"output": str(path), "events": len(trace)}, indent=2))
    else:
        summarise(trace, path, f"chunkscope open {path}")
    if opens:
        serve_dashboard(path)


@click.command("list")
@click.argument("what", metavar="[COLLECTIVE | topologies]", required=False)
@as_json
def list_(what: str | None, as_json: bool) -> None:
    """List the algorithms, or with the word topologies those.

    \b
    Example: chunkscope list all_reduce
    """
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    if what in ("topologies", "topology"):
        from ..sim.presets import catalogue

        header = ("topology", "example", "what it is")
        rows = [(entry.syntax, entry.example, entry.doc) for entry in catalogue()]
    else:
        from ..sim.library import algorithms

        header = ("collective", "algorithm", "ranks", "parameters", "what it does")
        rows = [
            (e.collective, e.name, e.sizes.text, ", ".join(e.parameters), e.doc)
            for e in algorithms(what)
        ]
    if as_json:
        click.echo(json.dumps([dict(zip(header, row, strict=True)) for row in rows], indent=2))
    else:
        print_table(header, rows)


@click.command()
@click.argument("source")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--view", type=click.Choice(["simple", "full"]), default="simple", show_default=True)
@click.option("--theme", type=click.Choice(["light", "dark"]), default="light", show_default=True)
@click.option("--size", default="1280x720", show_default=True, help="Width x height in pixels.")
@click.option("--fps", type=int, help="Frames a second (30; GIF 15).")
@click.option("--seconds", type=float, help="Length of the film without the holds at its ends.")
@click.option("--at", type=float, help="Moment for .png and .svg, in seconds of the film.")
@click.option("--call", type=int, help="Which collective call of the trace, from 0.")
@topology
def export(source: str, out: Path, size: str, topology: str | None, **how: Any) -> None:
    """Film a trace as html, gif, mp4, png or svg.

    SOURCE is a trace, or a short spec such as all_reduce:ring:4, which is simulated.

    \b
    Example: chunkscope export all_reduce:ring:4 ring.gif
    """
    from ..dashboard.export import export as film
    from ..sim.source import load_trace

    width, _, height = size.partition("x")
    if not (width.isdigit() and height.isdigit()):
        raise click.BadParameter(f"{size!r} is not WIDTHxHEIGHT", param_hint="--size")
    trace = load_trace(source, topology=topology)
    given = {name: value for name, value in how.items() if value is not None}
    with progress(f"Exporting {out.name}") as report:
        film(trace, out, size=(int(width), int(height)), progress=report, **given)
    click.echo(f"Wrote {out} ({format_bytes(out.stat().st_size)})")
