"""Gloo's TCP protocol, one direction of a connection at a time.

    decoder = Decoder(link, source=0, skip_bytes=8)
    decoder.feed(memoryview(received), now_ns)      # cut at any place

A direction is a plain sequence of operations: six native 64-bit numbers (bytes of all, opcode,
slot, offset, length, offset at the receiver), then the payload of a send. The side that connected
begins with eight bytes that say which pair it is. Gloo's wire format carries neither dtype, nor
reduce operator, nor where in the tensor a payload lies.

Source: gloo, transport/tcp/pair.h (struct Op).
"""

from __future__ import annotations

import struct
from typing import Protocol

PREAMBLE = struct.Struct("=6Q")
PREAMBLE_BYTES = PREAMBLE.size
HELLO_BYTES = 8
SEND_BUFFER, SEND_UNBOUND, SEND_READY, RECV_READY = range(4)


class Sink(Protocol):
    """What a decoder tells of."""

    def ready(self, source: int, opcode: int, slot: int, size: int, now_ns: int) -> None:
        """Side `source` says that it wants to send, or that it can receive, so many bytes."""

    def begin(self, source: int, slot: int, size: int, now_ns: int) -> None:
        """The payload of a send begins."""

    def payload(self, source: int, data: memoryview, now_ns: int) -> None:
        """A part of the payload; of each send all parts come before anything else."""

    def passed(self, source: int, size: int, now_ns: int) -> None:
        """A part of the payload went by unseen."""

    def end(self, source: int, now_ns: int) -> None:
        """The payload of a send is complete."""


class Decoder:
    """Finds the operations in the bytes of one direction.

    Args:
        sink: Told of what is found.
        source: The side that sends these bytes, 0 or 1.
        skip_bytes: Bytes at the beginning that are no operation.

    Attributes:
        payload_left: Bytes of the current payload that are still to come.
        is_lost: Whether the bytes are not gloo's protocol as we know it; the rest is skipped.
    """

    def __init__(self, sink: Sink, source: int, skip_bytes: int = 0) -> None:
        self.sink = sink
        self.source = source
        self.payload_left = 0
        self.is_lost = False
        self._skip = skip_bytes
        self._partial = b""

    def feed(self, data: memoryview, now_ns: int) -> None:
        """Take the next bytes, received at a time of `time.monotonic_ns`."""
        at, size = min(self._skip, len(data)), len(data)
        self._skip -= at
        while at < size and not self.is_lost:
            if self.payload_left:
                take = min(self.payload_left, size - at)
                self.sink.payload(self.source, data[at : at + take], now_ns)
                at += take
                self._advance(take, now_ns)
            elif not self._partial and size - at >= PREAMBLE_BYTES:
                self._operation(data[at : at + PREAMBLE_BYTES], now_ns)
                at += PREAMBLE_BYTES
            else:
                take = min(PREAMBLE_BYTES - len(self._partial), size - at)
                self._partial += bytes(data[at : at + take])
                at += take
                if len(self._partial) == PREAMBLE_BYTES:
                    whole, self._partial = self._partial, b""
                    self._operation(memoryview(whole), now_ns)

    def skip(self, size: int, now_ns: int) -> None:
        """Take so many bytes of the current payload that went by unseen."""
        self.sink.passed(self.source, size, now_ns)
        self._advance(size, now_ns)

    def give_up(self) -> None:
        """Look at nothing more."""
        self.is_lost = True
        self.payload_left = 0

    def _advance(self, size: int, now_ns: int) -> None:
        self.payload_left -= size
        if not self.payload_left:
            self.sink.end(self.source, now_ns)

    def _operation(self, preamble: memoryview, now_ns: int) -> None:
        whole, opcode, slot, _, length, _ = PREAMBLE.unpack(preamble)
        if opcode in (SEND_READY, RECV_READY) and whole == PREAMBLE_BYTES:
            self.sink.ready(self.source, opcode, slot, length, now_ns)
        elif opcode in (SEND_BUFFER, SEND_UNBOUND) and whole == PREAMBLE_BYTES + length:
            self.sink.begin(self.source, slot, length, now_ns)
            self.payload_left = length
            if not length:
                self.sink.end(self.source, now_ns)
        else:
            self.give_up()
