"""Products: a ring, a line, all links or a switch in each dimension, each with its own rates.

    ring:4*fully:8*switch:2
    ring:4@50GB/s,1us*switch:8@25GB/s

The first dimension is the fastest: rank x + A y lies at (x, y). One size may be left out where the
number of ranks says it. These are the multi-dimensional networks of ASTRA-sim (Ring,
FullyConnected, Switch); a product of rings is a torus, and is routed like one.

Source: W. Won et al., "ASTRA-sim2.0: modeling hierarchical networks and disaggregated systems for
large-model training at scale", ISPASS 2023.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ..network import Ints
from .parsing import Part, rates_of, unknown
from .registry import ALIASES
from .wiring import FAST, Rates, Wiring

SYNTAX = "KIND:SIZE[@RATES]*KIND:SIZE[@RATES]..."
SAMPLE = "ring:4@200GB/s,500ns*switch:8@25GB/s,2us"
DOC = "A product of dimensions: a ring, line, fully or switch in each, the first the fastest."

_Lines = Callable[[Wiring, Ints, Rates, str], None]


def _line(net: Wiring, lines: Ints, rates: Rates, name: str) -> None:
    net.link(lines[:, :-1], lines[:, 1:], rates)


def _ring(net: Wiring, lines: Ints, rates: Rates, name: str) -> None:
    _line(net, lines, rates, name)
    if lines.shape[1] > 2:
        net.link(lines[:, -1], lines[:, 0], rates)


def _fully(net: Wiring, lines: Ints, rates: Rates, name: str) -> None:
    net.link_all(lines, rates)


def _switch(net: Wiring, lines: Ints, rates: Rates, name: str) -> None:
    switches = net.switches(f"{name}.{k}" for k in range(len(lines)))
    net.link(lines, switches[:, None], rates)


KINDS: dict[str, _Lines] = {"ring": _ring, "line": _line, "fully": _fully, "switch": _switch}


def product(text: Part, n: int) -> tuple[Wiring, bool]:
    """Return the product that a text says, and whether all of its dimensions are rings.

    Raises:
        TopologyError: A dimension is wrong; the message points at it.
    """
    kinds: list[str] = []
    sizes: list[int | None] = []
    rates: list[Rates] = []
    for part in text.split("*"):
        head, *rest = part.split(":@")
        kind = ALIASES.get(head.word.text, head.word.text)
        if kind not in KINDS:
            raise unknown(head.word, "dimension", KINDS)
        has_size = bool(rest) and not rest[0].is_rate
        kinds.append(kind)
        sizes.append(rest[0].size("expected a number of places as in ring:4") if has_size else None)
        rates += rates_of(rest[has_size:], (FAST,))
    dims = _filled(text, sizes, n)
    net, below = Wiring(), 1
    rank = net.ranks(prod(dims))
    for k, (kind, size) in enumerate(zip(kinds, dims, strict=True)):
        lines = rank.reshape(-1, size, below).swapaxes(1, 2).reshape(-1, size)
        if size > 1:
            KINDS[kind](net, lines, rates[k], f"switch{k}")
        below *= size
    is_torus = set(kinds) == {"ring"}
    net.dims = dims if is_torus else ()
    return net, is_torus


def _filled(text: Part, sizes: list[int | None], n: int) -> tuple[int, ...]:
    """Return the sizes of all dimensions; one may follow from the number of ranks."""
    parts = text.split("*")
    missing = [k for k, size in enumerate(sizes) if size is None]
    if len(missing) > 1:
        raise parts[missing[1]].error("only one dimension may leave its size out, as in ring:4")
    known = prod(size for size in sizes if size is not None)
    if missing and n % known:
        raise parts[missing[0]].error(f"{n} ranks are not divisible by the other sizes, {known}")
    return tuple(n // known if size is None else size for size in sizes)
