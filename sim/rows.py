"""The rows of a schedule, one by one and as columns, and the slots of its buffers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ScheduleError
from .compiled import kernel, run

Ints = npt.NDArray[np.int64]


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


class Messages(NamedTuple):
    """How rows travel together.

    Attributes:
        of_row: Number of the message that a row travels in, over the whole schedule, (rows,);
            local rows have numbers of their own.
        part: Place of the row within its message, (rows,).
        ordinal: k of "the k-th message from src to dst on this channel", (rows,).
        first_row: First row of each message, (messages,).
    """

    of_row: Ints
    part: Ints
    ordinal: Ints
    first_row: Ints


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
    fitted = np.ascontiguousarray(array, dtype)
    if array.dtype != fitted.dtype and (fitted != array).any():
        row = int(np.flatnonzero(fitted != array)[0])
        raise ScheduleError(f"row {row}: {name} is {array[row]}, expected a {fitted.dtype}")
    return fitted


def messages_of(step: Ints, lane: Ints, local: npt.NDArray[np.bool_]) -> Messages:
    """Return how rows travel together.

    Args:
        step: Step of each row, rising.
        lane: Number of the row's (channel, src, dst).
        local: Whether the row stays at its place.
    """
    n_lanes = int(lane.max(initial=-1)) + 1
    if n_lanes > 4 * len(lane) + (1 << 16):
        used, lane = np.unique(lane, return_inverse=True)
        n_lanes = len(used)
    # Half as wide as Python's own, since there is one of each for every row.
    columns: Any = np.empty((3, len(step)), np.int32)
    of_row, part, ordinal = columns
    last: Any = np.full((n_lanes, 4), -1, np.int32)
    n = run(_number, len(step))(step, lane, local, last, of_row, part, ordinal)
    first_row: Any = np.empty(n, np.int32)
    first_row[of_row[::-1]] = np.arange(len(step) - 1, -1, -1, dtype=np.int32)
    return Messages(of_row, part, ordinal, first_row)


@kernel
def _number(
    step: Ints,
    lane: Ints,
    local: npt.NDArray[np.bool_],
    last: Ints,
    of_row: Ints,
    part: Ints,
    ordinal: Ints,
) -> int:
    """Number messages, their parts, and the messages of each lane; return how many there are.

    `last` has step, number, part and ordinal of each lane's last row, -1 for none.
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
            last[at, 3] += 1
            n += 1
        of_row[row] = last[at, 1]
        part[row] = last[at, 2]
        ordinal[row] = last[at, 3]
    return n
