"""The command that compares the algorithms of a collective: compare."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import MissingExtra
from .common import OUT, as_json, model, model_of, ranks
from .console import print_lines, print_table, progress, unused

if TYPE_CHECKING:
    from ..sim.compare import Comparison
    from ..sim.compare.words import Table


@click.command()
@click.argument("collective")
@click.option(
    "-a",
    "--algorithm",
    "algorithms",
    multiple=True,
    metavar="NAME",
    help="One to compare, as NAME, NAME:segments=8 or FILE.py:FUNCTION; again for more [all].",
)
@ranks
@click.option("--topology", default="star", show_default=True, metavar="TEXT", help="The network.")
@click.option(
    "--sizes",
    default="1KiB:1GiB",
    show_default=True,
    metavar="TEXT",
    help="FROM:TO in powers of two, FROM:TO:x4, or a list with commas.",
)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--root", type=int, help="Rank of the root (0 if there must be one).")
@model
@click.option("--all", "show_all", is_flag=True, help="Print the times of every algorithm.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option(
    "--most-transfers",
    type=click.IntRange(1),
    default=10_000_000,
    show_default=True,
    metavar="N",
    help="Leave out algorithms with more.",
)
@as_json
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), help="Write all times.")
@click.option(
    "--html", "html_file", type=click.Path(path_type=Path), help="Where to write the figure."
)
@click.option("--theme", type=click.Choice(["light", "dark"]), default="light", show_default=True)
@click.option("--open", "opens", is_flag=True, help="Open the figure in a browser.")
def compare(
    collective: str,
    algorithms: tuple[str, ...],
    as_json: bool,
    csv_file: Path | None,
    html_file: Path | None,
    theme: str,
    opens: bool,
    show_all: bool,
    **words: Any,
) -> None:
    """Compare the algorithms of a collective over sizes.

    \b
    Example: chunkscope compare all_reduce -n 64 --topology dgx-h100x8 --sizes 1KiB:1GiB
    """
    found = _compared(collective, list(algorithms) or None, **words)
    if as_json:
        click.echo(found.to_json())
    else:
        _print(found, show_all=show_all)
    if csv_file is not None:
        _write(csv_file, found.to_csv(), quiet=as_json)
    if html_file is not None or opens or not (as_json or csv_file):
        _figure(found, html_file, theme, opens=opens, quiet=as_json)


def _compared(
    collective: str, algorithms: list[str] | None, *, jobs: int, **words: Any
) -> Comparison:
    """Return the comparison, computed under a progress bar."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from ..sim.compare import compare

    with ExitStack() as stack:
        tell = stack.enter_context(progress("Comparing"))
        executor = None
        if jobs > 1:
            context = get_context("spawn")
            executor = stack.enter_context(ProcessPoolExecutor(jobs, mp_context=context))
        return compare(
            collective,
            algorithms=algorithms,
            model=model_of(words),
            executor=executor,
            progress=tell,
            **words,
        )


def _print(found: Comparison, *, show_all: bool) -> None:
    from ..sim.compare import words

    print_lines(words.question(found), words.answer(found), "")
    for table in words.everything(found) if show_all else [words.best(found)]:
        _print_table(table)
        click.echo()
    for line in words.left_out(found):
        click.echo(f"Left out {line}")
    click.echo(words.basis(found))


def _print_table(table: Table) -> None:
    columns = list(zip(table.header, *table.rows, strict=True))
    aligned = []
    for column, numeric in zip(columns, table.numeric, strict=True):
        width = max(map(len, column)) if numeric and any(column[1:]) else 0
        aligned.append([cell.rjust(width) for cell in column])
    header, *rows = zip(*aligned, strict=True)
    print_table(header, rows)


def _figure(found: Comparison, path: Path | None, theme: str, *, opens: bool, quiet: bool) -> None:
    """Write the page; without plotly only where it was asked for."""
    try:
        from ..dashboard.comparison_page import page
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("chunkscope"):
            raise
        missing = MissingExtra("Figures", "dashboard", error.name)
        if path is not None or opens:
            raise missing from None
        click.echo(missing)
        return
    path = path or unused(OUT / f"compare-{found.collective}-{found.ranks}.html")
    _write(path, page(found, theme), quiet=quiet)
    if opens:
        click.launch(str(path))


def _write(path: Path, text: str, *, quiet: bool) -> None:
    from ..traces.atomic import replacing

    with replacing(path) as temp:
        temp.write_text(text, encoding="utf-8")
    click.echo(f"Wrote {path}", err=quiet)
