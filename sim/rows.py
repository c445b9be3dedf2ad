"""The rows of a schedule, one by one and as columns, and the slots of its buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ScheduleError
from .compiled import kernel, run

Ints = npt.NDArray[np.int64]

# Rows of which something is worked out at once.
_BLOCK = 1 << 16


class Transfer(NamedTuple):
    """One row of a schedule: `n_slots` slots of `src` go to slots of `dst`.

    With `src == dst` it is a local copy or reduce.
    """

    step: int
    channel: int
    src: int
    dst: int
    src_slot: int
    dst_slot: int
    n_slots: int = 1
    reduce: bool = False


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of a buffer at each rank: one list for all, or one list a rank."""

    lists: tuple[tuple[int, ...], ...]

    def __getitem__(self, place: int) -> tuple[int, ...]:
        return self.lists[0 if len(self.lists) == 1 else place]

    @staticmethod
    def of(slots: SlotLists, group_size: int) -> Slots:
        """Return Slots from one list of slots, or from one list a rank; equal lists become one."""
        if isinstance(slots, Slots):
            return slots
        items: list[Any] = list(slots)
        if not items or isinstance(items[0], int | np.integer):
            return Slots((tuple(int(slot) for slot in items),))
        lists = tuple(tuple(int(slot) for slot in rank) for rank in items)
        if len(lists) != group_size:
            raise ScheduleError(f"{len(lists)} lists of slots for {group_size} ranks")
        return Slots(lists[:1] if len(set(lists)) == 1 else lists)


SlotLists = Slots | Iterable[int] | Sequence[Iterable[int]]


@dataclass(frozen=True, eq=False)
class Messages:
    """How rows travel together.

    Where each row travels alone, `of_row` and `first_row` are one array.

    Attributes:
        of_row: Number of the message that a row travels in, over the whole schedule, (rows,);
            local rows have numbers of their own.
        part: Place of the row within its message, (rows,).
        first_row: First row of each message, (messages,).
        lane: Returns the number of each row's (channel, src, dst), (rows,).
    """

    of_row: Ints
    part: Ints
    first_row: Ints
    lane: Callable[[], Ints]

    @property
    def alone(self) -> bool:
        """Whether each row is a message of its own."""
        return self.of_row is self.first_row

    @cached_property
    def ordinal(self) -> Ints:
        """k of "the k-th message from src to dst on this channel", (rows,)."""
        ordinal: Ints = occurrence(self.lane()[self.first_row]).astype(np.int32)
        return ordinal[self.of_row]


_ROW = (
    ("step", np.int32),
    ("channel", np.int16),
    ("src", np.int32),
    ("dst", np.int32),
    ("src_slot", np.int32),
    ("dst_slot", np.int32),
    ("n_slots", np.int32),
    ("reduce", np.bool_),
)


def columns_of(rows: Iterable[Transfer] | Sequence[npt.ArrayLike]) -> dict[str, Any]:
    """Return the eight columns of the rows, by name."""
    items: list[Any] = list(rows)
    if items and isinstance(items[0], tuple):
        given = list(zip(*(Transfer(*item) for item in items), strict=True))
    else:
        given = items or [[] for _ in _ROW]
    if len(given) != len(_ROW):
        raise ScheduleError(f"{len(given)} columns of rows, expected {len(_ROW)}")
    arrays = np.broadcast_arrays(*(np.asarray(column) for column in given))
    return {
        name: _fitted(name, array.reshape(-1), dtype)
        for (name, dtype), array in zip(_ROW, arrays, strict=True)
    }


def _fitted(name: str, array: npt.NDArray[Any], dtype: Any) -> npt.NDArray[Any]:
    """Return a column in its dtype, refusing what that cannot hold."""
    try:
        with np.errstate(invalid="ignore"):
            fitted = np.ascontiguousarray(array, dtype)
    except (OverflowError, TypeError, ValueError):
        raise ScheduleError(f"{name} of a row is no {np.dtype(dtype)}: {array[:4]}") from None
    if array.dtype != fitted.dtype and (fitted != array).any():
        row = int(np.flatnonzero(fitted != array)[0])
        raise ScheduleError(f"row {row}: {name} is {array[row]}, expected {fitted.dtype}")
    return fitted


def numbers(n: int) -> Ints:
    """Return 0 .. n - 1, half as wide as Python's own."""
    return np.arange(n, dtype=np.int32)


def narrow(values: Ints, most: int) -> Ints:
    """Return values from 0 to `most`, half as wide as Python's own if they fit."""
    fits = most <= np.iinfo(np.int32).max
    return values.astype(np.int32) if fits else values


def blocks(n: int) -> Iterator[slice]:
    """Yield slices of all of n rows, each so small that what is worked out of it stays near."""
    return (slice(low, min(low + _BLOCK, n)) for low in range(0, n, _BLOCK))


def occurrence(keys: Ints) -> Ints:
    """Return how many equal keys lie before each one."""
    order = np.argsort(keys, kind="stable")
    start = np.ones(len(keys), np.bool_)
    start[1:] = np.diff(keys[order]) != 0
    place = np.arange(len(keys))
    found = np.empty_like(place)
    found[order] = place - place[start][np.cumsum(start) - 1]
    return found


def messages_of(
    step: Ints, local: npt.NDArray[np.bool_], number: Ints, lane: Callable[[], Ints]
) -> Messages:
    """Return how rows travel together.

    Args:
        step: Step of each row, rising.
        local: Whether the row stays at its place.
        number: Number of each row.
        lane: Returns the number of each row's (channel, src, dst).
    """
    lanes = lane()
    n_lanes = int(lanes.max(initial=-1)) + 1
    if n_lanes > 4 * len(lanes) + (1 << 16):
        used, lanes = np.unique(lanes, return_inverse=True)
        n_lanes = len(used)
    lanes = lanes.astype(np.int32, copy=False)
    last: Any = np.full(n_lanes, -1, np.int32)
    if not run(_meet, len(step))(step, lanes, local, last):
        return Messages(number, np.broadcast_to(np.int32(0), len(step)), number, lane)
    last = np.full((n_lanes, 3), -1, np.int32)
    columns: Any = np.empty((2, len(step)), np.int32)
    of_row, part = columns
    n = run(_number, len(step))(step, lanes, local, last, of_row, part)
    first_row: Any = np.empty(n, np.int32)
    first_row[of_row[::-1]] = number[::-1]
    return Messages(of_row, part, first_row, lane)


@kernel
def _meet(step: Ints, lane: Ints, local: npt.NDArray[np.bool_], last: Ints) -> bool:
    """Return whether two rows travel together; `last`, all -1, becomes each lane's last step."""
    for row in range(len(step)):
        if last[lane[row]] == step[row] and not local[row]:
            return True
        last[lane[row]] = step[row]
    return False


@kernel
def _number(
    step: Ints,
    lane: Ints,
    local: npt.NDArray[np.bool_],
    last: Ints,
    of_row: Ints,
    part: Ints,
) -> int:
    """Number messages and their parts; return how many messages there are.

    `last` has step, number and part of each lane's last row, -1 for none.
    """
    n = 0
    for row in range(len(step)):
        at = lane[row]
        if last[at, 0] == step[row] and not local[row]:
            last[at, 2] += 1
        else:
            last[at, 0] = step[row]
            last[at, 1] = n
            last[at, 2] = 0
            n += 1
        of_row[row] = last[at, 1]
        part[row] = last[at, 2]
    return n
