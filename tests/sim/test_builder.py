"""Schedules written by hand with the builder."""

from __future__ import annotations

from pathlib import Path

import pytest

from chunkscope.errors import ScheduleError
from chunkscope.sim.builder import Builder
from chunkscope.sim.library import build, resolve
from chunkscope.sim.schedule import Schedule
from chunkscope.sim.verify import Code, verify


def ring(group_size: int) -> Schedule:
    plan = Builder("all_reduce", group_size, chunks=group_size, name="ring_tutorial")
    for k in range(group_size):
        chunk = plan.input(k, k)
        for hop in range(1, group_size):
            chunk = chunk.reduce_into((k + hop) % group_size)
        for hop in range(group_size - 1):
            chunk = chunk.send((k + hop) % group_size)
    return plan.schedule()


@pytest.mark.parametrize("n", [*range(1, 18), 33])
def test_a_ring_by_hand_is_the_ring_of_tutorials(n: int) -> None:
    found = ring(n)
    assert verify(found) == []
    assert sorted(found.transfers) == sorted(build("all_reduce", "ring_tutorial", n).transfers)


def test_recursive_doubling_exchanges_in_one_step() -> None:
    plan = Builder("all_reduce", 8, name="doubling")
    held = [plan.input(rank) for rank in range(8)]
    for bit in (1, 2, 4):
        before = list(held)
        for rank in range(8):
            held[rank ^ bit] = before[rank].reduce_into(before[rank ^ bit])
    schedule = plan.schedule()
    assert verify(schedule) == []
    assert (schedule.n_steps, len(schedule), schedule.slots_a_place) == (3, 24, 1)
    assert held[5].contributors == list(range(8))


def test_one_shot_needs_scratch_slots() -> None:
    n = 4
    plan = Builder("all_reduce", n, name="one_shot")
    parts = [plan.input(rank) for rank in range(n)]
    copies = [[parts[src].send(dst) for src in range(n) if src != dst] for dst in range(n)]
    for dst in range(n):
        total = parts[dst]
        for copy in copies[dst]:
            assert copy.slot >= 1
            total = copy.reduce_into(total)
    schedule = plan.schedule()
    assert verify(schedule) == []
    assert schedule.slots_a_place == 1 + n - 1


@pytest.mark.parametrize("collective", ["broadcast", "scatter", "gather", "reduce"])
def test_a_star_around_each_root(collective: str) -> None:
    n = 5
    for root in range(n):
        plan = Builder(collective, n, root=root, chunks=2)
        others = [rank for rank in range(n) if rank != root]
        for rank in others:
            for k in range(2):
                if collective == "broadcast":
                    plan.input(root, k).send(rank)
                elif collective == "scatter":
                    plan.input(root, 2 * rank + k).send(rank)
                elif collective == "gather":
                    plan.input(rank, k).send(root)
                else:
                    plan.input(rank, k).reduce_into(root)
        schedule = plan.schedule()
        assert verify(schedule) == []
        assert len(schedule) == 2 * (n - 1)


@pytest.mark.parametrize("chunks", [1, 3])
def test_all_to_all_and_all_gather_and_reduce_scatter(chunks: int) -> None:
    n = 4
    exchange = Builder("all_to_all", n, chunks=chunks)
    gather = Builder("all_gather", n, chunks=chunks)
    scatter = Builder("reduce_scatter", n, chunks=chunks)
    for src in range(n):
        for dst in range(n):
            for k in range(chunks):
                exchange.input(src, dst * chunks + k).send(dst)
                if src != dst:
                    gather.input(src, k).send(dst)
                    scatter.input(src, dst * chunks + k).reduce_into(dst)
    for plan in (exchange, gather, scatter):
        assert verify(plan.schedule()) == []


def test_what_goes_the_same_way_follows_in_steps_unless_told_otherwise() -> None:
    plan = Builder("broadcast", 2, chunks=3, root=0)
    for k in range(3):
        plan.input(0, k).send(1)
    assert plan.schedule().step.tolist() == [0, 1, 2]
    packed = Builder("broadcast", 2, chunks=3, root=0)
    for k in range(3):
        packed.input(0, k).send(1, step=4)
    schedule = packed.schedule()
    assert schedule.step.tolist() == [4, 4, 4]
    assert len(schedule.messages.first_row) == 1


