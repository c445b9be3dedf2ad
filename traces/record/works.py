"""When an operation is over: waits, futures and the end of the process.

A c10d operation returns a Work. What observes its end depends on who holds it:

* Python's own functions wait for it at once, or hand it to the user, who waits: `Work.wait` is
  replaced by one that writes the end. The Work is told by its identity, and held no longer than the
  program itself holds it: gloo sends nothing for a Work that was dropped.
* Python may wait for the Work's future as well, or for one that depends on it: `Future.wait` is
  replaced likewise.
* C++ waits without Python. Where the Work has a future, a callback writes the end. DDP's reducer
  waits for the future itself, which lets the waiter go before callbacks run: it gets a Work whose
  future comes after ours.
* Nobody waits: a callback may still come, else the event stays open.

A callback that comes when Python shuts down would abort the process. None is therefore on torch's
own future: it is on a future that torch completes after that one, and which the exit completes
itself where torch did not. What torch has left to do then happens without Python.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import torch

from .recorder import Recorder
from .under_way import Batch, Open, text_of

# The exit waits while callbacks come, until none has come for so long.
PATIENCE_S = 1.0
# And so long for those that have begun: they need the interpreter for a moment, and nobody else.
RUNNING_S = 5.0


class _Ref(weakref.ref[Any]):
    """A weak reference that knows the identity of what it referred to."""

    __slots__ = ("key",)
    key: int


def _ref(target: Any, callback: Callable[[Any], None]) -> _Ref:
    found = _Ref(target, callback)
    found.key = id(target)
    return found


class Works:
    """The operations under way in this process.

    Args:
        report: Called with a bug of ours, which must not reach the user.
    """

    def __init__(self, report: Callable[[BaseException], None]) -> None:
        self._report = report
        self._kept: dict[int, Open | Batch] = {}  # by identity of the Work
        self._futures: dict[int, tuple[_Ref, Open | Batch]] = {}
        # Works and futures that the program dropped. Nothing that runs when an object dies may run
        # bytecode, in which a thread of torch could lose the interpreter.
        self._dropped: list[_Ref] = []
        # Callbacks that torch still holds, with the future that they are on and the one before.
        # Once one is gone, its thread is done with Python for good.
        self._flying: dict[weakref.ref[Any], tuple[Any, Open | Batch, Any]] = {}
        self._replaced: list[tuple[Any, str, Any]] = []
        self._local = threading.local()
        self._get_future = torch._C._distributed_c10d.Work.get_future

    def patch(self) -> None:
        """Replace `Work.wait`, `Work.get_future` and `Future.wait`."""
        work: Any = torch._C._distributed_c10d.Work
        for owner in (work, *work.__subclasses__()):
            if "wait" in vars(owner):
                self._replace(owner, "wait", self._wait(owner.wait))
            if "get_future" in vars(owner):
                self._replace(owner, "get_future", self._future_of(owner.get_future))
        self._replace(torch._C.Future, "wait", self._future_wait(torch._C.Future.wait))
        group: Any = torch._C._distributed_c10d.ProcessGroup
        self._replace(group, "_start_coalescing", self._start_batch(group._start_coalescing))
        self._replace(group, "_end_coalescing", self._end_batch(group._end_coalescing))

    def unpatch(self) -> None:
        """Give the methods back."""
        while self._replaced:
            setattr(*self._replaced.pop())

    def _replace(self, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
        original = getattr(owner, name)
        replacement.__doc__ = original.__doc__
        self._replaced.append((owner, name, original))
        setattr(owner, name, replacement)

    def _wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        kept, begin, finish = self._kept, self._begin_wait, self._finish

        def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
            event = kept.pop(id(self), None)
            if event is None or not event.is_of(self):
                return original(self, *args, **kwargs)
            waiting = begin(event) if event.is_async else None
            try:
                result = original(self, *args, **kwargs)
            except BaseException as failure:
                finish(event, waiting, failure, self)
                raise
            finish(event, waiting, None, self)
            return result

        return wait

    def _future_of(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_future(self_: Any) -> Any:
            future = original(self_)
            event = self._kept.get(id(self_))
            if event is not None and event.is_open and event.is_of(self_):
                self._forget_dropped()
                ref = _ref(future, self._dropped.append)
                self._futures[ref.key] = (ref, event)
            return future

        return get_future

    def _future_wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        futures, finish, catch_up = self._futures, self._finish, self._catch_up

        def wait(self: Any) -> Any:
            result = original(self)
            ref, event = futures.pop(id(self), (None, None))
            if ref is not None and event is not None and ref() is self:
                finish(event, None, None, None)
            catch_up()
            return result

        return wait

    def _start_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _start_coalescing(self_: Any, *args: Any) -> Any:
            result = original(self_, *args)
            self._local.batch = Batch()
            return result

        return _start_coalescing

    def _end_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _end_coalescing(self_: Any, *args: Any) -> Any:
            batch, self._local.batch = self.batch, None
            try:
                work = original(self_, *args)
            except BaseException as failure:
                if batch is not None and batch.events:
                    self._finish(batch, None, failure, None)
                raise
            try:
                if batch is not None and batch.events and work is not None:
                    self.watch(batch, work)
                    self.keep(batch, work, sys._getframe().f_back)
            except Exception as error:
                self._report(error)
            return work

        return _end_coalescing

    @property
    def batch(self) -> Batch | None:
        """The batch that this thread is coalescing, if any."""
        found: Batch | None = getattr(self._local, "batch", None)
        return found

    def await_now(self, event: Open | Batch, work: Any) -> None:
        """Remember an operation that one of torch's functions waits for before it returns."""
        event.work = work
        self._kept[id(work)] = event

    def keep(self, event: Open | Batch, work: Any, frame: FrameType | None) -> None:
        """Remember an operation whose Work goes to Python, until it is waited for or dropped.

        Args:
            event: The operation.
            work: Its Work.
            frame: Python's frame that asked for it: it is over when the Work has been handed on.
        """
        self._forget_dropped()
        event.ref = ref = _ref(work, self._dropped.append)
        self._kept[ref.key] = event
        # Between the kernel's return and the caller, the Work is C++'s alone, and its Python side
        # would be made anew. A frame's trace function lives as long as the frame.
        if frame is None or sys.gettrace() is not None:
            self._local.last = work
        else:
            frame.f_trace = partial(_trace_nothing, work)

    def watch(self, event: Open | Batch, work: Any) -> bool:
        """Write the end when the Work's future is done; return whether it has a future.

        The future of a queued operation is done as soon as that is asked for, and what a callback
        reads is not what a waiter reads, in another stream: its end is left to the wait.
        """
        if event.is_queued:
            return False
        future = self._future(work)
        if future is None:
            return False

        def done(_: Any) -> None:
            if future.done():
                self._end(event, future)

        event.work = work
        self._after(future, event, done).add_done_callback(done)
        return True

    def chain(self, event: Open | Batch, work: Any) -> Any:
        """Return a boxed Work that is done after the end is written; None where that cannot be."""
        future = self._future(work)
        if future is None:
            return None

        def done(_: Any) -> Any:
            if not future.done():  # the process ends
                return None
            self._end(event, future)
            return future.value()

        event.work = work
        # Torch's own future knows the streams, is done at once and leaves nothing for the exit.
        after = future if event.is_queued else self._after(future, event, done)
        chained = after.then(done)
        c10d: Any = torch._C._distributed_c10d
        return c10d._create_work_from_future(chained).boxed()

    def _future(self, work: Any) -> Any:
        try:
            return self._get_future(work)
        except RuntimeError:
            return None

    def _after(self, future: Any, event: Open | Batch, done: Callable[[Any], Any]) -> Any:
        """Return a future that torch completes right after another one, and that we can, too."""
        after = torch._C._collect_all([future])
        self._flying[weakref.ref(done, self._flying.pop)] = (after, event, future)
        return after

    def has_open(self, recorder: Recorder) -> bool:
        """Return whether an operation of this recorder is still under way."""
        self._forget_dropped()
        open_ = [*self._kept.values(), *(event for _, event, _ in [*self._flying.values()])]
        return any(event.recorder is recorder and event.is_open for event in open_)

    def settle(self, patience_s: float = PATIENCE_S) -> None:
        """Let callbacks come while they do, and cut off the others: Python is about to shut down.

        Args:
            patience_s: How long to wait for the next one.
        """
        count, until = -1, 0.0
        while self._flying:
            if len(self._flying) != count:
                count, until = len(self._flying), time.monotonic() + patience_s
            if time.monotonic() >= until:
                break
            time.sleep(0.001)
        for future, event, _ in [*self._flying.values()]:
            # Torch's thread must not be the last to let go of these: it would need Python for that.
            for held in (future, event.work):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
            try:
                future.set_result(None)
            except RuntimeError:  # torch was faster
                continue
        until = time.monotonic() + RUNNING_S
        while self._flying and time.monotonic() < until:
            time.sleep(0.001)

    def forget(self) -> None:
        """Forget everything: a forked child has none of its parent's operations."""
        for known in (self._kept, self._flying, self._futures, self._dropped):
            known.clear()

    def _forget_dropped(self) -> None:
        while self._dropped:
            ref = self._dropped.pop()
            event = self._kept.get(ref.key)
            if event is not None and event.ref is ref:
                del self._kept[ref.key]
            if self._futures.get(ref.key, (None,))[0] is ref:
                del self._futures[ref.key]

    def _end(self, event: Open | Batch, future: Any) -> None:
        failure: BaseException | None = None
        try:
            try:
                future.value()
            except Exception as error:
                failure = error
            event.end(failure)
        except Exception as error:
            self._report(error)
        finally:
            failure = None  # its traceback holds this frame, which holds it

    def _catch_up(self) -> None:
        """Write the ends whose callbacks are on their way.

        What was waited for may depend on the futures that they are on, as that of `wait_all` does.
        """
        for _, event, source in [*self._flying.values()]:
            if source.done():
                self._end(event, source)

    def _begin_wait(self, event: Open | Batch) -> int | None:
        try:
            return event.recorder.begin("wait", parent=event.seq, provenance="called")
        except Exception as error:
            self._report(error)
            return None

    def _finish(
        self, event: Open | Batch, waiting: int | None, failure: BaseException | None, work: Any
    ) -> None:
        try:
            event.end(failure, work)
            if waiting is not None:
                status = "ok" if failure is None else "error"
                text = None if failure is None else text_of(failure)
                event.recorder.end(waiting, status=status, error=text)
        except Exception as error:
            self._report(error)


def _trace_nothing(*_: Any) -> None:
    """Stand where a frame's trace function does."""
