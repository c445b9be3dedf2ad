"""Records by replacing the Python functions of torch.distributed: for a torch without our hooks.

Calls that C++ makes (DDP's reducer, compiled code) are missed, and so is the end of asynchronous
operations.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed

from .cuda import Queued
from .hooks import report
from .ops import REDUCE_OPS, flat
from .recorder import Recorder
from .states import dtype_name
from .under_way import text_of
from .works import Works


class _Function(NamedTuple):
    """A function: what it does, and its parameters that are read and written."""

    kind: str
    collective: str | None
    inputs: str | None
    outputs: str | None


_FUNCTIONS = {
    "all_reduce": _Function("collective", "all_reduce", "tensor", "tensor"),
    "broadcast": _Function("collective", "broadcast", "tensor", "tensor"),
    "reduce": _Function("collective", "reduce", "tensor", "tensor"),
    "all_gather": _Function("collective", "all_gather", "tensor", "tensor_list"),
    "all_gather_into_tensor": _Function(
        "collective", "all_gather", "input_tensor", "output_tensor"
    ),
    "gather": _Function("collective", "gather", "tensor", "gather_list"),
    "scatter": _Function("collective", "scatter", "scatter_list", "tensor"),
    "reduce_scatter": _Function("collective", "reduce_scatter", "input_list", "output"),
    "reduce_scatter_tensor": _Function("collective", "reduce_scatter", "input", "output"),
    "all_to_all": _Function("collective", "all_to_all", "input_tensor_list", "output_tensor_list"),
    "all_to_all_single": _Function("collective", "all_to_all", "input", "output"),
    "barrier": _Function("collective", "barrier", None, None),
    "send": _Function("send", None, "tensor", None),
    "recv": _Function("recv", None, None, "tensor"),
    "isend": _Function("send", None, "tensor", None),
    "irecv": _Function("recv", None, None, "tensor"),
}


class FunctionHooks:
    """The replaced functions of this process.

    Args:
        active: Recorders, the last of which records; empty for none.
    """

    def __init__(self, active: list[Recorder]) -> None:
        self.active = active
        self.works = Works(report)
        self.queued: Queued | None = None
        self._replaced: list[tuple[Any, str, Any]] = []

    def install(self) -> None:
        """Put the replacements in place."""
        c10d = torch.distributed.distributed_c10d
        for name, what in _FUNCTIONS.items():
            original = getattr(c10d, name, None)
            if original is None:
                continue
            replacement = self._wrap(original, what)
            for module in (c10d, torch.distributed):
                self._replaced.append((module, name, getattr(module, name)))
                setattr(module, name, replacement)

    def remove(self) -> None:
        """Give the functions back."""
        while self._replaced:
            setattr(*self._replaced.pop())

    def _wrap(self, original: Callable[..., Any], what: _Function) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            recorder = self.active[-1] if self.active else None
            if recorder is None or recorder.local.is_silent:
                return original(*args, **kwargs)
            if recorder.only is not None and (what.collective or what.kind) not in recorder.only:
                return _left_out(recorder, original, signature, what, args, kwargs)
            seq, given = None, {}
            try:
                given = _arguments(signature, args, kwargs)
                seq = _begin(recorder, original.__name__, what, given)
            except Exception as error:
                report(error)
            try:
                # What the function calls itself is part of it.
                with recorder.silent():
                    result = original(*args, **kwargs)
            except BaseException as failure:
                if seq is not None:
                    recorder.end(seq, status="error", error=text_of(failure))
                raise
            try:
                if seq is not None and not _is_async(original.__name__, given):
                    _states(recorder, seq, "after", what, given)
                    recorder.end(seq)
            except Exception as error:
                report(error)
            return result

        return call


def _left_out(
    recorder: Recorder,
    original: Callable[..., Any],
    signature: inspect.Signature,
    what: _Function,
    args: Any,
    kwargs: Any,
) -> Any:
    """Call a function that is not recorded; a collective is counted."""
    try:
        if what.collective is not None:
            group = _arguments(signature, args, kwargs).get("group")
            recorder.leave_out(group or torch.distributed.distributed_c10d._get_default_group())
    except Exception as error:
        report(error)
    with recorder.silent():
        return original(*args, **kwargs)


def _arguments(signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _is_async(name: str, given: dict[str, Any]) -> bool:
    return bool(given.get("async_op")) or name in ("isend", "irecv")


def _begin(recorder: Recorder, name: str, what: _Function, given: dict[str, Any]) -> int:
    group = given.get("group") or torch.distributed.distributed_c10d._get_default_group()
    info = recorder.groups.info(group)
    caller = recorder.sites.find(sys._getframe(2))
    root = given.get("group_src" if what.collective in ("broadcast", "scatter") else "group_dst")
    asked = given.get("src") if given.get("src") is not None else given.get("dst")
    if root is None and asked in info.ranks:
        root = info.ranks.index(asked)
    is_pair = what.kind != "collective"
    peer = root if is_pair and root is not None and 0 <= root < len(info.ranks) else None
    tensors = [*flat(given.get(what.inputs or "")), *flat(given.get(what.outputs or ""))]
    op = given.get("op")
    seq = recorder.begin(
        what.kind,
        provenance="called",
        api=name,
        collective=what.collective,
        reduce_op=None if op is None else REDUCE_OPS[int(getattr(op, "op", op))],
        root=None if is_pair else root,
        tag=given.get("tag") if is_pair else None,
        is_async=_is_async(name, given),
        rank=info.rank,
        group=info.number,
        group_rank=info.group_rank,
        peer=None if peer is None else info.ranks[peer],
        peer_group_rank=peer,
        size_bytes=tensors[0].numel() * tensors[0].element_size() if tensors else 0,
        dtype=dtype_name(tensors[0].dtype) if tensors else None,
        site=caller.site,
    )
    _states(recorder, seq, "before", what, given)
    return seq


def _states(
    recorder: Recorder, seq: int, when: str, what: _Function, given: dict[str, Any]
) -> None:
    name = what.inputs if when == "before" else what.outputs
    role = "input" if when == "before" else "output"
    for index, tensor in enumerate(flat(given.get(name or ""))):
        recorder.state(seq, when, role if what.kind == "collective" else "payload", index, tensor)
