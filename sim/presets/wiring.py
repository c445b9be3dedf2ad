"""Nodes and links as a preset puts them together, many at a time.

net = Wiring()
rank, switch = net.ranks(8), net.add(NodeKind.SWITCH, ["switch"])
net.link(rank, switch, FAST)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from ...units import format_Bps, format_ns
from ..network import MOST_LINKS, MOST_NODES, Ints, Network, NodeKind


@dataclass(frozen=True, slots=True)
class Rates:
    """Bandwidth and latency of a link."""

    bandwidth_Bps: float
    latency_ns: float

    @property
    def text(self) -> str:
        """As the text of a topology has it, such as ``100GB/s,1us``."""
        words = format_Bps(self.bandwidth_Bps), format_ns(self.latency_ns).replace("µ", "u")
        return ",".join(word.replace(".00", "").replace(" ", "") for word in words)


FAST = Rates(100e9, 1_000.0)
SLOW = Rates(10e9, 5_000.0)


class Wiring:
    """Collects what a network is made of; nodes are numbers until it is done.

    Attributes:
        dims: Sizes of a grid's dimensions, the fastest first; empty if it is none.
    """

    def __init__(self) -> None:
        self.dims: tuple[int, ...] = ()
        self._names: list[str] = []
        self._kinds: list[NodeKind] = []
        self._hosts: list[str | None] = []
        self._links: list[tuple[Any, ...]] = []
        self._n_links = 0

    def add(
        self, kind: NodeKind, names: Iterable[str], hosts: Sequence[str | None] | None = None
    ) -> Ints:
        """Add nodes, which lie in no host if none is given, and return their numbers.

        Raises:
            ValueError: There are too many.
        """
        first = len(self._names)
        self._names += islice(names, MOST_NODES + 1 - first)
        if len(self._names) > MOST_NODES:
            raise ValueError(f"more than {MOST_NODES:,} nodes")
        count = len(self._names) - first
        self._kinds += [kind] * count
        self._hosts += hosts or [None] * count
        return np.arange(first, first + count)

    def ranks(self, n: int, *, each: int | None = None) -> Ints:
        """Add places for ranks, so many a host, or in none, and return their numbers."""
        hosts = None if each is None else [f"host{k // each}" for k in range(min(n, MOST_NODES))]
        return self.add(NodeKind.RANK, (f"r{rank}" for rank in range(n)), hosts)

    def switches(self, names: Iterable[str]) -> Ints:
        """Add switches and return their numbers."""
        return self.add(NodeKind.SWITCH, names)

    def host_of(self, node: int) -> str | None:
        """Return the host that a node lies in."""
        return self._hosts[node]

    def expect(self, n_links: int) -> None:
        """Raise where so many more links, each way, are too many.

        Raises:
            ValueError: They are.
        """
        if self._n_links + 2 * n_links > MOST_LINKS:
            raise ValueError(f"more than {MOST_LINKS:,} links")

    def link(
        self, a: npt.ArrayLike, b: npt.ArrayLike, rates: Rates, times: npt.ArrayLike = 1.0
    ) -> None:
        """Link nodes, each way at the rate or a multiple of it; arrays are taken pair by pair.

        Raises:
            ValueError: There are too many.
        """
        columns = np.broadcast_arrays(a, b, rates.bandwidth_Bps * np.asarray(times, np.float64))
        self.expect(columns[0].size)
        self._n_links += 2 * columns[0].size
        here, there, bandwidth = (column.reshape(-1) for column in columns)
        self._links.append((here, there, bandwidth, np.full(len(here), rates.latency_ns)))

    def link_all(self, group: Ints, rates: Rates) -> None:
        """Link every node of a group to every other; of several groups, (groups, nodes), each."""
        size = group.shape[-1]
        self.expect(group.size * (size - 1) // 2)
        a, b = np.triu_indices(size, 1)
        self.link(group[..., a], group[..., b], rates)

    def network(self) -> Network:
        """Return what was put together."""
        none: tuple[Any, ...] = (np.zeros(0, np.int64), np.zeros(0, np.int64), [], [])
        columns = zip(*(self._links or [none]), strict=True)
        here, there, bandwidth, latency = (np.concatenate(column) for column in columns)
        return Network(
            tuple(self._names),
            tuple(self._kinds),
            tuple(self._hosts),
            np.concatenate([here, there]).astype(np.int64),
            np.concatenate([there, here]).astype(np.int64),
            np.tile(bandwidth, 2).astype(np.float64),
            np.tile(latency, 2).astype(np.float64),
        )
