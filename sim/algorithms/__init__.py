"""Algorithms: one module a family, each builder registered by `@algorithm`."""

from __future__ import annotations

from . import chain, gloo, gloo_direct, ring, tree
from .registry import ALGORITHMS, Algorithm, Phase, Sizes, algorithm, phases_of_rows

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Phase",
    "Sizes",
    "algorithm",
    "chain",
    "gloo",
    "gloo_direct",
    "phases_of_rows",
    "ring",
    "tree",
]
