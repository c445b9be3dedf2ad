"""Numbers: what the rows carry equals a plain reference, and rounds as torch rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkscope.errors import ScheduleError
from chunkscope.sim.algorithms import ALGORITHMS
from chunkscope.sim.collectives import COLLECTIVES
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.values import ARITHMETIC, compute, default_inputs, held_before
from chunkscope.traces.trace import decode, encode

NAMES = [(entry.collective, entry.name) for entry in algorithms()]


def expected(collective: str, inputs: list[Any], op: str, root: int | None) -> list[Any]:
    """The outputs by definition, in numpy alone."""
    n = len(inputs)
    if collective == "broadcast":
        assert root is not None
        return [inputs[root]] * n
    if collective in ("all_gather", "gather"):
        whole = np.concatenate(inputs)
        return [whole if root in (None, rank) else None for rank in range(n)]
    if collective == "scatter":
        assert root is not None
        return np.split(inputs[root], n)
    if collective == "send_recv":
        return [inputs[rank - 1] for rank in range(n)]
    if collective == "all_to_all":
        blocks = [np.split(one, n) for one in inputs]
        return [np.concatenate([of[rank] for of in blocks]) for rank in range(n)]
    ufunc = {"PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum}.get(op, np.add)
    whole = ufunc.reduce(np.stack(inputs), axis=0, dtype=inputs[0].dtype)
    if op == "AVG":
        whole = np.trunc(whole / n).astype(whole.dtype) if whole.dtype.kind == "i" else whole / n
    if collective == "reduce":
        return [whole if rank == root else None for rank in range(n)]
    return np.split(whole, n) if collective == "reduce_scatter" else [whole] * n


@pytest.mark.parametrize(("collective", "name"), NAMES)
@settings(max_examples=25, deadline=None)
@given(
    op=st.sampled_from(ARITHMETIC), n=st.integers(1, 6), blocks=st.integers(0, 5), data=st.data()
)
def test_outputs_are_what_the_collective_promises(
    collective: str, name: str, op: str, n: int, blocks: int, data: st.DataObject
) -> None:
    if not ALGORITHMS[collective, name].sizes.fits(n):
        n = 4
    if collective == "barrier":
        op = "MAX"  # a barrier may hear of a rank twice
    rooted = COLLECTIVES[collective].rooted
    root = data.draw(st.integers(0, n - 1)) if rooted else None
    bound = build(collective, name, n, root=root).bind(n * blocks, "int64")
    numbers = st.integers(-20, 20)
    inputs = [
        np.array(data.draw(st.lists(numbers, min_size=size, max_size=size)), np.int64)
        if bound.schedule.kind.has_input(rank, root)
        else None
        for rank in range(n)
        for size in [bound.input_elements(rank)]
    ]
    moved = compute(bound, inputs, op)
    for got, want in zip(moved.outputs, expected(collective, inputs, op, root)):
        assert (got is None) == (want is None)
        if want is not None:
            np.testing.assert_array_equal(got, want)


def test_rows_show_what_moved_step_by_step() -> None:
    bound = build("all_reduce", "ring", 2).bind(2, "float32")
    moved = compute(bound, [[1, 2], [10, 20]])
    assert [payload.tolist() for payload in moved.payload] == [[2], [10], [11], [22]]
    assert [None if b is None else b.tolist() for b in moved.before] == [[20], [1], [10], [2]]
    assert [after.tolist() for after in moved.after] == [[22], [11], [11], [22]]


def test_all_reads_of_a_step_come_before_its_writes() -> None:
    swap = [Transfer(0, 0, 0, 1, 0, 0), Transfer(0, 0, 1, 0, 0, 0)]
    schedule = Schedule.of("all_reduce", "swap", 2, swap, input=[0], output=[0])
    assert [o.tolist() for o in compute(schedule.bind(1, "int32"), [[1], [2]]).outputs] == [
        [2],
        [1],
    ]


def test_empty_slots_have_no_before() -> None:
    bound = build("all_gather", "ring", 3).bind(3, "float32")
    assert compute(bound, [[1], [2], [3]]).before == [None] * 6
    assert not held_before(bound.schedule).any()
    assert held_before(build("all_reduce", "ring", 3)).all()


def test_average_of_integers_is_rounded_towards_zero() -> None:
    bound = build("all_reduce", "ring", 2).bind(4, "int32")
    assert compute(bound, [[3, -3, 2, 0], [0, 0, 1, 1]], "AVG").outputs[1].tolist() == [1, -1, 1, 0]


def test_integers_wrap_around() -> None:
    bound = build("all_reduce", "tree", 2).bind(1, "int8")
    assert compute(bound, [[100], [100]]).outputs[0].tolist() == [-56]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("op", ARITHMETIC)
def test_each_reduce_rounds_as_torch_does(dtype: str, op: str) -> None:
    torch = pytest.importorskip("torch")
    combine: dict[str, Any] = {"PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum}
    random = np.random.default_rng(1)
    kind = getattr(torch, dtype)
    tensors = [torch.tensor(random.normal(1, 3, 64)).to(kind) for _ in range(5)]
    tensors[0][5] = float("nan")
    tensors[1][6] = float("inf")
    # On a chain the order of the reduces is the order of the ranks, from the last to the first.
    total = tensors[-1]
    for tensor in reversed(tensors[:-1]):
        total = combine.get(op, torch.add)(tensor, total)
    if op == "AVG":
        total = total / 5
    bound = build("reduce", "chain", 5).bind(64, dtype)
    moved = compute(bound, [tensor.float().numpy() for tensor in tensors], op)
    want = decode(total.view(torch.uint8).numpy().tobytes(), dtype)
    np.testing.assert_array_equal(moved.outputs[0], want)


@pytest.mark.parametrize(
    ("inputs", "op", "dtype", "says"),
    [
        ([[1, 2]], "SUM", "float32", "1 inputs for 2 ranks"),
        ([[1, 2], [1]], "SUM", "float32", "input of rank 1 has 1 elements, expected 2"),
        ([None, [1, 2]], "SUM", "float32", "input of rank 0 has 0 elements, expected 2"),
        ([[1, 2], [1, 2]], "XOR", "float32", "unknown operation 'XOR'; known: SUM"),
        ([[1, 2], [1, 2]], "MAX", "complex64", "MAX has no meaning for complex64"),
        ([[1, 2], [1, 2]], "SUM", "float8_e5m2", "no numbers can be computed in float8_e5m2"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    inputs: list[Any], op: str, dtype: str, says: str
) -> None:
    with pytest.raises(ScheduleError, match=says):
        compute(build("all_reduce", "ring", 2).bind(2, dtype), inputs, op)


def test_default_inputs_of_the_demo_show_the_chunk_in_the_magnitude() -> None:
    inputs = default_inputs(build("all_reduce", "ring", 4).bind(16, "float32"))
    assert inputs[2].tolist() == [3] * 4 + [30] * 4 + [300] * 4 + [3000] * 4
    assert default_inputs(build("broadcast", "tree", 3, root=1).bind(2, "int64"))[0] is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "uint8", "bool"])
@pytest.mark.parametrize(("collective", "name"), NAMES)
def test_default_inputs_fit_every_algorithm_and_type(
    collective: str, name: str, dtype: str
) -> None:
    bound = build(collective, name, 8).bind(64, dtype)
    inputs = default_inputs(bound)
    for values in inputs:
        assert values is None or encode(values, dtype) == encode(values.astype(float), dtype)
    compute(bound, inputs)
