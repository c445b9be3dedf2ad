"""The registry: which algorithms exist, for which group sizes, and what their phases mean.

@algorithm("all_reduce", "ring", default=True, phases=ring_phases)
def ring(group_size: int) -> Schedule: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..schedule import Schedule


class Phase(NamedTuple):
    """Steps of a schedule that do one thing, for the picture.

    Attributes:
        name: Lower case, such as "reduce-scatter".
        first_step: First step, from 0.
        n_steps: Number of steps.
        sentence: What happens, in plain words, at most 80 characters.
        opening: The same for the first step, where that is another sentence.
    """

    name: str
    first_step: int
    n_steps: int
    sentence: str
    opening: str | None = None

    def sentence_at(self, step: int) -> str:
        """Return the sentence to show at a step."""
        return self.opening if self.opening and step == self.first_step else self.sentence


_REDUCES = "Each rank that receives adds what arrives to its own."
_COPIES = "Each rank that receives keeps what arrives."
_BOTH = "Some ranks add what arrives to their own, others keep it as it is."
# Name and sentence of steps, by what their rows do: whether any reduces, whether any copies.
_BY_ROWS = {
    (True, False): ("reduce", _REDUCES),
    (False, True): ("copy", _COPIES),
    (True, True): ("reduce and copy", _BOTH),
}


def phases_of_rows(schedule: Schedule) -> list[Phase]:
    """Return the phases that the rows tell: runs of steps that reduce, copy, or do both.

    Steps without rows belong to the phase before them.
    """
    reduces = np.zeros(schedule.n_steps, np.bool_)
    copies = np.zeros(schedule.n_steps, np.bool_)
    reduces[schedule.step[schedule.reduce]] = True
    copies[schedule.step[~schedule.reduce]] = True
    phases: list[Phase] = []
    for step, does in enumerate(zip(reduces.tolist(), copies.tolist(), strict=True)):
        last = (phases[-1].name, phases[-1].sentence) if phases else ("wait", "Nothing moves yet.")
        name, sentence = _BY_ROWS.get(does, last)
        if phases and phases[-1].name == name:
            phases[-1] = phases[-1]._replace(n_steps=step + 1 - phases[-1].first_step)
        else:
            phases.append(Phase(name, step, 1, sentence))
    return phases


class Sizes(NamedTuple):
    """Group sizes that an algorithm can do: in words, and as a question."""

    text: str
    fits: Callable[[int], bool]


ANY_SIZE = Sizes("any", lambda group_size: group_size >= 1)
Phases = Callable[[Schedule], list[Phase]]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm that can be asked for by name.

    Attributes:
        collective: Name of the collective.
        name: Name of the algorithm.
        builder: Function of the group size (and `root` where the collective has one) and of the
            parameters below that returns the Schedule.
        sizes: Group sizes that it can do.
        default: Whether it is the one to take where none is named.
        phases: What its steps do; None for what the rows tell.
    """

    collective: str
    name: str
    builder: Callable[..., Schedule]
    sizes: Sizes
    default: bool
    phases: Phases | None

    @property
    def doc(self) -> str:
        """What it is, in one line: the first of the builder's docstring without "Return"."""
        line = (inspect.getdoc(self.builder) or "").split("\n", 1)[0].removeprefix("Return ")
        return line[:1].upper() + line[1:]

    @property
    def parameters(self) -> dict[str, Any]:
        """Names and defaults of what can be asked for beside group size and root."""
        given = inspect.signature(self.builder).parameters.values()
        return {p.name: p.default for p in given if p.name not in ("group_size", "root")}


ALGORITHMS: dict[tuple[str, str], Algorithm] = {}


def algorithm(
    collective: str,
    name: str,
    *,
    sizes: Sizes = ANY_SIZE,
    default: bool = False,
    phases: Phases | None = None,
) -> Callable[[Callable[..., Schedule]], Callable[..., Schedule]]:
    """Return a decorator that registers a builder under a name.

    Args:
        collective: Name of the collective.
        name: Name of the algorithm.
        sizes: Group sizes that it can do.
        default: Whether it is the collective's default.
        phases: What its steps do.
    """

    def register(builder: Callable[..., Schedule]) -> Callable[..., Schedule]:
        key = (collective, name)
        ALGORITHMS[key] = Algorithm(collective, name, builder, sizes, default, phases)
        return builder

    return register
