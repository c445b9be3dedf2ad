"""How near predictions come to real runs; writes docs/accuracy.md.

    sudo python tests/benchmarks/accuracy.py            # measure, keep the numbers, write the page
    python tests/benchmarks/accuracy.py --write         # write the page from the numbers kept

On hosts that are network namespaces with links shaped to 100 Mbit/s, `chunkscope fit` measures the
group and writes a topology. Then gloo's own collectives and executed schedules run there, and
beside them stand the step model on that topology, the closed form and SimGrid, the last two with
the latency and the rate of ping-pong alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _simgrid
from _shaped import MISSING, are_possible, hosts, run_on

import chunkscope
from chunkscope import Topology
from chunkscope.errors import ScheduleError
from chunkscope.sim.bind import BoundSchedule
from chunkscope.sim.closed import closed_form
from chunkscope.units import format_bytes

HERE = Path(__file__).resolve()
NUMBERS = HERE.with_suffix(".json")
PAGE = HERE.parents[2] / "docs" / "accuracy.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
RATE = "100mbit"
# Ranks, and how their TCP grows its window: as the system has it, or as fast as it can.
GROUPS = ("4", "2", "8", "4-reno")
RENO = {
    "net/ipv4/tcp_congestion_control": "reno",
    "net/ipv4/tcp_slow_start_after_idle": "0",
}
SIZES = tuple(1 << k for k in range(16, 25))
BAR = 0.05
PAUSE_S = 0.005  # in which a bucket of 32 KB at 100 Mbit/s fills again
# Ranks go before what else the machine does: all of them share its cores, which real hosts do not.
FIRST = ("chrt", "--fifo", "1") if shutil.which("chrt") else ()
NATIVE_STEPS = {"all_reduce": "ring", "broadcast": "tree"}  # textbook's name of what gloo does
SIMGRID = {
    "ring": ("allreduce", "lr"),
    "recursive_doubling": ("allreduce", "rdb"),
    "halving_doubling": ("allreduce", "rab_rdb"),
    "tree": ("bcast", "binomial_tree"),
}


@dataclass(frozen=True, slots=True)
class Case:
    """What runs for real: gloo's own collective, or one of our schedules.

    Attributes:
        collective: Name of the collective.
        algorithm: Name of the schedule; `gloo` runs the collective of torch.distributed.
        sizes_bytes: Sizes of the tensor.
    """

    collective: str
    algorithm: str
    sizes_bytes: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.collective} {self.algorithm}"

    @property
    def title(self) -> str:
        if self.algorithm == "gloo":
            return f"native {self.collective}"
        return f"executed {self.algorithm} {self.collective}"

    @property
    def textbook(self) -> str:
        """Name of the algorithm that closed forms and SimGrid know."""
        return NATIVE_STEPS[self.collective] if self.algorithm == "gloo" else self.algorithm

    def bound(self, n: int, size_bytes: int) -> BoundSchedule:
        """Return the schedule that the step model replays."""
        follows_size = self.name == "all_reduce gloo"
        sized = {"size_bytes": size_bytes, "itemsize": 4} if follows_size else {}
        schedule = chunkscope.build(self.collective, self.algorithm, n, **sized)
        return schedule.bind(size_bytes // 4, "float32")


FEW = (1 << 16, 1 << 19, 1 << 22)
CASES = (
    Case("all_reduce", "gloo", SIZES),
    Case("all_reduce", "ring", SIZES),
    Case("all_reduce", "recursive_doubling", FEW),
    Case("all_reduce", "halving_doubling", FEW),
    Case("broadcast", "gloo", FEW),
)


def worker(rounds: int) -> None:
    """Be one rank; rank 0 prints the seconds of each case, size and round."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    n = dist.get_world_size()
    taken: dict[str, dict[int, list[float]]] = {case.name: {} for case in CASES}
    for number in range(rounds + 1):
        for case in CASES:
            schedule = chunkscope.build(case.collective, case.algorithm, n)
            for size in case.sizes_bytes:
                if number == 0 and size > 1 << 20:
                    continue  # the first round only warms up
                tensor = torch.zeros(size // 4)
                for _ in range(times_a_round(size)):
                    dist.barrier()
                    time.sleep(PAUSE_S)
                    dist.barrier()
                    begin = time.perf_counter()
                    if case.algorithm != "gloo":
                        chunkscope.execute(schedule, tensor)
                    elif case.collective == "broadcast":
                        dist.broadcast(tensor, 0)
                    else:
                        dist.all_reduce(tensor)
                    seconds = time.perf_counter() - begin
                    if number:
                        taken[case.name].setdefault(size, []).append(seconds)
    every: list[Any] = [None] * n
    dist.all_gather_object(every, taken)
    if dist.get_rank() == 0:
        slowest = {
            name: {
                size: [max(times) for times in zip(*(rank[name][size] for rank in every))]
                for size in by_size
            }
            for name, by_size in taken.items()
        }
        print(json.dumps(slowest))
    dist.destroy_process_group()


def times_a_round(size_bytes: int) -> int:
    return 4 if size_bytes < 1 << 18 else 2 if size_bytes < 1 << 21 else 1


def measure(group: str, rounds: int) -> dict[str, Any]:
    """Fit a group of shaped hosts and run the cases on it."""
    load = os.getloadavg()[0]
    n, _, tcp = group.partition("-")
    settings = RENO if tcp else None
    with tempfile.TemporaryDirectory() as folder, hosts(int(n), RATE, settings) as names:
        topology = Path(folder) / "machine.json"
        command = [*FIRST, sys.executable, "-m", "chunkscope", "fit", "-o", str(topology), "--json"]
        fitted = json.loads(run_on(names, command, timeout=170)[0])
        fitted.pop("output")
        command = [*FIRST, sys.executable, str(HERE), "--worker", str(rounds)]
        taken = json.loads(run_on(names, command, timeout=170)[0])
        return {
            "ranks": int(n),
            "tcp": tcp,
            "rate": RATE,
            "load": [round(load, 2), round(os.getloadavg()[0], 2)],
            "fit": fitted,
            "topology": json.loads(topology.read_text()),
            "seconds": taken,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table; times in milliseconds, None where something does not know the case."""

    case: Case
    size_bytes: int
    fastest: float
    median: float
    model: float
    closed: float | None
    simgrid: float | None


def rows_of(found: dict[str, Any]) -> Iterator[Row]:
    """Yield what was measured beside what was predicted."""
    n, link = found["ranks"], found["fit"]["link"]
    machine = Topology.from_json(json.dumps(found["topology"]))
    for case in CASES:
        for text, seconds in found["seconds"][case.name].items():
            size = int(text)
            bound = case.bound(n, size)
            yield Row(
                case,
                size,
                min(seconds) * 1e3,
                statistics.median(seconds) * 1e3,
                chunkscope.simulate(bound, machine).duration_ns / 1e6,
                closed_ms(case, n, size, link),
                simgrid_ms(case, found, size),
            )


def closed_ms(case: Case, n: int, size_bytes: int, link: dict[str, float]) -> float | None:
    try:
        terms = closed_form(case.collective, case.textbook, n, size_bytes)
    except ScheduleError:
        return None
    return terms.time_ns(link["latency_ns"], link["alone_Bps"]) / 1e6


def simgrid_ms(case: Case, found: dict[str, Any], size_bytes: int) -> float | None:
    """Return what SimGrid says; kept beside the numbers, since each takes it two seconds."""
    told = found.setdefault("simgrid_ms", {})
    key = f"{case.textbook} {size_bytes}"
    if key not in told and size_bytes in FEW and _simgrid.version() is not None:
        n, link = found["ranks"], found["fit"]["link"]
        plain = f"star:{link['alone_Bps']:.6f}B/s,{link['latency_ns'] / 2:.3f}ns"
        names = SIMGRID[case.textbook]
        theirs = _simgrid.Case(
            case.collective, case.textbook, *names, plain, n, size_bytes=size_bytes
        )
        with tempfile.TemporaryDirectory() as folder:
            _simgrid.write_files(theirs, Path(folder))
            ended = _simgrid.replay(theirs, Path(folder), timeout_s=60)
        told[key] = float(ended.end_s.max()) * 1e3
    return told.get(key)


def page_of(kept: dict[str, Any]) -> str:
    """Return what stands between the marks of the page."""
    parts = []
    for found in kept.values():
        rows = list(rows_of(found))
        parts += [section(found), table(rows), summary(rows)]
    return "\n\n".join(parts)


def section(found: dict[str, Any]) -> str:
    """Return a group's heading, what `chunkscope fit` found, and when."""
    link, load = found["fit"]["link"], found["load"]
    burst = link["burst_bytes"]
    saved = f", {burst / 1000:.1f} kB at once after a pause" if burst else ""
    return (
        f"### {found['ranks']} ranks{', TCP Reno' if found['tcp'] else ''}\n\n"
        f"Fit: {link['latency_ns'] / 1e3:.0f} µs a message in a ping-pong, "
        f"{link['step_ns'] / 1e3:.0f} µs in a ring; {link['alone_Bps'] / 1e6:.2f} MB/s alone, "
        f"{link['bandwidth_Bps'] / 1e6:.2f} MB/s while all ranks send{saved}. The machine's load "
        f"was {load[0]} before and {load[1]} after."
    )


def table(rows: list[Row]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| | size | fastest, ms | median, ms | step model, ms | off fastest | off median "
        "| closed form | SimGrid |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    before = None
    for row in rows:
        title = "" if row.case is before else row.case.title
        before = row.case
        lines.append(
            f"| {title} | {format_bytes(row.size_bytes)} | {row.fastest:.2f} | {row.median:.2f} "
            f"| {row.model:.2f} | {off(row.model, row.fastest)} | {off(row.model, row.median)} "
            f"| {off(row.closed, row.median)} | {off(row.simgrid, row.median)} |"
        )
    return "\n".join(lines)


def off(said: float | None, measured: float) -> str:
    return "" if said is None else f"{said / measured - 1:+.1%}"


def summary(rows: list[Row]) -> str:
    """Return in how many cases that have a bar it was met."""
    barred = [row for row in rows if row.case in CASES[:2]]
    near = [abs(row.model / row.fastest - 1) <= BAR for row in barred]
    usual = [abs(row.model / row.median - 1) <= BAR for row in barred]
    plain = [row.closed is not None and abs(row.closed / row.median - 1) <= BAR for row in barred]
    return (
        f"Native all_reduce and executed ring, within {BAR:.0%}: the step model in {sum(near)} of "
        f"{len(barred)} cases of the fastest run and in {sum(usual)} of the median, the closed "
        f"form in {sum(plain)} of the median."
    )


def write_page(kept: dict[str, Any]) -> None:
    """Put the tables between the marks of the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{page_of(kept)}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", type=int, metavar="ROUNDS", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="only write the page")
    parser.add_argument("--groups", nargs="*", default=GROUPS, choices=GROUPS)
    parser.add_argument("--measure", action="store_true", help="only measure, write no page")
    parser.add_argument("--rounds", type=int, default=3, help="how often all is measured")
    given = parser.parse_args()
    if given.worker:
        worker(given.worker)
        return
    kept = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    if not given.write:
        if not are_possible():
            print(f"accuracy: shaped hosts are {MISSING}")
            return
        for group in given.groups:
            kept[group] = measure(group, given.rounds)
            NUMBERS.write_text(json.dumps(kept) + "\n")
    if not given.measure:
        write_page({group: kept[group] for group in GROUPS if group in kept})
        NUMBERS.write_text(json.dumps(kept) + "\n")


if __name__ == "__main__":
    main()
