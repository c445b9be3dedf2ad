"""What the step model takes: seconds, bytes a transfer, and how both grow.

    python tests/benchmarks/model_speed.py                  # about 5 minutes
    python tests/benchmarks/model_speed.py --only ring      # one of its lines
    python tests/benchmarks/model_speed.py --against 1024   # a ring for SimGrid that takes minutes

Each load runs in a process of its own, warm: kernels are loaded and a small load has passed. The
best of three runs counts, or as many as fit into 20 seconds. Bars are held against CPU seconds,
which hardly depend on what else the machine does; one thread does all. Memory is what the process
had at its peak, less what it had before the first run.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from math import inf, log
from pathlib import Path
from typing import Any

PARTS = ("build", "bind", "simulate", "verify")
MODEL = PARTS[:3]
RATE = "12.5GB/s,1us"
# No run starts after so many seconds, and a load that takes so many is stopped.
ENOUGH_S, TOO_LONG_S = 20.0, 120.0


@dataclass(frozen=True, slots=True)
class Load:
    """A schedule on a network, as large as it is measured.

    Attributes:
        collective, algorithm: What is built.
        network: Text of the topology.
        n_ranks: Number of ranks.
        model: Parameters of the step model.
        routing: Which of the shortest paths messages take; None for the network's own way.
    """

    collective: str
    algorithm: str
    network: str
    n_ranks: int
    model: dict[str, Any] = field(default_factory=dict)
    routing: str | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """What a load took.

    Attributes:
        transfers: Rows of the schedule.
        cpu_s, wall_s: Of each part, the least of all runs.
        model_bytes: At the peak of building, binding and simulating.
        all_bytes: At the peak of verifying as well.
    """

    transfers: int
    cpu_s: dict[str, float]
    wall_s: dict[str, float]
    model_bytes: int
    all_bytes: int

    def of(self, parts: tuple[str, ...]) -> tuple[float, float]:
        """Return CPU and wall seconds of parts together."""
        return sum(self.cpu_s[part] for part in parts), sum(self.wall_s[part] for part in parts)


TORUS = "torus:16x16:12.5GB/s,0us"
RING = Load("all_reduce", "ring", f"star:{RATE}", 1024)
JITTER = Load("all_reduce", "ring", f"star:{RATE}", 1024, {"jitter": 0.1})
# Half as many links up as down: messages meet, many of them alike.
DOUBLING = Load(
    *("all_reduce", "recursive_doubling", f"fat-tree:32x2:{RATE}", 16_384), routing="destination"
)
# Paths by a hash: messages meet as chance has it, and hardly two end at one time.
HASHED = Load("all_reduce", "recursive_doubling", f"fat-tree:16x2:{RATE}", 2048)
EXCHANGE = Load("all_to_all", "pairwise", TORUS, 256)
FLOWS = Load("all_to_all", "direct", TORUS, 256)
# Ranks of rings with 65 thousand transfers, and four times as many each.
CURVE = (181, 362, 724, 1448, 2897)


def peak_bytes() -> int:
    """Return the most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_once(load: Load, topology: Any) -> Taken:
    """Return what a load takes in this process, once."""
    import chunkscope

    cpu: dict[str, float] = {}
    wall: dict[str, float] = {}

    def timed(part: str, what: Callable[[], Any]) -> Any:
        cpu_start, start = time.process_time(), time.perf_counter()
        done = what()
        cpu[part], wall[part] = time.process_time() - cpu_start, time.perf_counter() - start
        return done

    names = load.collective, load.algorithm, load.n_ranks
    schedule = timed("build", lambda: chunkscope.build(*names))
    bound = timed("bind", lambda: schedule.bind(load.n_ranks * 1000, "float32"))
    replay = timed("simulate", lambda: chunkscope.simulate(bound, topology, **load.model))
    assert replay.duration_ns > 0
    model_bytes = peak_bytes()
    assert timed("verify", lambda: chunkscope.verify(schedule)) == []
    return Taken(len(schedule), cpu, wall, model_bytes, peak_bytes())


