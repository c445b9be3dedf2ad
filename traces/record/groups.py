"""Records how process groups come and go: init, new_group, destroy.

The ranks that were asked for are written at the begin, so that a rank that never arrives shows: the
others have a `group` event that began and did not end.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import torch

from .clock import Clocks
from .group_records import ranks_of
from .recorder import Recorder
from .under_way import text_of

_INIT, _NEW, _DESTROY = "init_process_group", "new_group", "destroy_process_group"


class GroupHooks:
    """Replaces the functions of torch.distributed that make and destroy groups.

    Args:
        active: Recorders, the last of which records; empty for none.
        report: Called with a bug of ours, which must not reach the user.
    """

    def __init__(self, active: list[Recorder], report: Callable[[BaseException], None]) -> None:
        self._active = active
        self._report = report
        self._replaced: list[tuple[Any, str, Any]] = []
        self._inside = threading.local()
        self.clocks = Clocks(self._write_clock)

    def patch(self) -> None:
        """Put the replacements in place."""
        c10d = torch.distributed.distributed_c10d
        for name, wrap in (
            (_INIT, self._wrap_init),
            ("_new_group_with_tag", self._wrap_new),
            (_DESTROY, self._wrap_destroy),
        ):
            original = getattr(c10d, name)
            replacement = wrap(original)
            for module in (c10d, torch.distributed):
                if getattr(module, name, None) is original:
                    self._replaced.append((module, name, original))
                    setattr(module, name, replacement)

    def unpatch(self) -> None:
        """Give the functions back."""
        self.clocks.cancel()
        while self._replaced:
            setattr(*self._replaced.pop())

    def adopt(self, recorder: Recorder) -> None:
        """Write the groups that were there before, in the order in which they were made."""
        for group in list(torch.distributed.distributed_c10d._world.pg_map):
            recorder.groups.learn(group)
        for number, record in enumerate(self.clocks.found):
            recorder.clock(record, is_first=number == 0)
        if not self._active and torch.distributed.is_initialized():
            self._begin_clocks()

    def _begin_clocks(self) -> None:
        try:
            c10d = torch.distributed.distributed_c10d
            group = c10d._get_default_group()
            self.clocks.begin(c10d._get_default_store(), group.rank(), group.size())
        except Exception as error:
            self._report(error)

    def _write_clock(self, record: dict[str, Any]) -> None:
        for recorder in list(self._active):
            recorder.clock(record, is_first=len(self.clocks.found) == 1)

    def _wrap_init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            def asked() -> tuple[list[int] | None, int | None]:
                return _asked_world(original, args, kwargs)

            def made(_: Any) -> Any:
                if self._recorder() is not None:
                    self._begin_clocks()
                return torch.distributed.distributed_c10d._get_default_group()

            return self._record(_INIT, asked, made, original, args, kwargs)

        return init_process_group

    def _wrap_new(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def _new_group_with_tag(*args: Any, **kwargs: Any) -> Any:
            def asked() -> tuple[list[int] | None, int | None]:
                ranks = args[0] if args else kwargs.get("ranks")
                if ranks is None:
                    ranks = range(torch.distributed.get_world_size())
                elif kwargs.get("sort_ranks", True):
                    ranks = sorted(ranks)
                return list(map(int, ranks)), torch.distributed.get_rank()

            def made(result: Any) -> Any:
                is_group = isinstance(result, torch.distributed.ProcessGroup)
                return result if is_group else None

            return self._record(_NEW, asked, made, original, args, kwargs)

        return _new_group_with_tag

    def _wrap_destroy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
            recorder = self._recorder()
            seq = None
            try:
                if recorder is not None:
                    seq = self._begin_destroy(recorder, args[0] if args else kwargs.get("group"))
            except Exception as error:
                self._report(error)
            try:
                result = original(*args, **kwargs)
            except BaseException as failure:
                self._end(recorder, seq, failure)
                raise
            self._end(recorder, seq, None)
            return result

        return destroy_process_group

    def _record(
        self,
        what: str,
        asked: Callable[[], tuple[list[int] | None, int | None]],
        made: Callable[[Any], Any],
        original: Callable[..., Any],
        args: Any,
        kwargs: Any,
    ) -> Any:
        """Call the original and write the begin and the end of making a group."""
        recorder = self._recorder()
        seq = number = None
        try:
            if recorder is not None:
                ranks, rank = asked()
                number = recorder.groups.announce(ranks)
                seq = self._begin(recorder, what, number, ranks, rank)
        except Exception as error:
            self._report(error)
        try:
            result = original(*args, **kwargs)
        except BaseException as failure:
            self._end(recorder, seq, failure)
            raise
        columns: dict[str, Any] = {}
        try:
            group = made(result)
            if recorder is not None and group is not None:
                info = recorder.groups.learn(group, number)
                columns = {"rank": info.rank, "group_rank": info.group_rank}
        except Exception as error:
            self._report(error)
        self._end(recorder, seq, None, **columns)
        return result

    def _recorder(self) -> Recorder | None:
        recorder = self._active[-1] if self._active else None
        return None if recorder is None or recorder.local.is_silent else recorder

    def _begin(
        self,
        recorder: Recorder,
        what: str,
        number: int,
        ranks: list[int] | None,
        rank: int | None,
    ) -> int:
        caller = recorder.sites.find(sys._getframe(2))
        is_member = rank is not None and ranks is not None and rank in ranks
        return recorder.begin(
            "group",
            provenance="called",
            api=caller.api or what,
            collective=what,
            rank=rank,
            group=number,
            group_rank=ranks.index(rank) if is_member and ranks and rank is not None else None,
            site=caller.site,
        )

    def _begin_destroy(self, recorder: Recorder, group: Any) -> int | None:
        c10d = torch.distributed.distributed_c10d
        if group is None:
            group = c10d.GroupMember.WORLD
        if not isinstance(group, c10d.ProcessGroup):
            return None
        if group is c10d.GroupMember.WORLD:
            self.clocks.finish()
        number = recorder.group(group)
        rank = torch.distributed.get_rank()
        return self._begin(recorder, _DESTROY, number, ranks_of(group), rank)

    def _end(
        self,
        recorder: Recorder | None,
        seq: int | None,
        failure: BaseException | None,
        **columns: Any,
    ) -> None:
        if recorder is None or seq is None:
            return
        try:
            if failure is None:
                recorder.end(seq, **columns)
            else:
                recorder.end(seq, status="error", error=text_of(failure))
        except Exception as error:
            self._report(error)


def _asked_world(
    original: Callable[..., Any], args: Any, kwargs: Any
) -> tuple[list[int] | None, int | None]:
    """Return the ranks that init_process_group was asked for, and this one, where they are told."""
    names = ("backend", "init_method", "timeout", "world_size", "rank", "store")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    query = parse_qs(urlsplit(str(given.get("init_method") or "")).query)

    def number(name: str, variable: str) -> int | None:
        for value in (given.get(name), *query.get(name, ()), os.environ.get(variable)):
            try:
                if value is not None and int(value) >= 0:
                    return int(value)
            except (TypeError, ValueError):
                continue
        return None

    world = number("world_size", "WORLD_SIZE")
    return None if world is None else list(range(world)), number("rank", "RANK")
