"""The pytest plugin, in real runs of pytest: goldens, what a failure says, unused ones, ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# pytester forgets what a run imports, and numpy cannot be imported twice.
import chunkscope.dashboard.export
import chunkscope.pytest_golden
import chunkscope.sim.library
import chunkscope.sim.replay  # noqa: F401

RING = """
import numpy as np
import chunkscope
from dataclasses import replace
from chunkscope.traces.trace import Trace

def ring(n=2, algorithm="ring", scale=1.0):
    schedule = chunkscope.build("all_reduce", algorithm, n)
    replay = chunkscope.simulate(schedule.bind(8, "float32"), chunkscope.topology("full", n))
    return replay.trace(inputs=[np.arange(8) * scale + rank for rank in range(n)])
"""

UPDATE = "--chunkscope-update"
# Plugins that the inner runs do not need: hypothesis alone takes seconds to load.
QUIET = ("-p", "no:cacheprovider", "-p", "no:dash", "-p", "no:hypothesispytest")


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with one test file that compares a ring with its golden."""
    pytester.makepyfile(
        test_ring=RING + "\n\ndef test_ring(golden):\n    assert ring() == golden('ring-2')\n"
    )
    return pytester


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(*QUIET, *args)


def text_of(result: pytest.RunResult) -> str:
    return result.stdout.str()


def test_a_missing_golden_fails_and_says_how_to_make_it(suite: pytest.Pytester) -> None:
    result = run(suite)
    result.assert_outcomes(failed=1)
    assert "there is no golden golden/ring-2.txt yet" in text_of(result)
    assert f'run: pytest "test_ring.py::test_ring" {UPDATE}' in text_of(result)
    assert not (suite.path / "golden").exists()


def test_a_golden_is_written_on_request_and_then_holds(suite: pytest.Pytester) -> None:
    run(suite, UPDATE).assert_outcomes(passed=1)
    golden = suite.path / "golden" / "ring-2.txt"
    assert golden.read_text().startswith("chunkscope golden 1\nworld 2\n")
    before = golden.stat().st_mtime_ns
    run(suite).assert_outcomes(passed=1)
    run(suite, UPDATE).assert_outcomes(passed=1)
    assert golden.stat().st_mtime_ns == before  # unchanged: not written again


def test_a_failure_shows_the_first_divergence_its_lines_and_a_page(suite: pytest.Pytester) -> None:
    run(suite, UPDATE)
    golden = suite.path / "golden" / "ring-2.txt"
    lines = golden.read_text().splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("    recv r1 <+ r0"))
    assert "{0}" in lines[at]
    lines[at] = lines[at].replace("{0}", "{0,1}")
    golden.write_text("\n".join(lines) + "\n")
    result = run(suite)
    result.assert_outcomes(failed=1)
    text = text_of(result)
    assert "the trace is not the one in golden/ring-2.txt" in text
    assert (
        "First divergence: rank 1, all_reduce #0, step 0: received {0} from rank 0, "
        "expected {0,1}: rank 1's own part is missing"
    ) in text
    assert f"\n- {lines[at]}\n" in text
    assert f"\n+ {lines[at]}\n".replace("{0,1}", "{0}") in text
    assert "- golden ring-2 -" in text  # a section of its own, which pytest does not cut
    assert lines[at - 1].strip() in text  # a line of context
    assert f'If the change is meant: pytest "test_ring.py::test_ring" {UPDATE}' in text
    page = suite.path / "chunkscope-out" / "test_ring.py-test_ring-ring-2.html"
    assert f"Both in the player: {page.relative_to(suite.path)}" in text
    html = page.read_text(encoding="utf-8")
    assert html.count("<iframe") == 2
    assert "rank 1&#x27;s own part is missing" in html
    assert html.count("&lt;title&gt;") == 2  # both players are inside


def test_without_the_exporter_the_failure_still_says_what_differs(suite: pytest.Pytester) -> None:
    run(suite, UPDATE)
    suite.makepyfile(
        test_ring=RING
        + """
import sys
def test_ring(golden, monkeypatch):
    monkeypatch.setitem(sys.modules, "chunkscope.dashboard.export", None)
    assert ring(scale=2.0) == golden('ring-2')
"""
    )
    result = run(suite)
    result.assert_outcomes(failed=1)
    assert "No page with both was written: ModuleNotFoundError" in text_of(result)
    assert "First divergence: rank 0, all_reduce #0: input differs" in text_of(result)


def test_a_schedule_has_a_golden_in_its_own_text(pytester: pytest.Pytester) -> None:
    code = RING + (
        "\n\ndef test_plan(golden):\n"
        "    assert golden('plan') == chunkscope.build('all_reduce', 'ring', {n})\n"
    )
    pytester.makepyfile(test_plan=code.replace("{n}", "3"))
    run(pytester, UPDATE).assert_outcomes(passed=1)
    assert (pytester.path / "golden" / "plan.txt").read_text().startswith("collective all_reduce")
    run(pytester).assert_outcomes(passed=1)
    pytester.makepyfile(test_plan=code.replace("{n}", "2"))
    result = run(pytester)
    result.assert_outcomes(failed=1)
    assert "First divergence: line 3: found `group_size 2`, expected `group_size 3`" in text_of(
        result
    )
    assert "- group_size 3\n+ group_size 2" in text_of(result)
    assert "Both in the player: chunkscope-out/" in text_of(result)


