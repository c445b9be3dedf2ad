"""What gloo's schedules say that a recording should hold: its calls, and the messages they take.

The calls and their inputs are those that were recorded; messages, what they carry and the outputs
are computed. A message of the program's own is one send of what it sent.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ScheduleError
from ...traces.diff import diff
from ...traces.diff.report import TraceDiff
from ...traces.schema import (
    DTYPES,
    EVENTS,
    FIRST_VALUES,
    FULL_BYTES,
    STATES,
    Kind,
    Provenance,
    Role,
    Status,
    When,
)
from ...traces.trace import Call, Trace, decode, encode
from ..values import OPS, Values, compute
from .annotate import annotate
from .matching import Matched, called_messages, match
from .plans import WirePlan
from .tags import Joined

Array = npt.NDArray[Any]
# Each rank's input, in its flat order; None where it has none. None for a call: not known.
Inputs = Callable[[Call], Sequence[Array | None] | None]

FILE = "plan"
# What is said of a message.
_COLUMNS = (
    *("file", "seq", "parent", "attempt", "place", "rank", "group", "group_rank", "coll_seq"),
    *("kind", "provenance", "collective", "algorithm", "tag", "step", "channel", "peer"),
    *("peer_group_rank", "message", "part", "reduces", "slot", "n_slots", "offset_bytes"),
    *("size_bytes", "dtype", "status"),
)


def compare(trace: Trace, inputs: Inputs | None = None, **options: Any) -> TraceDiff:
    """Compare what went over the wire with what gloo's schedules say, payloads included.

    Args:
        trace: A recording with wire messages, annotated or not.
        inputs: See `expected`.
        options: As `chunkscope.diff` takes them.

    Returns:
        What differs; A is the plan, B the wire.
    """
    seen = annotate(trace)
    return diff(expected(seen, inputs), seen, **options)


def expected(trace: Trace, inputs: Inputs | None = None) -> Trace:
    """Return what gloo's schedules say that a recording should hold.

    Args:
        trace: A recording with wire messages, annotated or not.
        inputs: Gives the inputs of a call (as `Trace.calls` lists them), flat and in their dtype,
            where the recording did not keep all their bytes. Where neither tells, messages have
            sizes alone.

    Returns:
        The recorded calls of groups whose messages were seen, their outputs computed, and a send
        and a recv of provenance simulated for each message that they take.
    """
    trace = annotate(trace)
    matched = match(trace)
    maker = _Maker(trace)
    for joined in matched.calls:
        if joined.plan is not None:
            maker.call(joined, joined.plan, inputs)
    maker.own_messages(matched)
    return maker.trace()


@dataclass(frozen=True, slots=True)
class _Payload:
    """What a state keeps of a tensor."""

    dtype: str
    elements: int
    data: bytes | None = None

    def cells(self, event: int, when: When) -> dict[str, Any]:
        found: dict[str, Any] = {
            "event": event,
            "when": when.value,
            "role": Role.PAYLOAD.value,
            "index": 0,
            "dtype": self.dtype,
            "shape": [self.elements],
        }
        if self.data is None:
            return found
        if len(self.data) <= FULL_BYTES:
            return {**found, "data": self.data}
        first = self.data[: FIRST_VALUES * DTYPES[self.dtype]]
        digest = zlib.crc32(self.data)
        return {**found, "digest": digest, "digest_of": "all", "first": first}


class _Maker:
    """Puts the expected rows together, column by column."""

    def __init__(self, recorded: Trace) -> None:
        self.recorded = recorded
        self.rows: list[int] = []  # rows of the recording that are taken over
        self.outputs: dict[int, Array] = {}  # computed output of a row, flat
        self.cells: dict[str, list[Any]] = defaultdict(list)
        self.states: list[dict[str, Any]] = []
        self.n = 0

    def call(self, joined: Joined, plan: WirePlan, inputs: Inputs | None) -> None:
        """Add a call and the messages that it takes."""
        call = joined.call
        rows = call.rows
        parents = {place: len(self.rows) + k for k, place in enumerate(rows)}
        self.rows += rows.values()
        values = self._values(joined, plan, inputs)
        if values is not None:
            for place, row in rows.items():
                output = values.outputs[place]
                if output is not None:
                    self.outputs[row] = output
        bound, schedule = plan.bound, plan.bound.schedule
        ranks = self.recorded.meta.groups[call.stream[1]].ranks
        common = {
            "attempt": call.stream[0],
            "group": call.stream[1],
            "coll_seq": call.coll_seq,
            "collective": call.asked.collective,
            "algorithm": schedule.algorithm,
            "dtype": bound.dtype,
        }
        sizes, elements = bound.row_bytes.tolist(), bound.row_elements.tolist()
        ordinal, part = (c.tolist() for c in (schedule.messages.ordinal, schedule.messages.part))
        offsets = [offset.tolist() for offset in plan.offset_bytes]
        for row, move in enumerate(schedule.transfers):
            if move.src == move.dst:
                continue
            data = None if values is None else encode(values.payload[row], bound.dtype)
            payload = _Payload(bound.dtype, elements[row], data)
            about = {
                **common,
                "step": move.step,
                "channel": move.channel,
                "message": ordinal[row],
                "part": part[row],
                "reduces": move.reduce,
                "n_slots": move.n_slots,
                "size_bytes": sizes[row],
            }
            slots = (move.src_slot, move.dst_slot)
            for end, kind in enumerate((Kind.SEND, Kind.RECV)):
                offset = offsets[end][row]
                about |= {
                    "slot": slots[end],
                    "offset_bytes": None if offset < 0 else offset,
                    "parent": parents.get((move.src, move.dst)[end]),
                }
                self._end(kind, move.src, move.dst, ranks, about, payload)

    def _end(
        self,
        kind: Kind,
        src: int,
        dst: int,
        ranks: tuple[int, ...],
        about: dict[str, Any],
        payload: _Payload,
    ) -> None:
        """Add one end of a message."""
        own, peer = (src, dst) if kind is Kind.SEND else (dst, src)
        cells = {
            **about,
            "file": FILE,
            "seq": self.n,
            "kind": kind.value,
            "provenance": Provenance.SIMULATED.value,
            "status": Status.OK.value,
            "place": own,
            "group_rank": own,
            "rank": ranks[own],
            "peer": ranks[peer],
            "peer_group_rank": peer,
        }
        for name in _COLUMNS:
            self.cells[name].append(cells.get(name))
        when = When.BEFORE if kind is Kind.SEND else When.AFTER
        self.states.append(payload.cells(self.n, when))
        self.n += 1

    def own_messages(self, matched: Matched) -> None:
        """Add the program's own messages: what was sent arrives."""
        get = self.recorded.events
        groups = set(np.unique(matched.messages.group).tolist())
        for key, row in sorted(called_messages(self.recorded).items()):
            attempt, group, tag, src, dst, message, is_recv = key
            if is_recv or group not in groups:
                continue
            payload = self._sent(row)
            about = {
                "attempt": attempt,
                "group": group,
                "tag": tag,
                "message": message,
                "dtype": get["dtype"][row],
                "size_bytes": get["size_bytes"][row],
            }
            ranks = self.recorded.meta.groups[group].ranks
            for kind in (Kind.SEND, Kind.RECV):
                self._end(kind, src, dst, ranks, about, payload)

    def _sent(self, row: int) -> _Payload:
        get = self.recorded.states
        dtype = self.recorded.events["dtype"][row] or "uint8"
        size = self.recorded.events["size_bytes"][row] or 0
        states = self.recorded.states_of(row, role=Role.PAYLOAD.value, when=When.BEFORE.value)
        data = get["data"][int(states[0])] if len(states) else None
        return _Payload(dtype, size // DTYPES.get(dtype, 1), data)

    def _values(self, joined: Joined, plan: WirePlan, inputs: Inputs | None) -> Values | None:
        """Return what a plan moves; None where the inputs are not known."""
        asked, schedule = joined.call.asked, plan.bound.schedule
        op = asked.reduce_op or "SUM"
        if op not in OPS or asked.collective == "barrier":
            return None
        given = None
        if inputs is not None:
            attempt, group = joined.call.stream
            found = inputs(Call(group, joined.call.coll_seq, asked.collective, attempt))
            if found is not None:
                given = [None if one is None else _as(one, asked.dtype, plan) for one in found]
        if given is None:
            given = [
                self._given(joined.call.rows.get(place), plan)
                if schedule.kind.has_input(place, schedule.root)
                else None
                for place in range(schedule.group_size)
            ]
            if any(
                one is None and schedule.kind.has_input(place, schedule.root)
                for place, one in enumerate(given)
            ):
                return None
        try:
            return compute(plan.bound, given, op)
        except ScheduleError:
            return None

    def _given(self, row: int | None, plan: WirePlan) -> Array | None:
        """Return a rank's recorded input in the plan's dtype, None where it was not kept whole."""
        if row is None:
            return None
        data = self.recorded.states["data"]
        states = self.recorded.states_of(row, role=Role.INPUT.value, when=When.BEFORE.value)
        parts = [data[int(state)] for state in states]
        if not parts or any(part is None for part in parts):
            return None
        return decode(b"".join(parts), plan.bound.dtype)

    def trace(self) -> Trace:
        """Return the trace."""
        recorded = self.recorded
        rows = np.array(self.rows, np.int64)
        kept = recorded.events.take(rows)
        events: dict[str, list[Any]] = {}
        for spec in EVENTS:
            cells = kept[spec.name].to_list() if spec.name != "parent" else [None] * len(rows)
            events[spec.name] = cells + self.cells.get(spec.name, [None] * self.n)
        states: dict[str, list[Any]] = {spec.name: [] for spec in STATES}
        for position, row in enumerate(self.rows):
            for one in self._of_call(row):
                for spec in STATES:
                    states[spec.name].append(position if spec.name == "event" else one[spec.name])
        for one in self.states:
            one["event"] += len(rows)
        for spec in STATES:
            states[spec.name] += [one.get(spec.name) for one in self.states]
        return Trace.build(
            events, states, replace(recorded.meta, processes=(), clocks=(), notes=())
        )

    def _of_call(self, row: int) -> list[dict[str, Any]]:
        """Return the states of a call, its outputs computed where they are known."""
        get = self.recorded.states
        states = [int(state) for state in self.recorded.states_of(row)]
        cells = [{spec.name: get[spec.name][state] for spec in STATES} for state in states]
        outputs = [one for one in cells if one["role"] == Role.OUTPUT and one["when"] == When.AFTER]
        computed = self.outputs.get(row)
        if computed is None or any(one["data"] is None for one in outputs):
            return cells
        raw = encode(computed, _dtype_of(computed, outputs))
        if sum(len(one["data"]) for one in outputs) == len(raw):
            at = 0
            for one in outputs:
                size = len(one["data"])
                one["data"] = raw[at : at + size]
                at += size
        return cells


def _dtype_of(computed: Array, outputs: list[dict[str, Any]]) -> str:
    """Return the dtype in which to write a computed output: that of the tensors, or its parts."""
    dtype = outputs[0]["dtype"] if outputs else None
    if dtype == "bfloat16" and computed.dtype == np.float32:
        return "bfloat16"
    return str(computed.dtype)


def _as(values: Array, dtype: str | None, plan: WirePlan) -> Array:
    """Return a rank's input as the plan moves it."""
    raw = encode(np.asarray(values).reshape(-1), dtype or plan.bound.dtype)
    return decode(raw, plan.bound.dtype)
