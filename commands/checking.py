"""Commands that compare and check: check, diff, verify."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .common import as_json, policy, ranks
from .console import progress

if TYPE_CHECKING:
    from ..sim.order import Policy


@click.command()
@click.argument("path", metavar="TRACE", type=click.Path(path_type=Path))
@click.option(
    "--collective",
    metavar="NAME",
    help="Read probes back: did every part go where this collective takes it?",
)
@click.option("--root", type=int, help="Group rank of the root, for sends and recvs of your own.")
@click.option("--late", is_flag=True, help="Tell who came last, even where there is a problem.")
@as_json
def check(path: Path, collective: str | None, root: int | None, late: bool, as_json: bool) -> None:
    """Say what went wrong in a recorded run.

    Names the rank that never arrived and where the others wait, calls that do not match across
    ranks, messages that nobody receives, and who came last. With --collective it reads back the
    tensors that `chunkscope.probe` made.

    Exit code 0: no problem; 1: a problem.

    \b
    Example: chunkscope check chunkscope-out/record-train
    """
    if collective is None:
        from ..sim.checking import check_recording
        from ..traces.files import read

        report = check_recording(read(path), late=late or None)
    else:
        from ..sim.probing import check_probes
        from ..sim.source import open_trace

        report = check_probes(open_trace(path), collective, root=root)
    click.echo(report.to_json() if as_json else report.to_text())
    sys.exit(0 if report.ok else 1)


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="[B]", required=False)
@click.option("--plan", is_flag=True, help="Compare A with what gloo's schedules say of its calls.")
@click.option(
    "--values", type=click.Choice(["exact", "close", "ignore"]), default="exact", show_default=True
)
@click.option("--times", is_flag=True, help="Compare times, too.")
@click.option("--level", type=click.Choice(["collective", "message"]), help="What to compare.")
@as_json
def diff(
    a: str, b: str | None, plan: bool, values: str, times: bool, level: str | None, as_json: bool
) -> None:
    """Compare two traces, or two schedules.

    With --plan there is one, recorded with --wire: its messages are compared with the schedules
    that gloo is known to follow, for the size and the inputs of each call.

    Exit code 0: the same; 1: they differ.

    \b
    Example: chunkscope diff chunkscope-out/demo-recorded chunkscope-out/demo-simulated.jsonl
             chunkscope diff --plan chunkscope-out/record-train
    """
    from ..sim.source import load, load_trace
    from ..sim.wire import compare as compare_with_plan
    from ..traces.diff import diff as compare

    if plan == (b is not None):
        raise click.UsageError("give two traces, or one with --plan")
    options: dict[str, Any] = {"values": values, "times": times, "level": level}
    with progress("Comparing"):
        if b is None:
            result = compare_with_plan(load_trace(a), **options)
        else:
            result = compare(load(a), load(b), **options)
    click.echo(result.to_json() if as_json else result.to_text())
    sys.exit(0 if result.same else 1)


@click.command()
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
    from ..sim.source import load_schedule
    from ..sim.verify import verify as check

    with progress("Verifying") as tell:
        plan = load_schedule(schedule, ranks=ranks, root=root)
        findings = check(plan, policy=policy, progress=tell)
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
