"""A connection through the tap: what comes in at one side goes out at the other, byte for byte.

One thread serves each direction. It waits for bytes, passes them on and looks at them; while its
receiver is slow it does not read, so that the sender feels it. Bytes that nobody looks at pass
through a pipe inside the kernel, uncopied.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import sys
import threading
import time
from typing import Any

from .decoder import HELLO_BYTES, Decoder
from .messages import Link

BUFFER_BYTES = 1 << 18
# Payloads of which more than this is left go through a pipe, where nobody looks at them.
SPLICE_BYTES = 1 << 14
PIPE_BYTES = 1 << 20
DIAL_AGAIN_S = 0.1
DIAL_FOR_S = 30.0
REFUSED_TRIES = 3  # after the first one, as gloo has it
_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 1031)
_RESET = struct.pack("ii", 1, 0)


class Relay:
    """A connection through the tap.

    Args:
        accepted: The side that connected to us.
        family: Address family of the side that it meant.
        address: That side's address.
        link: Told of the messages.
    """

    def __init__(
        self, accepted: socket.socket, family: int, address: tuple[Any, ...], link: Link
    ) -> None:
        self._accepted = accepted
        self._family = family
        self._address = address
        self.link = link

    def run(self) -> None:
        """Connect to the other side, and pass bytes on until both sides are done."""
        with self._accepted as accepted:
            dialled = self._dial()
            if dialled is None:
                self.refuse()
                return
            with dialled:
                for connection in (accepted, dialled):
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                forth = Flow(accepted, dialled, self.link, 0)
                back = Flow(dialled, accepted, self.link, 1)
                thread = threading.Thread(target=back.run, daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no more threads
                    self.refuse()
                    raise
                forth.run()
                thread.join()
        self.link.close()

    def refuse(self) -> None:
        """Break the connection of the side that connected to us."""
        with self._accepted as accepted, contextlib.suppress(OSError):
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def _dial(self) -> socket.socket | None:
        """Return a connection to the other side, tried again for a while, as gloo itself does.

        A rank listens before it tells its address, so where nobody does it is gone; an address
        left over from before a job's restart is such a one.
        """
        deadline, refused = time.monotonic() + DIAL_FOR_S, 0
        while True:
            dialled = None
            try:
                dialled = socket.socket(self._family, socket.SOCK_STREAM)
                dialled.connect(self._address)
                return dialled
            except OSError as error:
                if dialled is not None:
                    dialled.close()
                refused += isinstance(error, ConnectionRefusedError)
                if refused > REFUSED_TRIES or time.monotonic() > deadline:
                    where = f"{self._address[0]} port {self._address[1]}"
                    sys.stderr.write(f"the wire tap cannot reach a rank at {where}: {error}\n")
                    sys.stderr.flush()
                    return None
                time.sleep(DIAL_AGAIN_S)


class Flow:
    """One direction of a connection.

    Args:
        source: Where bytes come from.
        target: Where they go to.
        link: Told of the messages.
        side: The side of the link that sends, 0 where that is the one that connected.
    """

    def __init__(self, source: socket.socket, target: socket.socket, link: Link, side: int) -> None:
        self._source = source
        self._target = target
        self._link = link
        self._side = side
        self._decoder = Decoder(link, side, 0 if side else HELLO_BYTES)
        size = BUFFER_BYTES if link.keep.looks_at_all else SPLICE_BYTES
        self._buffer = memoryview(bytearray(size))
        self._pipe: Pipe | None = None
        self._has_splice = hasattr(os, "splice")

    def run(self) -> None:
        """Pass bytes on until there are no more."""
        try:
            while self._splice() if self._is_unseen() else self._copy():
                pass
            self._target.shutdown(socket.SHUT_WR)
        except OSError:
            self._break()
        if self._pipe is not None:
            self._pipe.close()

    def _is_unseen(self) -> bool:
        """Return whether what comes next is a long part of a payload that nobody looks at."""
        return (
            self._decoder.payload_left >= SPLICE_BYTES
            and not self._link.wants_payload(self._side)
            and self._has_splice
        )

    def _copy(self) -> bool:
        """Pass on what comes next, and return whether there was anything."""
        size = self._source.recv_into(self._buffer)
        now_ns = time.monotonic_ns()
        data = self._buffer[:size]
        self._target.sendall(data)
        try:
            self._decoder.feed(data, now_ns)
        except Exception as error:  # the program's bytes go on, whatever we make of them
            self._decoder.give_up()
            sys.stderr.write(f"the wire tap no longer follows a connection: {error!r}\n")
        return size > 0

    def _splice(self) -> bool:
        """Let the kernel pass on what comes next, and return whether there was anything."""
        if self._pipe is None:
            try:
                self._pipe = Pipe()
            except OSError:  # no more descriptors: it goes on without
                self._has_splice = False
                return self._copy()
        size = self._pipe.fill(self._source, self._decoder.payload_left)
        now_ns = time.monotonic_ns()
        if not size:
            return False
        self._pipe.drain(self._target, size)
        self._decoder.skip(size, now_ns)
        return True

    def _break(self) -> None:
        """Pass on that a side broke the connection; the other direction's thread ends, too."""
        for connection in (self._source, self._target):
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                connection.shutdown(socket.SHUT_RDWR)


class Pipe:
    """A buffer of the kernel's that takes bytes from a socket and gives them to another."""

    def __init__(self) -> None:
        self._exit, self._entry = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._entry, _F_SETPIPE_SZ, PIPE_BYTES)

    def fill(self, source: socket.socket, size: int) -> int:
        """Take up to so many bytes, and return how many; 0 at the end of the stream."""
        return os.splice(source.fileno(), self._entry, min(size, PIPE_BYTES))

    def drain(self, target: socket.socket, size: int) -> None:
        """Give so many bytes."""
        while size:
            size -= os.splice(self._exit, target.fileno(), size)

    def close(self) -> None:
        """Give the kernel back its buffer."""
        os.close(self._exit)
        os.close(self._entry)
