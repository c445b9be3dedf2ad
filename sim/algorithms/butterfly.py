"""Butterflies: in each step every rank swaps data with one partner, and lg n steps are enough."""

from __future__ import annotations

import numpy as np

from ..schedule import Ints, Schedule
from .parts import (
    POWERS_OF_TWO,
    Rows,
    butterfly,
    joined,
    one_after_the_other,
    reversed_bits,
    rows,
    there_and_back,
)
from .registry import Phase, algorithm

_HALVING = "Partners swap halves of what they have left, and add what arrives."
_DOUBLING = "Partners swap all the finished pieces that they have."


def _scatter_gather_phases(schedule: Schedule) -> list[Phase]:
    """Phases of an all_reduce with folding in and out around its steps, if there is any."""
    n = schedule.group_size
    fold = 0 if n & (n - 1) == 0 else 1
    half = schedule.n_steps // 2 - fold
    told = [
        Phase("reduce-scatter", fold, half, _HALVING),
        Phase("all-gather", fold + half, half, _DOUBLING),
    ]
    return _folded(told, schedule) if fold else told


def _exchange_phases(schedule: Schedule) -> list[Phase]:
    sentence = "Partners swap their whole sums, and each adds what arrives to its own."
    n = schedule.group_size
    if n & (n - 1) == 0:
        return [Phase("exchange", 0, schedule.n_steps, sentence)]
    return _folded([Phase("exchange", 1, schedule.n_steps - 2, sentence)], schedule)


def _folded(told: list[Phase], schedule: Schedule) -> list[Phase]:
    last = schedule.n_steps - 1
    return [
        Phase("fold", 0, 1, "Ranks beyond a power of two hand their data to a neighbour and wait."),
        *told,
        Phase("unfold", last, 1, "The ranks that waited get the result from their neighbour."),
    ]


def _reduce_scatter_phases(schedule: Schedule) -> list[Phase]:
    return [Phase("reduce-scatter", 0, schedule.n_steps, _HALVING)]


def _all_gather_phases(schedule: Schedule) -> list[Phase]:
    return [Phase("all-gather", 0, schedule.n_steps, _DOUBLING)]


def _folding(group_size: int, n_slots: int) -> tuple[Ints, Rows, Rows]:
    """Return the ranks that stay, and the rows before and after that bring in the others.

    The first ranks form pairs, as many as there are ranks beyond a power of two; the even rank of
    each pair hands its data to the odd one.
    """
    most = 1 << group_size.bit_length() - 1
    even = 2 * np.arange(group_size - most)
    fold = rows(0, even, even + 1, 0, n_slots, reduce=True)
    stay = np.concatenate([even + 1, np.arange(2 * len(even), group_size)])
    return stay, fold, fold.backwards()


def _among(part: Rows, ranks: Ints) -> Rows:
    """Return rows between 0 .. k-1 as rows between these ranks."""
    who: Ints = ranks.astype(np.int32)
    return part._replace(src=who[part.src], dst=who[part.dst])


@algorithm("all_reduce", "recursive_doubling", phases=_exchange_phases)
def all_reduce_recursive_doubling(group_size: int) -> Schedule:
    """Return recursive doubling: partners at distance 1, 2, 4, ... swap their whole sums.

    Ranks beyond a power of two hand in their data before and get the result after. With 4 ranks,
    and with 5::

        step 0   0 <+> 1   2 <+> 3        step 0   0 +> 1
        step 1   0 <+> 2   1 <+> 3        step 1   1 <+> 2   3 <+> 4
                                          step 2   1 <+> 3   2 <+> 4
                                          step 3   1 -> 0

    Cost lg n (α + S/B + γS), and 2α + 2S/B + γS more if n is no power of two.

    Args:
        group_size: Number of ranks, 1 or more.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, Optimization of Collective Communication
        Operations in MPICH, IJHPCA 19(1), 2005.

    Example:
        >>> all_reduce_recursive_doubling(8).n_steps
        3
    """
    stay, fold, unfold = _folding(group_size, 1)
    rank = np.arange(len(stay))
    swaps = [
        rows(step, rank, rank ^ 1 << step, 0, reduce=True)
        for step in range(len(stay).bit_length() - 1)
    ]
    both = one_after_the_other(fold, _among(joined(swaps), stay), unfold)
    return Schedule.of("all_reduce", "recursive_doubling", group_size, both, input=[0], output=[0])


