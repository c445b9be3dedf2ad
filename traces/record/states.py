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
import threading
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ..schema import FIRST_VALUES, FULL_BYTES
from .budget import Budget
from .options import Options
from .summary import Picked, raw_bytes, summarise, summary
from .writer import INLINE_BYTES, Writer, dump

# Descriptions remembered at once; a program that allocates anew each time must not fill memory.
REMEMBERED = 4096

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
        if type(tensor) is not torch.Tensor and hasattr(tensor, "fake_device"):
            return b"%d,null" % self._describe(None, tensor).number  # it would warn of its address
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

    def describe(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor's description, whose value is written later."""
        try:
            key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        except (RuntimeError, NotImplementedError):  # sparse
            return self._describe(None, tensor).number
        return (self._known.get(key) or self._describe(key, tensor)).number

    def value(self, copied: torch.Tensor | Picked) -> bytes:
        """Return the value of a tensor of which there is a copy, whole or some of its values.

        Args:
            copied: On the CPU; contiguous where it is whole.
        """
        if isinstance(copied, Picked):
            with torch._C._DisableTorchDispatch(), torch.no_grad():
                return self._within_budget(copied.first.nbytes, summarise(copied))
        size = self._kept_whole(copied)
        if self._budget is not None and size >= 0 and not self._budget.take(size):
            return self._summary(copied, copied.data_ptr())
        return self._value(copied, copied.data_ptr(), size)

    def _describe(self, key: Any, tensor: torch.Tensor) -> _Known:
        with self._lock:
            if key is not None and key in self._known:
                return self._known[key]
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            size = self._kept_whole(tensor)
            memory = _SMALL[size].from_address(key[0]) if key and 0 < size <= INLINE_BYTES else None
            found = _Known(next(self._numbers), size, _reach(tensor), memory)
            record = {
                "r": "tensor",
                "n": found.number,
                **self._description(tensor, has_memory=key is not None),
            }
            if self._writer.write_json(record) and key is not None:
                self._known[key] = found
            return found

    def _description(self, tensor: torch.Tensor, *, has_memory: bool) -> dict[str, Any]:
        described: dict[str, Any] = {"dtype": dtype_name(tensor.dtype)}
        if tensor.is_nested:  # its parts have shapes of their own
            return described
        described["shape"] = list(map(int, tensor.shape))
        if tensor.layout is not torch.strided:
            return described
        if not tensor.is_contiguous():
            described["strides"] = list(tensor.stride())
        if not has_memory:
            return described
        address = tensor.untyped_storage().data_ptr()
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
            and not tensor.is_nested
            and tensor.is_cpu
            and tensor.is_contiguous()
            and not tensor.is_complex()  # may be lazily conjugated
            and not tensor.is_neg()
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
        size = min(tensor.numel(), FIRST_VALUES) * tensor.element_size()
        return self._within_budget(size, summary(tensor, address))

    def _within_budget(self, size: int, found: dict[str, Any]) -> bytes:
        if self._budget is not None and not self._budget.take(size):
            del found["first"]
        return dump(found)[:-1]

    def _keep(self, data: bytes) -> bytes:
        if len(data) <= INLINE_BYTES:
            return b'"%b"' % b2a_base64(data, newline=False)
        start = self._writer.store(data)
        return b"null" if start is None else b'{"at":%d,"size":%d}' % (start, len(data))


def _reach(tensor: torch.Tensor) -> int:
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.numel() == 0:
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
