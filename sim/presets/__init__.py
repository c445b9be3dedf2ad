"""Topologies by name: ``PRESET[:SHAPE][:BANDWIDTH[,LATENCY]]...``, defaults for what is left out.

    ring:100GB/s,1us                every link with these rates, each way
    torus:8x8@50GB/s,1us            ``@`` reads as ``:``
    two-level:2x4:100GB/s:10GB/s    links inside a host, then those between hosts
    dgx-h100x4                      four machines by name

`PRESETS` has all of them with what they build.
"""

from __future__ import annotations

from . import flat, grids, machines, switched
from .parsing import PRESETS, build

__all__ = ["PRESETS", "build", "flat", "grids", "machines", "switched"]
