"""Tries the hooks once before they are relied upon: they stand on private parts of torch.

One all_reduce on torch's fake process group, which has no threads and no peers, must leave a begin
and an end with the right values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed

from .recorder import Recorder
from .writer import Writer


class _Memory(Writer):
    """Keeps records instead of writing them."""

    def __init__(self) -> None:
        super().__init__(Path(), dict)
        self.records: list[bytes] = []

    def write(self, record: bytes) -> bool:
        self.records.append(record)
        return True


def problem(active: list[Recorder]) -> str | None:
    """Return what is wrong with the hooks that are in place, or None if they work.

    Args:
        active: The list that the hooks take their recorder from.
    """
    memory = _Memory()
    recorder = Recorder(".", writer=memory)
    active.append(recorder)
    try:
        _all_reduce()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        active.remove(recorder)
    text = b"".join(memory.records)
    for part in (b'"collective":"all_reduce"', b'"r":"begin"', b'"r":"end"'):
        if part not in text:
            return f"a call left no {part.decode()}"
    if b'"reduce_op":' in text and b'"reduce_op":"MAX"' not in text:  # an older torch tells none
        return "a call left another reduce_op"
    return None if text.count(b'"AACAPw=="') == 2 else "a call left no values"


def _all_reduce() -> None:
    """Call all_reduce, with MAX on one 1.0, on a group of its own that does nothing."""
    c10d: Any = torch._C._distributed_c10d
    try:
        group = c10d.ProcessGroup(c10d.HashStore(), 0, 1)
    except TypeError:  # an older torch, which wants to know the backend now
        group = c10d.ProcessGroup(c10d.HashStore(), 0, 1, c10d.ProcessGroup.Options("custom"))
    make = getattr(c10d.FakeProcessGroup, "_create_internal", c10d.FakeProcessGroup)
    kind = c10d.ProcessGroup.BackendType.CUSTOM
    group._register_backend(torch.device("cpu"), kind, make(0, 1))
    options = c10d.AllreduceOptions()
    options.reduceOp = c10d.ReduceOp.MAX
    work = group.allreduce([torch.ones(1)], options)
    work.wait()
