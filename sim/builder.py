"""Schedules written by hand: say where each chunk goes, and steps and slots follow.

    def ring(group_size):
        plan = Builder("all_reduce", group_size, chunks=group_size, name="my_ring")
        for k in range(group_size):
            chunk = plan.input(k, k)
            for hop in range(1, group_size):
                chunk = chunk.reduce_into((k + hop) % group_size)
            for hop in range(group_size - 1):
                chunk = chunk.send((k + hop) % group_size)
        return plan.schedule()

What comes out is an ordinary Schedule, on one channel and without helpers: plain Transfers can say
more.
"""

from __future__ import annotations

from collections import defaultdict

from ..errors import ScheduleError
from .collectives import collective as collective_named
from .schedule import Schedule, Transfer


class Chunk:
    """A chunk in a slot of a rank, from when it was written there until it is overwritten.

    Attributes:
        rank: Where it lies.
        slot: In which slot.
        number: Which chunk of the data it is, see `collectives`.
    """

    __slots__ = ("_builder", "_parts", "_read", "_replaced", "_written", "number", "rank", "slot")

    def __init__(
        self, builder: Builder, rank: int, slot: int, number: int, parts: int, written: int
    ) -> None:
        self._builder = builder
        self.rank = rank
        self.slot = slot
        self.number = number
        self._parts = parts  # a bit for each rank whose part is in it
        self._written = written  # step; -1 where it was there at the start
        self._read = -1  # last step in which it is read
        self._replaced: int | None = None  # step in which something else is written there

    @property
    def contributors(self) -> list[int]:
        """The ranks whose parts are in it; its origin alone where nothing is reduced."""
        return [rank for rank in range(self._parts.bit_length()) if self._parts >> rank & 1]

    def send(self, rank: int, *, slot: int | None = None, step: int | None = None) -> Chunk:
        """Send a copy to a rank, or to another slot of the same rank.

        Args:
            rank: Where it goes.
            slot: The slot there. By default a chunk that is complete goes to the slot where the
                collective wants it, and any other one to a new scratch slot.
            step: When it leaves; None for the first step in which it is there, the slot is free,
                and no other message goes the same way. What leaves for one rank in the same step
                travels as one message.

        Returns:
            The chunk at its new place.

        Raises:
            ScheduleError: There is no such rank or slot, the step is too early, or the chunk has
                been overwritten by then.
        """
        return self._builder._send(self, rank, slot, step)

    def reduce_into(self, there: int | Chunk, *, step: int | None = None) -> Chunk:
        """Send it to a rank that adds it to what it has of the same chunk.

        Args:
            there: The chunk to add it to, or a rank: its own part, with what has been added to it.
            step: As for `send`.

        Returns:
            The sum, which takes the place of what was there.

        Raises:
            ScheduleError: As for `send`; or the collective does not reduce, or the chunk there is
                another one or has been overwritten.
        """
        return self._builder._reduce(self, there, step)

    def __repr__(self) -> str:
        return f"chunk {self.number} in slot {self.slot} of rank {self.rank}"


