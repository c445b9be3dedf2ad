"""Sends and recvs of the program: which belong together, and which have no other end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...units import format_bytes
from ..schema import Kind
from .finding import Code, Finding
from .run import Run, names, plural


class Pairs(NamedTuple):
    """Sends and recvs by row.

    Attributes:
        matched: (send, recv) of each message.
        crossed: Sends and recvs that miss each other: another tag or group.
        sends: Sends without a recv.
        recvs: Recvs without a send.
    """

    matched: list[tuple[int, int]]
    crossed: list[tuple[int, int]]
    sends: list[int]
    recvs: list[int]


def pair(run: Run) -> Pairs:
    """Return which sends and recvs belong together.

    The k-th send of (group, source, destination, tag) meets the k-th recv; NCCL knows no tags.
    """
    rows, events = run.messages, run.events
    is_send = events["kind"].where(Kind.SEND)[rows]
    known = events["peer"].valid[rows] & events["rank"].valid[rows]
    rank, peer = events["rank"].values[rows], events["peer"].values[rows]
    cells = [
        events["attempt"].values[rows],
        events["group"].values[rows],
        np.where(is_send, rank, peer),
        np.where(is_send, peer, rank),
        _tags(run, rows),
    ]
    count = np.where(
        events["message"].valid[rows] & ~_without_tags(run, rows),
        events["message"].values[rows],
        _ordinals([is_send, *cells]),
    )
    order = np.lexsort((~is_send, count, *reversed(cells)))
    order = order[known[order]]
    keys = np.stack([*cells, count])[:, order]
    sends = is_send[order]
    meets = (keys[:, 1:] == keys[:, :-1]).all(0) & sends[:-1] & ~sends[1:]
    at = np.flatnonzero(meets)
    first, second = rows[order[at]], rows[order[at + 1]]
    alone = np.ones(len(rows), np.bool_)
    alone[order[at]] = alone[order[at + 1]] = False
    lone_sends, lone_recvs = rows[alone & is_send].tolist(), rows[alone & ~is_send].tolist()
    crossed = _crossed(run, lone_sends, lone_recvs)
    ends = {row for both in crossed for row in both}
    return Pairs(
        list(zip(first.tolist(), second.tolist())),
        crossed,
        [row for row in lone_sends if row not in ends],
        [row for row in lone_recvs if row not in ends],
    )


def _without_tags(run: Run, rows: Any) -> Any:
    nccl = [number for number, g in enumerate(run.trace.meta.groups) if "nccl" in g.backend]
    return np.isin(run.events["group"].values[rows], nccl)


def _tags(run: Run, rows: Any) -> Any:
    return np.where(_without_tags(run, rows), 0, run.events["tag"].values[rows])


def _ordinals(cells: list[Any]) -> Any:
    """Return how many rows before each have the same cells."""
    if not len(cells[0]):
        return np.zeros(0, np.int64)
    _, kind = np.unique(np.stack(cells), axis=1, return_inverse=True)
    kind = kind.reshape(-1)
    order = np.argsort(kind, kind="stable")
    first = np.flatnonzero(np.diff(kind[order], prepend=-1))
    start = np.repeat(first, np.diff([*first, len(kind)]))
    found = np.empty(len(kind), np.int64)
    found[order] = np.arange(len(kind)) - start
    return found


def message_findings(run: Run, pairs: Pairs, circle: set[int]) -> Iterator[Finding]:
    """Yield what is wrong with point-to-point messages.

    Args:
        run: The run.
        pairs: Its messages.
        circle: Rows of ranks that wait for each other in a circle: told already.
    """
    yield from _ends_that_differ(run, pairs)
    sends = [row for row in pairs.sends if not _is_to_itself(run, row)]
    recvs = [row for row in pairs.recvs if not _is_to_itself(run, row)]
    for row in (*pairs.sends, *pairs.recvs):
        if _is_to_itself(run, row):
            yield _finding(
                run,
                Code.SELF_SEND,
                f"rank {run.cell(row, 'rank')} talks to itself: {run.what(row)}",
                ["copy the tensor instead; gloo cannot send to the own rank"],
                [row],
            )
    for send, recv in pairs.crossed:
        yield _tags_finding(run, send, recv)
    lone = [
        (Code.NOT_RECEIVED, sends, "nobody receives it", "recv"),
        (Code.NOT_SENT, recvs, "nobody sends it", "send"),
    ]
    for code, rows, words, other in lone:
        by_line: dict[tuple[Any, ...], list[int]] = {}
        for row in rows:
            if row not in circle and _is_lone(run, row, other):
                names_ = ("attempt", "group", "rank", "peer", "site")
                by_line.setdefault(tuple(run.cell(row, n) for n in names_), []).append(row)
        for same in by_line.values():
            yield _lone_finding(run, code, same, words, other)


def _is_to_itself(run: Run, row: int) -> bool:
    peer = run.cell(row, "peer")
    return peer is not None and peer == run.cell(row, "rank")


def _is_lone(run: Run, row: int, other: str) -> bool:
    """Return whether an end without the other one tells of a problem, and not of a gap."""
    peer, attempt = run.cell(row, "peer"), run.cell(row, "attempt") or 0
    if run.is_ok(row) and (
        other == "send" or (peer is not None and not run.has_file(peer, attempt))
    ):
        return False
    if run.is_ok(row) and not run.events["kind"].where(other).any():
        return False  # a recording of sends alone
    if run.cell(row, "status") == "unobserved":
        return peer is not None and run.has_file(peer, attempt)
    return not run.raised(row)


def _lone_finding(run: Run, code: Code, rows: list[int], words: str, other: str) -> Finding:
    row = rows[0]
    peer, tag = run.cell(row, "peer"), run.cell(row, "tag")
    tagged = f" with tag {tag}" if tag else ""
    many = f" ({plural(len(rows), 'time')})" if len(rows) > 1 else ""
    verb = "is in" if run.is_waiting(row) else "called"
    took = f" for {run.took(row)}" if run.is_waiting(row) else ""
    text = f"rank {run.cell(row, 'rank')} {verb} {run.what(row)}{tagged}{many}{took}, and {words}"
    look = []
    if peer is not None:
        look.append(_what_peer_did(run, row, peer, other))
    return _finding(run, code, text, look + run.errors(rows[:1]), rows)


def _what_peer_did(run: Run, row: int, peer: int, other: str) -> str:
    attempt = run.cell(row, "attempt") or 0
    if not run.has_file(peer, attempt):
        return f"rank {peer} left no recording"
    last, ending = run.last_row(peer, attempt), run.ending(peer, attempt)
    how = "" if ending is None else f"; {ending}"
    if last is None:
        return f"rank {peer} made no call at all{how}"
    verb = "is in" if run.cell(last, "t_end_ns") is None else "last called"
    return f"rank {peer} calls no {other} for it: it {verb} {run.what(last)}{how}"


def _crossed(run: Run, sends: list[int], recvs: list[int]) -> list[tuple[int, int]]:
    """Return lone sends and recvs between the same ranks, which differ in tag or group."""
    waiting: dict[tuple[Any, ...], list[int]] = {}
    for recv in recvs:
        key = (run.cell(recv, "attempt"), run.cell(recv, "peer"), run.cell(recv, "rank"))
        if key[1] != key[2] and not run.is_ok(recv):
            waiting.setdefault(key, []).append(recv)
    found = []
    for send in sends:
        key = (run.cell(send, "attempt"), run.cell(send, "rank"), run.cell(send, "peer"))
        if waiting.get(key):
            found.append((send, waiting[key].pop(0)))
    return found


def _tags_finding(run: Run, send: int, recv: int) -> Finding:
    src, dst = run.cell(send, "rank"), run.cell(recv, "rank")
    groups = run.cell(send, "group"), run.cell(recv, "group")
    if groups[0] != groups[1]:
        text = (
            f"rank {src} sends to rank {dst} in one group and rank {dst} receives in another: "
            f"{run.what(send)}{run.of_group(groups[0])}, but {run.what(recv)}"
            f"{run.of_group(groups[1])}"
        )
    else:
        text = (
            f"tags differ: rank {src} is in {run.what(send)} with tag {run.cell(send, 'tag')}, "
            f"rank {dst} is in {run.what(recv)} with tag {run.cell(recv, 'tag')}"
        )
    look = ["a send meets only a recv with the same tag (gloo; NCCL ignores tags)"]
    look += run.errors([send, recv])
    return _finding(run, Code.TAGS, text, look, [send, recv])


def _ends_that_differ(run: Run, pairs: Pairs) -> Iterator[Finding]:
    """Yield messages whose two ends have other sizes or types; the first of each pair of lines."""
    if not pairs.matched:
        return
    both = np.array(pairs.matched, np.int64)
    size, dtype = run.events["size_bytes"], run.events["dtype"]
    known = size.valid[both].all(1)
    sizes = known & (size.values[both[:, 0]] != size.values[both[:, 1]])
    dtypes = dtype.valid[both].all(1) & (dtype.values[both[:, 0]] != dtype.values[both[:, 1]])
    told: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for k in np.flatnonzero(sizes | dtypes).tolist():
        send, recv = pairs.matched[k]
        key = (run.cell(send, "site"), run.cell(recv, "site"), bool(sizes[k]))
        told.setdefault(key, []).append((send, recv))
    for (_, _, is_size), found in told.items():
        yield _differs(run, found, is_size)


def _differs(run: Run, found: list[tuple[int, int]], is_size: bool) -> Finding:
    send, recv = found[0]
    src, dst = run.cell(send, "rank"), run.cell(recv, "rank")
    text = (
        f"rank {src} sends {run.tensors(send)}{run.place(send)}, "
        f"rank {dst} receives {run.tensors(recv)}{run.place(recv)}"
    )
    sent, room = run.cell(send, "size_bytes"), run.cell(recv, "size_bytes")
    look = []
    if is_size and sent > room:
        look.append(
            f"the message is {format_bytes(sent - room)} longer than the buffer: gloo ends the "
            "receiver's process, and the sender notices nothing"
        )
        ending = run.ending(dst, run.cell(recv, "attempt") or 0)
        if ending and not run.is_ok(recv):
            look.append(f"rank {dst}: {ending}")
    elif is_size:
        look.append(
            f"the last {format_bytes(room - sent)} of the buffer keep what was there before, "
            "and no rank notices"
        )
    else:
        look.append("the bytes are taken for another type as they are, and no rank notices")
    if len(found) > 1:
        look.append(f"{plural(len(found) - 1, 'later message')} of these lines likewise")
    return _finding(run, Code.SIZES if is_size else Code.DTYPES, text, look, [send, recv])


def _finding(run: Run, code: Code, text: str, look: list[str], rows: list[int]) -> Finding:
    return Finding(
        code,
        text,
        tuple(look),
        ranks=tuple(sorted({run.cell(row, "rank") for row in rows})),
        attempt=run.cell(rows[0], "attempt") or 0,
        group=run.cell(rows[0], "group"),
        site=run.cell(rows[-1], "site"),
        rows=tuple(rows),
        t_ns=min(run.cell(row, "t_issue_ns") or 0 for row in rows),
    )


def not_waited(run: Run, pairs: Pairs) -> Iterator[Finding]:
    """Yield asynchronous calls that nobody waited for."""
    rows = np.flatnonzero(run.events["status"].where("unobserved")).tolist()
    other_end = {**dict(pairs.matched), **{recv: send for send, recv in pairs.matched}}
    found: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        key = tuple(run.cell(row, name) for name in ("attempt", "rank", "site", "kind"))
        found.setdefault(key, []).append(row)
    for same in found.values():
        suffers = next(
            (
                other_end[row]
                for row in same
                if row in other_end and run.cell(other_end[row], "status") in ("error", "begun")
            ),
            None,
        )
        row, rank = same[0], run.cell(same[0], "rank")
        many = f" ({plural(len(same), 'time')})" if len(same) > 1 else ""
        text = f"rank {rank} never waited for {run.what(row)}{many}"
        look = ["call wait() on what it returns: until then the tensor may not be touched"]
        if suffers is not None:
            ending = run.ending(rank, run.cell(row, "attempt") or 0)
            text += f", so that {names([run.cell(suffers, 'rank')])} failed in {run.what(suffers)}"
            look += run.errors([suffers])
            if ending:
                look.append(f"rank {rank}: {ending}")
        yield Finding(
            Code.NOT_WAITED,
            text,
            tuple(look),
            harmless=suffers is None,
            ranks=(rank,),
            attempt=run.cell(row, "attempt") or 0,
            group=run.cell(row, "group"),
            coll_seq=run.cell(row, "coll_seq"),
            site=run.cell(row, "site"),
            rows=(*same, *(() if suffers is None else (suffers,))),
            t_ns=run.cell(row, "t_issue_ns"),
        )
