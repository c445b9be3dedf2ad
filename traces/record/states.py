"""What a tensor holds at one moment, as a fragment of a record.

    states = States(Options(), writer)
    states.fragment(tensor)     # b'12,"AACAPwAAAEA="': description 12, and the bytes in base64

Policies: `full` keeps all bytes of tensors up to `FULL_BYTES` and a sample of larger ones; `sample`
keeps a digest, statistics and the first values; `none` keeps the description alone. Values of
tensors that are not in this process's memory, or have no dense layout, are not kept.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import struct
import threading
import zlib
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ..schema import FIRST_VALUES, FULL_BYTES, SAMPLE_VALUES
from .folder import host_name
from .options import Options
from .writer import INLINE_BYTES, Writer, dump, number

TINY_BYTES = INLINE_BYTES
# Descriptions remembered at once; a program that allocates anew each time must not fill memory.
REMEMBERED = 4096

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
_SMALL = tuple(ctypes.c_char * size for size in range(INLINE_BYTES + 1))


class _Known(NamedTuple):
    """What is remembered of a tensor: number of its record, and bytes that are read from it.

    `whole` is the size to keep straight from memory, -1 where it is not that simple; `reach` is
    the end of the tensor, from the start of its storage; `memory` is its memory, where it is small.
    """

    number: int
    whole: int
    reach: int
    memory: Any


class States:
    """Writes descriptions of tensors once, and gives their values at a moment.

    Args:
        options: What to keep.
        writer: Writes the descriptions, and bytes that are too many for a record.
        before: States of the file before, whose numbers go on.
    """

    def __init__(self, options: Options, writer: Writer, before: States | None = None) -> None:
        self.policy = options.state or "full"
        self._writer = writer
        self._is_full = self.policy == "full"
        self._lock = threading.RLock()
        self._known: dict[Any, _Known] = {}  # by address, shape, strides, dtype
        self._storages: dict[int, int] = {}
        self._numbers: itertools.count[int] = itertools.count()
        if before is not None:
            self._storages, self._numbers = before._storages, before._numbers
        self._budget: Budget | None = None
        if options.max_bytes is not None:
            shared = None if before is None else before._budget
            self._budget = Budget(options.max_bytes, writer, shared)

    def give_back(self) -> None:
        """Let later files have the bytes of this one, which is deleted."""
        if self._budget is not None:
            self._budget.give_back()

    def fragment(self, tensor: torch.Tensor) -> bytes:
        """Return number of the description and value, `12,"AACAPw=="`, as a record has them.

        Args:
            tensor: Any tensor; nothing of it is changed, and no operation that a dispatch mode or
                autograd could see is run.
        """
        try:
            address = tensor.data_ptr()
            key = (address, tensor.shape, tensor.stride(), tensor.dtype)
            there = tensor.untyped_storage().nbytes()
        except (RuntimeError, NotImplementedError):  # sparse, fake or meta: no memory to point at
            return b"%d,null" % self._describe(None, tensor).number
        known = self._known.get(key) or self._describe(key, tensor)
        if there < known.reach:  # such as FSDP's parameters, whose memory is given back
            return b"%d,null" % known.number
        size = known.whole
        if self._budget is not None and size >= 0 and not self._budget.take(size):
            return b"%d,%b" % (known.number, self._summary(tensor, address))
        if 0 <= size <= INLINE_BYTES:
            data = b2a_base64(known.memory.raw, newline=False) if size else b""
            return b'%d,"%b"' % (known.number, data)
        return b"%d,%b" % (known.number, self._value(tensor, address, size))

    def list(self, when: bytes, role: bytes, tensors: Sequence[torch.Tensor]) -> bytes:
        """Return the states of a call's tensors, separated by commas, as a record has them."""
        if len(tensors) == 1:
            return b'["%b","%b",0,%b]' % (when, role, self.fragment(tensors[0]))
        return b",".join(
            b'["%b","%b",%d,%b]' % (when, role, index, self.fragment(tensor))
            for index, tensor in enumerate(tensors)
        )

    def _describe(self, key: Any, tensor: torch.Tensor) -> _Known:
        with self._lock:
            if key is not None and key in self._known:
                return self._known[key]
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            size = self._kept_whole(tensor)
            memory = _SMALL[size].from_address(key[0]) if 0 < size <= INLINE_BYTES else None
            found = _Known(next(self._numbers), size, _reach(tensor), memory)
            record = {"r": "tensor", "n": found.number, **self._description(tensor)}
            if self._writer.write_json(record) and key is not None:
                self._known[key] = found
            return found

    def _description(self, tensor: torch.Tensor) -> dict[str, Any]:
        described: dict[str, Any] = {
            "dtype": dtype_name(tensor.dtype),
            "shape": list(map(int, tensor.shape)),
        }
        if tensor.layout is not torch.strided:
            return described
        if not tensor.is_contiguous():
            described["strides"] = list(tensor.stride())
        try:
            address = tensor.untyped_storage().data_ptr()
        except (RuntimeError, NotImplementedError):
            return described
        if len(self._storages) >= 16 * REMEMBERED:
            self._storages.clear()
        described["storage"] = self._storages.setdefault(address, len(self._storages))
        described["offset"] = tensor.storage_offset()
        return described

    def _kept_whole(self, tensor: torch.Tensor) -> int:
        """Return the bytes to keep straight from memory, or -1 where it is not that simple."""
        is_simple = (
            self._is_full
            and tensor.layout is torch.strided
            and tensor.is_cpu
            and tensor.is_contiguous()
            and not tensor.is_complex()  # may be lazily conjugated
            and tensor.nbytes <= FULL_BYTES
        )
        return tensor.nbytes if is_simple else -1

    def _value(self, tensor: torch.Tensor, address: int, size: int) -> bytes:
        if size >= 0:
            return self._keep((ctypes.c_char * size).from_address(address).raw)
        if self.policy == "none" or tensor.layout is not torch.strided or not tensor.is_cpu:
            return b"null"
        if not self._is_full or tensor.nbytes > FULL_BYTES:
            return self._summary(tensor, address)
        if self._budget is not None and not self._budget.take(tensor.nbytes):
            return self._summary(tensor, address)
        # Neither autograd nor a dispatch mode of the program may see what is computed here.
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            return self._keep(raw_bytes(tensor))

    def _summary(self, tensor: torch.Tensor, address: int) -> bytes:
        """Return digest, statistics and, while there is room for data, the first values."""
        code = _CODES.get(tensor.dtype)
        if code and tensor.nbytes <= TINY_BYTES and tensor.is_contiguous():
            data = _SMALL[tensor.nbytes].from_address(address).raw if tensor.nbytes else b""
            found = _tiny_sample(data, code)
        else:
            with torch._C._DisableTorchDispatch(), torch.no_grad():
                found = _sample(tensor)
        if self._budget is not None:
            size = min(tensor.numel(), FIRST_VALUES) * tensor.element_size()
            if not self._budget.take(size):
                del found["first"]
        return dump(found)[:-1]

    def _keep(self, data: bytes) -> bytes:
        if len(data) <= INLINE_BYTES:
            return b'"%b"' % b2a_base64(data, newline=False)
        start = self._writer.store(data)
        return b"null" if start is None else b'{"at":%d,"size":%d}' % (start, len(data))


