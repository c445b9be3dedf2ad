"""Pieces of the text of a topology; each knows where it stands, so that errors point at it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isfinite

from ...errors import TopologyError
from ...units import parse_Bps, parse_ns
from .wiring import Rates


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a text.

    Attributes:
        whole: The text.
        text: The piece.
        at: Where it begins.
    """

    whole: str
    text: str
    at: int

    def split(self, separators: str) -> list[Part]:
        """Return the pieces between separators."""
        parts, at = [], self.at
        for piece in re.split(f"[{re.escape(separators)}]", self.text):
            parts.append(Part(self.whole, piece, at))
            at += len(piece) + 1
        return parts

    @property
    def word(self) -> Part:
        """The piece without blanks around it."""
        blank = len(self.text) - len(self.text.lstrip())
        return Part(self.whole, self.text.strip(), self.at + blank)

    def error(self, message: str) -> TopologyError:
        """Return an error whose last two lines show the text and a caret under the character."""
        shown = "".join(each if each.isprintable() else "?" for each in self.whole)
        return TopologyError(f"{message}\n  {shown}\n  {' ' * self.at}^")

    @property
    def is_rate(self) -> bool:
        """Whether it says a bandwidth, or a bandwidth and a latency."""
        return "/" in self.text or "," in self.text

    def size(self, expected: str) -> int:
        """Return it as a number from 1 on."""
        word = self.word
        # isdecimal takes digits of other scripts, which int reads as well.
        if not word.text.isdecimal() or len(word.text) > 12 or int(word.text) == 0:
            raise self.error(f"{self.text!r} is no size, {expected}")
        return int(word.text)

    def rates(self, default: Rates) -> Rates:
        """Return it as BANDWIDTH[,LATENCY]; what is left out is the default's."""
        bandwidth, *rest = self.split(",")
        if len(rest) > 1:
            raise rest[1].error("expected BANDWIDTH,LATENCY as 100GB/s,1us")
        latency = rest[0]._number(parse_ns) if rest else default.latency_ns
        return Rates(bandwidth._number(parse_Bps), latency)

    def _number(self, parse: Callable[[str], float]) -> float:
        try:
            value = parse(self.text)
        except (ValueError, OverflowError) as error:
            raise self.word.error(str(error)) from None
        if not isfinite(value):
            raise self.word.error(f"{self.text!r} is not finite")
        return value


def rates_of(parts: list[Part], default: tuple[Rates, ...]) -> list[Rates]:
    """Return the rates that pieces say, and the default's for those that are left out."""
    if len(parts) > len(default):
        extra = parts[len(default)]
        raise extra.error(f"{extra.text!r} is more than this topology takes")
    given = [part.rates(rates) for part, rates in zip(parts, default)]
    return [*given, *default[len(given) :]]


def unknown(part: Part, what: str, known: Iterable[str]) -> TopologyError:
    """Return the error for a name that is not known, with those that are, and the nearest."""
    names = list(known)
    near = difflib.get_close_matches(part.text.lower(), names, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return part.error(f"unknown {what} {part.text!r}; known: {', '.join(names)}{hint}")
