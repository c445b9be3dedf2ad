"""What must come before what in a run: a message's send before its receive, and in a collective.

No rank has an all_reduce's result before every rank has begun it, no rank a broadcast's data before
the root has begun. The begin of such a source and the end of such a sink belong to one *flow*.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...columns import Table
from ...schema import Kind, Status
from .counting import Ints

Mask = npt.NDArray[np.bool_]
_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
_FROM_ROOT = ("broadcast", "scatter")
_TO_ROOT = ("reduce", "gather")


class Flows(NamedTuple):
    """Which rows belong together, and how.

    Attributes:
        number: Number of the flow of each row; -1 for none.
        is_source: Whether the flow's sinks cannot end before this row was issued.
        is_sink: Whether this row cannot end before the flow's sources were issued.
    """

    number: Ints
    is_source: Mask
    is_sink: Mask


def flows_of(events: Table) -> Flows:
    """Return the flows of a trace's events; of those that ended well."""
    ok = events["status"].where(Status.OK) & events["group"].valid & events["t_issue_ns"].valid
    ok &= events["t_end_ns"].valid
    number = np.full(len(events), -1, np.int64)
    source, sink = _in_collectives(events)
    calls = np.flatnonzero(ok & (source | sink))
    number[calls] = _numbered(events, calls, ("attempt", "group", "coll_seq"))
    is_send, is_recv = events["kind"].where(Kind.SEND), events["kind"].where(Kind.RECV)
    known = events["rank"].valid & events["peer"].valid & events["message"].valid
    messages = np.flatnonzero(ok & known & (is_send | is_recv))
    me, peer = events["rank"].values[messages], events["peer"].values[messages]
    ends = (
        np.where(is_send[messages], me, peer),
        np.where(is_send[messages], peer, me),
    )
    names = ("attempt", "group", "coll_seq", "channel", "step", "tag", "message")
    first = int(number.max(initial=-1)) + 1
    number[messages] = first + _numbered(events, messages, names, *ends)
    return Flows(number, source | is_send, sink | is_recv)


def _in_collectives(events: Table) -> tuple[Mask, Mask]:
    """Return which collective rows are sources, and which are sinks."""
    kind = events["kind"].where(Kind.COLLECTIVE) & events["coll_seq"].valid
    name = events["collective"]
    size = events["size_bytes"]
    moves = (size.valid & (size.values > 0)) | name.where("barrier")
    # With uneven splits a pair may have nothing for each other.
    kind &= moves & ~events["splits"].valid
    is_root = events["root"].valid & (events["root"].values == events["group_rank"].values)
    together, from_root, to_root = (
        kind & np.any([name.where(each) for each in names], axis=0)
        for names in (_TOGETHER, _FROM_ROOT, _TO_ROOT)
    )
    source = together | (from_root & is_root) | to_root
    sink = together | from_root | (to_root & is_root)
    return source, sink


def _numbered(events: Table, rows: Ints, names: tuple[str, ...], *more: Ints) -> Ints:
    """Return a number for each row, equal where all cells of these columns are."""
    if not len(rows):
        return np.zeros(0, np.int64)
    columns = [events[name] for name in names]
    cells = [np.where(c.valid[rows], c.values[rows], -1) for c in columns]
    _, number = np.unique(np.stack([*cells, *more]), axis=1, return_inverse=True)
    return np.asarray(number, np.int64).reshape(-1)
