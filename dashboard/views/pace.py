"""How film time runs: equal steps for the simple view, the trace's own time for the full one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..film import FOREVER, Clock
from ..reel import Span
from ..story import Change, Message, Story
from .numbers import time_unit

HOLD_S = 1.5  # how long the first and the last picture stand still
STEP_S = 1.2
# Share of a step in which its messages travel; then what has arrived can be read.
FLIGHT = 0.84
# A message that took no time to be seen, such as one that a wire tap read in one piece, flies for
# so long before it arrives.
LEAST_S = 0.08


@dataclass(frozen=True, slots=True)
class Pace:
    """When things happen in a film, in seconds.

    Attributes:
        steps: Start and end of each step.
        flights: Start and end of each message; the end is that of the film where none was seen.
        end_s: When the last step is over.
        duration_s: Length of the film.
        clock: Film time to trace time.
    """

    steps: tuple[Span, ...]
    flights: tuple[Span, ...]
    end_s: float
    duration_s: float
    clock: Clock

    def at(self, change: Change) -> float:
        """Return when a cell's change happens."""
        if change.message is None:
            return self.end_s if change.arrives else -FOREVER
        return self.flights[change.message][1 if change.arrives else 0]

    def spans(self, changes: Sequence[Change]) -> list[Span]:
        """Return how long each of a cell's changes lasts."""
        times = [self.at(change) for change in changes]
        return list(zip(times, [*times[1:], FOREVER], strict=True))


def by_steps(story: Story) -> Pace:
    """Return a pace of equal steps: all messages of a step travel in the same time."""
    steps = tuple((HOLD_S + k * STEP_S, HOLD_S + (k + 1) * STEP_S) for k in range(len(story.steps)))
    end = steps[-1][1] if steps else HOLD_S
    flights = tuple(_flight(message, steps, end + HOLD_S) for message in story.messages)
    knots_s = [HOLD_S]
    knots_ns = [0.0]
    for beat, (start, _) in zip(story.steps[1:], steps[1:], strict=True):
        knots_s.append(start)
        knots_ns.append(float(beat.t_start_ns))
    knots_s.append(end if steps else HOLD_S + STEP_S)
    knots_ns.append(float(story.duration_ns))
    clock = clock_of(knots_s, knots_ns, story.duration_ns)
    return Pace(steps, flights, end, end + HOLD_S, clock)


def _flight(message: Message, steps: Sequence[Span], end: float) -> Span:
    start, stop = steps[message.step]
    if message.local:
        return start, start + FLIGHT * (stop - start)
    return start, start + FLIGHT * (stop - start) if message.t_end_ns is not None else end


def clock_of(s: Sequence[float], ns: Sequence[float], duration_ns: int, finer: int = 0) -> Clock:
    """Return a clock through knots, in a unit that suits the duration, `finer` by some decimals."""
    unit, unit_ns, decimals = time_unit(duration_ns)
    if unit_ns > 1:
        decimals += finer
    return Clock(tuple(s), tuple(ns), unit, unit_ns, decimals)


def seen(story: Story) -> float:
    """Return the share of a time axis that was recorded: less than 1 where messages have no end."""
    return 0.87 if any(message.t_end_ns is None for message in story.messages) else 1.0


def linear(story: Story, *, length_s: float) -> Pace:
    """Return a pace that is linear in the trace's time.

    Args:
        story: The call.
        length_s: How long the call itself takes on the screen.
    """
    scale = length_s * seen(story) / max(story.duration_ns, 1)
    end = HOLD_S + length_s

    def film(t_ns: int) -> float:
        return HOLD_S + t_ns * scale

    starts = [film(beat.t_start_ns) for beat in story.steps]
    steps = tuple(zip(starts, [*starts[1:], end], strict=True)) if starts else ()
    flights = tuple(
        (film(m.t_start_ns), end + HOLD_S)
        if m.t_end_ns is None
        else (min(film(m.t_start_ns), film(m.t_end_ns) - LEAST_S), film(m.t_end_ns))
        for m in story.messages
    )
    over = HOLD_S + length_s * seen(story)
    clock = clock_of([HOLD_S, over], [0.0, float(story.duration_ns)], story.duration_ns, 1)
    return Pace(steps, flights, end, end + HOLD_S, clock)
