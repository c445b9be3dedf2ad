"""Native gloo's algorithms: as many messages of such sizes as were seen on the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chunkscope.errors import ScheduleError
from chunkscope.sim.collectives import COLLECTIVES
from chunkscope.sim.library import build
from chunkscope.sim.schedule import Schedule
from chunkscope.sim.spec import Spec, parse_spec
from chunkscope.sim.values import compute
from chunkscope.sim.verify import verify

KB, MB = 1024, 1 << 20
SIZED = (
    ("all_reduce", "gloo"),
    ("reduce_scatter", "gloo"),
    ("reduce_scatter", "gloo_list"),
    ("all_gather", "gloo"),
    ("reduce", "gloo"),
)


def sends(schedule: Schedule) -> int:
    return int((schedule.src != schedule.dst).sum())


def sized(collective: str, n: int, size_bytes: int, name: str = "gloo", **more: Any) -> Schedule:
    return build(collective, name, n, size_bytes=size_bytes, itemsize=4, **more)


# What a tap saw of torch 2.13: messages of all ranks.
@pytest.mark.parametrize(
    ("size_bytes", "seen"),
    [
        (4, {2: 2, 3: 4, 4: 6, 8: 14}),
        (4 * KB, {2: 8, 3: 24, 4: 48, 8: 224}),
        (MB, {2: 8, 3: 24, 4: 48, 8: 224}),
        (16 * MB, {2: 32, 3: 72, 4: 96, 8: 224}),
    ],
)
def test_messages_of_all_reduce(size_bytes: int, seen: dict[int, int]) -> None:
    assert {n: sends(sized("all_reduce", n, size_bytes)) for n in seen} == seen


def test_segments_of_all_reduce() -> None:
    longest = {n: sized("all_reduce", n, 16 * MB).bind(4 * MB).row_bytes.max() for n in (2, 3, 8)}
    assert longest == {2: MB, 3: 932068, 8: MB}


@pytest.mark.parametrize(
    ("collective", "name", "seen"),
    [  # on 2 and 3 ranks, with 4 B, 4 KB, 1 MB and 16 MB
        ("reduce", "gloo", {2: (2, 5, 5, 29), 3: (3, 14, 14, 46)}),
        ("reduce_scatter", "gloo_list", {2: (4, 16, 16, 32), 3: (12, 72, 72, 72)}),
        ("reduce_scatter", "gloo", {2: (4, 8, 8, 32), 3: (12, 24, 24, 72)}),
        ("all_gather", "gloo", {2: (4, 4, 4, 4), 3: (12, 12, 12, 12)}),
    ],
)
def test_messages_of_the_others(
    collective: str, name: str, seen: dict[int, tuple[int, ...]]
) -> None:
    for n, counts in seen.items():
        for size, count in zip((4, 4 * KB, MB, 16 * MB), counts, strict=True):
            whole = -(-size // (4 * n)) * 4 * n if COLLECTIVES[collective].by_block else size
            # A block of one element is halved within it.
            itemsize = 1 if collective == "all_gather" else 4
            root = n // 2 if COLLECTIVES[collective].rooted else None
            plan = build(collective, name, n, root=root, size_bytes=whole, itemsize=itemsize)
            assert sends(plan) == count


def test_a_reduce_of_many_segments_sends_some_for_nothing() -> None:
    """gloo's loop ends two turns before it has gone around, however many segments a chunk has."""
    plan = sized("reduce", 2, 16 * MB)
    wasted = plan.dst_slot >= plan.n_chunks
    assert int(wasted.sum()) == 2 * (8 - 2)
    assert not plan.reduce[wasted].any()
    assert verify(plan) == []


def test_halves_of_an_all_gather() -> None:
    plan = build("all_gather", "gloo", 3, size_bytes=12)  # a float32 a block
    assert plan.bind(12, "uint8").row_bytes.tolist() == [2] * 12
    plan = build("all_gather", "gloo", 2, size_bytes=6)
    assert sorted(set(plan.bind(6, "uint8").row_bytes.tolist())) == [1, 2]
    assert plan.chunk_elements is not None
    assert plan.chunk_elements.tolist() == [1, 2, 1, 2]
    with pytest.raises(ScheduleError, match="halved within an element of 4 bytes: plan it in byt"):
        sized("all_gather", 3, 36)


