"""Dimension by dimension: reduce-scatter along each, then all-gather along each in reverse.

A torus of ranks and a group of hosts are the same here: rows of ranks that share fast links, and
columns of ranks that do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from ...errors import ScheduleError
from ..schedule import Schedule
from .parts import Rows, joined, one_after_the_other, rings, torus_slots
from .registry import Phase, algorithm


def _all_reduce_phases(schedule: Schedule) -> list[Phase]:
    half = schedule.n_steps // 2
    return [
        Phase(
            "reduce-scatter",
            0,
            half,
            "Rings along one dimension after the other add up an ever smaller part.",
            "Every rank sends a part of its data to its neighbour in the first dimension.",
        ),
        Phase(
            "all-gather",
            half,
            half,
            "The finished parts go around the same rings, last dimension first.",
        ),
    ]


def _inside(schedule: Schedule) -> int:
    """Return the steps inside hosts, each way: there a message has all chunks of one number."""
    return schedule.group_size // int(schedule.n_slots.max(initial=1)) - 1


_IN = "Ranks of each host add up among themselves, so that each ends with one part."
_OUT = "The finished parts are passed around inside each host."
_OVER = "Ranks of the same number in their hosts add up their parts."
_BACK = "The finished pieces are passed around between the hosts."


def _hierarchical_phases(schedule: Schedule) -> list[Phase]:
    inside = _inside(schedule)
    across = schedule.n_steps // 2 - inside
    told = [
        Phase("reduce-scatter", 0, inside, _IN),
        Phase("reduce-scatter", inside, across, _OVER),
        Phase("all-gather", inside + across, across, _BACK),
        Phase("all-gather", inside + 2 * across, inside, _OUT),
    ]
    return [phase for phase in told if phase.n_steps]


def _hierarchical_half_phases(schedule: Schedule) -> list[Phase]:
    inside = _inside(schedule)
    across = schedule.n_steps - inside
    if schedule.kind.reduces:
        told = [
            Phase("reduce-scatter", 0, inside, _IN),
            Phase("reduce-scatter", inside, across, _OVER),
        ]
    else:
        told = [Phase("all-gather", 0, across, _BACK), Phase("all-gather", across, inside, _OUT)]
    return [phase for phase in told if phase.n_steps]


def balanced_dims(group_size: int, n_dims: int) -> tuple[int, ...]:
    """Return dimensions as equal as can be, largest first.

    Example:
        >>> balanced_dims(12, 2), balanced_dims(64, 3), balanced_dims(7, 2)
        ((4, 3), (4, 4, 4), (7, 1))
    """
    if n_dims == 1:
        return (group_size,)
    options = [
        (d, *balanced_dims(group_size // d, n_dims - 1))
        for d in range(1, group_size + 1)
        if group_size % d == 0
    ]
    best = min(options, key=lambda dims: (max(dims), -min(dims)))
    return tuple(sorted(best, reverse=True))


def _strides(dims: Sequence[int]) -> list[int]:
    """Return the ranks between neighbours of each dimension: ranks are counted row by row."""
    return [prod(dims[at + 1 :]) for at in range(len(dims))]


def _torus(
    group_size: int, name: str, dims: Sequence[int] | None, n_dims: int, mirrored: bool
) -> Schedule:
    dims = balanced_dims(group_size, n_dims) if dims is None else tuple(dims)
    if len(dims) != n_dims or prod(dims) != group_size or min(dims) < 1:
        raise ScheduleError(
            f"all_reduce {name}: dims are {dims}, expected {n_dims} numbers whose product is "
            f"{group_size}"
        )
    strides, last_first = _strides(dims), list(range(n_dims))[::-1]
    orders = [last_first[at:] + last_first[:at] for at in range(n_dims if mirrored else 1)]
    copies = list(product(orders, (1, -1) if mirrored else (1,)))
    parts = []
    for channel, (order, direction) in enumerate(copies):
        both = rings([dims[i] for i in order], [strides[i] for i in order], direction)
        parts.append(_on_channel(one_after_the_other(*both), channel, group_size))
    slots = range(group_size * len(copies))
    return Schedule.of("all_reduce", name, group_size, joined(parts), input=slots, output=slots)


def _on_channel(part: Rows, channel: int, group_size: int) -> Rows:
    """Return rows on a channel, with slots of its own."""
    shift = np.int32(channel * group_size)
    return part._replace(
        channel=part.channel + np.int32(channel),
        src_slot=part.src_slot + shift,
        dst_slot=part.dst_slot + shift,
    )


@algorithm("all_reduce", "torus2d", phases=_all_reduce_phases)
def all_reduce_torus2d(
    group_size: int, dims: Sequence[int] | None = None, mirrored: bool = False
) -> Schedule:
    """Return a 2-D torus: reduce-scatter along rows, then columns, then all-gather in reverse.

    Ranks are counted row by row. With 4 ranks in 2 rows::

        0 - 1        step 0   0 <+> 1   2 <+> 3   two chunks each    along rows
        |   |        step 1   0 <+> 2   1 <+> 3   one chunk          along columns
        2 - 3        step 2   0 <-> 2   1 <-> 3   one chunk
                     step 3   0 <-> 1   2 <-> 3   two chunks

    Cost 2(a - 1)α + 2(b - 1)α + 2(n - 1)S/(nB) with a rows of b ranks. Mirrored, four copies with a
    quarter of the data each run at once, in both directions and in both orders of the dimensions,
    so that all four links of a rank are busy.

    Args:
        group_size: Number of ranks, 1 or more.
        dims: Rows and ranks in a row; as equal as can be where left out.
        mirrored: Whether to use both directions and both orders.

    Source: H. Mikami et al., Massively Distributed SGD: ImageNet/ResNet-50 Training in a Flash,
        2018; mirrored copies as in D. De Sensi et al., Swing, NSDI 2024.

    Example:
        >>> all_reduce_torus2d(12, dims=(3, 4)).n_steps
        10
    """
    return _torus(group_size, "torus2d", dims, 2, mirrored)


@algorithm("all_reduce", "torus3d", phases=_all_reduce_phases)
def all_reduce_torus3d(
    group_size: int, dims: Sequence[int] | None = None, mirrored: bool = False
) -> Schedule:
    """Return a 3-D torus: reduce-scatter along each dimension, then all-gather in reverse.

    Ranks are counted with the last dimension fastest, which comes first. With 2 x 2 x 2 ranks::

        step 0   0 <+> 1   2 <+> 3   4 <+> 5   6 <+> 7   four chunks each
        step 1   0 <+> 2   1 <+> 3   4 <+> 6   5 <+> 7   two
        step 2   0 <+> 4   1 <+> 5   2 <+> 6   3 <+> 7   one
        step 3 to 5: the same backwards, with copies

    Cost 2(a + b + c - 3)α + 2(n - 1)S/(nB). Mirrored, six copies with a sixth of the data each run
    at once, so that all six links of a rank are busy.

    Args:
        group_size: Number of ranks, 1 or more.
        dims: Ranks in each dimension; as equal as can be where left out.
        mirrored: Whether to use both directions, and each dimension first in turn.

    Source: C. Ying et al., Image Classification at Supercomputer Scale, 2018 (rings along the
        dimensions of a torus of TPUs); M. Cho et al., BlueConnect, MLSys 2019.

    Example:
        >>> all_reduce_torus3d(64).n_steps
        18
    """
    return _torus(group_size, "torus3d", dims, 3, mirrored)


USUAL_HOST = 8


def usual_host(group_size: int) -> int:
    """Return the largest number of ranks up to 8 that gives several equal hosts, or all on one.

    Example:
        >>> [usual_host(n) for n in (4, 12, 32, 7)]
        [2, 6, 8, 7]
    """
    options = range(min(USUAL_HOST, group_size // 2), 1, -1)
    return next((d for d in options if group_size % d == 0), group_size)


def _hosts(group_size: int, ranks_per_host: int | None, collective: str) -> tuple[list[int], ...]:
    """Return dimensions and strides: first inside the hosts, then across them."""
    if ranks_per_host is None:
        ranks_per_host = usual_host(group_size)
    if ranks_per_host < 1 or group_size % ranks_per_host:
        raise ScheduleError(
            f"{collective} hierarchical: {group_size} ranks with {ranks_per_host} a host, expected "
            "a number that divides them"
        )
    return [ranks_per_host, group_size // ranks_per_host], [1, ranks_per_host]


@algorithm("all_reduce", "hierarchical", phases=_hierarchical_phases)
def all_reduce_hierarchical(group_size: int, ranks_per_host: int | None = None) -> Schedule:
    """Return reduce-scatter inside each host, all-reduce across hosts, all-gather inside again.

    Each rank talks to the ranks of its own number on other hosts, with its part of the data alone.
    With 4 ranks on 2 hosts::

        step 0   0 <+> 1   2 <+> 3      two chunks each, inside
        step 1   0 <+> 2   1 <+> 3      one chunk, across
        step 2   0 <-> 2   1 <-> 3
        step 3   0 <-> 1   2 <-> 3      two chunks, inside

    Cost 2(a - 1)α + 2(a - 1)S/(aB) inside and 2(b - 1)α' + 2(b - 1)S/(abB') across, with a ranks on
    each of b hosts; rings in both.

    Args:
        group_size: Number of ranks, 1 or more.
        ranks_per_host: Ranks of a host, which follow each other; where left out, the largest
            number from 8 down to 2 that gives several equal hosts, or all on one.

    Source: Horovod, NCCLHierarchicalAllreduce; M. Cho et al., BlueConnect, MLSys 2019.

    Example:
        >>> all_reduce_hierarchical(32, ranks_per_host=8).n_steps
        20
    """
    dims, strides = _hosts(group_size, ranks_per_host, "all_reduce")
    both, slots = one_after_the_other(*rings(dims, strides)), range(group_size)
    return Schedule.of("all_reduce", "hierarchical", group_size, both, input=slots, output=slots)


@algorithm("reduce_scatter", "hierarchical", phases=_hierarchical_half_phases)
def reduce_scatter_hierarchical(group_size: int, ranks_per_host: int | None = None) -> Schedule:
    """Return reduce-scatter inside each host, then across hosts among ranks of one number.

    With 4 ranks on 2 hosts::

        step 0   0 +> 1 chunks 1, 3   1 +> 0 chunks 0, 2   2 +> 3 chunks 1, 3   3 +> 2 chunks 0, 2
        step 1   0 +> 2 chunk 2       2 +> 0 chunk 0       1 +> 3 chunk 3       3 +> 1 chunk 1

    Cost (a - 1)α + (a - 1)S/(aB) inside and (b - 1)α' + (b - 1)S/(abB') across, with a ranks on
    each of b hosts.

    Args:
        group_size: Number of ranks, 1 or more.
        ranks_per_host: As in the all_reduce.

    Source: M. Cho et al., BlueConnect: Decomposing all-reduce for deep learning on heterogeneous
        network hierarchy, MLSys 2019.

    Example:
        >>> reduce_scatter_hierarchical(32, ranks_per_host=8).n_steps
        10
    """
    dims, strides = _hosts(group_size, ranks_per_host, "reduce_scatter")
    slots = torus_slots(dims, strides).tolist()
    return Schedule.of(
        "reduce_scatter",
        "hierarchical",
        group_size,
        rings(dims, strides)[0],
        input=slots,
        output=[[slot] for slot in slots],
    )


@algorithm("all_gather", "hierarchical", phases=_hierarchical_half_phases)
def all_gather_hierarchical(group_size: int, ranks_per_host: int | None = None) -> Schedule:
    """Return all-gather across hosts among ranks of one number, then inside each host.

    With 4 ranks on 2 hosts::

        step 0   0 -> 2 chunk 0       2 -> 0 chunk 2       1 -> 3 chunk 1       3 -> 1 chunk 3
        step 1   0 -> 1 chunks 0, 2   1 -> 0 chunks 1, 3   2 -> 3 chunks 0, 2   3 -> 2 chunks 1, 3

    Cost (b - 1)α' + (b - 1)S/(abB') across and (a - 1)α + (a - 1)S/(aB) inside, with a ranks on
    each of b hosts.

    Args:
        group_size: Number of ranks, 1 or more.
        ranks_per_host: As in the all_reduce.

    Source: M. Cho et al., BlueConnect: Decomposing all-reduce for deep learning on heterogeneous
        network hierarchy, MLSys 2019.

    Example:
        >>> all_gather_hierarchical(32, ranks_per_host=8).n_steps
        10
    """
    dims, strides = _hosts(group_size, ranks_per_host, "all_gather")
    slots = torus_slots(dims, strides).tolist()
    return Schedule.of(
        "all_gather",
        "hierarchical",
        group_size,
        rings(dims, strides)[1],
        input=[[slot] for slot in slots],
        output=slots,
    )
