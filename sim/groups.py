"""Things in groups, to look up those of one group without a pass over all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .compiled import kernel, run

Ints = npt.NDArray[Any]  # of any width


class Groups(NamedTuple):
    """Numbers of things in groups: those of group g, rising, are order[starts[g] : starts[g+1]]."""

    starts: Ints
    order: Ints

    @staticmethod
    def of(group: Ints, n_groups: int, spans: Ints | None = None) -> Groups:
        """Return things by their group, or by all of `spans` groups from theirs on."""
        each: Ints = np.ones(len(group), np.int8) if spans is None else spans
        ends = np.zeros(n_groups + 1, np.int64)
        ends += np.bincount(group, minlength=n_groups + 1)
        if spans is None:
            counts = ends[:-1]
        else:
            ends -= np.bincount(group + spans, minlength=n_groups + 1)
            counts = np.cumsum(ends[:-1])
        starts = np.concatenate([[0], np.cumsum(counts)])
        order: Ints = np.empty(int(starts[-1]), np.int32)
        run(_fill, len(group))(group, each, starts[:-1].copy(), order)
        return Groups(starts, order)

    def of_group(self, group: int) -> Ints:
        """Return the numbers of the things in one group."""
        found: Ints = self.order[self.starts[group] : self.starts[group + 1]]
        return found


@kernel
def _fill(group: Ints, spans: Ints, fill: Ints, order: Ints) -> None:
    """Put each thing's number where its groups have room."""
    for k in range(len(group)):
        for g in range(group[k], group[k] + spans[k]):
            order[fill[g]] = k
            fill[g] += 1


def count_up_to(rising: Ints, limit: int) -> int:
    """Return how many of some rising numbers are at most a limit."""
    # In the numbers' own type: with another one numpy would convert all of them first.
    return int(np.searchsorted(rising, rising.dtype.type(limit), side="right"))
