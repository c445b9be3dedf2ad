"""What becomes of links while a schedule runs: they slow down, fail, come back.

    simulate(bound, topology, changes=[Change("r0", "switch", at_ns=2e6, slower=4)])
    parse_change("r0-switch:x4@2ms")    # the same as text
    parse_change("r0-switch:fails")     # failed from the start

A path that loses a link is replaced by the best that is left.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import ScheduleError
from ..units import parse_Bps, parse_ns
from .costs import check_number

_FAILS = "fails"


@dataclass(frozen=True, slots=True)
class Change:
    """A link's rate from some time on; without a rate it has failed.

    Attributes:
        a, b: Nodes at its ends.
        at_ns: When.
        bandwidth_Bps: Its new rate.
        slower: Or how many times slower than built it is; 1 for as built.
        both_ways: Whether the direction from b to a changes as well.
    """

    a: str
    b: str
    at_ns: float = 0.0
    bandwidth_Bps: float | None = None
    slower: float | None = None
    both_ways: bool = True

    def __post_init__(self) -> None:
        where = f"change of link {self.a}-{self.b}"
        check_number(f"at_ns of {where}", self.at_ns, ScheduleError)
        if self.bandwidth_Bps is not None:
            check_number(
                f"bandwidth_Bps of {where}", self.bandwidth_Bps, ScheduleError, above_0=True
            )
        if self.slower is not None:
            check_number(f"slower of {where}", self.slower, ScheduleError, least=1)
        if self.bandwidth_Bps is not None and self.slower is not None:
            raise ScheduleError(f"{where} has bandwidth_Bps and slower, expected one of them")

    @property
    def fails(self) -> bool:
        """Whether the link has failed."""
        return self.bandwidth_Bps is None and self.slower is None

    def __str__(self) -> str:
        dash = "--" if "-" in self.a + self.b else "-"
        what = _FAILS
        if self.slower is not None:
            what = factor_text(self.slower)
        elif self.bandwidth_Bps is not None:
            what = rate_text(self.bandwidth_Bps)
        when = f"@{time_text(self.at_ns)}" if self.at_ns else ""
        return f"{self.a}{dash if self.both_ways else '>'}{self.b}:{what}{when}"


def parse_change(text: str) -> Change:
    """Return the change in text such as ``r0-switch:x4@2ms``.

    It is ``A-B:WHAT[@TIME]``; ``A>B`` for one direction; ``A--B`` where names hold a dash. WHAT is
    ``fails``, ``x4`` for four times slower than built, or a rate such as ``10GB/s``.

    Raises:
        ScheduleError: It cannot be read; the message points at the character.

    Example:
        >>> parse_change("leaf0-spine1:fails@2ms").at_ns
        2000000.0
    """
    ends, colon, rest = text.rpartition(":")
    if not colon:
        raise _error(text, len(text), f"expected :{_FAILS}, :x4 or :10GB/s after the link")
    what, at, time = rest.partition("@")
    dash = next((dash for dash in ("--", ">", "-") if dash in ends), None)
    a, _, b = ends.partition(dash) if dash else (ends, "", "")
    if not (a and b):
        raise _error(text, len(a), "expected a link as A-B")
    if dash == "-" and "-" in b:
        again = len(a) + 1 + b.index("-")
        raise _error(text, again, "which dash is the link's? write A--B where names hold a dash")
    begin = len(ends) + 1
    at_ns = _value(text, begin + len(what) + 1, time, parse_ns) if at else 0.0
    slower = bandwidth = None
    if what.startswith("x"):
        slower = _value(text, begin, what, parse_factor)
    elif what != _FAILS:
        if "/" not in what and "ps" not in what:
            raise _error(text, begin, f"{what!r}: expected {_FAILS}, x4 or 10GB/s")
        bandwidth = _value(text, begin, what, parse_Bps)
    try:
        return Change(a, b, at_ns, bandwidth, slower, both_ways=dash != ">")
    except ScheduleError as error:
        raise _error(text, begin, str(error)) from None


def parse_of_rank(text: str, what: str, parse: Callable[[str], float]) -> tuple[int, float]:
    """Return a rank and its value in text such as ``3:x2`` or ``2:1ms``.

    Args:
        text: The text.
        what: What is expected, such as ``3:x2``.
        parse: What reads the value.

    Raises:
        ScheduleError: It cannot be read; the message points at the character.
    """
    rank, colon, value = text.partition(":")
    if not rank.isdecimal():
        raise _error(text, 0, f"{rank!r} is no rank, expected {what}")
    if not colon:
        raise _error(text, len(text), f"expected {what}")
    return int(rank), _value(text, len(rank) + 1, value, parse)


def parse_factor(text: str) -> float:
    """Return the factor in text such as ``x2``.

    Raises:
        ValueError: It is none.
    """
    if not re.fullmatch(r"x(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text):
        raise ValueError(f"{text!r} is no factor, expected x2")
    return float(text[1:])


def factor_text(factor: float) -> str:
    """Return a factor as `parse_factor` reads it, nothing lost."""
    return f"x{float(factor)!r}".removesuffix(".0")


def time_text(time_ns: float) -> str:
    """Return a time as `units.parse_ns` reads it, nothing lost.

    Example:
        >>> time_text(2e6), time_text(1500)
        ('2ms', '1.5us')
    """
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if time_ns >= size and float(f"{time_ns / size:.6g}") * size == time_ns:
            return f"{time_ns / size:.6g}{unit}"
    return f"{float(time_ns)!r}ns".replace(".0ns", "ns")


def rate_text(rate_Bps: float) -> str:
    """Return a rate as `units.parse_Bps` reads it, nothing lost.

    Example:
        >>> rate_text(2.5e10)
        '25GB/s'
    """
    text = f"{rate_Bps / 1e9:g}GB/s"
    return text if parse_Bps(text) == rate_Bps else f"{rate_Bps!r}B/s"


def _value(text: str, at: int, part: str, parse: Callable[[str], float]) -> float:
    try:
        return parse(part)
    except ValueError as error:
        raise _error(text, at, str(error)) from None


def _error(text: str, at: int, message: str) -> ScheduleError:
    """Return an error whose last two lines show the text and a caret under the character."""
    return ScheduleError(f"{message}\n  {text}\n  {' ' * at}^")
