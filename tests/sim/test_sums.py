"""The proof that sums are trees: what it leaves in doubt, and that it hides nothing."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from chunkscope.errors import ScheduleError
from chunkscope.sim import verify as verifier
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.order import moves, order_of
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.sums import Doubts, doubts
from chunkscope.sim.verify import Code, verify


def doubted(schedule: Schedule) -> Doubts:
    moved = moves(schedule)
    return doubts(schedule, moved, order_of(schedule, moved))


def changed(schedule: Schedule, rows: list[Transfer]) -> Schedule:
    names = ("input", "output", "scratch", "root", "window", "helpers", "idempotent")
    header: dict[str, Any] = {name: getattr(schedule, name) for name in names}
    given = (schedule.collective, schedule.algorithm, schedule.group_size)
    return Schedule.of(*given, rows, **header)


@pytest.mark.parametrize("entry", algorithms(), ids=lambda e: f"{e.collective}-{e.name}")
def test_algorithms_are_proven_without_sets(entry: Any) -> None:
    for n in filter(entry.sizes.fits, (1, 2, 7, 8, 16)):
        found = doubted(build(entry.collective, entry.name, n))
        assert not found.flawed
        # Dissemination adds windows of ranks, which overlap where n is no power of two.
        assert entry.collective == "barrier" or not found.chunks.any()


def test_only_the_chunk_with_a_fault_is_in_doubt() -> None:
    ring = build("all_reduce", "ring", 6)
    rows = ring.transfers
    chunk = rows.pop(8).src_slot
    found = doubted(changed(ring, rows))
    assert np.flatnonzero(found.chunks).tolist() == [chunk]
    assert not found.flawed


def test_a_butterfly_adds_each_pair_once() -> None:
    """512 outputs of 512 inputs each would be too much to look at if ranks did not share sums."""
    assert not doubted(build("all_reduce", "recursive_doubling", 512)).any


def test_a_part_that_is_added_twice_where_nobody_reads_it() -> None:
    header: dict[str, Any] = {"input": [0], "output": [0], "scratch": [1]}
    rows = [
        Transfer(0, 0, 1, 0, 0, 1),
        Transfer(1, 0, 1, 0, 0, 1, 1, True),  # rank 1's part again, into scratch
        Transfer(2, 0, 1, 0, 0, 0, 1, True),
        Transfer(3, 0, 0, 1, 0, 0),
    ]
    (finding,) = verify(Schedule.of("all_reduce", "x", 2, rows, **header))
    assert (finding.code, finding.row) == (Code.DOUBLE_CONTRIBUTION, 1)


def test_what_doubles_at_every_step_is_not_counted_out() -> None:
    """A slot added to itself 40 times would be 2^40 values."""
    rows = [Transfer(step, 0, 0, 0, 0, 0, 1, True) for step in range(40)]
    found = verify(Schedule.of("reduce", "x", 1, rows, input=[0], output=[0], root=0))
    assert [finding.code for finding in found] == [Code.DOUBLE_CONTRIBUTION] * 40


def mutant(rng: random.Random) -> Schedule | None:
    entry = rng.choice(algorithms())
    n = rng.choice([size for size in (2, 3, 4, 5, 8) if entry.sizes.fits(size)])
    schedule = build(entry.collective, entry.name, n)
    rows = schedule.transfers
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(rows))
        row = rows[at]
        slot = rng.randrange(schedule.slots_a_place - row.n_slots + 1)
        rows[at] = rng.choice(
            [
                row._replace(src_slot=slot),
                row._replace(dst_slot=slot),
                row._replace(reduce=not row.reduce),
                row._replace(step=rng.randrange(schedule.n_steps)),
                row._replace(dst=rng.randrange(schedule.n_places)),
                rng.choice(rows),
            ]
        )
    try:
        return changed(schedule, rows)
    except ScheduleError:
        return None


def test_nothing_is_found_where_nothing_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of ranks for all chunks find what they find for the chunks in doubt alone."""
    rng = random.Random(1)
    mutants = [made for made in (mutant(rng) for _ in range(250)) if made and len(made) < 400]
    found = [verify(one) for one in mutants]

    def everything(schedule: Schedule, *_: Any) -> Doubts:
        return Doubts(np.ones(schedule.n_chunks + 1, np.bool_), True)

    monkeypatch.setattr(verifier, "doubts", everything)
    assert found == [verify(one) for one in mutants]
    codes = {finding.code for findings in found for finding in findings}
    assert codes == set(Code) - {Code.DEADLOCK}


def test_progress_is_told_where_sets_are_followed() -> None:
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    tree = build("all_reduce", "tree", 300)
    verify(tree, progress=tell)
    assert told == []
    verify(changed(tree, tree.transfers[1:]), progress=tell)
    assert told == [(256, 300), (300, 300)]
