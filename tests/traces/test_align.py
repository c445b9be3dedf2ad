"""Aligning two sequences: complete, in order, symmetric."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkscope.traces.diff import align as module
from chunkscope.traces.diff.align import align

SEQUENCES = st.lists(st.integers(0, 3), max_size=9)


@settings(deadline=None)
@given(SEQUENCES, SEQUENCES)
def test_every_item_stands_once_in_order_and_sides_can_be_swapped(
    a: list[int], b: list[int]
) -> None:
    pairs = align(a, b)
    assert [i for i, _ in pairs if i is not None] == list(range(len(a)))
    assert [j for _, j in pairs if j is not None] == list(range(len(b)))
    assert {(j, i) for i, j in align(b, a)} == set(pairs)


@settings(deadline=None)
@given(SEQUENCES, st.data())
def test_one_item_less_leaves_one_without_a_partner(a: list[int], data: st.DataObject) -> None:
    if not a:
        return
    gone = data.draw(st.integers(0, len(a) - 1))
    pairs = align(a, a[:gone] + a[gone + 1 :])
    assert sum(j is None for _, j in pairs) == 1
    assert all(a[i] == (a[:gone] + a[gone + 1 :])[j] for i, j in pairs if None not in (i, j))


def test_what_is_too_long_to_search_is_paired_by_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_COMPARISONS", 3)
    assert align([1, 5, 6, 7, 2], [1, 6, 7, 2]) == [(0, 0), (1, None), (2, 1), (3, 2), (4, 3)]
    assert align([1, 5, 6, 8, 2], [1, 6, 7, 2]) == [(0, 0), (1, 1), (2, 2), (3, None), (4, 3)]
