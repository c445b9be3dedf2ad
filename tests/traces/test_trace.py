"""The Trace: order, references, lookups, and numbers in bytes of every dtype."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from chunkscope.traces.schema import DTYPES
from chunkscope.traces.trace import Group, Meta, Trace, decode, encode


def test_rows_are_sorted_by_file_and_number_and_references_follow() -> None:
    trace = Trace.build(
        {
            "file": ["b", "a", "a"],
            "seq": [0, 1, 0],
            "kind": ["recv", "send", "collective"],
            "parent": [None, 2, None],
        },
        {"event": [1, 0], "role": ["payload", "slot"]},
    )
    assert trace.events["kind"].to_list() == ["collective", "send", "recv"]
    assert trace.events["parent"].to_list() == [None, 0, None]
    assert trace.states["event"].to_list() == [1, 2]
    assert trace.states["role"].to_list() == ["payload", "slot"]


@pytest.mark.parametrize(
    ("events", "states", "message"),
    [
        ({"parent": [1]}, {}, "row 0: parent is 1, expected 0 to 0"),
        ({"group": [0]}, {}, "group is 0"),
        ({"site": [0]}, {}, "site is 0"),
        ({"schedule": [0]}, {}, "schedule is 0"),
        ({"kind": ["send"]}, {"event": [3]}, "event is 3"),
    ],
)
def test_a_reference_to_nowhere_is_refused(
    events: dict[str, list[object]], states: dict[str, list[object]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Trace.build(events, states)


def test_calls_come_in_order_of_issue() -> None:
    trace = Trace.build(
        {
            "kind": ["collective"] * 3,
            "collective": ["broadcast", "all_reduce", "all_reduce"],
            "group": [0, 0, 0],
            "coll_seq": [1, 0, 0],
            "t_issue_ns": [30, 20, 10],
        },
        meta=Meta(groups=(Group((0, 1)),)),
    )
    assert [(call.collective, call.coll_seq) for call in trace.calls()] == [
        ("all_reduce", 0),
        ("broadcast", 1),
    ]


def test_values_have_the_shape_and_the_digest_is_computed_from_kept_bytes() -> None:
    trace = Trace.build(
        {"kind": ["send"]},
        {
            "event": [0, 0],
            "dtype": ["int32", "float32"],
            "shape": [[2, 2], [100]],
            "data": [encode([1, 2, 3, 4], "int32"), None],
            "first": [None, encode([5.0], "float32")],
            "digest": [None, 7],
        },
    )
    values = trace.values(0)
    assert values is not None
    assert values.tolist() == [[1, 2], [3, 4]]
    assert trace.digest(0) == 0xAF05D4EF  # crc32 of the 16 bytes
    first = trace.values(1)
    assert first is not None
    assert first.tolist() == [5.0]  # what was kept, without the shape
    assert trace.digest(1) == 7


def test_states_of_an_event_can_be_narrowed() -> None:
    trace = Trace.build(
        {"kind": ["reduce", "reduce"]},
        {"event": [0, 0, 1], "when": ["before", "after", "before"]},
    )
    assert trace.states_of(0).tolist() == [0, 1]
    assert trace.states_of(0, when="after").tolist() == [1]


# torch is the oracle of what bytes of each dtype mean.
@pytest.mark.parametrize("name", list(DTYPES))
def test_bytes_of_every_dtype_mean_what_torch_says(name: str) -> None:
    dtype = getattr(torch, name)
    raw = np.random.default_rng(0).integers(0, 256, 64, np.uint8)
    if name == "bool":
        raw %= 2
    tensor = torch.from_numpy(raw.copy()).view(dtype)
    wide = (
        torch.complex128
        if dtype.is_complex
        else torch.float64
        if dtype.is_floating_point
        else dtype
    )
    expected = tensor.to(wide).numpy()
    found = decode(raw.tobytes(), name)
    np.testing.assert_array_equal(found.astype(expected.dtype), expected)


@pytest.mark.parametrize("name", [name for name in DTYPES if not name.startswith("float8")])
def test_encoding_rounds_as_torch_does(name: str) -> None:
    values = np.random.default_rng(1).normal(0, 100, 1000)
    if name == "bool" or "int" in name:
        values = np.abs(values).astype(np.int64) % (2 if name == "bool" else 100)
    tensor = torch.from_numpy(values.astype(np.float32) if name == "bfloat16" else values)
    expected = tensor.to(getattr(torch, name)).view(torch.uint8).numpy().tobytes()
    assert encode(tensor.numpy(), name) == expected


def test_unknown_dtypes_and_odd_lengths_are_said() -> None:
    with pytest.raises(ValueError, match="unknown dtype 'float7'"):
        decode(b"", "float7")
    with pytest.raises(ValueError, match="3 bytes are no multiple of float16's 2"):
        decode(b"abc", "float16")
