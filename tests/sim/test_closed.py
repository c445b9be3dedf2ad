"""Closed forms: equal to the step model to the nanosecond where messages do not meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chunkscope.errors import ScheduleError
from chunkscope.sim.algorithms import ALGORITHMS
from chunkscope.sim.closed import CLOSED, Terms, closed_form
from chunkscope.sim.library import build
from chunkscope.sim.replay import simulate
from chunkscope.sim.schedule import Schedule
from chunkscope.sim.topology import parse

RATES = {"latency_ns": 700.0, "bandwidth_Bps": 2e9}
SIZES = (1, 2, 3, 4, 5, 6, 8, 9, 12, 15, 16)
# Elements that divide into equal chunks by every algorithm and group size here.
ELEMENTS = 720 * 16 * 7

# What is tried beside the defaults.
PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "ring_segmented": [{"segments": 3, "window": 1}],
    "ring_channels": [{"channels": 3}],
    "k_nomial": [{"radix": 3}],
    "dissemination": [{"radix": 3}],
    "binary_tree": [{"segments": 1}, {"segments": 5}],
    "double_tree": [{"segments": 1}, {"segments": 5}],
    "torus2d": [{"mirrored": True}],
    "torus3d": [{"mirrored": True}],
    "hierarchical": [{"ranks_per_host": 1}],
    "sharp": [{"segments": 4}],
    "chain": [{"segments": 3}],
    "flat": [{"in_turn": True}],
    "pat": [{"aggregation": 1}, {"aggregation": 2}, {"aggregation": 4}],
    "pipeline": [{"segments": 3}],
}
CASES = [
    pytest.param(collective, name, given, id=f"{collective}-{name}-{given}")
    for collective, name in CLOSED
    for given in ({}, *PARAMETERS.get(name, []))
]


def meet(schedule: Schedule) -> bool:
    """Whether two messages of one step go the same way: they would share a link."""
    first = schedule.messages.first_row
    ways = np.stack([schedule.step[first], schedule.src[first], schedule.dst[first]])
    return len(np.unique(ways, axis=1).T) < len(first)


def simulated_ns(schedule: Schedule, reduce_Bps: float | None, policy: Any = "lockstep") -> float:
    n = schedule.group_size
    topology = parse(f"{'star' if schedule.helpers else 'fully'}:2GB/s,700ns", n)
    bound = schedule.bind(ELEMENTS * n, "float32")
    sharing = not meet(schedule)
    replay = simulate(bound, topology, policy=policy, sharing=sharing, reduce_Bps=reduce_Bps)
    return replay.exact_duration_ns


@pytest.mark.parametrize(("collective", "name", "given"), CASES)
def test_the_step_model_agrees_to_the_nanosecond(
    collective: str, name: str, given: dict[str, Any]
) -> None:
    for n in filter(ALGORITHMS[collective, name].sizes.fits, SIZES):
        schedule = build(collective, name, n, **given)
        terms = closed_form(collective, name, n, ELEMENTS * n * 4.0, **given)
        assert simulated_ns(schedule, None) == pytest.approx(terms.time_ns(**RATES), abs=0.5), n
        # A switch adds at no cost in its form; rows of one message are added side by side;
        # the block that a rank keeps is copied at the speed of reducing.
        packed = name in ("pat", "swing") and n & (n - 1)
        if schedule.helpers or packed or given.get("aggregation") or collective == "all_to_all":
            continue
        expected = terms.time_ns(**RATES, reduce_Bps=3e9)
        assert simulated_ns(schedule, 3e9) == pytest.approx(expected, abs=0.5), n


# Where every rank does the same in each step, nobody has to wait for a barrier.
EVEN_STEPS = [
    ("all_reduce", name)
    for name in ("ring", "ring_tutorial", "halving_doubling", "recursive_doubling", "swing")
] + [
    ("all_reduce", name)
    for name in ("one_shot", "two_shot", "ring_channels", "torus2d", "torus3d", "hierarchical")
]
EVEN_STEPS += [("reduce_scatter", name) for name in ("ring", "recursive_halving", "pat", "direct")]
EVEN_STEPS += [("all_gather", name) for name in ("ring", "bruck", "pat", "direct")]


@pytest.mark.parametrize(("collective", "name"), EVEN_STEPS)
@pytest.mark.parametrize("policy", ["dataflow", "rank_step"])
def test_other_policies_agree_where_all_ranks_do_the_same(
    collective: str, name: str, policy: str
) -> None:
    for n in (4, 8, 16):
        terms = closed_form(collective, name, n, ELEMENTS * n * 4.0)
        found = simulated_ns(build(collective, name, n), None, policy)
        assert found == pytest.approx(terms.time_ns(**RATES), abs=0.5), n


def test_formulas_of_the_books_by_hand() -> None:
    size = 8000
    assert closed_form("all_reduce", "ring", 8, size) == Terms(14, 14000, 7000)
    assert closed_form("all_reduce", "recursive_doubling", 8, size) == Terms(3, 24000, 24000)
    assert closed_form("all_reduce", "recursive_doubling", 9, size) == Terms(5, 40000, 32000)
    assert closed_form("all_reduce", "halving_doubling", 8, size) == Terms(6, 14000, 7000)
    assert closed_form("all_reduce", "tree", 8, size) == Terms(6, 48000, 24000)
    assert closed_form("all_reduce", "torus2d", 8, size) == Terms(8, 14000, 7000)
    assert closed_form("all_reduce", "one_shot", 8, size) == Terms(1, 8000, 56000)
    assert closed_form("all_gather", "bruck", 5, 5000) == Terms(3, 4000, 0)
    assert closed_form("all_gather", "neighbor_exchange", 8, size) == Terms(4, 7000, 0)


def test_a_double_tree_nears_the_ring_without_its_latencies() -> None:
    ring = closed_form("all_reduce", "ring", 1024, 2**30)
    tree = closed_form("all_reduce", "double_tree", 1024, 2**30, segments=1000)
    assert tree.sent_bytes < 1.02 * ring.sent_bytes / 2  # every tree edge has a link of its own
    assert closed_form("all_reduce", "double_tree", 1024, 8, segments=1).latencies == 20


def test_no_closed_form() -> None:
    with pytest.raises(ScheduleError, match="no closed form of all_reduce magic; there are"):
        closed_form("all_reduce", "magic", 4, 100)
