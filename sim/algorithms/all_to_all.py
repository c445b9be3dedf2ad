"""All-to-all: every rank has a block for every other.

Slots 0 to n - 1 are the blocks that a rank sends, n to 2n - 1 those that it gets; above these lie
blocks that a rank passes on. All of them take blocks of different sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import ScheduleError
from ..schedule import Schedule
from .parts import Rows, joined, rows
from .registry import Phase, algorithm
from .torus import usual_host


def _direct_phases(schedule: Schedule) -> list[Phase]:
    return [Phase("all-to-all", 0, schedule.n_steps, "Each rank sends each other a block.")]


def _pairwise_phases(schedule: Schedule) -> list[Phase]:
    sentence = "Each rank sends one block to one rank and gets one from another."
    return [Phase("all-to-all", 0, schedule.n_steps, sentence)]


def _bruck_phases(schedule: Schedule) -> list[Phase]:
    n_steps = schedule.n_steps
    sentence = "Each rank passes on the blocks that still have that far to go."
    phases = [
        Phase("rotate", 0, 1, "Each rank lays its blocks in order of how far they have to go."),
        Phase("pass on", 1, n_steps - 2, sentence),
        Phase("turn back", n_steps - 1, 1, "Each rank lays its blocks in order of their origin."),
    ]
    return [phase for phase in phases if phase.n_steps]


def _hierarchical_phases(schedule: Schedule) -> list[Phase]:
    crossing = schedule.src_slot >= 2 * schedule.group_size
    across = int(schedule.step[crossing].min(initial=schedule.n_steps))
    phases = [
        Phase("inside", 0, across, "Inside a host, blocks go to the rank that will send them on."),
        Phase(
            "across",
            across,
            schedule.n_steps - across,
            "Each rank sends its host's blocks to the rank of its own number elsewhere.",
        ),
    ]
    return [phase for phase in phases if phase.n_steps]


def _of_rows(name: str, group_size: int, parts: Sequence[Rows], scratch: int = 0) -> Schedule:
    n = group_size
    return Schedule.of(
        "all_to_all",
        name,
        n,
        joined(parts),
        input=range(n),
        output=range(n, 2 * n),
        scratch=range(2 * n, 2 * n + scratch),
    )


@algorithm("all_to_all", "direct", phases=_direct_phases)
def all_to_all_direct(group_size: int) -> Schedule:
    """Return the direct exchange: every rank sends all its blocks at once.

    With 3 ranks::

        step 0   0 -> 1   1 -> 2   2 -> 0   0 -> 2   1 -> 0   2 -> 1

    Cost α + S/(nB) if each pair of ranks has a link of its own, and α + (n - 1)S/(nB) if a rank has
    one for all; S are the bytes that a rank sends.

    Args:
        group_size: Number of ranks, 1 or more.

    Source: Open MPI, coll/base, linear alltoall.

    Example:
        >>> all_to_all_direct(4).n_steps
        1
    """
    far, rank = np.arange(group_size)[:, None], np.arange(group_size)
    dst = (rank + far) % group_size
    moved = rows(0, rank, dst, dst, dst_slot=group_size + rank, reduce=False)
    return _of_rows("direct", group_size, [moved])


@algorithm("all_to_all", "pairwise", phases=_pairwise_phases)
def all_to_all_pairwise(group_size: int) -> Schedule:
    """Return the pairwise exchange: one block a step, each time with another rank.

    In step s rank r sends to r + s + 1 and gets from r - s - 1; where n is a power of two it
    exchanges with the rank whose number differs in the bits of s + 1. With 3 and with 4 ranks::

        step 0   0 -> 1   1 -> 2   2 -> 0        step 0   0 <-> 1   2 <-> 3
        step 1   0 -> 2   1 -> 0   2 -> 1        step 1   0 <-> 2   1 <-> 3
                                                 step 2   0 <-> 3   1 <-> 2

    Cost (n - 1)(α + S/(nB)); S are the bytes that a rank sends.

    Args:
        group_size: Number of ranks, 1 or more.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, Optimization of Collective Communication
        Operations in MPICH, IJHPCA 19(1), 2005.

    Example:
        >>> all_to_all_pairwise(5).n_steps
        4
    """
    far, rank = np.arange(group_size)[:, None], np.arange(group_size)
    is_power = group_size & (group_size - 1) == 0
    dst = rank ^ far if is_power else (rank + far) % group_size
    # The block that stays is copied beside the first message.
    step = np.maximum(far - 1, 0)
    moved = rows(step, rank, dst, dst, dst_slot=group_size + rank, reduce=False)
    return _of_rows("pairwise", group_size, [moved])


@algorithm("all_to_all", "bruck", phases=_bruck_phases)
def all_to_all_bruck(group_size: int) -> Schedule:
    """Return Bruck's all_to_all: ⌈lg n⌉ messages a rank, in which blocks travel together.

    First each rank lays its blocks in order of how far they go: block i is for rank r + i. In step
    k it sends all blocks whose number has bit k to rank r + 2^k, which keeps them in their places;
    at the end block i is from rank r - i. With 5 ranks, what rank 0 does::

        step 0   copies its blocks 0 to 4
        step 1   0 -> 1 blocks 1, 3
        step 2   0 -> 2 blocks 2-3
        step 3   0 -> 4 block 4
        step 4   copies its blocks to the output: 0 4 3 2 1

    Cost ⌈lg n⌉(α + S/(2B)) where n is a power of two; S are the bytes that a rank sends. Copies
    take no time in the model.

    Args:
        group_size: Number of ranks, 1 or more.

    Source: J. Bruck et al., Efficient algorithms for all-to-all communications in multiport
        message-passing systems, 1997.

    Example:
        >>> all_to_all_bruck(5).n_steps
        5
    """
    n, n_bits = group_size, (group_size - 1).bit_length()
    rank = np.arange(n)
    later = rank[1:]
    ordered = 2 * n
    parts = [
        rows(0, rank, rank, rank, n - rank, dst_slot=ordered, reduce=False),
        rows(0, later, later, 0, later, dst_slot=ordered + n - later, reduce=False),
    ]
    for bit in range(n_bits):
        first = np.arange(1 << bit, n, 2 << bit)[:, None]
        n_blocks = np.minimum(1 << bit, n - first)
        dst = (rank + (1 << bit)) % n
        parts.append(rows(1 + bit, rank, dst, ordered + first, n_blocks, reduce=False))
    origin = rank[:, None]
    far = (rank - origin) % n
    back = rows(1 + n_bits, rank, rank, ordered + far, dst_slot=n + origin, reduce=False)
    return _of_rows("bruck", n, [*parts, back], scratch=n)


@algorithm("all_to_all", "hierarchical", phases=_hierarchical_phases)
def all_to_all_hierarchical(group_size: int, ranks_per_host: int | None = None) -> Schedule:
    """Return a 2-D all_to_all: inside each host first, then across hosts, with larger messages.

    Rank b·h + l is the l-th on host h of b ranks. It hands every rank of its host the blocks for
    all ranks of that one's number; these send on to each host, in one message, what its host has
    for them. With 2 hosts of 2 ranks, what leaves rank 0::

        step 0   0 -> 1 blocks 1, 3                  inside
        step 1   0 -> 2 its own block 2, and rank 1's    across

    Cost (b - 1)(α + S/(bB)) inside, and (a - 1)(α' + S/(aB')) across a hosts; S are the bytes that
    a rank sends.

    Args:
        group_size: Number of ranks, 1 or more.
        ranks_per_host: b, a divisor of the group size; None for the largest up to 8, or all.

    Source: NVIDIA, "Doubling all2all Performance with NVIDIA Collective Communication Library
        2.12", 2022 (PXN); S. Bokhari and H. Berryman, Complete exchange on a circuit switched
        mesh, 1992.

    Example:
        >>> all_to_all_hierarchical(8, ranks_per_host=4).n_steps
        4
    """
    n = group_size
    a, b = hosts(n, ranks_per_host)
    host, local, k = np.ogrid[:a, :b, :a]
    src = host * b + local
    # Scratch slot b·h + l has the block of the host's rank l for host h.
    passed_on = 2 * n + k * b + local
    parts = []
    for far in range(b):
        to = (local + far) % b
        at = np.where(k == host, n + src, passed_on)
        step, dst = max(far - 1, 0), host * b + to
        parts.append(rows(step, src, dst, k * b + to, dst_slot=at, reduce=False))
    host, local = np.ogrid[:a, :b]
    for far in range(1, a):
        to = (host + far) % a
        first, src = 2 * n + to * b, host * b + local
        # From step b - 1 on; with one rank a host, its blocks are laid out before.
        step = max(b - 1, 1) + far - 1
        dst, into = to * b + local, n + host * b
        parts.append(rows(step, src, dst, first, b, dst_slot=into, reduce=False))
    return _of_rows("hierarchical", n, parts, scratch=n)


def hosts(group_size: int, ranks_per_host: int | None = None) -> tuple[int, int]:
    """Return how many hosts there are, and ranks on each; None for as many as `usual_host` has.

    Raises:
        ScheduleError: The ranks cannot be divided so.

    Example:
        >>> hosts(12), hosts(12, 3)
        ((2, 6), (4, 3))
    """
    n = group_size
    b = usual_host(n) if ranks_per_host is None else ranks_per_host
    if b < 1 or n % b:
        raise ScheduleError(f"hierarchical: ranks_per_host is {b}, expected a divisor of {n}")
    return n // b, b
