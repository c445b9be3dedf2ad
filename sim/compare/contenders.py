"""Who is compared: the library's algorithms, and a user's own once they are verified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...errors import ScheduleError
from ..algorithms import ALGORITHMS
from ..library import algorithms
from ..parameters import split
from ..schedule import Schedule
from ..spec import Spec
from ..verify import verify
from .comparison import LeftOut

Own = Schedule | Callable[[int], Schedule]


@dataclass(frozen=True, slots=True)
class Plan:
    """An algorithm as it travels to where it is simulated.

    Attributes:
        name: What to call it.
        spec: Collective, algorithm, ranks, dtype, root and model; sizes are told later.
        own: The schedule, where the algorithm is not the library's, so that no other machine needs
            the file that it came from.
    """

    name: str
    spec: Spec
    own: Schedule | None = None


def contenders(
    spec: Spec, chosen: Sequence[str | Own] | None
) -> tuple[tuple[Plan, ...], tuple[LeftOut, ...]]:
    """Return what to compare, and the plans of users that are no valid ones.

    Args:
        spec: Collective, ranks, dtype, root and model.
        chosen: Names, functions of the group size and schedules; None for all of the library.

    Raises:
        ScheduleError: A name is unknown, or a schedule is of another collective or group size.
    """
    if chosen is None:
        chosen = [entry.name for entry in algorithms(spec.collective)]
    plans: dict[str, Plan] = {}
    wrong: list[LeftOut] = []
    for item in chosen:
        plan = _plan(spec, item)
        if plan.own is not None and plan.name in plans and isinstance(item, str):
            plan = replace(plan, name=item)  # two of one name: by what they were asked for
        if plan.name in plans:
            if isinstance(item, str):
                continue
            raise ScheduleError(f"two algorithms are called {plan.name!r}: name them differently")
        findings = [] if plan.own is None else verify(plan.own, spec.model.policy)
        if findings:
            wrong.append(LeftOut(plan.name, f"not valid: {findings[0]}"))
        else:
            plans[plan.name] = plan
    return tuple(plans.values()), tuple(wrong)


def _plan(spec: Spec, item: str | Own) -> Plan:
    if isinstance(item, str):
        spec = replace(spec, algorithm=item)
        if (spec.collective, split(item)[0]) in ALGORITHMS:
            return Plan(item, spec)
        own = spec.schedule()
    else:
        own = item if isinstance(item, Schedule) else item(spec.ranks)
    for name, found, expected in (
        ("collective", own.collective, spec.collective),
        ("group size", own.group_size, spec.ranks),
    ):
        if found != expected:
            raise ScheduleError(f"{own.algorithm}: {name} is {found}, expected {expected}")
    return Plan(own.algorithm, spec, own)
