"""Terms of a cost, and the registry of closed forms; `closed` has all of them.

A form counts latencies, bytes sent one after the other, and bytes reduced likewise: the time is
aα + b/B + cγ. It holds under the policy lockstep (and, where every rank does the same in each step,
under the others too) if all paths are alike, no two messages share a link, and the elements divide
into equal chunks. A rank may send to several others at once: each pair has a path of its own.

    @closed("all_gather", "ring")
    def ring_all_gather(n: int, size: float) -> Terms: ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Terms(NamedTuple):
    """A cost: aα + b/B + cγ.

    Attributes:
        latencies: a, messages that follow one another.
        sent_bytes: b, bytes of these messages.
        reduced_bytes: c, bytes that are reduced one after the other.
    """

    latencies: float
    sent_bytes: float
    reduced_bytes: float = 0.0

    def time_ns(
        self,
        latency_ns: float,
        bandwidth_Bps: float,
        reduce_Bps: float | None = None,
        *,
        message_ns: float = 0.0,
        header_bytes: float = 0.0,
    ) -> float:
        """Return the time.

        Args:
            latency_ns: α, latency of a path.
            bandwidth_Bps: B, rate of a path.
            reduce_Bps: 1/γ, bytes a second that a rank reduces; None for no cost.
            message_ns: Fixed cost of a message, beside its latency.
            header_bytes: Bytes that each message carries besides its data.

        Example:
            >>> Terms(6, 6000).time_ns(latency_ns=1000, bandwidth_Bps=1e9)
            12000.0
        """
        reduce_ns = 0.0 if reduce_Bps is None else self.reduced_bytes * 1e9 / reduce_Bps
        sent_bytes = self.sent_bytes + self.latencies * header_bytes
        each_ns = latency_ns + message_ns
        return self.latencies * each_ns + sent_bytes * 1e9 / bandwidth_Bps + reduce_ns

    def __mul__(self, times: Any) -> Terms:
        """Return the cost of so many like it, one after the other."""
        return Terms(*(times * term for term in self))

    def then(self, other: Terms) -> Terms:
        """Return the cost of this and what follows it."""
        return Terms(*(mine + its for mine, its in zip(self, other, strict=True)))


NOTHING = Terms(0, 0)
Form = Callable[..., Terms]
CLOSED: dict[tuple[str, str], Form] = {}


def closed(collective: str, *names: str) -> Callable[[Form], Form]:
    """Return a decorator that registers a form of (n, size in bytes, the builder's parameters)."""

    def register(form: Form) -> Form:
        CLOSED.update({(collective, name): form for name in names})
        return form

    return register


def message(size_bytes: float, *, reduces: bool = False) -> Terms:
    """Return the cost of one message, and of reducing it.

    Source: R. W. Hockney, "The communication challenge for MPP", 1994.
    """
    return Terms(1, size_bytes, size_bytes if reduces else 0.0)


def log2_ceil(n: int) -> int:
    """Return ⌈lg n⌉."""
    return (n - 1).bit_length()
