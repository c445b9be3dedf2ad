"""The first values of a tensor as numbers that a person reads, and back as the same bytes.

to_numbers([encode([0.1, 2], "float32")], ["float32"])     # [[0.1, 2.0]]
from_numbers([[0.1, 2.0]], ["float32"])                    # the same bytes again

NaN and infinities are strings, a complex number is a pair. Bytes that would not come back the same
(a NaN with a message in its bits, a dtype that numpy lacks) stay bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .columns import Array
from .schema import DTYPES
from .trace import decode, encode

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_numbers(cells: Sequence[bytes | None], dtypes: Sequence[str | None]) -> list[Any]:
    """Return each cell as a list of numbers, where `from_numbers` gives the same bytes again."""
    found: list[Any] = list(cells)
    there = set(dtypes)
    for dtype in filter(there.__contains__, DTYPES):
        at = [
            k
            for k, (cell, name) in enumerate(zip(cells, dtypes, strict=True))
            if name == dtype and cell is not None and len(cell) % DTYPES[dtype] == 0
        ]
        raws = [cells[k] or b"" for k in at]
        values = decode(b"".join(raws), dtype)
        if not _comes_back(values, b"".join(raws), dtype):
            kept = [_comes_back(decode(raw, dtype), raw, dtype) for raw in raws]
            at = list(itertools.compress(at, kept))
            raws = list(itertools.compress(raws, kept))
            values = decode(b"".join(raws), dtype)
        numbers = _listed(values)
        end = 0
        for k, raw in zip(at, raws, strict=True):
            start, end = end, end + len(raw) // DTYPES[dtype]
            found[k] = numbers[start:end]
    return found


def from_numbers(cells: Sequence[Any], dtypes: Sequence[str | None]) -> list[bytes | None]:
    """Return each cell as bytes; what is bytes or None already stays.

    Raises:
        ValueError: A number does not fit its dtype, or is none.
    """
    found: list[Any] = list(cells)
    lists = [k for k, cell in enumerate(cells) if isinstance(cell, list)]
    for dtype in {dtypes[k] for k in lists}:
        if dtype is None:
            raise ValueError("first values are numbers, and the dtype is missing")
        at = [k for k in lists if dtypes[k] == dtype]
        numbers = [_number(item) for k in at for item in cells[k]]
        if dtype not in DTYPES:
            raise ValueError(f"first values are numbers, and the dtype {dtype!r} is unknown")
        if np.dtype(_wide(dtype)).kind in "iu" and any(type(item) is not int for item in numbers):
            raise ValueError(f"first values are no {dtype}: expected whole numbers")
        try:
            with np.errstate(all="ignore"):  # what is too large becomes infinite
                raw = encode(np.array(numbers, _wide(dtype)), dtype)
        except (TypeError, OverflowError) as error:
            raise ValueError(f"first values are no {dtype}: {error}") from None
        end = 0
        for k in at:
            start, end = end, end + len(cells[k]) * DTYPES[dtype]
            found[k] = raw[start:end]
    return found


def _comes_back(values: Array, raw: bytes, dtype: str) -> bool:
    """Return whether the numbers that are written give the same bytes again."""
    wide: Array = values.astype(_wide(dtype))
    if dtype == "bool":
        wide = np.array(values.tolist(), np.bool_)
    elif wide.dtype.kind in "fc":
        for part in (wide.real, wide.imag) if wide.dtype.kind == "c" else (wide,):
            part[np.isnan(part)] = np.nan  # the string NaN tells of no other bits
    try:
        return encode(wide, dtype) == raw
    except ValueError:  # float8, which only torch encodes
        return False


def _wide(dtype: str) -> Any:
    """Return the numpy type that the written numbers of a dtype are read as."""
    if dtype.startswith("complex"):
        return np.complex128
    return np.float64 if "float" in dtype else np.dtype(dtype)


def _listed(values: Array) -> list[Any]:
    """Return values as JSON has them, floats in as few digits as tell them apart."""
    if values.dtype.kind == "c":
        parts = [_listed(values.real), _listed(values.imag)]
        return [list(pair) for pair in zip(*parts, strict=True)]
    if values.dtype.kind != "f":
        return list(values.tolist())
    plain = values.tolist() if values.dtype == np.float64 else [float(str(v)) for v in values]
    for k in np.flatnonzero(~np.isfinite(values)):
        value = values[k]
        plain[k] = "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return list(plain)


def _number(item: Any) -> Any:
    if isinstance(item, str):
        if item not in _WORDS:
            raise ValueError(f"found {item!r} among the first values, expected a number")
        return _WORDS[item]
    if isinstance(item, list):
        if len(item) != 2:
            raise ValueError(f"found {len(item)} numbers for a complex one, expected 2")
        return complex(_number(item[0]), _number(item[1]))
    if not isinstance(item, int | float):
        raise ValueError(f"found {item!r} among the first values, expected a number")
    return item
