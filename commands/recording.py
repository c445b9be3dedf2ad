"""Commands that record a program, and that join or strip recordings."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .common import (
    OUT,
    folder_for,
    opens,
    options,
    output,
    read_trace,
    serve_dashboard,
    settle,
    summarise,
    write_trace,
)
from .console import parse_size, unused

if TYPE_CHECKING:
    from ..traces.record.options import Options


class ProgramCommand(click.Command):
    """A command whose arguments are another program's, `--` before it included."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; click drops the `--`, which here says that no script but a command follows."""
        words = list(args)
        rest = super().parse_args(ctx, args)
        command = ctx.params["command"]
        if words[: len(words) - len(command)][-1:] == ["--"]:
            ctx.params["command"] = ("--", *command)
        return rest


kept = options(
    click.option(
        "--state",
        type=click.Choice(["none", "sample", "full"]),
        help="How much of each tensor to keep.  [default: full; none on a GPU]",
    ),
    click.option("--wire", is_flag=True, help="Keep every message inside native gloo, too."),
    click.option(
        "--wire-payload",
        metavar="digest|whole|SIZE",
        help="Of each message's bytes: a digest above 64 KiB, all, or the first ones.",
    ),
    click.option("--stack", type=int, metavar="N", help="Frames to keep of each call's stack."),
    click.option("--only", metavar="A,B", help="Only these, such as all_reduce,send."),
    click.option("--keep-last", type=int, metavar="N", help="Only the last N calls a process."),
    click.option(
        "--max-bytes",
        metavar="SIZE",
        callback=parse_size,
        help="Of tensor data a process; then states go on without.",
    ),
)


@click.command(
    cls=ProgramCommand,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@output
@click.option("-n", "--ranks", type=int, help="Start COMMAND as this many ranks of one job.")
@kept
@click.option("--env", is_flag=True, help="Only print what to set where no launcher can run.")
@opens
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def record(
    output: Path | None,
    ranks: int | None,
    env: bool,
    opens: bool,
    command: tuple[str, ...],
    **given: Any,
) -> None:
    """Record an unmodified torch.distributed program.

    Every call of the program and of the Python processes that it starts is in the trace.

    COMMAND is a script with its arguments, -m and a module, or any command after `--`, such as
    `-- torchrun train.py`. The exit code is the program's, with -n that of the first rank that
    failed; the others are then stopped.

    Several hosts: the same command on each, with one shared folder or a local one each, which
    `chunkscope merge` joins. CHUNKSCOPE_RUN names the job where neither torchrun's rendezvous,
    Slurm nor MASTER_ADDR and MASTER_PORT do.

    The options can stand in the environment as well (CHUNKSCOPE_STATE, CHUNKSCOPE_WIRE=digest,
    CHUNKSCOPE_STACK, CHUNKSCOPE_ONLY, CHUNKSCOPE_KEEP_LAST, CHUNKSCOPE_MAX_BYTES). Without a
    launcher: eval "$(chunkscope record --env -o FOLDER)", then start the program as ever.

    \b
    Example: chunkscope record -n 2 train.py --epochs 1
    """
    from ..traces.record.launch import run_recorded

    chosen = _options(given)
    if env:
        _print_variables(output, chosen)
        return
    if not command:
        raise click.UsageError("nothing to run: give a script, -m and a module, or -- and more")
    if ranks is not None and ranks < 1:
        raise click.BadParameter(f"{ranks} is less than 1", param_hint="'-n'")
    path = output or unused(OUT / f"record-{_name_of(command)}")
    folder = folder_for(path)
    code = run_recorded(
        list(command),
        folder,
        options=chosen,
        ranks=ranks,
        say=lambda text: click.echo(f"chunkscope: {text}", err=True),
    )
    settle(folder, path)
    if path.exists():
        summarise(read_trace(path), path, f"chunkscope open {path}", err=True)
    else:
        click.echo("Nothing was recorded: the program made no torch.distributed call.", err=True)
    if opens and path.exists():
        serve_dashboard(path)
    sys.exit(code)


@click.command()
@click.option("--force", is_flag=True, help="Join folders that name different runs, too.")
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
def merge(out: Path, folders: tuple[Path, ...], force: bool) -> None:
    """Join the recording folders of one job.

    One from each host, say: their clocks are aligned when the result is opened. OUT is a new
    folder, or a .jsonl or .parquet file. FOLDERS stay as they are.

    \b
    Example: chunkscope merge night night-ada night-bob
    """
    from ..traces.merge import merge as join

    folder = folder_for(out)
    join(folder, folders, force=force)
    settle(folder, out)
    summarise(read_trace(out), out, f"chunkscope open {out}")


@click.command()
@click.argument("path", metavar="TRACE", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--keep-values", is_flag=True, help="Leave what tensors held.")
@click.option("--keep-paths", is_flag=True, help="Leave lines, files and names of the program.")
@click.option("--keep-hosts", is_flag=True, help="Leave host names and process ids.")
def strip(path: Path, out: Path, keep_values: bool, keep_paths: bool, keep_hosts: bool) -> None:
    """Take out values, paths and host names before a trace is shared.

    OUT is a .jsonl or .parquet file, or a new folder. TRACE stays as it is.

    \b
    Example: chunkscope strip chunkscope-out/run run.parquet
    """
    from ..sim.library import algorithms
    from ..traces.strip import strip as stripped

    known = {entry.name for entry in algorithms()}
    trace = stripped(
        read_trace(path),
        values=not keep_values,
        paths=not keep_paths,
        hosts=not keep_hosts,
        keep=known,
    )
    write_trace(trace, out)
    summarise(trace, out, f"chunkscope open {out}")


def _options(given: dict[str, Any]) -> Options:
    """Return what the environment says, with the command line's options before it."""
    from dataclasses import replace

    from ..traces.record.options import Options

    wire, payload = given.pop("wire"), given.pop("wire_payload")
    if given["only"] is not None:
        given["only"] = tuple(filter(None, given["only"].split(",")))
    try:
        found = Options.from_environment()
        if wire or payload is not None:
            given["wire"] = _payload(payload) or found.wire or "digest"
        return replace(found, **{name: value for name, value in given.items() if value is not None})
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _payload(text: str | None) -> str | None:
    """Return what to keep of a message's bytes as `Options.wire` has it."""
    from ..traces.record.options import WIRE_PAYLOADS
    from ..units import parse_bytes

    if text is None or text in WIRE_PAYLOADS:
        return text
    try:
        return str(parse_bytes(text))
    except ValueError:
        choices = ", ".join(WIRE_PAYLOADS)
        raise ValueError(f"wire payload {text!r} is none of {choices} and no size") from None


def _name_of(command: tuple[str, ...]) -> str:
    """Return a name for the recording of a command: that of its script, module or program."""
    words = [word for word in command if word not in ("--", "-m")]
    return Path(next(iter(words), "program")).stem


def _print_variables(output: Path | None, chosen: Options) -> None:
    """Print the export lines of a shell that record what is started in it."""
    from ..traces.record.folder import new_run
    from ..traces.record.launch import recording_variables

    folder = output or unused(OUT / "record")
    for name, value in recording_variables(folder, new_run(), chosen).items():
        click.echo(f"export {name}={shlex.quote(value)}")
