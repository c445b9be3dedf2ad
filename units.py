"""Bytes, times and rates, as people write and read them.

parse_bytes("64MiB")      # 67108864
parse_Bps("200Gbit/s")    # 25000000000.0
format_ns(1_320_000)      # '1.32 ms'
"""

from __future__ import annotations

import re

_BYTES = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_BITS = {"BIT": 1, "KBIT": 10**3, "MBIT": 10**6, "GBIT": 10**9, "TBIT": 10**12}
_TIMES = {"NS": 1, "US": 10**3, "µS": 10**3, "ΜS": 10**3, "MS": 10**6, "S": 10**9}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)\s*([^\s]*)\s*$")


def _split(text: str, what: str) -> tuple[float, str]:
    match = _NUMBER.match(text)
    if match is None:
        raise ValueError(f"{what} {text!r} is no number with a unit")
    return float(match.group(1)), match.group(2).upper()


def parse_bytes(text: str) -> int:
    """Return a number of bytes from text such as ``64MiB``, ``1e9`` or ``16``.

    Raises:
        ValueError: It is no number, the unit is unknown, or a fraction of a byte is left.

    Example:
        >>> parse_bytes("1.5KiB")
        1536
    """
    number, unit = _split(text, "size")
    if unit not in _BYTES:
        raise ValueError(f"size {text!r} has unknown unit; known: B, KB, KiB, MB, MiB, GB, GiB")
    value = number * _BYTES[unit]
    if value != int(value):
        raise ValueError(f"size {text!r} is no whole number of bytes")
    return int(value)


def parse_Bps(text: str) -> float:
    """Return bytes a second from text such as ``100GB/s``, ``93GiB/s`` or ``200Gbit/s``.

    Raises:
        ValueError: It is no positive number with a known unit.

    Example:
        >>> parse_Bps("8Gbit/s")
        1000000000.0
    """
    number, unit = _split(text, "bandwidth")
    unit = unit.removesuffix("/S").removesuffix("PS")
    if unit in _BITS:
        value = number * _BITS[unit] / 8
    elif unit in _BYTES and unit:
        value = number * _BYTES[unit]
    else:
        raise ValueError(f"bandwidth {text!r} has unknown unit; known: GB/s, GiB/s, Gbit/s, MB/s")
    if value <= 0:
        raise ValueError(f"bandwidth {text!r} is not above zero")
    return value


def parse_ns(text: str) -> float:
    """Return nanoseconds from text such as ``500ns``, ``1us``, ``5µs`` or ``0.2ms``.

    Raises:
        ValueError: It is no number with a known unit.

    Example:
        >>> parse_ns("1.5us")
        1500.0
    """
    number, unit = _split(text, "time")
    if unit not in _TIMES:
        raise ValueError(f"time {text!r} has unknown unit; known: ns, us, µs, ms, s")
    return number * _TIMES[unit]


def _digits(value: float) -> str:
    """Return a number with three significant digits, at least its whole part."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def format_bytes(size_bytes: int) -> str:
    """Return bytes for a person, in powers of 1024.

    Example:
        >>> format_bytes(64 * 2**20), format_bytes(16)
        ('64 MiB', '16 B')
    """
    value, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    text = f"{value:.0f}" if value == int(value) else _digits(value)
    return f"{text} {unit}"


def format_ns(time_ns: float) -> str:
    """Return a duration for a person.

    Example:
        >>> format_ns(950), format_ns(1_320_000)
        ('950 ns', '1.32 ms')
    """
    value, unit = float(time_ns), "ns"
    for larger in ("µs", "ms", "s"):
        if abs(value) < 1000:
            break
        value, unit = value / 1000, larger
    text = f"{value:.0f}" if unit == "ns" else _digits(value)
    return f"{text} {unit}"


def format_Bps(rate_Bps: float) -> str:
    """Return bytes a second for a person, in powers of 1000.

    Example:
        >>> format_Bps(24.6e9)
        '24.6 GB/s'
    """
    value, unit = float(rate_Bps), "B/s"
    for larger in ("kB/s", "MB/s", "GB/s", "TB/s"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    text = f"{value:.0f}" if value == int(value) else _digits(value)
    return f"{text} {unit}"
