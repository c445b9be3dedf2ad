"""Schedules that do not fit into memory are refused before they are built."""

from __future__ import annotations

import time
from typing import Any

import pytest

from chunkscope.errors import ScheduleError
from chunkscope.sim import room
from chunkscope.sim.algorithms import ALGORITHMS
from chunkscope.sim.library import build
from chunkscope.sim.schedule import Schedule, Transfer

GIB = 2.0**30


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "memory_bytes", lambda: 16 * GIB)


@pytest.mark.parametrize(
    ("collective", "name", "ranks", "parameters"),
    [
        ("all_reduce", "ring", 10**6, {}),
        ("all_reduce", "tree", 10**9, {}),
        ("reduce_scatter", "gloo_list", 1024, {}),
        ("all_reduce", "torus2d", 10**6, {"dims": [1000, 1000]}),
        ("broadcast", "chain", 8, {"segments": 10**9}),
        ("broadcast", "chain", 10**4, {"segments": 10**6, "root": 5000}),
        ("all_reduce", "gloo", 8, {"size_bytes": 10**15, "itemsize": 4}),
    ],
)
def test_what_does_not_fit(
    collective: str, name: str, ranks: int, parameters: dict[str, Any]
) -> None:
    began = time.process_time()
    with pytest.raises(ScheduleError, match=rf"{name} on {ranks} ranks has about .*e\+.* 16 GiB"):
        build(collective, name, ranks, **parameters)
    assert time.process_time() - began < 5  # seconds; allocating it would take minutes


def test_the_message_counts_transfers_and_bytes() -> None:
    with pytest.raises(ScheduleError) as raised:
        build("all_reduce", "ring", 10**6)
    # 2n(n-1) of them, extrapolated from 128 ranks.
    assert str(raised.value) == (
        "all_reduce ring on 1000000 ranks has about 2.2e+12 transfers, which take about 200 TiB "
        "to build and simulate; this machine has 16 GiB: use fewer ranks, or an algorithm of "
        "fewer transfers"
    )


@pytest.mark.parametrize(
    ("collective", "name", "ranks", "parameters"),
    [
        ("all_reduce", "ring", 400, {}),
        ("all_reduce", "halving_doubling", 512, {}),
        ("broadcast", "chain", 300, {"segments": 100, "root": 299}),
        ("all_reduce", "gloo", 4, {"size_bytes": 10**10, "itemsize": 4}),
    ],
)
def test_the_estimate_is_near(
    collective: str,
    name: str,
    ranks: int,
    parameters: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = ALGORITHMS[collective, name]
    given = (name, entry.builder, entry.sizes.fits, ranks, parameters)
    needed = len(build(collective, name, ranks, **parameters)) * room.BYTES_A_ROW
    monkeypatch.setattr(room, "memory_bytes", lambda: 1.5 * needed)
    room.check_room(*given)
    monkeypatch.setattr(room, "memory_bytes", lambda: 0.7 * needed)
    with pytest.raises(ScheduleError, match="has about"):
        room.check_room(*given)


def test_more_ranks_than_have_numbers() -> None:
    with pytest.raises(
        ScheduleError, match="group size is 2147483648, expected at most 2147483647"
    ):
        build("all_reduce", "tree", 2**31)


def test_a_slot_of_a_helper_that_is_too_high() -> None:
    rows = [Transfer(0, 0, 1, 2, 0, 2**31 - 1, 1, True)]
    with pytest.raises(ScheduleError, match="slot 2147483647 is named: 2147483648 slots at each"):
        Schedule.of("all_reduce", "x", 2, rows, input=[0], output=[0], helpers=["switch"])
