"""Probes through collective calls: does each output hold the parts that are due in it?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..traces.check.finding import Code, Finding
from ..traces.check.run import Call, Run
from ..traces.probes import decode, value_of
from ..traces.record.probe import LAYOUTS
from ..traces.schema import Role, When
from .collectives import Collective
from .probed_words import elements, odd_value, parts, trouble

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

# Reduce ops whose result tells who contributed; the others leave no sum of probes.
_SUMS = ("SUM", "AVG")
_PICKS = ("MIN", "MAX")


@dataclass(frozen=True, slots=True)
class Probed:
    """The probes that went into a call.

    Attributes:
        inputs: Flat input of each group rank; None where it has none, or none was kept.
        labels: Rank that each input's probe was made for; None where it is no probe.
        world_size: World size that the probes were made for.
        elements: Elements of a probe.
    """

    inputs: list[Array | None]
    labels: list[int | None]
    world_size: int
    elements: int


class Due(NamedTuple):
    """What is due in an output.

    Attributes:
        origins: Group rank whose part is due in each element, (elements,); None where the
            collective reduces: all ranks' parts.
        positions: Position that is due in each element, (elements,).
    """

    origins: Ints | None
    positions: Ints


def flat_values(run: Run, row: int, when: When, role: Role) -> Array | None:
    """Return all numbers of a call's tensors, flat; None where they were not kept whole."""
    states = run.trace.states_of(row, when=when, role=role).tolist()
    found = []
    for state in states:
        data = run.trace.states["data"][state]
        values = run.trace.values(state) if data is not None else None
        if values is None or values.dtype.name not in LAYOUTS:
            return None
        found.append(np.ravel(values))
    return np.concatenate(found) if found else None


def probed(run: Run, call: Call, kind: Collective) -> Probed | None:
    """Return the probes that went into a call; None where its inputs are none."""
    ranks = run.group(call.group).ranks
    root = _root(run, call)
    inputs: list[Array | None] = []
    for place, rank in enumerate(ranks):
        row = call.rows.get(rank)
        has = row is not None and kind.has_input(place, root)
        inputs.append(
            flat_values(run, row, When.BEFORE, Role.INPUT) if has and row is not None else None
        )
    sizes = [len(values) for values in inputs if values is not None]
    if not sizes or max(sizes) == 0:
        return None
    for world_size in dict.fromkeys((run.trace.meta.world_size or len(ranks), len(ranks))):
        labels = [_label(values, world_size) for values in inputs]
        if any(label is not None for label in labels):
            return Probed(inputs, labels, world_size, max(sizes))
    return None


def _label(values: Array | None, world_size: int) -> int | None:
    """Return the rank that a probe was made for; None where the values are no probe."""
    if values is None or not len(values):
        return None
    told = decode(values, world_size, elements=len(values))
    whole = told.valid | (told.zero if told.blocks > 1 else False)
    there = np.flatnonzero(told.valid)
    if not whole.all() or not len(there) or (told.positions[there] != there).any():
        return None
    counts = told.counts[there]
    labels = np.flatnonzero(counts.any(0))
    return int(labels[0]) if len(labels) == 1 and counts.max() == 1 else None


def _root(run: Run, call: Call) -> int | None:
    root: int | None = run.cell(next(iter(call.rows.values())), "root")
    return root


def call_findings(run: Run, call: Call, kind: Collective, given: Probed) -> Iterator[Finding]:
    """Yield what is wrong with the outputs of a call whose inputs are probes."""
    ranks = run.group(call.group).ranks
    root = _root(run, call)
    for place, rank in enumerate(ranks):
        if given.inputs[place] is not None and given.labels[place] is None:
            yield _no_probe(run, call, rank, call.rows[rank], given.inputs[place], given)
            return  # every output is wrong because of it
    for place, rank in enumerate(ranks):
        row = call.rows.get(rank)
        if row is None or not run.is_ok(row):
            continue
        if not kind.has_output(place, root):
            continue
        values = flat_values(run, row, When.AFTER, Role.OUTPUT)
        if values is None:
            continue
        due = due_in(run, call, kind, given, place, len(values))
        if due is not None:
            yield from _output_findings(run, call, rank, row, values, due, given)


def due_in(
    run: Run, call: Call, kind: Collective, given: Probed, place: int, length: int
) -> Due | None:
    """Return what is due in the output of a rank; None where its sizes do not tell.

    Blocks are equal, or follow from the sizes of the tensors in the lists, or from the splits.
    """
    ranks = run.group(call.group).ranks
    n, root = len(ranks), _root(run, call)
    sizes = [None if values is None else len(values) for values in given.inputs]
    if kind.name == "all_to_all":
        cuts = [_cuts(run, call, rank, n, size) for rank, size in zip(ranks, sizes)]
        if any(cut is None for cut in cuts):
            return None
        blocks = [(q, cut[place], cut[place + 1]) for q, cut in enumerate(cuts) if cut is not None]
        return _joined(blocks, length)
    if kind.name == "reduce_scatter":
        cut = _cuts(run, call, ranks[place], n, sizes[place])
        if cut is None or cut[place + 1] - cut[place] != length:
            return None
        return Due(None, np.arange(cut[place], cut[place + 1]))
    if kind.name == "scatter":
        cut = None if root is None else _cuts(run, call, ranks[root], n, sizes[root])
        if cut is None or root is None:
            return None
        return _joined([(root, cut[place], cut[place + 1])], length)
    if kind.name in ("all_gather", "gather"):
        if any(size is None for size in sizes):
            return None
        return _joined([(q, 0, size) for q, size in enumerate(sizes) if size is not None], length)
    if kind.name == "broadcast":
        return None if root is None else _joined([(root, 0, length)], length)
    return Due(None, np.arange(length))


