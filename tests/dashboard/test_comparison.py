"""The chart of a comparison: what it shows, that its words do not meet, and the page around it."""

from __future__ import annotations

import json
import re
from itertools import combinations, pairwise
from math import log10
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

import chunkscope
from chunkscope.dashboard import comparison_page
from chunkscope.dashboard.comparison import figure
from chunkscope.dashboard.comparison_page import page
from chunkscope.dashboard.theme import PALETTES
from chunkscope.sim.compare import Comparison, Crossover
from chunkscope.sim.compare.words import answer, basis, reigns

CHOSEN = ["ring", "tree", "recursive_doubling", "halving_doubling", "reduce_broadcast"]


@pytest.fixture(scope="module")
def found() -> Comparison:
    return chunkscope.compare("all_reduce", 8, "star:10GB/s,1us", CHOSEN, sizes="1KiB:1GiB:x4")


def lines(drawn: go.Figure, name: str) -> list[Any]:
    return [trace for trace in drawn.data if trace.name == name]


def test_each_algorithm_has_its_times_and_rates(found: Comparison) -> None:
    drawn = figure(found)
    for a, name in enumerate(found.algorithms):
        times, rates = lines(drawn, name)
        assert np.array_equal(times.x, found.size_bytes)
        assert np.array_equal(times.y, found.time_ns[a])
        assert np.array_equal(rates.y, found.busbw_Bps[a])
        assert all(name in text for text in times.text)
    assert (drawn.layout.xaxis2.type, drawn.layout.yaxis2.type) == ("log", "log")
    assert (drawn.layout.xaxis3.type, drawn.layout.yaxis3.type) == ("log", "linear")


def test_the_fastest_are_in_ink_others_thin(found: Comparison) -> None:
    drawn = figure(found)
    winners = {reign.algorithm for reign in reigns(found)}
    width = {name: lines(drawn, name)[0].line.width for name in found.algorithms}
    assert {name for name in width if width[name] > 1} == winners
    fastest = lines(drawn, "fastest")[0]
    assert fastest.line.color == PALETTES["light"]["ink"]
    on_grid = dict(zip(fastest.x, fastest.y))
    crossed = {cross.size_bytes for cross in found.crossovers}
    for k, size in enumerate(found.size_bytes.tolist()):
        if size not in crossed:
            assert on_grid[size] == pytest.approx(found.time_ns[:, k].min())


def test_the_bound_is_dashed_and_below(found: Comparison) -> None:
    times, rates = lines(figure(found), "lower bound")
    assert "px" in times.line.dash
    assert np.array_equal(times.y, found.bound_ns)
    assert (np.array(rates.y) >= found.busbw_Bps.max(axis=0) * (1 - 1e-9)).all()


def test_crossovers_are_marked_and_the_strip_names_who_follows(found: Comparison) -> None:
    drawn = figure(found)
    dots = lines(drawn, "crossovers")[0]
    assert list(dots.x) == [cross.size_bytes for cross in found.crossovers]
    strips = [shape for shape in drawn.layout.shapes if shape.type == "rect"]
    assert len(strips) == len(found.crossovers) + 1
    assert all(a.x1 == b.x0 for a, b in pairwise(strips))


def test_it_says_the_answer_and_what_it_rests_on(found: Comparison) -> None:
    drawn = figure(found)
    assert drawn.layout.title.text == answer(found)
    assert any(note.text == basis(found) for note in drawn.layout.annotations)
    assert "star:10GB/s,1us" in basis(found)
    assert f"step model {chunkscope.__version__}" in basis(found)


