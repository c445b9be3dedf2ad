"""Pieces that builders put together: columns of rows, halves that mirror each other, butterflies.

A half is a reduce_scatter in place: every chunk keeps its slot on its way to its owner. Played
backwards, with copies, it is an all_gather, and the two after each other are an all_reduce.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..schedule import Ints
from .registry import Sizes

POWERS_OF_TWO = Sizes("powers of two", lambda n: n >= 1 and n & (n - 1) == 0)
EVEN = Sizes("even numbers", lambda n: n >= 2 and n % 2 == 0)


class Rows(NamedTuple):
    """Rows as columns, in the order of Transfer's fields."""

    step: Ints
    channel: Ints
    src: Ints
    dst: Ints
    src_slot: Ints
    dst_slot: Ints
    n_slots: Ints
    reduce: npt.NDArray[np.bool_]

    @property
    def n_steps(self) -> int:
        """One more than the last step."""
        return int(self.step.max(initial=-1)) + 1

    def later(self, steps: int) -> Rows:
        """Return the same rows, so many steps later."""
        return self._replace(step=self.step + np.int32(steps))

    def backwards(self) -> Rows:
        """Return the all_gather that undoes a reduce_scatter in place: all rows turned around."""
        return Rows(
            np.int32(self.n_steps - 1) - self.step,
            self.channel,
            self.dst,
            self.src,
            self.dst_slot,
            self.src_slot,
            self.n_slots,
            np.zeros(len(self.step), np.bool_),
        )


def rows(
    step: npt.ArrayLike,
    src: npt.ArrayLike,
    dst: npt.ArrayLike,
    slot: npt.ArrayLike,
    n_slots: npt.ArrayLike = 1,
    *,
    reduce: bool,
    dst_slot: npt.ArrayLike | None = None,
    channel: npt.ArrayLike = 0,
) -> Rows:
    """Return rows from columns of any shapes that broadcast against each other."""
    columns = (step, channel, src, dst, slot, slot if dst_slot is None else dst_slot, n_slots)
    arrays = np.broadcast_arrays(*(np.asarray(column, np.int32) for column in columns))
    flat: list[Any] = [np.ascontiguousarray(array).reshape(-1) for array in arrays]
    flat.append(np.full(len(flat[0]), reduce))
    return Rows(*flat)


def joined(parts: Sequence[Rows]) -> Rows:
    """Return all rows of some parts."""
    if not parts:
        return rows([], [], [], [], reduce=False)
    return Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def one_after_the_other(*parts: Rows) -> Rows:
    """Return all rows of some parts, each beginning where the one before it ends."""
    placed, step = [], 0
    for part in parts:
        placed.append(part.later(step))
        step += part.n_steps
    return joined(placed)


def there_and_back(half: Rows) -> Rows:
    """Return an all_reduce: a reduce_scatter in place, then its mirror image."""
    return one_after_the_other(half, half.backwards())


def butterfly(peers: Sequence[Ints], position: Ints) -> Rows:
    """Return a reduce_scatter by halving: in step s each rank swaps half of what it has left.

    Args:
        peers: Partner of each rank, (ranks,), of each step.
        position: Slot in which each rank's own chunk ends, (ranks,). What a rank has left after
            step s are the slots that begin with the same s + 1 bits.
    """
    rank, n = np.arange(len(position)), len(position)
    parts = []
    for step, peer in enumerate(peers):
        half = n >> step + 1
        theirs = position[peer] // half * half
        parts.append(rows(step, rank, peer, theirs, half, reduce=True))
    return joined(parts)


def reversed_bits(n: int) -> Ints:
    """Return 0 .. n-1, n a power of two, with the order of their bits turned around, (n,)."""
    numbers, turned = np.arange(n), np.zeros(n, np.int64)
    for bit in range(n.bit_length() - 1):
        turned = turned << 1 | numbers >> bit & 1
    return turned


def rings(dims: Sequence[int], strides: Sequence[int], direction: int = 1) -> tuple[Rows, Rows]:
    """Return a reduce_scatter by rings in one dimension after the other, and the all_gather back.

    Rank r has the coordinate r // strides[i] % dims[i] in dimension i, and ends with the chunk in
    slot `torus_slots(dims, strides)[r]`. The all_gather takes the dimensions in reverse, and goes
    around each in the same direction.

    Args:
        dims: Ranks in each dimension, the first to be reduced first.
        strides: Ranks between neighbours in each dimension.
        direction: 1 for sending up, -1 for sending down.
    """
    n = int(np.prod(dims))
    rank, base, block = np.arange(n), np.zeros(n, np.int64), n
    halves: tuple[list[Rows], list[Rows]] = ([], [])
    for dim, stride in zip(dims, strides, strict=True):
        block //= dim
        mine = rank // stride % dim
        dst = rank + ((mine + direction) % dim - mine) * stride
        turn = np.arange(dim - 1)[:, None]
        for gathers, half in enumerate(halves):
            slot = base + (mine - direction * (turn + 1 - gathers)) % dim * block
            half.append(rows(turn, rank, dst, slot, block, reduce=not gathers))
        base = base + mine * block
    return one_after_the_other(*halves[0]), one_after_the_other(*halves[1][::-1])


def torus_slots(dims: Sequence[int], strides: Sequence[int]) -> Ints:
    """Return the slot in which each rank's chunk ends after `rings`, (ranks,)."""
    n = int(np.prod(dims))
    rank, slot, block = np.arange(n), np.zeros(n, np.int64), n
    for dim, stride in zip(dims, strides, strict=True):
        block //= dim
        slot = slot + rank // stride % dim * block
    return slot
