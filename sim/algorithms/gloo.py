"""Native gloo's rings: what its collectives send when a program calls torch.distributed on CPU.

Every plan here holds for one size where `size_bytes` is given, and then equals what gloo sends,
message by message: how many segments there are depends on the bytes. Without it each rank's part is
cut in two. All of them keep two messages in flight (window 2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import ScheduleError
from ..schedule import Ints, Schedule
from .registry import Phase, algorithm

NAME = "gloo"
_SEGMENT_BYTES = 1 << 20
_IN_FLIGHT = 2

Column = npt.NDArray[Any]

_SCATTER = Phase(
    "reduce-scatter",
    0,
    0,
    "Each rank adds its own part to the segment that arrives and passes it on.",
    "Every rank sends a segment to the rank below it.",
)
_GATHER = Phase(
    "all-gather",
    0,
    0,
    "The finished segments go once more around, until every rank has all of them.",
)


def _ring_phases(schedule: Schedule) -> list[Phase]:
    half = schedule.n_steps // 2
    return [_SCATTER._replace(n_steps=half), _GATHER._replace(first_step=half, n_steps=half)]


def _all_gather_phases(schedule: Schedule) -> list[Phase]:
    return [
        Phase(
            "all-gather",
            0,
            schedule.n_steps,
            "Each rank passes on the half block that has arrived.",
            "Every rank sends the first half of its own block to the rank above it.",
        )
    ]


class _Segments(NamedTuple):
    """How gloo cuts `total` elements: n segments of `length`, the last ones short or empty."""

    n: int
    length: int
    total: int

    @property
    def elements(self) -> Ints:
        """Elements of each segment, (n,)."""
        return np.clip(self.total - self.length * np.arange(self.n), 0, self.length)


def _cut(group_size: int, size_bytes: int | None, itemsize: int) -> _Segments:
    """Return how all_reduce cuts: two segments a rank at least, of at most 1 MiB."""
    count = _count(size_bytes, itemsize)
    if count is None:
        return _Segments(2 * group_size, 1, 2 * group_size)
    largest = _largest(itemsize)
    n = -(-max(-(-count // largest), 2 * group_size) // group_size) * group_size
    return _Segments(n, -(-count // n), count)


def _cut_of_reduce(group_size: int, size_bytes: int | None, itemsize: int) -> _Segments:
    """Return how reduce cuts: it works out the length of a segment first."""
    count = _count(size_bytes, itemsize)
    if not count:
        return _Segments(2 * group_size, 1, 0 if count == 0 else 2 * group_size)
    length = min(-(-count // (2 * group_size)), _largest(itemsize))
    n = -(-max(-(-count // length), 2 * group_size) // group_size) * group_size
    return _Segments(n, length, count)


def _largest(itemsize: int) -> int:
    return max(1, _SEGMENT_BYTES // itemsize)


def _count(size_bytes: int | None, itemsize: int) -> int | None:
    """Return the number of elements; None where the plan is for no size."""
    if size_bytes is None:
        return None
    if size_bytes < 0 or itemsize < 1 or size_bytes % itemsize:
        raise ScheduleError(
            f"{NAME}: {size_bytes} bytes are no multiple of the element's {itemsize}"
        )
    return size_bytes // itemsize


class _Turns(NamedTuple):
    """The ring's messages: turn, sender, segment, and whether it is reduced; each (rows,)."""

    turn: Ints
    src: Ints
    segment: Ints
    reduce: Column

    def where(self, keep: Column) -> _Turns:
        return _Turns(*(column[keep] for column in self))


def _ring(group_size: int, a_rank: int, *, gathers: bool) -> _Turns:
    """Return gloo's ring: rank r sends segment after segment to r - 1, first those of chunk r + 1.

    Args:
        group_size: Number of ranks.
        a_rank: Segments of each rank's chunk.
        gathers: Whether the finished segments go around once more.
    """
    half = (group_size - 1) * a_rank
    rank, turn = np.arange(group_size), np.arange(half * (2 if gathers else 1))[:, None]
    first = np.where(turn < half, (rank + 1) * a_rank + turn, rank * a_rank + turn - half)
    segment = first % (group_size * a_rank)
    columns = (turn, rank, segment, turn < half)
    return _Turns(*(np.broadcast_to(column, segment.shape).reshape(-1) for column in columns))


