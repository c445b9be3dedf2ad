"""The command ``chunkscope``: one command, the same flags everywhere.

Exit codes: 0 done (same, valid), 1 different or invalid, 2 wrong usage or unreadable input.
Heavy parts (torch, Dash, skia) are imported by the commands that need them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .console import Commands, parse_size, print_summary, print_table, unused
from .errors import MissingExtra
from .units import format_Bps, format_bytes, format_ns

if TYPE_CHECKING:
    from .sim.order import Policy
    from .sim.spec import Spec
    from .traces.trace import Trace

OUT = Path("chunkscope-out")
F = TypeVar("F", bound=Callable[..., Any])


def options(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator for several options, applied in the order in which help lists them."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
algorithm = click.option(
    "-a",
    "--algorithm",
    metavar="NAME",
    help="Name (see `chunkscope list`), FILE.py:FUNCTION, PACKAGE.MODULE:FUNCTION or a text file.",
)
ranks = click.option("-n", "--ranks", type=int, default=4, show_default=True)
size = click.option(
    "--bytes",
    "size_bytes",
    metavar="SIZE",
    callback=parse_size,
    help="Whole data, as 64MiB, 1e9 or 16.",
)
topology = click.option("--topology", metavar="TEXT", help="Such as ring:100GB/s,1us or star.")
policy = click.option(
    "--policy",
    type=click.Choice(["dataflow", "rank_step", "lockstep"]),
    default="dataflow",
    show_default=True,
    help="When a message may start.",
)
output = click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to write.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for other programs.")
opens = click.option("--open", "opens", is_flag=True, help="Open the result in the dashboard.")
plan = options(
    click.argument("collective"),
    algorithm,
    ranks,
    size,
    click.option("--dtype", default="float32", show_default=True),
    click.option("--op", type=click.Choice(OPS), default="SUM", show_default=True),
    click.option("--root", type=int, help="Rank of the root (0 if there must be one)."),
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="chunkscope")
def main() -> None:
    """Watch a collective move: record it, simulate it, play it, film it and diff it.

    \b
    Example: chunkscope sim all_reduce --open
    """


@main.command()
@click.option("--no-browser", is_flag=True, help="Print the address, open no browser.")
@click.option("--port", type=int, default=8050, show_default=True)
def demo(no_browser: bool, port: int) -> None:
    """Record a real ring all_reduce and show it.

    Four gloo processes run it; the same schedule is simulated beside it.

    \b
    Example: chunkscope demo
    """
    from .sim.run import run_collective
    from .sim.spec import Spec

    spec = Spec("all_reduce", "ring")
    recorded, simulated = OUT / "demo-recorded", OUT / "demo-simulated.jsonl"
    click.echo("Recording a ring all_reduce on 4 gloo processes ...")
    run_collective(spec, _fresh(recorded))
    click.echo("Simulating the same schedule ...")
    _write(spec.trace(), simulated)
    trace = _read(recorded)
    _summarise(trace, recorded, f"chunkscope diff {recorded} {simulated}")
    _serve(recorded, port=port, browser=not no_browser)


@main.command()
@plan
@topology
@policy
@output
@as_json
@opens
def sim(output: Path | None, as_json: bool, opens: bool, **words: Any) -> None:
    """Simulate a collective on a topology.

    \b
    Example: chunkscope sim all_reduce -a ring -n 8 --bytes 64MiB --topology ring:100GB/s,1us
    """
    from .sim.cost import lower_bound_ns

    spec = _spec(words)
    replay = spec.simulate()
    path = output or _new_name("sim", spec, ".jsonl")
    trace = spec.trace()
    _write(trace, path)
    bound_ns = lower_bound_ns(replay)
    facts = {
        "output": str(path),
        "duration_ns": replay.duration_ns,
        "algbw_Bps": replay.algbw_Bps,
        "busbw_Bps": replay.busbw_Bps,
        "lower_bound_ns": bound_ns,
        "model": replay.model,
    }
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        print_summary(
            f"Simulated {_describe(spec)}",
            f"{format_ns(replay.duration_ns)} (lower bound {format_ns(bound_ns)}), "
            f"algbw {format_Bps(replay.algbw_Bps)}, busbw {format_Bps(replay.busbw_Bps)}",
            path,
            f"chunkscope open {path}",
        )
    if opens:
        _serve(path)


@main.command()
@plan
@output
@as_json
@opens
def run(output: Path | None, as_json: bool, opens: bool, **words: Any) -> None:
    """Run a schedule on real gloo processes, recorded.

    Every send, recv and tensor state is in the trace.

    Starts the processes itself; inside torchrun it uses the group that is there.

    \b
    Example: chunkscope run all_reduce -a ring -n 4 --bytes 1MiB
    """
    from .sim.run import run_collective

    spec = _spec(words)
    path = output or _new_name("run", spec, "")
    folder = _folder_for(path)
    if not run_collective(spec, folder):
        return  # another rank of the same job reports
    _settle(folder, path)
    trace = _read(path)
    if as_json:
        click.echo(json.dumps({"output": str(path), "events": len(trace)}, indent=2))
    else:
        _summarise(trace, path, f"chunkscope open {path}")
    if opens:
        _serve(path)


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
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
    from .traces.record.launch import run_recorded

    script = Path(next(iter(command))).stem
    path = output or unused(OUT / f"record-{script}")
    folder = _folder_for(path)
    code = run_recorded(list(command), folder, state=state)
    _settle(folder, path)
    if path.exists():
        _summarise(_read(path), path, f"chunkscope open {path}", err=True)
    else:
        click.echo("Nothing was recorded: the program made no torch.distributed call.", err=True)
    if opens and path.exists():
        _serve(path)
    sys.exit(code)


@main.command("open")
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
    _serve(path or _newest(), host=host, port=port, browser=not no_browser)


@main.command()
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
    from .traces import show as words

    trace = _read(path)
    rows = words.by_time(trace, trace.where(**{k: v for k, v in filters.items() if v is not None}))
    shown = rows[:limit] if limit > 0 else rows
    if as_json:
        click.echo(json.dumps([trace.events.row(int(row)) for row in shown], indent=2))
        return
    click.echo("\n".join(words.summary(trace)))
    print_table(*words.event_rows(trace, shown))
    if len(shown) < len(rows):
        click.echo(f"... and {len(rows) - len(shown):,} more (--limit 0 shows all)")


@main.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--values", type=click.Choice(["exact", "close", "ignore"]), default="exact", show_default=True
)
@click.option("--times", is_flag=True, help="Compare times, too.")
@click.option("--level", type=click.Choice(["collective", "message"]), help="What to compare.")
@as_json
def diff(a: str, b: str, values: str, times: bool, level: str | None, as_json: bool) -> None:
    """Compare two traces, or two schedules.

    Exit code 0: the same; 1: they differ.

    \b
    Example: chunkscope diff chunkscope-out/demo-recorded chunkscope-out/demo-simulated.jsonl
    """
    from .sim.source import load
    from .traces.diff import diff as compare

    result = compare(load(a), load(b), values=values, times=times, level=level)
    click.echo(result.to_json() if as_json else result.to_text())
    sys.exit(0 if result.same else 1)


@main.command("list")
@click.argument("collective", required=False)
@as_json
def list_(collective: str | None, as_json: bool) -> None:
    """List the algorithms.

    \b
    Example: chunkscope list all_reduce
    """
    from .sim.library import algorithms

    header = ("collective", "algorithm", "ranks", "what it does")
    rows = [(e.collective, e.name, e.sizes.text, e.doc) for e in algorithms(collective)]
    if as_json:
        click.echo(json.dumps([dict(zip(header, row, strict=True)) for row in rows], indent=2))
    else:
        print_table(header, rows)


@main.command()
@click.argument("schedule")
@ranks
@click.option("--root", type=int, help="Rank of the root (0 if there must be one).")
@policy
@as_json
def verify(schedule: str, ranks: int, root: int | None, policy: Policy, as_json: bool) -> None:
    """Check a schedule symbolically.

    SCHEDULE is a text file, COLLECTIVE:ALGORITHM[:RANKS] or FILE.py:FUNCTION.

    \b
    Example: chunkscope verify all_reduce:ring:4
    """
    from .sim.source import load_schedule
    from .sim.verify import verify as check

    plan = load_schedule(schedule, ranks=ranks, root=root)
    findings = check(plan, policy=policy)
    name = f"{plan.collective} by {plan.algorithm} on {plan.group_size} ranks"
    if as_json:
        rows = [
            {"code": f.code, "place": f.place, "step": f.step, "row": f.row, "message": f.message}
            for f in findings
        ]
        click.echo(json.dumps({"schedule": name, "findings": rows}, indent=2))
    elif findings:
        for finding in findings:
            click.echo(f"{finding.code}: {finding.message}")
        click.echo(f"{name}: {len(findings)} finding{'s' * (len(findings) > 1)}")
    else:
        plan_size = f"{len(plan)} transfers in {plan.n_steps} steps"
        click.echo(f"{name}: valid ({plan_size}, policy {policy})")
    sys.exit(0 if all(f.harmless for f in findings) else 1)


@main.command()
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
    from rich.progress import Progress

    from .dashboard.export import export as film
    from .sim.source import load_trace

    width, _, height = size.partition("x")
    if not (width.isdigit() and height.isdigit()):
        raise click.BadParameter(f"{size!r} is not WIDTHxHEIGHT", param_hint="--size")
    trace = load_trace(source, topology=topology)
    with Progress(transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(f"Exporting {out.name}", total=None)
        film(
            trace,
            out,
            size=(int(width), int(height)),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            **{name: value for name, value in how.items() if value is not None},
        )
    click.echo(f"Wrote {out} ({format_bytes(out.stat().st_size)})")


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Example: chunkscope completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    completer = get_completion_class(shell)
    assert completer is not None
    click.echo(completer(main, {}, "chunkscope", "_CHUNKSCOPE_COMPLETE").source())


def _spec(words: dict[str, Any]) -> Spec:
    from .sim.spec import Spec

    return Spec(**words)


def _describe(spec: Spec) -> str:
    bound = spec.bound()
    where = f" on {spec.topology}" if spec.topology else ""
    name = bound.schedule.algorithm
    size = format_bytes(bound.size_bytes)
    return f"{spec.collective} by {name}, {spec.ranks} ranks, {size} of {spec.dtype}{where}"


def _new_name(verb: str, spec: Spec, suffix: str) -> Path:
    schedule = spec.schedule()
    return unused(OUT / f"{verb}-{schedule.collective}-{schedule.algorithm}-{spec.ranks}{suffix}")


def _folder_for(path: Path) -> Path:
    """Return the folder to record in: the path, or one beside it where it is a file's name."""
    from .traces.files import FORMATS

    is_file = any(path.suffix and path.suffix in form.suffixes for form in FORMATS)
    return unused(path.with_suffix(".recording")) if is_file else path


