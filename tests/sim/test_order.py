"""The wait graph and the waves that rows are walked through in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chunkscope.errors import ScheduleError
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.order import POLICIES, moves, step_ordered, wait_graph, waves
from chunkscope.sim.schedule import Schedule, Transfer


def line(rows: list[Transfer], **header: Any) -> Schedule:
    given = {"input": [0, 1], "output": [0, 1], **header}
    return Schedule.of("all_reduce", "test", 3, rows, **given)


def levels(schedule: Schedule, policy: Any = "dataflow") -> tuple[list[int], list[int], list[int]]:
    """Levels of the messages' starts and arrivals, and of the rows' writes."""
    graph = wait_graph(schedule, policy)
    n_messages = len(schedule.messages.first_row)
    level = graph.levels().tolist()
    written = level[2 * n_messages : 2 * n_messages + len(schedule)]
    return level[:n_messages], level[n_messages : 2 * n_messages], written


def test_a_row_of_several_slots_is_several_moves() -> None:
    schedule = line([Transfer(0, 0, 0, 1, 0, 0, 2), Transfer(1, 0, 1, 2, 1, 0)])
    moved = moves(schedule)
    assert moved.row.tolist() == [0, 0, 1]
    assert moved.src.tolist() == [0, 1, 3]
    assert moved.dst.tolist() == [2, 3, 4]
    assert moved.first.tolist() == [0, 2]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_read_waits_for_the_write_before_it(policy: Any) -> None:
    start, arrived, written = levels(
        line([Transfer(0, 0, 0, 1, 0, 0), Transfer(1, 0, 1, 2, 0, 0)]), policy
    )
    assert start[0] < arrived[0] < written[0] < start[1]


def test_a_write_waits_for_reads_of_its_own_step_in_any_row_order() -> None:
    rows = [Transfer(0, 0, 2, 1, 0, 0), Transfer(0, 0, 1, 0, 0, 0)]
    start, arrived, written = levels(line(rows))
    assert written[0] > start[1]
    assert arrived[0] == start[0] + 1  # which delays nobody else


def test_a_sender_waits_for_arrival_as_far_back_as_the_window() -> None:
    rows = [Transfer(step, 0, 0, 1, 0, 1) for step in range(4)]
    start, arrived, _ = levels(line(rows))
    assert all(start[k + 1] > arrived[k] for k in range(3))
    start, arrived, _ = levels(line(rows, window=2))
    assert start[1] <= arrived[0] < start[2]
    assert start[3] > arrived[1]


def test_steps_that_are_far_apart_are_still_in_order() -> None:
    rows = [Transfer(0, 0, 0, 1, 0, 1), Transfer(7, 0, 0, 2, 0, 1), Transfer(9, 0, 0, 2, 0, 1)]
    start, arrived, _ = levels(line(rows, window=3))
    assert start[1] > arrived[0]
    assert start[2] <= arrived[1]


def test_channels_do_not_wait_for_each_other() -> None:
    rows = [Transfer(0, 0, 0, 1, 0, 0), Transfer(1, 1, 1, 2, 0, 0)]
    start, _, _ = levels(line(rows))
    assert start[1] == start[0]
    start, _, written = levels(line(rows), "lockstep")
    assert start[1] > written[0]


def test_both_ends_enter_a_step_where_ranks_step() -> None:
    """Rank 2 is still sending when rank 0, which has nothing else to do, sends to it."""
    rows = [Transfer(0, 0, 2, 1, 0, 0), Transfer(1, 0, 0, 2, 1, 1)]
    start, arrived, _ = levels(line(rows))
    assert start[1] < arrived[0]
    start, arrived, _ = levels(line(rows), "rank_step")
    assert start[1] > arrived[0]


def test_messages_of_one_step_start_together_and_their_rows_too() -> None:
    rows = [
        Transfer(0, 0, 0, 1, 0, 0),
        Transfer(1, 0, 1, 2, 0, 0),
        Transfer(1, 0, 1, 2, 1, 1),
        Transfer(1, 0, 1, 0, 1, 1),
    ]
    schedule = line(rows)
    start, _, written = levels(schedule)
    assert schedule.messages.of_row.tolist() == [0, 1, 1, 2]
    assert start[1] > written[0]
    assert start[2] < start[1]


def test_after_waits_for_what_ends_here_to_be_written() -> None:
    rows = [Transfer(0, 0, 0, 1, 0, 0), Transfer(0, 1, 1, 2, 0, 0), Transfer(0, 2, 0, 2, 1, 1)]
    start, arrived, written = levels(line(rows, after=[(1, 0), (2, 0)]))
    assert start[1] > written[0]
    assert arrived[0] < start[2] <= written[0]


def test_step_order_holds_unless_after_reaches_back() -> None:
    rows = [Transfer(0, 0, 0, 1, 0, 0), Transfer(1, 1, 1, 2, 0, 0)]
    assert step_ordered(line(rows))
    assert step_ordered(line(rows, after=[(1, 0)]))
    assert not step_ordered(line([row._replace(step=0) for row in rows], after=[(1, 0)]))


def test_waves_never_write_a_cell_twice_and_take_each_move_once() -> None:
    star = [Transfer(0, 0, rank, 0, 0, 0, 1, True) for rank in (1, 2)]
    crossed = [Transfer(0, 1, 1, 2, 0, 1), Transfer(0, 2, 2, 1, 1, 1)]
    for schedule in (line(star), line(star + crossed, after=[(3, 2)])):
        moved = moves(schedule)
        reads, writes = [], []
        for wave in waves(schedule, moved):
            cells = moved.dst[wave.writes]
            assert len(set(cells.tolist())) == len(cells)
            reads += moved.row[wave.reads].tolist()
            writes += moved.row[wave.writes].tolist()
        assert sorted(reads) == sorted(writes) == list(range(len(schedule)))


@pytest.mark.parametrize("entry", algorithms(), ids=lambda e: f"{e.collective}-{e.name}")
@pytest.mark.parametrize("policy", POLICIES)
def test_the_fast_path_is_an_order_of_the_graph(entry: Any, policy: Any) -> None:
    """Step by step, reads before writes, rows in order: no edge of the graph goes against it."""
    schedule = build(entry.collective, entry.name, 5 if entry.sizes.fits(5) else 8)
    graph = wait_graph(schedule, policy)
    n_messages, n_rows = len(schedule.messages.first_row), len(schedule)
    step = schedule.step.astype(np.int64)
    message_step = step[schedule.messages.first_row]
    moment = np.full(graph.n_nodes, -1)
    moment[:n_messages] = 3 * n_rows * message_step
    moment[n_messages : 2 * n_messages] = 3 * n_rows * message_step + 1
    moment[2 * n_messages : 2 * n_messages + n_rows] = 3 * n_rows * step + 2 + np.arange(n_rows)
    known = (moment[graph.tail] >= 0) & (moment[graph.head] >= 0)
    assert known.any()
    assert (moment[graph.tail[known]] < moment[graph.head[known]]).all()


def test_a_cycle_is_told_row_by_row() -> None:
    rows = [Transfer(0, c, c, (c + 1) % 3, 0, 1) for c in range(3)]
    schedule = line(rows, after=[(0, 2), (1, 0), (2, 1)])
    graph = wait_graph(schedule)
    cycle = graph.cycle()
    assert cycle is not None
    words = graph.describe(cycle)
    assert words.startswith("deadlock under policy dataflow: row ")
    assert words.count(" waits for ") == 3
    with pytest.raises(ScheduleError, match="deadlock under policy dataflow") as raised:
        schedule.bind(6)
    assert raised.value.code == "DEADLOCK"


def test_a_row_that_waits_for_itself() -> None:
    schedule = line([Transfer(0, 0, 0, 1, 0, 0)], after=[(0, 0)])
    cycle = wait_graph(schedule).cycle()
    assert cycle is not None
    row = "row 0 (step 0, r0 -> r1)"
    assert wait_graph(schedule).describe(cycle).endswith(f"{row} waits for {row}")
