"""Connections through the tap: what comes in at one side goes out at the other, byte for byte.

One thread serves all connections. A direction reads as much as there is, passes it on, and only
then looks at it; while its receiver is slow it stops reading, so that the sender feels it.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from .decoder import HELLO_BYTES, Decoder
from .messages import Link

BUFFER_BYTES = 1 << 20
DIAL_AGAIN_S = 0.1
DIAL_FOR_S = 30.0
_RESET = struct.pack("ii", 1, 0)


class Flow:
    """One direction of a connection.

    Args:
        relay: The connection.
        source: Where bytes come from.
        target: Where they go to.
        decoder: Looks at them.
    """

    def __init__(
        self, relay: Relay, source: socket.socket, target: socket.socket, decoder: Decoder
    ) -> None:
        self.relay = relay
        self.source = source
        self.target = target
        self.decoder = decoder
        self.pending = memoryview(b"")
        self.is_done = False

    def read(self, buffer: memoryview) -> None:
        """Pass on what has come."""
        try:
            size = self.source.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError:
            self.relay.reset()
            return
        now_ns = time.monotonic_ns()
        if not size:
            self.is_done = True
            self.relay.finish(self)
            return
        data = buffer[:size]
        try:
            sent = self.target.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.decoder.feed(data, now_ns)
            self.relay.reset()
            return
        if sent < size:
            self.pending = memoryview(bytes(data[sent:]))
            self.relay.update()
        self.decoder.feed(data, now_ns)

    def write(self) -> None:
        """Pass on what could not be before."""
        try:
            self.pending = self.pending[self.target.send(self.pending) :]
        except BlockingIOError:
            return
        except OSError:
            self.relay.reset()
            return
        if not self.pending:
            self.relay.update()


class Relay:
    """A connection through the tap.

    Args:
        selector: Tells when sockets are ready; the data of each is a function of the events.
        accepted: The side that connected to us.
        dialled: The side that it meant.
        link: Told of the messages.
        closed: Called when the connection is over.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        accepted: socket.socket,
        dialled: socket.socket,
        link: Link,
        closed: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._sockets = (accepted, dialled)
        self._link = link
        self._closed = closed
        self._is_open = True
        self._flows = (
            Flow(self, accepted, dialled, Decoder(link, 0, HELLO_BYTES)),
            Flow(self, dialled, accepted, Decoder(link, 1)),
        )
        self._watched = [0, 0]
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        for connection in self._sockets:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.update()

    def handle(self, side: int, events: int) -> None:
        """Serve one of the sockets."""
        if events & selectors.EVENT_WRITE and self._is_open:
            self._flows[1 - side].write()
        if events & selectors.EVENT_READ and self._is_open:
            self._flows[side].read(self._buffer)

    def update(self) -> None:
        """Watch each socket for what its two directions wait for."""
        for side, connection in enumerate(self._sockets):
            incoming, outgoing = self._flows[side], self._flows[1 - side]
            wanted = 0
            if not incoming.pending and not incoming.is_done:
                wanted |= selectors.EVENT_READ
            if outgoing.pending:
                wanted |= selectors.EVENT_WRITE
            if wanted == self._watched[side]:
                continue
            if not self._watched[side]:
                self._selector.register(connection, wanted, _handler(self, side))
            elif not wanted:
                self._selector.unregister(connection)
            else:
                self._selector.modify(connection, wanted, _handler(self, side))
            self._watched[side] = wanted

    def finish(self, flow: Flow) -> None:
        """Pass on that one side has nothing more to say."""
        with contextlib.suppress(OSError):
            flow.target.shutdown(socket.SHUT_WR)
        if all(other.is_done for other in self._flows):
            self._close()
        else:
            self.update()

    def reset(self) -> None:
        """Pass on that one side broke the connection."""
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._close()

    def _close(self) -> None:
        self._is_open = False
        for side, connection in enumerate(self._sockets):
            if self._watched[side]:
                self._selector.unregister(connection)
            connection.close()
        self._link.close()
        self._closed()


def _handler(relay: Relay, side: int) -> Callable[[int], None]:
    return lambda events: relay.handle(side, events)


class Dial:
    """A connection that is being made to where the accepted side meant to connect.

    It is tried again for a while, as gloo itself does.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        accepted: socket.socket,
        family: int,
        address: tuple[Any, ...],
        made: Callable[[socket.socket, socket.socket], None],
        failed: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._accepted = accepted
        self._family = family
        self._address = address
        self._made = made
        self._failed = failed
        self._deadline = time.monotonic() + DIAL_FOR_S
        self.retry_at: float | None = None
        self._dialled: socket.socket | None = None
        self.start()

    def start(self) -> None:
        """Begin to connect."""
        self.retry_at = None
        dialled = socket.socket(self._family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        dialled.setblocking(False)
        self._dialled = dialled
        dialled.connect_ex(self._address)
        self._selector.register(dialled, selectors.EVENT_WRITE, self._handle)

    def _handle(self, events: int) -> None:
        dialled = self._dialled
        assert dialled is not None
        self._selector.unregister(dialled)
        if dialled.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
            self._made(self._accepted, dialled)
            return
        dialled.close()
        if time.monotonic() < self._deadline:
            self.retry_at = time.monotonic() + DIAL_AGAIN_S
        else:
            self._accepted.close()
            self._failed()
