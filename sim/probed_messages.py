"""Probes through messages: a collective of the program's own, and the inside of recorded ones.

Every payload tells whose parts it carries; the first wrong one is found here. What is due at the
end is looked at in `probed_end`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..traces.check.finding import Code, Finding
from ..traces.check.run import Run
from ..traces.probes import Decoded, decode
from ..traces.record.probe import LAYOUTS
from ..traces.schema import Kind, Role, When
from .collectives import Collective
from .probed_words import elements, parts, trouble

Array = npt.NDArray[Any]

# Elements of one probe that are followed: the tables have (ranks, elements, ranks) counts.
MOST_ELEMENTS = 1 << 20


@dataclass(frozen=True, slots=True)
class Payload:
    """What one end of a message carries.

    Attributes:
        row: Row of the send or recv.
        state: State of the payload.
        is_send: Whether it is the sender's end.
        rank: Rank at this end, in the group.
        peer: Rank at the other end, in the group.
        t_ns: When it held: a send at its issue, a recv at its end.
        values: The numbers, flat.
    """

    row: int
    state: int
    is_send: bool
    rank: int
    peer: int
    t_ns: int
    values: Array


def payloads(run: Run, rows: Any, dtype: str | None = None) -> list[Payload]:
    """Return what sends and recvs carry, in order of time, where all of it was kept.

    Args:
        run: The run.
        rows: Rows of sends and recvs.
        dtype: Type of raw bytes, as the wire has them.
    """
    found = []
    for row in np.asarray(rows).tolist():
        is_send = run.cell(row, "kind") == Kind.SEND
        when = When.BEFORE if is_send else When.AFTER
        states = run.trace.states_of(row, when=when, role=Role.PAYLOAD).tolist()
        rank, peer = run.cell(row, "group_rank"), run.cell(row, "peer_group_rank")
        moment = run.cell(row, "t_issue_ns" if is_send else "t_end_ns")
        if len(states) != 1 or rank is None or peer is None or moment is None:
            continue
        values = _numbers(run, states[0], dtype)
        if values is not None and len(values):
            found.append(Payload(row, states[0], is_send, rank, peer, moment, values))
    return sorted(found, key=lambda payload: (payload.t_ns, not payload.is_send, payload.row))


def _numbers(run: Run, state: int, dtype: str | None) -> Array | None:
    states = run.trace.states
    data = states["data"][state]
    if data is None:
        return None
    own = states["dtype"][state]
    name = dtype if own in (None, "uint8") else own
    if name not in LAYOUTS or len(data) % np.dtype(name).itemsize:
        return None
    return np.frombuffer(data, np.dtype(name).newbyteorder("<")).astype(name)


@dataclass(slots=True)
class Messages:
    """The messages of one collective, read as probes.

    Attributes:
        run: The run.
        kind: The collective.
        attempt: Restart of the job.
        group: Its group, an index into the trace's groups.
        world_size: World size that the probes were made for.
        payloads: What the messages carry, in order of time.
        told: What that tells, for each of them.
        n_elements: Elements of a probe.
        labels: Rank that each group rank's probe was made for.
    """

    run: Run
    kind: Collective
    attempt: int
    group: int
    world_size: int
    payloads: list[Payload]
    told: list[Decoded] = field(default_factory=list)
    n_elements: int = 0
    labels: list[int] = field(default_factory=list)

    @staticmethod
    def read(
        run: Run, kind: Collective, attempt: int, group: int, found: list[Payload]
    ) -> Messages | None:
        """Return the messages read as probes; None where they carry none."""
        if not found:
            return None
        ranks = run.group(group).ranks
        # Every element travels, but for those that a root of a scatter keeps for itself.
        bound = min(MOST_ELEMENTS, 2 * max(len(p.values) for p in found) * len(found))
        world = run.trace.meta.world_size or len(ranks)
        read = Messages(run, kind, attempt, group, world, found)
        read.told = [decode(p.values, world, elements=bound) for p in found]
        valid = [told for told in read.told if told.valid.any()]
        if not valid:
            return None
        read.n_elements = max(int(told.positions[told.valid].max()) for told in valid) + 1
        sizes = {len(payload.values) for payload in found}
        if kind.receives != "whole" and len(sizes) == 1:
            # Messages are blocks: one that never went anywhere counts as well.
            read.n_elements = max(read.n_elements, sizes.pop() * len(ranks))
        seen = {int(k) for told in valid for k in np.flatnonzero(told.counts.any(0))}
        is_global = seen <= set(ranks) and not seen <= set(range(len(ranks)))
        read.labels = list(ranks) if is_global else list(range(len(ranks)))
        return read

    def name(self, payload: Payload) -> str:
        """Return "message 2 from rank 1 to rank 2 (a.py:34)": where it was sent, if known."""
        run, ranks = self.run, self.run.group(self.group).ranks
        src, dst = payload.rank, payload.peer
        if not payload.is_send:
            src, dst = dst, src
        number, step = run.cell(payload.row, "message"), run.cell(payload.row, "step")
        which = "" if number is None else f" {number}"
        inside = "" if step is None else f", step {step}"
        verb = "sent" if payload.is_send else "received"
        place = run.place(payload.row).removeprefix(" at ")
        said = f" ({verb} at {place})" if place else ""
        return f"message{which} from rank {ranks[src]} to rank {ranks[dst]}{inside}{said}"


def wrong_messages(messages: Messages) -> Iterator[Finding]:
    """Yield the first message that carries what it must not: garbage, or a part twice.

    What comes after it carries the same on, and is counted only. A sender's end is told, or the
    receiver's where only that is wrong.
    """
    found = []
    for payload, told in zip(messages.payloads, messages.told):
        problem = _problem(messages, payload, told)
        if problem is not None:
            found.append((payload, told, problem))
    if not found:
        return
    payload, told, (code, at, text) = found[0]
    look = _history(messages, payload, told, at)
    later = len({(p.row) for p, _, _ in found[1:]})
    if later:
        look.append(f"{later} later sends and recvs carry something wrong as well")
    yield message_finding(messages, payload, code, text, look)


def _problem(
    messages: Messages, payload: Payload, told: Decoded
) -> tuple[Code, list[int], str] | None:
    """Return what is wrong with a payload: the code, positions (or places in it), and words."""
    odd = ~told.valid & ~(told.zero if told.blocks > 1 else False)
    if odd.any():
        at = np.flatnonzero(odd).tolist()
        value = payload.values[at[0]]
        zero = bool(told.zero[at].all())
        where = f"at {elements(at)} of the message"
        if zero:
            return Code.MISSING, at, f"carries 0, nobody's part, {where}"
        return Code.NO_PROBE, at, f"carries no sum of probes of one element {where} ({value} there)"
    sums = messages.kind.reduces
    most = told.counts.max(1, initial=0)
    twice = np.flatnonzero(most > 1)
    if len(twice):
        held = told.parts(int(twice[0])) or []
        same = [k for k in twice.tolist() if told.parts(k) == held]
        wrong = trouble(held, sorted(set(held)))
        assert wrong is not None
        at = told.positions[same].tolist()
        return Code.TWICE, at, f"carries {parts(held)} in {elements(at)}: {wrong[1]}"
    added = np.flatnonzero(told.counts.sum(1) > 1)
    if not sums and len(added):
        held = told.parts(int(added[0])) or []
        at = told.positions[added].tolist()
        text = f"carries {parts(held)} in {elements(at)}: parts were added"
        return Code.EXTRA, at, f"{text}, which {messages.kind.name} only moves"
    return None


def _history(messages: Messages, payload: Payload, told: Decoded, at: list[int]) -> list[str]:
    """Return what the sender had of these elements before: the last few messages."""
    position = at[0]
    lines: list[str] = []
    for before, its in zip(messages.payloads, messages.told):
        if before is payload:
            break
        if before.rank != payload.rank:
            continue
        where = np.flatnonzero(its.valid & (its.positions == position))
        if len(where):
            held = parts(its.parts(int(where[0])) or [])
            verb = "sent" if before.is_send else "received"
            lines.append(f"before, it {verb} {held} in {messages.name(before)}")
    label = messages.labels[payload.rank]
    own = f"rank {messages.run.group(messages.group).ranks[payload.rank]} began with {{{label}}}"
    return [own, *lines[-3:]] if messages.kind.reduces else lines[-3:]


def message_finding(
    messages: Messages, payload: Payload, code: Code, text: str, look: list[str]
) -> Finding:
    run = messages.run
    return Finding(
        code,
        f"{messages.name(payload)}: {text}",
        tuple(look),
        ranks=(run.group(messages.group).ranks[payload.rank],),
        attempt=messages.attempt,
        group=messages.group,
        coll_seq=run.cell(payload.row, "coll_seq"),
        site=run.cell(payload.row, "site"),
        rows=(payload.row,),
        t_ns=payload.t_ns,
    )


def misplaced(messages: Messages) -> Iterator[Finding]:
    """Yield the first recv into the place of other elements than it brings.

    What a rank sends from a tensor tells where its elements lie in memory; what it receives into
    the same memory must fit to that.
    """
    if not messages.kind.reduces:
        return
    begins: dict[tuple[Any, ...], int] = {}
    for payload, told in zip(messages.payloads, messages.told):
        shift = _shift(messages, payload, told)
        if shift is None:
            continue
        key = (messages.run.cell(payload.row, "file"), _storage(messages, payload))
        if payload.is_send:
            begins.setdefault(key, shift)
        elif key in begins and begins[key] != shift:
            wrong = shift - begins[key]
            at = told.positions[told.valid]
            text = f"{elements(at)} are received into the place of {elements(at + wrong)}"
            yield message_finding(messages, payload, Code.MISPLACED, text, [])
            return


def _storage(messages: Messages, payload: Payload) -> int | None:
    storage: int | None = messages.run.trace.states["storage"][payload.state]
    return storage


def _shift(messages: Messages, payload: Payload, told: Decoded) -> int | None:
    """Return where element 0 lies in the memory of a payload, if that is contiguous."""
    states = messages.run.trace.states
    offset = states["offset"][payload.state]
    contiguous = states["strides"][payload.state] is None
    if offset is None or not contiguous or not told.valid.all() or not len(told):
        return None
    shifts = offset + np.arange(len(told)) - told.positions
    return int(shifts[0]) if (shifts == shifts[0]).all() else None