def test_who_sends_to_whom() -> None:
    tree = build("broadcast", "gloo", 6, root=2).transfers
    assert [(t.step, t.src, t.dst) for t in tree] == [
        (0, 2, 3), (1, 2, 4), (1, 3, 5), (2, 2, 0), (2, 3, 1),
    ]  # fmt: skip
    direct = [t for t in build("all_to_all", "gloo", 4).transfers if t.src == 1]
    assert [(t.dst, t.src_slot, t.dst_slot) for t in direct if t.dst != 1] == [
        (2, 2, 5), (3, 3, 5), (0, 0, 5),
    ]  # fmt: skip
    assert {(t.src, t.dst) for t in build("gather", "gloo", 3, root=1).transfers} == {
        (0, 1),
        (2, 1),
    }
    assert {(t.src, t.dst) for t in build("scatter", "gloo", 3, root=1).transfers} == {
        (1, 0),
        (1, 2),
    }


@pytest.mark.parametrize(("n", "rounds"), [(1, 0), (2, 1), (3, 2), (5, 3), (8, 3), (9, 4)])
def test_rounds_of_the_barrier(n: int, rounds: int) -> None:
    barrier = build("barrier", "gloo", n)
    assert (barrier.n_steps, len(barrier)) == (rounds, n * rounds)
    assert barrier.bind(0, "uint8").row_bytes.sum() == 0


@pytest.mark.parametrize("n", range(1, 10))
@pytest.mark.parametrize(("collective", "name"), SIZED)
def test_any_number_of_elements(collective: str, name: str, n: int) -> None:
    """Valid, and right in numbers, where segments and blocks end in odd places or are empty."""
    kind = COLLECTIVES[collective]
    for count in (0, 1, 2, 3, 5, 7, 4 * n - 1, 6 * n + 5):
        elements = count * n if kind.by_block else count
        itemsize = 1 if collective == "all_gather" else 4
        for root in {0, n - 1} if kind.rooted else {None}:
            plan = build(
                collective, name, n, root=root, size_bytes=elements * itemsize, itemsize=itemsize
            )
            assert verify(plan) == []
            bound = plan.bind(elements, "int32" if itemsize == 4 else "uint8")
            given = [(np.arange(bound.input_elements(rank)) + 3 * rank) % 100 for rank in range(n)]
            outputs = compute(bound, given).outputs
            if collective == "all_gather":
                due = [np.concatenate(given)] * n
            elif collective == "reduce_scatter":
                due = np.split(np.sum(given, axis=0), n)
            else:
                due = [np.sum(given, axis=0)] * n
            for rank in range(n) if root is None else [root]:
                got = outputs[rank]
                assert (elements == 0 and got is None) or got.tolist() == due[rank].tolist()


def test_a_message_may_hold_the_ends_of_two_blocks() -> None:
    """Three ranks, blocks of three elements: segments of two elements end within a block."""
    plan = sized("reduce_scatter", 3, 36)
    assert plan.n_slots.max() > 1
    assert sorted(set(plan.bind(9).row_elements.tolist())) == [1, 2]


def test_a_spec_plans_for_its_size() -> None:
    few, many = (parse_spec(f"all_reduce:gloo:4:{size}").schedule() for size in ("4B", "64MiB"))
    assert (len(few), len(many)) == (6, 384)
    assert Spec("all_gather", "gloo", 6).simulate().duration_ns > 0  # no plan for 18 elements


@pytest.mark.parametrize(
    ("collective", "name", "message"),
    [
        ("reduce_scatter", "gloo", "gloo: 5 elements cannot be divided equally among 4 ranks"),
        ("reduce_scatter", "gloo_list", "gloo: 20 bytes cannot be divided equally among 4 ranks"),
        ("all_gather", "gloo", "gloo: 5 elements cannot be divided equally among 4 ranks"),
    ],
)
def test_sizes_that_cannot_be(collective: str, name: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        sized(collective, 4, 20, name)
    with pytest.raises(ScheduleError, match=r"gloo: 7 bytes|cannot be divided"):
        sized(collective, 4, 7, name)