def test_a_chunk_waits_until_it_has_come_and_its_slot_is_free() -> None:
    plan = Builder("broadcast", 4, root=0)
    chunk = plan.input(0)
    assert [row.step for row in _rows(chunk.send(1, step=5).send(2).send(3), plan)] == [5, 6, 7]
    with pytest.raises(ScheduleError, match="step 2 is too early for chunk 0 in slot 0 of rank 3"):
        plan._now(3, 0).send(1, step=2)  # type: ignore[union-attr]


def _rows(last: object, plan: Builder) -> list:  # type: ignore[type-arg]
    assert last is not None
    return plan.schedule().transfers


def test_a_chunk_that_was_overwritten_cannot_be_used() -> None:
    plan = Builder("all_reduce", 3)
    mine = plan.input(1)
    plan.input(0).reduce_into(mine)
    with pytest.raises(
        ScheduleError, match="chunk 0 in slot 0 of rank 1 is overwritten in step 0; add to what is"
    ):
        plan.input(2).reduce_into(mine)
    plan.input(1).send(2, step=0)  # it is read before it is overwritten
    with pytest.raises(ScheduleError, match="is overwritten in step 0, and cannot go to rank 0"):
        mine.send(0, step=1)
    assert plan.input(2).reduce_into(1).contributors == [0, 1, 2]


def test_the_verifier_finds_what_is_missing() -> None:
    plan = Builder("all_reduce", 3)
    plan.input(0).reduce_into(1).reduce_into(2)
    assert {finding.code for finding in verify(plan.schedule())} == {Code.POSTCONDITION}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Builder("allreduce", 2), "unknown collective 'allreduce'"),
        (lambda: Builder("all_reduce", 0), "group size is 0, expected 1 or more"),
        (lambda: Builder("all_reduce", 2, chunks=0), "chunks is 0, expected 1 or more"),
        (lambda: Builder("broadcast", 2), "root of broadcast is None, expected 0 to 1"),
        (lambda: Builder("all_reduce", 2).input(2), "rank is 2, expected 0 to 1"),
        (lambda: Builder("all_reduce", 2).input(0, 1), "rank 0 has 1 chunks of input, found chunk"),
        (lambda: Builder("broadcast", 2, root=0).input(1), "rank 1 has 0 chunks of input"),
        (lambda: Builder("all_reduce", 2).input(0).send(-1), "rank is -1, expected 0 to 1"),
        (lambda: Builder("all_reduce", 2).input(0).send(0, slot=0), "cannot be sent to slot 0 of"),
        (lambda: Builder("all_gather", 2).input(0).reduce_into(1), "all_gather does not reduce"),
    ],
)
def test_what_cannot_be_said(call: object, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        call()  # type: ignore[operator]


def test_chunks_that_differ_cannot_be_added() -> None:
    plan = Builder("all_reduce", 2, chunks=2)
    with pytest.raises(ScheduleError, match="chunk 0 in slot 0 of rank 0 cannot be added to chunk"):
        plan.input(0, 0).reduce_into(plan.input(1, 1))


def test_it_is_taken_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from chunkscope.sim.builder import Builder\n"
        "def line(group_size, root=0):\n"
        "    plan = Builder('broadcast', group_size, root=root, name='line')\n"
        "    chunk = plan.input(root)\n"
        "    for rank in range(group_size):\n"
        "        chunk = chunk if rank == root else chunk.send(rank)\n"
        "    return plan.schedule()\n"
    )
    schedule = resolve("broadcast", f"{path}:line", 4, root=2)
    assert verify(schedule) == []
    assert schedule.n_steps == 3


def test_a_slot_is_written_once_it_was_read_and_written_before() -> None:
    plan = Builder("all_reduce", 3)
    plan.input(1).send(2, slot=1, step=5)
    plan.input(0).reduce_into(1)
    assert plan.schedule().step.tolist() == [5, 5]  # what leaves is still the part of rank 1 alone
    other = Builder("all_reduce", 3)
    other.input(0).reduce_into(1, step=4)
    other.input(2).reduce_into(1)
    assert other.schedule().step.tolist() == [4, 4]
    assert other.schedule().transfers[1].src == 2
