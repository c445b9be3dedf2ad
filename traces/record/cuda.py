"""What is written later: ends and states of operations that a GPU carries out.

    queued = Queued(Cuda())
    queued.copy_inputs(event, inputs)       # before the operation, on the stream current then
    event.end()                             # after the wait, on the stream that waits
    queued.poll()                           # writes what the GPU has done by now

A wait on a GPU operation makes a stream wait, not the program. What a tensor holds is therefore
copied on that same stream, into pinned memory, and an event behind the copy tells when it is there.
Nothing here makes the program wait for the GPU: records are written at later calls, or at the end.

While a CUDA graph is captured nothing is copied: a replay runs no Python, so none of it is seen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import torch

from ..schema import FULL_BYTES
from .recorder import Recorder
from .segments import Segment
from .summary import Picked, pick
from .under_way import Open

# Copies that may wait for the GPU at once, and operations looked at in one poll.
HELD_BYTES = 64 * 2**20
LOOKED_AT = 8
# The elapsed time between two events is a 32-bit float of milliseconds: the first must not be old.
FRESH_NS = 10_000_000_000
CAPTURED = (
    "operations were captured into a CUDA graph: they are recorded as captured, without values; "
    "replays are not recorded, because no Python runs in them"
)


class Device(Protocol):
    """What is asked of a kind of device; `Cuda` asks torch."""

    def has(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor lies on a device of this kind."""

    def is_capturing(self) -> bool:
        """Return whether this thread's current stream is being captured into a graph."""

    def mark(self, where: torch.device) -> Any:
        """Return an event that is recorded now on the current stream of a device."""

    def is_done(self, mark: Any) -> bool:
        """Return whether the device has passed an event."""

    def between_ns(self, earlier: Any, later: Any) -> int:
        """Return the time between two events that the device has passed."""

    def fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy in the CPU's memory, which is whole when a later event is done."""


