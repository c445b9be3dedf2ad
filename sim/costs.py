"""What a machine takes for a message beside its links: a part of a topology.

topology = replace(topology, costs=Costs(message_ns=400, header_bytes=32, rendezvous_bytes=0))
simulate(bound, topology)                    # takes them
simulate(bound, topology, header_bytes=0)    # all but the header
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from numbers import Real
from typing import Any

from ..errors import ChunkscopeError, TopologyError

COSTS = ("message_ns", "header_bytes", "rendezvous_bytes", "reduce_Bps", "burst_bytes")


def check_cost(name: str, value: Any, error: type[ChunkscopeError]) -> None:
    """Raise an error that names the field unless a cost is possible."""
    if name in ("rendezvous_bytes", "reduce_Bps") and value == inf:
        return
    check_number(name, value, error, above_0=name == "reduce_Bps")


def check_number(
    name: str,
    value: Any,
    error: type[ChunkscopeError],
    *,
    least: float = 0,
    above_0: bool = False,
    whole: bool = False,
) -> None:
    """Raise an error that names the field unless a value is a finite number within its limits.

    Args:
        name: The field.
        value: What it was given.
        error: Class of the error.
        least: Smallest number that it may be.
        above_0: Whether it must be above 0, instead.
        whole: Whether it must be a whole number.
    """
    expected = "a number above 0" if above_0 else f"{least:g} or more" + ", whole" * whole
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number:
        raise error(f"{name} is {value!r}, expected a number ({expected})")
    fits = value > 0 if above_0 else value >= least
    if not (isfinite(value) and fits and (not whole or value == int(value))):
        raise error(f"{name} is {value}, expected {expected}")


@dataclass(frozen=True, slots=True)
class Costs:
    """What a machine takes for each message, beside what its links take.

    Attributes:
        message_ns: Fixed cost of a message, added to the latency of its path.
        header_bytes: Bytes that each message carries besides its data.
        rendezvous_bytes: From so many bytes of data on, a message waits for the receiver's notice
            that it is ready, which takes the latency of the way back; infinite for never.
        reduce_Bps: Bytes a second that a place reduces or copies; infinite for no cost.
        burst_bytes: Bytes that a link saves up while it is idle and then passes at once, as the
            token bucket does that shapes it.
    """

    message_ns: float = 0.0
    header_bytes: float = 0.0
    rendezvous_bytes: float = inf
    reduce_Bps: float = inf
    burst_bytes: float = 0.0

    def __post_init__(self) -> None:
        for name in COSTS:
            check_cost(name, getattr(self, name), TopologyError)


FREE = Costs()
