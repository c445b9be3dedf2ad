"""Rows folded block by block give the columns that all their cells give at once."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkscope.traces.columns import Column
from chunkscope.traces.fold import SENTINELS, Folder, blocks
from chunkscope.traces.schema import ColumnSpec, Type

CELLS: dict[Type, st.SearchStrategy[Any]] = {
    Type.INT: st.sampled_from([0, 7, 7, -(2**63) + 1, 2**63 - 1]),
    Type.FLOAT: st.sampled_from([0.0, 1.5, float("inf")]),
    Type.BOOL: st.booleans(),
    Type.TEXT: st.sampled_from(["", "a", "é"]),
    Type.INTS: st.lists(st.integers(-3, 3), max_size=2),
    Type.BYTES: st.binary(max_size=2),
}


@settings(deadline=None)
@given(st.sampled_from(list(Type)), st.booleans(), st.data())
def test_blocks_fold_into_the_column_of_all_their_cells(
    type: Type, has_sentinels: bool, data: st.DataObject
) -> None:
    nulls = SENTINELS if has_sentinels else {}
    cell = st.none() | CELLS[type]
    runs = st.tuples(cell, st.integers(1, 3)).map(lambda run: [run[0]] * run[1])
    parts: list[list[Any]] = data.draw(st.lists(st.lists(cell, max_size=4) | runs, max_size=5))
    folder = Folder([ColumnSpec("x", type, "")], nulls)
    for part in parts:
        cells = [nulls.get(type) if cell is None else cell for cell in part]
        folder.add_cells({"x": cells}, len(cells))
    expected = [cell for part in parts for cell in part]
    found = folder.columns()["x"]
    assert len(folder) == len(expected)
    assert found.to_list() == expected
    assert found.equals(Column.build(type, expected, len(expected)))


def test_smallest_int_is_a_number_where_none_stands_for_null() -> None:
    folder = Folder([ColumnSpec("x", Type.INT, "")], {})
    folder.add_cells({"x": [-(2**63), None]}, 2)
    folder.add_cells({"x": [-(2**63)] * 2}, 2)
    assert folder.columns()["x"].to_list() == [-(2**63), None, -(2**63), -(2**63)]


def test_structs_are_folded_by_their_first_fields() -> None:
    row = msgspec.defstruct("Row", [("a", int), ("b", str), ("more", list, [])])
    folder = Folder([ColumnSpec("a", Type.INT, ""), ColumnSpec("b", Type.TEXT, "")], {})
    folder.add([row(1, "x"), row(2, "y")])
    folder.add([])
    assert folder.table().row(1) == {"a": 2, "b": "y"}
    assert len(folder) == 2


@pytest.mark.parametrize("size", [10, 1 << 18, 3 << 18])
def test_blocks_are_whole_lines(size: int) -> None:
    lines = [b"x" * size + b"\n", b"y" * 300_000 + b"\n", b"\n", b"torn"]
    found = list(blocks(io.BytesIO(b"".join(lines))))
    assert b"".join(found) == b"".join(lines)
    assert all(block.endswith(b"\n") for block in found[:-1])
    assert found[-1].endswith(b"torn")
