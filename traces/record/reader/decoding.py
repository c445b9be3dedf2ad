"""A file of records, decoded block by block; damaged lines are counted, wrong ones refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ....errors import TraceFormatError
from ...fold import blocks
from . import records as rec

_DECODER = msgspec.json.Decoder(rec.ANY)


class Decoder:
    """Decodes the file of one process.

    Attributes:
        damaged: Numbers of the lines that were left out so far.
        is_empty: Whether the file has no byte.

    Args:
        path: The file, for messages.
    """

    def __init__(self, path: Path) -> None:
        self.damaged: list[int] = []
        self.is_empty = True
        self._path = path

    def decode(self, file: BinaryIO) -> Iterator[tuple[Sequence[int], list[Any]]]:
        """Yield the records, many at a time, and the number of the line of each.

        Raises:
            TraceFormatError: A line is sound JSON, and no record.
        """
        line = 1
        for block in blocks(file):
            self.is_empty = False
            try:
                records = _DECODER.decode_lines(block)
            except (msgspec.MsgspecError, RecursionError):
                yield self._one_by_one(block, line)
            else:
                yield range(line, line + len(records)), records
            line += block.count(b"\n")

    def _one_by_one(self, block: bytes, first: int) -> tuple[list[int], list[Any]]:
        numbers: list[int] = []
        records: list[Any] = []
        for number, line in enumerate(block.split(b"\n"), first):
            if not line.strip():
                continue
            try:
                records.append(_DECODER.decode(line))
                numbers.append(number)
            except msgspec.ValidationError as error:
                if _is_sound(line):
                    raise self._refusal(number, line, error) from None
                self.damaged.append(number)
            except (msgspec.MsgspecError, RecursionError):
                self.damaged.append(number)
        return numbers, records

    def _refusal(self, number: int, line: bytes, error: Exception) -> TraceFormatError:
        """Say what is wrong with a sound line; a newer file's records may well be unknown."""
        message, _, where = str(error).partition(" - at ")
        if b'"schema_version"' in line:
            found = re.search(rb'"schema_version"\s*:\s*([^,}\s]+)', line)
            message += f" (schema_version {found[1].decode(errors='replace') if found else '?'})"
        field = where.strip("`") or None
        return TraceFormatError(message, file=str(self._path), line=number, field=field)


def _is_sound(line: bytes) -> bool:
    """Return whether a line is JSON at all; one that was cut or overwritten is not."""
    try:
        msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True