def test_digests_can_be_left_out(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_any=RING
        + """
import pytest
@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_any(golden, scale):
    assert ring(scale=scale) == golden('any', values=False)
"""
    )
    run(pytester, UPDATE).assert_outcomes(passed=2)
    run(pytester).assert_outcomes(passed=2)


def test_one_name_for_two_texts_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_two=RING
        + "\n\ndef test_two(golden):\n"
        + "    assert ring() == golden('x')\n    assert ring(3) == golden('x')\n"
    )
    result = run(pytester, UPDATE)
    result.assert_outcomes(failed=1)
    assert "was written twice in this run, with different texts" in text_of(result)


def test_what_is_neither_trace_nor_schedule_is_said(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "def test_five(golden):\n    assert 5 == golden('x')\n"
        "def test_name(golden):\n    golden('../x')\n"
    )
    result = run(pytester)
    result.assert_outcomes(failed=2)
    assert "golden('x') holds a trace or a schedule, found int" in text_of(result)
    assert "found the name '../x', expected letters, digits" in text_of(result)


def test_two_traces_that_differ_are_explained(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_pair=RING
        + """
def test_other_values():
    assert ring() == ring(scale=3.0)
def test_other_metadata():
    trace = ring()
    assert trace == Trace(trace.events, trace.states, replace(trace.meta, notes=("x",)))
"""
    )
    result = run(pytester)
    result.assert_outcomes(failed=2)
    assert "rank 0, all_reduce #0: input differs at 7 of 8 elements" in text_of(result)
    assert "move the same data the same way, and differ in times or metadata" in text_of(result)


TWO_FILES = {
    "test_one": RING + "\n\ndef test_one(golden):\n    assert ring() == golden('one')\n",
    "test_two": RING + "\n\ndef test_two(golden):\n    assert ring(3) == golden('two')\n",
}


def test_unused_goldens_are_named_when_every_test_was_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(**TWO_FILES)
    run(pytester, UPDATE)
    old = pytester.path / "golden" / "old.txt"
    old.write_text("chunkscope golden 1\n")
    result = run(pytester)
    result.assert_outcomes(passed=2)
    assert f"{old}: no test compares with it; delete it" in text_of(result)
    assert "one.txt: no test" not in text_of(result)
    for part in (
        ["test_one.py"],
        ["-k", "one"],
        ["--deselect", "test_two.py::test_two"],
        ["test_one.py::test_one", "test_two.py"],
    ):
        assert "unused goldens" not in text_of(run(pytester, *part)), part
    (pytester.path / "golden" / "one.txt").write_text("chunkscope golden 1\n")
    assert "unused goldens" not in text_of(run(pytester)), "a failed test may have used others"


def test_goldens_work_under_xdist(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(**TWO_FILES)
    result = pytester.runpytest_subprocess("-n", "2", *QUIET, UPDATE)
    result.assert_outcomes(passed=2)
    goldens = pytester.path / "golden"
    assert sorted(path.name for path in goldens.iterdir()) == ["one.txt", "two.txt"]
    (goldens / "old.txt").write_text("chunkscope golden 1\n")
    result = pytester.runpytest_subprocess("-n", "2", *QUIET)
    result.assert_outcomes(passed=2)
    assert "old.txt: no test compares with it" in text_of(result)
    assert "one.txt: no test" not in text_of(result)


@pytest.mark.ranks
def test_real_ranks_are_recorded_and_compared(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_ranks="""
import torch
import torch.distributed as dist

def total(rank):
    tensor = torch.full((4,), float(rank + 1))
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3.0] * 4

def test_total(ranks, golden):
    trace = ranks(total, n=2)
    assert [call.collective for call in trace.calls()] == ["all_reduce"]
    assert trace == golden("total")

def test_again_in_the_same_pool(ranks, golden):
    assert ranks(total, n=2) == golden("total")

def stuck():
    if dist.get_rank() == 1:
        dist.barrier()

def test_a_hang_ends(ranks):
    ranks(stuck, n=2, timeout=2)
"""
    )
    result = pytester.runpytest_subprocess(*QUIET, UPDATE)
    result.assert_outcomes(passed=2, failed=1)
    golden = (pytester.path / "golden" / "total.txt").read_text()
    assert "call 0: all_reduce #0 group=0 op=SUM bytes=16 dtype=float32" in golden
    assert str(Path.cwd()) not in golden
    assert "RanksError" in text_of(result)


def test_the_plugin_loads_nothing_heavy() -> None:
    code = (
        "import sys, chunkscope.pytest_plugin\n"
        "heavy = {'torch', 'numpy', 'msgspec', 'networkx', 'dash'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
