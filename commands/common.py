"""What several commands share: options, names for output, and how a trace is read and shown."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import MissingExtra
from ..sim.model_text import OPTIONS
from ..units import format_bytes
from .console import parse_size, print_summary, unused

if TYPE_CHECKING:
    from ..sim.bind import BoundSchedule
    from ..sim.model import Model
    from ..sim.schedule import Schedule
    from ..sim.spec import Spec
    from ..traces.trace import Trace

OUT = Path("chunkscope-out")
F = TypeVar("F", bound=Callable[..., Any])


def options(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator for several options, applied in the order in which help lists them."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
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


def _read_option(name: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a click callback that reads the text of a parameter of the model."""

    def read(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> Any:
        try:
            return OPTIONS[name].read(texts) if texts else None
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return read


model = options(
    policy,
    click.option("--no-sharing", is_flag=True, help="Each message has its links for itself."),
    *(
        click.option(
            option.flag,
            name,
            multiple=True,
            metavar=option.metavar,
            callback=_read_option(name),
            help=option.help,
        )
        for name, option in OPTIONS.items()
    ),
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


def spec_of(words: dict[str, Any]) -> Spec:
    from ..sim.spec import Spec

    return Spec(model=model_of(words), **words)


def model_of(words: dict[str, Any]) -> Model:
    """Return the model that the options in `model` say, and take them out of the words."""
    from ..sim.model import Model

    sharing = not words.pop("no_sharing", False)
    given = {name: words.pop(name, None) for name in ("policy", *OPTIONS)}
    known = {name: value for name, value in given.items() if value is not None}
    return Model(sharing=sharing, **known)


def describe(spec: Spec, bound: BoundSchedule) -> str:
    where = f" on {spec.topology}" if spec.topology else ""
    name = bound.schedule.algorithm
    size = format_bytes(bound.size_bytes)
    return f"{spec.collective} by {name}, {spec.ranks} ranks, {size} of {spec.dtype}{where}"


def new_name(verb: str, schedule: Schedule, suffix: str) -> Path:
    name = f"{verb}-{schedule.collective}-{schedule.algorithm}-{schedule.group_size}{suffix}"
    return unused(OUT / name)


def folder_for(path: Path) -> Path:
    """Return the folder to record in: the path, or one beside it where it is a file's name."""
    from ..traces.files import FORMATS

    is_file = any(path.suffix and path.suffix in form.suffixes for form in FORMATS)
    return unused(path.with_suffix(".recording")) if is_file else path


def settle(folder: Path, path: Path) -> None:
    """Write what was recorded in the folder to the path, if that is another one."""
    import shutil

    if folder != path and folder.exists():
        write_trace(read_trace(folder), path)
        shutil.rmtree(folder)


def fresh(folder: Path) -> Path:
    """Return an empty place for the demo's recording, whose old one is replaced."""
    import shutil

    if folder.exists():
        shutil.rmtree(folder)
    return folder


def newest() -> Path:
    """Return the newest trace under chunkscope-out, else the samples that ship with chunkscope."""
    # Pages and tables of a comparison lie there as well.
    other = (".tmp", ".html", ".csv")
    found = [path for path in OUT.iterdir() if path.suffix not in other] if OUT.is_dir() else []
    if found:
        return max(found, key=lambda path: path.stat().st_mtime)
    return Path(__file__).parent.parent / "dashboard" / "samples"


def read_trace(path: Path) -> Trace:
    """Return a trace, with the messages that a wire tap saw joined to their calls."""
    from ..sim.wire import annotate
    from ..traces.files import read

    return annotate(read(path))


def write_trace(trace: Trace, path: Path) -> None:
    from ..traces.files import write

    path.parent.mkdir(parents=True, exist_ok=True)
    write(trace, path)


def serve_dashboard(
    path: Path, *, host: str = "127.0.0.1", port: int = 8050, browser: bool = True
) -> None:
    try:
        from ..dashboard.app import serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("chunkscope"):
            raise
        raise MissingExtra("The dashboard's pages", "dashboard", error.name) from None

    # What the commands wrote is shown with its neighbours, one click away; of any other place only
    # what was asked for.
    folder, first = (OUT, path) if OUT.resolve() in path.resolve().parents else (path, None)
    with suppress(KeyboardInterrupt):  # Ctrl-C is how it ends, whatever it is doing
        serve(folder, first=first, host=host, port=port, open_browser=browser, say=click.echo)


def summarise(trace: Trace, path: Path, following: str, *, err: bool = False) -> None:
    from ..traces.show import summary

    first, second, *_ = [*summary(trace), "no collective calls"]
    print_summary(first, second, path, following, err=err)
