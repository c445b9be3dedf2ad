"""Where the winner changes: two sizes with different winners, halved until they are close."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .comparison import Crossover, Floats, Ints, fastest, same

# A crossover is known when the sizes around it differ by less than this factor.
CLOSE = 1.01
# Algorithms that come so near to the fastest, on a straight line between two sizes, may win there.
_NEAR = 1.05

# From sizes by algorithm to times by algorithm, NaN where there is none.
Evaluate = Callable[[Mapping[int, Sequence[int]]], Mapping[int, Sequence[float]]]


@dataclass(frozen=True, slots=True)
class _Gap:
    """Two sizes with different winners, and the algorithms that may win between them."""

    low: int
    high: int
    before: int
    after: int
    rivals: tuple[int, ...]

    def middle(self, unit: int) -> int | None:
        """Return a size between the two, a multiple of the unit; None where they are close."""
        if self.high <= self.low * CLOSE:
            return None
        middle = round((self.low * self.high) ** 0.5 / unit) * unit
        return middle if self.low < middle < self.high else None


def find_crossovers(
    names: Sequence[str], size_bytes: Ints, time_ns: Floats, unit: int, evaluate: Evaluate
) -> tuple[Crossover, ...]:
    """Return the sizes at which the winner changes, rising.

    Between two sizes with the same winner none is looked for.

    Args:
        names: Names of the algorithms.
        size_bytes: Sizes that were simulated, (sizes,).
        time_ns: Their times, (algorithms, sizes).
        unit: Bytes that every size must be a multiple of.
        evaluate: Simulates algorithms at more sizes.
    """
    winners = fastest(time_ns)
    gaps = [
        _Gap(
            int(size_bytes[k]),
            int(size_bytes[k + 1]),
            winners[k],
            winners[k + 1],
            _rivals(time_ns[:, k : k + 2], winners[k : k + 2]),
        )
        for k in range(len(winners) - 1)
        if winners[k] != winners[k + 1]
    ]
    found: list[Crossover] = []
    while gaps:
        middles = [(gap, gap.middle(unit)) for gap in gaps]
        wanted: dict[int, set[int]] = {}
        for gap, middle in middles:
            if middle is None:
                found.append(Crossover(gap.high, names[gap.before], names[gap.after]))
                continue
            for rival in gap.rivals:
                wanted.setdefault(rival, set()).add(middle)
        sizes = {rival: sorted(of_rival) for rival, of_rival in wanted.items()}
        times = {
            (rival, size): time
            for rival, found_ns in (evaluate(sizes) if sizes else {}).items()
            for size, time in zip(sizes[rival], found_ns, strict=True)
        }
        gaps = [
            half for gap, middle in middles if middle is not None
            for half in _halves(gap, middle, times)
        ]  # fmt: skip
    return tuple(sorted(found, key=lambda cross: cross.size_bytes))


def _halves(gap: _Gap, middle: int, times: Mapping[tuple[int, int], float]) -> list[_Gap]:
    """Return the halves of a gap in which the winner changes."""
    here = {rival: times[rival, middle] for rival in gap.rivals}
    here = {rival: time for rival, time in here.items() if not np.isnan(time)}
    if not here:
        return []
    best = min(here, key=lambda rival: here[rival])
    equal = [rival for rival in here if same(here[rival], here[best])]
    winner = next((rival for rival in (gap.before, gap.after) if rival in equal), best)
    halves = [
        _Gap(gap.low, middle, gap.before, winner, gap.rivals),
        _Gap(middle, gap.high, winner, gap.after, gap.rivals),
    ]
    return [half for half in halves if half.before != half.after]


def _rivals(ends: Floats, winners: Sequence[int]) -> tuple[int, ...]:
    """Return the algorithms that may win between two sizes, of their times there, (algorithms, 2).

    Times are close to straight lines over the size, so only those matter whose line comes near to
    the lowest somewhere.
    """
    share = np.linspace(0, 1, 17)
    lines = ends[:, :1] * (1 - share) + ends[:, 1:] * share
    near = (lines <= np.nanmin(lines, axis=0) * _NEAR).any(axis=1)
    return tuple(sorted({*np.flatnonzero(near).tolist(), *winners}))
