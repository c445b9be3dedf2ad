"""The levels of a network above its ranks: hosts, leaves, pods, spines.

    for level in levels(story):
        for bar in level:
            bar.name, bar.first, bar.last     # "leaf 0", and the ranks that it stands above

Levels are drawn as bars above a row of ranks, each over all that hangs on it; the lowest ones
become boxes around their ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...sim.topology import NodeKind, Topology
from ..reel import Reel
from ..story import Story
from .layout import Box

BAR_H, GAP = 24.0, 8.0
# More levels are not shown, nor more bars in one.
MOST_LEVELS, MOST_BARS = 3, 8
_NAMES = {"nvswitch": "NVSwitch", "agg": "aggregation"}


class Bar(NamedTuple):
    """A part of a level: its name, and the first and last rank below it."""

    name: str
    first: int
    last: int


Level = tuple[Bar, ...]


def levels(story: Story) -> tuple[Level, ...]:
    """Return the levels of a call's network, the lowest first; none where there are none to show.

    A level is left out where its parts do not stand above ranks that follow each other.
    """
    found = [_hosts(story)]
    topology = story.topology
    if topology is not None and topology.n_ranks == story.n:
        found += [*_switches(topology), *_dimensions(topology)]
    shown: list[Level] = []
    for level in found:
        over = [(bar.first, bar.last) for bar in level]
        parts = len(over) > 1 or (bool(shown) and len(shown[-1]) > 1)
        if parts and len(over) <= MOST_BARS and over not in [_over(old) for old in shown]:
            shown.append(level)
    lowest_splits = bool(shown) and len(shown[0]) > 1
    return tuple(shown[:MOST_LEVELS]) if lowest_splits else ()


def _over(level: Level) -> list[tuple[int, int]]:
    return [(bar.first, bar.last) for bar in level]


def _hosts(story: Story) -> Level:
    """Return the hosts, as the topology knows or the trace recorded them."""
    places: dict[str, list[int]] = {}
    if story.topology is not None and story.topology.hosts:
        places = {name: list(ranks) for name, ranks in story.topology.hosts.items()}
    else:
        for place, name in enumerate(story.hosts):
            places.setdefault(name, []).append(place)
    return _level({tuple(ranks): [name] for name, ranks in places.items()}, story.n)


def _switches(topology: Topology) -> Iterable[Level]:
    """Yield the levels of switches: those that ranks hang on, those above them, and so on."""
    graph = topology.graph
    depth = dict.fromkeys(topology.ranks, 0)
    below = {node: {rank} for rank, node in enumerate(topology.ranks)}
    front = list(topology.ranks)
    while front:
        above: dict[str, set[int]] = {}
        for node in front:
            for other in graph.successors(node):
                if other not in depth:
                    above.setdefault(other, set()).update(below[node])
        depth |= dict.fromkeys(above, depth[front[0]] + 1)
        below |= above
        front = list(above)
        nodes: dict[tuple[int, ...], list[str]] = {}
        for node, ranks in above.items():
            if len(ranks) > 1 and topology.kind_of(node) != NodeKind.NIC:
                nodes.setdefault(tuple(sorted(ranks)), []).append(node)
        level = _level(nodes, topology.n_ranks)
        if level:
            yield level
        if len(level) == 1:
            return  # one that is above all; what lies beyond only leads to idle places


def _dimensions(topology: Topology) -> Iterable[Level]:
    """Yield the rows of a grid, then its planes and so on."""
    n, size = topology.n_ranks, 1
    for word, below in zip(("row", "plane"), topology.dims, strict=False):
        size *= below
        if size < n:
            yield _level({tuple(range(k, k + size)): [f"{word}{k // size}"]
                          for k in range(0, n, size)}, n)  # fmt: skip


def _level(nodes: dict[tuple[int, ...], list[str]], n: int) -> Level:
    """Return a level of nodes by the ranks below them; none unless it parts all ranks in order."""
    parts = sorted(nodes)
    if [rank for part in parts for rank in part] != list(range(n)):
        return ()
    return tuple(Bar(_name(nodes[part]), part[0], part[-1]) for part in parts)


def _name(nodes: Sequence[str]) -> str:
    """Return what nodes are called together.

    Example:
        >>> [_name(nodes) for nodes in (["leaf0"], ["spine0", "spine1"], ["nvswitch0"])]
        ['leaf 0', '2 × spine', 'NVSwitch 0']
    """
    match = re.match(r"([A-Za-z]+)(\d[\d.]*)?$", nodes[0])
    if match is None:
        return nodes[0] if len(nodes) == 1 else f"{len(nodes)} × {nodes[0]}"
    word = _NAMES.get(match[1], match[1])
    if len(nodes) > 1:
        return f"{len(nodes)} × {word}"
    return f"{word} {match[2]}" if match[2] else word


def height(found: Sequence[Level]) -> float:
    """Return the height of the bars of all levels, with the air below them."""
    return len(found) * BAR_H + (len(found) - 1) * GAP + 6 if found else 0.0


def draw(reel: Reel, found: Sequence[Level], spots: Sequence[Box], box: Box) -> None:
    """Draw the levels in the upper part of a box, and the lowest ones as boxes around their ranks.

    Args:
        reel: Where to draw.
        found: The levels, the lowest first.
        spots: The cards of the ranks.
        box: The room of bars and cards.
    """
    style: dict[str, Any] = {"stroke": "card_edge", "width": 1.5}
    for k, level in enumerate(found):
        y = box.y + (len(found) - 1 - k) * (BAR_H + GAP)
        for bar in level:
            x, right = spots[bar.first].x - 7, spots[bar.last].right + 7
            if k == 0:
                reel.rect(x, y, right - x, box.bottom - y, fill="hull", radius=10, z=-5, **style)
                reel.rect(x, y, right - x, BAR_H, fill="slot", radius=8, z=-4)
            else:
                reel.rect(x, y, right - x, BAR_H, fill="hull", radius=8, z=-4, **style)
            reel.text((x + right) / 2, y + 18, bar.name, size=17, weight=600, fill="text",
                      anchor="middle")  # fmt: skip
            if k < len(found) - 1:
                middle = (x + right) / 2
                reel.line(middle, y - GAP, middle, y, stroke="link", width=3, z=-5)
