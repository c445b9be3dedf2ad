"""SimGrid's simulator of MPI as a reference: it replays the same collective on the same network.

    case = Case("all_reduce", "ring", "allreduce", "lr", "star:12.5GB/s,1us", 8)
    ours, theirs = case.simulate(), replay(case, folder)

Debian's package libsimgrid-dev has all of it, and no compiler is needed. A platform file holds the
links of our Topology and the paths that our Routes found for the messages of our schedule, so that
both simulate the same network. Where SimGrid sends a message that our schedule has not, it stops.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import chunkscope
from chunkscope.sim.routing import Routes
from chunkscope.sim.topology import Routing

# What makes both models mean the same, and is not SimGrid's default.
FLAGS = (
    "--cfg=network/model:CM02",  # latency, then max-min shares of the links
    "--cfg=network/TCP-gamma:0",  # no window that bounds the rate of a long path
    "--cfg=network/crosstraffic:no",  # no acknowledgements
    "--cfg=smpi/send-is-detached-thresh:0",  # a small send, too, is over when it has arrived
    "--cfg=surf/precision:1e-12",  # seconds within which events are one
    "--cfg=smpi/simulate-computation:no",
    "--cfg=smpi/wtime:0",
)
HEADER_BYTES = 16  # the envelope that each message carries there
_TELL = (
    "--cfg=contexts/stack-size:256",
    "--cfg=contexts/guard-size:0",
    "--log=root.thres:critical",
    # Every digit of when each rank is done, which the reports of the replay alone would round.
    "--log=root.fmt:%.17r%e%h%e%m%n",
    "--log=smpi_replay.thres:verbose",
)


@dataclass(frozen=True, slots=True)
class Case:
    """A collective on a network, in our words and in SimGrid's.

    Attributes:
        collective, algorithm: Ours.
        action, selector: SimGrid's names of both.
        network: Text of the topology.
        n_ranks: Number of ranks.
        routing: Which of the shortest paths messages take; None for the network's own way.
        size_bytes: Bytes of the whole vector; a multiple of the ranks.
    """

    collective: str
    algorithm: str
    action: str
    selector: str
    network: str
    n_ranks: int
    routing: str | None = None
    size_bytes: int = 64_000_000

    @property
    def topology(self) -> chunkscope.Topology:
        """The network."""
        topology = chunkscope.topology(self.network, self.n_ranks)
        return (
            topology if self.routing is None else replace(topology, routing=Routing(self.routing))
        )

    def bind(self) -> Any:
        """Return our schedule with its sizes."""
        schedule = chunkscope.build(self.collective, self.algorithm, self.n_ranks)
        return schedule.bind(self.size_bytes, "uint8")

    def simulate(self, topology: chunkscope.Topology | None = None) -> Any:
        """Return our replay, with schedule and sizes made anew."""
        return chunkscope.simulate(
            self.bind(),
            self.topology if topology is None else topology,
            policy="rank_step",
            header_bytes=HEADER_BYTES,
        )

    @property
    def action_line(self) -> str:
        """What a rank does, as SimGrid's replay reads it; 6 is a datatype of one byte."""
        size, block = self.size_bytes, self.size_bytes // self.n_ranks
        words = {"allreduce": f"{size} 0 6", "bcast": f"{size} 0 6"}
        return f"{self.action} {words.get(self.action, f'{block} {block} 6 6')}"


@dataclass(frozen=True, slots=True)
class Found:
    """What a replay said, and what it took.

    Attributes:
        end_s: When each rank was done, in seconds, (ranks,).
        cpu_s, wall_s: Of the whole process.
    """

    end_s: np.ndarray
    cpu_s: float
    wall_s: float


def version() -> str | None:
    """Return SimGrid's version, such as ``3.32``; None where it is not installed."""
    if shutil.which("smpirun") is None:
        return None
    told = subprocess.run(
        ["smpirun", "-version"], capture_output=True, text=True, timeout=30, check=True
    )
    return told.stdout.split()[-1]


def ends_s(ours: Any) -> np.ndarray:
    """Return when each rank has sent and written all that it must, in seconds, (ranks,)."""
    end_ns = np.zeros(ours.schedule.group_size)
    np.maximum.at(end_ns, ours.schedule.src, ours.arrived_ns)
    np.maximum.at(end_ns, ours.schedule.dst, ours.written_ns)
    return end_ns / 1e9


