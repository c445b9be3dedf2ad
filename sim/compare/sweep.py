"""Simulate every algorithm of a collective at every size, here or on many machines.

compare("all_reduce", 64, "dgx-h100x8")
with ProcessPoolExecutor() as pool:
    compare("all_reduce", 1024, "fat-tree", executor=pool)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ...errors import ScheduleError, TopologyError
from ...traces.schema import DTYPES
from ..collectives import collective as collective_named
from ..cost import Bounds
from ..model import Model
from ..spec import Spec
from ..topology import Topology, parse
from .comparison import Comparison, Ints, LeftOut
from .contenders import Own, Plan, contenders
from .crossovers import find_crossovers
from .points import SIZES_A_PIECE, Answer, Piece, Progress, Runner
from .sizes import parse_sizes

DEFAULT_SIZES = "1KiB:1GiB"
# Where every rank reaches every other one, and a switch can reduce.
DEFAULT_TOPOLOGY = "star"
# More than a ring of 1,024 ranks has by far; at 120 bytes each it fits into memory.
MOST_TRANSFERS = 10_000_000


def compare(
    collective: str,
    ranks: int,
    topology: Topology | str = DEFAULT_TOPOLOGY,
    algorithms: Sequence[str | Own] | None = None,
    *,
    sizes: str | Sequence[int] = DEFAULT_SIZES,
    dtype: str = "float32",
    root: int | None = None,
    model: Model | None = None,
    most_transfers: int = MOST_TRANSFERS,
    executor: Executor | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> Comparison:
    """Return how long algorithms take at several sizes, and which one is the fastest where.

    Args:
        collective: Name of the collective.
        ranks: Group size.
        topology: The network, or its text.
        algorithms: Names as `chunkscope sim` takes them, functions of the group size, or schedules;
            None for all that the library has.
        sizes: Bytes of the whole data, or a text such as ``1KiB:1GiB``; see `parse_sizes`. They are
            rounded down to whole elements (whole blocks for collectives that have them). A barrier
            has none.
        dtype: Torch's name of the element type.
        root: Rank of the root, where the collective has one.
        model: The step model's parameters.
        most_transfers: An algorithm whose plan has more is left out.
        executor: Any `concurrent.futures.Executor`: a process pool, Dask's ``get_executor()``,
            MPI's ``MPIPoolExecutor``. None for this process.
        progress: Called with (simulations done, simulations known of so far); the crossovers add
            some at the end.
        parameters: Any of the model's parameters by name, as `simulate` takes them.

    Raises:
        ScheduleError: A name, size or parameter is wrong, or no algorithm has a time.
        TopologyError: The topology cannot be read, or does not fit the number of ranks.

    Example:
        >>> found = compare("all_reduce", 8, "star", ["ring", "tree"], sizes="1KiB:1MiB")
        >>> [(cross.before, cross.after) for cross in found.crossovers]
        [('tree', 'ring')]
    """
    model = replace(model or Model(), **parameters)
    spec = Spec(collective, ranks=ranks, dtype=dtype, root=root, model=model)
    network = parse(topology, ranks) if isinstance(topology, str) else topology
    if network.n_ranks != ranks:
        raise TopologyError(f"{network.name} has {network.n_ranks} ranks, expected {ranks}")
    unit = _unit(spec)
    size_bytes = _sizes(spec, sizes, unit)
    plans, invalid = contenders(spec, algorithms)
    points = len(plans) * len(size_bytes)
    sweep = _Sweep(network, most_transfers, points, Runner(executor, progress))
    answers = sweep.of([(plan, size_bytes) for plan in plans])
    left_out = (*invalid, *(out for pair in zip(plans, answers) for out in _left_out(*pair)))
    done = [(plan, answer) for plan, answer in zip(plans, answers) if answer.has_times]
    if not done:
        reasons = "; ".join(f"{out.algorithm}: {out.reason}" for out in left_out[:3])
        raise ScheduleError(f"no algorithm of {collective} has a time here: {reasons}")
    names = tuple(plan.name for plan, _ in done)
    time_ns = np.array([answer.time_ns for _, answer in done])
    somebody = ~np.isnan(time_ns).all(axis=0)
    size_bytes, time_ns = size_bytes[somebody], time_ns[:, somebody]
    bounds = sweep.bounds(done, size_bytes)
    more = partial(sweep.more, [plan for plan, _ in done])
    return Comparison(
        collective=collective,
        ranks=ranks,
        dtype=dtype,
        algorithms=names,
        size_bytes=size_bytes,
        time_ns=time_ns,
        latency_bound_ns=np.array([bound.latency_ns for bound in bounds]),
        bandwidth_bound_ns=np.array([bound.bandwidth_ns for bound in bounds]),
        cut_bound_ns=np.array([bound.cut_ns for bound in bounds]),
        bound_text=bounds[-1].text,
        crossovers=find_crossovers(names, size_bytes, time_ns, unit, more),
        left_out=left_out,
        model=model.to_dict(network),
    )


@dataclass(frozen=True, slots=True)
class _Sweep:
    """What is the same for every algorithm and size."""

    topology: Topology
    most_transfers: int
    points: int
    runner: Runner

    def of(self, wanted: Sequence[tuple[Plan, Ints]], *, bounds: bool = False) -> list[Answer]:
        """Return what each plan comes to at its sizes."""
        pieces, ends = [], [0]
        for plan, sizes in wanted:
            for first in range(0, len(sizes), SIZES_A_PIECE):
                some = tuple(sizes[first : first + SIZES_A_PIECE].tolist())
                pieces.append(self._piece(plan, some, bounds))
            ends.append(len(pieces))
        answers = self.runner.answers(pieces)
        return [Answer.joined(answers[low:high]) for low, high in pairwise(ends)]

    def more(
        self, plans: Sequence[Plan], sizes: Mapping[int, Sequence[int]]
    ) -> dict[int, Sequence[float]]:
        """Return the times of some plans at some more sizes."""
        answers = self.of([(plans[k], np.array(of_plan)) for k, of_plan in sizes.items()])
        return {k: answer.time_ns for k, answer in zip(sizes, answers)}

    def _piece(self, plan: Plan, sizes: tuple[int, ...], bounds: bool) -> Piece:
        return Piece(plan, self.topology, sizes, self.most_transfers, self.points, bounds)

    def bounds(self, done: Sequence[tuple[Plan, Answer]], size_bytes: Ints) -> list[Bounds]:
        """Return lower bounds at each size, for what all these plans have in common.

        They ask for a plan, of which only what it achieves counts, and whether switches reduce. If
        they do in any, less must be moved.
        """
        # Those whose switches reduce first; where none has a time, the others are bound by more.
        order = sorted(done, key=lambda pair: (not pair[1].in_network, pair[1].n_transfers))
        found: dict[int, Bounds] = {}
        for plan, answer in order:
            lacking = [
                size for size in size_bytes.tolist()
                if size not in found and size not in answer.reasons
            ]  # fmt: skip
            if lacking:
                bounds = self.of([(plan, np.array(lacking))], bounds=True)[0].bounds
                found.update(zip(lacking, bounds))
        return [found[size] for size in size_bytes.tolist()]


def _unit(spec: Spec) -> int:
    """Return the bytes that every size must be a multiple of."""
    if spec.dtype not in DTYPES:
        raise ScheduleError(f"unknown dtype {spec.dtype!r}; known: {', '.join(DTYPES)}")
    return DTYPES[spec.dtype] * (spec.ranks if collective_named(spec.collective).by_block else 1)


def _sizes(spec: Spec, sizes: str | Sequence[int], unit: int) -> Ints:
    """Return the sizes in multiples of the unit, rising, each once."""
    wanted = parse_sizes(sizes) if isinstance(sizes, str) else sizes
    if spec.collective == "barrier":
        return np.zeros(1, np.int64)  # nothing to carry
    if not len(wanted) or min(wanted) < 1:
        raise ScheduleError(f"sizes are {list(wanted)}, expected at least one, of 1 byte or more")
    return np.array(sorted({max(size // unit, 1) * unit for size in wanted}), np.int64)


def _left_out(plan: Plan, answer: Answer) -> list[LeftOut]:
    """Return why a plan has no time, reason by reason."""
    if answer.reasons and not answer.has_times:
        return [LeftOut(plan.name, next(iter(answer.reasons.values())))]
    sizes: dict[str, list[int]] = {}
    for size, reason in answer.reasons.items():
        sizes.setdefault(reason, []).append(size)
    return [LeftOut(plan.name, reason, tuple(at)) for reason, at in sizes.items()]
