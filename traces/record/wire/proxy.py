"""The tap's own process: pairs of ranks connect through it, and it writes down what they say.

    python -m chunkscope.traces.record.wire.proxy FOLDER RUN WIRE CONTROL

Ranks ask at the unix socket CONTROL for a place to connect to in the stead of another rank. The
process is told to end by the end of its standard input, and does when no connection is left; SIGTERM
ends it at once. Either way what it saw is on disk first.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .log import WireLog
from .messages import Ends, Keep, Link
from .relay import Dial, Relay

LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


class Proxy:
    """Listens for ranks, and relays.

    Args:
        log: The file of records.
        keep: What to keep of payloads.
        control: Path of the unix socket where ranks ask.
    """

    def __init__(self, log: WireLog, keep: Keep, control: str) -> None:
        self._log = log
        self._keep = keep
        self._selector = selectors.DefaultSelector()
        self._dials: set[Dial] = set()
        self._links: set[Link] = set()
        self._is_over = False
        self._is_left = False
        asked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        asked.bind(control)
        asked.listen(512)
        asked.setblocking(False)
        self._selector.register(asked, selectors.EVENT_READ, lambda _: self._ask(asked))
        self._selector.register(sys.stdin.buffer.raw, selectors.EVENT_READ, self._leave)
        wake, self._wake = socket.socketpair()
        for end in (wake, self._wake):
            end.setblocking(False)
        self._selector.register(wake, selectors.EVENT_READ, lambda _: None)
        signal.set_wakeup_fd(self._wake.fileno())
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def run(self) -> None:
        """Serve until told to end."""
        while not self._is_over and not (self._is_left and not self._links and not self._dials):
            for key, events in self._selector.select(self._timeout()):
                key.data(events)
            now = time.monotonic()
            if self._log.flush_at is not None and now >= self._log.flush_at:
                self._log.flush()
            for dial in [d for d in self._dials if d.retry_at is not None and now >= d.retry_at]:
                dial.start()
        for link in self._links:
            link.close()
        self._log.close()

    def _timeout(self) -> float | None:
        times = [dial.retry_at for dial in self._dials if dial.retry_at is not None]
        if self._log.flush_at is not None:
            times.append(self._log.flush_at)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _stop(self, number: int, frame: object) -> None:
        self._is_over = True

    def _leave(self, events: int) -> None:
        self._is_left = True
        self._selector.unregister(sys.stdin.buffer.raw)

    def _ask(self, asked: socket.socket) -> None:
        """Answer a rank that wants to connect to another one."""
        try:
            connection, _ = asked.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError, ValueError, KeyError):
            connection.settimeout(5.0)
            with connection.makefile("rwb") as file:
                request = json.loads(file.readline())
                file.write(json.dumps({"port": self._listen(request)}).encode() + b"\n")

    def _listen(self, request: dict[str, Any]) -> int:
        """Open a listener for one pair, and return its port."""
        number = self._log.group(
            tuple(request["ranks"]), request["ordinal"], request.get("label", "")
        )
        ends = Ends(number, (request["me"], request["peer"]), request["attempt"])
        family = socket.AddressFamily(request["family"])
        address = tuple(request["address"])
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind((LOOPBACK[family], 0))
        listener.listen(8)
        listener.setblocking(False)

        def accept(_: int) -> None:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            self._selector.unregister(listener)
            listener.close()
            self._connect(accepted, family, address, ends)

        self._selector.register(listener, selectors.EVENT_READ, accept)
        port: int = listener.getsockname()[1]
        return port

    def _connect(
        self, accepted: socket.socket, family: int, address: tuple[Any, ...], ends: Ends
    ) -> None:
        link = Link(self._log, ends, self._keep)

        def made(accepted: socket.socket, dialled: socket.socket) -> None:
            self._dials.discard(dial)
            self._links.add(link)
            Relay(self._selector, accepted, dialled, link, lambda: self._links.discard(link))

        def failed() -> None:
            self._dials.discard(dial)

        dial = Dial(self._selector, accepted, family, address, made, failed)
        self._dials.add(dial)


def main(argv: list[str]) -> None:
    """Run the tap's process."""
    folder, run, wire, control = argv
    Proxy(WireLog(Path(folder), run), Keep.of(wire), control).run()


if __name__ == "__main__":
    main(sys.argv[1:])
