"""Algorithms against their formulas and conventions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from chunkscope.errors import ScheduleError
from chunkscope.sim.flow import flow
from chunkscope.sim.library import algorithms, build, phases
from chunkscope.sim.schedule import Schedule

SIZES = range(1, 18)
RINGS = ("ring", "gloo", "ring_tutorial")


def messages(schedule: Schedule) -> int:
    return len(schedule.messages.first_row)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", RINGS)
def test_ring_all_reduce(name: str, n: int) -> None:
    segments = 3 if name == "gloo" else 1
    parameters = {"segments": 3} if name == "gloo" else {}
    schedule = build("all_reduce", name, n, **parameters)
    assert schedule.n_steps == 2 * (n - 1) * segments
    assert messages(schedule) == len(schedule) == 2 * n * (n - 1) * segments
    direction = -1 if name == "gloo" else 1
    assert ((schedule.src + direction) % n == schedule.dst).all()


@pytest.mark.parametrize("n", SIZES)
def test_half_rings(n: int) -> None:
    for collective in ("reduce_scatter", "all_gather"):
        schedule = build(collective, "ring", n)
        assert schedule.n_steps == n - 1
        assert len(schedule) == n * (n - 1)
        assert schedule.reduce.all() if collective == "reduce_scatter" else True


@pytest.mark.parametrize("n", SIZES)
def test_trees(n: int) -> None:
    depth = math.ceil(math.log2(n))
    for root in {0, n // 2, n - 1}:
        for collective in ("broadcast", "reduce"):
            schedule = build(collective, "tree", n, root=root)
            assert schedule.n_steps == depth
            assert messages(schedule) == n - 1
    both = build("all_reduce", "tree", n)
    assert both.n_steps == 2 * depth
    assert messages(both) == 2 * (n - 1)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("segments", [1, 2, 5])
def test_chains(n: int, segments: int) -> None:
    for collective in ("broadcast", "reduce"):
        schedule = build(collective, "chain", n, root=n - 1, segments=segments)
        assert schedule.n_steps == (n - 2 + segments if n > 1 else 0)
        assert messages(schedule) == (n - 1) * segments


@pytest.mark.parametrize(("name", "owner"), [("ring", 0), ("gloo", 0), ("ring_tutorial", -1)])
def test_where_each_chunk_of_a_ring_is_complete_first(name: str, owner: int) -> None:
    """NCCL and gloo: chunk k at rank k. Tutorials: chunk k at rank k - 1."""
    n = 5
    parameters = {"segments": 1} if name == "gloo" else {}
    schedule = build("all_reduce", name, n, **parameters)
    whose = flow(schedule)
    last = np.flatnonzero(schedule.step == n - 2)
    complete = {int(whose.chunk[row]): int(schedule.dst[row]) for row in last}
    assert all(whose.after[row] == 2**n - 1 for row in last)
    assert complete == {k: (k + owner) % n for k in range(n)}


def test_first_chunk_that_each_ring_sends() -> None:
    first = {name: build("all_reduce", name, 4).transfers[0].src_slot for name in RINGS}
    assert first == {"ring": 3, "ring_tutorial": 0, "gloo": 2}  # 2: chunk 1's first segment


def test_gloo_keeps_two_segments_in_flight() -> None:
    assert build("all_reduce", "gloo", 4).window == 2
    assert build("all_reduce", "gloo", 4).n_chunks == 8


@pytest.mark.parametrize(
    ("n", "size_bytes", "segments", "rows"),
    [
        (4, 0, 8, 0),
        (4, 64, 8, 48),
        (4, 12, 8, 18),  # three elements, a segment each: the others are empty
        (4, 64 * 2**20, 64, 384),
        (3, 8 * 2**20 - 4, 9, 36),
    ],
)
def test_gloo_cuts_by_size(n: int, size_bytes: int, segments: int, rows: int) -> None:
    schedule = build("all_reduce", "gloo", n, size_bytes=size_bytes, itemsize=4)
    assert schedule.n_chunks == segments
    assert len(schedule) == rows
    assert schedule.chunk_elements is not None
    assert schedule.chunk_elements.sum() * 4 == size_bytes
    assert schedule.chunk_elements.max(initial=0) * 4 <= 2**20
    assert len(set(schedule.chunk_elements[:-1].tolist()) - {0}) <= 1 or size_bytes < 64


def test_parameters_that_cannot_be() -> None:
    with pytest.raises(ScheduleError, match="broadcast chain: segments is 0, expected 1 or more"):
        build("broadcast", "chain", 4, segments=0)
    with pytest.raises(ScheduleError, match="gloo: segments is 0, expected 1 or more"):
        build("all_reduce", "gloo", 4, segments=0)
    with pytest.raises(ScheduleError, match="gloo: 7 bytes are no multiple of the element's 4"):
        build("all_reduce", "gloo", 4, size_bytes=7, itemsize=4)


def pictured(schedule: Schedule) -> list[str]:
    """What the pictures of the rings show: a line a step, the chunks that each rank sends."""
    lines = []
    for step in range(schedule.n_steps):
        sent = [row for row in schedule.transfers if row.step == step]
        cells = [f"{'+' if row.reduce else ' '}chunk {row.src_slot}" for row in sent]
        lines.append(f"{step}    " + "    ".join(cells))
    return lines


@pytest.mark.parametrize(
    ("collective", "name"),
    [("all_reduce", name) for name in RINGS] + [("reduce_scatter", "ring"), ("all_gather", "ring")],
)
def test_the_pictures_in_the_docstrings_are_true(collective: str, name: str) -> None:
    (entry,) = [e for e in algorithms(collective) if e.name == name]
    parameters = {"segments": 1} if name == "gloo" else {}
    for line in pictured(build(collective, name, 3, **parameters)):
        assert line in (entry.builder.__doc__ or "")


@pytest.mark.parametrize("entry", algorithms(), ids=lambda e: f"{e.collective}-{e.name}")
def test_every_builder_says_what_it_is_and_whence(entry: Any) -> None:
    doc = entry.builder.__doc__ or ""
    assert "Source: " in doc
    assert "Example:" in doc
    assert "::\n" in doc  # a picture
    assert entry.doc.endswith(".")
    assert not entry.doc.startswith("Return")


@pytest.mark.parametrize(
    ("entry", "n"),
    [
        pytest.param(entry, n, id=f"{entry.collective}-{entry.name}-{n}")
        for n in (1, 2, 3, 8)
        for entry in algorithms(group_size=n)
    ],
)
def test_phases_cover_all_steps_in_plain_words(entry: Any, n: int) -> None:
    schedule = build(entry.collective, entry.name, n)
    told = phases(schedule)
    assert [step for p in told for step in range(p.first_step, p.first_step + p.n_steps)] == list(
        range(schedule.n_steps)
    )
    for phase in told:
        for sentence in filter(None, (phase.sentence, phase.opening)):
            assert len(sentence) <= 80
            assert sentence.endswith(".")
        if entry.collective == "barrier":
            continue  # nothing is added up: a reduce says that one has heard of another
        ends = phase.first_step, phase.first_step + phase.n_steps
        reduces = set(schedule.reduce[slice(*np.searchsorted(schedule.step, ends))].tolist())
        adding = ("reduce", "reduce-scatter", "fold", "exchange")
        expected = {"reduce and copy": {True, False}, **{name: {True} for name in adding}}
        assert reduces == expected.get(phase.name, {False})


def test_phases_of_a_ring_and_of_a_tree() -> None:
    ring = phases(build("all_reduce", "ring", 4))
    assert [(p.name, p.first_step, p.n_steps) for p in ring] == [
        ("reduce-scatter", 0, 3),
        ("all-gather", 3, 3),
    ]
    assert ring[0].sentence_at(0) == "Every rank sends one of its chunks to its neighbour."
    assert ring[0].sentence_at(1) != ring[0].sentence_at(0)
    tree = phases(build("all_reduce", "tree", 8))
    assert [p.name for p in tree] == ["reduce", "broadcast"]
    assert tree[0].sentence == "Each rank hands its sum up to its parent, which adds it to its own."
