"""How the clocks of a job's hosts stand to each other, by messages over the group's store.

Processes of one host read one monotonic clock, so one process of each other host exchanges messages
with rank 0: when the group is made, then ever more seldom, and when it is destroyed. A message is
seen after it was sent, which bounds the difference from both sides. Nothing here waits for
another rank but in a thread of its own, for a limited time, and an exchange that does not come off
leaves the recording as it is.

Source: F. Cristian, Probabilistic clock synchronization, Distributed Computing 3 (1989).
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from .folder import host_name

PREFIX = "chunkscope/clock"
GIVE_UP_S = 60.0  # ranks that have not come by then are not recorded
POLL_S = 0.02  # between looks of rank 0 for a first message,
QUICK_S = 0.0001  # and while messages go to and fro
BURST_S = 0.03  # rank 0 looks out for the next message this long
FIRST_ROUNDS = 12
ROUNDS = 6
LONGEST_PAUSE_S = 60.0
REPLY_S = 0.5  # a message not answered by then is given up,
LAST_REPLY_S = 0.05  # and when the group is destroyed
SKIP_S = 0.2  # a number was drawn and no message came: its sender is gone
_begun = itertools.count()  # keys of one exchange must not be taken for those of the next


def clock_id() -> str:
    """Return what names this process's monotonic clock: equal where it is the same clock."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        namespace = os.readlink("/proc/self/ns/time")
    except OSError:
        return host_name()
    return f"{boot}/{namespace.strip('time:[]')}"


def may_span_hosts(store: Any, world_size: int, environ: Mapping[str, str]) -> bool:
    """Return whether ranks that share this store can be on several hosts.

    Args:
        store: The default group's store.
        world_size: Number of ranks.
        environ: Environment variables.
    """
    if world_size < 2:
        return False
    if environ.get("LOCAL_WORLD_SIZE") == environ.get("WORLD_SIZE") == str(world_size):
        return False
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host = str(getattr(store, "host", "localhost"))  # only TCP stores have one
    return not (host in ("localhost", "::1") or host.startswith("127."))


