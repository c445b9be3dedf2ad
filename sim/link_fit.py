"""The links that explain how long messages of several sizes took, alone and in a ring.

    found = fit_level(level)
    found.latency_ns, found.bandwidth_Bps, found.burst_bytes

A link is a token bucket: it passes bytes at its rate, and after a pause up to `burst_bytes` at once
(a plain link has a burst of 0). With the time L of an empty message and the rate B, a message of S
bytes that goes to and fro takes L + max(0, S - burst) / B, and no less than S / 2B, since a bucket
cannot give more than flows in. In a ring where each rank sends one message after the other, the
link is paused only while a rank waits for its neighbours, R a message: R + max(0, S - burst) / B,
and no less than S / B.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import TopologyError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# gloo sends so many bytes before the data of each message.
# Source: gloo, gloo/transport/tcp/pair.h, struct Op.
GLOO_HEADER_BYTES = 48
# Below this share of the rate of one message alone, ranks that all send share one medium: on one
# host that is its cores and its memory.
_SHARED = 0.9
# Bursts that are tried, then near the best. One is believed in where it makes the errors' squares
# so many times smaller, and where two messages of more than twice its size are met so well.
_BURSTS = 1024 * 2 ** np.arange(0, 10.5, 0.5)
_FINER = 2 ** np.linspace(-0.5, 0.5, 31)
_BURST_GAIN = 2.0
_BURST_ERROR = 0.05
# How well a size was measured at best, relative.
_LEAST_SPREAD = 0.01
_MOST_HIDDEN = 10.0
_ROUNDS = 30


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """What was measured on one level of a network, such as inside the hosts or between them.

    Attributes:
        size_bytes: Sizes of the messages, (sizes,).
        one_way_ns: Half of a ping-pong between two ranks while the others wait, (sizes, times).
        ring_ns: Time a step of an executed ring, where every rank sends a message to the next and
            receives one, again and again, (sizes, times).
    """

    size_bytes: Ints
    one_way_ns: Floats
    ring_ns: Floats


@dataclass(frozen=True, slots=True, eq=False)
class LinkFit:
    """The fit of one level.

    Attributes:
        latency_ns: Time of an empty message from rank to rank.
        step_ns: The same where every rank sends and receives at once, so that each waits for the
            notice of its receiver, too.
        alone_Bps: Rate of one message alone.
        bandwidth_Bps: Rate of a rank's messages while all ranks send.
        burst_bytes: Bytes that pass at once after a pause.
        size_bytes: Sizes of the messages, (sizes,).
        one_way_ns, ring_ns: The fastest that was measured, (sizes,).
        one_way_fit_ns, ring_fit_ns: What the fit says, (sizes,).
    """

    latency_ns: float
    step_ns: float
    alone_Bps: float
    bandwidth_Bps: float
    burst_bytes: float
    size_bytes: Ints
    one_way_ns: Floats
    ring_ns: Floats
    one_way_fit_ns: Floats
    ring_fit_ns: Floats

    @property
    def is_shared(self) -> bool:
        """Whether ranks that send at the same time slow each other down."""
        return self.bandwidth_Bps < _SHARED * self.alone_Bps

    @property
    def parts_ns(self) -> tuple[float, float]:
        """Latency of a path and fixed cost of a message: what a message takes in a ring exactly.

        There it takes the fixed cost and two latencies, in a ping-pong the fixed cost and one, as
        near as that comes to it.
        """
        if self.step_ns >= 2 * self.latency_ns:
            return self.step_ns / 2, 0.0
        latency_ns = self.step_ns - self.latency_ns
        return latency_ns, self.latency_ns - latency_ns

    @property
    def worst(self) -> float:
        """The largest relative error of the fit."""
        measured = np.concatenate([self.one_way_ns, self.ring_ns])
        said = np.concatenate([self.one_way_fit_ns, self.ring_fit_ns])
        return float(np.abs(said / measured - 1).max())

    def to_dict(self) -> dict[str, Any]:
        """Return the fit as JSON has it: numbers, and lists by size."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name in self.__slots__
            for value in (getattr(self, name),)
        }


def fit_level(level: Level) -> LinkFit:
    """Return the links that explain what was measured on a level best.

    Raises:
        TopologyError: A time is 0 or missing, or there are fewer than three sizes.
    """
    size = level.size_bytes.astype(np.float64) + GLOO_HEADER_BYTES
    every = np.concatenate([level.one_way_ns, level.ring_ns], axis=None)
    if len(size) < 3 or not (np.isfinite(every).all() and (every > 0).all()):
        raise TopologyError(
            f"measured {len(size)} sizes and times of {every.min(initial=np.inf):g} ns or more, "
            "expected three sizes or more and times above 0: measure again"
        )
    one_way = _Series.of(size, level.one_way_ns, turns=2)
    ring = _Series.of(size, level.ring_ns, turns=1)

    alone, together = _best_lines(one_way, ring)
    rate = alone.Bps, min(together.Bps, alone.Bps)
    return LinkFit(
        latency_ns=alone.fixed_ns,
        step_ns=max(together.fixed_ns, alone.fixed_ns),
        alone_Bps=rate[0],
        bandwidth_Bps=rate[1],
        burst_bytes=alone.burst_bytes,
        size_bytes=level.size_bytes,
        one_way_ns=one_way.time_ns,
        ring_ns=ring.time_ns,
        one_way_fit_ns=one_way.said(alone),
        ring_fit_ns=ring.said(together),
    )


