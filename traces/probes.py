"""What probes tell: who contributed to each element, how often, and which element it is.

    told = decode(values, world_size)
    told.parts(12)          # [0, 1, 1]: rank 1's part is in it twice
    told.position(12)       # 8: what lies at 12 belongs at 8

`chunkscope.probe` makes them. Sums of probes, and single ones that were copied, can be read; what
is no sum of probes of one element is told apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .record.probe import COUNT_BITS, MOST, Layout, code, layout_of, position_of

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

# Positions that are looked for where the caller does not say how many elements there are.
LIKELY_ELEMENTS = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """What each element tells.

    Attributes:
        counts: Contributions of each rank, (elements, world_size), 0 where nothing is told.
        positions: Position in its probe, (elements,); meaningless where not `valid`.
        valid: Whether the element is a sum of probes of one position, (elements,).
        zero: Whether it is 0: nobody's part; or, with more ranks than an element tells of, the
            part of ranks that this element does not tell of, (elements,).
        blocks: Blocks of ranks that take turns.
    """

    counts: npt.NDArray[np.uint8]
    positions: Ints
    valid: Mask
    zero: Mask
    blocks: int

    def __len__(self) -> int:
        return len(self.positions)

    def parts(self, element: int) -> list[int] | None:
        """Return the ranks whose parts are in an element, once a contribution; None for garbage."""
        if not self.valid[element]:
            return [] if self.zero[element] else None
        ranks = np.arange(self.counts.shape[1])
        return np.repeat(ranks, self.counts[element]).tolist()

    def position(self, element: int) -> int | None:
        """Return the position that an element belongs at; None where it tells none."""
        return int(self.positions[element]) if self.valid[element] else None


def decode(values: Any, world_size: int, *, elements: int | None = None) -> Decoded:
    """Read probes back.

    Args:
        values: Numbers in int64, float64 or float32, any shape; read in flat order.
        world_size: The world size that `chunkscope.probe` was given; any up to 16 (int64), 8
            (float64) or 4 (float32) gives the same.
        elements: Elements of each probe, which bounds the positions; 2^20 by default. The smaller,
            the less likely is it that garbage passes for a probe: about 2^-32 an element and
            position in int64 and float64, 2^-12 in float32.

    Raises:
        ValueError: The dtype holds no probes.

    Example:
        >>> decode(np.array([7, 0]), 2).valid.tolist()
        [False, False]
    """
    array = np.asarray(values).reshape(-1)
    layout = layout_of(array.dtype.name)
    words, whole = _words(array, layout)
    digits = np.stack(
        [(words >> np.uint64(COUNT_BITS * k)) & np.uint64(MOST) for k in range(layout.ranks)], 1
    ).astype(np.uint8)
    total = digits.sum(1, dtype=np.int64)
    field = words >> np.uint64(layout.count_bits)
    positions, found = _positions(field, total, layout, elements or LIKELY_ELEMENTS)
    valid = whole & found & (total > 0)
    counts, fits = _by_rank(digits, positions, world_size, layout)
    valid &= fits
    counts[~valid] = 0
    return Decoded(counts, positions, valid, array == 0, layout.blocks(world_size))


def value_of(counts: npt.NDArray[Any], positions: Ints, dtype: str) -> npt.NDArray[Any]:
    """Return the numbers that contributions make, the reverse of `decode`.

    Args:
        counts: Contributions of each rank, (elements, world_size).
        positions: Position of each element, (elements,).
        dtype: int64, float64 or float32.

    Example:
        >>> told = decode(value_of(np.array([[1, 0, 2]]), np.array([5]), "int64"), 3)
        >>> told.parts(0), told.position(0)
        ([0, 2, 2], 5)
    """
    layout = layout_of(dtype)
    n = counts.shape[1]
    place = np.asarray(positions, np.int64)
    blocks = layout.blocks(n)
    mine = np.arange(n)[None, :] // layout.ranks == (place % blocks)[:, None]
    shown = np.where(mine, counts, 0).astype(np.uint64)
    weight = np.uint64(1) << (np.arange(n) % layout.ranks * COUNT_BITS).astype(np.uint64)
    codes = code(place.astype(np.uint64), layout.position_bits)
    with np.errstate(over="ignore"):
        low = (shown * weight[None, :]).sum(1, dtype=np.uint64)
        high = shown.sum(1, dtype=np.uint64) * codes
        words = low + (high << np.uint64(layout.count_bits))
    signed: npt.NDArray[Any] = words.view(np.int64)
    return signed if layout.wraps else signed.astype(dtype)


def _words(array: npt.NDArray[Any], layout: Layout) -> tuple[Words, Mask]:
    """Return the numbers as words of 64 bits, and whether each is a whole number that can be."""
    if layout.wraps:
        return array.astype(np.int64).view(np.uint64), np.ones(len(array), np.bool_)
    limit = 2.0**53
    with np.errstate(invalid="ignore"):
        whole: Mask = (array >= 0) & (array < limit) & (array == np.floor(array))
    return np.where(whole, array, 0).astype(np.uint64), whole


def _positions(field: Words, total: Ints, layout: Layout, elements: int) -> tuple[Ints, Mask]:
    """Return the position of each element, and whether there is one.

    The field is the code times the number of contributions. An odd number has an inverse modulo
    2^bits; of an even one each factor 2 leaves one more bit of the code open.
    """
    bits = layout.position_bits
    most = MOST * layout.ranks + 1
    twos = np.array([0, *((k & -k).bit_length() - 1 for k in range(1, most))])
    inverse = np.array(
        [0, *(pow(k >> int(twos[k]), -1, 1 << bits) for k in range(1, most))], np.uint64
    )
    open_bits = twos[total].astype(np.uint64)
    exact = field & ((np.uint64(1) << open_bits) - np.uint64(1)) == 0
    if not layout.wraps:
        exact &= field < total.astype(np.uint64) << np.uint64(bits)
    mask = (np.uint64(1) << (np.uint64(bits) - open_bits)) - np.uint64(1)
    with np.errstate(over="ignore"):
        low = ((field >> open_bits) * inverse[total]) & mask
    step = np.uint64(bits) - open_bits
    candidates = np.full((len(field), 1 << int(open_bits.max(initial=0))), elements, np.uint64)
    for k in range(candidates.shape[1]):
        here = np.uint64(k) < (np.uint64(1) << open_bits)
        codes = low + (np.uint64(k) << step)
        place = position_of(codes, bits)
        likely = here & (place < np.uint64(elements))
        if not layout.wraps:  # nothing was cut off: the code times the number is the field
            likely &= codes * total.astype(np.uint64) == field
        candidates[:, k] = np.where(likely, place, elements)
    return _likeliest(candidates.astype(np.int64), elements, exact)


def _likeliest(candidates: Ints, elements: int, exact: Mask) -> tuple[Ints, Mask]:
    """Choose among several positions the one that follows from its neighbours, else the lowest."""
    chosen = candidates.min(1, initial=elements)
    found = exact & (chosen < elements)
    several = found & ((candidates < elements).sum(1) > 1)
    if several.any() and (found & ~several).any():
        at = np.arange(len(chosen))
        sure = found & ~several
        shifts, counts = np.unique(chosen[sure] - at[sure], return_counts=True)
        expected = at + shifts[counts.argmax()]
        fits = several & (candidates == expected[:, None]).any(1)
        chosen = np.where(fits, expected, chosen)
    return chosen, found


def _by_rank(
    digits: npt.NDArray[np.uint8], positions: Ints, world_size: int, layout: Layout
) -> tuple[npt.NDArray[np.uint8], Mask]:
    """Return the counts by rank, and whether no digit stands for a rank that there is not."""
    block = positions % layout.blocks(world_size)
    counts = np.zeros((len(digits), world_size), np.uint8)
    fits = np.ones(len(digits), np.bool_)
    for k in range(layout.ranks):
        rank = block * layout.ranks + k
        inside = rank < world_size
        fits &= inside | (digits[:, k] == 0)
        rows = np.flatnonzero(inside & (digits[:, k] > 0))
        counts[rows, rank[rows]] = digits[rows, k]
    return counts, fits
