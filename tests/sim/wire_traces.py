"""Recordings with wire messages, made up: what a tap of a job would have seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from chunkscope.sim.values import compute
from chunkscope.sim.wire.plans import Asked, WirePlan, plans_of
from chunkscope.traces.trace import Group, Meta, Trace, encode

# Changes the rows of a tap before they become a trace.
Change = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def asked(collective: str, n: int, count: int, **more: Any) -> Asked:
    """A call on float32 vectors of so many elements, as nccl-tests counts them."""
    base = Asked(collective, collective, n, None, 4 * count, "float32", None, None, None)
    return base._replace(**more)


@dataclass
class Job:
    """A made-up recording: calls are added, then `trace` puts it together."""

    n: int
    ranks: tuple[int, ...] = ()
    group: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    wire: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    tag: int = 0
    calls: int = 0
    now: int = 1000

    def call(self, what: Asked, *, known: Sequence[int] | None = None, seen: bool = True) -> None:
        """Add a call and what it sends.

        Args:
            what: The call.
            known: Ranks whose recording there is; all by default.
            seen: Whether the recorder knew of it.
        """
        plan = plans_of(what)[0]
        bound, kind = plan.bound, plan.bound.schedule.kind
        given = [
            (np.arange(bound.input_elements(rank)) % 50 + 10 * rank)
            if kind.has_input(rank, what.root)
            else None
            for rank in range(self.n)
        ]
        values = compute(bound, given, what.reduce_op or "SUM")
        self.now += 1000
        for rank in range(self.n) if known is None else known:
            if seen:
                self._called(what, plan, rank, values.inputs[rank], values.outputs[rank])
        for lane, one in enumerate(plan.lanes):
            for row in one.row.tolist():
                raw = encode(values.payload[row], bound.dtype)
                move = bound.schedule.transfers[row]
                tag = self.tag + lane
                slot = plan.kind << 56 | tag << 24 if plan.kind else tag
                self.message(move.src, move.dst, slot, raw)
        self.tag += plan.n_tags
        self.calls += seen

    def _called(self, what: Asked, plan: WirePlan, rank: int, given: Any, got: Any) -> None:
        event = self._row(
            f"host-{rank}",
            kind="collective",
            provenance="called",
            rank=self._ranks()[rank],
            group_rank=rank,
            coll_seq=self.calls,
            collective=what.collective,
            api=what.api,
            root=what.root,
            reduce_op=what.reduce_op,
            dtype=what.dtype,
            size_bytes=what.size_bytes,
            splits=_splits(what, rank),
            t_end_ns=self.now + 900,
        )
        for when, role, values in (("before", "input", given), ("after", "output", got)):
            if values is None or what.collective == "barrier":
                continue
            parts = what.n_inputs or 1 if role == "input" else 1
            for index, part in enumerate(np.split(values, parts)):
                raw = encode(part, plan.bound.dtype)
                self.states.append(
                    {"event": event, "when": when, "role": role, "index": index,
                     "dtype": what.dtype, "shape": [len(raw) // 4], "data": raw}
                )  # fmt: skip

    def message(self, src: int, dst: int, slot: int, raw: bytes) -> None:
        """Add a message as a tap sees it."""
        self.now += 1
        self.wire.append({"src": src, "dst": dst, "slot": slot, "raw": raw, "t": self.now})

    def own(self, src: int, dst: int, tag: int, values: Sequence[float]) -> None:
        """Add a send and a recv of the program's own."""
        raw = np.array(values, np.float32).tobytes()
        for kind, own, peer in (("send", src, dst), ("recv", dst, src)):
            event = self._row(
                f"host-{own}",
                kind=kind,
                provenance="called",
                rank=self._ranks()[own],
                group_rank=own,
                peer=self._ranks()[peer],
                peer_group_rank=peer,
                tag=tag,
                dtype="float32",
                size_bytes=len(raw),
            )
            when = "before" if kind == "send" else "after"
            self.states.append(
                {"event": event, "when": when, "role": "payload", "index": 0, "dtype": "float32",
                 "shape": [len(values)], "data": raw}
            )  # fmt: skip
        self.message(src, dst, tag, raw)

    def _ranks(self) -> tuple[int, ...]:
        return self.ranks or tuple(range(self.n))

    def _row(self, file: str, **cells: Any) -> int:
        self.numbers[file] += 1
        cells.setdefault("t_issue_ns", self.now)
        self.rows.append(
            {"file": file, "seq": self.numbers[file], "group": self.group, "status": "ok", **cells}
        )
        return len(self.rows) - 1

    def trace(self, change: Change | None = None) -> Trace:
        """Return the recording; `change` may lose, alter or add messages."""
        made = replace(self, rows=list(self.rows), states=list(self.states))
        made.numbers = defaultdict(int, self.numbers)
        for k, one in enumerate(change(list(self.wire)) if change else self.wire):
            made._tapped(k, one)
        names = sorted({name for row in made.rows for name in row})
        events = {name: [row.get(name) for row in made.rows] for name in names}
        keys = ("event", "when", "role", "index", "dtype", "shape", "data")
        states = {name: [state[name] for state in made.states] for name in keys}
        groups = (Group(self._ranks(), backend="gloo"),)
        return Trace.build(events, states, Meta(world_size=self.n, groups=groups))

    def _tapped(self, k: int, one: dict[str, Any]) -> None:
        ranks = self._ranks()
        for end, kind, own, peer in (
            (0, "send", one["src"], one["dst"]),
            (1, "recv", one["dst"], one["src"]),
        ):
            self.rows.append(
                {"file": "wire", "seq": 2 * k + end, "group": self.group, "kind": kind,
                 "provenance": "wire", "rank": ranks[own], "group_rank": own, "place": own,
                 "peer": ranks[peer], "peer_group_rank": peer, "tag": one["slot"],
                 "size_bytes": len(one["raw"]), "t_issue_ns": one["t"], "t_start_ns": one["t"],
                 "t_end_ns": one["t"], "status": "ok"}
            )  # fmt: skip
            self.states.append(
                {"event": len(self.rows) - 1, "when": "after" if end else "before",
                 "role": "payload", "index": 0, "dtype": "uint8", "shape": [len(one["raw"])],
                 "data": one["raw"]}
            )  # fmt: skip


def _splits(what: Asked, rank: int) -> list[int] | None:
    if what.splits is None:
        return None
    return [*what.splits[rank], *(row[rank] for row in what.splits)]