def _joined(blocks: list[tuple[int, int, int]], length: int) -> Due | None:
    """Return blocks of (group rank, first position, end) one after the other."""
    if sum(end - start for _, start, end in blocks) != length:
        return None
    origins = np.concatenate([np.full(end - start, q) for q, start, end in blocks])
    return Due(origins, np.concatenate([np.arange(start, end) for _, start, end in blocks]))


def _cuts(run: Run, call: Call, rank: int, n: int, size: int | None) -> list[int] | None:
    """Return where a rank's input is cut into one block a rank: n + 1 positions."""
    row = call.rows.get(rank)
    if row is None or size is None:
        return None
    splits = run.cell(row, "splits")
    states = run.trace.states_of(row, when=When.BEFORE, role=Role.INPUT).tolist()
    sizes: list[int]
    if len(states) == n and n > 1:
        sizes = [int(np.prod(run.trace.states["shape"][state] or [])) for state in states]
    elif splits is not None and len(splits) == 2 * n:
        sizes = list(splits[:n])
    elif size % n == 0:
        sizes = [size // n] * n
    else:
        return None
    ends: list[int] = np.cumsum(sizes).tolist()
    return [0, *ends]


def _output_findings(
    run: Run, call: Call, rank: int, row: int, values: Array, due: Due, given: Probed
) -> Iterator[Finding]:
    """Yield one finding for each kind of trouble in an output, the first elements first."""
    op = run.cell(row, "reduce_op")
    labels = [label for label in given.labels if label is not None]
    counts = np.zeros((len(values), given.world_size), np.uint8)
    if due.origins is None:
        if op in _PICKS:
            yield from _pick_findings(run, call, rank, row, values, due, given)
            return
        if op not in (*_SUMS, None):
            return
        counts[:, labels] = 1
    else:
        for place, label in enumerate(given.labels):
            if label is not None:
                counts[due.origins == place, label] = 1
    if op == "AVG":
        values = np.round(values * len(labels))
    wrong = np.flatnonzero(value_of(counts, due.positions, values.dtype.name) != values)
    told = decode(values, given.world_size, elements=given.elements)
    found: dict[tuple[Any, ...], list[int]] = {}
    for at in wrong.tolist():
        found.setdefault(_diagnosis(told, values, at, due, counts), []).append(at)
    for (code, text), where in found.items():
        yield _finding(run, call, rank, row, code, f"{elements(where)} {text}")


def _diagnosis(told: Any, values: Array, at: int, due: Due, counts: Array) -> tuple[Code, str]:
    held = told.parts(at)
    wanted = np.flatnonzero(counts[at]).tolist()
    if held is None or (not held and told.zero[at]):
        code = Code.NO_PROBE if held is None else Code.MISSING
        return code, f"({odd_value(told, values, at)})"
    position = told.position(at)
    if position is not None and position != int(due.positions[at]):
        shift = position - int(due.positions[at])
        return Code.MISPLACED, f"hold what belongs {abs(shift)} elements {_way(shift)}"
    wrong = trouble(held, wanted)
    if wrong is None:  # equal as sets: what differs lies beyond what is told
        return Code.NO_PROBE, "hold another value than is due"
    return wrong[0], f"hold {parts(held)}, expected {parts(wanted)}: {wrong[1]}"


def _way(shift: int) -> str:
    return "further on" if shift > 0 else "further back"


def _pick_findings(
    run: Run, call: Call, rank: int, row: int, values: Array, due: Due, given: Probed
) -> Iterator[Finding]:
    """Yield what is wrong after MIN or MAX: each element is one rank's part."""
    there = [given.inputs[place] for place, label in enumerate(given.labels) if label is not None]
    stacked = np.stack([each[due.positions] for each in there if each is not None])
    best = stacked.min(0) if run.cell(row, "reduce_op") == "MIN" else stacked.max(0)
    wrong = np.flatnonzero(best != values)
    if len(wrong):
        told = decode(values, given.world_size, elements=given.elements)
        held = told.parts(int(wrong[0]))
        text = "no rank's part" if held is None else parts(held)
        wanted = decode(best, given.world_size, elements=given.elements).parts(int(wrong[0]))
        yield _finding(
            run,
            call,
            rank,
            row,
            Code.EXTRA,
            f"{elements(wrong)} hold {text}, expected {parts(wanted or [])}",
        )


def _no_probe(
    run: Run, call: Call, rank: int, row: int, values: Array | None, given: Probed
) -> Finding:
    assert values is not None
    told = decode(values, given.world_size, elements=given.elements)
    bad = np.flatnonzero(~told.valid)
    at = int(bad[0]) if len(bad) else 0
    return _finding(
        run,
        call,
        rank,
        row,
        Code.NO_PROBE,
        f"its input is no probe, as others' are: element {at} {odd_value(told, values, at)}",
    )


def _finding(run: Run, call: Call, rank: int, row: int, code: Code, text: str) -> Finding:
    return Finding(
        code,
        f"rank {rank}, {run.call_name(call)}{run.place(row)}: {text}",
        ranks=(rank,),
        attempt=call.attempt,
        group=call.group,
        coll_seq=call.coll_seq,
        site=run.cell(row, "site"),
        rows=(row,),
        t_ns=run.cell(row, "t_issue_ns"),
    )
