"""What a collective must move, whatever the algorithm: bytes across the border of sets of ranks.

needs = Needs.of(bound)
needs.leaving(group)        # bytes that must leave each set; group: (ranks,) numbers of sets
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .bind import BoundSchedule
from .collectives import Collective

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Demand(NamedTuple):
    """Bytes that must come to one rank from others, or, backwards, must go from it to them.

    Attributes:
        rank: The rank.
        from_bytes: Of each other rank, (ranks,).
        backwards: Whether it is the rank that gives.
    """

    rank: int
    from_bytes: Floats
    backwards: bool


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """Bytes that must be moved, whatever the algorithm.

    Where the collective reduces, what many ranks have may leave a set of them as one sum.

    Attributes:
        kind: The collective.
        root: Its root, where it has one.
        group_size: Number of ranks.
        size_bytes: Bytes of all chunks.
        block_bytes: Bytes of each rank's block, where the data is divided into such, (ranks,).
        pair_bytes: Bytes from each rank to each, where every pair has its own, (ranks, ranks).
        in_network: Whether the schedule has helpers, switches that may reduce and multicast.
    """

    kind: Collective
    root: int | None
    group_size: int
    size_bytes: float
    block_bytes: Floats | None = None
    pair_bytes: Floats | None = None
    in_network: bool = False

    @staticmethod
    def of(bound: BoundSchedule) -> Needs:
        """Return what a schedule's collective needs; its rows do not count.

        Example:
            >>> from .library import build
            >>> needs = Needs.of(build("all_gather", "ring", 4).bind(400, "int8"))
            >>> needs.entering(np.array([0, 0, 0, 1]))
            array([100., 300.])
        """
        kind, n = bound.schedule.kind, bound.schedule.group_size
        chunks = bound.chunk_elements.astype(np.float64) * bound.itemsize
        blocks = pairs = None
        if kind.receives == "transposed":
            pairs = chunks.reshape(n, n, -1).sum(axis=2)
        elif kind.receives == "previous":
            pairs = np.roll(np.diag(chunks.reshape(n, -1).sum(axis=1)), 1, axis=1)
        elif kind.by_block:
            blocks = chunks.reshape(n, -1).sum(axis=1)
        root = bound.schedule.root if kind.rooted else None
        in_network = bool(bound.schedule.helpers)
        return Needs(kind, root, n, float(chunks.sum()), blocks, pairs, in_network)

    def leaving(self, group: Ints) -> Floats:
        """Return the bytes that must leave each set of ranks, (sets,).

        Args:
            group: Number of each rank's set, from 0 on, none of them empty, (ranks,).
        """
        return self._crossing(group, outward=True)

    def entering(self, group: Ints) -> Floats:
        """Return the bytes that must come into each set of ranks, (sets,); see `leaving`."""
        return self._crossing(group, outward=False)

    def together(self, n_groups: int) -> float:
        """Return the bytes that all of so many sets must receive together, where only ranks reduce.

        The parts of h sets need h - 1 messages to become one, and each further set that wants the
        result one more, since those came too early for it. 0 where nothing is reduced (then the
        sets' own needs say all) or the network may do it.

        Source: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
        workstations", 2009, with sets of ranks for ranks.
        """
        if not self.kind.reduces or self.in_network:
            return 0.0
        for_all = self.kind.receives == "whole" and not self.kind.output_at_root
        return (1 + for_all) * (n_groups - 1) * self.size_bytes

    def demands(self) -> Iterator[Demand]:
        """Yield what each rank must get from, or give to, each other one.

        Any set of ranks without the rank must send it what its members have for it. Where a
        reduction asks for all of these, one rank stands for any.
        """
        every = range(self.group_size)
        if self.pair_bytes is not None:
            for rank in every:
                yield Demand(rank, self.pair_bytes[:, rank], False)
                yield Demand(rank, self.pair_bytes[rank], True)
            return
        if self.block_bytes is not None:
            for rank in every if self.root is None else [self.root]:
                yield Demand(rank, self.block_bytes, self.kind.receives == "block")
            return
        one = np.zeros(self.group_size)
        one[self.root or 0] = self.size_bytes
        for rank in every:
            if not self.kind.output_at_root:
                yield Demand(rank, one, False)
            if not self.kind.input_at_root:
                yield Demand(rank, one, True)

    def _crossing(self, group: Ints, *, outward: bool) -> Floats:
        n_groups = int(group.max(initial=0)) + 1
        if n_groups == 1:
            return np.zeros(1)
        if self.pair_bytes is not None:
            pairs = self.pair_bytes if outward else self.pair_bytes.T
            apart: Floats = np.where(group[:, None] != group, pairs, 0.0)
            return np.bincount(group, apart.sum(axis=1), n_groups).astype(np.float64)
        bytes_ = np.full(n_groups, self.size_bytes)
        if self.block_bytes is not None:
            own = np.bincount(group, self.block_bytes, n_groups)
            is_own = outward == (self.kind.sends == "block")
            bytes_ = own if is_own else own.sum() - own
        if self.root is not None:
            at_root = np.arange(n_groups) == group[self.root]
            bytes_[at_root != (outward == self.kind.input_at_root)] = 0.0
        return bytes_