class Cuda:
    """The CUDA devices of this process."""

    def has(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor lies on a GPU."""
        return tensor.is_cuda

    def is_capturing(self) -> bool:
        """Return whether this thread's current stream is being captured into a graph."""
        return bool(torch.cuda.is_current_stream_capturing())

    def mark(self, where: torch.device) -> Any:
        """Return a timed event that is recorded now on the current stream of a GPU."""
        make_event: Any = torch.cuda.Event
        found = make_event(enable_timing=True)
        found.record(torch.cuda.current_stream(where))
        return found

    def is_done(self, mark: Any) -> bool:
        """Return whether the GPU has passed an event."""
        return bool(mark.query())

    def between_ns(self, earlier: Any, later: Any) -> int:
        """Return the time between two events that the GPU has passed."""
        return int(earlier.elapsed_time(later) * 1e6)

    def fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy in pinned memory, on the current stream of the tensor's GPU."""
        room = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        with torch.cuda.device(tensor.device):
            return room.copy_(tensor, non_blocking=True)


def built_for() -> Device | None:
    """Return the kind of device that torch was built for; None for the CPU alone."""
    return None if torch.version.cuda is None else Cuda()


class DeviceClock:
    """Turns events of one device into host time.

    The host records an event before the device passes it. So each event bounds from below when the
    first one was passed, and the highest bound, from a moment when the device was idle, is taken.

    Args:
        device: Tells the time between events.
        first: The first event.
        marked_ns: Host time before it was recorded.
    """

    def __init__(self, device: Device, first: Any, marked_ns: int) -> None:
        self._device = device
        self.first = first
        self._first_ns = marked_ns

    def host_ns(self, mark: Any, marked_ns: int) -> int:
        """Return when an event was passed, in host time.

        Args:
            mark: An event that the device has passed, as it has the first one.
            marked_ns: Host time before it was recorded.
        """
        passed = self._device.between_ns(self.first, mark)
        self._first_ns = max(self._first_ns, marked_ns - passed)
        found = self._first_ns + passed
        if passed > FRESH_NS:
            self.first, self._first_ns = mark, found
        return found


class _State(NamedTuple):
    """A tensor's description, and the copy of its values; None where none was made."""

    number: int
    copied: torch.Tensor | Picked | None


class _Later(NamedTuple):
    """A record that is written when the device has passed an event.

    Attributes:
        event: The operation.
        segment: File in which its tensors are described.
        role: Of its tensors.
        states: Of its inputs or outputs.
        over: Event at the end of the operation; None for inputs.
        marked_ns: Host time before that event.
        last: Event behind the copies.
        clock: Of the device.
        sender: Columns that are known only now.
        size: Bytes of the copies.
    """

    event: OnDevice
    segment: Segment
    role: bytes
    states: list[_State]
    over: Any
    marked_ns: int
    last: Any
    clock: DeviceClock
    sender: bytes
    size: int


class OnDevice(Open):
    """An operation that a device carries out: its end is written when the device is there.

    Attributes:
        queue: Where the end waits.
        where: The device.
    """

    __slots__ = ("queue", "where")
    queue: Queued
    where: torch.device
    is_queued = True

    def _write(self, ended: int, sender: bytes, outputs: Any) -> None:
        self.queue.add_end(self, ended, sender, outputs)


class Captured(Open):
    """An operation that goes into a graph: it is not carried out now."""

    __slots__ = ()
    ends_at_once = True


class Queued:
    """What waits for the devices of this process.

    Args:
        device: The kind of device.
        report: Called with a bug of ours, which must not reach the user.
    """

    def __init__(self, device: Device, report: Callable[[BaseException], None]) -> None:
        self.device = device
        self._report = report
        self._lock = threading.RLock()
        self._waiting: list[_Later] = []
        self._held_bytes = 0
        self._clocks: dict[torch.device, DeviceClock] = {}
        self._noted: list[Recorder] = []

    def kind(self, recorder: Recorder, tensor: torch.Tensor) -> type[Open]:
        """Return how an operation on a tensor ends; what goes into a graph is noted once."""
        if not self.device.has(tensor):
            return Open
        if not self.device.is_capturing():
            return OnDevice
        if not any(recorder is other for other in self._noted):
            self._noted.append(recorder)
            recorder.note(CAPTURED)
        return Captured

    def take(
        self, event: OnDevice, where: torch.device, role: bytes, inputs: Iterable[torch.Tensor]
    ) -> None:
        """Copy what an operation is about to read, on the stream that is current.

        Args:
            event: The operation, whose begin is written.
            where: The device.
            role: Of the tensors.
            inputs: What it reads.
        """
        event.queue, event.where = self, where
        self.poll()
        marked = time.monotonic_ns()
        segment = event.recorder.segment
        states, size = self._copies(segment, event.recorder, inputs)
        if not size:
            _write_inputs(event, segment, role, states)
            return
        mark = self.device.mark(event.where)
        clock = self._clock(event.where, mark, marked)
        later = _Later(event, segment, role, states, None, marked, mark, clock, b"", size)
        self._add(later)

    def add_end(self, event: OnDevice, marked_ns: int, sender: bytes, outputs: Any) -> None:
        """Copy what an operation has written, and write its end when the device is there.

        Args:
            event: The operation, which the current stream waits for.
            marked_ns: Now.
            sender: Columns that are known only now.
            outputs: What it wrote.
        """
        if self.device.is_capturing():  # an event would become a part of the graph
            Open._write(event, marked_ns, sender, outputs)
            return
        over = self.device.mark(event.where)
        clock = self._clock(event.where, over, marked_ns)
        segment = event.recorder.segment
        states, size = self._copies(segment, event.recorder, outputs)
        last = self.device.mark(event.where) if size else over
        later = _Later(
            event, segment, event.role, states, over, marked_ns, last, clock, sender, size
        )
        self._add(later)

    def poll(self) -> None:
        """Write what the devices have done by now; never waits."""
        if not self._waiting:
            return
        try:
            with self._lock:
                left = 0
                for later in list(self._waiting):
                    if self._is_done(later):
                        self._waiting.remove(later)
                        self._held_bytes -= later.size
                        self._write(later)
                    else:
                        left += 1
                        if left >= LOOKED_AT:
                            return
        except Exception as error:  # the device failed: nothing more is known of it
            self.forget()
            self._report(error)

    def settle(self, recorder: Recorder, patience_s: float) -> None:
        """Write what the devices do within a time; what they do not stays open, without values.

        Args:
            recorder: Whose operations.
            patience_s: How long to wait.
        """
        until = time.monotonic() + patience_s
        while self._of(recorder) and time.monotonic() < until:
            self.poll()
            time.sleep(0.0005)
        with self._lock:
            for later in self._of(recorder):
                self._waiting.remove(later)
                self._held_bytes -= later.size
                if later.over is None:
                    empty = [state._replace(copied=None) for state in later.states]
                    _write_inputs(later.event, later.segment, later.role, empty)

    def _of(self, recorder: Recorder) -> list[_Later]:
        return [later for later in list(self._waiting) if later.event.recorder is recorder]

    def forget(self) -> None:
        """Forget everything: a forked child has none of its parent's operations."""
        self._waiting.clear()
        self._clocks.clear()
        self._held_bytes = 0

    def _add(self, later: _Later) -> None:
        with self._lock:
            self._held_bytes += later.size
            self._waiting.append(later)

    def _is_done(self, later: _Later) -> bool:
        return self.device.is_done(later.last) and self.device.is_done(later.clock.first)

    def _clock(self, where: torch.device, mark: Any, marked_ns: int) -> DeviceClock:
        found = self._clocks.get(where)
        if found is None:
            found = self._clocks[where] = DeviceClock(self.device, mark, marked_ns)
        return found

    def _copies(
        self, segment: Segment, recorder: Recorder, tensors: Iterable[torch.Tensor]
    ) -> tuple[list[_State], int]:
        """Return the states of tensors, with copies on the way, and the bytes of these."""
        keeps = recorder.options.state in ("sample", "full")
        states, total = [], 0
        for tensor in tensors:
            number = segment.states.describe(tensor)
            copied = None
            is_dense = tensor.layout is torch.strided and not tensor.is_nested
            if keeps and is_dense and self._held_bytes + total < HELD_BYTES:
                copied = self._copy(tensor)
                total += _size(copied)
            states.append(_State(number, copied))
        return states, total

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor | Picked:
        # Neither autograd nor a dispatch mode of the program may see what is computed here.
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            if tensor.nbytes <= FULL_BYTES:
                dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
                return self.device.fetch(dense)
            values, first, stride = pick(tensor)
            return Picked(self.device.fetch(values), self.device.fetch(first), stride)

    def _write(self, later: _Later) -> None:
        event, segment = later.event, later.segment
        if later.over is None:
            _write_inputs(event, segment, later.role, later.states)
            return
        ended = later.clock.host_ns(later.over, later.marked_ns)
        states = _fragments(segment, b"after", later.role, later.states)
        segment.writer.write(
            b'{"r":"end","seq":%d,"t":%d%b,"s":[%b]}\n' % (event.seq, ended, later.sender, states)
        )


def _write_inputs(event: OnDevice, segment: Segment, role: bytes, states: list[_State]) -> None:
    fragments = _fragments(segment, b"before", role, states)
    if fragments:
        segment.writer.write(b'{"r":"state","seq":%d,"s":[%b]}\n' % (event.seq, fragments))


def _fragments(segment: Segment, when: bytes, role: bytes, states: list[_State]) -> bytes:
    return b",".join(
        b'["%b","%b",%d,%d,%b]' % (when, role, index, number, _value(segment, copied))
        for index, (number, copied) in enumerate(states)
    )


def _value(segment: Segment, copied: torch.Tensor | Picked | None) -> bytes:
    return b"null" if copied is None else segment.states.value(copied)


def _size(copied: torch.Tensor | Picked) -> int:
    if isinstance(copied, Picked):
        return copied.values.nbytes + copied.first.nbytes
    return copied.nbytes
