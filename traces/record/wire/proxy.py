"""The tap's own process: pairs of ranks connect through it, and it writes down what they say.

    python -m chunkscope.traces.record.wire.proxy FOLDER RUN WIRE CONTROL

Ranks ask at the unix socket CONTROL for a place to connect to in the stead of another rank. The
process is told to end by the end of its standard input, and does when no connection is left;
SIGTERM ends it at once. Either way what it saw is on disk first.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import selectors
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from .log import FLUSH_S, WireLog
from .messages import Ends, Keep, Link
from .relay import Relay

LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
STACK_BYTES = 1 << 18
SPARE_FILES = 32  # for the rest of the process
PAUSE_S = 0.05  # where the system gives nothing more, before it is asked again


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
        self._listeners = 0
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
        try:
            connection, _ = asked.accept()
        except OSError as error:
            say_limit(error)
            time.sleep(PAUSE_S)
            return
        with contextlib.suppress(OSError), connection, connection.makefile("rwb") as file:
            connection.settimeout(5.0)
            try:
                answer: dict[str, Any] = {"port": self._listen(json.loads(file.readline()))}
            except OSError as error:
                say_limit(error)
                answer = {"trouble": reason(error)}
            except (ValueError, KeyError, TypeError) as error:
                answer = {"trouble": f"the tap does not understand: {error!r}"}
            file.write(json.dumps(answer).encode() + b"\n")

    def _listen(self, request: dict[str, Any]) -> int:
        """Open a listener for one pair, and return its port."""
        if not has_room(self._listeners + len(self._links), self._keep):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        family = socket.AddressFamily(request["family"])
        ranks = tuple(request["ranks"])
        number = self._log.group(ranks, request["ordinal"], request["label"])
        ends = Ends(number, (request["me"], request["peer"]), request["attempt"])
        listener = socket.create_server((LOOPBACK[family], 0), family=family, backlog=8)

        def accept() -> None:
            try:
                accepted, _ = listener.accept()
            except OSError as error:  # the rank stays in the queue: there may be room later
                say_limit(error)
                time.sleep(PAUSE_S)
                return
            self._selector.unregister(listener)
            listener.close()
            self._listeners -= 1
            self._relay(
                Relay(
                    accepted, family, tuple(request["address"]), Link(self._log, ends, self._keep)
                )
            )

        self._selector.register(listener, selectors.EVENT_READ, accept)
        self._listeners += 1
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
        try:
            threading.Thread(target=run, daemon=True).start()
        except RuntimeError as error:
            self._links.discard(relay.link)
            relay.refuse()
            say_limit(error)


def has_room(pairs: int, keep: Keep) -> bool:
    """Return whether the system's limit of open files leaves room for one more pair.

    A pair that is promised is served: without a place its ranks would wait. One that is refused
    connects untapped.

    Args:
        pairs: Pairs that connect, or were told where to.
        keep: What to keep of payloads; where they may go by unseen, a pair has two pipes.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return True
    return (pairs + 1) * (2 if keep.looks_at_all else 6) + SPARE_FILES <= most


def say_limit(error: Exception) -> None:
    """Say for the launcher to pass on that the system gives us no more."""
    sys.stderr.write(f"the wire tap cannot take a connection: {reason(error)}\n")
    sys.stderr.flush()


def reason(error: Exception) -> str:
    """Return why something failed, and what to do about it where that is known."""
    text = getattr(error, "strerror", None) or str(error)
    if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
        return f"{text}; raise the limit (ulimit -n)"
    return text


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
