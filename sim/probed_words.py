"""Words for what probes tell: elements, parts, and what is wrong with a set of parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..traces.check.finding import Code
from ..traces.check.run import names
from ..traces.probes import Decoded

MOST_SPANS = 3


def elements(indices: Sequence[int] | Any) -> str:
    """Return elements in words.

    Example:
        >>> elements([3]), elements([8, 9, 10, 11]), elements([0, 1, 5])
        ('element 3', 'elements 8 to 11', 'elements 0 and 1, 5')
    """
    at = np.unique(np.asarray(indices, np.int64))
    if len(at) == 1:
        return f"element {at[0]}"
    cuts = np.flatnonzero(np.diff(at) != 1) + 1
    spans = [part.tolist() for part in np.split(at, cuts)]
    shown = [_span(span) for span in spans[:MOST_SPANS]]
    more = f" and {len(spans) - MOST_SPANS} more spans" if len(spans) > MOST_SPANS else ""
    return f"elements {', '.join(shown)}{more}"


def _span(span: list[int]) -> str:
    if len(span) == 1:
        return str(span[0])
    return f"{span[0]} and {span[1]}" if len(span) == 2 else f"{span[0]} to {span[-1]}"


def parts(ranks: Sequence[int]) -> str:
    """Return a set of parts, once a contribution.

    Example:
        >>> parts([0, 0, 1])
        '{0,0,1}'
    """
    return "{" + ",".join(map(str, ranks[:16])) + (",..." if len(ranks) > 16 else "") + "}"


def trouble(found: Sequence[int], due: Sequence[int]) -> tuple[Code, str] | None:
    """Return what is wrong with a set of parts, or None where it is the one that is due.

    Args:
        found: Ranks whose parts are in it, once a contribution.
        due: Ranks whose parts should be.

    Example:
        >>> trouble([0, 0, 1], [0, 1])[1], trouble([0], [0, 1])[1]
        ("rank 0's part is in it twice", "rank 1's part is missing")
    """
    there, wanted = Counter(found), Counter(due)
    twice = sorted(rank for rank in there if there[rank] > max(wanted[rank], 1))
    extra = sorted(rank for rank in there if not wanted[rank])
    lacking = sorted(rank for rank in wanted if not there[rank])
    if twice:
        times = {2: "twice", 3: "three times"}[min(there[twice[0]], 3)]
        return Code.TWICE, f"{owners(twice)} in it {times}"
    if lacking and not there:
        return Code.MISSING, "nobody's part is in it"
    if lacking:
        return Code.MISSING, f"{owners(lacking)} missing"
    if extra:
        return Code.EXTRA, f"{owners(extra)} in it, which should not be"
    return None


def owners(ranks: Sequence[int]) -> str:
    """Return whose parts: "rank 1's part is", "the parts of ranks 1 and 2 are"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}'s part is"
    return f"the parts of {names(ranks)} are"


def odd_value(told: Decoded, values: Any, at: int) -> str:
    """Return what a value is that tells of no part."""
    if told.zero[at]:
        return "is 0: nobody's part"
    return f"is {values[at]}, which is no sum of probes of one element"
