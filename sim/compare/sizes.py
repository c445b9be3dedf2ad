"""Sizes as people write them: a range, or a list.

parse_sizes("1KiB:1GiB")            # each twice the one before, both ends included
parse_sizes("1KiB:1GiB:x4")         # each four times the one before
parse_sizes("1KiB,64KiB,1MiB")
"""

from __future__ import annotations

import re

from ...errors import ScheduleError
from ...units import parse_bytes

# More than anybody looks at, and far less than would fill the memory.
MOST_SIZES = 1000
_LEAST_FACTOR = 1.01


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes that a text names, in bytes and rising.

    Args:
        text: ``FROM:TO``, ``FROM:TO:xFACTOR`` or a list with commas, whose items may be ranges.

    Raises:
        ScheduleError: It does not parse; the last lines of the message point at the character.

    Example:
        >>> parse_sizes("1KiB:16KiB:x4,1MiB")
        (1024, 4096, 16384, 1048576)
    """
    found: set[int] = set()
    for item in re.finditer(r"[^,]*,?", text):
        if item.group() or item.start() == 0:
            found.update(_item(text, item.group().removesuffix(","), item.start()))
        if len(found) > MOST_SIZES:
            raise _error(text, item.start(), f"more than {MOST_SIZES:,} sizes")
    if text.endswith(","):
        raise _error(text, len(text), "expected a size after the comma")
    return tuple(sorted(found))


def _item(text: str, item: str, at: int) -> set[int]:
    """Return the sizes of one item of a list, which begins at this character."""
    first, *rest = item.split(":")
    low = _size(text, first, at)
    if not rest:
        return {low}
    end_at = at + len(first) + 1
    high = _size(text, rest[0], end_at)
    if high < low:
        raise _error(text, end_at, f"the range ends at {rest[0]}, before it begins")
    factor_at = end_at + len(rest[0]) + 1
    if len(rest) > 2:
        raise _error(text, factor_at + len(rest[1]) + 1, "expected FROM:TO or FROM:TO:xFACTOR")
    factor = _factor(text, rest[1], factor_at) if len(rest) == 2 else 2.0
    sizes, value = {low}, float(low)
    while value < high:
        value *= factor
        # The last step may be a shorter one: both ends of a range are asked for.
        sizes.add(min(round(value), high))
    return sizes


def _size(text: str, part: str, at: int) -> int:
    try:
        size = parse_bytes(part)
    except (ValueError, OverflowError) as error:
        raise _error(text, at, str(error)) from None
    if size == 0:
        raise _error(text, at, "size 0, expected 1 or more bytes")
    return size


def _factor(text: str, part: str, at: int) -> float:
    number = re.fullmatch(r"x(\d+(?:\.\d+)?)", part)
    if number is None or float(number.group(1)) < _LEAST_FACTOR:
        raise _error(text, at, f"factor {part!r}, expected x{_LEAST_FACTOR} or more, such as x4")
    return float(number.group(1))


def _error(text: str, at: int, message: str) -> ScheduleError:
    """Return an error whose last two lines show the text and a caret under the character."""
    return ScheduleError(f"{message}\n  {text}\n  {' ' * at}^")
