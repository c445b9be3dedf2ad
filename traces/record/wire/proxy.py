"""The tap's own process: pairs of ranks connect through it, and it writes down what they say.

    python -m chunkscope.traces.record.wire.proxy FOLDER RUN WIRE CONTROL

Ranks ask at the unix socket CONTROL for a place to connect to in the stead of another rank. The
process is told to end by the end of its standard input, and does when no connection is left;
SIGTERM ends it at once. Either way what it saw is on disk first.
"""

from __future__ import annotations

import contextlib
import json
import resource
import selectors
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from .log import FLUSH_S, WireLog
from .messages import Ends, Keep, Link
from .relay import Relay

LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
STACK_BYTES = 1 << 18


class Proxy:
    """Listens for ranks, and has threads relay.

    Args:
        log: The file of records.
        keep: What to keep of payloads.
        control: Path of the unix socket where ranks ask.
    """

    def __init__(self, log: WireLog, keep: Keep, control: str) -> None:
        self._log = log
        self._keep = keep
        self._links: set[Link] = set()
        self._lock = threading.Lock()
        self._is_stopped = False
        self._is_left = False
        self._selector = selectors.DefaultSelector()
        asked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        asked.bind(control)
        asked.listen(512)
        self._selector.register(asked, selectors.EVENT_READ, lambda: self._ask(asked))
        self._selector.register(0, selectors.EVENT_READ, self._leave)
        woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._selector.register(woken, selectors.EVENT_READ, lambda: woken.recv(4096))

    def run(self) -> None:
        """Serve until told to end."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while not (self._is_stopped or (self._is_left and not self._links)):
            for key, _ in self._selector.select(FLUSH_S):
                key.data()
            self._log.flush()
        with self._lock:
            for link in self._links:
                link.close()
        self._log.close()

    def _stop(self, number: int, frame: object) -> None:
        self._is_stopped = True

    def _leave(self) -> None:
        self._is_left = True
        self._selector.unregister(0)

    def _ask(self, asked: socket.socket) -> None:
        """Answer a rank that wants to connect to another one."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            connection, _ = asked.accept()
            with connection, connection.makefile("rwb") as file:
                connection.settimeout(5.0)
                request = json.loads(file.readline())
                file.write(json.dumps({"port": self._listen(request)}).encode() + b"\n")

    def _listen(self, request: dict[str, Any]) -> int:
        """Open a listener for one pair, and return its port."""
        family = socket.AddressFamily(request["family"])
        ranks = tuple(request["ranks"])
        number = self._log.group(ranks, request["ordinal"], request["label"])
        ends = Ends(number, (request["me"], request["peer"]), request["attempt"])
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind((LOOPBACK[family], 0))
        listener.listen(8)

        def accept() -> None:
            self._selector.unregister(listener)
            with listener:
                accepted, _ = listener.accept()
            self._relay(
                Relay(
                    accepted, family, tuple(request["address"]), Link(self._log, ends, self._keep)
                )
            )

        self._selector.register(listener, selectors.EVENT_READ, accept)
        port: int = listener.getsockname()[1]
        return port

    def _relay(self, relay: Relay) -> None:
        """Serve a connection in a thread of its own."""

        def run() -> None:
            try:
                relay.run()
            finally:
                with self._lock:
                    self._links.discard(relay.link)
                with contextlib.suppress(OSError):
                    self._wake.send(b".")

        self._links.add(relay.link)
        threading.Thread(target=run, daemon=True).start()


def main(argv: list[str]) -> None:
    """Run the tap's process."""
    folder, run, wire, control = argv
    threading.stack_size(STACK_BYTES)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    Proxy(WireLog(Path(folder), run), Keep.of(wire), control).run()


if __name__ == "__main__":
    main(sys.argv[1:])
