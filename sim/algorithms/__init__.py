"""Algorithms: one module a family, each builder registered by `@algorithm`."""

from __future__ import annotations

from . import (
    all_to_all,
    barrier,
    binary,
    bruck,
    butterfly,
    chain,
    composed,
    direct,
    double_tree,
    flat,
    gloo,
    gloo_direct,
    in_switch,
    knomial,
    ring,
    rings,
    subtrees,
    torus,
    tree,
)
from .registry import ALGORITHMS, Algorithm, Phase, Sizes, algorithm, phases_of_rows

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Phase",
    "Sizes",
    "algorithm",
    "all_to_all",
    "barrier",
    "binary",
    "bruck",
    "butterfly",
    "chain",
    "composed",
    "direct",
    "double_tree",
    "flat",
    "gloo",
    "gloo_direct",
    "in_switch",
    "knomial",
    "phases_of_rows",
    "ring",
    "rings",
    "subtrees",
    "torus",
    "tree",
]
