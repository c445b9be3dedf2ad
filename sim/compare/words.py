"""What a Comparison says to a person: the answer in a sentence, tables, what was left out.

answer(found)       # 'Use one_shot below 3.40 KiB, two_shot below 526 KiB and ring above.'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...traces.trace import JSON
from ...units import format_Bps, format_bytes, format_ns
from .comparison import Comparison


class Reign(NamedTuple):
    """Sizes over which one algorithm is the fastest, the last one included."""

    algorithm: str
    first_bytes: int
    last_bytes: int


class Table(NamedTuple):
    """A table of texts; numbers are aligned to the right."""

    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    numeric: tuple[bool, ...]


def question(found: Comparison) -> str:
    """Return what was asked, such as ``all_reduce on 64 ranks of dgx-h100x8``."""
    return f"{found.collective} on {_ranks(found)} of {found.model['topology']}"


def answer(found: Comparison) -> str:
    """Return which algorithm to use where, in one sentence."""
    *parts, last = reigns(found)
    if not parts:
        many = len(found.size_bytes) > 1
        return f"Use {last.algorithm}{' at every size' if many else ''}."
    words = [f"{reign.algorithm} below {format_bytes(reign.last_bytes)}" for reign in parts]
    return f"Use {', '.join(words)} and {last.algorithm} above."


def reigns(found: Comparison) -> list[Reign]:
    """Return who is the fastest over which sizes, rising."""
    low, high = int(found.size_bytes[0]), int(found.size_bytes[-1])
    ends = [*(cross.size_bytes for cross in found.crossovers), high]
    names = [found.winners[0], *(cross.after for cross in found.crossovers)]
    return [Reign(name, first, last) for name, first, last in zip(names, [low, *ends[:-1]], ends)]


def best(found: Comparison) -> Table:
    """Return a line for each size: the winner, how fast it is, and how far the next one is.

    With one size it has a line for each algorithm, the fastest first.
    """
    if len(found.size_bytes) == 1:
        return _only_size(found)
    rows = []
    for k, size in enumerate(found.size_bytes.tolist()):
        first, *others = found.ranking(k)
        time_ns, *told = _figures(found, first[0], k)
        next_best, slower = "", ""
        if others:
            next_ns = float(found.time_ns[found.algorithms.index(others[0][0]), k])
            next_best, slower = _equals(others[0]), _slower(next_ns, time_ns)
        rows.append((format_bytes(size), _equals(first), *told, next_best, slower))
    header = ("size", "fastest", "time", "busbw", "× bound", "next best", "slower")
    return Table(header, rows, (True, False, True, True, True, False, True))


def _only_size(found: Comparison) -> Table:
    names = [name for group in found.ranking(0) for name in group]
    best_ns, *_ = _figures(found, names[0], 0)
    rows = []
    for name in names:
        time_ns, *told = _figures(found, name, 0)
        rows.append((name, *told, _slower(time_ns, best_ns)))
    header = ("algorithm", "time", "busbw", "× bound", "slower")
    return Table(header, rows, (False, True, True, True, True))


def _figures(found: Comparison, name: str, k: int) -> tuple[float, str, str, str]:
    """Return an algorithm's time at the k-th size, and the words for it, busbw and the bound."""
    a = found.algorithms.index(name)
    time_ns, bound_ns = float(found.time_ns[a, k]), float(found.bound_ns[k])
    busbw = format_Bps(float(found.busbw_Bps[a, k])) if found.size_bytes[k] else ""
    ratio = f"{time_ns / bound_ns:.2f}" if bound_ns > 0 else ""
    return time_ns, format_ns(time_ns), busbw, ratio


def everything(found: Comparison, sizes_a_table: int = 8) -> list[Table]:
    """Return the times of every algorithm, some sizes a table; the fastest ones have a star."""
    tables = []
    for first in range(0, len(found.size_bytes), sizes_a_table):
        columns = range(first, min(first + sizes_a_table, len(found.size_bytes)))
        sizes = [format_bytes(int(found.size_bytes[k])) for k in columns]
        best_of = {k: found.ranking(k)[0] for k in columns}
        rows = [
            (name, *(_starred(float(times[k]), name in best_of[k]) for k in columns))
            for name, times in zip(found.algorithms, found.time_ns)
        ]
        rows.append(("lower bound", *(_starred(float(found.bound_ns[k]), False) for k in columns)))
        tables.append(Table(("algorithm", *sizes), rows, (False, *(True for _ in columns))))
    return tables


def left_out(found: Comparison) -> list[str]:
    """Return a line for each reason why algorithms have no time."""
    names: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for out in found.left_out:
        names.setdefault((_first(out.reason), out.size_bytes), []).append(out.algorithm)
    lines = []
    for (reason, sizes), some in names.items():
        where = ""
        if sizes:
            span = [format_bytes(size) for size in sorted({min(sizes), max(sizes)})]
            where = f" at {' to '.join(span)}"
        lines.append(f"{', '.join(some)}{where}: {reason}")
    return lines


def basis(found: Comparison) -> str:
    """Return what the numbers rest on: model, network, and parameters that are not the default."""
    model = found.model
    words = [f"step model {model['version']}", f"{model['policy']}", f"{model['topology']}"]
    words += [_ranks(found), found.dtype]
    words += [
        f"{name.rsplit('_', 1)[0] if name.endswith(tuple(_UNITS)) else name} {_said(name, value)}"
        for name, value in model.items()
        if name not in _FIRST and value not in (None, 0, {}, "max-min")
    ]
    return " · ".join(words)


_FIRST = ("model", "version", "policy", "topology")
_UNITS: dict[str, Callable[[float], str]] = {
    "_ns": format_ns,
    "_Bps": format_Bps,
    "_bytes": lambda size_bytes: f"{size_bytes:g} B",
}


def _said(name: str, value: JSON) -> str:
    """Return a parameter's value for a person."""
    if isinstance(value, dict):
        return ", ".join(f"rank {rank} {_said(name, one)}" for rank, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    unit = next((unit for unit in _UNITS if name.endswith(unit)), None)
    return _UNITS[unit](value) if unit and isinstance(value, int | float) else f"{value}"


def _ranks(found: Comparison) -> str:
    return f"{found.ranks} rank{'s' if found.ranks > 1 else ''}"


def _equals(names: tuple[str, ...]) -> str:
    """Return the names of algorithms that are equally fast."""
    first, *others = names
    if not others:
        return first
    return f"{first} = {others[0]}" if len(others) == 1 else f"{first} = {len(others)} others"


def _slower(time_ns: float, best_ns: float) -> str:
    if time_ns <= best_ns or best_ns == 0:
        return ""
    ratio = time_ns / best_ns
    if ratio >= 2:
        return f"{ratio:.1f} ×"
    return f"+{100 * (ratio - 1):.2g} %" if ratio >= 1.001 else "< 0.1 %"


def _starred(time_ns: float, star: bool) -> str:
    return "-" if np.isnan(time_ns) else format_ns(time_ns) + ("*" if star else " ")


def _first(reason: str) -> str:
    """Return the first sentence of an error's message: what to do instead is for who asked it."""
    return reason.split("; ")[0].split("\n")[0]
