"""Parameters of an algorithm, written after its name: ``ring_segmented:segments=8``.

split("ring_segmented:segments=8,window=4")     # ("ring_segmented", {"segments": 8, "window": 4})
"""

from __future__ import annotations

import re

_NAMED = re.compile(r"[A-Za-z_]\w*=[^,]*(?:,[A-Za-z_]\w*=[^,]*)*")
_WORDS = {"true": True, "false": False}

Value = bool | int | tuple[int, ...] | str


def split(text: str) -> tuple[str, dict[str, Value]]:
    """Return an algorithm's name and the parameters that follow it.

    Values are whole numbers, ``true`` or ``false``, sizes of dimensions such as ``4x16``, or words.

    Example:
        >>> split("mine.py:ring"), split("torus2d:dims=4x16,mirrored=true")
        (('mine.py:ring', {}), ('torus2d', {'dims': (4, 16), 'mirrored': True}))
    """
    name, colon, given = text.rpartition(":")
    if not (colon and _NAMED.fullmatch(given)):
        return text, {}
    pairs = (pair.split("=", 1) for pair in given.split(","))
    return name, {key: _value(value) for key, value in pairs}


def _value(text: str) -> Value:
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if re.fullmatch(r"\d{1,9}(x\d{1,9})+", text):
        return tuple(int(number) for number in text.split("x"))
    return _WORDS.get(text.lower(), text)
