"""A Comparison: how long each algorithm takes at each size, which one wins, and where that changes.

found.time_ns[found.algorithms.index("ring")]   # by size
found.winner(1 << 20)
print(found.to_csv())
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...errors import ScheduleError
from ...traces.trace import JSON
from ...units import format_bytes
from ..collectives import busbw_factor

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Times that are closer than this, relative, are the same: the sums were taken in another order.
SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Crossover:
    """A size at which another algorithm becomes the fastest.

    Attributes:
        size_bytes: The first size, to within 1 %, at which `after` is the fastest.
        before: The fastest one below.
        after: The fastest one from there on.
    """

    size_bytes: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An algorithm that has no time at some sizes, or at all.

    Attributes:
        algorithm: Its name.
        reason: Why.
        size_bytes: The sizes; empty for all.
    """

    algorithm: str
    reason: str
    size_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Comparison:
    """Times of algorithms by size; made by `compare`.

    Attributes:
        collective: Name of the collective.
        ranks: Group size.
        dtype: Torch's name of the element type.
        algorithms: Those that have a time at some size, in the library's order.
        size_bytes: Bytes of the whole data, rising, (sizes,).
        time_ns: Unrounded time of each algorithm, NaN where it has none, (algorithms, sizes).
        latency_bound_ns: What no algorithm can beat because news takes time to travel, (sizes,).
        bandwidth_bound_ns: The same because of what each rank's own links carry, (sizes,).
        cut_bound_ns: The same because of what the links around any set of ranks carry, (sizes,).
        bound_text: What decides the bound at the largest size, in words.
        crossovers: Where the winner changes, by size.
        left_out: Algorithms that could not run, and why.
        model: Topology, policy, parameters, version: what belongs beside every number.
    """

    collective: str
    ranks: int
    dtype: str
    algorithms: tuple[str, ...]
    size_bytes: Ints
    time_ns: Floats
    latency_bound_ns: Floats
    bandwidth_bound_ns: Floats
    cut_bound_ns: Floats
    bound_text: str
    crossovers: tuple[Crossover, ...]
    left_out: tuple[LeftOut, ...]
    model: dict[str, JSON]

    @cached_property
    def algbw_Bps(self) -> Floats:
        """Bytes of the whole data over the time, (algorithms, sizes); 0 where it takes no time.

        Source: nccl-tests, doc/PERFORMANCE.md.
        """
        return _rate(self.size_bytes, self.time_ns)

    @cached_property
    def busbw_Bps(self) -> Floats:
        """Algorithm bandwidth times the collective's factor, (algorithms, sizes)."""
        return self.algbw_Bps * busbw_factor(self.collective, self.ranks)

    @cached_property
    def bound_ns(self) -> Floats:
        """What no algorithm can beat, (sizes,): the largest of the bounds."""
        own = np.maximum(self.latency_bound_ns, self.bandwidth_bound_ns)
        return np.maximum(own, self.cut_bound_ns)

    @cached_property
    def bound_busbw_Bps(self) -> Floats:
        """The highest bus bandwidth that there could be, (sizes,)."""
        return _rate(self.size_bytes, self.bound_ns) * busbw_factor(self.collective, self.ranks)

    @cached_property
    def winners(self) -> tuple[str, ...]:
        """The fastest algorithm at each size; of equals, the one that won at the size before."""
        return tuple(self.algorithms[k] for k in fastest(self.time_ns))

    def winner(self, size_bytes: int) -> str:
        """Return the fastest algorithm at a size, between the compared ones by the crossovers.

        Raises:
            ScheduleError: The size is smaller or larger than all that were compared.

        Example:
            >>> from . import compare
            >>> compare("all_reduce", 8, "ring:100GB/s,1us", ["ring", "tree"]).winner(1 << 30)
            'ring'
        """
        low, high = int(self.size_bytes[0]), int(self.size_bytes[-1])
        if not low <= size_bytes <= high:
            raise ScheduleError(
                f"{format_bytes(size_bytes)} was not compared, expected "
                f"{format_bytes(low)} to {format_bytes(high)}"
            )
        passed = [cross for cross in self.crossovers if cross.size_bytes <= size_bytes]
        return passed[-1].after if passed else self.winners[0]

    def ranking(self, k: int) -> list[tuple[str, ...]]:
        """Return the algorithms at the k-th size, the fastest first, equals together."""
        times = self.time_ns[:, k]
        order = [int(a) for a in np.argsort(times, kind="stable") if not np.isnan(times[a])]
        groups: list[list[int]] = []
        for a in order:
            if groups and same(times[a], times[groups[-1][0]]):
                groups[-1].append(a)
            else:
                groups.append([a])
        first = self.winners[k]
        names = [sorted(group, key=lambda a: (self.algorithms[a] != first, a)) for group in groups]
        return [tuple(self.algorithms[a] for a in group) for group in names]

    def to_dict(self) -> dict[str, JSON]:
        """Return everything as plain data: times in nanoseconds, None where there is none."""
        columns: dict[str, JSON] = {
            name: {"time_ns": _plain(times), "busbw_Bps": _plain(busbw)}
            for name, times, busbw in zip(self.algorithms, self.time_ns, self.busbw_Bps)
        }
        bounds: dict[str, JSON] = {
            "time_ns": _plain(self.bound_ns),
            "latency_ns": _plain(self.latency_bound_ns),
            "bandwidth_ns": _plain(self.bandwidth_bound_ns),
            "cut_ns": _plain(self.cut_bound_ns),
            "text": self.bound_text,
        }
        return {
            "collective": self.collective,
            "ranks": self.ranks,
            "dtype": self.dtype,
            "size_bytes": self.size_bytes.tolist(),
            "winner": list(self.winners),
            "crossovers": [
                {"size_bytes": cross.size_bytes, "before": cross.before, "after": cross.after}
                for cross in self.crossovers
            ],
            "algorithms": columns,
            "lower_bound": bounds,
            "left_out": [
                {"algorithm": out.algorithm, "reason": out.reason, "size_bytes": [*out.size_bytes]}
                for out in self.left_out
            ],
            "model": self.model,
        }

    def to_json(self) -> str:
        """Return everything as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def to_csv(self) -> str:
        """Return a line for each size and algorithm, with the bound and whether it is the winner.

        Example:
            >>> from . import compare
            >>> print(compare("broadcast", 2, "ring", ["flat"], sizes="1KiB").to_csv().split()[0])
            collective,ranks,size_bytes,algorithm,time_ns,algbw_Bps,busbw_Bps,bound_ns,winner
        """
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(_CSV)
        writer.writerows(self._lines())
        return out.getvalue()

    def _lines(self) -> Iterator[tuple[str | int | float, ...]]:
        for k, size in enumerate(self.size_bytes.tolist()):
            for a, name in enumerate(self.algorithms):
                time_ns = float(self.time_ns[a, k])
                if np.isnan(time_ns):
                    continue
                algbw, busbw = float(self.algbw_Bps[a, k]), float(self.busbw_Bps[a, k])
                bound_ns, won = float(self.bound_ns[k]), int(name == self.winners[k])
                head = (self.collective, self.ranks, size, name)
                yield (*head, time_ns, algbw, busbw, bound_ns, won)


_CSV = (
    "collective", "ranks", "size_bytes", "algorithm", "time_ns", "algbw_Bps", "busbw_Bps",
    "bound_ns", "winner",
)  # fmt: skip


def fastest(time_ns: Floats) -> list[int]:
    """Return the row that is the least in each column; of equals, the one of the column before."""
    winners: list[int] = []
    for times in time_ns.T:
        best = int(np.nanargmin(times))
        equal = [a for a in range(len(times)) if same(times[a], times[best])]
        winners.append(winners[-1] if winners and winners[-1] in equal else equal[0])
    return winners


def same(first: float, second: float) -> bool:
    """Return whether two times differ by no more than sums in another order do."""
    return bool(abs(first - second) <= SAME * max(abs(first), abs(second)))


def _rate(size_bytes: Ints, time_ns: Floats) -> Floats:
    """Return bytes a second; 0 for no time."""
    rate = np.zeros(np.broadcast_shapes(size_bytes.shape, time_ns.shape))
    np.divide(size_bytes * 1e9, time_ns, out=rate, where=time_ns != 0)
    return rate


def _plain(values: Sequence[float] | Floats) -> list[JSON]:
    return [None if np.isnan(value) else float(value) for value in values]
