"""Sharing: the oracle by hand and by definition, and both passes over messages against it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkscope.sim.compiled import WORTH, has_numba, run
from chunkscope.sim.events import play
from chunkscope.sim.program_order import Program, walk


def shares(rate: list[float], paths: list[list[int]]) -> list[float]:
    """Max-min fair rates by filling, one flow after the other, in the plainest way."""
    left, found = list(rate), dict.fromkeys(range(len(paths)), 0.0)
    growing = set(found)
    while growing:
        users = [sum(link in paths[flow] for flow in growing) for link in range(len(rate))]
        level = min(room / n for room, n in zip(left, users, strict=True) if n)
        full = {link for link, n in enumerate(users) if n and left[link] / n <= level * (1 + 1e-12)}
        for flow in [flow for flow in growing if full & set(paths[flow])]:
            growing.remove(flow)
            found[flow] = level
            for link in paths[flow]:
                left[link] -= level
    return list(found.values())


@pytest.mark.parametrize(
    ("rate", "paths", "expected"),
    [
        ([10], [[0]], [10]),
        ([10], [[0], [0]], [5, 5]),
        ([10, 4], [[0, 1], [0]], [4, 6]),
        ([10, 4], [[0], [0], [1, 0]], [10 / 3, 10 / 3, 10 / 3]),
        ([10, 3], [[0], [0], [1, 0]], [3.5, 3.5, 3]),
        # The textbook's line: one long flow, and a short one on each link.
        ([1, 1, 1], [[0, 1, 2], [0], [1], [2]], [0.5, 0.5, 0.5, 0.5]),
        ([1, 2, 2], [[0, 1, 2], [0], [1], [2]], [0.5, 0.5, 1.5, 1.5]),
    ],
)
def test_shares_by_hand(rate: list[float], paths: list[list[int]], expected: list[float]) -> None:
    assert shares(rate, paths) == pytest.approx(expected, rel=1e-12)


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[float], list[list[int]]]:
    n_links = draw(st.integers(1, 6))
    rate = draw(st.lists(st.floats(0.1, 100), min_size=n_links, max_size=n_links))
    path = st.lists(st.integers(0, n_links - 1), min_size=1, max_size=4, unique=True)
    return rate, draw(st.lists(path, min_size=1, max_size=8))


@given(networks())
def test_no_link_is_overfull_and_every_flow_has_a_bottleneck(
    network: tuple[list[float], list[list[int]]],
) -> None:
    rate, paths = network
    got = shares(rate, paths)
    load = [sum(g for g, path in zip(got, paths) if link in path) for link in range(len(rate))]
    for used, most in zip(load, rate):
        assert used <= most * (1 + 1e-9)
    for own, path in zip(got, paths):
        # Max-min: some link of the flow is full, and nobody on it has more.
        assert any(
            load[link] >= rate[link] * (1 - 1e-9)
            and own >= max(g for g, p in zip(got, paths) if link in p) * (1 - 1e-9)
            for link in path
        )


def program(
    rate: list[float], paths: list[list[int]], sizes: list[float], begins: list[float]
) -> Program:
    """Messages that wait for nothing but their begin, each on its own lane and slots."""
    n = len(paths)
    number, none = np.arange(n), np.zeros(0)
    return Program(
        step=np.zeros(n, np.int32),
        message=number,
        first_row=number,
        src_key=2 * number,
        dst_key=2 * number + 1,
        n_slots=np.ones(n, np.int32),
        n_keys=2 * n,
        src_lane=number,
        dst_lane=none.astype(np.int64),
        n_lanes=n,
        window=1,
        is_lockstep=False,
        after=np.zeros((0, 2), np.int64),
        after_written=none.astype(np.bool_),
        ready_ns=np.array(begins),
        late_ns=np.zeros(n),
        write_ns=none,
        pair=number,
        latency_ns=np.zeros(n),
        rate=np.array([min(rate[link] for link in path) for path in paths]),
        path_starts=np.cumsum([0, *map(len, paths)]),
        path_links=np.array([link for path in paths for link in path]),
        link_rate=np.array(rate),
        size_bytes=np.array(sizes),
    )


def by_events(
    rate: list[float],
    paths: list[list[int]],
    sizes: list[float],
    begins: list[float],
    n: int = 0,
) -> list[float]:
    """Return arrivals; compiled if n is large."""
    arrived = np.zeros(len(paths))
    start, written = np.zeros(len(paths)), np.zeros(len(paths))
    assert play(program(rate, paths, sizes, begins), partial(run, n=n), start, arrived, written)
    assert written.tolist() == arrived.tolist()
    assert start.tolist() == begins
    return arrived.tolist()


def by_small_print(
    rate: list[float], paths: list[list[int]], sizes: list[float], begins: list[float]
) -> list[float]:
    """The same, working out everything anew at every change."""
    left, done, now = dict(enumerate(sizes)), {}, 0.0
    while left:
        active = [m for m in left if begins[m] <= now]
        speed = dict(zip(active, shares(rate, [paths[m] for m in active]))) if active else {}
        to_next = [begins[m] - now for m in left if begins[m] > now]
        to_end = [left[m] / speed[m] for m in active]
        span = min(to_next + to_end)
        for message in active:
            left[message] -= speed[message] * span
            if left[message] <= 1e-9 * sizes[message]:
                del left[message]
                done[message] = now + span
        now += span
    return [done[message] for message in range(len(paths))]


@settings(max_examples=60, deadline=None)
@given(networks(), st.data())
def test_only_what_a_change_reaches_is_worked_out_anew_and_times_are_the_same(
    network: tuple[list[float], list[list[int]]], data: st.DataObject
) -> None:
    rate, paths = network
    numbers = st.lists(st.integers(1, 50), min_size=len(paths), max_size=len(paths))
    sizes = [float(size) for size in data.draw(numbers)]
    begins = [float(begin) for begin in data.draw(numbers)]
    begins = [begin - min(begins) for begin in begins]
    slow = by_small_print(rate, paths, sizes, begins)
    assert by_events(rate, paths, sizes, begins) == pytest.approx(slow, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_a_change_goes_as_far_as_it_must(seed: int) -> None:
    """Many links with few messages each: what begins here moves bottlenecks some links away."""
    random = np.random.default_rng(seed)
    n, n_links = 36, 18
    rate = random.integers(1, 6, n_links).astype(float).tolist()
    paths = [random.permutation(n_links)[: random.integers(1, 4)].tolist() for _ in range(n)]
    sizes, begins = random.uniform(20, 60, n).tolist(), random.uniform(0, 40, n).tolist()
    slow = by_small_print(rate, paths, sizes, begins)
    assert by_events(rate, paths, sizes, begins) == pytest.approx(slow, rel=1e-6)


def test_two_flows_on_one_link_by_hand() -> None:
    # Both at half rate until the short one is over, then the long one alone.
    assert by_events([1], [[0], [0]], [100, 200], [0, 0]) == [200, 300]
    # The second comes late: 50 alone, then 50 at half rate.
    assert by_events([1], [[0], [0]], [100, 200], [0, 50]) == [150, 300]


@pytest.mark.parametrize(
    ("begins", "met"),
    [([0, 10, 20], False), ([0, 9, 20], True)],
    ids=["one ends as the next begins", "a nanosecond together"],
)
def test_the_first_pass_notices_two_messages_on_one_link(begins: list[float], met: bool) -> None:
    work = program([1, 1], [[0], [0, 1], [1]], [10, 10, 5], begins)
    times = np.zeros(3), np.zeros(3), np.zeros(3)
    assert walk(work, *times) == met


def test_messages_without_bytes_use_no_link() -> None:
    work = program([1], [[0], [0]], [0, 0], [0, 0])
    assert not walk(work, np.zeros(2), np.zeros(2), np.zeros(2))
    assert by_events([1], [[0], [0], [0]], [0, 100, 0], [0, 0, 50]) == [0, 100, 50]


@pytest.mark.skipif(not has_numba(), reason="numba is not installed")
def test_compiled_and_plain_give_the_same_times() -> None:
    random = np.random.default_rng(7)
    rate = random.uniform(1, 5, 12).tolist()
    paths = [random.permutation(12)[: random.integers(1, 5)].tolist() for _ in range(200)]
    sizes, begins = random.uniform(1, 90, 200).tolist(), random.uniform(0, 300, 200).tolist()
    plain = by_events(rate, paths, sizes, begins)
    assert by_events(rate, paths, sizes, begins, n=WORTH) == plain
