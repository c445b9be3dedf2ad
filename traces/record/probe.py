"""Probes: tensors whose SUM tells, element by element, who contributed and which element it is.

    tensor = chunkscope.probe(rank, world_size, (1024,))
    my_all_reduce(tensor)           # recorded: chunkscope record train.py
                                    # then:     chunkscope check RUN --collective all_reduce

An element is a whole number with two fields. The low one has two bits a rank, so that a sum counts
each rank's contributions up to 3. The high one has a code of the element's position in the tensor;
in a sum it is that code times the number of contributions, so that parts of different elements that
were added, and numbers that are no probes at all, do not pass for a sum of probes.

One element tells of as many ranks as its type has bits for. Where there are more ranks, they take
turns: element i is of the ranks in block i mod m, and 0 on all others.

This module uses the standard library alone, until a tensor is asked for: it is imported in other
people's programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

COUNT_BITS = 2
MOST = (1 << COUNT_BITS) - 1  # contributions of one rank that are counted

# Odd, with bits all over: multiplied by them, neighbours come to lie far apart.
_SPREAD, _SPREAD_AGAIN = 0x9E3779B1, 0x85EBCA6B


@dataclass(frozen=True, slots=True)
class Layout:
    """How the elements of one dtype are made.

    Attributes:
        ranks: Ranks that one element tells of.
        position_bits: Bits of the code of a position.
        wraps: Whether sums are taken modulo 2^64, so that the position's field needs no room for
            them; else they must be exact.
    """

    ranks: int
    position_bits: int
    wraps: bool

    @property
    def count_bits(self) -> int:
        """Bits of the field that counts contributions."""
        return COUNT_BITS * self.ranks

    def blocks(self, world_size: int) -> int:
        """Return the number of blocks that the ranks are divided into."""
        return -(-world_size // self.ranks)


# float64 holds whole numbers up to 2^53: 16 bits of counts, 32 of position, 5 for up to 24 of them.
# float32, up to 2^24: 8, 12, and 4 for up to 12 of them.
LAYOUTS = {
    "int64": Layout(16, 32, wraps=True),
    "float64": Layout(8, 32, wraps=False),
    "float32": Layout(4, 12, wraps=False),
}


def code(position: Any, bits: int) -> Any:
    """Return the code of a position: another number below 2^bits for each, never 0.

    A sum of codes of different positions is, but for chance, no multiple of a code: linear codes
    would let elements 3 and 5 pass for twice element 4.

    Args:
        position: Whole numbers from 0 to 2^bits - 2: an int, or an array or tensor of 64 bits.
        bits: Bits of the code.

    Source: the xor-shift-multiply mixing step of MurmurHash3's finaliser, cut to `bits` bits.

    Example:
        >>> code(0, 12), code(1, 12), code(2, 12)
        (2109, 1392, 1368)
    """
    mask, half = (1 << bits) - 1, (bits + 1) // 2
    mixed = ((position + 1) * (_SPREAD & mask)) & mask
    mixed = mixed ^ (mixed >> half)
    mixed = (mixed * (_SPREAD_AGAIN & mask)) & mask
    return mixed ^ (mixed >> half)


def position_of(code: Any, bits: int) -> Any:
    """Return the position that a code is of, the reverse of `code`; 2^bits - 1 for 0.

    Example:
        >>> position_of(code(7, 12), 12)
        7
    """
    mask, half = (1 << bits) - 1, (bits + 1) // 2
    mixed = code ^ (code >> half)
    mixed = (mixed * pow(_SPREAD_AGAIN, -1, mask + 1)) & mask
    mixed = mixed ^ (mixed >> half)
    return ((mixed * pow(_SPREAD, -1, mask + 1)) - 1) & mask


def probe(
    rank: int,
    world_size: int,
    shape: int | Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
) -> torch.Tensor:
    """Make a tensor whose SUM over ranks tells who contributed to each element, and which it is.

    Contributions of one rank are counted exactly up to 3; a rank that is in it four times or more
    shows as "no sum of probes". An element tells of 16 ranks in int64 (sums may wrap, which does no
    harm), of 8 in float64 and of 4 in float32. With more ranks, element i tells only of the ranks
    of block i mod m, m = ceil(world_size / 16); a chunk must then have m elements to tell of all.
    MIN, MAX and plain copies show a single rank's part, AVG in float64 the sum divided.

    Args:
        rank: Rank whose part it is, from 0. In a subgroup: either the global or the group's rank,
            the same choice on all ranks.
        world_size: Number of ranks that `rank` counts in.
        shape: Elements a dimension.
        dtype: torch.int64 (default), torch.float64 or torch.float32. Up to 2^32 - 2 elements, in
            float32 up to 4,094.
        device: As of any torch tensor; the CPU by default.

    Raises:
        ValueError: The rank is not below the world size, the dtype holds no probes, or there are
            more elements than it has codes for.

    Example:
        >>> from chunkscope.traces.probes import decode
        >>> total = probe(0, 2, (4,)) + probe(1, 2, (4,)) + probe(1, 2, (4,))
        >>> decode(total.numpy(), 2).parts(3), decode(total.numpy(), 2).position(3)
        ([0, 1, 1], 3)
    """
    import torch

    kind = torch.int64 if dtype is None else dtype
    name = str(kind).removeprefix("torch.")
    layout = layout_of(name)
    if not 0 <= rank < world_size:
        raise ValueError(f"rank is {rank}, expected 0 to {world_size - 1} (world_size - 1)")
    sizes = [shape] if isinstance(shape, int) else list(shape)
    index = torch.arange(_product(sizes), dtype=torch.int64, device=device)
    most = (1 << layout.position_bits) - 2
    if len(index) > most:
        raise ValueError(
            f"{len(index)} elements, expected at most {most}: {name} has a code for no more"
        )
    block, digit = divmod(rank, layout.ranks)
    values = code(index, layout.position_bits) * (1 << layout.count_bits)
    values = values + (1 << (COUNT_BITS * digit))
    values = torch.where(index % layout.blocks(world_size) == block, values, 0)
    return values.to(kind).reshape(sizes)


def layout_of(dtype: str) -> Layout:
    """Return how probes of a dtype are made.

    Raises:
        ValueError: The dtype, by torch's name without the prefix, holds no probes.
    """
    if dtype not in LAYOUTS:
        raise ValueError(f"{dtype} holds no probes; those that do: {', '.join(LAYOUTS)}")
    return LAYOUTS[dtype]


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= int(size)
    return total
