"""The registry of what the text of a topology can name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from ..topology import Routing
from .wiring import FAST, Rates, Wiring

Shape = tuple[int, ...]
Builder = Callable[..., Wiring]


@dataclass(frozen=True, slots=True)
class Preset:
    """A topology that a text can name.

    Attributes:
        name: Its name.
        builder: Function of the number of ranks, the shape (None for the default) and the rates
            that returns a Wiring whose places for ranks are called r0, r1, ...; it raises
            ValueError where the shape cannot be.
        shape: What the numbers of the shape are, such as HOSTSxRANKS; empty if it has none.
        example: A shape.
        sizes: Fewest and most numbers in a shape.
        rates: Rates of its kinds of links, where the text has none.
        exact: Whether it has as many places as ranks; else ranks take the first places.
        routing: How messages find their way.
    """

    name: str
    builder: Builder
    shape: str
    example: str
    sizes: tuple[int, int]
    rates: tuple[Rates, ...]
    exact: bool
    routing: Routing

    @property
    def is_machine(self) -> bool:
        """Whether it can be bought: its shape is a number of machines, and its rates are fixed."""
        return self.shape == "MACHINES"

    @property
    def doc(self) -> str:
        """What it is, in one line."""
        line = (self.builder.__doc__ or "").split("\n", 1)[0].removeprefix("Return ")
        return line[:1].upper() + line[1:]

    @property
    def syntax(self) -> str:
        """What a text of it looks like, such as ``two-level[:HOSTSxRANKS][@INSIDE[@OUTSIDE]]``."""
        if self.is_machine:
            return f"{self.name}[xMACHINES]"
        shape = f"[:{self.shape}]" if self.shape else ""
        names = list(inspect.signature(self.builder).parameters)[2:]
        rates = "".join(f"[@{name.upper()}" for name in names) + "]" * len(names)
        return f"{self.name}{shape}{rates}"

    @property
    def sample(self) -> str:
        """A text of it with everything that it takes."""
        if self.is_machine:
            return f"{self.name}x{self.example}"
        shape = f":{self.example}" if self.shape else ""
        return f"{self.name}{shape}" + "".join(f"@{rates.text}" for rates in self.rates)


PRESETS: dict[str, Preset] = {}
ALIASES = {"full": "fully", "fully-connected": "fully", "two_level": "two-level"}


def preset(
    name: str,
    *,
    shape: str = "",
    example: str = "",
    sizes: tuple[int, int] = (0, 0),
    rates: tuple[Rates, ...] = (FAST,),
    exact: bool = True,
    routing: Routing = Routing.SHORTEST,
) -> Callable[[Builder], Builder]:
    """Return a decorator that registers the builder of a topology; see `Preset`."""

    def register(builder: Builder) -> Builder:
        PRESETS[name] = Preset(name, builder, shape, example, sizes, rates, exact, routing)
        return builder

    return register
