"""all_reduce, reduce_scatter and all_gather: steps and messages by formula, for all group sizes."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from chunkscope.errors import ScheduleError
from chunkscope.sim.algorithms.butterfly import swing_distance
from chunkscope.sim.algorithms.double_tree import depths, tree_parents
from chunkscope.sim.algorithms.rings import disjoint_strides
from chunkscope.sim.algorithms.torus import balanced_dims
from chunkscope.sim.library import algorithms, build, phases
from chunkscope.sim.schedule import Schedule
from chunkscope.sim.values import compute
from chunkscope.sim.verify import verify

SMALL = range(1, 34)
LARGE = (63, 64, 65, 100)
NAMES = [
    ("all_reduce", name)
    for name in (
        "ring_segmented", "ring_bidirectional", "ring_channels", "recursive_doubling",
        "halving_doubling", "swing", "k_nomial", "double_tree", "torus2d", "torus3d",
        "hierarchical", "one_shot", "two_shot", "reduce_broadcast", "sharp", "nvls",
    )
]  # fmt: skip
NAMES += [("reduce_scatter", name) for name in ("recursive_halving", "pat", "direct")]
NAMES += [("reduce_scatter", "hierarchical"), ("all_gather", "hierarchical")]
NAMES += [
    ("all_gather", name)
    for name in ("recursive_doubling", "bruck", "pat", "neighbor_exchange", "direct")
]
PARAMETERS: list[tuple[str, dict[str, Any]]] = [
    ("ring_segmented", {"segments": 3, "window": 3}),
    ("ring_channels", {"channels": 5}),
    ("k_nomial", {"radix": 3}),
    ("double_tree", {"segments": 1, "window": 4}),
    ("torus2d", {"mirrored": True}),
    ("torus3d", {"mirrored": True}),
    ("reduce_broadcast", {"reduce": "tree", "broadcast": "k_nomial"}),
    ("sharp", {"segments": 3}),
]


def fitting(collective: str, name: str, sizes: Iterable[int]) -> list[int]:
    (entry,) = [e for e in algorithms(collective) if e.name == name]
    return list(filter(entry.sizes.fits, sizes))


def messages(schedule: Schedule) -> int:
    return len(schedule.messages.first_row)


# Valid, and right in numbers.


@pytest.mark.parametrize(("collective", "name"), NAMES)
def test_valid_for_every_group_size(collective: str, name: str) -> None:
    for n in fitting(collective, name, [*range(18, 34), *LARGE]):  # up to 17: test_verify
        assert verify(build(collective, name, n)) == [], n


@pytest.mark.parametrize(("name", "given"), PARAMETERS, ids=lambda one: str(one))
def test_valid_with_parameters(name: str, given: dict[str, Any]) -> None:
    for n in (1, 2, 3, 4, 6, 7, 8, 12, 16, 27, 30):
        assert verify(build("all_reduce", name, n, **given)) == [], n


@pytest.mark.parametrize(("collective", "name"), NAMES)
def test_numbers(collective: str, name: str) -> None:
    """Against numpy, with blocks of three elements."""
    for n in fitting(collective, name, (2, 7, 16, 33, 64)):
        bound = build(collective, name, n).bind(3 * n, "int64")
        random = np.random.default_rng(n)
        inputs = [random.integers(-99, 99, bound.input_elements(rank)) for rank in range(n)]
        whole = np.concatenate(inputs) if collective == "all_gather" else sum(inputs)
        outputs = compute(bound, inputs).outputs
        for rank, found in enumerate(outputs):
            due = whole[3 * rank : 3 * rank + 3] if collective == "reduce_scatter" else whole
            assert np.array_equal(found, due), (n, rank)


# Steps and messages.


def log2_ceil(n: int) -> int:
    return math.ceil(math.log2(n))


def folds(n: int) -> int:
    """Ranks beyond a power of two."""
    return n - (1 << n.bit_length() - 1)


FORMULAS: dict[tuple[str, str], tuple[Callable[[int], int], Callable[[int], int]]] = {
    ("all_reduce", "ring_segmented"): (lambda n: 4 * (n - 1), lambda n: 4 * n * (n - 1)),
    ("all_reduce", "ring_bidirectional"): (lambda n: 2 * (n - 1), lambda n: 4 * n * (n - 1)),
    ("all_reduce", "ring_channels"): (lambda n: 2 * (n - 1), lambda n: 4 * n * (n - 1)),
    ("all_reduce", "recursive_doubling"): (
        lambda n: n.bit_length() - 1 + 2 * (folds(n) > 0),
        lambda n: (n - folds(n)) * (n.bit_length() - 1) + 2 * folds(n),
    ),
    ("all_reduce", "halving_doubling"): (
        lambda n: 2 * (n.bit_length() - 1) + 2 * (folds(n) > 0),
        lambda n: 2 * (n - folds(n)) * (n.bit_length() - 1) + 2 * folds(n),
    ),
    ("all_reduce", "swing"): (
        lambda n: 2 * (log2_ceil(n - n % 2) + n % 2) if n > 1 else 0,
        lambda n: 2 * (n - n % 2) * (log2_ceil(n - n % 2) + n % 2) if n > 1 else 0,
    ),
    ("all_reduce", "k_nomial"): (
        lambda n: 2 * math.ceil(round(math.log(n, 4), 9)),
        lambda n: 2 * (n - 1),
    ),
    ("all_reduce", "double_tree"): (
        lambda n: 2 * log2_ceil(n) + 3 if n > 1 else 0,
        lambda n: 16 * (n - 1),
    ),
    ("all_reduce", "torus2d"): (
        lambda n: 2 * (sum(balanced_dims(n, 2)) - 2),
        lambda n: 2 * n * (sum(balanced_dims(n, 2)) - 2),
    ),
    ("all_reduce", "torus3d"): (
        lambda n: 2 * (sum(balanced_dims(n, 3)) - 3),
        lambda n: 2 * n * (sum(balanced_dims(n, 3)) - 3),
    ),
    ("all_reduce", "one_shot"): (lambda n: n > 1, lambda n: n * (n - 1)),
    ("all_reduce", "two_shot"): (lambda n: 2 * (n > 1), lambda n: 2 * n * (n - 1)),
    ("all_reduce", "reduce_broadcast"): (lambda n: 2 * (n > 1), lambda n: 2 * (n - 1)),
    ("all_reduce", "sharp"): (lambda n: 2 * (n > 1), lambda n: 2 * n * (n > 1)),
    ("all_reduce", "nvls"): (lambda n: 4 * (n > 1), lambda n: 4 * n * (n > 1)),
    ("reduce_scatter", "recursive_halving"): (log2_ceil, lambda n: n * log2_ceil(n)),
    ("reduce_scatter", "pat"): (log2_ceil, lambda n: n * log2_ceil(n)),
    ("reduce_scatter", "direct"): (lambda n: n > 1, lambda n: n * (n - 1)),
    ("all_gather", "recursive_doubling"): (log2_ceil, lambda n: n * log2_ceil(n)),
    ("all_gather", "bruck"): (log2_ceil, lambda n: n * log2_ceil(n)),
    ("all_gather", "pat"): (log2_ceil, lambda n: n * log2_ceil(n)),
    ("all_gather", "direct"): (lambda n: n > 1, lambda n: n * (n - 1)),
    ("all_gather", "neighbor_exchange"): (lambda n: n // 2, lambda n: n * n // 2),
}


@pytest.mark.parametrize(("collective", "name"), FORMULAS)
def test_steps_and_messages(collective: str, name: str) -> None:
    n_steps, n_messages = FORMULAS[collective, name]
    for n in fitting(collective, name, [*SMALL, *LARGE]):
        schedule = build(collective, name, n)
        assert schedule.n_steps == n_steps(n), n
        assert messages(schedule) == n_messages(n), n


# What makes each one what it is.


@pytest.mark.parametrize("n", [6, 10, 14, 20, 48])
def test_swing_beyond_powers_of_two_still_moves_each_piece_once(n: int) -> None:
    schedule = build("all_reduce", "swing", n)
    assert len(schedule) == 2 * n * (n - 1)
    sent = schedule.step * n + schedule.src
    for step in range(schedule.n_steps):  # every rank has one partner, who has it, too
        now = schedule.step == step
        partner = np.full(n, -1)
        partner[schedule.src[now]] = schedule.dst[now]
        assert (partner[partner] == np.arange(n)).all()
    assert len(np.unique(sent * n + schedule.dst)) == messages(schedule)


@pytest.mark.parametrize("most", [1, 2, 4, 8])
def test_pat_with_small_buffers_sends_no_more_at_once(most: int) -> None:
    for collective in ("all_gather", "reduce_scatter"):
        schedule = build(collective, "pat", 16, aggregation=most)
        of_row = schedule.messages.of_row
        assert np.bincount(of_row, schedule.n_slots).max() == most
        assert schedule.n_steps == most.bit_length() - 1 + 16 // most - 1
        assert schedule.n_slots.sum() == 16 * 15, "no block twice"


def test_a_segmented_ring_is_the_ring_in_smaller_pieces() -> None:
    whole, cut = build("all_reduce", "ring", 5), build("all_reduce", "ring_segmented", 5)
    assert cut.window == 2
    first = cut.src_slot % 2 == 0
    assert np.array_equal(cut.step[first] // 2, whole.step)
    assert np.array_equal(cut.src_slot[first] // 2, whole.src_slot)
    assert np.array_equal(cut.dst[first], whole.dst)


def test_rings_in_both_directions() -> None:
    schedule = build("all_reduce", "ring_bidirectional", 5)
    ahead = (schedule.dst - schedule.src) % 5
    assert np.array_equal(ahead, np.where(schedule.channel == 0, 1, 4))


@pytest.mark.parametrize("n", [5, 7, 8, 12, 30])
def test_rings_on_channels_have_no_link_in_common(n: int) -> None:
    most = sum(math.gcd(k, n) == 1 for k in range(1, n))
    schedule = build("all_reduce", "ring_channels", n, channels=most)
    links = {(int(a), int(b)) for a, b in zip(schedule.src, schedule.dst, strict=True)}
    assert len(links) == most * n
    assert disjoint_strides(n, most + 1)[-1] == 1, "then they are used again"


@pytest.mark.parametrize("n", [*SMALL[1:], *LARGE, 256, 299])
def test_the_two_trees_are_nccls(n: int) -> None:
    """Spanning, no deeper than ⌈lg n⌉, and inside of both is at most rank 0, where n is odd."""
    inside = []
    for parent in tree_parents(n):
        depth = depths(parent)
        assert (depth == 0).sum() == 1
        assert depth.max() == log2_ceil(n)
        child = np.flatnonzero(depth)
        assert np.array_equal(depth[child], depth[parent[child]] + 1)
        assert np.bincount(parent[child]).max() <= 2
        inside.append(set(parent[child].tolist()))
    both = inside[0] & inside[1]
    assert both == ({0} if n % 2 and n > 2 else set()) or n == 2
    assert inside[0] | inside[1] == set(range(n)) or n <= 3


def test_the_first_tree_of_eight_ranks() -> None:
    first, second = tree_parents(8)
    assert first.tolist() == [0, 2, 4, 2, 0, 6, 4, 6]
    assert second.tolist() == [1, 3, 1, 7, 5, 3, 5, 7]
    assert tree_parents(5)[1].tolist() == [1, 1, 3, 0, 3]


def test_sums_go_up_a_double_tree_while_results_come_down() -> None:
    schedule = build("all_reduce", "double_tree", 16, segments=8)
    up, down = (set(schedule.step[schedule.reduce == flag].tolist()) for flag in (True, False))
    assert len(up & down) == 7
    assert np.array_equal(schedule.channel, schedule.src_slot // 8)


@pytest.mark.parametrize(("n", "swing", "doubling"), [(8, 5, 7), (16, 10, 15), (64, 42, 63)])
def test_swing_takes_shorter_ways_around_a_ring(n: int, swing: int, doubling: int) -> None:
    steps = range(log2_ceil(n))
    assert sum(min(swing_distance(s) % n, -swing_distance(s) % n) for s in steps) == swing
    half = build("all_reduce", "swing", n)
    for step in steps:
        rows = half.step == step
        ahead = (half.dst[rows] - half.src[rows]) % n
        expected = np.where(half.src[rows] % 2, -swing_distance(step), swing_distance(step)) % n
        assert np.array_equal(ahead, expected)
        assert set(half.n_slots[rows].tolist()) == {n >> step + 1}
    other = build("all_reduce", "recursive_doubling", n)
    assert sum(min(1 << s, n - (1 << s)) for s in steps) == doubling
    assert sorted({int(abs(a)) for a in other.dst - other.src}) == [1 << s for s in steps]


def test_halving_sends_most_to_neighbours() -> None:
    schedule = build("all_reduce", "halving_doubling", 16)
    for step in range(4):
        rows = schedule.step == step
        assert set(abs(schedule.dst - schedule.src)[rows].tolist()) == {1 << step}
        assert set(schedule.n_slots[rows].tolist()) == {8 >> step}


@pytest.mark.parametrize("n", [8, 13, 16, 100])
def test_pat_goes_far_first_and_bruck_near_first(n: int) -> None:
    pat, bruck = build("all_gather", "pat", n), build("all_gather", "bruck", n)
    distances = [1 << step for step in range(log2_ceil(n))]
    for schedule, far in ((pat, distances[::-1]), (bruck, distances)):
        sent = np.zeros(schedule.n_steps, np.int64)
        np.add.at(sent, schedule.step, schedule.n_slots)
        assert sent.sum() == n * (n - 1)
        found = [
            set(((schedule.src - schedule.dst) % n)[schedule.step == step].tolist())
            for step in range(schedule.n_steps)
        ]
        assert found == [{distance} for distance in far]
    if n == 16:
        assert pat.n_slots[pat.src == 0].tolist() == [1, 2, 4, 8]


@pytest.mark.parametrize("n", [2, 6, 12, 100])
def test_who_gets_what_from_whom_in_pat(n: int) -> None:
    """Rank r gets the block of r + s from the rank that s's lowest bit is on."""
    schedule = build("all_gather", "pat", n)
    bound = schedule.bind(n, "float32")
    for row, chunk in zip(bound.moves.row, bound.move_chunk, strict=True):
        src, dst = int(schedule.src[row]), int(schedule.dst[row])
        ahead = (int(chunk) - dst) % n
        assert src == (dst + (ahead & -ahead)) % n