@algorithm("all_reduce", "halving_doubling", phases=_scatter_gather_phases)
def all_reduce_halving_doubling(group_size: int) -> Schedule:
    """Return Rabenseifner's: a reduce_scatter by halving, then an all_gather by doubling.

    Partners are at distance 1, 2, 4, ... and then back again, so that the largest messages go to
    neighbours. Ranks beyond a power of two hand in their data before and get the result after. With
    4 ranks::

        step 0   0 +> 1 chunks 2-3   1 +> 0 chunks 0-1   2 +> 3 chunks 2-3   3 +> 2 chunks 0-1
        step 1   0 +> 2 chunk 1      2 +> 0 chunk 0      1 +> 3 chunk 3      3 +> 1 chunk 2
        step 2   0 -> 2 chunk 0      2 -> 0 chunk 1      1 -> 3 chunk 2      3 -> 1 chunk 3
        step 3   0 -> 1 chunks 0-1   1 -> 0 chunks 2-3   2 -> 3 chunks 0-1   3 -> 2 chunks 2-3

    Cost 2 lg n α + 2(n - 1)S/(nB) + (n - 1)γS/n, and 2α + 2S/B + γS more if n is no power of two.

    Args:
        group_size: Number of ranks, 1 or more.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, Optimization of Collective Communication
        Operations in MPICH, IJHPCA 19(1), 2005; R. Rabenseifner, ICCS 2004.

    Example:
        >>> all_reduce_halving_doubling(8).n_steps
        6
    """
    most = 1 << group_size.bit_length() - 1
    stay, fold, unfold = _folding(group_size, most)
    rank = np.arange(most)
    peers = [rank ^ 1 << step for step in range(most.bit_length() - 1)]
    inner = _among(there_and_back(butterfly(peers, reversed_bits(most))), stay)
    both = one_after_the_other(fold, inner, unfold)
    slots = range(most)
    return Schedule.of(
        "all_reduce", "halving_doubling", group_size, both, input=slots, output=slots
    )


def swing_distance(step: int) -> int:
    """Return how far away the partner of a step is: 1, -1, 3, -5, 11, ...

    Source: D. De Sensi et al., Swing: Short-cutting Rings for Higher Bandwidth Allreduce, 2024.

    Example:
        >>> [swing_distance(step) for step in range(6)]
        [1, -1, 3, -5, 11, -21]
    """
    power: int = (-2) ** (step + 1)
    return (1 - power) // 3


def _swing_phases(schedule: Schedule) -> list[Phase]:
    n = schedule.group_size
    extra = n % 2 if n > 1 else 0
    half = schedule.n_steps // 2 - extra
    sentence = "Partners swap what the other and those that it will meet are to have, and add."
    told = [
        Phase("reduce-scatter", extra, half, sentence),
        Phase("all-gather", extra + half, half, _DOUBLING),
    ]
    if not extra:
        return told
    hands_in = "The last rank hands each other rank its part of that one's piece."
    gets = "Each rank sends its finished piece to the last rank."
    last = schedule.n_steps - 1
    return [Phase("fold", 0, 1, hands_in), *told, Phase("unfold", last, 1, gets)]


def _swing_peers(group_size: int) -> list[Ints]:
    rank = np.arange(group_size)
    sign = np.where(rank % 2 == 0, 1, -1)
    steps = range((group_size - 1).bit_length())
    return [(rank + sign * swing_distance(step)) % group_size for step in steps]


def swing_steps(group_size: int, owner: int) -> tuple[Ints, Ints]:
    """Return when, and to whom, each rank sends its sum for the owner's piece, (ranks,) each.

    Played backwards the piece spreads: who has it hands it to the partner of the step, unless that
    one has it. For powers of two nobody ever has; elsewhere each rank still sends it just once. The
    owner's own step is -1.

    Args:
        group_size: An even number of ranks.
        owner: Rank that the piece belongs to.
    """
    step, peer = np.full((2, group_size), -1)
    has = np.arange(group_size) == owner
    for at, partner in reversed(list(enumerate(_swing_peers(group_size)))):
        gets = ~has & has[partner]
        step[gets], peer[gets] = at, partner[gets]
        has |= gets
    return step, peer


def _swing(group_size: int) -> Rows:
    """Return the reduce_scatter of an even number of ranks: piece r ends at rank r, in slot r."""
    parts = []
    for owner in (0, 1):  # pieces of even ranks all go the same way, and those of odd ones
        step, peer = swing_steps(group_size, owner)
        sends = np.flatnonzero(step >= 0)
        on = np.arange(0, group_size, 2)[:, None]
        src, dst = (sends + on) % group_size, (peer[sends] + on) % group_size
        parts.append(rows(step[sends], src, dst, owner + on, reduce=True))
    return joined(parts)


