"""Operations whose end has not been written: one alone, or a batch that has one Work."""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

from .group_records import GroupInfo
from .recorder import Recorder


class Open:
    """An operation whose end has not been written.

    Attributes:
        is_queued: Whether a device carries it out: a wait makes a stream wait, not the program.
        ends_at_once: Whether its end is written as soon as it has been asked for.
    """

    is_queued: ClassVar[bool] = False
    ends_at_once: ClassVar[bool] = False
    __slots__ = (
        "_lock",
        "info",
        "is_async",
        "is_open",
        "outputs",
        "recorder",
        "ref",
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
        self.is_open = True
        self.work: Any = None  # held only while torch holds it, too
        self.ref: Any = None
        self._lock = threading.RLock()

    def end(self, error: BaseException | None = None, work: Any = None) -> None:
        """Write the end, with what the outputs hold now; a second time does nothing.

        Args:
            error: What it failed with.
            work: Its Work, where it is known.
        """
        ended = time.monotonic_ns()
        with self._lock:  # whoever comes second must not go on before the outputs are read
            if not self.is_open:
                return
            self.is_open = False
            outputs, self.outputs = self.outputs, ()
            held, self.work = self.work, None
            if error is not None:
                self.recorder.end(self.seq, t_end_ns=ended, status="error", error=text_of(error))
                return
            sender = b"" if self.info is None else self._sender(self.info, work or held)
            self._write(ended, sender, outputs)

    def _write(self, ended: int, sender: bytes, outputs: Any) -> None:
        segment = self.recorder.segment
        states = segment.states.list(b"after", self.role, outputs)
        segment.writer.write(
            b'{"r":"end","seq":%d,"t":%d%b,"s":[%b]}\n' % (self.seq, ended, sender, states)
        )

    def is_of(self, work: Any) -> bool:
        """Return whether this is the operation of a Work."""
        return self.work is work or (self.ref is not None and self.ref() is work)

    def _sender(self, info: GroupInfo, work: Any) -> bytes:
        """Return who sent what came from anybody, as columns that are known only now."""
        peer = work._source_rank()
        if not 0 <= peer < len(info.ranks):
            return b""
        number = self.recorder.number_message(info.number, peer, self.tag)
        return b',"set":{"peer":%d,"peer_group_rank":%d%b}' % (info.ranks[peer], peer, number)


class Batch:
    """Operations between the start and the end of coalescing, which have one Work together."""

    def __init__(self) -> None:
        self.first: int | None = None  # seq of the first operation
        self.events: list[Open] = []
        self.is_async = True
        self.work: Any = None
        self.ref: Any = None

    @property
    def seq(self) -> int:
        """Number of its first operation."""
        return self.events[0].seq

    @property
    def recorder(self) -> Recorder:
        """The recorder of its operations."""
        return self.events[0].recorder

    @property
    def is_queued(self) -> bool:
        """Whether its operations run on a stream, see `Open`."""
        return self.events[0].is_queued

    @property
    def is_open(self) -> bool:
        """Whether an end is still to be written."""
        return any(event.is_open for event in self.events)

    def end(self, error: BaseException | None = None, work: Any = None) -> None:
        """Write the end of each operation."""
        for event in self.events:
            event.end(error, work)
        self.work = None

    def is_of(self, work: Any) -> bool:
        """Return whether this is the batch of a Work."""
        return self.work is work or (self.ref is not None and self.ref() is work)


def text_of(error: BaseException) -> str:
    """Return type and message of an error."""
    return f"{type(error).__name__}: {error}"
