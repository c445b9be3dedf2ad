"""Send/recv patterns: every rank ends with what the rank before it had."""

from __future__ import annotations

import numpy as np
import pytest

import chunkscope
from chunkscope.errors import ScheduleError
from chunkscope.sim.collectives import busbw_factor
from chunkscope.sim.cost import lower_bound_ns
from chunkscope.sim.library import build
from chunkscope.sim.replay import simulate
from chunkscope.sim.schedule import Schedule
from chunkscope.sim.topology import parse
from chunkscope.sim.values import compute
from chunkscope.sim.verify import verify


@pytest.mark.parametrize("name", ["ring_shift", "pipeline"])
@pytest.mark.parametrize("n", [*range(1, 34), 64])
def test_shifts_are_valid(name: str, n: int) -> None:
    schedule = build("send_recv", name, n)
    assert verify(schedule) == []
    pieces = 1 if name == "ring_shift" else 4
    assert len(schedule) == (n * pieces if n > 1 else 0)
    assert schedule.n_steps == (0 if n == 1 else 1 if name == "ring_shift" else n + pieces - 1)


def test_values_move_one_rank_on() -> None:
    bound = build("send_recv", "pipeline", 3, segments=2).bind(5, "float32")
    inputs = [np.arange(5) + 10 * rank for rank in range(3)]
    outputs = compute(bound, inputs).outputs
    for rank in range(3):
        assert np.array_equal(outputs[rank], inputs[rank - 1])


def test_a_shift_that_goes_the_wrong_way_is_found() -> None:
    rows = [(0, 0, rank, (rank - 1) % 3, 0, 1, 1, False) for rank in range(3)]
    columns = tuple(np.array(column) for column in zip(*rows, strict=True))
    wrong = Schedule.of("send_recv", "wrong", 3, columns, input=[0], output=[1])
    assert {finding.place for finding in verify(wrong)} == {0, 1, 2}


def test_a_pipeline_fills_stage_by_stage() -> None:
    bound = build("send_recv", "pipeline", 4, segments=8).bind(8000, "uint8")
    replay = simulate(bound, parse("fully:1GB/s,1us", 4))
    assert replay.exact_duration_ns == 11 * (1000 + 1000)
    assert replay.algbw_Bps == pytest.approx(8000 / 22e-6), "one rank's bytes, as nccl-tests has it"
    assert replay.exact_duration_ns > lower_bound_ns(replay) >= 1000 + 8000 / 3
    assert busbw_factor("send_recv", 4) == 1
    with pytest.raises(ScheduleError, match="segments is 0"):
        build("send_recv", "pipeline", 4, segments=0)


def test_a_shift_by_hand() -> None:
    plan = chunkscope.Builder("send_recv", 4, chunks=2)
    for rank in range(4):
        for k in range(2):
            plan.input(rank, k).send((rank + 1) % 4)
    assert verify(plan.schedule()) == []
