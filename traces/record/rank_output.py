"""Passes on what ranks write, line by line, each line with its rank before it.

    output = RankOutput(pipe.fileno(), target=1, prefix=b"[rank 2] ")
    while output.pump():     # when the pipe can be read
        ...

Bytes are passed on as they are. A line is written whole, so that lines of two ranks never mix; the
last one gets its newline if it has none. A progress bar's carriage return ends a line, too.
"""

from __future__ import annotations

import os
import re

LONGEST_LINE_BYTES = 1 << 20
# A carriage return at the end may be half of a line end, so it waits for what follows.
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r(?!\Z))")


class RankOutput:
    """One pipe of a rank, and where its lines go.

    Args:
        source: Descriptor of the pipe.
        target: Descriptor that the lines are written to.
        prefix: What comes before each line.
    """

    def __init__(self, source: int, target: int, prefix: bytes) -> None:
        self._source = source
        self._target = target
        self._prefix = prefix
        self._rest = b""

    def pump(self) -> bool:
        """Read once, and write the lines that are whole; return False at the end of the pipe.

        Raises:
            OSError: Nobody reads the target any more.
        """
        chunk = os.read(self._source, 1 << 16)
        self._rest += chunk
        lines = _LINE.findall(self._rest)
        self._rest = self._rest[sum(map(len, lines)) :]
        if len(self._rest) > LONGEST_LINE_BYTES:
            lines.append(self._take_piece())
        self._write(lines)
        if not chunk:
            self.finish()
        return bool(chunk)

    def finish(self) -> None:
        """Write what is left of a last line."""
        if self._rest:
            line = self._rest if self._rest.endswith(b"\r") else self._rest + b"\n"
            self._rest = b""
            self._write([line])

    def _take_piece(self) -> bytes:
        """Return the begin of an endless line as one of its own, cut between two characters."""
        end = len(self._rest)
        while end > len(self._rest) - 4 and self._rest[end - 1] & 0xC0 == 0x80:
            end -= 1
        if self._rest[end - 1] >= 0xC0:
            end -= 1
        piece, self._rest = self._rest[:end], self._rest[end:]
        return piece + b"\n"

    def _write(self, lines: list[bytes]) -> None:
        view = memoryview(b"".join(self._prefix + line for line in lines))
        while view:
            view = view[os.write(self._target, view) :]
