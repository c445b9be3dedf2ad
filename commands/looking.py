"""Commands that look at a trace: open, show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from .common import as_json, newest, read_trace, serve_dashboard
from .console import print_table


@click.command("open")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=int, default=8050, show_default=True)
@click.option("--no-browser", is_flag=True, help="Print the address, open no browser.")
def open_(path: Path | None, host: str, port: int, no_browser: bool) -> None:
    """Open the dashboard on a trace or a folder.

    Without PATH it opens the newest trace under chunkscope-out, else the samples.

    \b
    Example: chunkscope open chunkscope-out
    """
    serve_dashboard(path or newest(), host=host, port=port, browser=not no_browser)


@click.command()
@click.argument("path", metavar="TRACE", type=click.Path(path_type=Path))
@click.option("--rank", type=int, help="Only this rank.")
@click.option("--kind", help="Only collective, send, recv, reduce, copy, wait or group events.")
@click.option("--collective", help="Only this collective, such as all_reduce.")
@click.option("--step", type=int, help="Only this step.")
@click.option("--limit", type=int, default=50, show_default=True, help="Events to print; 0: all.")
@as_json
def show(path: Path, limit: int, as_json: bool, **filters: Any) -> None:
    """Print a trace for a person.

    \b
    Example: chunkscope show chunkscope-out/run --rank 2 --kind send
    """
    from ..traces import show as words

    trace = read_trace(path)
    rows = words.by_time(trace, trace.where(**{k: v for k, v in filters.items() if v is not None}))
    shown = rows[:limit] if limit > 0 else rows
    if as_json:
        click.echo(json.dumps([trace.events.row(int(row)) for row in shown], indent=2))
        return
    click.echo("\n".join(words.summary(trace)))
    print_table(*words.event_rows(trace, shown))
    if len(shown) < len(rows):
        click.echo(f"... and {len(rows) - len(shown):,} more (--limit 0 shows all)")
