"""The step model has SimGrid's digits, which `benchmarks/against_simgrid.py --write` has kept."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from chunkscope.sim.compiled import expecting

TESTS = Path(__file__).parent.parent
KEPT = json.loads((TESTS / "sim" / "simgrid.json").read_text())
CASES = [dict(zip(KEPT["columns"], row, strict=True)) for row in KEPT["rows"]]


@pytest.fixture(scope="module", autouse=True)
def compiled() -> Iterator[None]:
    """Let kernels be compiled: all cases together are worth it."""
    with expecting(1 << 20):
        yield


@pytest.fixture(scope="module")
def simgrid() -> ModuleType:
    """Return what the benchmark knows of SimGrid."""
    spec = spec_from_file_location("_simgrid", TESTS / "benchmarks" / "_simgrid.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words(case: dict[str, Any]) -> str:
    return " ".join(str(case[name]) for name in KEPT["columns"][:5] if case[name] is not None)


@pytest.mark.parametrize("case", CASES, ids=words)
def test_the_first_and_the_last_rank_end_when_simgrid_says(
    case: dict[str, Any], simgrid: ModuleType
) -> None:
    known = {name: case[name] for name in KEPT["columns"][:-2]}
    end_s = simgrid.ends_s(simgrid.Case(action="", selector="", **known).simulate())
    assert end_s.min() == pytest.approx(case["first_end_s"], rel=1e-11, abs=0)
    assert end_s.max() == pytest.approx(case["last_end_s"], rel=1e-11, abs=0)


@pytest.mark.skipif(shutil.which("smpirun") is None, reason="SimGrid is not installed")
def test_simgrid_itself_ends_when_the_step_model_says(simgrid: ModuleType, tmp_path: Path) -> None:
    names = "all_reduce", "halving_doubling", "allreduce", "rab_rdb"
    case = simgrid.Case(*names, "torus:4x2:12.5GB/s,0us", 8)
    simgrid.write_files(case, tmp_path)
    theirs = simgrid.replay(case, tmp_path).end_s
    assert theirs == pytest.approx(simgrid.ends_s(case.simulate()), rel=1e-11, abs=0)
