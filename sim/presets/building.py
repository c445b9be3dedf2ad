"""From the text of a topology to the topology."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...errors import TopologyError
from ..formats.graphs import SUFFIXES
from ..network import MOST_NODES, Network, NodeKind
from ..topology import Routing, Topology
from .parsing import Part, rates_of, unknown
from .product import product
from .registry import ALIASES, PRESETS, Preset, Shape
from .wiring import Wiring


def build(text: str, n_ranks: int) -> Topology:
    """Return the topology that a text describes; see `topology.parse`."""
    if n_ranks < 1:
        raise TopologyError(f"topology of {n_ranks} ranks, expected 1 or more")
    if n_ranks > MOST_NODES:
        raise TopologyError(f"topology of {n_ranks:,} ranks, expected at most {MOST_NODES:,}")
    whole = Part(text, text, 0)
    if "*" in text:
        return _product(whole, n_ranks)
    head, *parts = whole.split(":@")
    found, copies = _preset(head)
    shape: Shape | None = None if copies is None else (copies,)
    where = head
    if parts and found.sizes[1] and copies is None and not parts[0].is_rate:
        shape, where = _shape(parts[0], found), parts[0]
        parts = parts[1:]
    rates = rates_of(parts, found.rates)
    try:
        net = found.builder(n_ranks, shape, *rates)
    except ValueError as error:
        raise where.error(str(error)) from None
    return _placed(net, where, found.exact, n_ranks, found.name, found.routing)


def _product(whole: Part, n_ranks: int) -> Topology:
    try:
        net, is_torus = product(whole, n_ranks)
    except TopologyError:
        raise
    except ValueError as error:
        raise whole.error(str(error)) from None
    shape, routing = ("torus", Routing.GRID) if is_torus else ("product", Routing.SHORTEST)
    return _placed(net, whole, True, n_ranks, shape, routing)


def _placed(
    net: Wiring, where: Part, exact: bool, n_ranks: int, shape: str, routing: Routing
) -> Topology:
    """Return the topology with ranks on its first places; places that stay empty are left out."""
    network = net.network()
    is_place = np.array([kind is NodeKind.RANK for kind in network.kinds])
    n_places = int(is_place.sum())
    if n_places < n_ranks or (exact and n_places != n_ranks):
        raise where.error(f"{where.text} is {n_places} ranks, but there are {n_ranks}")
    if n_places > n_ranks:
        network = _without_places(network, is_place, n_ranks)
    ranks = tuple(f"r{rank}" for rank in range(n_ranks))
    return Topology(network, ranks, where.whole, shape, routing, net.dims)


def _without_places(network: Network, is_place: npt.NDArray[np.bool_], n_ranks: int) -> Network:
    """Return the network without the places above `n_ranks`, and NICs that served them alone."""
    network = network.only(~is_place | (np.cumsum(is_place) <= n_ranks))
    linked = np.zeros(len(network.nodes), np.bool_)
    linked[network.tails] = True
    return network.only(linked) if n_ranks > 1 else network


def _preset(head: Part) -> tuple[Preset, int | None]:
    """Return what the name means, and how many of a machine: dgx-h100x4."""
    word = head.word
    name = ALIASES.get(word.text, word.text)
    if name in PRESETS:
        return PRESETS[name], None
    machine, _, copies = name.rpartition("x")
    if machine in PRESETS and copies.isdecimal() and PRESETS[machine].is_machine:
        count = Part(word.whole, copies, word.at + len(machine) + 1)
        return PRESETS[machine], count.size("expected 1 machine or more")
    if "." in name or "/" in name:
        raise word.error(f"{name!r} is no graph file: expected one of {', '.join(SUFFIXES)}")
    raise unknown(word, "topology", PRESETS)


def _shape(part: Part, found: Preset) -> Shape:
    expected = f"expected {found.shape} as {found.example}"
    numbers = part.split("x")
    sizes = tuple(number.size(expected) for number in numbers)
    least, most = found.sizes
    if not least <= len(numbers) <= most:
        raise part.error(f"shape {part.text!r}, {expected}")
    return sizes
