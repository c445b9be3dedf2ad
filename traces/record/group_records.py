"""The process groups that a recorder has met, each with a number and one record."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, MutableMapping
from typing import Any, NamedTuple

import torch

from .writer import clean


class GroupInfo(NamedTuple):
    """A process group as events name it.

    Attributes:
        number: Number of the group in this file.
        ranks: Its global ranks, in group order.
        rank: This process's global rank, None where it is no member.
        group_rank: This process's rank in the group.
    """

    number: int
    ranks: tuple[int, ...]
    rank: int | None
    group_rank: int


class _Local(threading.local):
    """What belongs to a thread: the number of the group that it makes."""

    announced: int | None = None


class Groups:
    """Numbers process groups and writes them down.

    Args:
        keep: Writes a record under a key; a later one of that key replaces it.
    """

    def __init__(self, keep: Callable[[Any, dict[str, Any]], None]) -> None:
        self._keep = keep
        # Weakly: a group that the program destroys must go, with its threads and connections.
        self._known: MutableMapping[Any, GroupInfo] = weakref.WeakKeyDictionary()
        self._bare: list[Any] = []
        self._numbers = itertools.count()
        self._ranks: dict[int, tuple[int, ...]] = {}
        self._lock = threading.RLock()
        self._local = _Local()

    def info(self, group: Any) -> GroupInfo:
        """Return what is known of a `torch.distributed.ProcessGroup`; the first time, write it."""
        return self._known.get(group) or self.learn(group)

    def learn(self, group: Any, number: int | None = None) -> GroupInfo:
        """Write what is known of a process group that is there, and remember it.

        Args:
            group: The process group.
            number: Its number, where `announce` gave it one.
        """
        with self._lock:
            if number is None and group in self._known:
                return self._known[group]
            ranks = ranks_of(group)
            place = group.rank()
            found = GroupInfo(
                next(self._numbers) if number is None else number,
                tuple(ranks),
                ranks[place] if 0 <= place < len(ranks) else None,
                place,
            )
            record = {"r": "group", "n": found.number, "ranks": ranks, **_labels(group)}
            self._keep(("group", found.number), record)
            self._known[group] = found
            if group not in torch.distributed.distributed_c10d._world.pg_map:
                self._bare.append(group)  # nobody else may hold its Python side
            self._ranks[found.number] = found.ranks
            return found

    def announce(self, ranks: list[int] | None) -> int:
        """Write that a group of these global ranks is being made, and return its number."""
        with self._lock:
            found = next(self._numbers)
            self._keep(("group", found), {"r": "group", "n": found, "ranks": ranks})
            self._local.announced = found
            if ranks is not None:
                self._ranks[found] = tuple(ranks)
            return found

    def ordinal(self, ranks: tuple[int, ...]) -> int | None:
        """Return how many groups of these ranks came before the one that this thread makes.

        Args:
            ranks: Its global ranks, in group order.

        Returns:
            The number that readers work out, too; None where no group was announced.
        """
        number = self._local.announced
        if number is None:
            return None
        with self._lock:
            return sum(ranks == others for n, others in self._ranks.items() if n < number)


def ranks_of(group: Any) -> list[int]:
    """Return the global ranks of a process group, in group order."""
    world = torch.distributed.distributed_c10d._world
    members = world.pg_group_ranks.get(group)
    if not members:  # a bare ProcessGroup that torch.distributed does not know
        return list(range(group.size()))
    return [rank for rank, _ in sorted(members.items(), key=lambda item: item[1])]


def _labels(group: Any) -> dict[str, str]:
    world: Any = torch.distributed.distributed_c10d._world
    label = world.pg_names.get(group) or getattr(group, "group_name", "")
    backend = world.pg_map.get(group, ("",))[0]
    return {"label": clean(str(label)), "backend": str(backend)}
