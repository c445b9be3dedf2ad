"""The states table of a simulated trace: payloads, slots, inputs and outputs.

Numbers come from `values`, contributors from `flow`; each is left out where it is not known.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..traces.columns import Column, lists
from ..traces.schema import FIRST_VALUES, FULL_BYTES, SAMPLE_VALUES, Role, Type, When
from ..traces.trace import decode, encode
from .bind import BoundSchedule
from .flow import Flow, Which, flow, flow_fits
from .values import Values, held_before

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

# Rows times ranks above which contributors are left out.
MOST_CONTRIBUTORS = 1_000_000


class Shown(NamedTuple):
    """Which events show a schedule's rows.

    Attributes:
        message: Rows of the schedule that are messages.
        send, recv: Their events.
        writer: For each row, the event that shows its destination before and after.
    """

    message: Ints
    send: Ints
    recv: Ints
    writer: Ints


class _Block(NamedTuple):
    """States of one `when` and `role`; `counts` and `data` are None where not known."""

    events: Ints
    when: When
    role: Role
    indices: Ints
    elements: Ints
    counts: npt.NDArray[Any] | None
    data: list[Any] | None


def states(bound: BoundSchedule, shown: Shown, values: Values | None) -> dict[str, Any] | None:
    """Return the cells of the states table; None where nothing is known to put in it.

    Args:
        bound: The schedule and its sizes.
        shown: The events that the states belong to; the ranks' collectives come first.
        values: The numbers, where they were computed.
    """
    schedule = bound.schedule
    small = len(schedule) * schedule.group_size <= MOST_CONTRIBUTORS and flow_fits(schedule)
    if values is None and not small:
        return None
    whose = flow(schedule) if small else None
    blocks = [*_tensors(bound, whose, values), *_moved(bound, shown, whose, values)]
    return _table(blocks, bound.dtype)


def _tensors(bound: BoundSchedule, whose: Flow | None, values: Values | None) -> Iterator[_Block]:
    """Yield the inputs and outputs of the ranks that have them."""
    for place in range(bound.schedule.group_size):
        for role, when, pieces in (
            (Role.INPUT, When.BEFORE, bound.input(place)),
            (Role.OUTPUT, When.AFTER, bound.output(place)),
        ):
            data = counts = None
            if values is not None:
                data = [(values.inputs if role is Role.INPUT else values.outputs)[place]]
            if not pieces.slots or (data is not None and data[0] is None):
                continue
            if whose is not None:
                of = whose.input_contributors if role is Role.INPUT else whose.output_contributors
                counts = np.bincount(of(place), minlength=bound.schedule.group_size)[None]
            one, elements = np.array([place]), np.array([pieces.total_elements])
            yield _Block(one, when, role, np.array([0]), elements, counts, data)


def _moved(
    bound: BoundSchedule, shown: Shown, whose: Flow | None, values: Values | None
) -> Iterator[_Block]:
    """Yield payloads at both ends, and the destinations before and after."""
    schedule = bound.schedule
    held = np.flatnonzero(held_before(schedule))
    every = np.arange(len(schedule))
    source, target = schedule.src_slot, schedule.dst_slot
    about: tuple[tuple[Ints, Ints, When, Role, Ints, Which], ...] = (
        (shown.message, shown.send, When.BEFORE, Role.PAYLOAD, source, "payload"),
        (shown.message, shown.recv, When.AFTER, Role.PAYLOAD, target, "payload"),
        (held, shown.writer[held], When.BEFORE, Role.SLOT, target, "before"),
        (every, shown.writer, When.AFTER, Role.SLOT, target, "after"),
    )
    for rows, events, when, role, slots, which in about:
        data = None
        if values is not None:
            column: Sequence[Array | None] = getattr(values, which)
            data = [column[row] for row in rows.tolist()]
        counts = None if whose is None else whose.row_counts(which)[rows]
        index = slots[rows].astype(np.int64)
        yield _Block(events, when, role, index, bound.row_elements[rows], counts, data)


def _table(blocks: list[_Block], dtype: str) -> dict[str, Any]:
    """Return the cells of all blocks, in order of their events."""
    events = np.concatenate([block.events for block in blocks])
    order = np.argsort(events, kind="stable")
    n = len(order)
    sizes = [len(block.events) for block in blocks]
    every = np.ones(n, np.bool_)
    cells: dict[str, Any] = {
        "event": events[order],
        "when": _texts([block.when for block in blocks], sizes, order),
        "role": _texts([block.role for block in blocks], sizes, order),
        "index": np.concatenate([block.indices for block in blocks])[order],
        "dtype": Column(Type.TEXT, np.zeros(n, np.int32), every, (dtype,)),
    }
    elements = np.concatenate([block.elements for block in blocks])[order]
    cells["shape"] = lists(Type.INTS, np.ones(n, np.int64), every, elements)
    counts = [block.counts for block in blocks if block.counts is not None]
    if counts:
        cells["contributors"] = _contributors(np.concatenate(counts)[order])
    if blocks and blocks[0].data is not None:
        data = [array for block in blocks for array in block.data or ()]
        kept = [_kept(data[k], dtype) for k in order.tolist()]
        for name in sorted({name for one in kept for name in one}):
            cells[name] = [one.get(name) for one in kept]
    return cells


def _texts(texts: Sequence[str], sizes: list[int], order: Ints) -> Column:
    """Return a column of one text a block."""
    known = tuple(dict.fromkeys(map(str, texts)))
    codes = np.repeat(np.array([known.index(str(text)) for text in texts], np.int32), sizes)
    return Column(Type.TEXT, codes[order], np.ones(len(order), np.bool_), known)


def _contributors(counts: npt.NDArray[Any]) -> Column:
    row, rank = np.nonzero(counts)
    length = counts.sum(axis=1, dtype=np.int64)
    flat = np.repeat(rank, counts[row, rank]).astype(np.int64)
    return lists(Type.INTS, length, np.ones(len(length), np.bool_), flat)


def _kept(array: Array, dtype: str) -> dict[str, Any]:
    """Return what a recording with policy `full` keeps of a tensor."""
    data = encode(array, dtype)
    if len(data) <= FULL_BYTES:
        return {"data": data}
    stride = math.ceil(len(array) / SAMPLE_VALUES)
    sample = encode(array[::stride], dtype)
    found: dict[str, Any] = {
        "digest": zlib.crc32(sample),
        "digest_of": "all" if stride == 1 else "sample",
        "first": encode(array[:FIRST_VALUES], dtype),
    }
    numbers = decode(sample, dtype)
    if numbers.dtype.kind == "c":
        return found
    numbers = numbers.astype(np.float64)
    found["nan"] = int(np.isnan(numbers).sum())
    numbers = numbers[~np.isnan(numbers)]
    if len(numbers):
        found |= {"min": float(numbers.min()), "max": float(numbers.max())}
        found["mean"] = float(numbers.mean())
    return found
