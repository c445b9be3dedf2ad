"""Numbers calls and messages where a recording leaves some of them out.

A whole recording is counted by its reader. Where calls are skipped (`Options.only`) or deleted
later (`Options.keep_last`), each begin says itself which call of its group, or which message of its
pair, it is: a reader of the rest still knows.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count

from ..schema import Kind


class Numbering:
    """Counts the calls of each group, and the messages of each pair and tag, in one process."""

    def __init__(self) -> None:
        self._calls: defaultdict[int, count[int]] = defaultdict(count)
        self._messages: defaultdict[tuple[object, ...], count[int]] = defaultdict(count)

    def of(self, kind: str, group: int | None, peer: int | None, tag: int | None) -> bytes:
        """Count a call, and return its number as a begin record has it; empty where none is known.

        Args:
            kind: See `schema.Kind`.
            group: Number of the group.
            peer: Group rank at the other end of a send or recv; None where it is not known yet.
            tag: Tag of the send or recv.
        """
        if group is None:
            return b""
        if kind == Kind.COLLECTIVE:
            return b',"coll_seq":%d' % next(self._calls[group])
        if peer is None:
            return b""
        return b',"message":%d' % next(self._messages[kind, group, peer, tag])

    def skip(self, group: int) -> None:
        """Count a collective that is left out."""
        next(self._calls[group])
