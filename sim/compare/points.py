"""The work of a sweep, in pieces that a process pool or another machine can take.

    answers = Runner(executor, progress).answers([Piece(plan, topology, sizes, ...)])

A piece is one algorithm at several sizes: its plan is built once for them, where it does not depend
on the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass, replace
from math import nan

from ...errors import ScheduleError, TopologyError
from ..algorithms import ALGORITHMS
from ..bind import BoundSchedule, bind
from ..compiled import expecting
from ..cost import Bounds
from ..parameters import split
from ..replay import simulate
from ..room import expected_rows
from ..schedule import Schedule
from ..spec import Spec
from ..topology import Topology
from .contenders import Plan

Progress = Callable[[int, int], None]

# Sizes of one piece: so many that building the plan is little beside simulating it, and so few
# that a slow algorithm keeps several processes busy.
SIZES_A_PIECE = 8


@dataclass(frozen=True, slots=True)
class Piece:
    """An algorithm at some sizes.

    Attributes:
        plan: The algorithm.
        topology: The network.
        sizes: Bytes of the whole data.
        most_transfers: A plan with more is not simulated.
        points: Simulations of the whole sweep: whether compiling is worth it depends on them.
        bounds: Whether to give the lower bounds as well.
    """

    plan: Plan
    topology: Topology
    sizes: tuple[int, ...]
    most_transfers: int
    points: int
    bounds: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What simulating a piece came to.

    Attributes:
        time_ns: Unrounded time at each size; NaN where there is none.
        reasons: Why there is none at a size, by the size.
        n_transfers: Transfers of the plan; 0 if there is none.
        in_network: Whether switches reduce in it.
        bounds: Lower bounds at each size, if they were asked for.
    """

    time_ns: tuple[float, ...]
    reasons: dict[int, str]
    n_transfers: int = 0
    in_network: bool = False
    bounds: tuple[Bounds, ...] = ()

    @property
    def has_times(self) -> bool:
        """Whether it has a time at some size."""
        return len(self.reasons) < len(self.time_ns)

    @staticmethod
    def joined(answers: Sequence[Answer]) -> Answer:
        """Return the answers to the pieces of one plan as one."""
        return Answer(
            tuple(time for answer in answers for time in answer.time_ns),
            {size: why for answer in answers for size, why in answer.reasons.items()},
            max(answer.n_transfers for answer in answers),
            any(answer.in_network for answer in answers),
            tuple(bound for answer in answers for bound in answer.bounds),
        )


def answer_of(piece: Piece) -> Answer:
    """Return the times of a piece, computed here and now; what goes wrong becomes a reason."""
    bound: BoundSchedule | None = None
    times: list[float] = []
    reasons: dict[int, str] = {}
    bounds: list[Bounds] = []
    for size in piece.sizes:
        try:
            bound = _bound(piece, size, bound)
            with expecting(len(bound.schedule) * piece.points):
                replay = simulate(bound, piece.topology, piece.plan.spec.model)
        except (ScheduleError, TopologyError) as error:
            reasons[size] = str(error)
            times.append(nan)
            continue
        times.append(replay.exact_duration_ns)
        if piece.bounds:
            bounds.append(replay.bounds)
    if bound is None:
        return Answer(tuple(times), reasons)
    helped = bool(bound.schedule.helpers)
    return Answer(tuple(times), reasons, len(bound.schedule), helped, tuple(bounds))


def _bound(piece: Piece, size_bytes: int, before: BoundSchedule | None) -> BoundSchedule:
    """Return the plan of a piece at a size, from that at the size before where it can be."""
    spec = replace(piece.plan.spec, size_bytes=size_bytes)
    # A plan for one size alone has its chunks' elements.
    if before is not None and before.schedule.chunk_elements is None:
        return before.with_count(spec.count())
    schedule = _schedule(piece.plan, size_bytes, piece.most_transfers)
    with expecting(len(schedule) * piece.points):
        return bind(schedule, spec.count(), spec.dtype)


def _schedule(plan: Plan, size_bytes: int, most_transfers: int) -> Schedule:
    """Return the schedule for a size; one that is known to be too large is not built.

    Raises:
        ScheduleError: There is none, or it has more transfers than that.
    """
    schedule, spec = plan.own, replace(plan.spec, size_bytes=size_bytes)
    n_transfers = _expected_transfers(spec) if schedule is None else len(schedule)
    if schedule is None and n_transfers <= most_transfers:
        schedule = spec.schedule()
        n_transfers = len(schedule)
    if schedule is None or n_transfers > most_transfers:
        found, limit = _millions(n_transfers), _millions(most_transfers)
        raise ScheduleError(f"{found} transfers, more than the limit of {limit}")
    return schedule


def _expected_transfers(spec: Spec) -> float:
    """Return about how many transfers a plan of the library has; 0 where it is small."""
    name, parameters = split(spec.algorithm or "")
    entry = ALGORITHMS[spec.collective, name]
    return expected_rows(entry.builder, entry.sizes.fits, spec.ranks, parameters | spec.sized())


class Runner:
    """Computes pieces here or elsewhere, and tells how far it has come.

    Args:
        executor: Who computes; None for this process, one piece after the other.
        progress: Called with (simulations done, simulations known of so far).
    """

    def __init__(self, executor: Executor | None, progress: Progress | None) -> None:
        self._executor = executor
        self._progress = progress
        self._done = self._known = 0

    def answers(self, pieces: Sequence[Piece]) -> list[Answer]:
        """Return the answer to each piece, in their order."""
        self._known += sum(len(piece.sizes) for piece in pieces)
        if self._executor is None:
            return [self._told(piece, answer_of(piece)) for piece in pieces]
        submit = self._executor.submit
        futures: dict[Future[Answer], int] = {
            submit(answer_of, piece): k for k, piece in enumerate(pieces)
        }
        answers = {}
        try:
            for future in as_completed(futures):
                k = futures[future]
                answers[k] = self._told(pieces[k], future.result())
        finally:
            for future in futures:  # after an error or Ctrl-C nobody waits for the others
                future.cancel()
        return [answers[k] for k in range(len(pieces))]

    def _told(self, piece: Piece, answer: Answer) -> Answer:
        self._done += len(piece.sizes)
        if self._progress is not None:
            self._progress(self._done, self._known)
        return answer


def _millions(n: float) -> str:
    return f"{n / 1e6:.3g} million" if n >= 1e6 else f"{n:,.0f}"
