"""The programs under the launcher: followed, told of signals, and stopped together.

    with collected_signals() as signals:
        children = [Child(subprocess.Popen(command))]
        code = follow(children, signals)

One loop waits for everything at once: ends, output and signals. So a signal is acted upon whenever
it comes, also just before the loop goes to sleep.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

from .rank_output import RankOutput

FOLLOW_S = 3.0  # after one rank has failed, the others get this long to fail by themselves,
GRACE_S = 5.0  # and after SIGTERM this long before SIGKILL
LINGER_S = 0.2  # when all have ended, output of processes below them is waited for this long
SLICE_S = 0.05  # between looks at the children, where the system cannot wake us at their ends
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Child:
    """A program under the launcher.

    Attributes:
        process: The program; where its stdout and stderr are pipes, they are passed on.
        rank: Its rank, where the launcher gave it one.
    """

    process: subprocess.Popen[bytes]
    rank: int | None = None


@contextmanager
def collected_signals() -> Iterator[socket.socket | None]:
    """Collect Ctrl-C, SIGTERM and SIGHUP for `follow`, in place of being ended by them.

    Yields:
        A socket from which their numbers can be read, a byte each; None outside of the main thread,
        where signals are somebody else's.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        try:
            before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        except ValueError:
            yield None
            return
        handlers = {number: signal.signal(number, lambda *_: None) for number in _PASSED_ON}
        try:
            yield ours
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)


def follow(
    children: Sequence[Child],
    signals: socket.socket | None,
    *,
    ended: Callable[[Child, int], None] = lambda child, code: None,
    say: Callable[[str], None] = lambda text: None,
) -> int:
    """Wait until all children have ended, and return the exit code of the first that failed.

    When one fails, the others get a moment to fail by themselves, then SIGTERM, then SIGKILL.

    Args:
        children: The programs.
        signals: What `collected_signals` yielded.
        ended: Called with each child that has ended and its exit code, -n for signal n.
        say: Called with a sentence for the user.

    Returns:
        The exit code; 0 where none failed, -n for signal n.
    """
    following = _Following(children, signals, ended, say)
    try:
        return following.run()
    finally:
        following.close()


class _Following:
    """What `follow` knows while it goes round."""

    def __init__(
        self,
        children: Sequence[Child],
        signals: socket.socket | None,
        ended: Callable[[Child, int], None],
        say: Callable[[str], None],
    ) -> None:
        self._running = list(children)
        self._ended = ended
        self._say = say
        self._code = 0
        self._stops: list[tuple[float, signal.Signals]] = []  # when the others get which signal
        self._selector = selectors.DefaultSelector()
        self._ends: dict[int, int] = {}  # by pid, descriptors that become readable at its end
        self._outputs: dict[IO[bytes], RankOutput] = {}
        if signals is not None:
            self._on_readable(signals, lambda: self._pass_on(signals.recv(4096)))
        for child in children:
            self._watch(child)

    def run(self) -> int:
        """Go round until all have ended."""
        while self._running:
            self._turn(self._patience_s())
            self._reap()
            self._stop_others()
        deadline = time.monotonic() + LINGER_S
        while self._outputs and (left := deadline - time.monotonic()) > 0:
            self._turn(left)
        return self._code

    def close(self) -> None:
        """Let go of everything; what still runs, after an error of ours, is killed."""
        for child in self._running:
            child.process.kill()
            child.process.wait()
        for stream in list(self._outputs):
            self._drop(stream)
        for descriptor in self._ends.values():
            os.close(descriptor)
        self._selector.close()

    def _watch(self, child: Child) -> None:
        pid = child.process.pid
        with suppress(OSError, AttributeError):
            self._ends[pid] = os.pidfd_open(pid)
            self._on_readable(self._ends[pid], lambda: None)
        for stream, target in ((child.process.stdout, 1), (child.process.stderr, 2)):
            if stream is not None:
                prefix = b"" if child.rank is None else b"[rank %d] " % child.rank
                self._outputs[stream] = RankOutput(stream.fileno(), target, prefix)
                self._on_readable(stream, partial(self._read, stream))

    def _on_readable(self, source: Any, action: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, action)

    def _turn(self, timeout_s: float | None) -> None:
        for key, _ in self._selector.select(timeout_s):
            key.data()

    def _patience_s(self) -> float | None:
        if len(self._ends) < len(self._running):
            return SLICE_S
        return max(0.0, self._stops[0][0] - time.monotonic()) if self._stops else None

    def _read(self, stream: IO[bytes]) -> None:
        try:
            is_open = self._outputs[stream].pump()
        except OSError:  # nobody reads our output: the rank learns it as it would without us
            is_open = False
        if not is_open:
            self._drop(stream)

    def _drop(self, stream: IO[bytes]) -> None:
        output = self._outputs.pop(stream)
        self._selector.unregister(stream)
        with suppress(OSError):
            output.finish()
        stream.close()

    def _reap(self) -> None:
        for child in list(self._running):
            code = child.process.poll()
            if code is None:
                continue
            self._running.remove(child)
            if descriptor := self._ends.pop(child.process.pid, None):
                self._selector.unregister(descriptor)
                os.close(descriptor)
            self._ended(child, code)
            if code != 0 and self._code == 0:
                self._code = code
                now = time.monotonic()
                self._stops = [
                    (now + FOLLOW_S, signal.SIGTERM),
                    (now + FOLLOW_S + GRACE_S, signal.SIGKILL),
                ]

    def _stop_others(self) -> None:
        """Send the signal whose time has come to those that still run."""
        while self._running and self._stops and self._stops[0][0] <= time.monotonic():
            _, number = self._stops.pop(0)
            if number == signal.SIGTERM:
                ranks = ", ".join(str(child.rank) for child in self._running)
                self._say(f"a rank has failed: stopping rank{'s' * (',' in ranks)} {ranks}")
            for child in self._running:
                child.process.send_signal(number)

    def _pass_on(self, numbers: bytes) -> None:
        for number in numbers:
            # A terminal sends Ctrl-C to all of its foreground, the children among them.
            if number in _PASSED_ON and not (number == signal.SIGINT and _is_foreground()):
                for child in self._running:
                    child.process.send_signal(number)


def _is_foreground() -> bool:
    """Return whether a terminal's Ctrl-C reaches our process group."""
    try:
        return sys.stdin is not None and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False
