"""A machine's links from what was measured on it: latency, rate, burst, and what a message costs.

    measured = measuring.measure_machine(4)     # ping-pong between pairs, one ring
    fitted = fit(measured)
    fitted.topology().to_json()                 # what `chunkscope sim --topology FILE` takes

How the links are found is in `link_fit`; here they become a topology and its costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx as nx

from ..traces.atomic import replacing
from .costs import Costs
from .link_fit import GLOO_HEADER_BYTES, Level, LinkFit, fit_level
from .topology import NodeKind, Topology

__all__ = ["GLOO_HEADER_BYTES", "Level", "LinkFit", "MachineFit", "Measurements", "fit"]


@dataclass(frozen=True, slots=True, eq=False)
class Measurements:
    """What was measured on a group of ranks.

    Attributes:
        hosts: Number of each rank's host, from 0.
        level: Messages between neighbours; where there are several hosts with several ranks each,
            messages between hosts.
        inside: Messages inside the hosts, where there are such levels; else None.
        reduce_Bps: Bytes a second that a rank reduces while all of them do.
    """

    hosts: tuple[int, ...]
    level: Level
    inside: Level | None
    reduce_Bps: float


@dataclass(frozen=True, slots=True, eq=False)
class MachineFit:
    """What `fit` found out about a machine.

    Attributes:
        hosts: Number of each rank's host.
        link: Links between the ranks, or between the hosts.
        inside: Links inside the hosts, where these are another level; else None.
        header_bytes: Bytes before the data of each message.
        reduce_Bps: Bytes a second that a rank reduces.
    """

    hosts: tuple[int, ...]
    link: LinkFit
    inside: LinkFit | None
    header_bytes: int
    reduce_Bps: float

    def costs(self) -> Costs:
        """Return what a message costs beside its links.

        In a ring a message waits for its receiver's notice, in a ping-pong that has come before:
        what the two differ by is one latency, and what is left of a message is a fixed cost.
        """
        return Costs(
            message_ns=self.link.parts_ns[1],
            header_bytes=float(self.header_bytes),
            rendezvous_bytes=0.0,
            reduce_Bps=self.reduce_Bps,
            burst_bytes=self.link.burst_bytes,
        )

    def topology(self) -> Topology:
        """Return the machine as a topology: a switch, or a switch a host and one between them."""
        graph = nx.DiGraph()
        n = len(self.hosts)
        near = self.link if self.inside is None else self.inside
        for rank in range(n):
            host = f"host{self.hosts[rank]}" if self.inside is not None else None
            graph.add_node(f"r{rank}", kind=NodeKind.RANK, host=host)
        groups = [list(range(n))] if self.inside is None else _groups(self.hosts)
        for k, ranks in enumerate(groups):
            name = "switch" if self.inside is None else f"host{k}"
            _star(graph, name, ranks, near, None if self.inside is None else name)
        if self.inside is not None:
            _join(graph, len(groups), self.link, self.inside)
        places = [f"r{rank}" for rank in range(n)]
        found = Topology.of(graph, places, name=f"fit of {n} ranks")
        return replace(found, costs=self.costs())

    def write(self, path: Path) -> None:
        """Write the topology as JSON, which `chunkscope sim --topology` takes.

        Raises:
            ChunkscopeError: The file cannot be written.
        """
        with replacing(path) as temp:
            temp.write_text(self.topology().to_json() + "\n", encoding="utf-8")

    def to_dict(self) -> dict[str, Any]:
        """Return the fit as JSON has it."""
        levels = {"link": self.link, "inside": self.inside}
        return {
            "ranks": len(self.hosts),
            "hosts": len(set(self.hosts)),
            "header_bytes": self.header_bytes,
            "reduce_Bps": self.reduce_Bps,
            **{name: link.to_dict() for name, link in levels.items() if link is not None},
        }


def fit(measured: Measurements) -> MachineFit:
    """Return the links that explain what was measured best.

    Of each size the fastest repetition is taken, since other programs only make messages slower;
    that of a larger size where it was faster still.
    The least squares are of the relative errors, those of sizes whose repetitions lie far apart
    counting less.

    Raises:
        TopologyError: A time is 0 or missing, or there are fewer than three sizes.

    Example:
        >>> import numpy as np
        >>> size = np.array([64, 4096, 1 << 20])
        >>> times = (1e4 + (size + 48) / 0.125)[:, None]
        >>> found = fit(Measurements((0, 0), Level(size, times, times), None, 5e9))
        >>> round(found.link.latency_ns), round(found.link.bandwidth_Bps)
        (10000, 125000000)
    """
    inside = None if measured.inside is None else fit_level(measured.inside)
    return MachineFit(
        measured.hosts, fit_level(measured.level), inside, GLOO_HEADER_BYTES, measured.reduce_Bps
    )


def _groups(hosts: Sequence[int]) -> list[list[int]]:
    """Return the ranks of each host."""
    found: dict[int, list[int]] = {}
    for rank, host in enumerate(hosts):
        found.setdefault(host, []).append(rank)
    return [found[host] for host in sorted(found)]


def _star(
    graph: nx.DiGraph, switch: str, ranks: Sequence[int], link: LinkFit, host: str | None
) -> None:
    """Add links from ranks to a switch, with what they share behind it."""
    kind = NodeKind.SWITCH if host is None else NodeKind.HOST
    graph.add_node(switch, kind=kind, host=host)
    out = switch
    rate = link.bandwidth_Bps
    if link.is_shared:
        out, rate = f"{switch}-out", link.alone_Bps
        graph.add_node(out, kind=kind, host=host)
        shared = {"bandwidth_Bps": link.bandwidth_Bps * len(ranks), "latency_ns": 0.0}
        graph.add_edge(switch, out, **shared)
    about = {"bandwidth_Bps": rate, "latency_ns": link.parts_ns[0] / 2}
    for rank in ranks:
        graph.add_edge(f"r{rank}", switch, **about)
        graph.add_edge(out, f"r{rank}", **about)


def _join(graph: nx.DiGraph, n_hosts: int, across: LinkFit, inside: LinkFit) -> None:
    """Add a switch between the hosts."""
    graph.add_node("switch", kind=NodeKind.SWITCH, host=None)
    latency = max(0.0, across.parts_ns[0] - inside.parts_ns[0]) / 2
    about = {"bandwidth_Bps": across.bandwidth_Bps, "latency_ns": latency}
    for k in range(n_hosts):
        out = f"host{k}-out" if inside.is_shared else f"host{k}"
        graph.add_edge(f"host{k}", "switch", **about)
        graph.add_edge("switch", out, **about)
