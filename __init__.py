"""Watch a collective move: record it, simulate it, play it, film it and diff it.

Typical use:

    import chunkscope

    schedule = chunkscope.build("all_reduce", "ring", 4)
    chunkscope.verify(schedule)
    replay = chunkscope.simulate(schedule, chunkscope.topology("ring:100GB/s,1us", 4))
    print(chunkscope.diff(replay.trace(), chunkscope.read("chunkscope-out/run")))

Every name below is loaded when it is first used: importing chunkscope loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .dashboard.export import export as export
    from .dashboard.film import film as film
    from .errors import ChunkscopeError as ChunkscopeError
    from .errors import TraceMismatch as TraceMismatch
    from .sim.algorithms import build as build
    from .sim.execute import execute as execute
    from .sim.replay import simulate as simulate
    from .sim.schedule import Schedule as Schedule
    from .sim.schedule import Transfer as Transfer
    from .sim.topology import Topology as Topology
    from .sim.topology import topology as topology
    from .sim.verify import verify as verify
    from .traces.diff import diff as diff
    from .traces.files import read as read
    from .traces.files import write as write
    from .traces.record import record as record
    from .traces.trace import Trace as Trace

__version__ = "0.1.0"

_HOMES = {
    "ChunkscopeError": ".errors",
    "Schedule": ".sim.schedule",
    "Topology": ".sim.topology",
    "Trace": ".traces.trace",
    "TraceMismatch": ".errors",
    "Transfer": ".sim.schedule",
    "build": ".sim.algorithms",
    "diff": ".traces.diff",
    "execute": ".sim.execute",
    "export": ".dashboard.export",
    "film": ".dashboard.film",
    "read": ".traces.files",
    "record": ".traces.record",
    "simulate": ".sim.replay",
    "topology": ".sim.topology",
    "verify": ".sim.verify",
    "write": ".traces.files",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    """Load a public name from the module where it lives (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
