"""Columns and tables: what is put in comes out, nulls are None, nothing is shared by accident."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkscope.traces.columns import Column, Table, joined, joined_tables, lists
from chunkscope.traces.schema import EVENTS, Type

INT64 = st.integers(-(2**63), 2**63 - 1)
CELLS: dict[Type, st.SearchStrategy[Any]] = {
    Type.INT: INT64,
    Type.FLOAT: st.floats(allow_nan=False),
    Type.BOOL: st.booleans(),
    Type.TEXT: st.text(max_size=5),
    Type.INTS: st.lists(INT64, max_size=4),
    Type.BYTES: st.binary(max_size=6),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[Type, list[Any]]:
    type = draw(st.sampled_from(list(Type)))
    return type, draw(st.lists(st.none() | CELLS[type], max_size=12))


@settings(deadline=None)
@given(columns())
def test_cells_come_back_one_by_one_and_all_at_once(case: tuple[Type, list[Any]]) -> None:
    type, cells = case
    column = Column.build(type, cells, len(cells))
    assert column.to_list() == cells
    assert [column[row] for row in range(len(column))] == cells
    assert column.valid.tolist() == [cell is not None for cell in cells]


@settings(deadline=None)
@given(columns(), st.data())
def test_taken_rows_are_the_rows_asked_for(
    case: tuple[Type, list[Any]], data: st.DataObject
) -> None:
    type, cells = case
    column = Column.build(type, cells, len(cells))
    rows = data.draw(
        st.lists(st.integers(0, len(cells) - 1), max_size=20) if cells else st.just([])
    )
    taken = column.take(np.array(rows, np.int64))
    assert taken.to_list() == [cells[row] for row in rows]
    assert taken.equals(Column.build(type, [cells[row] for row in rows], len(rows)))


@settings(deadline=None)
@given(columns(), st.data())
def test_row_minus_one_is_taken_as_null(case: tuple[Type, list[Any]], data: st.DataObject) -> None:
    type, cells = case
    rows = data.draw(st.lists(st.integers(-1, len(cells) - 1), max_size=20))
    taken = Column.build(type, cells, len(cells)).take_or_null(np.array(rows, np.int64))
    expected = [None if row < 0 else cells[row] for row in rows]
    assert taken.to_list() == expected
    assert taken.equals(Column.build(type, expected, len(rows)))


@settings(deadline=None)
@given(st.sampled_from(list(Type)), st.data())
def test_joined_columns_read_one_after_the_other(type: Type, data: st.DataObject) -> None:
    cells = st.lists(st.none() | CELLS[type], max_size=6)
    parts = data.draw(st.lists(cells, min_size=1, max_size=4))
    whole = joined([Column.build(type, part, len(part)) for part in parts])
    expected = [cell for part in parts for cell in part]
    assert whole.to_list() == expected
    assert whole.equals(Column.build(type, expected, len(expected)))


@pytest.mark.parametrize("sizes", [[3], [0, 3], range(60), range(80)], ids=str)
def test_lists_of_any_sizes_are_taken_in_any_order(sizes: Any) -> None:
    cells = [[number] * size for number, size in enumerate([*sizes, *sizes])]
    rows = np.array([*range(len(cells) - 1, -1, -1), 0])
    taken = Column.build(Type.INTS, cells, len(cells)).take(rows)
    assert taken.to_list() == [cells[row] for row in rows]


def test_joined_tables_have_the_rows_of_all() -> None:
    parts = [Table.build(EVENTS, {"kind": ["send"] * n, "rank": [n] * n}) for n in (2, 0, 1)]
    assert joined_tables(parts).row(2) == {"kind": "send", "rank": 1}
    assert len(joined_tables(parts)) == 3


@settings(deadline=None)
@given(columns(), st.data())
def test_one_changed_cell_makes_columns_unequal(
    case: tuple[Type, list[Any]], data: st.DataObject
) -> None:
    type, cells = case
    if not cells:
        return
    row = data.draw(st.integers(0, len(cells) - 1))
    other = data.draw((st.none() | CELLS[type]).filter(lambda cell: cell != cells[row]))
    changed = [*cells[:row], other, *cells[row + 1 :]]
    a, b = (Column.build(type, c, len(cells)) for c in (cells, changed))
    assert a.equals(a)
    assert not a.equals(b)


def test_where_finds_values_and_nulls() -> None:
    text = Column.build(Type.TEXT, ["a", None, "b", "a"], 4)
    assert np.flatnonzero(text.where("a")).tolist() == [0, 3]
    assert np.flatnonzero(text.where(None)).tolist() == [1]
    assert not text.where("c").any()
    number = Column.build(Type.INT, [0, None, 0], 3)
    assert np.flatnonzero(number.where(0)).tolist() == [0, 2]


def test_nan_equals_nan_and_null_does_not() -> None:
    nan = Column.build(Type.FLOAT, [math.nan], 1)
    assert nan.equals(Column.build(Type.FLOAT, [math.nan], 1))
    assert not nan.equals(Column.build(Type.FLOAT, [None], 1))


def test_lists_from_lengths_and_items() -> None:
    column = lists(
        Type.INTS, np.array([2, 0, 1]), np.array([True, True, True]), np.array([7, 8, 9])
    )
    assert column.to_list() == [[7, 8], [], [9]]


def test_a_table_says_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="no such column: colour"):
        Table.build(EVENTS, {"colour": ["red"]})
    with pytest.raises(ValueError, match="2 rows cannot be built from 1 cells"):
        Table.build(EVENTS, {"kind": ["send", "recv"], "rank": [0]})


def test_a_row_shows_only_what_is_there() -> None:
    table = Table.build(EVENTS, {"kind": ["send"], "rank": [0], "step": [None]})
    assert table.row(0) == {"kind": "send", "rank": 0}
