"""Schedules of any kind on real ranks: packed and local rows, scratch, channels, uneven blocks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

import chunkscope
from chunkscope.errors import ScheduleError
from chunkscope.sim.replay import simulate
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.topology import parse
from chunkscope.sim.values import default_inputs
from chunkscope.sim.verify import verify
from chunkscope.traces.record.ranks import Ranks

pytestmark = pytest.mark.ranks

N = 4


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with Ranks(N, preload=("chunkscope.sim.execute",)) as pool:
        yield pool


def recursive_doubling() -> Schedule:
    """Partners swap everything they have: each reads the slots that it writes in the same step."""
    rows = [
        Transfer(step, 0, rank, rank ^ 1 << step, 0, 0, 4, True)
        for step in range(2)
        for rank in range(N)
    ]
    return Schedule.of("all_reduce", "doubling", N, rows, input=range(4), output=range(4))


def packed() -> Schedule:
    """Rows of one message that lie apart at both ends, one of them reduced, one copied."""
    rows = [
        Transfer(step, 0, src, dst, slot, slot, 1, src != 0)
        for step, (src, dst) in enumerate([(3, 2), (2, 1), (1, 0), (0, 1), (1, 2), (2, 3)])
        for slot in (4, 0, 2)
    ]
    rows = [row._replace(reduce=row.src > row.dst) for row in rows]
    rows += [row._replace(src_slot=k, dst_slot=k) for row in rows[::3] for k in (1, 3)]
    return Schedule.of("all_reduce", "packed", N, rows, input=range(5), output=range(5))


def all_to_all() -> Schedule:
    """Each sends a block to each; its own goes by a local row, through a scratch slot."""
    rows = [
        Transfer(0, 0, src, dst, dst, 4 + src)
        for src, dst in itertools.product(range(N), repeat=2)
        if src != dst
    ]
    rows += [Transfer(0, 0, rank, rank, rank, 8) for rank in range(N)]
    rows += [Transfer(1, 0, rank, rank, 8, 4 + rank) for rank in range(N)]
    return Schedule.of(
        "all_to_all", "linear", N, rows, input=range(4), output=range(4, 8), scratch=[8]
    )


def local_swap() -> Schedule:
    """Local rows that read each other's targets in the same step, then a gather."""
    rows = [Transfer(0, 0, rank, rank, 0, 1) for rank in range(N)]
    rows += [Transfer(1, 0, rank, rank, a, b) for rank in range(N) for a, b in ((1, 2), (0, 1))]
    rows += [Transfer(2, 0, rank, 1, 2, 3 + rank) for rank in range(N) if rank != 1]
    rows += [Transfer(2, 0, 1, 1, 2, 4)]
    return Schedule.of(
        "gather", "swapping", N, rows, input=[0], output=range(3, 7), scratch=[1, 2], root=1
    )


def scatter() -> Schedule:
    """Down a binomial tree, several slots a row, through scratch."""
    rows = [
        Transfer(0, 0, 0, 2, 2, 0, 2),
        Transfer(1, 0, 0, 1, 1, 1),
        Transfer(1, 0, 2, 3, 1, 3),
        Transfer(1, 0, 2, 2, 0, 2),
    ]
    output = [[0], [1], [2], [3]]
    return Schedule.of("scatter", "binomial", N, rows, input=range(4), output=output, root=0)


def two_channels() -> Schedule:
    """Half of the data on each channel, one waiting for the other by `after`."""
    rows = []
    for channel, slot in ((0, 0), (1, 1)):
        chain = [(0, 1), (1, 2), (2, 3)]
        rows += [Transfer(k, channel, a, b, slot, slot) for k, (a, b) in enumerate(chain)]
    return Schedule.of(
        "broadcast", "twofold", N, rows, input=[0, 1], output=[0, 1], root=0, after=[(3, 0), (5, 2)]
    )


def neighbours_and_root() -> Schedule:
    """A reduce that works in its input's slots at ranks that must keep their input."""
    rows = [
        Transfer(0, 0, 1, 2, 0, 0, 3, True),
        Transfer(0, 0, 0, 3, 0, 0, 3, True),
        Transfer(1, 0, 2, 3, 0, 0, 3, True),
    ]
    return Schedule.of("reduce", "pairs", N, rows, input=range(3), output=range(3), root=3)


MADE = [
    recursive_doubling,
    packed,
    all_to_all,
    local_swap,
    scatter,
    two_channels,
    neighbours_and_root,
]


def run(schedules: list[Schedule], count: int, segment_bytes: int) -> None:
    import chunkscope.sim.plan as plan
    import chunkscope.sim.program as program
    from chunkscope.sim.rank import run_with_default_inputs

    usual = plan.SEGMENT_BYTES, program.LEAST_TO_CUT_BYTES
    plan.SEGMENT_BYTES = segment_bytes
    program.LEAST_TO_CUT_BYTES = min(segment_bytes, usual[1])
    plan.plan_call.cache_clear()
    try:
        for schedule in schedules:
            run_with_default_inputs(schedule.bind(count, "int32"), "SUM")
    finally:
        plan.SEGMENT_BYTES, program.LEAST_TO_CUT_BYTES = usual
        plan.plan_call.cache_clear()


