"""Which event of one trace stands opposite which of the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..columns import Mask, Rows
from ..schema import Kind
from .align import align
from .calls import NO_CALL, CommonCalls
from .keys import Pairs, codes, dense, pack, pair
from .select import Side

# What a row's place in the plan is; times have no part in it.
KEY = ("group_rank", "peer_group_rank", "channel")
_ON_EDGES = (Kind.SEND, Kind.RECV, Kind.REDUCE)
# Comparisons that aligning the edges of one diff may take; beyond them, messages pair by number.
_MOST_COMPARISONS = 20_000_000


@dataclass(frozen=True, slots=True, eq=False)
class EventPairs:
    """Compared rows opposite each other.

    Attributes:
        a, b: Rows of the two events tables, opposite each other.
        call: Number of each pair's call.
        only_a, only_b: Rows that the other side lacks.
        call_only_a, call_only_b: Numbers of their calls.
    """

    a: Rows
    b: Rows
    call: Rows
    only_a: Rows
    only_b: Rows
    call_only_a: Rows
    call_only_b: Rows


def pair_events(a: Side, b: Side, calls: CommonCalls) -> EventPairs:
    """Pair the events of two sides by key.

    The key is (group, call, kind, channel, group_rank, peer_group_rank, message, part), or the tag
    in place of call and channel outside of a collective. Where an edge has different numbers of
    messages on the two sides, they are aligned on (step, slot, size) instead.
    """
    at = _in_common_calls(calls)
    rows_a, rows_b = a.rows[at[0]], b.rows[at[1]]
    n_a, n_b = len(rows_a), len(rows_b)
    calls_a, calls_b = calls.call_a[at[0]], calls.call_b[at[1]]
    columns = [
        (calls.group_a[at[0]], calls.group_b[at[1]]),
        (calls_a, calls_b),
        _codes(a, rows_a, b, rows_b, "kind"),
        _attempts(a, rows_a, b, rows_b),
        *_group_rows(a, rows_a, b, rows_b),
        *(
            _codes(a, rows_a, b, rows_b, name)
            for name in KEY
            if _both_have(a, rows_a, b, rows_b, name)
        ),
        *_tags(a, rows_a, b, rows_b, (calls_a, calls_b)),
    ]
    edge_a, edge_b = pack(columns, n_a, n_b)
    numbers = [
        _codes(a, rows_a, b, rows_b, name)
        for name in ("message", "part")
        if _both_have(a, rows_a, b, rows_b, name)
    ]
    key_a, key_b = pack([(edge_a, edge_b), *numbers], n_a, n_b)
    found = pair(key_a, key_b)
    if len(found.only_a) or len(found.only_b):
        found = _align_edges(a, rows_a, b, rows_b, (edge_a, edge_b), (key_a, key_b), found)
    order = np.argsort(found.a, kind="stable")
    at_a, at_b = found.a[order], found.b[order]
    return EventPairs(
        rows_a[at_a],
        rows_b[at_b],
        calls_a[at_a],
        rows_a[np.sort(found.only_a)],
        rows_b[np.sort(found.only_b)],
        calls_a[np.sort(found.only_a)],
        calls_b[np.sort(found.only_b)],
    )


def _in_common_calls(calls: CommonCalls) -> tuple[Mask, Mask]:
    """Return the rows whose group and call both sides hold; the others are told of as a whole."""
    lone_a = np.array([c.row_b is None for c in calls.calls] + [False])
    lone_b = np.array([c.row_a is None for c in calls.calls] + [False])
    # The last entry, which NO_CALL names, stands for rows outside of a call.
    keep_a = ~lone_a[calls.call_a] & ~np.isin(calls.group_a, calls.only_a)
    keep_b = ~lone_b[calls.call_b] & ~np.isin(calls.group_b, calls.only_b)
    return keep_a, keep_b


def _codes(a: Side, rows_a: Rows, b: Side, rows_b: Rows, name: str) -> tuple[Rows, Rows]:
    return codes(a.trace.events[name], rows_a, b.trace.events[name], rows_b)


def _attempts(a: Side, rows_a: Rows, b: Side, rows_b: Rows) -> tuple[Rows, Rows]:
    """Return the attempts, 0 where null: a simulation has one, and does not count it."""
    return a.trace.events["attempt"].values[rows_a], b.trace.events["attempt"].values[rows_b]


def _both_have(a: Side, rows_a: Rows, b: Side, rows_b: Rows, name: str) -> bool:
    return not (a.lacks(name, rows_a, b) or b.lacks(name, rows_b, a))


def _tags(
    a: Side, rows_a: Rows, b: Side, rows_b: Rows, calls: tuple[Rows, Rows]
) -> list[tuple[Rows, Rows]]:
    """Return the tags of messages outside of a call; inside, a tag only numbers the calls."""
    if not _both_have(a, rows_a, b, rows_b, "tag"):
        return []
    one, two = _codes(a, rows_a, b, rows_b, "tag")
    return [(np.where(calls[0] == NO_CALL, one, -1), np.where(calls[1] == NO_CALL, two, -1))]


def _group_rows(a: Side, rows_a: Rows, b: Side, rows_b: Rows) -> list[tuple[Rows, Rows]]:
    """Return the keys that rows of kind `group` have besides: the global rank and the function."""
    masks = []
    for side, rows in ((a, rows_a), (b, rows_b)):
        masks.append(side.trace.events["kind"].where(Kind.GROUP.value)[rows])
    if not (masks[0].any() or masks[1].any()):
        return []
    keys = []
    for name in ("rank", "collective", "api"):
        one, two = _codes(a, rows_a, b, rows_b, name)
        keys.append((np.where(masks[0], one, -1), np.where(masks[1], two, -1)))
    return keys


def _align_edges(
    a: Side,
    rows_a: Rows,
    b: Side,
    rows_b: Rows,
    edges: tuple[Rows, Rows],
    keys: tuple[Rows, Rows],
    found: Pairs,
) -> Pairs:
    """Pair anew the messages of edges that have different numbers of them on the two sides."""
    edge_a, edge_b, n_edges = dense(*edges)
    counts = [np.bincount(edge, minlength=n_edges) for edge in (edge_a, edge_b)]
    uneven = (counts[0] != counts[1]) & (counts[0] > 0) & (counts[1] > 0)
    uneven &= _on_edges(a, rows_a, edge_a, n_edges)
    chosen = np.flatnonzero(uneven)
    chosen = chosen[np.cumsum(counts[0][chosen] * counts[1][chosen]) <= _MOST_COMPARISONS]
    if not len(chosen):
        return found
    redo = np.zeros(n_edges, np.bool_)
    redo[chosen] = True
    token_a, token_b = _tokens(a, rows_a, b, rows_b)
    lists_a, lists_b = _by_edge(edge_a, keys[0], redo), _by_edge(edge_b, keys[1], redo)
    pairs: list[tuple[int, int]] = []
    lone: tuple[list[int], list[int]] = ([], [])
    for edge, ours in lists_a.items():
        theirs = lists_b[edge]
        for i, j in align(token_a[ours].tolist(), token_b[theirs].tolist()):
            if i is not None and j is not None:
                pairs.append((int(ours[i]), int(theirs[j])))
            elif i is not None:
                lone[0].append(int(ours[i]))
            elif j is not None:
                lone[1].append(int(theirs[j]))
    keep = ~redo[edge_a[found.a]]
    new = np.array(pairs, np.int64).reshape(-1, 2)
    return Pairs(
        np.concatenate([found.a[keep], new[:, 0]]),
        np.concatenate([found.b[keep], new[:, 1]]),
        np.concatenate([found.only_a[~redo[edge_a[found.only_a]]], np.array(lone[0], np.int64)]),
        np.concatenate([found.only_b[~redo[edge_b[found.only_b]]], np.array(lone[1], np.int64)]),
    )


def _on_edges(side: Side, rows: Rows, edge: Rows, n_edges: int) -> Mask:
    """Return which edges are of a kind that has messages."""
    mask = np.zeros(n_edges, np.bool_)
    for kind in _ON_EDGES:
        mask[edge[side.trace.events["kind"].where(kind.value)[rows]]] = True
    return mask


def _by_edge(edge: Rows, key: Rows, redo: Mask) -> dict[int, Rows]:
    """Return the positions on each chosen edge, in order of message and part."""
    at = np.flatnonzero(redo[edge])
    at = at[np.lexsort((key[at], edge[at]))]
    starts = np.flatnonzero(np.diff(edge[at], prepend=-1))
    return {int(edge[part[0]]): part for part in np.split(at, starts[1:]) if len(part)}


def _tokens(a: Side, rows_a: Rows, b: Side, rows_b: Rows) -> tuple[Rows, Rows]:
    """Return what two messages of an edge are told apart by: step, slot and size."""
    columns = [
        _codes(a, rows_a, b, rows_b, name)
        for name in ("step", "slot", "size_bytes")
        if _both_have(a, rows_a, b, rows_b, name)
    ]
    return pack(columns, len(rows_a), len(rows_b))
