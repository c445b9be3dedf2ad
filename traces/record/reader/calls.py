"""What recorders leave to readers: which call and message an event is, and how it stands."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...columns import Column, Table
from ...schema import Kind, Provenance, Status, Type
from .counting import Ints, ordinals


def count_calls(events: Table, process: Ints) -> Table:
    """Return the events with what recorders leave out: coll_seq, message and status.

    Args:
        events: Events as the processes wrote them.
        process: Number of the process of each row.
    """
    kind, group, parent = events["kind"], events["group"], events["parent"]
    is_call = kind.where(Kind.COLLECTIVE) & group.valid & ~events["coll_seq"].valid
    seq = events["coll_seq"].values.copy()
    has_seq = events["coll_seq"].valid.copy()
    rows = np.flatnonzero(is_call)
    seq[rows] = ordinals(process[rows], group.values[rows])
    has_seq[rows] = True
    inside = np.flatnonzero(parent.valid & ~has_seq)
    seq[inside] = seq[parent.values[inside]]
    has_seq[inside] = has_seq[parent.values[inside]]
    seq[~has_seq] = 0
    return events.replace(
        coll_seq=Column(Type.INT, seq, has_seq),
        message=_messages(events, process, has_seq),
        status=_status(events),
        **{name: _of_parent(events, name) for name in ("rank", "group", "group_rank")},
    )


def _of_parent(events: Table, name: str) -> Column:
    """Return a column whose nulls are filled from what the event lies in."""
    column, parent = events[name], events["parent"]
    rows = np.flatnonzero(parent.valid & ~column.valid)
    values, valid = column.values.copy(), column.valid.copy()
    values[rows] = values[parent.values[rows]]
    valid[rows] = valid[parent.values[rows]]
    return Column(column.type, values, valid)


def _messages(events: Table, process: Ints, in_collective: Any) -> Column:
    """Return the message column: the k-th message of (group, src, dst, tag) outside of calls."""
    message, is_send = events["message"], events["kind"].where(Kind.SEND)
    counts = events["provenance"].where(Provenance.CALLED) & ~in_collective & ~message.valid
    counts &= (is_send | events["kind"].where(Kind.RECV)) & events["peer"].valid
    rows = np.flatnonzero(counts)
    me, peer = events["rank"].values[rows], events["peer"].values[rows]
    src = np.where(is_send[rows], me, peer)
    dst = np.where(is_send[rows], peer, me)
    values, valid = message.values.copy(), message.valid.copy()
    group, tag = events["group"].values[rows], events["tag"].values[rows]
    values[rows] = ordinals(process[rows], is_send[rows], group, src, dst, tag)
    valid[rows] = True
    return Column(Type.INT, values, valid)


def _status(events: Table) -> Column:
    """Return the status column, with how events without an end stand."""
    status, parent = events["status"], events["parent"]
    if status.valid.all():
        return status
    is_waited = np.zeros(len(events), np.bool_)
    waits = events["kind"].where(Kind.WAIT) & parent.valid
    is_waited[parent.values[waits]] = True
    is_unobserved = events["is_async"].where(True) & ~is_waited
    cells: list[Any] = status.to_list()
    for row in np.flatnonzero(~status.valid).tolist():
        cells[row] = Status.UNOBSERVED if is_unobserved[row] else Status.BEGUN
    return Column.build(Type.TEXT, cells, len(cells))
