"""Reduce operations beyond the sum: computed, executed, and the same as native gloo's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

import chunkscope
from chunkscope.errors import RanksError, ScheduleError
from chunkscope.sim.library import build
from chunkscope.sim.values import BITWISE, compute
from chunkscope.traces.record.ranks import Ranks

pytestmark = pytest.mark.ranks

INTEGERS = ("int64", "int32", "int8", "uint8")


@pytest.fixture(scope="module")
def pool() -> Iterator[Ranks]:
    with Ranks(3, preload=("chunkscope.sim.execute",)) as ranks:
        yield ranks


@pytest.mark.parametrize("op", BITWISE)
@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
def test_bits_are_combined(op: str, dtype: str) -> None:
    combine = {"BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor}[op]
    inputs = [np.random.default_rng(rank).integers(0, 2, 9).astype(dtype) for rank in range(3)]
    moved = compute(build("all_reduce", "ring", 3).bind(9, dtype), inputs, op)
    expected = combine(combine(inputs[0], inputs[1]), inputs[2]).tolist()
    assert [out.tolist() for out in moved.outputs if out is not None] == [expected] * 3


def test_premultiplied_sum_scales_the_inputs() -> None:
    bound = build("reduce_scatter", "ring", 2).bind(4, "float32")
    moved = compute(bound, [[1, 2, 3, 4], [10, 20, 30, 40]], "PREMUL_SUM", 0.5)
    assert [out.tolist() for out in moved.outputs if out is not None] == [[5.5, 11], [16.5, 22]]
    assert moved.inputs[0] is not None
    assert moved.inputs[0].tolist() == [1, 2, 3, 4]


WRONG = [
    ("BAND", "float32", None, "BAND has no meaning for float32: expected integers or bool"),
    ("BXOR", "complex64", None, "BXOR has no meaning for complex64"),
    ("MAX", "complex64", None, "MAX has no meaning for complex64"),
    ("PREMUL_SUM", "float32", None, "PREMUL_SUM needs a factor"),
    ("PREMUL_SUM", "int32", 2.0, "PREMUL_SUM has no meaning for int32: expected floating point"),
    ("SUM", "float32", 2.0, "SUM takes no factor: only PREMUL_SUM does"),
    ("band", "int32", None, "unknown operation 'band'; known: SUM, AVG,"),
]


@pytest.mark.parametrize(("op", "dtype", "factor", "message"), WRONG)
def test_operation_that_does_not_fit_is_refused(
    op: str, dtype: str, factor: float | None, message: str
) -> None:
    bound = build("all_reduce", "ring", 2).bind(2, dtype)
    with pytest.raises(ScheduleError, match=message):
        compute(bound, [[1, 2], [3, 4]], op, factor)


def like_gloo() -> list[str]:
    """Compare each bitwise operation with native gloo, on every dtype; return what differs."""
    wrong = []
    schedule = build("all_reduce", "ring", dist.get_world_size())
    generator = torch.Generator().manual_seed(dist.get_rank())
    for name in INTEGERS:
        tensor = torch.randint(0, 100, (101,), generator=generator).to(getattr(torch, name))
        for op in BITWISE:
            expected, ours = tensor.clone(), tensor.clone()
            dist.all_reduce(expected, getattr(dist.ReduceOp, op))
            chunkscope.execute(schedule, ours, op)
            if not torch.equal(ours, expected):
                wrong.append(f"{op} of {name}")
    return wrong


def test_executed_bits_are_those_of_gloo(pool: Ranks) -> None:
    assert pool.run(like_gloo) == [[], [], []]


def premultiplied() -> tuple[list[float], list[float], list[float]]:
    tensor = torch.arange(6.0) + dist.get_rank()
    n = dist.get_world_size()
    given = tensor.clone()
    part = chunkscope.execute(build("reduce_scatter", "ring", n), given, "PREMUL_SUM", factor=0.25)
    assert part is not None
    chunkscope.execute(build("all_reduce", "ring", n), tensor, "PREMUL_SUM", factor=0.25)
    return part.tolist(), tensor.tolist(), given.tolist()


def test_executed_premultiplied_sum(pool: Ranks, tmp_path: Path) -> None:
    whole = [0.75 * k + 0.75 for k in range(6)]
    found = pool.run(premultiplied, record=tmp_path / "run")
    for rank, (part, tensor, given) in enumerate(found):
        assert part == whole[2 * rank : 2 * rank + 2]
        assert tensor == whole
        assert given == [k + rank for k in range(6)], "the input is the caller's"
    ops = chunkscope.read(tmp_path / "run").events["reduce_op"].to_list()
    assert {op for op in ops if op is not None} == {"PREMUL_SUM"}


def floats() -> None:
    schedule = build("all_reduce", "ring", dist.get_world_size())
    chunkscope.execute(schedule, torch.ones(4), "BOR")


def test_bits_of_floats_are_refused(pool: Ranks) -> None:
    with pytest.raises(RanksError, match="BOR has no meaning for float32"):
        pool.run(floats)


def named() -> None:
    for op in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", *BITWISE):
        with contextlib.suppress(RuntimeError):  # some versions of gloo lack AVG
            dist.all_reduce(torch.ones(2, dtype=torch.int32), getattr(dist.ReduceOp, op))


def test_recorder_names_every_operation(pool: Ranks, tmp_path: Path) -> None:
    pool.run(named, record=tmp_path / "run")
    events = chunkscope.read(tmp_path / "run").events
    rank = events["rank"].to_list()
    ops = [op for op, of in zip(events["reduce_op"].to_list(), rank, strict=True) if of == 0]
    assert ops == ["SUM", "AVG", "PRODUCT", "MIN", "MAX", *BITWISE]


def premultiplied_by_gloo() -> str:
    try:
        dist.all_reduce(torch.ones(2), dist._make_nccl_premul_sum(0.5))
    except RuntimeError as error:
        return str(error)
    return ""


def test_recorder_names_the_premultiplied_sum(pool: Ranks, tmp_path: Path) -> None:
    (message, *_) = pool.run(premultiplied_by_gloo, record=tmp_path / "run")
    events = chunkscope.read(tmp_path / "run").events
    assert set(events["reduce_op"].to_list()) == {"PREMUL_SUM"}
    assert set(events["status"].to_list()) == {"error"}, "gloo has none"
    assert message
