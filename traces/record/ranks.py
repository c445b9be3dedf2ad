"""Real ranks on this machine: a pool of processes that form one gloo group.

    def work(x: float) -> float:
        tensor = torch.full((3,), x + dist.get_rank())
        dist.all_reduce(tensor)
        return tensor[0].item()

    with Ranks(4) as ranks:
        ranks.run(work, 1.0)                        # [10.0, 10.0, 10.0, 10.0]
        ranks.run(work, 1.0, record="my-recording")

The processes come from a fork server that has loaded torch already, so only the first pool of a
program pays for that. A call has a time limit; what a rank raised, how it died or where it is stuck
is said in the error. After a failed call the next one starts fresh processes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ...errors import MissingExtra, RanksError
from .folder import claim_new
from .options import Options
from .rank_process import Recording, Reply, dump_call, serve

GRACE_S = 2.0  # after one rank has failed, the others get this long to come back
_PRELOAD = ("torch", "torch.distributed", f"{__package__}.start")


@dataclass(frozen=True, slots=True)
class _Member:
    """One process of the pool, seen from outside."""

    process: Any
    connection: Connection
    stack_file: Path


class Ranks:
    """A pool of processes, one a rank, that form one gloo process group over loopback.

    Args:
        n: Number of ranks, 1 or more.
        start_timeout: Seconds that starting the processes may take.
        preload: Modules that the ranks need. The first pool of a program has them loaded once for
            all ranks, now and later.

    Raises:
        MissingExtra: torch or cloudpickle is not installed.
        RanksError: The ranks did not start.
    """

    def __init__(self, n: int, *, start_timeout: float = 60.0, preload: Sequence[str] = ()) -> None:
        if n < 1:
            raise ValueError(f"number of ranks is {n}, expected 1 or more")
        for package in ("torch", "cloudpickle"):
            if importlib.util.find_spec(package) is None:
                raise MissingExtra("Real ranks", "record", package)
        self.n = n
        self.start_timeout = start_timeout
        self.preload = (*_PRELOAD, *preload)
        self._members: list[_Member] = []
        self._folder: Path | None = None
        self._start()

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        record: str | os.PathLike[str] | None = None,
        state: str | None = None,
        options: Options | None = None,
        timeout: float = 60.0,
    ) -> list[Any]:
        """Call a function on every rank at once and return what each returned, by rank.

        Args:
            function: Called as `function(*args)` in every rank; `torch.distributed` is initialised
                there. It travels by value with cloudpickle, as do the arguments and results.
            args: Arguments, the same for every rank.
            record: New folder for a recording of this call; None for none.
            state: What the recording keeps of tensors, see `chunkscope.record`.
            options: What the recording keeps altogether; in place of `state`.
            timeout: Seconds after which the ranks that have not returned are killed.

        Raises:
            RecorderError: The folder of the recording holds one already, or cannot be written.
            RanksError: A rank raised, died or did not return in time. It names the rank, its
                traceback or where it stands; an exception that can travel is its `__cause__`.

        Example:
            ``Ranks(2).run(lambda: torch.distributed.get_rank())`` returns ``[0, 1]``.
        """
        import cloudpickle

        if not self._members:
            self._start()
        payload = dump_call(function, args)
        recording = None
        if record is not None:
            recording = Recording(
                os.fspath(record), claim_new(Path(record)), options or Options(state=state)
            )
        try:
            for member in self._members:
                member.connection.send((payload, recording))
            replies = self._collect(timeout)
        except BaseException:  # Ctrl-C among them: ranks that unwind get a moment to do so
            self._stop(patience_s=1.0)
            raise
        self._raise_failures(replies, f"after {timeout:g} s")
        return [cloudpickle.loads(reply.value) for _, reply in sorted(replies.items())]

    def close(self) -> None:
        """End the processes."""
        for member in self._members:
            with contextlib.suppress(OSError):
                member.connection.send(None)
        self._stop(patience_s=1.0)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(self.preload))
        self._folder = Path(tempfile.mkdtemp(prefix="chunkscope-ranks-"))
        with _no_main_module():
            for rank in range(self.n):
                ours, theirs = context.Pipe()
                stack_file = self._folder / f"rank-{rank}.stack"
                process = context.Process(
                    target=serve,
                    args=(rank, self.n, theirs, str(self._folder), dict(os.environ)),
                    name=f"rank {rank}",
                    daemon=True,
                )
                process.start()
                theirs.close()
                self._members.append(_Member(process, ours, stack_file))
        replies = self._collect(self.start_timeout)
        self._raise_failures(replies, f"starting, after {self.start_timeout:g} s")

    def _collect(self, timeout: float) -> dict[int, Reply]:
        """Return the replies by rank; a rank that did not reply in time is not in it."""
        deadline = time.monotonic() + timeout
        replies: dict[int, Reply] = {}
        while len(replies) < self.n:
            sources: dict[Any, int] = {}
            for rank, member in enumerate(self._members):
                if rank not in replies:
                    sources[member.connection] = sources[member.process.sentinel] = rank
            ready = wait(list(sources), max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for rank in {sources[source] for source in ready}:
                replies[rank] = _receive(self._members[rank])
                if replies[rank].error is not None:
                    deadline = min(deadline, time.monotonic() + GRACE_S)
        return replies

    def _raise_failures(self, replies: dict[int, Reply], limit: str) -> None:
        failed = {rank: reply for rank, reply in replies.items() if reply.error is not None}
        stuck = [rank for rank in range(self.n) if rank not in replies]
        if not failed and not stuck:
            return
        stacks = {rank: self._stack(rank) for rank in stuck}
        self._stop(patience_s=0.0)
        first = next(iter(failed), None)  # in order of arrival: the others may only follow from it
        cause = None if first is None else _load_exception(failed[first].exception)
        message = _describe(self.n, failed, stacks, limit)
        error = RanksError(message, failed=tuple(sorted(failed)), stuck=tuple(stuck))
        raise error from cause

    def _stack(self, rank: int) -> str:
        """Return where the main thread of a rank stands, innermost line first; "" if unknown."""
        member = self._members[rank]
        with contextlib.suppress(OSError):
            os.kill(member.process.pid, signal.SIGUSR1)
        for _ in range(20):
            time.sleep(0.05)
            text = member.stack_file.read_text() if member.stack_file.exists() else ""
            if stack := _main_thread(text):
                return stack
        return ""

    def _stop(self, *, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        for member in self._members:
            member.process.join(max(0.0, deadline - time.monotonic()))
            if member.process.exitcode is None:
                member.process.kill()
        for member in self._members:
            member.process.join(5.0)
            member.connection.close()
        self._members = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _receive(member: _Member) -> Reply:
    """Return the reply of a rank that replied or ended."""
    try:
        if member.connection.poll():
            reply = member.connection.recv()
            assert isinstance(reply, Reply)
            return reply
    except (EOFError, OSError):
        pass
    member.process.join(5.0)
    code = member.process.exitcode
    how = (
        f"was killed by signal {-code}" if code is not None and code < 0 else f"exited with {code}"
    )
    return Reply(error="", headline=how)


def _describe(n: int, failed: dict[int, Reply], stacks: dict[int, str], limit: str) -> str:
    lines = []
    for rank, reply in failed.items():
        lines.append(f"rank {rank} of {n} {reply.headline}")
        if len(lines) == 1 and reply.error:
            lines += ["    " + line for line in reply.error.rstrip().splitlines()]
    if stacks:
        when = f"{GRACE_S:g} s later" if failed else limit
        lines.append(f"{_names(stacks)} of {n} had not returned {when}; ended here:")
        for stack in dict.fromkeys(stacks.values()):
            same = [rank for rank, other in stacks.items() if other == stack]
            at = stack.splitlines() or ["not known"]
            lines += [f"  {_names(same)}:", *("    " + line.strip() for line in at)]
    return "\n".join(lines)


def _names(ranks: Iterable[int]) -> str:
    items = list(ranks)
    return f"rank{'s' * (len(items) > 1)} {', '.join(map(str, items))}"


def _main_thread(dump: str) -> str:
    """Return the user's part of the main thread in a faulthandler dump, innermost line first.

    The first line of the file is the number of that thread.
    """
    number, _, rest = dump.partition("\n")
    for block in re.split(r"\n(?=(?:Current thread|Thread) )", rest.rstrip()):
        head, _, frames = block.partition("\n")
        found = re.search(r"0x([0-9a-f]+)", head)
        if found is not None and number and int(found[1], 16) == int(number):
            lines = frames.splitlines()
            ours = [k for k, line in enumerate(lines) if f'"{serve.__code__.co_filename}"' in line]
            return "\n".join(lines[: ours[0]] if ours else lines)
    return ""


def _load_exception(pickled: bytes | None) -> BaseException | None:
    """Return an exception that a rank sent, or None if it cannot be rebuilt here."""
    if pickled is None:
        return None
    import cloudpickle

    try:
        value = cloudpickle.loads(pickled)
    except Exception:
        return None
    return value if isinstance(value, BaseException) else None


@contextlib.contextmanager
def _no_main_module() -> Iterator[None]:
    """Hide the main module, which a new process would otherwise import once more.

    Functions of it travel by value, so the ranks have no use for it, and a script without the
    ``if __name__ == "__main__"`` guard would start its ranks again in every rank.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