@algorithm("all_reduce", NAME, phases=_ring_phases)
def all_reduce_gloo(
    group_size: int, segments: int | None = None, size_bytes: int | None = None, itemsize: int = 1
) -> Schedule:
    """Return native gloo's ring: the other way around than NCCL's, two segments in flight.

    Rank r sends to r - 1, first chunk r + 1; chunk k is complete first at rank k. A chunk is cut
    into segments, each of which is a step. With one segment, ranks 0 to 2::

        step   r0 -> r2    r1 -> r0    r2 -> r1
          0    +chunk 1    +chunk 2    +chunk 0    reduce-scatter
          1    +chunk 2    +chunk 0    +chunk 1
          2     chunk 0     chunk 1     chunk 2    all-gather
          3     chunk 1     chunk 2     chunk 0

    Args:
        group_size: Number of ranks, 1 or more.
        segments: Segments of a chunk; None for as many as gloo takes.
        size_bytes: Bytes of the whole data; with it the plan is gloo's for that size: segments of
            at most 1 MiB, all equal but the last, and those that are empty left out.
        itemsize: Bytes of an element, where `size_bytes` is given.

    Source: gloo, gloo/allreduce.cc, function ring.

    Example:
        >>> all_reduce_gloo(4).n_steps
        12
    """
    if segments is not None and segments < 1:
        raise ScheduleError(f"{NAME}: segments is {segments}, expected 1 or more")
    cut = _cut(group_size, size_bytes, itemsize)
    if segments is not None:
        n = group_size * segments
        cut = _Segments(n, -(-cut.total // n), cut.total)
    fixed = None if size_bytes is None else cut.elements
    turns = _ring(group_size, cut.n // group_size, gathers=True)
    if fixed is not None:
        turns = turns.where(fixed[turns.segment] > 0)
    step, src, slot, reduce = turns
    return Schedule.of(
        "all_reduce",
        NAME,
        group_size,
        (step, 0, src, (src - 1) % group_size, slot, slot, 1, reduce),
        input=range(cut.n),
        output=range(cut.n),
        window=_IN_FLIGHT,
        chunk_elements=fixed,
    )


@algorithm("reduce_scatter", NAME, phases=_ring_phases)
def reduce_scatter_gloo(
    group_size: int, size_bytes: int | None = None, itemsize: int = 1
) -> Schedule:
    """Return what native gloo does for one tensor: a ring all_reduce of all of it.

    The messages are those of all_reduce; each rank keeps its own block of the result alone. With
    two ranks and a block of two segments::

        step   r0 -> r1    r1 -> r0
          0    +chunk 2    +chunk 0    reduce-scatter
          1    +chunk 3    +chunk 1
          2     chunk 0     chunk 2    all-gather, for nothing
          3     chunk 1     chunk 3

    Where blocks and segments do not end at the same place, one message has chunks of two blocks.

    Args:
        group_size: Number of ranks, 1 or more.
        size_bytes: Bytes of a rank's whole input; None for a plan of no size.
        itemsize: Bytes of an element, where `size_bytes` is given.

    Source: PyTorch 2.13, ProcessGroupGloo, _reduce_scatter_base; gloo/allreduce.cc.

    Example:
        >>> reduce_scatter_gloo(4).n_steps
        12
    """
    cut = _cut(group_size, size_bytes, itemsize)
    if cut.total % group_size:
        raise ScheduleError(
            f"{NAME}: {cut.total} elements cannot be divided equally among {group_size} ranks"
        )
    chunks, first, n_slots = _chunks(cut, group_size)
    turns = _ring(group_size, cut.n // group_size, gathers=True)
    step, src, segment, reduce = turns.where(n_slots[turns.segment] > 0)
    slot, dst = first[segment], (src - 1) % group_size
    a_block = len(chunks) // group_size
    return Schedule.of(
        "reduce_scatter",
        NAME,
        group_size,
        (step, 0, src, dst, slot, slot, n_slots[segment], reduce),
        input=range(len(chunks)),
        output=np.arange(len(chunks)).reshape(group_size, a_block).tolist(),
        window=_IN_FLIGHT,
        chunk_elements=None if size_bytes is None else chunks,
    )


def _chunks(cut: _Segments, n_blocks: int) -> tuple[Ints, Ints, Ints]:
    """Cut a vector where a segment or a block of it ends.

    Every block has the same number of chunks, the last of which may be empty.

    Returns:
        Elements of each chunk, (chunks,); first chunk of each segment and how many it has,
        (segments,), 0 where the segment is empty.
    """
    block, segment = cut.total // n_blocks, np.arange(cut.n)
    if block == 0:
        return np.zeros(n_blocks, np.int64), np.zeros_like(segment), np.zeros_like(segment)
    starts = np.unique(
        np.concatenate(
            [np.arange(0, cut.total, cut.length), np.arange(0, cut.total, block)],
        )
    )
    of_block = starts // block
    order = np.arange(len(starts)) - np.searchsorted(of_block, of_block)
    a_block = int(order.max()) + 1
    chunk = of_block * a_block + order
    elements = np.zeros(n_blocks * a_block, np.int64)
    elements[chunk] = np.diff(starts, append=cut.total)
    low, high = (np.searchsorted(starts // cut.length, segment + k) for k in (0, 1))
    some = low < high
    first, n_slots = np.zeros(cut.n, np.int64), np.zeros(cut.n, np.int64)
    first[some] = chunk[low[some]]
    n_slots[some] = chunk[high[some] - 1] - first[some] + 1
    return elements, first, n_slots


@algorithm("reduce_scatter", "gloo_list", phases=_ring_phases)
def reduce_scatter_gloo_list(
    group_size: int, size_bytes: int | None = None, itemsize: int = 1
) -> Schedule:
    """Return what native gloo does for a list of tensors: a ring all_reduce of each, all at once.

    Channel k is the all_reduce of the k-th tensor, which only rank k keeps. With two ranks::

        step     r0 -> r1, channel 0 and 1    r1 -> r0, channel 0 and 1
          0      +chunk 2    +chunk 6         +chunk 0    +chunk 4
          1      +chunk 3    +chunk 7         +chunk 1    +chunk 5
          2       chunk 0     chunk 4          chunk 2     chunk 6
          3       chunk 1     chunk 5          chunk 3     chunk 7

    Args:
        group_size: Number of ranks, 1 or more.
        size_bytes: Bytes of all tensors that a rank puts in; None for a plan of no size.
        itemsize: Bytes of an element, where `size_bytes` is given.

    Source: PyTorch 2.13, ProcessGroupGloo, as seen on the wire; gloo/allreduce.cc.

    Example:
        >>> reduce_scatter_gloo_list(3).channels
        3
    """
    if size_bytes is not None and size_bytes % (group_size * itemsize):
        raise ScheduleError(
            f"{NAME}: {size_bytes} bytes cannot be divided equally among {group_size} ranks"
        )
    block_bytes = None if size_bytes is None else size_bytes // group_size
    cut = _cut(group_size, block_bytes, itemsize)
    turns = _ring(group_size, cut.n // group_size, gathers=True)
    if size_bytes is not None:
        turns = turns.where(cut.elements[turns.segment] > 0)
    channel = np.repeat(np.arange(group_size), len(turns.turn))
    step, src, segment, reduce = (np.tile(column, group_size) for column in turns)
    slot = channel * cut.n + segment
    slots = np.arange(group_size * cut.n)
    return Schedule.of(
        "reduce_scatter",
        "gloo_list",
        group_size,
        (step, channel, src, (src - 1) % group_size, slot, slot, 1, reduce),
        input=slots,
        output=slots.reshape(group_size, cut.n).tolist(),
        window=_IN_FLIGHT,
        chunk_elements=None if size_bytes is None else np.tile(cut.elements, group_size),
    )


@algorithm("all_gather", NAME, phases=_all_gather_phases)
def all_gather_gloo(group_size: int, size_bytes: int | None = None, itemsize: int = 1) -> Schedule:
    """Return native gloo's ring: each block goes around in two halves, the smaller one first.

    Rank r sends to r + 1, first its own block. Ranks 0 to 2, slot 2k + h is half h of block k::

        step   r0 -> r1    r1 -> r2    r2 -> r0
          0     chunk 0     chunk 2     chunk 4
          1     chunk 1     chunk 3     chunk 5
          2     chunk 4     chunk 0     chunk 2
          3     chunk 5     chunk 1     chunk 3

    Args:
        group_size: Number of ranks, 1 or more.
        size_bytes: Bytes of all blocks together; None for a plan of no size.
        itemsize: Bytes of an element, where `size_bytes` is given. gloo halves bytes, not elements:
            a block of an odd number of elements can only be planned in bytes (itemsize 1).

    Source: gloo, gloo/allgather.cc.

    Example:
        >>> all_gather_gloo(4).n_steps
        6
    """
    count = _count(size_bytes, itemsize)
    halves = None
    if count is not None:
        if count % group_size:
            raise ScheduleError(
                f"{NAME}: {count} elements cannot be divided equally among {group_size} ranks"
            )
        block = count // group_size
        if block % 2 and itemsize > 1:
            raise ScheduleError(
                f"{NAME}: a block of {block} elements is halved within an element of {itemsize} "
                "bytes: plan it in bytes (itemsize 1, dtype uint8)"
            )
        halves = np.tile([block // 2, block - block // 2], group_size)
    n_turns = 0 if count == 0 else 2 * (group_size - 1)
    rank, turn = np.arange(group_size), np.arange(n_turns)[:, None]
    slot = 2 * ((rank - turn // 2) % group_size) + turn % 2
    step, src = (np.broadcast_to(c, slot.shape).reshape(-1) for c in (turn, rank))
    slot = slot.reshape(-1)
    return Schedule.of(
        "all_gather",
        NAME,
        group_size,
        (step, 0, src, (src + 1) % group_size, slot, slot, 1, False),
        input=[[2 * k, 2 * k + 1] for k in range(group_size)],
        output=range(2 * group_size),
        window=_IN_FLIGHT,
        chunk_elements=halves,
    )


def _reduce_phases(schedule: Schedule) -> list[Phase]:
    last = schedule.n_steps - 1
    gather = Phase("gather", last, 1, "Every rank sends its finished chunk to the root.")
    return [_SCATTER._replace(n_steps=last), gather]


@algorithm("reduce", NAME, phases=_reduce_phases)
def reduce_gloo(
    group_size: int, root: int = 0, size_bytes: int | None = None, itemsize: int = 1
) -> Schedule:
    """Return native gloo's reduce: half of its ring, then every rank sends its chunk to the root.

    With 3 ranks, root 0 and two segments a chunk, numbered through::

        step   r0 -> r2    r1 -> r0    r2 -> r1
          0    +chunk 2    +chunk 4    +chunk 0    reduce-scatter
          1    +chunk 3    +chunk 5    +chunk 1
          2    +chunk 4    +chunk 0    +chunk 2
          3    +chunk 5    +chunk 1    +chunk 3
          4    r1 -> r0 chunks 2, 3; r2 -> r0 chunks 4, 5

    Where a chunk has more than two segments, gloo's ring goes on for too long: ranks send segments
    of their finished chunk to r - 1, which nobody needs. They end in scratch slots here.

    Args:
        group_size: Number of ranks, 1 or more.
        root: Rank that gets the result.
        size_bytes: Bytes of the whole data; None for a plan of no size.
        itemsize: Bytes of an element, where `size_bytes` is given.

    Source: gloo, gloo/reduce.cc.

    Example:
        >>> reduce_gloo(4).n_steps
        7
    """
    cut = _cut_of_reduce(group_size, size_bytes, itemsize)
    a_rank, elements = cut.n // group_size, cut.elements
    ring = _ring(group_size, a_rank, gathers=True)
    # gloo stops two turns before it has gone around, whatever the number of segments.
    ring = ring.where((ring.turn < cut.n - _IN_FLIGHT) & (elements[ring.segment] > 0))
    step, src, slot, reduce = ring
    dst_slot = np.where(reduce, slot, cut.n + step - (group_size - 1) * a_rank)
    sent = (elements.reshape(group_size, a_rank) > 0).sum(axis=1)
    sent[root] = 0
    rank = np.flatnonzero(sent) if group_size > 1 else np.zeros(0, np.int64)
    last = np.full(len(rank), cut.n - _IN_FLIGHT)
    own = rank * a_rank
    columns = (
        np.concatenate([step, last]),
        0,
        np.concatenate([src, rank]),
        np.concatenate([(src - 1) % group_size, np.full(len(rank), root)]),
        np.concatenate([slot, own]),
        np.concatenate([dst_slot, own]),
        np.concatenate([np.ones_like(slot), sent[rank]]),
        np.concatenate([reduce, np.zeros(len(rank), np.bool_)]),
    )
    return Schedule.of(
        "reduce",
        NAME,
        group_size,
        columns,
        input=range(cut.n),
        output=range(cut.n),
        scratch=range(cut.n, int(dst_slot.max(initial=-1)) + 1),
        root=root,
        window=_IN_FLIGHT,
        chunk_elements=None if size_bytes is None else elements,
    )
