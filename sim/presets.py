"""Topologies by name: ``PRESET[:SHAPE][:BANDWIDTH[,LATENCY]]``, a part left out has its default.

    ring          each rank linked to the next, the last to the first
    line          the same, left open
    star          every rank linked to one switch
    fully         every rank linked to every other
    two-level     HOSTSxRANKS, then the links inside a host, then those between hosts:
                  two-level:2x4:100GB/s,1us:10GB/s,5us

Rates go each way of a link. In two-level, a rank is linked to its host's switch, and each host by
one link, which its ranks share, to the switch between hosts.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import networkx as nx

from ..errors import TopologyError
from ..units import parse_Bps, parse_ns
from .topology import NodeKind, Topology


@dataclass(frozen=True, slots=True)
class Rates:
    """Bandwidth and latency of a link."""

    bandwidth_Bps: float
    latency_ns: float


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the text between colons or commas, and where it begins."""

    text: str
    at: int

    def split(self, separator: str) -> list[_Part]:
        parts, at = [], self.at
        for piece in self.text.split(separator):
            parts.append(_Part(piece, at))
            at += len(piece) + len(separator)
        return parts


FAST = Rates(100e9, 1_000.0)
SLOW = Rates(10e9, 5_000.0)


def _ring(n: int, rates: Rates) -> nx.DiGraph:
    graph = _ranks(n)
    for rank in range(n if n > 2 else n - 1):
        _link(graph, f"r{rank}", f"r{(rank + 1) % n}", rates)
    return graph


def _line(n: int, rates: Rates) -> nx.DiGraph:
    graph = _ranks(n)
    for rank in range(n - 1):
        _link(graph, f"r{rank}", f"r{rank + 1}", rates)
    return graph


def _star(n: int, rates: Rates) -> nx.DiGraph:
    graph = _ranks(n)
    graph.add_node("switch", kind=NodeKind.SWITCH, host=None)
    for rank in range(n):
        _link(graph, f"r{rank}", "switch", rates)
    return graph


def _fully(n: int, rates: Rates) -> nx.DiGraph:
    graph = _ranks(n)
    for rank in range(n):
        for peer in range(rank + 1, n):
            _link(graph, f"r{rank}", f"r{peer}", rates)
    return graph


def _two_level(n_hosts: int, n_inside: int, inside: Rates, outside: Rates) -> nx.DiGraph:
    graph = nx.DiGraph()
    for rank in range(n_hosts * n_inside):
        graph.add_node(f"r{rank}", kind=NodeKind.RANK, host=f"host{rank // n_inside}")
    for host in range(n_hosts):
        graph.add_node(f"host{host}", kind=NodeKind.HOST, host=f"host{host}")
    graph.add_node("switch", kind=NodeKind.SWITCH, host=None)
    for rank in range(n_hosts * n_inside):
        _link(graph, f"r{rank}", f"host{rank // n_inside}", inside)
    for host in range(n_hosts):
        _link(graph, f"host{host}", "switch", outside)
    return graph


_FLAT: dict[str, Callable[[int, Rates], nx.DiGraph]] = {
    "ring": _ring,
    "line": _line,
    "star": _star,
    "fully": _fully,
}
_ALIASES = {"full": "fully", "fully-connected": "fully", "two_level": "two-level"}
PRESETS = (*_FLAT, "two-level")


def build(text: str, n_ranks: int) -> Topology:
    """Return the topology that a text describes; see `topology.parse`."""
    if n_ranks < 1:
        raise TopologyError(f"topology of {n_ranks} ranks, expected 1 or more")
    head, *rest = _Part(text, 0).split(":")
    shape = _ALIASES.get(head.text.strip(), head.text.strip())
    if shape not in PRESETS:
        near = difflib.get_close_matches(shape, PRESETS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        known = ", ".join(PRESETS)
        raise _error(text, head.at, f"unknown topology {shape!r}; known: {known}{hint}")
    if shape == "two-level":
        graph = _parse_two_level(text, rest, n_ranks)
    else:
        (rates,) = _parse_rates(text, rest, (FAST,))
        graph = _FLAT[shape](n_ranks, rates)
    return Topology(graph, tuple(f"r{rank}" for rank in range(n_ranks)), text, shape)


def _parse_two_level(text: str, parts: list[_Part], n_ranks: int) -> nx.DiGraph:
    n_hosts = next((k for k in range(2, n_ranks) if n_ranks % k == 0), n_ranks)
    n_inside = n_ranks // n_hosts
    if parts and "/" not in parts[0].text:
        n_hosts, n_inside = _parse_shape(text, parts[0])
        if n_hosts * n_inside != n_ranks:
            found = f"{n_hosts}x{n_inside} is {n_hosts * n_inside} ranks, but there are {n_ranks}"
            raise _error(text, parts[0].at, found)
        parts = parts[1:]
    return _two_level(n_hosts, n_inside, *_parse_rates(text, parts, (FAST, SLOW)))


def _parse_shape(text: str, part: _Part) -> tuple[int, int]:
    sizes = part.split("x")
    for size in sizes:
        if not size.text.strip().isdecimal() or int(size.text) == 0:
            raise _error(text, size.at, f"{size.text!r} is no size, expected HOSTSxRANKS as 2x4")
    if len(sizes) != 2:
        raise _error(text, part.at, f"shape {part.text!r}, expected HOSTSxRANKS as 2x4")
    return int(sizes[0].text), int(sizes[1].text)


def _parse_rates(text: str, parts: list[_Part], default: tuple[Rates, ...]) -> list[Rates]:
    if len(parts) > len(default):
        extra = parts[len(default)]
        raise _error(text, extra.at, f"{extra.text!r} is more than this topology takes")
    given = [_parse_link(text, part, rates) for part, rates in zip(parts, default)]
    return [*given, *default[len(given) :]]


def _parse_link(text: str, part: _Part, default: Rates) -> Rates:
    bandwidth, *rest = part.split(",")
    if len(rest) > 1:
        raise _error(text, rest[1].at, "expected BANDWIDTH,LATENCY as 100GB/s,1us")
    latency = default.latency_ns
    if rest:
        latency = _number(text, rest[0], parse_ns)
    return Rates(_number(text, bandwidth, parse_Bps), latency)


def _number(text: str, part: _Part, parse: Callable[[str], float]) -> float:
    blank = len(part.text) - len(part.text.lstrip())
    try:
        value = parse(part.text)
    except ValueError as error:
        raise _error(text, part.at + blank, str(error)) from None
    if not isfinite(value):
        raise _error(text, part.at + blank, f"{part.text!r} is not finite")
    return value


def _error(text: str, at: int, message: str) -> TopologyError:
    """Return an error whose last two lines show the text and a caret under the character."""
    return TopologyError(f"{message}\n  {text}\n  {' ' * at}^")


def _ranks(n: int) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from((f"r{rank}" for rank in range(n)), kind=NodeKind.RANK, host=None)
    return graph


def _link(graph: nx.DiGraph, a: str, b: str, rates: Rates) -> None:
    for source, target in ((a, b), (b, a)):
        graph.add_edge(
            source, target, bandwidth_Bps=rates.bandwidth_Bps, latency_ns=rates.latency_ns
        )