@algorithm("all_reduce", "swing", phases=_swing_phases)
def all_reduce_swing(group_size: int) -> Schedule:
    """Return Swing: halving and doubling with partners that swing from one side to the other.

    In step s even ranks meet the rank ρ(s) = 1, -1, 3, -5, 11, ... further on, odd ranks the rank
    ρ(s) further back: on a ring that is nearer than 1, 2, 4, 8. With 8 ranks::

        step 0   0 <+> 1   2 <+> 3   4 <+> 5   6 <+> 7     half of the vector
        step 1   0 <+> 7   1 <+> 2   3 <+> 4   5 <+> 6     a quarter
        step 2   0 <+> 3   1 <+> 6   2 <+> 5   4 <+> 7     an eighth
        step 3 to 5: the same backwards, with copies

    Where n is even but no power of two, a rank leaves out what its partner gets from others later:
    ⌈lg n⌉ steps, and still n - 1 pieces. Where n is odd, the last rank hands in its part of each
    piece to the piece's owner before, and gets the sum from there after.

    Cost 2⌈lg n⌉α + 2(n - 1)S/(nB) + (n - 1)γS/n where messages do not meet, for even n.

    Args:
        group_size: Number of ranks, 1 or more.

    Source: D. De Sensi et al., Swing: Short-cutting Rings for Higher Bandwidth Allreduce, NSDI
        2024 (the variant for bandwidth, in one dimension; how the last of an odd number of ranks
        takes part is simpler here than there).

    Example:
        >>> all_reduce_swing(16).n_steps
        8
    """
    n_extra = group_size % 2 if group_size > 1 else 0
    n_pieces = group_size - n_extra
    slots = range(n_pieces)
    if group_size & (group_size - 1):
        piece = np.arange(n_pieces if n_extra else 0)
        hands_in = rows(0, group_size - 1, piece, piece, reduce=True)
        inner = there_and_back(_swing(n_pieces))
        both = one_after_the_other(hands_in, inner, hands_in.backwards())
        return Schedule.of("all_reduce", "swing", group_size, both, input=slots, output=slots)
    peers = _swing_peers(group_size)
    # Ranks that deal with each other from step s on: even ones equal modulo 2 ** (s + 1), and the
    # odd ones that these meet last. So their chunks lie side by side in this order:
    rank = np.arange(group_size)
    even = np.where(rank % 2 == 0, rank, peers[-1]) if peers else rank
    position = 2 * reversed_bits(max(group_size // 2, 1))[even // 2] + rank % 2
    both = there_and_back(butterfly(peers, position))
    return Schedule.of("all_reduce", "swing", group_size, both, input=slots, output=slots)


def _halving(group_size: int) -> Rows:
    """Return a reduce_scatter with the farthest partners first: chunk r ends at rank r."""
    rank = np.arange(group_size)
    steps = range(group_size.bit_length() - 1)
    return butterfly([rank ^ group_size >> step + 1 for step in steps], rank)


@algorithm(
    "reduce_scatter", "recursive_halving", sizes=POWERS_OF_TWO, phases=_reduce_scatter_phases
)
def reduce_scatter_recursive_halving(group_size: int) -> Schedule:
    """Return recursive halving: partners at distance n/2, n/4, ... swap halves of what is left.

    With 4 ranks::

        step 0   0 +> 2 chunks 2-3   1 +> 3 chunks 2-3   2 +> 0 chunks 0-1   3 +> 1 chunks 0-1
        step 1   0 +> 1 chunk 1      1 +> 0 chunk 0      2 +> 3 chunk 3      3 +> 2 chunk 2

    Cost lg n α + (n - 1)S/(nB) + (n - 1)γS/n.

    Args:
        group_size: Number of ranks, a power of two.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, Optimization of Collective Communication
        Operations in MPICH, IJHPCA 19(1), 2005.

    Example:
        >>> len(reduce_scatter_recursive_halving(8))
        24
    """
    return Schedule.of(
        "reduce_scatter",
        "recursive_halving",
        group_size,
        _halving(group_size),
        input=range(group_size),
        output=[[rank] for rank in range(group_size)],
    )


@algorithm("all_gather", "recursive_doubling", sizes=POWERS_OF_TWO, phases=_all_gather_phases)
def all_gather_recursive_doubling(group_size: int) -> Schedule:
    """Return recursive doubling: partners at distance 1, 2, 4, ... swap all that they have.

    With 4 ranks::

        step 0   0 -> 1 chunk 0      1 -> 0 chunk 1      2 -> 3 chunk 2      3 -> 2 chunk 3
        step 1   0 -> 2 chunks 0-1   1 -> 3 chunks 0-1   2 -> 0 chunks 2-3   3 -> 1 chunks 2-3

    Cost lg n α + (n - 1)S/(nB).

    Args:
        group_size: Number of ranks, a power of two.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, Optimization of Collective Communication
        Operations in MPICH, IJHPCA 19(1), 2005.

    Example:
        >>> len(all_gather_recursive_doubling(8))
        24
    """
    return Schedule.of(
        "all_gather",
        "recursive_doubling",
        group_size,
        _halving(group_size).backwards(),
        input=[[rank] for rank in range(group_size)],
        output=range(group_size),
    )
