"""Paths through meshes and tori, one dimension after the other.

grid = grid_of((8, 8), True, links)
found = grid_paths(grid, links, src, dst)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .compiled import kernel, run
from .shortest import Found, Ints, Ways, room


class Grid(NamedTuple):
    """A grid as a kernel takes it.

    Attributes:
        dims: Sizes of its dimensions, the fastest first.
        wraps: Whether its ends are linked.
        up, down: Link from each node to the next and the one before in each dimension, -1 for none,
            (nodes, dimensions) each.
    """

    dims: Ints
    wraps: bool
    up: Ints
    down: Ints


def grid_of(dims: Sequence[int], wraps: bool, ways: Ways) -> Grid | None:
    """Return the grid that links between 0 .. n-1 make; None if one that it needs is missing."""
    n = math.prod(dims)
    node, ends = np.arange(n), ways.tails * n + ways.heads
    up, down = np.full((2, n, len(dims)), -1)
    below = 1
    for k, size in enumerate(dims):
        at = node // below % size
        for table, step in ((up, 1), (down, -1)):
            onward = (at + step) % size
            tail = node[(onward != at) & (wraps | (onward == at + step))]
            wanted = tail * n + tail + ((onward - at) * below)[tail]
            link = np.searchsorted(ends, wanted)
            if (ends[link.clip(max=len(ends) - 1)] != wanted).any():
                return None
            table[tail, k] = link
        below *= size
    return Grid(np.array(dims), wraps, up, down)


def grid_paths(grid: Grid, ways: Ways, src: Ints, dst: Ints) -> Found:
    """Return the paths of pairs of nodes."""
    found = room(len(src), len(src) * int(grid.dims.sum()))
    n_links = run(cross, len(src))(grid, ways, src, dst, found)
    return found._replace(links=found.links[:n_links])


@kernel
def cross(grid: Grid, ways: Ways, src: Ints, dst: Ints, found: Found) -> int:
    """Fill in the paths of pairs of nodes; return how many links they have together.

    One dimension after the other, the fastest first; on a torus the shorter way around, and up
    where both are as long, but down from the upper half to the lower as SimGrid has it.
    """
    end = 0
    for pair in range(len(src)):
        node, below = src[pair], 1
        total, slowest = 0.0, np.inf
        for k in range(len(grid.dims)):
            size = grid.dims[k]
            at, to = node // below % size, dst[pair] // below % size
            half = size // 2
            if grid.wraps:
                goes_up = at < to <= at + half or (at > half and to <= (at + half) % size)
            else:
                goes_up = at < to
            while at != to:
                link = grid.up[node, k] if goes_up else grid.down[node, k]
                found.links[end] = link
                total += ways.latency_ns[link]
                slowest = min(slowest, ways.rate[link])
                end += 1
                after = (at + 1 if goes_up else at - 1) % size
                node += (after - at) * below
                at = after
            below *= size
        found.starts[pair + 1] = end
        found.latency_ns[pair], found.rate[pair] = total, slowest
    return end
