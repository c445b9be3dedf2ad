"""Algorithms: one module a family, each builder registered by `@algorithm`."""

from __future__ import annotations

from . import chain, ring, tree
from .registry import ALGORITHMS, Algorithm, Phase, Sizes, algorithm, phases_of_rows

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Phase",
    "Sizes",
    "algorithm",
    "chain",
    "phases_of_rows",
    "ring",
    "tree",
]