def _best_lines(one_way: _Series, ring: _Series) -> tuple[_Line, _Line]:
    """Return the lines through both series, with the burst that explains them best, 0 for none."""

    def lines(burst: float) -> tuple[float, _Line, _Line]:
        alone, together = one_way.line(burst), ring.line(burst)
        misfit = one_way.misfit(alone) + ring.misfit(together)
        return misfit if one_way.shows(alone) else np.inf, alone, together

    def best_of(bursts: Floats) -> tuple[float, _Line, _Line]:
        return min(map(lines, bursts.tolist()), key=lambda found: found[0])

    coarse = best_of(_BURSTS)
    misfit, alone, together = best_of(coarse[1].burst_bytes * _FINER)
    plain = one_way.line(0.0), ring.line(0.0)
    if _BURST_GAIN * misfit < one_way.misfit(plain[0]) + ring.misfit(plain[1]):
        return alone, together
    return plain


class _Line(NamedTuple):
    """What a message takes: a fixed time, and its bytes on a link that saves up a burst."""

    fixed_ns: float
    byte_ns: float
    burst_bytes: float

    @property
    def Bps(self) -> float:
        return 1e9 / self.byte_ns


@dataclass(frozen=True, slots=True, eq=False)
class _Series:
    """Messages of several sizes, each size again and again.

    Attributes:
        size: Bytes on the wire, (sizes,).
        time_ns: The fastest of each size, or of a larger one that was faster still, (sizes,).
        spread: How far the fastest lies from the median, relative to it, and a bit, (sizes,).
        turns: Links that the messages use in turn: 2 to and fro, 1 in a ring.
    """

    size: Floats
    time_ns: Floats
    spread: Floats
    turns: int

    @staticmethod
    def of(size: Floats, times: Floats, turns: int) -> _Series:
        fastest: Floats = np.minimum.accumulate(times.min(axis=1)[::-1])[::-1]
        spread = _LEAST_SPREAD + 1 - fastest / np.median(times, axis=1)
        return _Series(size, fastest, spread, turns)

    def line(self, burst_bytes: float) -> _Line:
        """Return the line through the series whose relative errors have the least squares.

        Source: D. Marquardt, "An algorithm for least-squares estimation of nonlinear parameters",
        1963.
        """
        slope = np.diff(self.time_ns[-2:])[0] / np.diff(self.size[-2:])[0]
        # A link is at most so much faster than its largest message says, however noisy times were.
        least = self.time_ns[-1] / self.size[-1] / _MOST_HIDDEN
        at = np.log([self.time_ns[0], max(slope, least)])
        errors, damping, step = self._errors(at, burst_bytes), 1e-2, 1e-4
        for _ in range(_ROUNDS):
            slopes = [
                (self._errors(at + step * one, burst_bytes) - errors) / step for one in np.eye(2)
            ]
            jacobian = np.stack(slopes, axis=1)
            normal = jacobian.T @ jacobian
            scaled = normal + damping * np.diag(np.diag(normal) + 1e-12)
            there = at - np.clip(np.linalg.solve(scaled, jacobian.T @ errors), -2.0, 2.0)
            there[1] = max(there[1], np.log(least))
            tried = self._errors(there, burst_bytes)
            gain = errors @ errors - tried @ tried
            if gain > 0:
                at, errors, damping = there, tried, damping / 5
            else:
                damping *= 5
            if abs(gain) <= 1e-9 * (errors @ errors):
                break
        fixed_ns, byte_ns = np.exp(at).tolist()
        return _Line(fixed_ns, byte_ns, burst_bytes)

    def misfit(self, line: _Line) -> float:
        """Return the sum of the squares of a line's errors."""
        errors = self._errors(np.log(line[:2]), line.burst_bytes)
        return float(errors @ errors)

    def said(self, line: _Line) -> Floats:
        """Return what a line says the messages take, nearest to what they took."""
        least, most = self._between(*line)
        return np.clip(self.time_ns, least, most)

    def shows(self, line: _Line) -> bool:
        """Return whether two messages of more than twice the burst are met well."""
        above = self.size > 2 * line.burst_bytes
        off = np.abs(self.said(line) / self.time_ns - 1)[above]
        return len(off) >= 2 and float(off.max()) < _BURST_ERROR

    def _errors(self, logs: Floats, burst_bytes: float) -> Floats:
        fixed_ns, byte_ns = np.exp(logs).tolist()
        said = self.said(_Line(fixed_ns, byte_ns, burst_bytes))
        errors: Floats = np.log(said / self.time_ns) / self.spread
        return errors

    def _between(
        self, fixed_ns: float, byte_ns: float, burst_bytes: float
    ) -> tuple[Floats, Floats]:
        """Return what messages take while the bucket is full, and once it cannot follow."""
        least = fixed_ns + np.maximum(self.size - burst_bytes, 0.0) * byte_ns
        return least, np.maximum(least, self.size * byte_ns / self.turns)
