"""What is kept of a tensor when not all of its bytes are: digest, statistics, first values."""

from __future__ import annotations

import ctypes
import math
import struct
import zlib
from binascii import b2a_base64
from typing import Any, NamedTuple

import torch

from ..schema import FIRST_VALUES, SAMPLE_VALUES
from .writer import INLINE_BYTES, number

TINY_BYTES = INLINE_BYTES

# How `struct` names the types that it knows.
_CODES = {
    torch.float64: "d",
    torch.float32: "f",
    torch.float16: "e",
    torch.int64: "q",
    torch.int32: "i",
    torch.int16: "h",
    torch.int8: "b",
    torch.uint8: "B",
    torch.bool: "?",
}


class Picked(NamedTuple):
    """Values of a tensor: at a distance of `stride` elements, and the first ones."""

    values: torch.Tensor
    first: torch.Tensor
    stride: int


def summary(tensor: torch.Tensor, address: int) -> dict[str, Any]:
    """Return digest, statistics and first values of a CPU tensor, of all values or of a sample.

    Args:
        tensor: A dense tensor.
        address: Where its first value is.
    """
    code = _CODES.get(tensor.dtype)
    if code and tensor.nbytes <= TINY_BYTES and tensor.is_contiguous() and not tensor.is_neg():
        size = tensor.nbytes
        return _tiny((ctypes.c_char * size).from_address(address).raw if size else b"", code)
    # Neither autograd nor a dispatch mode of the program may see what is computed here.
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        return summarise(pick(tensor))


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """Return a CPU tensor's values as contiguous little-endian bytes."""
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return (
        (ctypes.c_char * dense.nbytes).from_address(dense.data_ptr()).raw if dense.nbytes else b""
    )


def _tiny(data: bytes, code: str) -> dict[str, Any]:
    """Return what `summary` does, of a few values, in a tenth of the time."""
    size = struct.calcsize(code)
    values = struct.unpack(f"<{len(data) // size}{code}", data)
    numbers = [float(value) for value in values if value == value]
    found: dict[str, Any] = {
        "digest": zlib.crc32(data),
        "digest_of": "all",
        "first": b2a_base64(data[: FIRST_VALUES * size], newline=False).decode(),
        "nan": len(values) - len(numbers),
    }
    if numbers:
        found["min"], found["max"] = number(min(numbers)), number(max(numbers))
        found["mean"] = number(sum(numbers) / len(numbers))
    return found


def pick(tensor: torch.Tensor) -> Picked:
    """Return all values of a tensor, or values at equal distances, and the first ones."""
    tensor = tensor.detach()
    count = tensor.numel()
    stride = math.ceil(count / SAMPLE_VALUES) or 1
    if tensor.is_contiguous():
        flat = tensor.view(-1)
        values, first = flat[::stride], flat[:FIRST_VALUES]
    else:
        where = tensor.device
        values = _pick(tensor, torch.arange(0, count, stride, device=where))
        first = _pick(tensor, torch.arange(min(count, FIRST_VALUES), device=where))
    return Picked(values.contiguous(), first, stride)


def summarise(picked: Picked) -> dict[str, Any]:
    """Return digest, statistics and first values of what was picked, on the CPU."""
    values, first, stride = picked
    return {
        "digest": zlib.crc32(raw_bytes(values)),
        "digest_of": "all" if stride == 1 else "sample",
        "first": b2a_base64(raw_bytes(first), newline=False).decode(),
        **({} if values.is_complex() else _statistics(values)),
    }


def _statistics(values: torch.Tensor) -> dict[str, Any]:
    """Return min, max and mean of what is no NaN, and the count of NaN."""
    try:
        values = values.to(torch.float64)
    except RuntimeError:  # a dtype that has no numbers, such as a quantized one
        return {}
    found: dict[str, Any] = {"nan": 0}
    if not len(values):
        return found
    low, high = (value.item() for value in torch.aminmax(values))
    if low != low:  # a NaN makes both NaN
        is_nan = torch.isnan(values)
        found["nan"] = int(is_nan.sum())
        values = values[~is_nan]
        if not len(values):
            return found
        low, high = (value.item() for value in torch.aminmax(values))
    mean = values.mean().item()
    return {**found, "min": number(low), "max": number(high), "mean": number(mean)}


def _pick(tensor: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return the values at positions of the flattened tensor, without flattening (a copy) it."""
    if tensor.dim() <= 1:
        return tensor.reshape(-1)[positions]
    indices = []
    for size in reversed(tensor.shape):
        indices.append(positions % size)
        positions = positions // size
    return tensor[tuple(reversed(indices))]
