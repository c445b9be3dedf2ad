"""Aligning two sequences like a text diff, the same way from either side.

align("abcd", "acd")    # [(0, 0), (1, None), (2, 1), (3, 2)]
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TypeVar

Item = TypeVar("Item", int, str)
Pair = tuple[int | None, int | None]

# Beyond this many comparisons, what differs is paired by position: the search is quadratic.
_MOST_COMPARISONS = 4_000_000


def align(a: Sequence[Item], b: Sequence[Item]) -> list[Pair]:
    """Return which item of `a` stands opposite which item of `b`, in order.

    Items that were replaced stand opposite each other; None is opposite an item that the other
    side lacks. Swapping `a` and `b` swaps the pairs.

    Example:
        >>> align([1, 2, 3], [1, 3])
        [(0, 0), (1, None), (2, 1)]
    """
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    pairs: list[Pair] = [(k, k) for k in range(start)]
    middle_a, middle_b = list(a[start : len(a) - end]), list(b[start : len(b) - end])
    # difflib favours one side; always giving it the same side first makes it symmetric.
    if (len(middle_a), middle_a) <= (len(middle_b), middle_b):
        pairs += _shifted(_middle(middle_a, middle_b), start)
    else:
        pairs += _shifted([(j, i) for i, j in _middle(middle_b, middle_a)], start)
    pairs += [(len(a) - k, len(b) - k) for k in range(end, 0, -1)]
    return pairs


def _shifted(pairs: list[Pair], by: int) -> list[Pair]:
    return [(None if i is None else i + by, None if j is None else j + by) for i, j in pairs]


def _middle(a: list[Item], b: list[Item]) -> list[Pair]:
    if len(a) * len(b) > _MOST_COMPARISONS:
        return _opposite(0, len(a), 0, len(b))
    pairs: list[Pair] = []
    for _, a0, a1, b0, b1 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        pairs += _opposite(a0, a1, b0, b1)
    return pairs


def _opposite(a0: int, a1: int, b0: int, b1: int) -> list[Pair]:
    """Return the items of two stretches one against one, then what is left of the longer one."""
    both = min(a1 - a0, b1 - b0)
    pairs: list[Pair] = [(a0 + k, b0 + k) for k in range(both)]
    pairs += [(i, None) for i in range(a0 + both, a1)]
    pairs += [(None, j) for j in range(b0 + both, b1)]
    return pairs