@pytest.mark.parametrize("n_crossovers", [0, 1, 5, 20])
def test_words_do_not_meet(n_crossovers: int) -> None:
    """Many algorithms that take turns: no two words of the strip or a panel lie on each other."""
    names = tuple(f"algorithm_{k}" for k in range(n_crossovers + 1))
    sizes = 1 << np.arange(10, 31)
    borders = np.geomspace(2000, 2e8, n_crossovers).astype(int).tolist()
    crossovers = tuple(map(Crossover, borders, names, names[1:]))
    who = np.searchsorted(borders, sizes, side="right")
    time_ns = 2000 + sizes / 10 + 100.0 * (np.arange(len(names))[:, None] != who)
    bound = 1000 + sizes / 11
    rest = {"version": "1", "policy": "dataflow", "topology": "star"}
    found = Comparison(
        "all_reduce", 8, "float32", names, sizes, time_ns, bound, bound, bound, "",
        crossovers, (), rest,
    )  # fmt: skip
    drawn = figure(found)
    strip = [note for note in drawn.layout.annotations if note.xref == "x"]
    assert {note.text for note in strip} >= {"1 KiB", "1 GiB", names[-1]}
    for y in {note.y for note in strip}:
        assert_apart([note for note in strip if note.y == y], px=820 / 20)
    for axis in ("x2", "x3"):
        in_panel = [note for note in drawn.layout.annotations if note.xref == axis]
        assert any(note.text == "lower bound" for note in in_panel)
        low, high = (log10(size) for size in (sizes[0], sizes[-1]))
        for one, other in combinations(in_panel, 2):
            near_x = abs(one.x - other.x) * 350 / (high - low) < 7 * len(one.text)
            scale = drawn.layout[f"yaxis{axis[1:]}"].range
            near_y = abs(one.y - other.y) * 330 / (scale[1] - scale[0]) < 14
            assert not (near_x and near_y), (one.text, other.text)


def assert_apart(notes: list[Any], px: float) -> None:
    spans = []
    for note in notes:
        width, x = 6.5 * len(note.text), note.x * px
        left = {"left": x, "center": x - width / 2, "right": x - width}[note.xanchor or "center"]
        spans.append((left, left + width))
    spans.sort()
    assert all(a[1] <= b[0] for a, b in pairwise(spans)), spans


def test_one_size_is_a_chart_of_bars() -> None:
    found = chunkscope.compare("barrier", 4, algorithms=["tree", "dissemination"])
    (bars,) = figure(found).data
    assert bars.type == "bar"
    assert list(bars.x) == sorted(bars.x, reverse=True)
    assert bars.y[-1] == found.winners[0]


def test_an_algorithm_without_time_at_a_size_leaves_a_gap(found: Comparison) -> None:
    fixed = chunkscope.build("all_reduce", "gloo", 4, size_bytes=4096, itemsize=4)
    some = chunkscope.compare("all_reduce", 4, "ring", [fixed, "ring"], sizes="1KiB:4KiB")
    times, _ = lines(figure(some), "gloo")
    assert np.isnan(times.y[:2]).all()
    assert times.y[2] > 0


@pytest.fixture
def _without_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the fonts out of a page: cutting them to size takes most of its time."""
    monkeypatch.setattr(comparison_page, "face_rule", lambda *args: "")


@pytest.mark.usefixtures("_without_fonts")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_asks_for_nothing(found: Comparison, theme: str) -> None:
    text = page(found, theme)
    own = re.sub(r"<script>/\*\*.*?</script>", "", text, count=1, flags=re.S)
    assert not re.search(r"""(?:src|href)=["']|@import|url\((?!data:)""", own)
    assert answer(found) in text
    assert PALETTES[theme]["panel"] in text
    for name in found.algorithms:
        assert name in own
    held = re.search(r'<script type="application/json" id="figure">(.*?)</script>', own, re.S)
    assert held is not None
    assert len(json.loads(held.group(1))["data"]) == len(figure(found).data)


@pytest.mark.usefixtures("_without_fonts")
def test_names_of_users_cannot_leave_their_place() -> None:
    ring = chunkscope.build("all_reduce", "ring", 2)
    odd = chunkscope.Schedule.of(
        "all_reduce", "</script><b>odd", 2, ring.transfers, input=ring.input, output=ring.output
    )
    text = page(chunkscope.compare("all_reduce", 2, algorithms=[odd], sizes="1KiB:4KiB"))
    assert "</script><b>odd" not in text
    assert "&lt;b&gt;odd" in text
