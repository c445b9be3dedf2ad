"""What the links of a topology carried, and when.

replay.links.busiest(3)                 # the links that carried most for their rate
replay.links.rate_over_time("r0", "r1") # when how much flowed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .replay import Replay

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class LinkLoad(NamedTuple):
    """What one link carried.

    Attributes:
        src, dst: Nodes that it leads from and to.
        size_bytes: Bytes that crossed it, headers included.
        utilisation: Share of what it could have carried in the whole time.
    """

    src: str
    dst: str
    size_bytes: int
    utilisation: float


@dataclass(frozen=True, slots=True, eq=False)
class LinkLoads:
    """What each directed link carried.

    Attributes:
        ends: Names of the nodes that each link leads from and to.
        rate_Bps: What each can carry, (links,).
        size_bytes: What each carried, headers included, (links,).
        duration_ns: The whole time.
    """

    ends: tuple[tuple[str, str], ...]
    rate_Bps: Floats
    size_bytes: Floats
    duration_ns: float

    @property
    def utilisation(self) -> Floats:
        """Share of what each link could have carried in the whole time, (links,).

        It may be more than 1 where links are not shared.
        """
        if self.duration_ns <= 0:
            return np.zeros(len(self.ends))
        return self.size_bytes * 1e9 / (self.rate_Bps * self.duration_ns)

    def busiest(self, n: int) -> list[LinkLoad]:
        """Return the n links that carried most for their rate, the busiest first."""
        use = self.utilisation
        found = []
        for k in np.argsort(-use, kind="stable")[:n].tolist():
            src, dst = self.ends[k]
            found.append(LinkLoad(src, dst, round(self.size_bytes[k]), float(use[k])))
        return found


def link_loads(replay: Replay) -> LinkLoads:
    """Return what the links of a replay carried."""
    paths, links = replay._work.paths, replay._work.links
    carried = np.bincount(paths.pair, replay._work.program.size_bytes, len(paths.rate))
    sizes = np.repeat(carried, np.diff(paths.starts))
    total = np.bincount(paths.links, sizes, minlength=len(links.ends)).astype(np.float64)
    return LinkLoads(links.ends, links.rate * 1e9, total, replay.exact_duration_ns)
