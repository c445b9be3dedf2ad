"""Sizes: how data is divided, what each row carries, and where slots lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.errors import ScheduleError
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.schedule import Schedule, Transfer


def test_chunks_differ_by_one_at_most_larger_first() -> None:
    ring = build("all_reduce", "ring", 4)
    assert ring.bind(10, "float32").chunk_elements.tolist() == [3, 3, 2, 2]
    assert ring.bind(2, "float32").chunk_elements.tolist() == [1, 1, 0, 0]
    assert ring.bind(0, "float32").chunk_elements.tolist() == [0, 0, 0, 0]


@given(st.integers(0, 50), st.integers(1, 6), st.sampled_from(["float64", "bfloat16", "int8"]))
def test_each_rank_of_a_ring_sends_every_chunk_but_one_twice(
    count: int, group_size: int, dtype: str
) -> None:
    ring = build("all_reduce", "ring", group_size)
    bound = ring.bind(count, dtype)
    assert bound.chunk_elements.sum() == count
    assert bound.size_bytes == count * bound.itemsize
    chunk_bytes = bound.chunk_elements * bound.itemsize
    for rank in range(group_size):
        sent = bound.row_bytes[ring.src == rank].sum()
        # Neither the chunk that ends here, in the first half, nor the next one, in the second.
        kept = chunk_bytes[rank] + chunk_bytes[(rank + 1) % group_size]
        assert sent == (0 if group_size == 1 else 2 * bound.size_bytes - kept)


def test_row_bytes_are_those_of_the_chunks_in_the_source_slots() -> None:
    """A chunk keeps its size in a scratch slot and on its way back."""
    rows = [
        Transfer(0, 0, 0, 1, 0, 3),
        Transfer(1, 0, 1, 1, 3, 4),
        Transfer(2, 0, 1, 1, 4, 0),
        Transfer(3, 0, 0, 1, 1, 1, 2),
    ]
    schedule = Schedule.of(
        "broadcast", "x", 2, rows, input=[0, 1, 2], output=[0, 1, 2], scratch=[3, 4], root=0
    )
    bound = schedule.bind(7, "float32")
    assert bound.chunk_elements.tolist() == [3, 2, 2]
    assert bound.row_chunk.tolist() == [0, 0, 0, 1]
    assert bound.row_bytes.tolist() == [12, 12, 12, 16]
    assert bound.message_bytes.tolist() == [12, 12, 12, 16]


def test_layout_of_each_buffer() -> None:
    rows = [Transfer(0, 0, 0, 1, 1, 3, 1, False), Transfer(1, 0, 1, 1, 3, 1, 1, True)]
    schedule = Schedule.of(
        "reduce_scatter", "x", 2, rows, input=[0, 1], output=[[0], [1]], scratch=[2, 3]
    )
    bound = schedule.bind(6, "float32")
    layout = bound.layout(1)
    assert layout.buffer == ("input", "output", "scratch", "scratch")
    assert layout.offset_elements.tolist() == [0, 0, 0, 0]
    assert layout.elements.tolist() == [3, 3, 0, 3]
    assert bound.layout(0).buffer == ("output", "input", "scratch", "scratch")
    assert bound.layout(0).offset_elements.tolist()[:2] == [0, 3]
    assert [bound.scratch_elements(rank) for rank in (0, 1)] == [0, 3]


@pytest.mark.parametrize(
    ("collective", "sizes"),
    [
        ("all_reduce", [(8, 8), (8, 8)]),
        ("reduce_scatter", [(8, 4), (8, 4)]),
        ("all_gather", [(4, 8), (4, 8)]),
        ("broadcast", [(0, 8), (8, 8)]),
        ("reduce", [(8, 0), (8, 8)]),
    ],
)
def test_sizes_of_the_tensors(collective: str, sizes: list[tuple[int, int]]) -> None:
    root = 1 if collective in ("broadcast", "reduce") else None
    bound = build(collective, None, 2, root=root).bind(8, "float32")
    found = [(bound.input_elements(rank), bound.output_elements(rank)) for rank in (0, 1)]
    assert found == sizes


def test_pieces_of_a_tensor() -> None:
    gather = build("all_gather", "ring", 3).bind(6, "float32", splits=[3, 1, 2])
    output = gather.output(1)
    assert output.slots == (0, 1, 2)
    assert output.offset_elements.tolist() == [0, 3, 4]
    assert output.elements.tolist() == [3, 1, 2]
    assert gather.input(1).elements.tolist() == [1]
    assert gather.row_bytes.tolist() == [12, 4, 8, 8, 12, 4]


def test_blocks_of_an_all_to_all() -> None:
    rows = [Transfer(0, 0, 0, 1, 1, 2), Transfer(0, 0, 1, 0, 0, 3)]
    rows += [Transfer(0, 0, 0, 0, 0, 2), Transfer(0, 0, 1, 1, 1, 3)]
    schedule = Schedule.of("all_to_all", "direct", 2, rows, input=[0, 1], output=[2, 3])
    assert schedule.bind(8, "int8").row_bytes.tolist() == [4, 4, 4, 4]
    uneven = schedule.bind(5, "int8", splits=[[1, 4], [2, 0]])
    assert uneven.row_bytes.tolist() == [4, 2, 1, 0]
    assert [uneven.output_elements(rank) for rank in (0, 1)] == [3, 4]


def test_a_plan_made_for_one_size() -> None:
    gloo = build("all_reduce", "gloo", 3, size_bytes=20, itemsize=4)
    bound = gloo.bind(5, "float32")
    assert bound.chunk_elements.tolist() == [1, 1, 1, 1, 1, 0]
    assert set(bound.row_bytes.tolist()) == {4}
    with pytest.raises(ScheduleError, match="gloo: the plan was made for 5 elements, found c"):
        gloo.bind(6, "float32")


@pytest.mark.parametrize(
    ("entry", "group_size"),
    [
        pytest.param(entry, n, id=f"{entry.collective}-{entry.name}-{n}")
        for n in (1, 2, 3, 6)
        for entry in algorithms(group_size=n)
    ],
)
def test_every_slot_of_every_algorithm_has_room(entry: Any, group_size: int) -> None:
    schedule = build(entry.collective, entry.name, group_size)
    by_block = schedule.kind.by_block
    for count in (0, group_size, 7 * group_size if by_block else 7):
        bound = schedule.bind(count, "float32")
        for row, transfer in enumerate(schedule.transfers):
            slots = slice(transfer.dst_slot, transfer.dst_slot + transfer.n_slots)
            room = bound.layout(transfer.dst).elements[slots].sum()
            assert bound.row_elements[row] <= room


@pytest.mark.parametrize(
    ("collective", "count", "keywords", "message"),
    [
        ("all_reduce", -1, {}, "count is -1, expected 0 or more elements"),
        ("all_reduce", 4, {"dtype": "float"}, "unknown dtype 'float'; known: float64, float32"),
        (
            "all_gather",
            10,
            {},
            "all_gather: 10 elements cannot be divided equally among 4 ranks; use a multiple of 4 "
            r"\(such as 12\) or give splits",
        ),
        ("all_reduce", 4, {"splits": [1, 1, 1, 1]}, "all_reduce is not divided into blocks"),
        ("all_gather", 4, {"splits": [4]}, r"splits have shape \(1,\), expected \(4,\)"),
        ("all_gather", 4, {"splits": [5, -1, 0, 0]}, "expected 0 or more each"),
        ("all_gather", 4, {"splits": [1, 1, 1, 2]}, "splits sum up to 5, expected count 4"),
    ],
)
def test_a_count_that_cannot_be(
    collective: str, count: int, keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        build(collective, None, 4).bind(count, **keywords)


def test_an_empty_slot_has_no_size() -> None:
    rows = [Transfer(0, 0, 0, 1, 0, 0)]
    schedule = Schedule.of("broadcast", "x", 2, rows, input=[0], output=[0], root=1)
    with pytest.raises(ScheduleError, match=r"row 0 \(step 0, r0 -> r1\): slot 0 of rank 0 holds"):
        schedule.bind(4)


def test_a_slot_that_is_too_small() -> None:
    rows = [Transfer(0, 0, 0, 1, 0, 1), Transfer(1, 0, 0, 1, 0, 0, 2)]
    schedule = Schedule.of("broadcast", "x", 2, rows, input=[0, 1], output=[0, 1], root=0)
    assert schedule.bind(4).row_bytes.tolist() == [8, 16]
    with pytest.raises(
        ScheduleError,
        match=r"chunk 0 has 3 elements, but slot 1 of rank 1 has room for 2; use a scratch slot",
    ):
        schedule.bind(5)


def test_sizes_of_a_large_ring_add_up() -> None:
    bound = build("all_reduce", "ring", 64).bind(1000, "float16")
    assert int(bound.row_bytes.sum()) == 2 * 63 * 2000
    assert np.array_equal(bound.message_bytes, bound.row_bytes)


def test_sizes_of_a_petabyte_are_exact() -> None:
    ring = build("all_reduce", "ring", 3)
    bound = ring.bind(10**15, "uint8")
    assert bound.chunk_elements.tolist() == [333333333333334, 333333333333333, 333333333333333]
    assert int(bound.message_bytes.sum()) == 4 * 10**15
    assert bound.output(2).offset_elements.tolist() == [0, 333333333333334, 666666666666667]
    assert ring.bind(2**53, "uint8").size_bytes == 2**53
    with pytest.raises(
        ScheduleError, match="count is 10000000000000000: that is 80000000000000000 b"
    ):
        ring.bind(10**16, "float64")
    with pytest.raises(ScheduleError, match=r"splits are .* expected up to 4"):
        build("all_gather", "ring", 2).bind(4, "int8", splits=[2**63, 1])


def test_bytes_of_a_message_of_several_rows() -> None:
    rows = [Transfer(0, 0, 0, 1, slot, slot) for slot in (0, 2)]
    rows.insert(1, Transfer(0, 0, 0, 2, 1, 1))
    schedule = Schedule.of("broadcast", "x", 3, rows, input=range(3), output=range(3), root=0)
    assert schedule.bind(8, "int8").message_bytes.tolist() == [3 + 2, 3]