class Exchange:
    """This process's part in the exchange of a group's clocks.

    Args:
        store: A store that all ranks share, with keys of their own for this exchange.
        rank: This process's rank.
        world_size: Number of ranks.
        write: Called from another thread with each record.
        clock: Name of this process's clock.
        now: Reads it, in ns.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        world_size: int,
        write: Callable[[dict[str, Any]], None],
        *,
        clock: str | None = None,
        now: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._write = write
        self._clock = clock or clock_id()
        self._now = now
        self._is_ending = threading.Event()
        self._is_cancelled = False
        self._thread = threading.Thread(target=self._run, name="chunkscope clock", daemon=True)

    def start(self) -> None:
        """Begin; this returns at once."""
        self._thread.start()

    def finish(self, patience_s: float = 2 * LAST_REPLY_S) -> None:
        """Exchange once more, where that is possible, and end: the group is being destroyed."""
        self._is_ending.set()
        self._thread.join(patience_s)

    def cancel(self, patience_s: float = 0.5) -> None:
        """End without another exchange: rank 0 may be gone."""
        self._is_cancelled = True
        self.finish(patience_s)

    def _run(self) -> None:
        # Whatever fails here (rank 0 has gone, the store is closed) ends the exchange and no more.
        with suppress(Exception):
            n_here = self._store.add(f"at/{self._clock}", 1)
            if self._rank == 0:
                self._store.set("zero", self._clock)
                self._answer()
            elif n_here == 1:
                self._ask_now_and_then()
        del self._store  # the server that it may hold must not outlive the group

    def _answer(self) -> None:
        """Be rank 0: answer messages until the group is destroyed."""
        number, idle_since, begun = 1, time.monotonic(), time.monotonic()
        is_missing_since: float | None = None
        while not self._is_cancelled:
            if self._reply(number):
                number, idle_since, is_missing_since = number + 1, time.monotonic(), None
                continue
            idle_s = time.monotonic() - idle_since
            if idle_s < BURST_S:
                time.sleep(QUICK_S)
                continue
            if self._is_ending.is_set():
                return
            if number == 1 and self._is_alone(time.monotonic() - begun):
                return
            if self._store.add("drawn", 0) > number:
                is_missing_since = is_missing_since or time.monotonic()
                if time.monotonic() - is_missing_since > SKIP_S:
                    number, is_missing_since = number + 1, None
                continue
            if self._is_ending.wait(POLL_S):
                idle_since = time.monotonic()  # one more look out: the others end now, too

    def _is_alone(self, waited_s: float) -> bool:
        all_here = self._store.add(f"at/{self._clock}", 0) >= self._world_size
        return all_here or waited_s > GIVE_UP_S

    def _reply(self, number: int) -> bool:
        if not self._store.check([f"ping/{number}"]):
            return False
        seen = self._now()
        self._store.set(f"pong/{number}", f"{seen} {self._now()}")
        return True

    def _ask_now_and_then(self) -> None:
        """Be the first of another host: exchange messages with rank 0."""
        deadline = time.monotonic() + GIVE_UP_S
        while not self._store.check(["zero"]):
            if time.monotonic() > deadline or self._is_ending.wait(POLL_S):
                return
        zero = self._store.get("zero").decode()
        if zero == self._clock:
            return
        self._measure(zero, FIRST_ROUNDS, REPLY_S)
        pause_s = 1.0
        while not self._is_ending.wait(pause_s):
            self._measure(zero, ROUNDS, REPLY_S)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        if not self._is_cancelled:
            self._measure(zero, ROUNDS, LAST_REPLY_S)

    def _measure(self, zero: str, rounds: int, patience_s: float) -> None:
        """Exchange messages, and write how far rank 0's clock is before ours."""
        found: list[tuple[int, int]] = []
        while len(found) < rounds and (bounds := self._round(patience_s)) is not None:
            found.append(bounds)
        if not found or self._is_cancelled:
            return
        low, high = max(low for low, _ in found), min(high for _, high in found)
        record = {"r": "clock", "t": self._now(), "clock": self._clock, "to": zero}
        self._write({**record, "low": low, "high": high})

    def _round(self, patience_s: float) -> tuple[int, int] | None:
        """Send a message and await its answer; return bounds of the difference in ns."""
        number = self._store.add("drawn", 1)
        sent = self._now()
        self._store.set(f"ping/{number}", "")
        deadline = time.monotonic() + patience_s
        while not self._store.check([f"pong/{number}"]):
            if time.monotonic() > deadline or self._is_cancelled:
                return None
            time.sleep(QUICK_S)
        back = self._now()
        seen, replied = map(int, self._store.get(f"pong/{number}").decode().split())
        for key in (f"ping/{number}", f"pong/{number}"):
            self._store.delete_key(key)
        return replied - back, seen - sent


class Clocks:
    """The exchanges of this process, and what they have found.

    Args:
        write: Called with each record, from another thread.
    """

    def __init__(self, write: Callable[[dict[str, Any]], None]) -> None:
        self._write = write
        self._exchange: Exchange | None = None
        self.found: list[dict[str, Any]] = []

    def begin(self, store: Any, rank: int, world_size: int) -> None:
        """Begin the exchange of a new default group, where its ranks may be on several hosts.

        Args:
            store: The group's store.
            rank: This process's rank.
            world_size: Number of ranks.
        """
        self.cancel()
        self.found = []
        number = next(_begun)
        if may_span_hosts(store, world_size, os.environ):
            from torch._C._distributed_c10d import PrefixStore

            own = PrefixStore(f"{PREFIX}/{number}", store)
            self._exchange = Exchange(own, rank, world_size, self._keep)
            self._exchange.start()

    def finish(self) -> None:
        """Exchange a last time: the group is being destroyed."""
        if self._exchange is not None:
            self._exchange.finish()
            self._exchange = None

    def cancel(self) -> None:
        """End the exchange as it is."""
        if self._exchange is not None:
            self._exchange.cancel()
            self._exchange = None

    def forget(self) -> None:
        """Leave the parent's exchange alone: called in a forked child, which has no part in it."""
        self._exchange = None
        self.found = []

    def _keep(self, record: dict[str, Any]) -> None:
        self.found.append(record)
        self._write(record)