def test_neighbours_swap_to_either_side_in_turn() -> None:
    schedule = build("all_gather", "neighbor_exchange", 8)
    for step in range(4):
        pairs = {frozenset((row.src, row.dst)) for row in schedule.transfers if row.step == step}
        assert len(pairs) == 4
        assert frozenset((0, 1 if step % 2 == 0 else 7)) in pairs


@pytest.mark.parametrize(
    ("n", "n_dims", "dims"),
    [(1, 2, (1, 1)), (12, 2, (4, 3)), (64, 2, (8, 8)), (64, 3, (4, 4, 4)), (13, 3, (13, 1, 1))],
)
def test_balanced_dims(n: int, n_dims: int, dims: tuple[int, ...]) -> None:
    assert balanced_dims(n, n_dims) == dims


@pytest.mark.parametrize(("name", "dims"), [("torus2d", (4, 5)), ("torus3d", (2, 3, 4))])
def test_a_torus_sends_to_neighbours_alone(name: str, dims: tuple[int, ...]) -> None:
    n = math.prod(dims)
    place = np.array(list(itertools.product(*map(range, dims))))
    for mirrored in (False, True):
        schedule = build("all_reduce", name, n, dims=dims, mirrored=mirrored)
        away = (place[schedule.dst] - place[schedule.src]) % dims
        assert (np.count_nonzero(away, axis=1) == 1).all()
        hop = away.max(axis=1)
        moved = np.array(dims)[np.argmax(away, axis=1)]
        assert ((hop == 1) | (hop == moved - 1)).all()
        assert schedule.channels == (2 * len(dims) if mirrored else 1)
        if not mirrored:
            assert (hop == 1).all()
            sent = np.bincount(schedule.src, schedule.n_slots)
            assert (sent == 2 * (n - 1)).all(), "as much as a ring, and no more"