def run_warm(load: Load) -> Taken:
    """Return what a load takes in this process, the best of several runs."""
    import chunkscope
    from chunkscope.sim.compiled import expecting
    from chunkscope.sim.topology import Routing

    with expecting(1 << 20):
        topology = chunkscope.topology(load.network, load.n_ranks)
        if load.routing is not None:
            topology = replace(topology, routing=Routing(load.routing))
        small = Load(load.collective, load.algorithm, "torus:4x4", 16, load.model)
        run_once(small, chunkscope.topology(small.network, small.n_ranks))
        before, start = peak_bytes(), time.perf_counter()
        runs = [run_once(load, topology)]
        while len(runs) < 3 and time.perf_counter() - start < ENOUGH_S:
            runs.append(run_once(load, topology))
    return Taken(
        runs[0].transfers,
        {part: min(run.cpu_s[part] for run in runs) for part in PARTS},
        {part: min(run.wall_s[part] for run in runs) for part in PARTS},
        runs[0].model_bytes - before,
        runs[-1].all_bytes - before,
    )


def measure(load: Load) -> Taken | None:
    """Return what a load takes in a process of its own; None if it fails or takes too long."""
    words = [sys.executable, __file__, "--load", json.dumps(asdict(load))]
    try:
        done = subprocess.run(
            words, stdout=subprocess.PIPE, text=True, timeout=TOO_LONG_S, check=True
        )
    except subprocess.SubprocessError:
        return None
    return Taken(**json.loads(done.stdout))


def show(what: str, measured: tuple[float, float] | None, must: float, aim: float) -> None:
    """Print CPU and wall seconds (inf for too many), and which bar they meet, if there is one."""
    cpu, wall = measured or (inf, inf)
    met = "aim" if cpu <= aim else "must" if cpu <= must else "missed"
    bars = f"{must:>9g}{aim:>8g}  {met}" if must < inf else ""
    print(f"{what:<60}{cpu:>10.3f} s{wall:>10.3f} s{bars}", flush=True)


def show_number(what: str, number: float, unit: str, must: float, aim: float) -> None:
    """Print bytes, the fewer the better, or a ratio, the higher the better, and its bar."""
    sign = -1 if must < aim else 1
    met = next(
        (bar for bar, at in (("aim", aim), ("must", must)) if sign * number <= sign * at), ""
    )
    print(
        f"{what:<60}{number:>10.0f} {unit}{'':>12}{must:>9g}{aim:>8g}  {met or 'missed'}",
        flush=True,
    )


def ring() -> None:
    """Show the large ring, and what it takes of memory."""
    taken = measure(RING)
    name = "ring, 1,024 ranks, star"
    show(f"{name}: build, verify, simulate", taken and taken.of(PARTS), 1.5, 1.5)
    show(f"{name}: build, simulate", taken and taken.of(MODEL), 1.5, 0.5)
    if taken is not None:
        print("  " + ", ".join(f"{part} {taken.cpu_s[part]:.3f} s" for part in PARTS))
        a_transfer = 1 / taken.transfers
        show_number("  memory a transfer", taken.model_bytes * a_transfer, "B", 120, 80)
        show_number("  memory a transfer, verified", taken.all_bytes * a_transfer, "B", 120, 80)


def process() -> None:
    """Show the large ring as a process that prints its summary."""
    words = "-m chunkscope sim all_reduce -a ring -n 1024 --bytes 64MB --topology"
    command = [sys.executable, *words.split(), f"star:{RATE}"]
    taken = []
    with tempfile.TemporaryDirectory() as temp:
        for _ in range(4):  # the first only warms up
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(command, cwd=temp, stdout=subprocess.DEVNULL, timeout=300, check=True)
            after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            taken.append((cpu, wall))
    best = min(cpu for cpu, _ in taken[1:]), min(wall for _, wall in taken[1:])
    show("  as a process that prints its summary", best, 3, 2)


def doubling() -> None:
    """Show recursive doubling where messages meet."""
    taken = measure(DOUBLING)
    show("recursive doubling, 16,384 ranks, fat tree 2:1", taken and taken.of(MODEL), 1, 0.1)
    taken = measure(HASHED)
    show("  2,048 ranks, paths by a hash", taken and taken.of(MODEL), inf, inf)


