"""First values as numbers: readable, and the same bytes again."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkscope.traces.numbers import from_numbers, to_numbers
from chunkscope.traces.schema import DTYPES
from chunkscope.traces.trace import encode


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([*DTYPES, "quint8", None]), st.none() | st.binary(max_size=16)),
        max_size=6,
    )
)
def test_any_bytes_come_back_the_same(cases: list[tuple[str | None, bytes | None]]) -> None:
    dtypes, cells = [dtype for dtype, _ in cases], [cell for _, cell in cases]
    numbers = to_numbers(cells, dtypes)
    through_json = [
        cell if isinstance(cell, bytes | None) else json.loads(json.dumps(cell, allow_nan=False))
        for cell in numbers
    ]
    assert from_numbers(through_json, dtypes) == cells


@pytest.mark.parametrize(
    ("dtype", "values", "numbers"),
    [
        ("float32", [0.1, -2.0], [0.1, -2.0]),
        ("bfloat16", [0.1], [0.100097656]),
        ("float16", [0.1, np.inf], [0.1, "Infinity"]),
        ("float64", [np.nan, -np.inf, 1 / 3], ["NaN", "-Infinity", 1 / 3]),
        ("complex64", [1 + 2j, complex(0, np.inf)], [[1.0, 2.0], [0.0, "Infinity"]]),
        ("int64", [-(2**63), 5], [-(2**63), 5]),
        ("bool", [True, False], [True, False]),
    ],
)
def test_numbers_are_as_a_person_writes_them(
    dtype: str, values: list[Any], numbers: list[Any]
) -> None:
    assert to_numbers([encode(np.array(values), dtype)], [dtype]) == [numbers]


def test_what_would_not_come_back_stays_bytes() -> None:
    odd_nan = b"\x01\x00\xc0\x7f"
    one = encode([1.0], "float32")
    assert to_numbers([odd_nan, one], ["float32", "float32"]) == [odd_nan, [1.0]]
    assert to_numbers([b"abc"], ["float32"]) == [b"abc"]


@pytest.mark.parametrize(
    ("cell", "dtype", "message"),
    [
        ([1, 2], None, "the dtype is missing"),
        ([1, 2], "float7", "'float7' is unknown"),
        (["one"], "float32", "found 'one' among the first values"),
        ([[1, 2, 3]], "complex64", "found 3 numbers for a complex one"),
        ([[1, 2]], "float32", "no float32"),
        ([1.5], "int32", "expected whole numbers"),
        ([{}], "float32", "expected a number"),
        ([10**30], "int64", "no int64"),
        ([1.0], "float8_e5m2", "cannot encode"),
    ],
)
def test_what_is_no_number_of_the_dtype_is_refused(cell: Any, dtype: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_numbers([cell], [dtype])