@pytest.mark.parametrize("count", [0, 16, 52])
@pytest.mark.parametrize("segment_bytes", [8 << 20, 8], ids=["whole", "in lanes"])
def test_recorded_run_equals_the_simulated_one(
    ranks: Ranks, tmp_path: Path, count: int, segment_bytes: int
) -> None:
    made = [make() for make in MADE]
    for schedule in made:
        assert verify(schedule) == [], schedule.algorithm
    ranks.run(run, made, count, segment_bytes, record=tmp_path / "recording")
    recorded = chunkscope.read(tmp_path / "recording")
    for number, schedule in enumerate(made):
        bound = schedule.bind(count, "int32")
        replay = simulate(bound, parse("ring", N))
        simulated = replay.trace(inputs=default_inputs(bound))
        rows = recorded.where(coll_seq=number)
        found = chunkscope.diff(simulated, only(recorded, rows))
        assert found.same, f"{schedule.algorithm}: {found.to_text()}"


def only(trace: chunkscope.Trace, rows: object) -> chunkscope.Trace:
    """Return the part of a trace that is one call, as if it had been the first."""
    import numpy as np

    from chunkscope.traces.columns import Column
    from chunkscope.traces.schema import EVENTS, STATES

    keep = np.asarray(rows)
    number = np.full(len(trace), -1)
    number[keep] = np.arange(len(keep))
    events = {spec.name: trace.events[spec.name].take(keep) for spec in EVENTS}
    parent = events["parent"]
    events["parent"] = Column(parent.type, number[parent.values], parent.valid)
    events["coll_seq"] = [0] * len(keep)
    of = trace.states["event"].values
    inside = np.flatnonzero(number[of] >= 0)
    states = {spec.name: trace.states[spec.name].take(inside) for spec in STATES}
    states["event"] = number[of[inside]]
    return chunkscope.Trace.build(events, states, trace.meta)


def random_all_reduce(seed: int) -> Schedule:
    """A tree of random shape up, another one down, chunk by chunk, in random steps."""
    draw = random.Random(seed)
    n_chunks = draw.randint(1, 3)
    rows = []
    for chunk in range(n_chunks):
        root = draw.randrange(N)
        base = draw.randint(0, 2)
        order = [root, *draw.sample([rank for rank in range(N) if rank != root], N - 1)]
        parents = {rank: draw.choice(order[:k]) for k, rank in enumerate(order) if k}
        for k, rank in enumerate(reversed(order[1:])):
            rows.append(Transfer(base + k, 0, rank, parents[rank], chunk, chunk, 1, True))
        order = [root, *draw.sample([rank for rank in range(N) if rank != root], N - 1)]
        for k, rank in enumerate(order[1:]):
            rows.append(Transfer(base + N + k, 0, draw.choice(order[: k + 1]), rank, chunk, chunk))
    slots = range(n_chunks)
    window = draw.choice([1, 2, 4])
    name = f"random-{seed}"
    return Schedule.of("all_reduce", name, N, rows, input=slots, output=slots, window=window)


def sums(schedules: list[Schedule], sizes: list[int]) -> list[str]:
    import torch

    wrong = []
    for schedule, size in itertools.product(schedules, sizes):
        tensor = torch.arange(size) * (dist.get_rank() + 1) + dist.get_rank()
        expected = tensor.clone()
        dist.all_reduce(expected)
        chunkscope.execute(schedule, tensor)
        if not torch.equal(tensor, expected):
            wrong.append(f"{schedule.algorithm}, {size} elements")
    return wrong


def test_random_trees_sum_up(ranks: Ranks) -> None:
    drawn = [random_all_reduce(seed) for seed in range(25)]
    valid = [schedule for schedule in drawn if not verify(schedule)]
    assert len(valid) > 10
    assert ranks.run(sums, valid, [1, 5, 20_000]) == [[]] * N


def with_helper() -> list[str]:
    import torch

    rows = [Transfer(0, 0, 0, 2, 0, 0), Transfer(1, 0, 2, 1, 0, 0)]
    through_switch = Schedule.of(
        "broadcast", "switch", 2, rows, input=[0], output=[0], root=0, helpers=["switch"]
    )
    try:
        chunkscope.execute(through_switch, torch.ones(1))
    except ScheduleError as error:
        return [str(error)]
    return []


def test_helpers_are_refused() -> None:
    with Ranks(2) as pair:
        assert (
            pair.run(with_helper)
            == [["switch needs helpers (switch), which only a simulation has"]] * 2
        )
