"""Watch a collective move: record it, simulate it, play it, film it and diff it.

Typical use:

    import chunkscope

    schedule = chunkscope.build("all_reduce", "ring", 4)
    assert not chunkscope.verify(schedule)
    replay = chunkscope.simulate(schedule.bind(16, "float32"), chunkscope.topology("ring", 4))
    print(chunkscope.diff(replay.trace(), chunkscope.read("chunkscope-out/run")).to_text())

Every name below is loaded when it is first used: importing chunkscope loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .dashboard.export import export
    from .dashboard.film import film
    from .errors import ChunkscopeError, TraceMismatch
    from .sim.builder import Builder
    from .sim.compare import compare
    from .sim.execute import execute
    from .sim.library import algorithms, build
    from .sim.replay import simulate
    from .sim.schedule import Schedule, Transfer
    from .sim.topology import Topology
    from .sim.topology import parse as topology
    from .sim.verify import verify
    from .traces.diff import diff
    from .traces.files import read, write
    from .traces.record import record
    from .traces.record.probe import probe
    from .traces.trace import Trace

__version__ = "0.1.0"

__all__ = [
    "Builder",
    "ChunkscopeError",
    "Schedule",
    "Topology",
    "Trace",
    "TraceMismatch",
    "Transfer",
    "algorithms",
    "build",
    "compare",
    "diff",
    "execute",
    "export",
    "film",
    "probe",
    "read",
    "record",
    "simulate",
    "topology",
    "verify",
    "write",
]

# Where each name lives when it is used: a module, and the name there where it is another one.
_HOMES = {
    "Builder": ".sim.builder",
    "ChunkscopeError": ".errors",
    "Schedule": ".sim.schedule",
    "Topology": ".sim.topology",
    "Trace": ".traces.trace",
    "TraceMismatch": ".errors",
    "Transfer": ".sim.schedule",
    "algorithms": ".sim.library",
    "build": ".sim.library",
    "compare": ".sim.compare",
    "diff": ".traces.diff",
    "execute": ".sim.execute",
    "export": ".dashboard.export",
    "film": ".dashboard.film",
    "probe": ".traces.record.probe",
    "read": ".traces.files",
    "record": ".traces.record",
    "simulate": ".sim.replay",
    "topology": ".sim.topology:parse",
    "verify": ".sim.verify",
    "write": ".traces.files",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module where it lives (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, there = _HOMES[name].partition(":")
    value: object = getattr(import_module(module, __name__), there or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
