"""The parameters of the step model: when messages may start, what they cost, who comes late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from math import isfinite
from typing import Any

from ..errors import ScheduleError
from ..traces.trace import JSON
from .order import POLICIES, Policy
from .topology import Topology


@dataclass(frozen=True, slots=True)
class Model:
    """Parameters of the step model.

    Attributes:
        policy: When a message may start: dataflow, rank_step or lockstep.
        sharing: Whether messages on one link share it; else each has it for itself.
        reduce_Bps: Bytes a second that a place reduces or copies; None for no cost.
        message_ns: Fixed cost of a message, added to the latency of its path.
        header_bytes: Bytes that each message carries besides its data.
        delay_ns: How much later than the others a rank arrives, by rank.
    """

    policy: Policy = "dataflow"
    sharing: bool = True
    reduce_Bps: float | None = None
    message_ns: float = 0.0
    header_bytes: int = 0
    delay_ns: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ScheduleError(f"unknown policy {self.policy!r}; known: {', '.join(POLICIES)}")
        if self.reduce_Bps is not None and not (isfinite(self.reduce_Bps) and self.reduce_Bps > 0):
            raise ScheduleError(f"reduce_Bps is {self.reduce_Bps}, expected a number above 0")
        costs = {"message_ns": self.message_ns, "header_bytes": self.header_bytes}
        costs |= {f"delay_ns of rank {rank}": delay for rank, delay in self.delay_ns.items()}
        for name, value in costs.items():
            if not (isfinite(value) and value >= 0):
                raise ScheduleError(f"{name} is {value}, expected 0 or more")

    def to_dict(self, topology: Topology) -> dict[str, JSON]:
        """Return what a reader needs to know to get the same result again."""
        delays: dict[str, Any] = {str(rank): self.delay_ns[rank] for rank in sorted(self.delay_ns)}
        return {
            "model": "step",
            "version": version("chunkscope"),
            "policy": self.policy,
            "sharing": "max-min" if self.sharing else "off",
            "reduce_Bps": self.reduce_Bps,
            "message_ns": self.message_ns,
            "header_bytes": self.header_bytes,
            "delay_ns": delays,
            "topology": topology.name,
        }