def replay(
    case: Case, folder: Path, *, flags: Sequence[str] = FLAGS, timeout_s: float = 900.0
) -> Found:
    """Return when SimGrid has each rank done with a collective.

    Args:
        case: What to run.
        folder: Where the files for SimGrid are, from `write_files`.
        flags: How SimGrid models.
        timeout_s: Seconds after which it is stopped, with `subprocess.TimeoutExpired`.
    """
    command = [
        *("smpirun", "-no-privatize", "-np", str(case.n_ranks)),
        *("-platform", "platform.xml", "-hostfile", "hosts"),
        *(*flags, *_TELL, f"--cfg=smpi/{case.action}:{case.selector}", "-replay", "replay"),
    ]
    before, began = os.times(), time.perf_counter()
    told = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    after, ended = os.times(), time.perf_counter()
    end_s = np.full(case.n_ranks, np.nan)
    for line in told.stderr.splitlines():
        words = line.split()
        if len(words) > 3 and words[3] == case.action:
            end_s[int(words[2])] = float(words[0])
    if told.returncode or np.isnan(end_s).any():
        raise RuntimeError(f"SimGrid failed ({told.returncode}): {told.stderr[-800:]}")
    cpu_s = sum(after[2:4]) - sum(before[2:4])  # of children
    return Found(end_s, cpu_s, ended - began)


@dataclass(frozen=True, slots=True)
class Pair:
    """Both models' answers to a case, and the best of what they took."""

    case: Case
    messages: int
    ours_s: np.ndarray
    theirs_s: np.ndarray
    ours: tuple[float, float]  # CPU and wall seconds
    theirs: tuple[float, float]

    @property
    def difference(self) -> float:
        """Largest relative difference of a rank's end."""
        return float(np.abs(self.ours_s / self.theirs_s - 1).max())


def compare(case: Case, folder: Path, rounds: int) -> Pair:
    """Return what both say, running in turn."""
    write_files(case, folder)
    topology = case.topology
    case.simulate(topology)  # warm: kernels are loaded
    ours, theirs = [], []
    for number in range(rounds):
        for which in ((0, 1), (1, 0))[number % 2]:
            if which:
                found = replay(case, folder)
                theirs.append((found.cpu_s, found.wall_s))
            else:
                cpu, wall = time.process_time(), time.perf_counter()
                done = case.simulate(topology)
                ours.append((time.process_time() - cpu, time.perf_counter() - wall))
    first = done.schedule.messages.first_row
    messages = int((done.schedule.src[first] != done.schedule.dst[first]).sum())
    best = [tuple(map(min, zip(*taken))) for taken in (ours, theirs)]
    return Pair(case, messages, ends_s(done), found.end_s, *best)


def write_files(case: Case, folder: Path) -> None:
    """Write the network and what each rank does, for `replay`."""
    n = case.n_ranks
    with (folder / "platform.xml").open("w", encoding="utf-8") as file:
        file.writelines(_platform(case))
    (folder / "hosts").write_text("".join(f"h{rank}\n" for rank in range(n)))
    lines = (f"{rank} init\n{rank} {case.action_line}\n{rank} finalize\n" for rank in range(n))
    (folder / "actions").write_text("".join(lines))
    (folder / "replay").write_text("actions\n")


def _platform(case: Case) -> Iterator[str]:
    """Yield the lines of the platform file: hosts, links, and the paths that messages take."""
    yield '<?xml version="1.0"?>\n<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
    yield '<platform version="4.1"><zone id="all" routing="Full">\n'
    for rank in range(case.n_ranks):
        yield f'<host id="h{rank}" speed="1Gf"/>\n'
    routes = Routes(case.topology)
    links = routes.links
    for link, (rate, latency) in enumerate(zip(links.rate.tolist(), links.latency_ns.tolist())):
        yield f'<link id="{link}" bandwidth="{rate * 1e9!r}Bps" latency="{latency / 1e9!r}s"/>\n'
    schedule = case.bind().schedule
    src, dst = np.unique(np.stack([schedule.src, schedule.dst]), axis=1)
    paths = routes.paths(src, dst)
    for a, b, path in zip(src.tolist(), dst.tolist(), paths.pair.tolist()):
        if a != b:
            on = paths.links[paths.starts[path] : paths.starts[path + 1]].tolist()
            through = "".join(f'<link_ctn id="{link}"/>' for link in on)
            yield f'<route src="h{a}" dst="h{b}" symmetrical="NO">{through}</route>\n'
    yield "</zone></platform>\n"
