"""When an operation is over: waits, futures and the end of the process.

A c10d operation returns a Work. What observes its end depends on who holds it:

* Python's own functions wait for it at once, or hand it to the user, who waits: `Work.wait` is
  replaced by one that writes the end. The Work is kept, so that pybind gives the user that object.
* Python may wait for the Work's future as well: `Future.wait` is replaced likewise.
* C++ waits without Python. Where the Work has a future, a callback writes the end. DDP's reducer
  waits for the future itself, which lets the waiter go before callbacks run: it gets a Work whose
  future comes after ours.
* Nobody waits: a callback may still come, else the event stays open.

A future's callback that is pending when Python shuts down would abort the process, so the exit
waits for those, for a limited time.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from .recorder import GroupInfo, Recorder

# Works kept at once for users who never wait; the oldest are let go.
KEPT = 4096
DRAIN_S = 5.0


class Open:
    """An operation whose end has not been written."""

    __slots__ = (
        "_is_open",
        "info",
        "is_async",
        "outputs",
        "recorder",
        "role",
        "seq",
        "tag",
        "work",
    )

    def __init__(
        self, recorder: Recorder, seq: int, outputs: Any, role: bytes, is_async: bool
    ) -> None:
        self.info: GroupInfo | None = None  # where the sender is unknown
        self.tag: int | None = None
        self.recorder = recorder
        self.seq = seq
        self.outputs = outputs
        self.role = role
        self.is_async = is_async
        self.work: Any = None
        self._is_open = [True]

    @property
    def is_open(self) -> bool:
        """Whether the end is still to be written."""
        return bool(self._is_open)

    def end(self, error: BaseException | None = None) -> None:
        """Write the end, with what the outputs hold now; a second time does nothing."""
        ended = time.monotonic_ns()
        try:
            self._is_open.pop()  # one of two threads gets it
        except IndexError:
            return
        outputs, self.outputs = self.outputs, ()
        if error is not None:
            self.recorder.end(self.seq, t_end_ns=ended, status="error", error=text_of(error))
            return
        segment = self.recorder.segment
        states = segment.states.list(b"after", self.role, outputs)
        sender = b"" if self.info is None else self._sender(self.info)
        segment.writer.write(
            b'{"r":"end","seq":%d,"t":%d%b,"s":[%b]}\n' % (self.seq, ended, sender, states)
        )

    def _sender(self, info: GroupInfo) -> bytes:
        """Return who sent what came from anybody, as columns that are known only now."""
        peer = self.work._source_rank()
        if not 0 <= peer < len(info.ranks):
            return b""
        number = self.recorder.number_message(info.number, peer, self.tag)
        return b',"set":{"peer":%d,"peer_group_rank":%d%b}' % (info.ranks[peer], peer, number)


class Works:
    """The operations under way in this process.

    Args:
        report: Called with a bug of ours, which must not reach the user.
    """

    def __init__(self, report: Callable[[BaseException], None]) -> None:
        self._report = report
        self._kept: dict[int, Open] = {}
        # Callbacks that torch still holds. Once one is gone, its thread is done with Python for
        # good: `discard` runs no bytecode, in which the thread could lose the interpreter.
        self._flying: set[weakref.ref[Any]] = set()
        self._futures: dict[int, tuple[Any, Open]] = {}
        self._replaced: list[tuple[Any, str, Any]] = []

    def patch(self) -> None:
        """Replace `Work.wait`, `Work.get_future` and `Future.wait`."""
        work: Any = torch._C._distributed_c10d.Work
        for owner in (work, *work.__subclasses__()):
            if "wait" in vars(owner):
                self._replace(owner, "wait", self._wait(owner.wait))
            if "get_future" in vars(owner):
                self._replace(owner, "get_future", self._get_future(owner.get_future))
        self._replace(torch._C.Future, "wait", self._future_wait(torch._C.Future.wait))

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
        kept, guarded = self._kept, self._wait_and_record

        def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
            event = kept.pop(id(self), None)
            if event is None:
                return original(self, *args, **kwargs)
            return guarded(event, original, args, kwargs)

        return wait

    def _get_future(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_future(self_: Any) -> Any:
            future = original(self_)
            event = self._kept.get(id(self_))
            if event is not None and event.is_open:
                if len(self._futures) >= KEPT:
                    self._futures.pop(next(iter(self._futures)), None)
                self._futures[id(future)] = (future, event)
            return future

        return get_future

    def _future_wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        futures = self._futures

        def wait(self_: Any) -> Any:
            result = original(self_)
            found = futures.pop(id(self_), None)
            if found is not None:
                self._finish(found[1], None, None)
            return result

        return wait

    def keep(self, event: Open) -> None:
        """Remember an operation until its Work is waited for."""
        if len(self._kept) >= KEPT:
            self._kept.pop(next(iter(self._kept)), None)
        self._kept[id(event.work)] = event

    def watch(self, event: Open) -> bool:
        """Write the end when the Work's future is done; return whether it has a future."""
        try:
            future = event.work.get_future()
        except RuntimeError:
            return False

        def done(future: Any) -> None:
            self._end(event, future)

        self._flying.add(weakref.ref(done, self._flying.discard))
        future.add_done_callback(done)
        return True

    def chain(self, event: Open) -> Any:
        """Return a boxed Work that is done after the end is written; None where that cannot be."""
        try:
            future = event.work.get_future()
        except RuntimeError:
            return None

        def done(future: Any) -> Any:
            self._end(event, future)
            return future.value()

        self._flying.add(weakref.ref(done, self._flying.discard))
        chained = future.then(done)
        c10d: Any = torch._C._distributed_c10d
        return c10d._create_work_from_future(chained).boxed()

    def has_open(self, recorder: Recorder) -> bool:
        """Return whether an operation of this recorder is still under way."""
        return any(e.recorder is recorder and e.is_open for e in [*self._kept.values()])

    def drain(self, limit_s: float = DRAIN_S) -> None:
        """Wait until torch has let go of all callbacks, but not for longer than the limit."""
        until = time.monotonic() + limit_s
        while self._flying and time.monotonic() < until:
            time.sleep(0.002)

    def forget(self) -> None:
        """Forget everything: a forked child has none of its parent's operations."""
        self._kept.clear()
        self._flying.clear()
        self._futures.clear()

    def _end(self, event: Open, future: Any) -> None:
        try:
            failure: BaseException | None = None
            try:
                future.value()
            except Exception as error:
                failure = error
            event.end(failure)
        except Exception as error:
            self._report(error)

    def _wait_and_record(self, event: Open, wait: Any, args: Any, kwargs: Any) -> Any:
        waiting = None
        try:
            if event.is_async:
                waiting = event.recorder.begin("wait", parent=event.seq, provenance="called")
        except Exception as error:
            self._report(error)
        try:
            result = wait(event.work, *args, **kwargs)
        except BaseException as failure:
            self._finish(event, waiting, failure)
            raise
        self._finish(event, waiting, None)
        return result

    def _finish(self, event: Open, waiting: int | None, failure: BaseException | None) -> None:
        try:
            event.end(failure)
            if waiting is not None:
                status = "ok" if failure is None else "error"
                text = None if failure is None else text_of(failure)
                event.recorder.end(waiting, status=status, error=text)
        except Exception as error:
            self._report(error)


def text_of(error: BaseException) -> str:
    """Return type and message of an error."""
    return f"{type(error).__name__}: {error}"
