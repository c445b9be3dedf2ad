"""The parameters of the step model: when messages may start, what they cost, who comes late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from math import isfinite
from typing import Any

from ..errors import ScheduleError
from ..traces.trace import JSON
from .costs import COSTS, Costs, check_cost, check_number
from .order import POLICIES, Policy
from .topology import Topology


@dataclass(frozen=True, slots=True)
class Model:
    """Parameters of the step model.

    What belongs to the machine (`reduce_Bps`, `message_ns`, `header_bytes`, `rendezvous_bytes`,
    `burst_bytes`, see `Costs`) is taken from the topology where it is None here.

    Attributes:
        policy: When a message may start: dataflow, rank_step or lockstep.
        sharing: Whether messages on one link share it; else each has it for itself.
        reduce_Bps: Bytes a second that a place reduces or copies; infinite for no cost.
        message_ns: Fixed cost of a message, added to the latency of its path.
        header_bytes: Bytes that each message carries besides its data.
        delay_ns: How much later than the others a rank arrives, by rank.
        rendezvous_bytes: From so many bytes on, a message waits for the receiver's notice.
        burst_bytes: Bytes that a link saves up while it is idle and then passes at once.
    """

    policy: Policy = "dataflow"
    sharing: bool = True
    reduce_Bps: float | None = None
    message_ns: float | None = None
    header_bytes: float | None = None
    delay_ns: Mapping[int, float] = field(default_factory=dict)
    rendezvous_bytes: float | None = None
    burst_bytes: float | None = None

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ScheduleError(f"unknown policy {self.policy!r}; known: {', '.join(POLICIES)}")
        for name in COSTS:
            if getattr(self, name) is not None:
                check_cost(name, getattr(self, name), ScheduleError)
        for rank, delay in self.delay_ns.items():
            check_number(f"delay_ns of rank {rank}", delay, ScheduleError)

    def costs(self, topology: Topology) -> Costs:
        """Return what messages cost on a topology: the machine's own, but for what is set here."""
        mine = {name: getattr(self, name) for name in COSTS if getattr(self, name) is not None}
        return Costs(**asdict(topology.costs) | mine)

    def to_dict(self, topology: Topology) -> dict[str, JSON]:
        """Return what a reader needs to know to get the same result again."""
        delays: dict[str, Any] = {str(rank): self.delay_ns[rank] for rank in sorted(self.delay_ns)}
        costs = asdict(self.costs(topology))
        return {
            "model": "step",
            "version": version("chunkscope"),
            "policy": self.policy,
            "sharing": "max-min" if self.sharing else "off",
            **{name: cost if isfinite(cost) else None for name, cost in costs.items()},
            "delay_ns": delays,
            "topology": topology.name,
        }