def test_a_mirrored_torus_uses_all_links_at_once() -> None:
    schedule = build("all_reduce", "torus2d", 16, mirrored=True)
    busy = Counter(int(src) for src in schedule.src[schedule.step == 0])
    assert set(busy.values()) == {4}
    ways = {(int(a), int(b)) for a, b in zip(schedule.src, schedule.dst, strict=True)}
    assert len(ways) == 4 * 16


def test_hosts_exchange_little() -> None:
    schedule = build("all_reduce", "hierarchical", 32, ranks_per_host=8)
    across = schedule.src // 8 != schedule.dst // 8
    assert (schedule.src % 8 == schedule.dst % 8)[across].all()
    assert schedule.n_slots[across].sum() == 2 * 32 * 3  # of 32 x 32 slots
    assert [p.name for p in phases(schedule)] == ["reduce-scatter"] * 2 + ["all-gather"] * 2
    assert [p.n_steps for p in phases(schedule)] == [7, 3, 3, 7]


def test_one_shot_and_two_shot() -> None:
    assert build("all_reduce", "one_shot", 6).n_chunks == 1
    assert build("all_reduce", "two_shot", 6).n_chunks == 6
    assert build("all_reduce", "two_shot", 6).n_slots.max() == 1


def test_what_the_switch_does_in_nvls() -> None:
    schedule = build("all_reduce", "nvls", 4)
    assert schedule.helpers == ("switch",)
    rows = [row for row in schedule.transfers if row.src_slot == 1]
    assert [(row.src, row.dst) for row in rows if row.step == 0] == [(r, 4) for r in range(4)]
    assert [(row.src, row.dst) for row in rows if row.step == 1] == [(4, 1)]
    assert [(row.src, row.dst) for row in rows if row.step == 2] == [(1, 4)]
    assert [(row.src, row.dst) for row in rows if row.step == 3] == [(4, 0), (4, 2), (4, 3)]


