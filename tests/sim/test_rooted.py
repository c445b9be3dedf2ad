"""Broadcast, reduce, gather, scatter and barriers: valid for all sizes, and as their formulas."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from chunkscope.errors import ScheduleError
from chunkscope.sim.closed import closed_form
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.replay import simulate
from chunkscope.sim.schedule import Schedule
from chunkscope.sim.topology import parse
from chunkscope.sim.values import compute, default_inputs
from chunkscope.sim.verify import verify
from chunkscope.traces.record.ranks import Ranks

SIZES = [*range(1, 34), 63, 64, 65, 100]


def messages(schedule: Schedule) -> int:
    return len(schedule.messages.first_row)


def log(n: int, base: int = 2) -> int:
    steps, reached = 0, 1
    while reached < n:
        steps, reached = steps + 1, reached * base
    return steps


def blocks_sent(n: int) -> int:
    """Blocks that a binomial tree moves: each one as often as its rank has bits."""
    return sum(rank.bit_count() for rank in range(n))


# Collective, algorithm, parameters; steps, messages and slots sent for n ranks.
ROOTED: list[tuple[str, str, dict[str, Any], Any, Any, Any]] = [
    *(
        row
        for collective in ("broadcast", "reduce", "gather", "scatter")
        for row in (
            (collective, "flat", {}, lambda n: min(1, n - 1), lambda n: n - 1, lambda n: n - 1),
            (collective, "flat", {"in_turn": True}, lambda n: n - 1, lambda n: n - 1, None),
        )
    ),
    *(
        (collective, name, given, steps, count, sent)
        for collective in ("broadcast", "reduce")
        for name, given, steps, count, sent in (
            ("k_nomial", {}, lambda n: log(n, 4), lambda n: n - 1, None),
            ("k_nomial", {"radix": 3}, lambda n: log(n, 3), lambda n: n - 1, None),
            ("chain", {"segments": 1}, lambda n: n - 1, lambda n: n - 1, None),
            ("binary_tree", {"segments": 3}, None, lambda n: 3 * (n - 1), None),
            ("double_tree", {"segments": 3}, None, lambda n: 6 * (n - 1), None),
        )
    ),
    *(
        (
            collective,
            name,
            {},
            lambda n: log(n) + n - 1,
            lambda n: (n - 1) * (n + 1),
            lambda n: blocks_sent(n) + n * (n - 1),
        )
        for collective, name in (
            ("broadcast", "scatter_all_gather"),
            ("reduce", "reduce_scatter_gather"),
        )
    ),
    *(
        (collective, "binomial", {}, log, lambda n: n - 1, blocks_sent)
        for collective in ("gather", "scatter")
    ),
]


@pytest.mark.parametrize(("collective", "name", "given", "steps", "count", "sent"), ROOTED)
def test_valid_and_as_its_formula_says(
    collective: str, name: str, given: dict[str, Any], steps: Any, count: Any, sent: Any
) -> None:
    for n in SIZES:
        for root in {0, n // 3, n - 1} if n < 18 else {n // 3}:
            schedule = build(collective, name, n, root=root, **given)
            assert verify(schedule) == [], (n, root)
            assert steps is None or schedule.n_steps == steps(n), n
            assert messages(schedule) == count(n), n
            assert sent is None or schedule.n_slots.sum() == sent(n), n


@pytest.mark.parametrize("collective", ["broadcast", "reduce", "gather", "scatter"])
def test_numbers_arrive_where_they_are_due(collective: str) -> None:
    for entry in algorithms(collective):
        for n, root in ((3, 1), (5, 4), (8, 0), (9, 2)):
            count = 7 * n if collective in ("gather", "scatter") else 83
            bound = build(collective, entry.name, n, root=root).bind(count, "int64")
            whole = np.arange(count) + 1
            inputs: list[Any] = [whole * 10**rank for rank in range(n)]
            if collective == "gather":
                inputs = [whole[7 * rank : 7 * rank + 7] for rank in range(n)]
            if collective in ("broadcast", "scatter"):
                inputs = [whole if rank == root else None for rank in range(n)]
            outputs = compute(bound, inputs).outputs
            for rank in range(n):
                due = {
                    "broadcast": whole,
                    "scatter": whole[7 * rank : 7 * rank + 7],
                    "gather": whole if rank == root else None,
                    "reduce": whole * int("1" * n) if rank == root else None,
                }[collective]
                found = outputs[rank]
                same = found is None if due is None else np.array_equal(found, due)
                assert same, (entry.name, n, rank)


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize("name", ["binary_tree", "double_tree"])
@pytest.mark.parametrize("segments", [1, 2, 5])
def test_binary_trees_need_one_port(collective: str, name: str, segments: int) -> None:
    for n in SIZES[1:]:
        schedule = build(collective, name, n, segments=segments)
        for end in (schedule.src, schedule.dst):
            busy = np.stack([schedule.step, end])
            assert len(np.unique(busy, axis=1).T) == len(schedule), n
        depth = 2 * math.floor(math.log2(n)) if name == "binary_tree" else 2 * log(n)
        assert schedule.n_steps <= depth + 2 * segments - 2 + (n == 3), n


@pytest.mark.parametrize("n", [2, 3, 8, 9, 64, 100])
def test_a_rank_is_inside_one_of_the_two_trees_alone(n: int) -> None:
    schedule = build("broadcast", "double_tree", n, segments=1)
    inside = [set(schedule.src[schedule.src_slot == half].tolist()) for half in (0, 1)]
    assert inside[0] & inside[1] == {0}
    assert all(len(tree - {0}) <= n / 2 for tree in inside)


def test_two_trees_near_the_bandwidth_bound_with_a_single_port() -> None:
    n, size = 32, 64_000_000
    bound = build("broadcast", "double_tree", n, segments=50).bind(size, "int8")
    replay = simulate(bound, parse("star:1GB/s,500ns", n))
    assert size <= replay.duration_ns <= 1.12 * size  # 1 GB/s: a byte a nanosecond
    binomial = simulate(build("broadcast", "tree", n).bind(size, "int8"), replay.topology)
    assert binomial.duration_ns > 4.9 * size


def test_van_de_geijn_beats_the_tree_when_large_and_loses_when_small() -> None:
    topology = parse("star:1GB/s,500ns", 16)
    times = {
        (name, size): simulate(build("broadcast", name, 16).bind(size, "int8"), topology)
        for name in ("tree", "scatter_all_gather")
        for size in (16, 16_000_000)
    }
    small, large = 16, 16_000_000
    assert times["scatter_all_gather", large].duration_ns < times["tree", large].duration_ns
    assert times["scatter_all_gather", small].duration_ns > times["tree", small].duration_ns


BARRIERS: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("dissemination", {}, log, lambda n: n * log(n)),
    ("dissemination", {"radix": 4}, lambda n: log(n, 4), None),
    ("tree", {}, lambda n: 2 * log(n), lambda n: 2 * (n - 1)),
    ("tree", {"radix": 3}, lambda n: 2 * log(n, 3), lambda n: 2 * (n - 1)),
    ("double_ring", {}, lambda n: 2 * (n - 1), lambda n: 2 * (n - 1)),
]


@pytest.mark.parametrize(("name", "given", "steps", "count"), BARRIERS)
def test_barriers(name: str, given: dict[str, Any], steps: Any, count: Any) -> None:
    for n in SIZES:
        schedule = build("barrier", name, n, **given)
        assert not [finding for finding in verify(schedule) if not finding.harmless], n
        assert schedule.n_steps == steps(n)
        assert count is None or messages(schedule) == count(n)


def test_dissemination_of_radix_2_is_what_gloo_does() -> None:
    for n in range(1, 20):
        mine, gloo = build("barrier", "dissemination", n), build("barrier", "gloo", n)
        assert mine.transfers == gloo.transfers


@pytest.mark.parametrize(
    ("collective", "name", "given", "message"),
    [
        ("broadcast", "k_nomial", {"radix": 1}, "radix is 1, expected 2 or more"),
        ("barrier", "dissemination", {"radix": 1}, "radix is 1, expected 2 or more"),
        ("barrier", "tree", {"radix": 0}, "radix is 0, expected 2 or more"),
        ("reduce", "binary_tree", {"segments": 0}, "segments is 0, expected 1 or more"),
        ("broadcast", "double_tree", {"segments": -1}, "segments is -1, expected 1 or more"),
        ("gather", "binomial", {"root": 4}, "root of gather is 4, expected 0 to 3"),
    ],
)
def test_parameters_that_cannot_be(
    collective: str, name: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        build(collective, name, 4, **given)


def test_formulas_of_the_books_by_hand() -> None:
    assert closed_form("broadcast", "scatter_all_gather", 8, 8000)[:2] == (10, 14000)
    assert closed_form("gather", "binomial", 8, 8000)[:2] == (3, 7000)
    assert closed_form("barrier", "dissemination", 9, 0)[:2] == (4, 0)
    # 2⌈lg p⌉ + 2k - 2 messages of S/2k
    assert closed_form("broadcast", "double_tree", 8, 8000, segments=4)[:2] == (12, 12000)


def executed(root: int) -> list[str]:
    """In a rank: each algorithm against what is due; return those that go wrong."""
    import torch
    import torch.distributed as dist

    import chunkscope

    rank, n = dist.get_rank(), dist.get_world_size()
    whole = torch.arange(3 * n, dtype=torch.int64).view(n, 3)
    empty = torch.zeros_like(whole)
    given = {
        "broadcast": whole.clone() if rank == root else empty,
        "reduce": whole * 10**rank,
        "gather": whole[rank : rank + 1],
        "scatter": whole.clone() if rank == root else empty[:1],
        "barrier": torch.zeros(1, dtype=torch.int64),
    }
    due = {
        "broadcast": whole,
        "reduce": whole * int("1" * n) if rank == root else None,
        "gather": whole if rank == root else None,
        "scatter": whole[rank : rank + 1],
    }
    wrong = []
    for collective, tensor in given.items():
        for entry in algorithms(collective):
            at = None if collective == "barrier" else root
            schedule = build(collective, entry.name, n, root=at)
            found = chunkscope.execute(schedule, tensor.clone(), "MAX" if at is None else "SUM")
            expected = due.get(collective, found)
            same = found is None if expected is None else torch.equal(found, expected)
            if not same:
                wrong.append(f"{collective} {entry.name}: {found}")
    return wrong


def executed_as_computed() -> list[str]:
    """In a rank: algorithms without a root against the numbers that they should give."""
    import torch
    import torch.distributed as dist

    import chunkscope

    rank, n, wrong = dist.get_rank(), dist.get_world_size(), []
    for entry in algorithms():
        schedule = build(entry.collective, entry.name, n)
        if schedule.kind.rooted or schedule.helpers or entry.collective == "barrier":
            continue
        bound = schedule.bind(2 * n, "int64")
        inputs = default_inputs(bound)
        expected = compute(bound, inputs).outputs[rank]
        found = chunkscope.execute(schedule, torch.from_numpy(np.array(inputs[rank])))
        if found is None or expected is None or found.tolist() != expected.tolist():
            wrong.append(f"{entry.collective} {entry.name}: {found}, expected {expected}")
    return wrong


@pytest.mark.ranks
def test_eight_real_ranks() -> None:
    with Ranks(8, preload=("chunkscope.sim.execute",)) as ranks:
        for root in (0, 5):
            assert ranks.run(executed, root) == [[]] * 8
        assert ranks.run(executed_as_computed) == [[]] * 8


PICTURES: list[tuple[str, str, int, dict[str, Any]]] = [
    *((collective, "k_nomial", 9, {"radix": 3}) for collective in ("broadcast", "reduce")),
    *((collective, "binary_tree", 5, {"segments": 2}) for collective in ("broadcast", "reduce")),
    *((collective, "double_tree", 5, {"segments": 1}) for collective in ("broadcast", "reduce")),
    *((collective, "binomial", 6, {}) for collective in ("gather", "scatter")),
    ("barrier", "tree", 4, {}),
    ("barrier", "double_ring", 3, {}),
]


@pytest.mark.parametrize(("collective", "name", "n", "given"), PICTURES)
def test_the_pictures_in_the_docstrings_are_true(
    collective: str, name: str, n: int, given: dict[str, Any]
) -> None:
    (entry,) = [entry for entry in algorithms(collective) if entry.name == name]
    shown = set()
    for step, line in re.findall(r"^ +step (\d+) +(.*)$", entry.builder.__doc__ or "", re.M):
        for src, arrow, dst, what in re.findall(r"(\d+) (->|\+>) (\d+)( [ab]\b)?", line):
            shown.add((int(step), int(src), int(dst), arrow == "+>", what.strip()))
    schedule = build(collective, name, n, **given)
    letters = "ab" if "segments" in given else ""
    drawn = {
        (row.step, row.src, row.dst, row.reduce, letters[row.src_slot] if letters else "")
        for row in schedule.transfers
    }
    assert shown == drawn