def flows() -> None:
    """Show many messages at once."""
    taken = measure(FLOWS)
    show("65,280 messages at once, torus 16x16", taken and taken.of(MODEL), 3, 0.5)


def jitter() -> None:
    """Show a ring in which no two messages end at one time."""
    taken = measure(JITTER)
    show("ring, 1,024 ranks, star, 10 % jitter", taken and taken.of(MODEL), 10, 2)


def routes() -> None:
    """Show all paths of a fat tree, its links sorted and tabled included."""
    import numpy as np

    import chunkscope
    from chunkscope.sim.routing import Routes

    topology = chunkscope.topology(f"fat-tree:16x1:{RATE}", 1024)
    src, dst = np.divmod(np.arange(1024 * 1024), 1024)
    taken = []
    for _ in range(6):  # the first only warms up
        cpu, start = time.process_time(), time.perf_counter()
        Routes(topology).paths(src, dst)
        taken.append((time.process_time() - cpu, time.perf_counter() - start))
    best = min(cpu for cpu, _ in taken[1:]), min(wall for _, wall in taken[1:])
    show("all routes of a fat tree of 1,024 hosts", best, 0.1, 0.02)


def against(n_ranks: int) -> None:
    """Show how many times faster than SimGrid's replay two loads are, in turn with it."""
    from _simgrid import Case, compare, version

    from chunkscope.sim.compiled import expecting

    if version() is None:
        print("against SimGrid: left out, it needs smpirun (Debian: libsimgrid-dev)")
        return
    ring = Case("all_reduce", "ring", "allreduce", "lr", f"star:{RATE}", n_ranks)
    exchange = Case("all_to_all", "pairwise", "alltoall", "pair", TORUS, 256)
    with tempfile.TemporaryDirectory() as temp, expecting(1 << 20):
        for case, must, aim in ((ring, 40, 140), (exchange, 4, 15)):
            pair = compare(case, Path(temp), 3 if case.n_ranks < 1024 else 1)
            what = f"{case.algorithm}, {case.n_ranks:,} ranks, {case.network.partition(':')[0]}"
            words = f"{what}: faster than SimGrid ({pair.theirs[0]:.2f} s)"
            show_number(words, pair.theirs[0] / pair.ours[0], "x", must, aim)


def curve() -> None:
    """Show how time and memory grow with the transfers of a ring."""
    parts = "".join(f"{part:>10}" for part in PARTS)
    print(f"\n{'ranks':>6}{'transfers':>12}{parts}{'exponent':>10}{'B a transfer, verified':>24}")
    before = None
    for n in CURVE:
        taken = measure(Load("all_reduce", "ring", f"star:{RATE}", n))
        if taken is None:
            print(f"{n:>6}{2 * n * (n - 1):>12,}  failed, or over {TOO_LONG_S:.0f} s")
            return
        parts = "".join(f"{taken.cpu_s[part]:>10.3f}" for part in PARTS)
        now = taken.transfers, taken.of(PARTS)[0]
        grown = "" if before is None else f"{log(now[1] / before[1], now[0] / before[0]):.2f}"
        size, verified = taken.model_bytes / now[0], taken.all_bytes / now[0]
        print(f"{n:>6}{now[0]:>12,}{parts}{grown:>10}{size:>14.0f}{verified:>10.0f}", flush=True)
        before = now


def lines(asked: argparse.Namespace) -> Iterator[Callable[[], None]]:
    """Yield what to show."""
    known = [ring, process, doubling, flows, jitter, routes]
    known += [lambda: against(asked.against), curve]
    for name, line in zip(LINES, known, strict=True):
        if asked.only in (None, name):
            yield line


LINES = ("ring", "process", "doubling", "flows", "jitter", "routes", "against", "curve")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=LINES, help="one line")
    parser.add_argument("--against", type=int, default=256, help="ranks of SimGrid's ring")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.load is not None:
        print(json.dumps(asdict(run_warm(Load(**json.loads(asked.load))))))
        return
    print(f"{'':<60}{'CPU':>12}{'wall':>12}{'must':>9}{'aim':>8}  met")
    for line in lines(asked):
        line()


if __name__ == "__main__":
    main()
