"""The rows and header of a schedule: what is sorted, counted and refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chunkscope.errors import ScheduleError
from chunkscope.sim.library import build
from chunkscope.sim.schedule import Schedule, Slots, Transfer


def schedule(rows: list[Transfer], group_size: int = 2, **header: Any) -> Schedule:
    given = {"input": [0], "output": [0], **header}
    return Schedule.of("all_reduce", "test", group_size, rows, **given)


def refused(rows: list[Transfer], **header: Any) -> str:
    with pytest.raises(ScheduleError) as raised:
        schedule(rows, **header)
    return str(raised.value)


def test_rows_lie_by_step_and_after_counts_them_as_given() -> None:
    late, early = Transfer(1, 0, 0, 1, 0, 0), Transfer(0, 0, 1, 0, 0, 0, 1, True)
    made = schedule([late, early], after=[(0, 1)])
    assert made.transfers == [early, late]
    assert made.after.tolist() == [[1, 0]]


def test_rows_come_as_columns_too() -> None:
    columns = ([0, 1], 0, [1, 0], [0, 1], 0, 0, 1, [True, False])
    rows = [Transfer(0, 0, 1, 0, 0, 0, 1, True), Transfer(1, 0, 0, 1, 0, 0)]
    assert schedule(columns) == schedule(rows)  # type: ignore[arg-type]


def test_lists_of_slots_that_are_equal_become_one() -> None:
    assert Slots.of([[0, 1], [0, 1]], 2) == Slots.of([0, 1], 2)
    assert Slots.of([[0], [1]], 2)[1] == (1,)
    with pytest.raises(ScheduleError, match="3 lists of slots for 2 ranks"):
        Slots.of([[0], [1], [2]], 2)


def test_rows_of_one_message() -> None:
    rows = [
        Transfer(0, 0, 0, 1, 0, 0),
        Transfer(0, 0, 1, 0, 0, 0),
        Transfer(0, 0, 0, 1, 1, 1),
        Transfer(0, 0, 1, 1, 0, 1),
        Transfer(0, 0, 1, 1, 1, 0),
        Transfer(1, 0, 0, 1, 0, 0),
        Transfer(1, 1, 0, 1, 0, 0),
    ]
    messages = schedule(rows, input=[0, 1], output=[0, 1]).messages
    assert messages.of_row.tolist() == [0, 1, 0, 2, 3, 4, 5]
    assert messages.part.tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert messages.ordinal.tolist() == [0, 0, 0, 0, 1, 1, 0]
    assert messages.first_row.tolist() == [0, 1, 3, 4, 5, 6]


def test_row_text_names_helpers() -> None:
    made = schedule([Transfer(0, 0, 1, 2, 0, 0, 1, True)], helpers=["switch"])
    assert made.row_text(0) == "row 0 (step 0, r1 +> switch)"
    assert [made.place_name(place) for place in (0, 2)] == ["rank 0", "switch"]


def test_a_group_needs_a_rank() -> None:
    with pytest.raises(ScheduleError, match="group size is 0, expected 1 or more"):
        Schedule.of("all_reduce", "x", 0, [], input=[0], output=[0])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Transfer(0, 0, 0, 2, 0, 0), "row 0: dst is 2, expected 0 to 1"),
        (Transfer(0, 0, -1, 0, 0, 0), "row 0: src is -1, expected 0 to 1"),
        (Transfer(-1, 0, 0, 1, 0, 0), "row 0: step is -1, expected 0 or more"),
        (Transfer(0, 0, 0, 1, 0, 0, 0), "row 0: n_slots is 0, expected 1 or more"),
        (
            Transfer(0, 0, 0, 1, 0, 1),
            "row 0: dst_slot 1 with 1 slot(s) is beyond the 1 slots of rank 1",
        ),
    ],
)
def test_a_row_that_cannot_be(row: Transfer, message: str) -> None:
    assert refused([row]) == message


def test_a_root_only_where_there_is_one() -> None:
    assert refused([], root=1) == "all_reduce has no root, found 1"
    with pytest.raises(ScheduleError, match="root of broadcast is 3, expected 0 to 2"):
        build("broadcast", "tree", 3, root=3)


def test_window_and_after_that_cannot_be() -> None:
    assert refused([], window=0) == "window is 0, expected 1 or more"
    row = Transfer(0, 0, 0, 1, 0, 0)
    assert refused([row], after=[(0, 1)]) == "`after` names a row beyond the 1 that exist"
    rows = [Transfer(0, 0, 0, 1, 0, 0), Transfer(0, 0, 1, 2, 0, 0)]
    with pytest.raises(
        ScheduleError,
        match="row 0: waits for row 1, which neither begins nor ends at its sender, rank 0",
    ):
        schedule(rows, group_size=3, after=[(0, 1)])


def test_buffers_must_fit_the_collective() -> None:
    assert refused([], output=[0, 1]) == (
        "all_reduce: 2 output slots for 1 input slots on 2 ranks, expected 1"
    )
    assert refused([], input=[[0], [0, 1]]) == "input lists differ in length: [1, 2]"
    assert refused([], input=[0, 0], output=[0, 1]) == "rank 0: input names a slot twice"
    with pytest.raises(ScheduleError, match="3 input slots, expected a multiple of 2"):
        Schedule.of("all_to_all", "x", 2, [], input=[0, 1, 2], output=[0, 1, 2])
    assert refused([], chunk_elements=[1, 2]) == (
        "2 chunk sizes for 1 chunks, expected one each, 0 or more"
    )


def test_what_an_all_to_all_gets_and_owes() -> None:
    made = Schedule.of("all_to_all", "x", 2, [], input=range(4), output=range(4, 8))
    assert made.n_chunks == 8
    assert made.input_of(1)[1].tolist() == [4, 5, 6, 7]
    assert made.output_of(1)[1].tolist() == [2, 3, 6, 7]


def test_only_the_root_has_what_only_the_root_has() -> None:
    broadcast = build("broadcast", "tree", 3, root=1)
    assert [broadcast.input_of(rank)[0] for rank in range(3)] == [(), (0,), ()]
    reduce = build("reduce", "tree", 3, root=1)
    assert [reduce.output_of(rank)[0] for rank in range(3)] == [(), (0,), ()]


def test_columns_are_small() -> None:
    ring = build("all_reduce", "ring", 16)
    names = ("step", "channel", "src", "dst", "src_slot", "dst_slot", "n_slots", "reduce")
    assert sum(np.asarray(getattr(ring, name)).itemsize for name in names) <= 31


def test_what_is_the_same_is_kept_once() -> None:
    """Each row of a ring is a message and a move of its own, to the slot that it comes from."""
    ring = build("all_reduce", "ring", 8)
    bound = ring.bind(64)
    assert np.shares_memory(ring.src_slot, ring.dst_slot)
    assert ring.messages.of_row is ring.messages.first_row
    assert bound.moves.row is bound.moves.first is ring.numbers
    assert bound.row_chunk is bound.move_chunk
    assert bound.move_chunk.itemsize == 4


def test_a_cell_that_is_no_number() -> None:
    step: Any  # what callers without types may give
    for step in ("a", 10**30, None):
        assert "step of a row is no int32" in refused([Transfer(step, 0, 0, 1, 0, 0)])
    for step in (0.5, float("nan"), 2**31):
        assert f"row 0: step is {step}, expected int32" in refused([Transfer(step, 0, 0, 1, 0, 0)])
