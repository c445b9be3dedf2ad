"""A machine's links from what was measured on it: latency, rate, burst, and what a message costs.

    measured = measuring.measure_machine(4)     # ping-pong between pairs, one ring
    fitted = fit(measured)
    fitted.topology().to_json()                 # what `chunkscope sim --topology FILE` takes

A link is a token bucket: it passes bytes at its rate, and after a pause up to `burst_bytes` at once
(a plain link has a burst of 0). With the time L of an empty message and the rate B, a message of S
bytes that goes to and fro takes L + max(0, S - burst) / B, and no less than S / 2B, since a bucket
cannot give more than flows in. In a ring where each rank sends one message after the other, the
link is paused only while a rank waits for its neighbours, R a message: R + max(0, S - burst) / B,
and no less than S / B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import numpy.typing as npt

from ..errors import TopologyError
from ..traces.atomic import replacing
from .costs import Costs
from .topology import NodeKind, Topology

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# gloo sends so many bytes before the data of each message.
# Source: gloo, gloo/transport/tcp/pair.h, struct Op.
GLOO_HEADER_BYTES = 48
# Below this share of the rate of one message alone, ranks that all send share one medium: on one
# host that is its cores and its memory.
_SHARED = 0.9
# Bursts that are tried, then near the best. One is believed in where it makes the errors' squares
# so many times smaller, and where two messages of more than twice its size are met so well.
_BURSTS = 1024 * 2 ** np.arange(0, 10.5, 0.5)
_FINER = 2 ** np.linspace(-0.5, 0.5, 31)
_BURST_GAIN = 2.0
_BURST_ERROR = 0.05
# How well a size was measured at best, relative.
_LEAST_SPREAD = 0.01
_MOST_HIDDEN = 10.0
_ROUNDS = 30


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """What was measured on one level of a network, such as inside the hosts or between them.

    Attributes:
        size_bytes: Sizes of the messages, (sizes,).
        one_way_ns: Half of a ping-pong between two ranks while the others wait, (sizes, times).
        ring_ns: Time a step of an executed ring, where every rank sends a message to the next and
            receives one, again and again, (sizes, times).
    """

    size_bytes: Ints
    one_way_ns: Floats
    ring_ns: Floats


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
class LinkFit:
    """The fit of one level.

    Attributes:
        latency_ns: Time of an empty message from rank to rank.
        step_ns: The same where every rank sends and receives at once, so that each waits for the
            notice of its receiver, too.
        alone_Bps: Rate of one message alone.
        bandwidth_Bps: Rate of a rank's messages while all ranks send.
        burst_bytes: Bytes that pass at once after a pause.
        size_bytes: Sizes of the messages, (sizes,).
        one_way_ns, ring_ns: The fastest that was measured, (sizes,).
        one_way_fit_ns, ring_fit_ns: What the fit says, (sizes,).
    """

    latency_ns: float
    step_ns: float
    alone_Bps: float
    bandwidth_Bps: float
    burst_bytes: float
    size_bytes: Ints
    one_way_ns: Floats
    ring_ns: Floats
    one_way_fit_ns: Floats
    ring_fit_ns: Floats

    @property
    def is_shared(self) -> bool:
        """Whether ranks that send at the same time slow each other down."""
        return self.bandwidth_Bps < _SHARED * self.alone_Bps

    @property
    def parts_ns(self) -> tuple[float, float]:
        """Latency of a path and fixed cost of a message: what a message takes in a ring exactly.

        There it takes the fixed cost and two latencies, in a ping-pong the fixed cost and one, as
        near as that comes to it.
        """
        if self.step_ns >= 2 * self.latency_ns:
            return self.step_ns / 2, 0.0
        latency_ns = self.step_ns - self.latency_ns
        return latency_ns, self.latency_ns - latency_ns

    @property
    def worst(self) -> float:
        """The largest relative error of the fit."""
        measured = np.concatenate([self.one_way_ns, self.ring_ns])
        said = np.concatenate([self.one_way_fit_ns, self.ring_fit_ns])
        return float(np.abs(said / measured - 1).max())

    def to_dict(self) -> dict[str, Any]:
        """Return the fit as JSON has it: numbers, and lists by size."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name in self.__slots__
            for value in (getattr(self, name),)
        }


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
        >>> size = np.array([64, 4096, 1 << 20])
        >>> times = (1e4 + (size + 48) / 0.125)[:, None]
        >>> found = fit(Measurements((0, 0), Level(size, times, times), None, 5e9))
        >>> round(found.link.latency_ns), round(found.link.bandwidth_Bps)
        (10000, 125000000)
    """
    inside = None if measured.inside is None else _fit_level(measured.inside)
    return MachineFit(
        measured.hosts, _fit_level(measured.level), inside, GLOO_HEADER_BYTES, measured.reduce_Bps
    )


def _fit_level(level: Level) -> LinkFit:
    size = level.size_bytes.astype(np.float64) + GLOO_HEADER_BYTES
    every = np.concatenate([level.one_way_ns, level.ring_ns], axis=None)
    if len(size) < 3 or not (np.isfinite(every).all() and (every > 0).all()):
        raise TopologyError(
            f"measured {len(size)} sizes and times of {every.min(initial=np.inf):g} ns or more, "
            "expected three sizes or more and times above 0: measure again"
        )
    one_way = _Series.of(size, level.one_way_ns, turns=2)
    ring = _Series.of(size, level.ring_ns, turns=1)

    alone, together = _best_lines(one_way, ring)
    rate = alone.Bps, min(together.Bps, alone.Bps)
    return LinkFit(
        latency_ns=alone.fixed_ns,
        step_ns=max(together.fixed_ns, alone.fixed_ns),
        alone_Bps=rate[0],
        bandwidth_Bps=rate[1],
        burst_bytes=alone.burst_bytes,
        size_bytes=level.size_bytes,
        one_way_ns=one_way.time_ns,
        ring_ns=ring.time_ns,
        one_way_fit_ns=one_way.said(alone),
        ring_fit_ns=ring.said(together),
    )


def _best_lines(one_way: _Series, ring: _Series) -> tuple[_Line, _Line]:
    """Return the lines through both series, with the burst that explains them best, 0 for none."""

    def lines(burst: float) -> tuple[float, _Line, _Line]:
        alone, together = one_way.line(burst), ring.line(burst)
        misfit = one_way.misfit(alone) + ring.misfit(together)
        return misfit if one_way.shows(alone) else np.inf, alone, together

    def best_of(bursts: Floats) -> tuple[float, _Line, _Line]:
        return min(map(lines, bursts.tolist()), key=lambda found: found[0])

    coarse = best_of(_BURSTS)
    misfit, alone, together = best_of(coarse[1].burst_bytes * _FINER)
    plain = one_way.line(0.0), ring.line(0.0)
    if _BURST_GAIN * misfit < one_way.misfit(plain[0]) + ring.misfit(plain[1]):
        return alone, together
    return plain


class _Line(NamedTuple):
    """What a message takes: a fixed time, and its bytes on a link that saves up a burst."""

    fixed_ns: float
    byte_ns: float
    burst_bytes: float

    @property
    def Bps(self) -> float:
        return 1e9 / self.byte_ns


@dataclass(frozen=True, slots=True, eq=False)
class _Series:
    """Messages of several sizes, each size again and again.

    Attributes:
        size: Bytes on the wire, (sizes,).
        time_ns: The fastest of each size, or of a larger one that was faster still, (sizes,).
        spread: How far the fastest lies from the median, relative to it, and a bit, (sizes,).
        turns: Links that the messages use in turn: 2 to and fro, 1 in a ring.
    """

    size: Floats
    time_ns: Floats
    spread: Floats
    turns: int

    @staticmethod
    def of(size: Floats, times: Floats, turns: int) -> _Series:
        fastest: Floats = np.minimum.accumulate(times.min(axis=1)[::-1])[::-1]
        spread = _LEAST_SPREAD + 1 - fastest / np.median(times, axis=1)
        return _Series(size, fastest, spread, turns)

    def line(self, burst_bytes: float) -> _Line:
        """Return the line through the series whose relative errors have the least squares.

        Source: D. Marquardt, "An algorithm for least-squares estimation of nonlinear parameters",
        1963.
        """
        slope = np.diff(self.time_ns[-2:])[0] / np.diff(self.size[-2:])[0]
        # A link is at most so much faster than its largest message says, however noisy times were.
        least = self.time_ns[-1] / self.size[-1] / _MOST_HIDDEN
        at = np.log([self.time_ns[0], max(slope, least)])
        errors, damping, step = self._errors(at, burst_bytes), 1e-2, 1e-4
        for _ in range(_ROUNDS):
            slopes = [
                (self._errors(at + step * one, burst_bytes) - errors) / step for one in np.eye(2)
            ]
            jacobian = np.stack(slopes, axis=1)
            normal = jacobian.T @ jacobian
            scaled = normal + damping * np.diag(np.diag(normal) + 1e-12)
            there = at - np.clip(np.linalg.solve(scaled, jacobian.T @ errors), -2.0, 2.0)
            there[1] = max(there[1], np.log(least))
            tried = self._errors(there, burst_bytes)
            gain = errors @ errors - tried @ tried
            if gain > 0:
                at, errors, damping = there, tried, damping / 5
            else:
                damping *= 5
            if abs(gain) <= 1e-9 * (errors @ errors):
                break
        fixed_ns, byte_ns = np.exp(at).tolist()
        return _Line(fixed_ns, byte_ns, burst_bytes)

    def misfit(self, line: _Line) -> float:
        """Return the sum of the squares of a line's errors."""
        errors = self._errors(np.log(line[:2]), line.burst_bytes)
        return float(errors @ errors)

    def said(self, line: _Line) -> Floats:
        """Return what a line says the messages take, nearest to what they took."""
        least, most = self._between(*line)
        return np.clip(self.time_ns, least, most)

    def shows(self, line: _Line) -> bool:
        """Return whether two messages of more than twice the burst are met well."""
        above = self.size > 2 * line.burst_bytes
        off = np.abs(self.said(line) / self.time_ns - 1)[above]
        return len(off) >= 2 and float(off.max()) < _BURST_ERROR

    def _errors(self, logs: Floats, burst_bytes: float) -> Floats:
        fixed_ns, byte_ns = np.exp(logs).tolist()
        said = self.said(_Line(fixed_ns, byte_ns, burst_bytes))
        errors: Floats = np.log(said / self.time_ns) / self.spread
        return errors

    def _between(
        self, fixed_ns: float, byte_ns: float, burst_bytes: float
    ) -> tuple[Floats, Floats]:
        """Return what messages take while the bucket is full, and once it cannot follow."""
        least = fixed_ns + np.maximum(self.size - burst_bytes, 0.0) * byte_ns
        return least, np.maximum(least, self.size * byte_ns / self.turns)


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
