"""The tables in docs/ are those of the registries, and each algorithm has what they need."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from chunkscope.errors import ScheduleError
from chunkscope.sim.closed import CLOSED, WITHOUT_FORM, closed_form
from chunkscope.sim.library import algorithms


def _tables() -> ModuleType:
    path = Path(__file__).with_name("tables.py")
    spec = importlib.util.spec_from_file_location("chunkscope_tables", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables = _tables()


@pytest.mark.parametrize("name", tables.TABLES)
def test_tables_are_up_to_date(name: str) -> None:
    text = (tables.DOCS / name).read_text("utf-8")
    made = tables.with_tables(text, [table() for table in tables.TABLES[name]])
    assert text == made, f"docs/{name} is old: run python tests/sim/tables.py"


@pytest.mark.parametrize("entry", algorithms(), ids=lambda e: f"{e.collective}-{e.name}")
def test_every_algorithm_has_a_source_a_picture_and_a_closed_form(entry: Any) -> None:
    assert len(tables.source_of(entry)) > 10
    doc = entry.builder.__doc__
    _, picture = doc.split("::\n\n", 1)
    assert picture.startswith("        "), "a picture of the steps"
    assert "group_size: Number of ranks" in doc or "group_size:" in doc
    for name in entry.parameters:
        assert f"        {name}: " in doc, name
    key = entry.collective, entry.name
    assert (key in CLOSED) != (key in WITHOUT_FORM)
    if key in CLOSED:
        assert closed_form(*key, 8, 1 << 20).latencies > 0


def test_why_there_is_no_closed_form() -> None:
    with pytest.raises(ScheduleError, match="share every link"):
        closed_form("reduce_scatter", "gloo_list", 4, 100)
