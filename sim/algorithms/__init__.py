"""Algorithms: one module a family, each builder registered by `@algorithm`."""

from __future__ import annotations

from . import ring
from .registry import ALGORITHMS, Algorithm, Phase, Sizes, algorithm

__all__ = ["ALGORITHMS", "Algorithm", "Phase", "Sizes", "algorithm", "ring"]
