"""A tap's messages as rows: a send at the source and a recv at the destination.

An end that was never seen has no row: a message that was announced and that nobody asked for is a
send alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...schema import Kind, Provenance, Role, Status, When
from . import records as rec

if TYPE_CHECKING:
    from .record_file import RecordFile


def unfold(file: RecordFile, messages: list[rec.Message]) -> list[rec.Row]:
    """Return the rows of a tap's messages, with their states; their calls are added to its file.

    Args:
        file: The file; its groups are known.
        messages: Its message records, the last one of a number holds.
    """
    maker = _Maker(file)
    latest = {message.seq: message for message in messages}
    for message in sorted(latest.values(), key=lambda message: message.seq):
        maker.add(message)
    return maker.rows


class _Maker:
    """Makes rows of messages, each call and tensor record once."""

    def __init__(self, file: RecordFile) -> None:
        self._file = file
        self._ranks = {n: tuple(group.ranks or ()) for n, group in file.groups.items()}
        self._calls: dict[Any, tuple[int, int]] = {}
        self._tensors: dict[int, int] = {}
        self.rows: list[rec.Row] = []

    def add(self, message: rec.Message) -> None:
        """Add the rows of one message."""
        ranks = self._ranks.get(message.group, ())
        if not (message.src < len(ranks) and message.dst < len(ranks)):
            return
        key = (message.group, message.src, message.dst, message.slot, message.size)
        send, recv = self._calls.get(key) or self._define(key, ranks)
        is_there = message.start is not None
        if is_there or message.send is not None:
            self._row(message, 2 * message.seq, send, message.send, When.BEFORE)
        if is_there or message.recv is not None:
            self._row(message, 2 * message.seq + 1, recv, message.recv, When.AFTER)

    def _row(
        self, message: rec.Message, seq: int, call: int, issue: int | None, when: When
    ) -> None:
        is_whole = message.end is not None
        row = rec.Row(
            call,
            seq,
            attempt=message.attempt,
            issue=issue,
            start=message.start,
            end=message.end,
            status=Status.OK if is_whole else Status.BEGUN,
        )
        if is_whole:
            tensor = self._tensor(message.size)
            row.s.append(rec.State(when, Role.PAYLOAD, 0, tensor, message.value))
        self.rows.append(row)

    def _define(self, key: Any, ranks: tuple[int, ...]) -> tuple[int, int]:
        group, src, dst, slot, size = key
        calls = self._file.calls
        found = (len(calls), len(calls) + 1)
        for n, kind, me, peer in ((found[0], Kind.SEND, src, dst), (found[1], Kind.RECV, dst, src)):
            calls[n] = rec.Call(
                n,
                kind=kind,
                provenance=Provenance.WIRE,
                group=group,
                rank=ranks[me],
                group_rank=me,
                place=me,
                peer=ranks[peer],
                peer_group_rank=peer,
                tag=slot,
                size_bytes=size,
            )
        self._calls[key] = found
        return found

    def _tensor(self, size: int) -> int:
        if size not in self._tensors:
            n = self._tensors[size] = len(self._file.tensors)
            self._file.tensors[n] = rec.Tensor(n, "uint8", [size])
        return self._tensors[size]
