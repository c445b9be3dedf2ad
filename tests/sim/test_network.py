"""Sharing: max-min fair rates by hand and by their definition, and flows against a slow oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkscope.sim.network import Flows, max_min, overlap
from chunkscope.sim.routing import Links, Paths


def shares(rate: list[float], paths: list[list[int]]) -> list[float]:
    starts = np.cumsum([0, *map(len, paths)])
    links = np.array([link for path in paths for link in path])
    return max_min(np.array(rate), starts, links).tolist()


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


def paths_of(rate: list[float], paths: list[list[int]]) -> tuple[Links, Paths]:
    starts = np.cumsum([0, *map(len, paths)])
    slowest = np.array([min(rate[link] for link in path) for path in paths])
    ends = tuple((f"a{k}", f"b{k}") for k in range(len(rate)))
    links = Links(ends, np.array(rate), np.zeros(len(rate)))
    flat = np.array([link for path in paths for link in path])
    return links, Paths(starts, flat, np.zeros(len(paths)), slowest)


def by_flows(
    rate: list[float], paths: list[list[int]], sizes: list[float], begins: list[float]
) -> list[float]:
    """Return arrivals, driving Flows as the engine does."""
    flows = Flows(*paths_of(rate, paths), np.array(sizes))
    due: dict[int, float] = {}
    begin = dict(enumerate(begins))
    done: dict[int, float] = {}
    while begin or due:
        now = min([*begin.values(), *due.values()])
        for message in [m for m, t in begin.items() if t == now]:
            del begin[message]
            flows.add(message, now)
        for message in [m for m, t in due.items() if t == now]:
            done[message] = due.pop(message)
            flows.remove(message)
        due.update(flows.settle(now))
    return [done[message] for message in range(len(paths))]


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
    assert by_flows(rate, paths, sizes, begins) == pytest.approx(slow, rel=1e-6)


def test_two_flows_on_one_link_by_hand() -> None:
    # Both at half rate until the short one is over, then the long one alone.
    assert by_flows([1], [[0], [0]], [100, 200], [0, 0]) == [200, 300]
    # The second comes late: 50 alone, then 50 at half rate.
    assert by_flows([1], [[0], [0]], [100, 200], [0, 50]) == [150, 300]


def test_overlap_is_use_of_one_link_at_one_time() -> None:
    _, paths = paths_of([1, 1], [[0], [0, 1], [1]])
    begin = np.array([0.0, 10.0, 0.0])
    assert not overlap(paths, begin, np.array([10.0, 20.0, 10.0])), "one ends as the next begins"
    assert overlap(paths, begin, np.array([10.5, 20.0, 10.0]))
    assert not overlap(paths, np.zeros(3), np.zeros(3)), "messages without bytes use no link"