@pytest.mark.parametrize(
    ("collective", "name", "n", "given", "message"),
    [
        ("all_gather", "pat", 6, {"aggregation": 3}, "aggregation is 3, expected a power of two"),
        ("all_gather", "neighbor_exchange", 5, {}, "it does even numbers; try 4 or 6"),
        ("all_reduce", "ring_segmented", 4, {"segments": 0}, "segments is 0, expected 1 or more"),
        ("all_reduce", "ring_channels", 4, {"channels": 0}, "channels is 0, expected 1 or more"),
        ("all_reduce", "double_tree", 4, {"segments": 0}, "segments is 0, expected 1 or more"),
        ("all_reduce", "sharp", 4, {"segments": 0}, "segments is 0, expected 1 or more"),
        ("all_reduce", "k_nomial", 4, {"radix": 1}, "radix is 1, expected 2 or more"),
        ("all_reduce", "torus2d", 6, {"dims": (2, 2)}, "expected 2 numbers whose product is 6"),
        ("all_reduce", "torus3d", 8, {"dims": (2, 4)}, "expected 3 numbers whose product is 8"),
        ("all_reduce", "hierarchical", 6, {"ranks_per_host": 4}, "expected a number that divides"),
        ("all_reduce", "reduce_broadcast", 4, {"reduce": "magic"}, "unknown reduce 'magic'; known"),
        (
            "all_reduce",
            "reduce_broadcast",
            4,
            {"reduce": "chain"},
            r"reduce chain leaves 4 chunk\(s\), broadcast flat takes 1",
        ),
    ],
)
def test_what_cannot_be(
    collective: str, name: str, n: int, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        build(collective, name, n, **given)


# The pictures in the docstrings.


def picture(collective: str, name: str, n: int, how: str, **given: Any) -> list[str]:
    """What a docstring should show of each row: who sends to whom, and what."""
    schedule = build(collective, name, n, **given)
    bound = schedule.bind(n * schedule.n_chunks, "float32")
    ends = [*bound.moves.first.tolist(), len(bound.move_chunk)]
    told = []
    for row, (low, high) in zip(schedule.transfers, itertools.pairwise(ends), strict=True):
        chunks = sorted(bound.move_chunk[low:high].tolist())
        arrow = f"{row.src} {'+>' if row.reduce else '->'} {row.dst}"
        if how == "pairs":
            told.append(f"{min(row[2:4])} {'<+>' if row.reduce else '<->'} {max(row[2:4])}")
        elif how == "segments" and row.channel == 0:
            told.append(f"{arrow} {'ab'[row.src_slot]}")
        elif how == "chunks":
            run = f"{chunks[0]}-{chunks[-1]}"
            if chunks[-1] - chunks[0] >= len(chunks):
                run = ", ".join(map(str, chunks))
            told.append(f"{arrow} chunk{f's {run}' if len(chunks) > 1 else f' {chunks[0]}'}")
        elif how == "arrows":
            told.append(arrow)
    return told


@pytest.mark.parametrize(
    ("collective", "name", "n", "how", "given"),
    [
        ("all_reduce", "halving_doubling", 4, "chunks", {}),
        ("reduce_scatter", "recursive_halving", 4, "chunks", {}),
        ("all_gather", "recursive_doubling", 4, "chunks", {}),
        ("reduce_scatter", "hierarchical", 4, "chunks", {}),
        ("all_gather", "hierarchical", 4, "chunks", {}),
        ("all_reduce", "recursive_doubling", 4, "pairs", {}),
        ("all_reduce", "torus2d", 4, "pairs", {}),
        ("all_reduce", "hierarchical", 4, "pairs", {}),
        ("all_gather", "neighbor_exchange", 6, "pairs", {}),
        ("all_reduce", "k_nomial", 9, "arrows", {"radix": 3}),
        ("all_reduce", "reduce_broadcast", 4, "arrows", {}),
        ("all_reduce", "one_shot", 3, "arrows", {}),
        ("all_reduce", "double_tree", 4, "segments", {"segments": 2}),
    ],
)
def test_pictures_are_true(
    collective: str, name: str, n: int, how: str, given: dict[str, Any]
) -> None:
    (entry,) = [e for e in algorithms(collective) if e.name == name]
    shown = " ".join((entry.builder.__doc__ or "").split())
    for text in picture(collective, name, n, how, **given):
        first, _, second = text.partition(" <")
        other = f"{second[-1]} <{second[:-2]} {first}" if second else text
        assert text in shown or other in shown, text
