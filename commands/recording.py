"""Commands that record a program and look after recordings."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .common import OUT, folder_for, opens, output, read_trace, serve_dashboard, settle, summarise
from .console import unused


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@output
@click.option(
    "--state",
    type=click.Choice(["none", "sample", "full"]),
    default="full",
    show_default=True,
    help="How much of each tensor to keep.",
)
@opens
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def record(output: Path | None, state: str, opens: bool, command: tuple[str, ...]) -> None:
    """Record an unmodified torch.distributed script.

    Every call of the script and of the processes that it starts is in the trace.

    COMMAND is a script with its arguments, or any command after `--`.

    \b
    Example: chunkscope record train.py --epochs 1
    """
    from ..traces.record.launch import run_recorded

    script = Path(next(iter(command))).stem
    path = output or unused(OUT / f"record-{script}")
    folder = folder_for(path)
    code = run_recorded(list(command), folder, state=state)
    settle(folder, path)
    if path.exists():
        summarise(read_trace(path), path, f"chunkscope open {path}", err=True)
    else:
        click.echo("Nothing was recorded: the program made no torch.distributed call.", err=True)
    if opens and path.exists():
        serve_dashboard(path)
    sys.exit(code)
