"""The sentences of a diff: where, what was found, what was expected, and what it means."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ..columns import Array
from ..schema import Kind, Role, When
from ..trace import Trace
from .states import Tolerance, Values, close

_OF_CALL = {
    "collective": "the call is",
    "algorithm": "the algorithm is",
    "reduce_op": "the reduce op is",
    "root": "the root is",
    "size_bytes": "the size is",
    "dtype": "the dtype is",
    "splits": "the splits are",
    "is_async": "asynchronous is",
    "api": "the function called is",
    "status": "it ended as",
}
_UNITS = {"size_bytes": " bytes", "offset_bytes": " bytes"}


def where(trace: Trace, row: int) -> str:
    """Return where an event is, such as "rank 2, all_reduce #3, step 4"."""
    cells = trace.events
    parts = []
    if cells["rank"][row] is not None:
        parts.append(f"rank {cells['rank'][row]}")
    elif cells["place"][row] is not None:
        parts.append(f"place {cells['place'][row]}")
    if (name := call_name(trace, row)) is not None:
        parts.append(name)
    if cells["step"][row] is not None:
        parts.append(f"step {cells['step'][row]}")
    return ", ".join(parts) or f"row {row}"


def call_name(trace: Trace, row: int) -> str | None:
    """Return the name of an event's collective call, such as "all_reduce #3"."""
    collective, coll_seq = trace.events["collective"][row], trace.events["coll_seq"][row]
    if coll_seq is None:
        return None
    return f"{collective or 'collective'} #{coll_seq}"


def column_sentence(a: Trace, row_a: int, b: Trace, row_b: int, column: str) -> str:
    """Return the sentence for a column that differs between two events."""
    one, two = a.events[column][row_a], b.events[column][row_b]
    kind = b.events["kind"][row_b]
    unit = _UNITS.get(column, "")
    found, expected, place = _cell(two, unit), _cell(one, unit), where(b, row_b)
    if kind in (Kind.COLLECTIVE, Kind.GROUP):
        name = _OF_CALL.get(column, f"{column} is")
        return f"{place}: {name} {found}, expected {expected}"
    deed, slot = _deed(b, row_b), _cell(b.events["slot"][row_b])
    if column == "slot":
        return f"{place}: {deed} slot {found}, expected slot {expected}"
    if column == "step":
        return f"{where(a, row_a)}: {deed} slot {slot} in step {found} instead"
    if column == "reduces":
        does = "is combined with" if two else "overwrites"
        should = "is combined with" if one else "overwrites"
        into = f"slot {slot}" if kind == Kind.RECV else "the slot there"
        link = (
            f"what goes {_link(b, row_b)}" if kind == Kind.SEND else f"what comes {_link(b, row_b)}"
        )
        return f"{place}: {link} {does} {into}, expected that it {should} it"
    if column == "status":
        return f"{place}: {deed} slot {slot} ended as {found}, expected {expected}"
    of = f"the {kind} {_link(b, row_b)}" if b.events["peer"][row_b] is not None else f"the {kind}"
    return f"{place}: {column} of {of} is {found}, expected {expected}"


def _deed(trace: Trace, row: int) -> str:
    kind, peer = trace.events["kind"][row], trace.events["peer"][row]
    if kind == Kind.SEND:
        return f"sends to rank {peer} from"
    if kind == Kind.RECV:
        return f"receives from rank {peer} into"
    if kind == Kind.REDUCE:
        return "reduces into"
    return "copies into"


def _link(trace: Trace, row: int) -> str:
    kind, peer = trace.events["kind"][row], trace.events["peer"][row]
    return f"to rank {peer}" if kind == Kind.SEND else f"from rank {peer}"


def lone_event(trace: Trace, row: int, lacking: str) -> str:
    """Return the sentence for an event that one side lacks."""
    kind = trace.events["kind"][row]
    if kind == Kind.COLLECTIVE:
        return f"{where(trace, row)}: {lacking} has no such call of this rank"
    peer = trace.events["peer"][row]
    ends = "" if peer is None else f" {_link(trace, row)}"
    return f"{where(trace, row)}: the {kind}{ends}{_what_moves(trace, row)} is not in {lacking}"


def lone_message(trace: Trace, row: int, lacking: str) -> str:
    """Return the sentence for a message that one side lacks at both ends."""
    cells = trace.events
    own, peer = cells["rank"][row], cells["peer"][row]
    src, dst = (own, peer) if cells["kind"][row] == Kind.SEND else (peer, own)
    inside = [call_name(trace, row)]
    if cells["step"][row] is not None:
        inside.append(f"step {cells['step'][row]}")
    place = ", ".join(part for part in inside if part)
    lead = f"{place}: " if place else ""
    return (
        f"{lead}the message from rank {src} to rank {dst}{_what_moves(trace, row)} "
        f"is not in {lacking}"
    )


def _what_moves(trace: Trace, row: int) -> str:
    slot, size = trace.events["slot"][row], trace.events["size_bytes"][row]
    parts = [] if slot is None else [f"slot {slot}"]
    if size is not None:
        parts.append(f"{size} bytes")
    return f" ({', '.join(parts)})" if parts else ""


def lone_call(trace: Trace, row: int, lacking: str) -> str:
    """Return the sentence for a collective call that one side lacks."""
    ranks = _group_ranks(trace, row)
    return f"{call_name(trace, row)}{f' of ranks {ranks}' if ranks else ''} is not in {lacking}"


