"""Where messages met most others."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from .engine import Times, Work
from .groups import Groups
from .loads import begins, paths_at


class Crowd:
    """Finds the link on which a message met most others."""

    def __init__(self, work: Work, times: Times) -> None:
        self.work, self.times = work, times

    @cached_property
    def paths_on(self) -> Groups:
        """Places in `path_links` by link."""
        return Groups.of(self.work.program.path_links, len(self.work.program.link_rate))

    @cached_property
    def messages_on(self) -> Groups:
        """Messages by path."""
        return Groups.of(self.work.program.pair, len(self.work.program.rate))

    def busiest(self, m: int) -> tuple[str, str] | None:
        """Return the link of a message's path that had most to carry while its bytes flowed."""
        p, work, one = self.work.program, self.work, np.array([m])
        begin, end = float(begins(work, self.times, one)[0]), float(self.times.arrived[m])
        path = int(paths_at(work, one, self.times.start[one])[0])
        links = p.path_links[p.path_starts[path] : p.path_starts[path + 1]]
        if not len(links):
            return None
        load = [self._carried(int(link), begin, end) / p.link_rate[link] for link in links]
        return work.links.ends[int(links[int(np.argmax(load))]) % len(work.links.ends)]

    def _carried(self, link: int, begin: float, end: float) -> float:
        """Return about how many bytes a link carried in a time."""
        p, times = self.work.program, self.times
        hops = self.paths_on.of_group(link)
        paths = (np.searchsorted(p.path_starts, hops, side="right") - 1) % len(self.work.paths.rate)
        on_link = np.concatenate([self.messages_on.of_group(int(path)) for path in paths])
        arrived, began = times.arrived[on_link], begins(self.work, times, on_link)
        overlap = np.clip(np.minimum(arrived, end) - np.maximum(began, begin), 0, None)
        lasted = np.maximum(arrived - began, np.finfo(np.float64).tiny)
        return float((p.size_bytes[on_link] * overlap / lasted).sum())
