"""Records c10d operations at the dispatcher, below every way to call them.

Each c10d operation gets a Python kernel at the dispatch key BackendSelect, which is in every key
set: eager, autograd threads, inference mode, compiled code. The kernel writes the begin, passes the
call on and writes the end, or leaves that to `works`.

Whatever goes wrong in here becomes one warning; the program goes on as if nothing were recorded.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from threading import main_thread
from types import FrameType
from typing import Any

import torch

from .callers import Caller
from .cuda import Device, OnDevice, Queued, built_for
from .header import thread_name
from .ops import REDUCE_OPS, Plan, flat, plans, size_bytes, splits_of
from .recorder import Recorder
from .under_way import Open
from .works import Works
from .writer import warn_once

_PYTHON_CALLS = torch.distributed.distributed_c10d.__file__
_OPERATORS = torch._ops.__file__
_AUTOGRAD = "/torch/autograd/"
# Public functions that wait before they return.
_WAITING = frozenset({"send", "recv"})


class Hooks:
    """The dispatcher kernels of this process.

    Args:
        active: Recorders, the last of which records; empty for none.
        device: Where operations are carried out that return before; what torch was built for by
            default.
    """

    def __init__(self, active: list[Recorder], device: Device | None = None) -> None:
        self.active = active
        self.works = Works(report)
        device = device or built_for()
        self.queued = None if device is None else Queued(device, report)
        self._library: Any = None
        c10d = torch._C._distributed_c10d
        self._unbox_group = c10d.ProcessGroup.unbox
        self._unbox_work = c10d.Work.unbox
        self._key = torch._C.DispatchKey.BackendSelect

    def install(self) -> None:
        """Put the kernels in place and replace `Work.wait`."""
        below = torch._C._dispatch_keyset_full_after(self._key)
        library: Any = torch.library.Library
        self._library = library("c10d", "IMPL")
        for name, (plan, overload) in plans().items():
            kernel = self._kernel(plan, overload, below)
            self._library.impl(name, kernel, "BackendSelect", with_keyset=True)
        self.works.patch()

    def remove(self) -> None:
        """Take the kernels out again."""
        if self._library is not None:
            self._library._destroy()
            self._library = None
        self.works.unpatch()

    def _kernel(self, plan: Plan, overload: Any, below: Any) -> Callable[..., Any]:
        redispatch = overload._handle.redispatch_boxed
        active, begin, finish = self.active, self._begin, self._finish
        name = plan.collective or plan.kind

        def kernel(keyset: Any, *args: Any) -> Any:
            recorder = active[-1] if active else None
            if recorder is None or recorder.local.is_silent:
                return redispatch(keyset & below, *args)
            if recorder.only is not None and name not in recorder.only:
                self._leave_out(recorder, plan, args)
                return redispatch(keyset & below, *args)
            try:
                frame = sys._getframe().f_back
                event = begin(recorder, plan, args, frame)
            except Exception as error:
                report(error)
                return redispatch(keyset & below, *args)
            try:
                result = redispatch(keyset & below, *args)
            except BaseException as failure:
                fail(event, failure)
                raise
            try:
                return finish(event, plan, result, frame)
            except Exception as error:
                report(error)
                return result

        return kernel

    def _leave_out(self, recorder: Recorder, plan: Plan, args: tuple[Any, ...]) -> None:
        """Count a call that is not recorded: the next one of its group keeps its number."""
        try:
            if plan.collective is not None:
                recorder.leave_out(self._unbox_group(args[plan.group]))
        except Exception as error:
            report(error)

    def _begin(
        self, recorder: Recorder, plan: Plan, args: tuple[Any, ...], frame: FrameType | None
    ) -> Open:
        """Write that an operation begins."""
        issued = time.monotonic_ns()
        group = self._unbox_group(args[plan.group])
        info = recorder.groups.info(group)
        seq, inside = next(recorder.numbers), b""
        if recorder.is_bounded:
            peer, tag = _peer(plan, args), plan.number("tag", args)
            inside = recorder.number_call(seq, plan.kind, info.number, peer, tag)
        segment = recorder.segment
        caller = segment.sites.find(frame or sys._current_frames().get(main_thread().ident or 0))
        if plan.is_simple:
            tensors = args[0]
            inputs = tensors if plan.inputs else ()
            outputs = tensors if plan.outputs else ()
        else:
            inputs = [tensor for at in plan.inputs for tensor in flat(args[at])]
            outputs = [tensor for at in plan.outputs for tensor in flat(args[at])]
            tensors = inputs + outputs
        reduce_op = None if plan.reduce_op is None else _reduce_op(frame, args[plan.reduce_op])
        is_async = _is_async(plan, args, caller, frame)
        numbers: Any = args[plan.tail :] if plan.tail else _hashable(plan, args)
        shapes = [(tensor.dtype, tensor.numel()) for tensor in tensors]
        key = (plan.name, info.number, caller, reduce_op, is_async, numbers, thread_name(), *shapes)
        found = segment.calls.get(key)
        if found is None:
            cells = _cells(plan, args, info, caller, reduce_op, is_async, inputs, outputs)
            found = recorder.define_call(key, cells, segment)
        coalesced = self.works.batch
        batch: int | None = None
        if coalesced is not None:
            batch = -1 if coalesced.first is None else coalesced.first
        elif caller.api == "batch_isend_irecv":
            batch = _batch(recorder, caller, frame)
        queued, kind = self.queued, Open
        if queued is not None and tensors:
            kind = queued.kind(recorder, tensors[0])
        has_states = len(inputs) > 0 and kind is not OnDevice
        states = segment.states.list(b"before", plan.role[0], inputs) if has_states else b""
        if batch is not None:
            recorder.local.batch = seq if batch < 0 else batch
            if coalesced is not None:
                coalesced.first = recorder.local.batch
            inside += b',"batch":%d' % recorder.local.batch
        segment.writer.write(
            b'{"r":"begin","seq":%d,"call":%d,"t":%d%b,"s":[%b]}\n'
            % (seq, found, issued, inside, states)
        )
        event = kind(recorder, seq, outputs, plan.role[1], is_async)
        if queued is not None and isinstance(event, OnDevice):
            queued.take(event, tensors[0].device, plan.role[0], inputs)
        if plan.name == "recv_any_source_":
            event.info, event.tag = info, plan.number("tag", args)
        return event

    def _finish(self, event: Open, plan: Plan, result: Any, frame: FrameType | None) -> Any:
        """Arrange for the end to be written, and return what the caller gets."""
        if plan.work is None or event.ends_at_once:
            event.end()
            return result
        boxed = result if plan.work < 0 else result[plan.work]
        work = None if boxed is None else self._unbox_work(boxed)
        if work is None:  # coalesced: the batch has the Work
            if self.works.batch is not None:
                self.works.batch.events.append(event)
            return result
        file = "" if frame is None else frame.f_code.co_filename
        if file == _PYTHON_CALLS and not event.is_async:
            self.works.await_now(event, work)
            return result
        if frame is None or _AUTOGRAD in file:
            chained = self.works.chain(event, work)
            if chained is not None:
                if plan.work < 0:
                    return chained
                return (*result[: plan.work], chained, *result[plan.work + 1 :])
        self.works.watch(event, work)
        if file != _OPERATORS:  # else C++ takes it
            self.works.keep(event, work, frame)
        return result


def _hashable(plan: Plan, args: tuple[Any, ...]) -> tuple[Any, ...]:
    given = [args[at] for at in plan.places if at < len(args)]
    return tuple(tuple(value) if type(value) is list else value for value in given)


def fail(event: Open, failure: BaseException) -> None:
    """Write that an operation raised."""
    try:
        event.end(failure)
    except Exception as error:
        report(error)


def report(error: BaseException) -> None:
    """Turn a bug of the recorder into one warning."""
    warn_once(
        f"chunkscope: the recorder failed and left out a call ({type(error).__name__}: {error}); "
        "the program goes on"
    )


def _peer(plan: Plan, args: tuple[Any, ...]) -> int | None:
    """Return the group rank at the other end of a send or recv, where it is known."""
    peer: int | None = plan.number("dst" if plan.kind == "send" else "src", args)
    return peer


def _is_async(plan: Plan, args: tuple[Any, ...], caller: Caller, frame: FrameType | None) -> bool:
    if plan.work is None:
        return False
    if plan.kind != "collective":
        return caller.api not in _WAITING
    for name in ("async_op", "asyncOp"):
        if name in plan.ints:
            return bool(plan.number(name, args))
    # Older torch does not tell most operations, but the function that calls them.
    if frame is not None and frame.f_code.co_filename == _PYTHON_CALLS:
        return bool(frame.f_locals.get("async_op", False))
    return True


def _reduce_op(frame: FrameType | None, boxed: Any) -> str | None:
    """Return the name of a reduce op; None where an older torch does not tell.

    Asking the boxed object runs TorchScript, which takes 8 µs; where one of torch's own functions
    calls, its options are at hand.
    """
    if frame is not None and frame.f_code.co_filename == _PYTHON_CALLS:
        options = frame.f_locals.get("opts")
        if options is not None:
            return REDUCE_OPS[int(options.reduceOp.op)]
    op = getattr(boxed, "op", None)
    return None if op is None else REDUCE_OPS[op()]


def _batch(recorder: Recorder, caller: Caller, frame: FrameType | None) -> int | None:
    """Return the seq that binds a batch, -1 where a new one begins, None where it is not known."""
    while frame is not None and frame.f_code.co_name != "batch_isend_irecv":
        frame = frame.f_back
    if frame is None:
        return None
    found = frame.f_locals
    operations = found.get("p2p_op_list")
    if not operations or "p2p_op" not in found:
        return None
    return -1 if found["p2p_op"] is operations[0] else recorder.local.batch


def _cells(
    plan: Plan,
    args: tuple[Any, ...],
    info: Any,
    caller: Caller,
    reduce_op: str | None,
    is_async: bool,
    inputs: Any,
    outputs: Any,
) -> dict[str, Any]:
    """Return the columns that stay the same when the same call is made again."""
    root = plan.number("root_rank", args)
    peer = _peer(plan, args)
    tensors = [*inputs, *outputs]
    return {
        "kind": plan.kind,
        "provenance": "called",
        "api": caller.api or plan.name,
        "collective": plan.collective,
        "reduce_op": reduce_op,
        "root": root,
        "tag": plan.number("tag", args),
        "is_async": is_async,
        "splits": splits_of(plan, args, list(inputs), list(outputs)),
        "rank": info.rank,
        "group": info.number,
        "group_rank": info.group_rank,
        "peer": info.ranks[peer] if peer is not None and 0 <= peer < len(info.ranks) else None,
        "peer_group_rank": peer,
        "size_bytes": size_bytes(plan, len(info.ranks), list(inputs), list(outputs)),
        "dtype": str(tensors[0].dtype).removeprefix("torch.") if tensors else None,
        "site": caller.site,
    }
