"""The tables of docs/algorithms.md and docs/topologies.md, made from the registries.

Run as a program it writes them: ``python tests/sim/tables.py``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from chunkscope.sim.algorithms import Algorithm
from chunkscope.sim.closed import CLOSED, WITHOUT_FORM
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.presets import catalogue
from chunkscope.sim.presets.registry import PRESETS, Preset
from chunkscope.sim.topology import parse
from chunkscope.units import format_Bps, format_ns

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"


def algorithms_table() -> str:
    header = ("algorithm", "ranks", "steps, messages for 8", "cost", "source")
    return _table(header, (_algorithm(entry) for entry in algorithms()))


def topologies_table() -> str:
    rows = ((f"`{entry.syntax}`", f"`{entry.example}`", entry.doc) for entry in catalogue())
    return _table(("text", "example", "what it is"), rows)


def machines_table() -> str:
    return _table(
        ("machine", "links between GPUs, each way", "a NIC", "latency of a link", "source"),
        (_machine(name) for name, preset in PRESETS.items() if preset.is_machine),
    )


def _algorithm(entry: Algorithm) -> tuple[str, ...]:
    schedule = build(entry.collective, entry.name, 8)
    n_messages = len(schedule.messages.first_row)
    key = entry.collective, entry.name
    cost = _first(CLOSED[key]) if key in CLOSED else f"none: {WITHOUT_FORM[key]}"
    return (
        f"{entry.collective} **{entry.name}**",
        entry.sizes.text,
        f"{schedule.n_steps}, {n_messages:,}",
        cost,
        source_of(entry),
    )


def source_of(entry: Algorithm | Preset) -> str:
    """Return what a builder's docstring names as its source."""
    doc = inspect.getdoc(entry.builder) or ""
    found = re.search(r"^Source: (.*?)(?:\n\n|\Z)", doc, re.DOTALL | re.MULTILINE)
    return " ".join(found.group(1).split()) if found else ""


def _first(form: object) -> str:
    """Return the first sentence of a form, without its `Return`."""
    doc = (inspect.getdoc(form) or "").split("\n\n", 1)[0]
    return " ".join(doc.split()).removeprefix("Return ").removesuffix(".").split("; see `")[0]


def _machine(name: str) -> tuple[str, ...]:
    topology = parse(name, 72 if name == "nvl72" else 8)
    kinds = {node: topology.kind_of(node) for node in topology.graph}
    inside = [link for link in topology.links if "nic" not in {kinds[link.a], kinds[link.b]}]
    two = parse(f"{name}x2", 2 * topology.n_ranks)
    out = next(link for link in two.links if "rail0" in {link.a, link.b})
    rates = sorted({link.bandwidth_Bps for link in inside})
    latencies = sorted({link.latency_ns for link in topology.links} | {out.latency_ns})
    return (
        f"`{name}`",
        ", ".join(format_Bps(rate) for rate in rates),
        format_Bps(out.bandwidth_Bps),
        ", ".join(format_ns(latency) for latency in latencies),
        source_of(PRESETS[name]),
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


TABLES = {
    "algorithms.md": [algorithms_table],
    "topologies.md": [topologies_table, machines_table],
}


def with_tables(text: str, tables: Iterable[str]) -> str:
    """Return a text with what lies between its marks replaced, mark by mark."""
    head, *pieces = text.split(BEGIN)
    made = [f"\n{table}\n{END}{piece.split(END, 1)[1]}" for table, piece in zip(tables, pieces)]
    return BEGIN.join([head, *made])


if __name__ == "__main__":
    for name, tables in TABLES.items():
        path = DOCS / name
        path.write_text(with_tables(path.read_text("utf-8"), [table() for table in tables]))
