"""What is kept of a tensor at one moment, and that nothing of the program sees it being kept."""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import chunkscope
from chunkscope.traces.record.options import Options
from chunkscope.traces.record.recorder import Recorder
from chunkscope.traces.trace import Trace


def recorded(folder: Path, *tensors: torch.Tensor, state: str = "full") -> Trace:
    """Return the trace of one event with these states."""
    recorder = Recorder(folder / "run", Options(state=state))
    call = recorder.begin("collective", collective="all_reduce")
    for index, tensor in enumerate(tensors):
        recorder.state(call, "before", "input", index, tensor)
    recorder.end(call)
    recorder.close()
    return chunkscope.read(folder / "run")


def listed(tensor: torch.Tensor) -> Any:
    return tensor.to(torch.float32).tolist() if tensor.dtype == torch.bfloat16 else tensor.tolist()


ODD = {
    "a column": torch.arange(6.0).reshape(2, 3)[:, 1],
    "transposed": torch.arange(6).reshape(2, 3).t(),
    "a view with an offset": torch.arange(10.0)[3:7],
    "every other": torch.arange(10.0)[::2],
    "expanded": torch.ones(1).expand(4),
    "no elements": torch.zeros(0, 3),
    "a scalar": torch.tensor(5.0),
    "bfloat16": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "float16": torch.tensor([0.5], dtype=torch.float16),
    "float64": torch.tensor([math.pi], dtype=torch.float64),
    "bool": torch.tensor([True, False]),
    "int8": torch.tensor([-3, 4], dtype=torch.int8),
    "uint8": torch.tensor([200], dtype=torch.uint8),
    "complex": torch.tensor([1 + 2j]),
    "conjugated, lazily": torch.tensor([1 + 2j, 3 - 1j]).conj(),
    "negated, lazily": torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
    "a parameter": torch.nn.Parameter(torch.ones(2)).detach(),
    "more than 256 bytes": torch.arange(1000.0),
    "many and strided": torch.arange(4000).reshape(40, 100).t(),
}


@pytest.mark.parametrize("name", ODD)
def test_full_keeps_every_value(name: str, tmp_path: Path) -> None:
    tensor = ODD[name]
    trace = recorded(tmp_path, tensor)
    values = trace.values(0)
    assert values is not None
    assert values.tolist() == listed(tensor)
    assert trace.states["shape"][0] == list(tensor.shape)
    strides = None if tensor.is_contiguous() else list(tensor.stride())
    assert trace.states["strides"][0] == strides


def test_float8_is_read_back(tmp_path: Path) -> None:
    tensor = torch.tensor([0.5, -1.75]).to(torch.float8_e4m3fn)
    values = recorded(tmp_path, tensor).values(0)
    assert values is not None
    assert values.tolist() == [0.5, -1.75]


def test_aliases_share_a_storage(tmp_path: Path) -> None:
    whole = torch.arange(8.0)
    trace = recorded(tmp_path, whole, whole[2:4], torch.arange(8.0))
    storages = trace.states["storage"].to_list()
    assert storages[0] == storages[1] != storages[2]
    assert trace.states["offset"].to_list() == [0, 2, 0]


def test_tensor_without_memory_is_described(tmp_path: Path) -> None:
    sparse = torch.eye(3).to_sparse()
    meta = torch.zeros(4, device="meta")
    freed = torch.ones(5)
    freed.untyped_storage().resize_(0)
    trace = recorded(tmp_path, sparse, meta, freed)
    assert trace.states["shape"].to_list() == [[3, 3], [4], [5]]
    assert trace.states["data"].to_list() == [None, None, None]