class Builder:
    """Collects the transfers of one schedule.

    Args:
        collective: Name of the collective.
        group_size: Number of ranks, 1 or more.
        chunks: Pieces that a rank's block is cut into; those of the whole vector where the
            collective has no blocks (all_reduce, broadcast, reduce, barrier).
        root: Rank of the root, where the collective has one.
        name: Name of the algorithm.

    Raises:
        ScheduleError: There is no such collective, or a number cannot be.

    Example:
        >>> plan = Builder("broadcast", 3, root=0)
        >>> chunk = plan.input(0).send(1).send(2)
        >>> print(plan.schedule().to_text().splitlines()[-1])
        1 0  r1[0] -> r2[0]
    """

    def __init__(
        self,
        collective: str,
        group_size: int,
        *,
        chunks: int = 1,
        root: int | None = None,
        name: str = "own",
    ) -> None:
        self.kind = collective_named(collective)
        self.group_size = group_size
        self.root = root
        self.name = name
        for what, number in (("group size", group_size), ("chunks", chunks)):
            if number < 1:
                raise ScheduleError(f"{what} is {number}, expected 1 or more")
        if self.kind.rooted:
            self._check_rank(root, f"root of {collective}")
        self._block = chunks
        self._total = chunks * group_size if self.kind.by_block else chunks
        self._is_exchange = self.kind.receives in ("transposed", "previous")
        self._n_declared = self._total * (2 if self._is_exchange else 1)
        self._n_scratch = [0] * group_size
        self._rows: list[Transfer] = []
        self._held: dict[tuple[int, int], Chunk] = {}
        self._firsts: dict[tuple[int, int], Chunk] = {}
        self._under_way: dict[tuple[int, int], set[int]] = defaultdict(set)

    def input(self, rank: int, k: int = 0) -> Chunk:
        """Return the k-th chunk of a rank's input.

        Raises:
            ScheduleError: The rank has no input, or not so many chunks.
        """
        self._check_rank(rank)
        slots = self._input(rank)
        if not 0 <= k < len(slots):
            raise ScheduleError(
                f"rank {rank} has {len(slots)} chunks of input, found chunk {k}", place=rank
            )
        return self._first(rank, slots[k])

    def schedule(self) -> Schedule:
        """Return what was built so far; `verify` tells whether it does what it must.

        Raises:
            ScheduleError: As `Schedule.of`.
        """
        ranks, first = range(self.group_size), self._n_declared
        return Schedule.of(
            self.kind.name,
            self.name,
            self.group_size,
            self._rows,
            input=[self._input(rank) if self._has_input(rank) else [] for rank in ranks],
            output=[self._output(rank) for rank in ranks],
            scratch=[range(first, first + count) for count in self._n_scratch],
            root=self.root,
        )

    # Where chunks lie

    def _has_input(self, rank: int) -> bool:
        return self.kind.has_input(rank, self.root)

    def _input(self, rank: int) -> range:
        if not self._has_input(rank):
            return range(0)
        return self._whole_or_block(self.kind.sends, rank)

    def _output(self, rank: int) -> range:
        if not self.kind.has_output(rank, self.root):
            return range(0)
        if self._is_exchange:
            return range(self._total, 2 * self._total)
        return self._whole_or_block(self.kind.receives, rank)

    def _whole_or_block(self, what: str, rank: int) -> range:
        first = rank * self._block
        return range(self._total) if what == "whole" else range(first, first + self._block)

    def _first(self, rank: int, slot: int) -> Chunk:
        """Return what an input slot holds at the start."""
        if (rank, slot) not in self._firsts:
            number = slot + rank * self._total if self._is_exchange else slot
            first = Chunk(self, rank, slot, number, 1 << rank, -1)
            self._held[rank, slot] = self._firsts[rank, slot] = first
        return self._firsts[rank, slot]

    def _due(self, rank: int, number: int) -> int | None:
        """Return the slot of a rank's output where a chunk is due; None where it is not."""
        if not self._is_exchange:
            return number if number in self._output(rank) else None
        origin, rest = divmod(number, self._total)
        if self.kind.receives == "previous":
            return self._total + rest if (origin + 1) % self.group_size == rank else None
        receiver, piece = divmod(rest, self._block)
        return self._total + origin * self._block + piece if receiver == rank else None

    # What is done with them

    def _send(self, chunk: Chunk, rank: int, slot: int | None, step: int | None) -> Chunk:
        self._check_rank(rank)
        complete = not self.kind.reduces or chunk._parts == (1 << self.group_size) - 1
        if slot is None and complete:
            slot = self._due(rank, chunk.number)
        if slot is None:
            slot = self._n_declared + self._n_scratch[rank]
        if slot < 0 or (rank, slot) == (chunk.rank, chunk.slot):
            raise ScheduleError(f"{chunk} cannot be sent to slot {slot} of rank {rank}", place=rank)
        self._n_scratch[rank] = max(self._n_scratch[rank], slot + 1 - self._n_declared)
        return self._move(chunk, rank, slot, step, self._now(rank, slot), reduces=False)

    def _reduce(self, chunk: Chunk, there: int | Chunk, step: int | None) -> Chunk:
        if not self.kind.reduces:
            raise ScheduleError(f"{self.kind.name} does not reduce; use send")
        if isinstance(there, int):
            self._check_rank(there)
            found = self._now(there, chunk.number)
            if found is None:
                raise ScheduleError(f"rank {there} has no part of chunk {chunk.number}")
            there = found
        if there.number != chunk.number:
            raise ScheduleError(f"{chunk} cannot be added to {there}: the chunks differ")
        if there._replaced is not None:
            raise ScheduleError(
                f"{there} is overwritten in step {there._replaced}; add to what is there now",
                place=there.rank,
                step=there._replaced,
            )
        return self._move(chunk, there.rank, there.slot, step, there, reduces=True)

    def _now(self, rank: int, slot: int) -> Chunk | None:
        """Return what a slot holds after all that was said so far."""
        if (rank, slot) not in self._held and slot in self._input(rank):
            return self._first(rank, slot)
        return self._held.get((rank, slot))

    def _move(
        self,
        chunk: Chunk,
        rank: int,
        slot: int,
        step: int | None,
        there: Chunk | None,
        *,
        reduces: bool,
    ) -> Chunk:
        step = self._step(chunk, rank, step, there)
        self._rows.append(Transfer(step, 0, chunk.rank, rank, chunk.slot, slot, 1, reduces))
        chunk._read = max(chunk._read, step)
        parts = chunk._parts
        if there is not None:
            there._replaced = step
            parts |= there._parts if reduces else 0
        moved = self._held[rank, slot] = Chunk(self, rank, slot, chunk.number, parts, step)
        return moved

    def _step(self, chunk: Chunk, rank: int, step: int | None, there: Chunk | None) -> int:
        """Return the step of a move: after the chunk was written, and not before the slot is free.

        In one step reads come before writes, so a chunk can still be read in the step in which it
        is overwritten: two ranks can exchange.
        """
        first = chunk._written + 1
        if there is not None:
            first = max(first, there._read, there._written)
        ways = self._under_way[chunk.rank, rank] if rank != chunk.rank else set()
        if step is None:
            step = next(s for s in range(first, first + len(ways) + 1) if s not in ways)
        elif step < first:
            raise ScheduleError(
                f"step {step} is too early for {chunk} to go to rank {rank}, expected {first} or "
                "later",
                place=chunk.rank,
                step=step,
            )
        if chunk._replaced is not None and step > chunk._replaced:
            raise ScheduleError(
                f"{chunk} is overwritten in step {chunk._replaced}, and cannot go to rank {rank} "
                f"before step {step}; keep a copy in another slot, or send it before",
                place=chunk.rank,
                step=step,
            )
        ways.add(step)
        return step

    def _check_rank(self, rank: int | None, what: str = "rank") -> None:
        if rank is None or not 0 <= rank < self.group_size:
            raise ScheduleError(f"{what} is {rank}, expected 0 to {self.group_size - 1}")
