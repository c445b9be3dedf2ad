"""The parameters of the step model: when messages may start, what they cost, who comes late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from math import isfinite
from typing import Any, Literal

from ..errors import ScheduleError
from ..traces.trace import JSON
from .changes import Change, parse_change
from .costs import COSTS, FREE, Costs, check_cost, check_number
from .order import POLICIES, Policy
from .topology import Topology

Duplex = Literal["full", "half"]
DUPLEX: tuple[Duplex, ...] = ("full", "half")
_LARGEST_SEED = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Model:
    """Parameters of the step model.

    What belongs to the machine (see `Costs`) is taken from the topology where it is None here.

    Attributes:
        policy: When a message may start. ``dataflow``: as soon as its data and the sender's step
            allow; ``rank_step``: when both ends have finished their steps before; ``lockstep``:
            when everybody has.
        sharing: Whether messages on one link share it; else each has it for itself.
        reduce_Bps: Bytes a second that a place reduces or copies; infinite for no cost.
        message_ns: Fixed cost of a message, added to the latency of its path.
        header_bytes: Bytes that each message carries besides its data.
        delay_ns: How much later than the others a rank arrives, by rank.
        rendezvous_bytes: From so many bytes of data on, a message waits for the receiver's notice
            that it has entered the step, which takes the latency of the way back; infinite for
            never.
        burst_bytes: Bytes that each link saves up while idle and then passes at once.
        segment_bytes: A message of more data travels as several of at most so many bytes. Each
            has a header and the fixed cost, and they leave one after the other; None for whole.
        ports: Messages that a place may send at once, and receive at once; further ones wait until
            both ends have a free port. None for no limit.
        jitter: Each message takes up to so much longer than alone on its path, 0.1 for 10 %. The
            share is uniform from 0 to 1, the time passes before its bytes flow.
        seed: Which draws of jitter. A message's own depends on the seed, on its two ranks, its
            channel and its number among the messages there, and on nothing else.
        slow: How many times longer all takes at a rank, by rank: its links both ways (latency and
            bytes), the fixed costs of its messages, its reducing.
        changes: Links that slow down, fail or come back while it runs, as `Change` or as text such
            as ``r0-switch:fails@2ms``. Messages under way go on over the new path.
        duplex: ``full``: each direction of a link has its rate for itself; ``half``: on every link
            both share it.
    """

    policy: Policy = "dataflow"
    sharing: bool = True
    reduce_Bps: float | None = None
    message_ns: float | None = None
    header_bytes: float | None = None
    delay_ns: Mapping[int, float] = field(default_factory=dict, hash=False)
    rendezvous_bytes: float | None = None
    burst_bytes: float | None = None
    segment_bytes: int | None = None
    ports: int | None = None
    jitter: float = 0.0
    seed: int = 0
    slow: Mapping[int, float] = field(default_factory=dict, hash=False)
    changes: Sequence[Change] = ()
    duplex: Duplex = "full"

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ScheduleError(f"unknown policy {self.policy!r}; known: {', '.join(POLICIES)}")
        if self.duplex not in DUPLEX:
            raise ScheduleError(f"duplex is {self.duplex!r}, expected {' or '.join(DUPLEX)}")
        for name in COSTS:
            if getattr(self, name) is not None:
                check_cost(name, getattr(self, name), ScheduleError)
        for name in ("segment_bytes", "ports"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), ScheduleError, least=1, whole=True)
        check_number("jitter", self.jitter, ScheduleError)
        check_number("seed", self.seed, ScheduleError, whole=True)
        if self.seed > _LARGEST_SEED:
            raise ScheduleError(f"seed is {self.seed}, expected at most {_LARGEST_SEED}")
        for name, least in (("delay_ns", 0), ("slow", 1)):
            for rank, value in getattr(self, name).items():
                check_number(f"{name} of rank {rank}", value, ScheduleError, least=least)
        given: Any = self.changes
        given = [given] if isinstance(given, str) else given
        changes = (parse_change(each) if isinstance(each, str) else each for each in given)
        object.__setattr__(self, "changes", tuple(changes))

    def costs(self, topology: Topology) -> Costs:
        """Return what messages cost on a topology: the machine's own, but for what is set here."""
        mine = {name: getattr(self, name) for name in COSTS if getattr(self, name) is not None}
        return Costs(**asdict(topology.costs) | mine)

    def on(self, topology: Topology) -> Model:
        """Return the same model with what the machine costs; None where a cost is as by default."""
        usual = asdict(FREE)
        own: dict[str, Any] = {
            name: None if cost == usual[name] else cost
            for name, cost in asdict(self.costs(topology)).items()
        }
        return replace(self, **own)

    def to_dict(self, topology: Topology) -> dict[str, JSON]:
        """Return what a reader needs to know to get the same result again.

        What the last parameters are by default, they are where they are not there.
        """
        costs = asdict(self.costs(topology))
        found: dict[str, JSON] = {
            "model": "step",
            "version": version("chunkscope"),
            "policy": self.policy,
            "sharing": "max-min" if self.sharing else "off",
            **{name: cost if isfinite(cost) else None for name, cost in costs.items()},
            "delay_ns": _by_rank(self.delay_ns),
            "topology": topology.name,
        }
        if self.segment_bytes is not None:
            found["segment_bytes"] = self.segment_bytes
        if self.ports is not None:
            found["ports"] = self.ports
        if self.jitter:
            found |= {"jitter": self.jitter, "seed": self.seed}
        if self.slow:
            found["slow"] = _by_rank(self.slow)
        if self.changes:
            found["changes"] = [str(change) for change in self.changes]
        if self.duplex != "full":
            found["duplex"] = self.duplex
        return found


def _by_rank(values: Mapping[int, float]) -> dict[str, Any]:
    return {str(rank): values[rank] for rank in sorted(values)}
