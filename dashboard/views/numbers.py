"""How numbers and times are written in pictures.

short(12345.0)            # '12345'
short(12345.0, 4)         # '12k'
size_text(67108864)       # '64 MiB'
"""

from __future__ import annotations

import math

_SUFFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def short(value: float, width: int = 5) -> str:
    """Return a number in at most `width` characters, as exactly as that allows.

    Args:
        value: The number.
        width: Characters, 3 or more; a minus sign is not counted.

    Example:
        >>> [short(v) for v in (3.0, 0.5, 1234567.0, -0.125, 1e-9, float("nan"))]
        ['3', '0.5', '1235k', '-0.125', '1e-9', 'NaN']
    """
    if isinstance(value, bool):
        return "1" if value else "0"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    sign = "-" if value < 0 else ""
    return sign + _short(abs(value), width)


def _short(value: float, width: int) -> str:
    if value == int(value) and len(str(int(value))) <= width:
        return str(int(value))
    if 0.001 <= value < 10**width and value != int(value):
        return _decimal(value, width)
    if value >= 1e18 or value < 1:
        return _power(value)
    for unit, suffix in reversed(_SUFFIXES):
        text = _decimal(value / unit, width - 1)
        if len(text) < width and float(text) > 0:
            return text + suffix
    return _power(value)


def _decimal(value: float, width: int) -> str:
    """Return a positive number with as many decimals as fit."""
    digits = len(str(int(value)))
    decimals = max(width - digits - 1, 0)
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _power(value: float) -> str:
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def plain(value: float, dtype: str | None = None) -> str:
    """Return a number as Python shows it, shortened: 1.0 for floats, 1 for integers."""
    whole = dtype is not None and (dtype.startswith(("int", "uint")) or dtype == "bool")
    text = short(value, 7)
    if whole or not text.lstrip("-").isdigit():
        return text
    return text + ".0"


def time_unit(duration_ns: float) -> tuple[str, int, int]:
    """Return (unit, nanoseconds of it, decimals) that suit a duration.

    Example:
        >>> [time_unit(ns) for ns in (6001, 380_000, 25_000_000)]
        [('µs', 1000, 2), ('ms', 1000000, 2), ('ms', 1000000, 1)]
    """
    for unit, ns in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        value = duration_ns / ns
        if value >= 0.1:
            return unit, ns, 2 if value < 10 else 1 if value < 100 else 0
    return "ns", 1, 0
