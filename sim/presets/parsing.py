"""The text of a topology, and the registry of what it can name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import networkx as nx

from ...errors import TopologyError
from ...units import parse_Bps, parse_ns
from ..topology import NodeKind, Routing, Topology


@dataclass(frozen=True, slots=True)
class Rates:
    """Bandwidth and latency of a link."""

    bandwidth_Bps: float
    latency_ns: float


FAST = Rates(100e9, 1_000.0)
SLOW = Rates(10e9, 5_000.0)

Shape = tuple[int, ...]
Builder = Callable[..., nx.DiGraph]


@dataclass(frozen=True, slots=True)
class Preset:
    """A topology that a text can name.

    Attributes:
        name: Its name.
        builder: Function of the number of ranks, the shape (None for the default) and the rates
            that returns a DiGraph whose rank nodes are r0, r1, ...; it raises ValueError where the
            shape cannot be.
        shape: What the numbers of the shape are, such as HOSTSxRANKS; empty if it has none.
        example: A shape.
        sizes: Fewest and most numbers in a shape.
        rates: Rates of its kinds of links, where the text has none.
        exact: Whether it has as many places as ranks; else ranks take the first places.
        routing: How messages find their way.
    """

    name: str
    builder: Builder
    shape: str
    example: str
    sizes: tuple[int, int]
    rates: tuple[Rates, ...]
    exact: bool
    routing: Routing

    @property
    def doc(self) -> str:
        """What it is, in one line."""
        line = (self.builder.__doc__ or "").split("\n", 1)[0].removeprefix("Return ")
        return line[:1].upper() + line[1:]


PRESETS: dict[str, Preset] = {}
_ALIASES = {"full": "fully", "fully-connected": "fully", "two_level": "two-level"}


def preset(
    name: str,
    *,
    shape: str = "",
    example: str = "",
    sizes: tuple[int, int] = (0, 0),
    rates: tuple[Rates, ...] = (FAST,),
    exact: bool = True,
    routing: Routing = Routing.SHORTEST,
) -> Callable[[Builder], Builder]:
    """Return a decorator that registers the builder of a topology; see `Preset`."""

    def register(builder: Builder) -> Builder:
        PRESETS[name] = Preset(name, builder, shape, example, sizes, rates, exact, routing)
        return builder

    return register


def build(text: str, n_ranks: int) -> Topology:
    """Return the topology that a text describes; see `topology.parse`."""
    if n_ranks < 1:
        raise TopologyError(f"topology of {n_ranks} ranks, expected 1 or more")
    head, *parts = _Part(text, 0).split(":@")
    found, copies = _preset(text, head)
    shape: Shape | None = None if copies is None else (copies,)
    at = head.at
    if parts and found.sizes[1] and copies is None and not _is_rate(parts[0]):
        shape, at = _parse_shape(text, parts[0], found), parts[0].at
        parts = parts[1:]
    rates = _parse_rates(text, parts, found.rates)
    try:
        graph = found.builder(n_ranks, shape, *rates)
    except ValueError as error:
        raise _error(text, at, str(error)) from None
    return _placed(graph, text, at, found, n_ranks)


def _placed(graph: nx.DiGraph, text: str, at: int, found: Preset, n_ranks: int) -> Topology:
    """Return the topology with ranks on its first places; places that stay empty are left out."""
    places = [node for node, kind in graph.nodes(data="kind") if kind == NodeKind.RANK]
    if len(places) < n_ranks or (found.exact and len(places) != n_ranks):
        part = re.split("[:@]", text[at:])[0]
        raise _error(text, at, f"{part} is {len(places)} ranks, but there are {n_ranks}")
    ranks = tuple(f"r{rank}" for rank in range(n_ranks))
    graph.remove_nodes_from(set(places) - set(ranks))
    if n_ranks > 1:
        graph.remove_nodes_from(list(nx.isolates(graph)))  # NICs of places that stayed empty
    routing = found.routing
    return Topology(graph, ranks, text, found.name, routing, tuple(graph.graph.get("dims", ())))


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the text between separators, and where it begins."""

    text: str
    at: int

    def split(self, separators: str) -> list[_Part]:
        parts, at = [], self.at
        for piece in re.split(f"[{separators}]", self.text):
            parts.append(_Part(piece, at))
            at += len(piece) + 1
        return parts


def _preset(text: str, head: _Part) -> tuple[Preset, int | None]:
    """Return what the name means, and how many of a machine: dgx-h100x4."""
    name = head.text.strip()
    name = _ALIASES.get(name, name)
    if name in PRESETS:
        return PRESETS[name], None
    machine, _, copies = name.rpartition("x")
    if machine in PRESETS and copies.isdecimal() and PRESETS[machine].shape == "MACHINES":
        if int(copies) == 0:
            raise _error(text, head.at + len(machine) + 1, "0 machines, expected 1 or more")
        return PRESETS[machine], int(copies)
    near = difflib.get_close_matches(name, PRESETS, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    known = ", ".join(PRESETS)
    raise _error(text, head.at, f"unknown topology {name!r}; known: {known}{hint}")


def _is_rate(part: _Part) -> bool:
    return "/" in part.text or "," in part.text


def _parse_shape(text: str, part: _Part, found: Preset) -> Shape:
    expected = f"expected {found.shape} as {found.example}"
    numbers = part.split("x")
    for number in numbers:
        if not number.text.strip().isdecimal() or int(number.text) == 0:
            raise _error(text, number.at, f"{number.text!r} is no size, {expected}")
    least, most = found.sizes
    if not least <= len(numbers) <= most:
        raise _error(text, part.at, f"shape {part.text!r}, {expected}")
    return tuple(int(number.text) for number in numbers)


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


def ranks(n: int) -> nx.DiGraph:
    """Return a graph of ranks without links."""
    graph = nx.DiGraph()
    graph.add_nodes_from((f"r{rank}" for rank in range(n)), kind=NodeKind.RANK, host=None)
    return graph


def link(graph: nx.DiGraph, a: str, b: str, rates: Rates, times: float = 1) -> None:
    """Link two nodes, each way at the rate, or a multiple of it."""
    for source, target in ((a, b), (b, a)):
        graph.add_edge(
            source, target, bandwidth_Bps=rates.bandwidth_Bps * times, latency_ns=rates.latency_ns
        )
