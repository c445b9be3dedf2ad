"""What is kept of a tensor at one moment, and that nothing of the program sees it being kept."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode
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


def numbers(values: Any) -> Any:
    """Return nested lists with NaN as a word, so that lists with it are equal."""
    if isinstance(values, list):
        return [numbers(value) for value in values]
    return "NaN" if values != values else values


DTYPES_OF_TORCH = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
    torch.bfloat16,
    torch.float16,
]


@pytest.mark.parametrize("dtype", DTYPES_OF_TORCH, ids=str)
def test_every_pattern_of_a_small_float_is_read_back(dtype: torch.dtype, tmp_path: Path) -> None:
    if dtype.itemsize == 1:
        tensor = torch.arange(256, dtype=torch.uint8).view(dtype)
    else:
        tensor = torch.arange(-32768, 32767, 7, dtype=torch.int16).view(dtype)
    values = recorded(tmp_path, tensor).values(0)
    assert values is not None
    assert numbers(values.tolist()) == numbers(tensor.to(torch.float32).tolist())


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
@pytest.mark.parametrize("state", ["full", "sample"])
def test_wide_unsigned_is_read_back(dtype: torch.dtype, state: str, tmp_path: Path) -> None:
    tensor = torch.tensor([0, 1, 2**16 - 1]).to(dtype)
    values = recorded(tmp_path, tensor, state=state).values(0)
    assert values is not None
    assert values.tolist() == [0, 1, 2**16 - 1]


def test_single_negated_value_is_read_back(tmp_path: Path) -> None:
    tensor = torch.tensor([1 + 2j]).conj().imag
    assert tensor.is_neg()
    for state in ("full", "sample"):
        values = recorded(tmp_path / state, tensor, state=state).values(0)
        assert values is not None
        assert values.tolist() == [-2.0]


WITHOUT_NUMBERS = {
    "COO": lambda: torch.eye(3).to_sparse(),
    "CSR": lambda: torch.eye(3).to_sparse_csr(),
    "meta": lambda: torch.zeros(3, 3, device="meta"),
    "fake": lambda: FakeTensorMode().from_tensor(torch.zeros(3, 3)),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("state", ["full", "sample", "none"])
@pytest.mark.parametrize("name", WITHOUT_NUMBERS)
def test_tensor_without_dense_values_is_described(name: str, state: str, tmp_path: Path) -> None:
    row = recorded(tmp_path, WITHOUT_NUMBERS[name](), state=state).states.row(0)
    assert (row["dtype"], row["shape"]) == ("float32", [3, 3])
    assert row.keys().isdisjoint({"data", "first", "digest"})


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:.*quantize")
@pytest.mark.parametrize("state", ["full", "sample", "none"])
def test_nested_and_quantized_break_nothing(state: str, tmp_path: Path) -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    quantized = torch.quantize_per_tensor(torch.ones(4), 0.5, 0, torch.quint8)
    trace = recorded(tmp_path, nested, quantized, state=state)
    assert trace.states["dtype"].to_list() == ["float32", "quint8"]
    assert trace.states["shape"].to_list() == [None, [4]]


def test_list_of_one_tensor_is_one_storage(tmp_path: Path) -> None:
    trace = recorded(tmp_path, *[torch.ones(2)] * 3)
    assert len(set(trace.states["storage"].to_list())) == 1
    assert trace.states["index"].to_list() == [0, 1, 2]


@pytest.mark.parametrize("state", ["full", "sample"])
@pytest.mark.parametrize("name", ODD)
def test_tensor_stays_what_it_was(name: str, state: str, tmp_path: Path) -> None:
    tensor = ODD[name]
    before = (tensor._version, tensor.data_ptr(), tensor.requires_grad, tensor.is_conj())
    values = tensor.clone()
    recorded(tmp_path, tensor, state=state)
    assert (tensor._version, tensor.data_ptr(), tensor.requires_grad, tensor.is_conj()) == before
    assert torch.equal(tensor, values)


# So many bytes.


def test_data_ends_where_its_bytes_are_used_up(tmp_path: Path) -> None:
    tensors = [torch.arange(4.0), torch.arange(100.0), torch.arange(4.0) + 1, torch.ones(2, 2).t()]
    recorder = Recorder(tmp_path / "run", Options(max_bytes=430))
    call = recorder.begin("collective", collective="all_reduce")
    for index, tensor in enumerate(tensors):
        recorder.state(call, "before", "input", index, tensor)
    recorder.close()
    trace = chunkscope.read(tmp_path / "run")
    has_data = [data is not None for data in trace.states["data"].to_list()]
    assert has_data == [True, True, False, False]
    row = trace.states.row(2)
    assert (row["min"], row["max"], row["mean"], row["shape"]) == (1.0, 4.0, 2.5, [4])
    assert row["digest"] == zlib.crc32(tensors[2].numpy().tobytes())
    assert "first" not in row
    (note,) = trace.meta.notes
    assert note.endswith(
        "has used up max_bytes (430): later states have no data, only what describes it"
    )


def test_no_bytes_at_all_leave_no_value(tmp_path: Path) -> None:
    for state in ("full", "sample"):
        recorder = Recorder(tmp_path / state, Options(state=state, max_bytes=0))
        call = recorder.begin("collective", collective="all_reduce")
        recorder.state(call, "before", "input", 0, torch.arange(4.0))
        recorder.state(call, "before", "input", 1, torch.arange(100_000.0))
        recorder.close()
        trace = chunkscope.read(tmp_path / state)
        assert trace.states["data"].to_list() == [None, None]
        assert trace.states["first"].to_list() == [None, None]
        assert not list((tmp_path / state).glob("*.tensors"))


def test_deleted_files_give_their_bytes_back(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", Options(max_bytes=1000, keep_last=2))
    group = recorder.groups.announce([0])
    for number in range(40):
        call = recorder.begin("collective", collective="all_reduce", group=group)
        recorder.state(call, "before", "input", 0, torch.full((25,), float(number)))
        recorder.end(call)
    recorder.close()
    trace = chunkscope.read(tmp_path / "run")
    assert [trace.values(row).tolist()[0] for row in range(len(trace.states))] == [36, 37, 38, 39]


# Memory.

LARGE = """
import os, sys, torch
from pathlib import Path
from chunkscope.traces.record.recorder import Recorder
from chunkscope.traces.record.options import Options
tensor = torch.ones(int(sys.argv[2]) // 4)
turned = tensor.view(-1, 1024).t()
recorder = Recorder(sys.argv[1], Options(state="sample"))
call = recorder.begin("collective", collective="all_reduce")
recorder.state(call, "before", "input", 0, torch.ones(100_000))

def peak_kb():
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0])

before = peak_kb()
recorder.state(call, "before", "input", 1, tensor)
recorder.state(call, "after", "output", 0, turned)
print(peak_kb() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from /proc")
def test_sample_of_a_large_tensor_takes_no_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LARGE, str(tmp_path / "run"), str(256 << 20)]
    done = subprocess.run(command, timeout=120, check=True, capture_output=True, text=True)
    assert int(done.stdout) < 64 * 1024