def lone_group(trace: Trace, row: int, lacking: str) -> str:
    """Return the sentence for a group that one side lacks."""
    ordinal = trace.meta.groups[trace.events["group"][row]].ordinal
    which = f" (number {ordinal} of these ranks)" if ordinal else ""
    ranks = _group_ranks(trace, row)
    return f"the group of ranks {ranks}{which} is not in {lacking}, with all that it did"


def _group_ranks(trace: Trace, row: int) -> str:
    group = trace.events["group"][row]
    ranks = () if group is None else trace.meta.groups[group].ranks
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")


# States


def state_name(trace: Trace, state: int, row: int) -> str:
    """Return what a state of an event is, such as "what it received from rank 1"."""
    role, when = trace.states["role"][state], trace.states["when"][state]
    index, peer = trace.states["index"][state], trace.events["peer"][row]
    if role == Role.PAYLOAD:
        sent = trace.events["kind"][row] == Kind.SEND
        return f"what it sent to rank {peer}" if sent else f"what it received from rank {peer}"
    if role == Role.SLOT:
        kind = "reduce" if trace.events["kind"][row] == Kind.REDUCE else "arrival"
        kind = "copy" if trace.events["kind"][row] == Kind.COPY else kind
        return f"slot {index} {when} the {kind}"
    number = f" {index}" if index else ""
    # An in-place call has the same tensor as input and output.
    late = f" {when} the call" if (role == Role.INPUT) == (when == When.AFTER) else ""
    return f"{role}{number}{late}"


def contributors_sentence(a: Trace, state_a: int, b: Trace, state_b: int, row_b: int) -> str:
    """Return the sentence for contributors that differ, with what that means."""
    expected, found = (t.states["contributors"][s] or [] for t, s in ((a, state_a), (b, state_b)))
    role, kind, peer = b.states["role"][state_b], b.events["kind"][row_b], b.events["peer"][row_b]
    if role == Role.PAYLOAD and kind == Kind.SEND:
        deed, link = "sent", f" to rank {peer}"
    elif role == Role.PAYLOAD:
        deed, link = "received", f" from rank {peer}"
    else:
        deed, link = f"{state_name(b, state_b, row_b)} holds", ""
    meaning = _meaning(expected, found, b.events["group_rank"][row_b])
    lead = f"{where(b, row_b)}: {deed} {_set(found)}{link}, expected {_set(expected)}"
    return f"{lead}: {meaning}" if meaning else lead


def _meaning(expected: list[int], found: list[int], own: int | None) -> str:
    due, there = Counter(expected), Counter(found)
    twice = sorted(rank for rank in there if there[rank] > max(due[rank], 1))
    extra = sorted(rank for rank in there if not due[rank])
    missing = sorted(rank for rank in due if not there[rank])
    if missing:
        return _parts(missing, own, "is missing", "are missing")
    if twice:
        return _parts(twice, own, "is in it twice", "are in it more than once")
    return _parts(extra, own, "should not be in it", "should not be in it") if extra else ""


def _parts(ranks: list[int], own: int | None, one: str, many: str) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}'s {'own ' if ranks[0] == own else ''}part {one}"
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"the parts of ranks {shown} {many}"


def _set(ranks: list[int]) -> str:
    return "{" + ",".join(map(str, ranks[:16])) + (",..." if len(ranks) > 16 else "") + "}"


def values_sentence(
    a: Trace,
    state_a: int,
    b: Trace,
    state_b: int,
    row_b: int,
    values: Values,
    tolerance: Tolerance,
) -> str:
    """Return the sentence for values that differ: how many, the first, and by how much."""
    name = f"{where(b, row_b)}: {state_name(b, state_b, row_b)} differs"
    one, two = a.values(state_a), b.values(state_b)
    if one is None or two is None or one.size == 0 or one.size != two.size:
        digests = [t.digest(s) for t, s in ((a, state_a), (b, state_b))]
        return f"{name}: digest {_digest(digests[1])}, expected {_digest(digests[0])}"
    flat_a, flat_b = one.reshape(-1), two.reshape(-1)
    differ = _differ(flat_a, flat_b, b.states["dtype"][state_b], values, tolerance)
    at = np.flatnonzero(differ)
    if not len(at):  # only the first values were kept, and they are equal
        return f"{name} beyond the first {flat_a.size}"
    k = int(at[0])
    lead = f"{name} at {len(at)} of {flat_a.size} elements, first at [{k}]"
    return f"{lead}: {number(flat_b[k])}, expected {number(flat_a[k])}{_largest(flat_a, flat_b)}"


def _differ(a: Array, b: Array, dtype: str, values: Values, tolerance: Tolerance) -> Array:
    if values is Values.CLOSE:
        return ~close(a, b, dtype, tolerance)
    same: Array = np.asarray(a == b)
    if a.dtype.kind in "fc":
        # Equal to look at, but not in their bits: zeros of two signs.
        same &= np.signbit(a.real) == np.signbit(b.real)
        same |= np.isnan(a) & np.isnan(b)
    return ~same


def _largest(a: Array, b: Array) -> str:
    if a.dtype.kind not in "f" or a.size < 2:
        return ""
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
    finite = apart[np.isfinite(apart)]
    return f", at most {number(finite.max())} apart" if finite.size else ""


def number(value: Any) -> str:
    """Return a number as a person writes it."""
    plain = value.item() if isinstance(value, np.generic) else value
    return f"{plain:.9g}" if isinstance(plain, float) else str(plain)


def _digest(digest: int | None) -> str:
    return "unknown" if digest is None else f"{digest:08x}"


def _cell(value: Any, unit: str = "") -> str:
    if value is None:
        return "not there"
    return f"{value}{unit}"