def _settle(folder: Path, path: Path) -> None:
    """Write what was recorded in the folder to the path, if that is another one."""
    import shutil

    if folder != path and folder.exists():
        _write(_read(folder), path)
        shutil.rmtree(folder)


def _fresh(folder: Path) -> Path:
    """Return an empty place for the demo's recording, whose old one is replaced."""
    import shutil

    if folder.exists():
        shutil.rmtree(folder)
    return folder


def _newest() -> Path:
    """Return the newest trace under chunkscope-out, else the samples that ship with chunkscope."""
    found = [path for path in OUT.iterdir() if path.suffix != ".tmp"] if OUT.is_dir() else []
    if found:
        return max(found, key=lambda path: path.stat().st_mtime)
    return Path(__file__).parent / "dashboard" / "samples"


def _read(path: Path) -> Trace:
    from .traces.files import read

    return read(path)


def _write(trace: Trace, path: Path) -> None:
    from .traces.files import write

    path.parent.mkdir(parents=True, exist_ok=True)
    write(trace, path)


def _serve(path: Path, *, host: str = "127.0.0.1", port: int = 8050, browser: bool = True) -> None:
    try:
        from .dashboard.app import serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("chunkscope"):
            raise
        raise MissingExtra("The dashboard's pages", "dashboard", error.name) from None

    # What the commands wrote is shown with its neighbours, one click away; of any other place only
    # what was asked for.
    folder, first = (OUT, path) if OUT.resolve() in path.resolve().parents else (path, None)
    with suppress(KeyboardInterrupt):  # Ctrl-C is how it ends, whatever it is doing
        serve(folder, first=first, host=host, port=port, open_browser=browser, say=click.echo)


def _summarise(trace: Trace, path: Path, following: str, *, err: bool = False) -> None:
    from .traces.show import summary

    first, second, *_ = [*summary(trace), "no collective calls"]
    print_summary(first, second, path, following, err=err)