class Budget:
    """How many bytes of tensor data a process may still write.

    Args:
        limit: Bytes that all files of the process may have.
        writer: Writes into this file that no bytes are left.
        before: Budget of the file before; the limit is for both.
    """

    def __init__(self, limit: int, writer: Writer, before: Budget | None = None) -> None:
        self.limit = limit
        self._writer = writer
        self._lock: threading.Lock = threading.Lock() if before is None else before._lock
        self._left: list[int] = [limit] if before is None else before._left
        self._taken = 0
        self._is_said = False

    def take(self, size: int) -> bool:
        """Return whether so many bytes may be written, and count them."""
        with self._lock:
            if size <= self._left[0]:
                self._left[0] -= size
                self._taken += size
                return True
            is_said, self._is_said = self._is_said, True
        if not is_said:
            text = (
                f"{host_name()}-{os.getpid()} has used up max_bytes ({self.limit}): "
                "later states have no data, only what describes it"
            )
            self._writer.write_json({"r": "note", "text": text})
        return False

    def give_back(self) -> None:
        """Let later files have the bytes of this one."""
        with self._lock:
            self._left[0] += self._taken
            self._taken = 0


def _reach(tensor: torch.Tensor) -> int:
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return 0
    steps = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int((tensor.storage_offset() + steps + 1) * tensor.element_size())


def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's name of a dtype without the prefix.

    Example:
        >>> dtype_name(torch.bfloat16)
        'bfloat16'
    """
    return str(dtype).removeprefix("torch.")


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """Return a CPU tensor's values as contiguous little-endian bytes."""
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return (
        (ctypes.c_char * dense.nbytes).from_address(dense.data_ptr()).raw if dense.nbytes else b""
    )


def _tiny_sample(data: bytes, code: str) -> dict[str, Any]:
    """Return what `_sample` does, of a few values, in a tenth of the time."""
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


def _sample(tensor: torch.Tensor) -> dict[str, Any]:
    """Return digest, statistics and first values, of all or of values at equal distances."""
    tensor = tensor.detach()
    count = tensor.numel()
    stride = math.ceil(count / SAMPLE_VALUES) or 1
    if tensor.is_contiguous():
        flat = tensor.view(-1)
        values, first = flat[::stride], flat[:FIRST_VALUES]
    else:
        values = _pick(tensor, torch.arange(0, count, stride))
        first = _pick(tensor, torch.arange(min(count, FIRST_VALUES)))
    values = values.contiguous()
    return {
        "digest": zlib.crc32(raw_bytes(values)),
        "digest_of": "all" if stride == 1 else "sample",
        "first": b2a_base64(raw_bytes(first), newline=False).decode(),
        **({} if tensor.is_complex() else _statistics(values.to(torch.float64))),
    }


def _statistics(values: torch.Tensor) -> dict[str, Any]:
    """Return min, max and mean of what is no NaN, and the count of NaN."""
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
