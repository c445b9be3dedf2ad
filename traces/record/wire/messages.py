"""From operations on a connection to messages: what was announced, asked for, and came.

A transfer is three operations: the source says that it is ready to send, the destination that it is
ready to receive, and then the payload goes. The k-th of each on a slot of a direction belong
together.
"""

from __future__ import annotations

import threading
import zlib
from typing import NamedTuple

from ...schema import FULL_BYTES
from .decoder import SEND_READY
from .log import WireLog

FIRST_BYTES = 64


class Ends(NamedTuple):
    """The two ends of a connection: group ranks by side, where side 0 connected."""

    group: int
    ranks: tuple[int, int]
    attempt: int


class Message:
    """A message under way; times are None where that was not seen."""

    __slots__ = (
        "at",
        "crc",
        "data",
        "end_ns",
        "is_lost",
        "recv_ns",
        "seen",
        "send_ns",
        "seq",
        "size",
        "slot",
        "source",
        "start_ns",
    )

    def __init__(self, source: int, slot: int, size: int) -> None:
        self.source = source
        self.slot = slot
        self.size = size
        self.send_ns: int | None = None
        self.recv_ns: int | None = None
        self.start_ns: int | None = None
        self.end_ns: int | None = None
        self.data = b""
        self.at: int | None = None
        self.is_lost = False  # a part of the payload could not be written
        self.crc: int | None = None
        self.seen = 0
        self.seq: int | None = None


class Keep(NamedTuple):
    """How much of a payload to keep.

    Attributes:
        whole_bytes: Payloads up to this size are kept whole; None for all.
        first_bytes: What is kept of the beginning of longer ones.
        digests: Whether the digest of longer ones is taken.
    """

    whole_bytes: int | None
    first_bytes: int
    digests: bool

    @staticmethod
    def of(wire: str) -> Keep:
        """Return what `Options.wire` says."""
        if wire == "whole":
            return Keep(None, 0, False)
        if wire == "digest":
            return Keep(FULL_BYTES, FIRST_BYTES, True)
        return Keep(int(wire), int(wire), False)

    @property
    def looks_at_all(self) -> bool:
        """Whether every byte of every payload is looked at."""
        return self.digests or self.whole_bytes is None

    def wants(self, size: int, seen: int) -> bool:
        """Return whether more of a payload must be looked at, of which so much was seen."""
        if self.looks_at_all or (self.whole_bytes is not None and size <= self.whole_bytes):
            return True
        return seen < self.first_bytes


class Link:
    """The messages of one connection, in both directions; a `decoder.Sink`.

    Args:
        log: Takes the messages that are over.
        ends: Who is connected.
        keep: What to keep of payloads.
    """

    def __init__(self, log: WireLog, ends: Ends, keep: Keep) -> None:
        self._log = log
        self._ends = ends
        self.keep = keep
        self._lock = threading.RLock()
        self._open: tuple[dict[int, list[Message]], ...] = ({}, {})
        self._current: list[Message | None] = [None, None]

    def ready(self, source: int, opcode: int, slot: int, size: int, now_ns: int) -> None:
        """Note when a message was announced or asked for."""
        with self._lock:
            if opcode == SEND_READY:
                message = self._next(source, slot, size, "send_ns")
                message.send_ns = now_ns
            else:
                message = self._next(1 - source, slot, size, "recv_ns")
                message.recv_ns = now_ns
            self._write_whole(message)

    def begin(self, source: int, slot: int, size: int, now_ns: int) -> None:
        """Note when a payload began."""
        with self._lock:
            message = self._next(source, slot, size, "start_ns")
            message.start_ns, message.size = now_ns, size
        self._current[source] = message
        if self.keep.whole_bytes is None and size > FULL_BYTES:
            message.at = self._log.reserve(size)

    def payload(self, source: int, data: memoryview, now_ns: int) -> None:
        """Keep of a part of a payload what is to be kept."""
        message = self._current[source]
        assert message is not None
        keep = self.keep
        if message.at is not None:
            message.is_lost |= not self._log.store(message.at + message.seen, data)
        elif keep.whole_bytes is None or message.size <= keep.whole_bytes:
            message.data += bytes(data)
        else:
            if message.seen < keep.first_bytes:
                message.data += bytes(data[: keep.first_bytes - message.seen])
            if keep.digests:
                message.crc = zlib.crc32(data, message.crc or 0)
        message.seen += len(data)

    def passed(self, source: int, size: int, now_ns: int) -> None:
        """Count what went by unseen."""
        message = self._current[source]
        assert message is not None
        message.seen += size

    def end(self, source: int, now_ns: int) -> None:
        """Write a message that is there."""
        message = self._current[source]
        assert message is not None
        self._current[source] = None
        with self._lock:
            message.end_ns = now_ns
            message.seq = self._log.number()
            self._write_whole(message)

    def wants_payload(self, source: int) -> bool:
        """Return whether the rest of a direction's current payload must be looked at."""
        message = self._current[source]
        return message is None or self.keep.wants(message.size, message.seen)

    def close(self) -> None:
        """Write the messages that never came whole."""
        with self._lock:
            for queues in self._open:
                for queue in queues.values():
                    for message in queue:
                        self._log.message(self._ends, message)
                queues.clear()

    def _next(self, source: int, slot: int, size: int, lacks: str) -> Message:
        """Return the first open message of a slot that lacks a time, or a new one."""
        queue = self._open[source].setdefault(slot, [])
        for message in queue:
            if getattr(message, lacks) is None:
                return message
        message = Message(source, slot, size)
        queue.append(message)
        return message

    def _write_whole(self, message: Message) -> None:
        """Write a message of which everything was seen.

        The directions have threads of their own: a payload may be seen before what asked for it.
        """
        if message.end_ns is None or message.send_ns is None or message.recv_ns is None:
            return
        queue = self._open[message.source][message.slot]
        queue.remove(message)
        if not queue:
            del self._open[message.source][message.slot]
        self._log.message(self._ends, message)
