"""Topologies by name: ``PRESET[:SHAPE][@BANDWIDTH[,LATENCY]]...``, defaults for what is left out.

    ring@100GB/s,1us                every link with these rates, each way
    torus:8x8:50GB/s,1us            ``:`` reads as ``@``
    two-level:2x4@100GB/s@10GB/s    links inside a host, then those between hosts
    dgx-h100x4                      four machines by name
    ring:4*switch:8@25GB/s          a product of dimensions, see `product`

`PRESETS` has all of them with what they build; `catalogue` lists them.
"""

from __future__ import annotations

from typing import NamedTuple

from . import flat, grids, machines, product, switched
from .building import build
from .registry import PRESETS

__all__ = [
    "PRESETS",
    "Entry",
    "build",
    "catalogue",
    "flat",
    "grids",
    "machines",
    "product",
    "switched",
]


class Entry(NamedTuple):
    """A line of the list of topologies.

    Attributes:
        name: What it is called.
        syntax: What a text of it looks like.
        example: A text of it.
        doc: What it is, in one line.
    """

    name: str
    syntax: str
    example: str
    doc: str


def catalogue() -> list[Entry]:
    """Return every topology that a text can name, and the kinds of files that it can be.

    Example:
        >>> [entry.example for entry in catalogue() if entry.name == "torus"]
        ['torus:4x2@100GB/s,1us']
    """
    named = [Entry(each.name, each.syntax, each.sample, each.doc) for each in PRESETS.values()]
    return [
        *named,
        Entry("product", product.SYNTAX, product.SAMPLE, product.DOC),
        Entry(
            "file",
            "PATH.graphml or PATH.json",
            "cluster.graphml",
            "A graph of your own: GraphML, networkx's node-link JSON, or a topology's own JSON.",
        ),
    ]
