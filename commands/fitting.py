"""The command that measures a machine: fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..units import format_Bps, format_bytes, format_ns
from .common import as_json, ranks
from .console import print_table

if TYPE_CHECKING:
    from ..sim.fitting import LinkFit, MachineFit


@click.command()
@ranks
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("machine.json"),
    show_default=True,
    help="Topology file to write.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="How often everything is measured; the fastest counts.",
)
@as_json
def fit(ranks: int, output: Path, rounds: int, as_json: bool) -> None:
    """Measure this machine and write it as a topology.

    Ping-pong between pairs and one ring, over gloo: the file has the latency, the rate and the cost
    of a message that explain them best. Predictions with it are for this machine.

    Starts the processes itself; inside torchrun, or where RANK, WORLD_SIZE, MASTER_ADDR and
    MASTER_PORT are set on several hosts, it measures the group that is there.

    \b
    Example: chunkscope fit -n 4 -o machine.json
    """
    from ..sim.fitting import fit as fitted
    from ..sim.measuring import Effort, measure_machine

    measured = measure_machine(ranks, Effort(rounds=rounds))
    if measured is None:
        return  # another rank of the same job reports
    found = fitted(measured)
    found.write(output)
    if as_json:
        click.echo(json.dumps({"output": str(output), **found.to_dict()}, indent=2))
    else:
        _print(found, output)


def _print(found: MachineFit, output: Path) -> None:
    """Print the links, how well they explain what was measured, and what to try next."""
    n = len(found.hosts)
    hosts = len(set(found.hosts))
    where = "one host" if hosts == 1 else f"{hosts} hosts"
    click.echo(f"Measured {n} ranks on {where}; a rank reduces {format_Bps(found.reduce_Bps)}")
    if found.inside is not None:
        click.echo("Inside the hosts:")
        _print_link(found.inside)
        click.echo("Between the hosts:")
    _print_link(found.link)
    click.echo(f"Wrote {output}")
    click.echo(f"Next: chunkscope sim all_reduce -a gloo -n {n} --bytes 4MiB --topology {output}")


# From such an error on, something else was measured than the links.
_POOR = 0.5


def _print_link(link: LinkFit) -> None:
    burst = (
        f", {format_bytes(round(link.burst_bytes))} at once after a pause"
        if link.burst_bytes
        else ""
    )
    click.echo(
        f"  a message: {format_ns(link.latency_ns)}, in a ring {format_ns(link.step_ns)}\n"
        f"  a link: {format_Bps(link.alone_Bps)} alone, "
        f"{format_Bps(link.bandwidth_Bps)} while all ranks send{burst}\n"
        f"  the fit is off by {link.worst:.1%} at most:"
    )
    columns: list[tuple[Any, ...]] = list(
        zip(
            link.size_bytes,
            link.one_way_ns,
            link.one_way_fit_ns,
            link.ring_ns,
            link.ring_fit_ns,
            strict=True,
        )
    )
    print_table(
        ("  message", "ping-pong", "fit", "", "ring", "fit", ""),
        [
            (
                f"  {format_bytes(int(size))}",
                format_ns(one_way),
                format_ns(one_way_fit),
                f"{one_way_fit / one_way - 1:+.1%}",
                format_ns(ring),
                format_ns(ring_fit),
                f"{ring_fit / ring - 1:+.1%}",
            )
            for size, one_way, one_way_fit, ring, ring_fit in columns
        ],
    )
    if link.worst > _POOR:
        click.echo(
            "  Links do not explain this: measure when the machine is idle, or more --rounds."
        )