def test_large_tensor_is_sampled_and_says_so(tmp_path: Path) -> None:
    tensor = torch.arange(100_000, dtype=torch.float32).reshape(100, 1000)
    trace = recorded(tmp_path, tensor, tensor.t())
    sample = tensor.flatten()[:: math.ceil(100_000 / 1024)]
    row = trace.states.row(0)
    assert row["digest_of"] == "sample"
    assert row["digest"] == zlib.crc32(sample.numpy().tobytes())
    assert (row["min"], row["max"], row["nan"]) == (0.0, sample.max().item(), 0)
    assert row["mean"] == pytest.approx(sample.double().mean().item())
    assert "data" not in row
    assert np.frombuffer(row["first"], np.float32).tolist() == list(range(16))
    transposed = trace.states.row(1)
    assert np.frombuffer(transposed["first"], np.float32)[1] == 1000.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_sample_of_few_values_is_of_all(dtype: torch.dtype, tmp_path: Path) -> None:
    tensor = torch.tensor([3, 1, 2]).to(dtype)
    row = recorded(tmp_path, tensor, state="sample").states.row(0)
    assert (row["min"], row["max"], row["mean"], row["nan"]) == (1.0, 3.0, 2.0, 0)
    assert row["digest_of"] == "all"
    raw = tensor.view(torch.uint8).numpy().tobytes()
    assert row["digest"] == zlib.crc32(raw)
    assert row["first"] == raw


@pytest.mark.parametrize("copies", [1, 200])
def test_nan_and_infinity_are_counted_and_kept(copies: int, tmp_path: Path) -> None:
    tensor = torch.tensor([math.nan, -math.inf, 1.0, math.inf]).repeat(copies)
    row = recorded(tmp_path, tensor, state="sample").states.row(0)
    assert row["nan"] == copies
    assert (row["min"], row["max"]) == (-math.inf, math.inf)
    assert math.isnan(row["mean"])
    nothing_else = recorded(tmp_path / "b", torch.tensor([math.nan]), state="sample")
    assert nothing_else.states.row(0).keys().isdisjoint({"min", "max", "mean"})


def test_none_keeps_descriptions_alone(tmp_path: Path) -> None:
    row = recorded(tmp_path, torch.ones(3), state="none").states.row(0)
    assert row["shape"] == [3]
    assert row.keys().isdisjoint({"data", "digest", "first", "min"})


def test_unknown_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'most' is none of none, sample, full"):
        chunkscope.record(tmp_path / "run", state="most").__enter__()


class Watching(TorchDispatchMode):
    """Notes every operation that torch runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("state", ["full", "sample"])
def test_program_sees_nothing(state: str, tmp_path: Path) -> None:
    leaf = torch.ones(30_000, requires_grad=True)
    view = (leaf * 2).reshape(100, 300).t()
    with Watching() as watching:
        recorded(tmp_path, view, leaf, state=state)
        assert watching.seen == []
    view.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [2.0] * 30_000


def test_long_bytes_lie_beside_the_records(tmp_path: Path) -> None:
    recorded(tmp_path, torch.arange(64.0), torch.arange(65.0), torch.arange(66.0))
    (records,) = (tmp_path / "run").glob("*.rec.jsonl")
    (beside,) = (tmp_path / "run").glob("*.tensors")
    states = [
        json.loads(line)["s"][0][4]
        for line in records.read_text().splitlines()
        if '"r":"state"' in line
    ]
    assert isinstance(states[0], str)
    assert states[1:] == [{"at": 0, "size": 260}, {"at": 260, "size": 264}]
    assert beside.stat().st_size == 524


def test_same_tensor_is_described_once_and_memory_stays_bounded(tmp_path: Path) -> None:
    from chunkscope.traces.record.states import REMEMBERED

    tensor = torch.zeros(REMEMBERED + 50)
    views = [tensor[k : k + 1] for k in range(len(tensor))]
    recorder = Recorder(tmp_path / "run")
    for _ in range(3):
        recorder.states.fragment(views[0])
    for view in views:
        recorder.states.fragment(view)
    assert len(recorder.states._known) <= REMEMBERED
    recorder.close()
    (records,) = (tmp_path / "run").glob("*.rec.jsonl")
    described = [
        json.loads(line) for line in records.read_text().splitlines() if '"tensor"' in line
    ]
    assert len(described) == len(views)
