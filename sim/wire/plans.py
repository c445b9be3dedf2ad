"""The gloo schedule of a call, bound to its size, and how its messages are told apart on the wire.

for plan in plans_of(asked):        # the likeliest first
    plan.bound.schedule.algorithm, plan.n_tags
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeVar

import numpy as np

from ...errors import ScheduleError
from ...traces.schema import DTYPES
from ..bind import BoundSchedule
from ..collectives import COLLECTIVES
from ..library import build
from ..schedule import Ints

Slot = TypeVar("Slot", int, Ints)

# gloo's number of each kind of collective, in the highest byte of a slot; 0 is a plain message.
# Source: gloo, gloo/types.h.
SLOT_KINDS = {
    "gather": 1,
    "all_gather": 2,
    "reduce": 3,
    "all_reduce": 4,
    "scatter": 5,
    "broadcast": 6,
    "barrier": 7,
    "all_to_all": 8,
    "reduce_scatter": 4,  # made of all_reduces
}
_TAG_SHIFT, _KIND_SHIFT = 24, 56
MONITORED = "monitored_barrier"
# What complex numbers are to a reduction: pairs of these.
_PARTS = {"complex64": "float32", "complex128": "float64"}


def slot_kind(slot: Slot) -> Slot:
    """Return which kind of collective a slot, or each of many, belongs to; see SLOT_KINDS."""
    return slot >> _KIND_SHIFT


def slot_tag(slot: Slot) -> Slot:
    """Return the number of the collective of a slot, or of each, as gloo counts a group's."""
    return (slot >> _TAG_SHIFT) & 0xFFFF_FFFF


class Asked(NamedTuple):
    """What a collective call asked for.

    Attributes:
        collective: Name of the collective.
        api: Function that the user called.
        group_size: Number of ranks.
        root: Group rank of the root.
        size_bytes: Bytes of the whole data.
        dtype: Torch's name of the element type; None for a barrier.
        reduce_op: Name of the reduce op.
        n_inputs: Tensors that a rank gave; None where nobody recorded them.
        splits: Elements that each rank sends to each other, where they are uneven.
    """

    collective: str
    api: str
    group_size: int
    root: int | None
    size_bytes: int
    dtype: str | None
    reduce_op: str | None
    n_inputs: int | None
    splits: tuple[tuple[int, ...], ...] | None


class Lane(NamedTuple):
    """The messages of a plan that share a tag, by source, destination and order."""

    src: Ints
    dst: Ints
    size: Ints
    row: Ints


@dataclass(frozen=True, eq=False)
class WirePlan:
    """A gloo schedule bound to a call, and how it shows on the wire.

    Attributes:
        bound: The schedule and its sizes.
        kind: Number in the highest byte of its slots.
        of_lane: Which of the call's tags each row of the schedule has, (rows,).
        n_tags: How many tags the call takes.
    """

    bound: BoundSchedule
    kind: int
    of_lane: Ints
    n_tags: int

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """The messages of each tag."""
        schedule = self.bound.schedule
        ordinal = schedule.messages.ordinal
        src, dst = schedule.src.astype(np.int64), schedule.dst.astype(np.int64)
        order = np.lexsort((ordinal, dst, src, self.of_lane))
        order = order[src[order] != dst[order]]
        of_lane = self.of_lane[order]
        found = []
        for lane in range(self.n_tags):
            rows = order[slice(*np.searchsorted(of_lane, [lane, lane + 1]))]
            found.append(Lane(src[rows], dst[rows], self.bound.row_bytes[rows], rows))
        return tuple(found)

    @cached_property
    def lane_bytes(self) -> list[int]:
        """Bytes of all messages of each tag."""
        return [int(lane.size.sum()) for lane in self.lanes]

    @cached_property
    def offset_bytes(self) -> tuple[Ints, Ints]:
        """Where each row lies in the tensor of its source and of its destination; -1: in none."""
        schedule = self.bound.schedule
        layouts = [self.bound.layout(place) for place in range(schedule.n_places)]
        offset = np.concatenate([layout.offset_elements for layout in layouts])
        scratch = [name == "scratch" for layout in layouts for name in layout.buffer]
        offset = np.where(np.array(scratch, np.bool_), -1, offset * self.bound.itemsize)
        ends = ((schedule.src, schedule.src_slot), (schedule.dst, schedule.dst_slot))
        cells = [place.astype(np.int64) * schedule.slots_a_place + slot for place, slot in ends]
        return offset[cells[0]], offset[cells[1]]


@lru_cache(maxsize=1024)
def plans_of(asked: Asked) -> tuple[WirePlan, ...]:
    """Return the plans that gloo may follow for a call, the likeliest first; empty if none fits."""
    try:
        return tuple(_plans(asked))
    except ScheduleError:
        return ()


def _plans(asked: Asked) -> Iterator[WirePlan]:
    if asked.api == MONITORED:
        yield _monitored(asked)
        return
    if asked.collective not in SLOT_KINDS or asked.size_bytes < 0:
        return
    kind = COLLECTIVES[asked.collective]
    dtype, itemsize = _element(asked, reduces=kind.reduces)
    names = ["gloo"]
    if asked.collective == "reduce_scatter":
        names = ["gloo", "gloo_list"]
        if asked.n_inputs == asked.group_size or (asked.n_inputs is None and _is_list(asked.api)):
            names = ["gloo_list", "gloo"]
    for name in names:
        parameters = {"root": asked.root} if kind.rooted else {}
        if asked.collective in ("all_reduce", "reduce_scatter", "all_gather", "reduce"):
            parameters |= {"size_bytes": asked.size_bytes, "itemsize": itemsize}
        schedule = build(asked.collective, name, asked.group_size, **parameters)
        count = asked.size_bytes // itemsize
        splits = asked.splits if asked.collective == "all_to_all" else None
        if splits is not None:
            count = max(map(sum, splits))
        bound = schedule.bind(count, dtype, splits)
        channel = schedule.channel.astype(np.int64)
        n_tags = asked.group_size if name == "gloo_list" else 1
        yield WirePlan(bound, SLOT_KINDS[asked.collective], channel, n_tags)


def _is_list(api: str) -> bool:
    return api == "reduce_scatter"


def _element(asked: Asked, *, reduces: bool) -> tuple[str, int]:
    """Return dtype and size of what gloo moves: bytes where it does not move whole elements."""
    dtype = asked.dtype or "uint8"
    if reduces:
        dtype = "uint8" if dtype == "bool" else _PARTS.get(dtype, dtype)
        if dtype not in DTYPES:
            raise ScheduleError(f"no plan for elements of type {dtype}")
        return dtype, DTYPES[dtype]
    itemsize = DTYPES.get(dtype, 1)
    known = dtype in DTYPES and (dtype == "bfloat16" or _has_numpy(dtype))
    halved = asked.collective == "all_gather" and asked.size_bytes // asked.group_size % (
        2 * itemsize
    )
    if asked.splits is not None and dtype not in DTYPES:
        raise ScheduleError(f"no plan for uneven blocks of type {dtype}")
    return (dtype, itemsize) if known and not halved else ("uint8", 1)


def _has_numpy(dtype: str) -> bool:
    try:
        np.dtype(dtype)
    except TypeError:
        return False
    return True


def _monitored(asked: Asked) -> WirePlan:
    """Return the plan of a monitored barrier: all tell rank 0, which tells all."""
    schedule = build("barrier", "gloo_monitored", asked.group_size)
    return WirePlan(schedule.bind(1, "int32"), 0, schedule.step.astype(np.int64), 2)
