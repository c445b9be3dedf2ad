"""What the wire tap saw, joined to the program's calls and to the schedules that gloo follows.

    trace = annotate(chunkscope.read("chunkscope-out/run"))     # recorded with --wire
    found = compare(trace)                                      # gloo's plan against the wire
    assert found.same, found

The tap knows source, destination, slot and bytes of a message. What a message is part of follows
from gloo's own count of a group's collectives, which is in the slot, and from the order of the
messages, which is that of the schedule.
"""

from __future__ import annotations

from .annotate import annotate
from .expected import compare, expected

__all__ = ["annotate", "compare", "expected"]
