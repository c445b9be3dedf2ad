"""Algorithms: one module a family, each builder registered by `@algorithm`."""

from __future__ import annotations

from . import chain, flat, gloo, gloo_direct, knomial, ring, subtrees, tree
from .registry import ALGORITHMS, Algorithm, Phase, Sizes, algorithm, phases_of_rows

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Phase",
    "Sizes",
    "algorithm",
    "chain",
    "flat",
    "gloo",
    "gloo_direct",
    "knomial",
    "phases_of_rows",
    "ring",
    "subtrees",
    "tree",
]
