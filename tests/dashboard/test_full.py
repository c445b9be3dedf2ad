"""The full view: topology, sends, state, what is in flight."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

import chunkscope
from chunkscope.dashboard import scene
from chunkscope.dashboard.film import Film, film
from chunkscope.dashboard.story import tell
from chunkscope.dashboard.views.metrics import text_width
from chunkscope.traces.trace import Trace

Make = Callable[..., Trace]

CASES = [
    ("all_reduce", "ring", 2, None, "ring:100GB/s,1us"),
    ("all_reduce", "ring", 4, None, "star:100GB/s,1us"),
    ("all_reduce", "ring", 8, None, "two-level:2x4:100GB/s,1us:10GB/s,5us"),
    ("all_reduce", "tree", 8, None, "ring:100GB/s,1us"),
    ("all_gather", "ring", 5, None, "line:100GB/s,1us"),
    ("broadcast", "chain", 6, 2, "ring:100GB/s,1us"),
]


def _panel(made: Film, t: float, name: str) -> list[scene.Prim]:
    return [p for p in scene.at(made, t) if p.panel == name]


@pytest.mark.parametrize(("collective", "algorithm", "n", "root", "topology"), CASES)
def test_everything_stays_in_its_panel(
    simulated: Make, collective: str, algorithm: str, n: int, root: int | None, topology: str
) -> None:
    trace = simulated(collective, algorithm, n, root=root, topology=topology, count=4096 * n)
    made = film(trace, view="full")
    panels = {panel.name: panel for panel in made.panels}
    assert {"header", "stage", "gantt", "state", "flight", "legend", "bar"} <= set(panels)
    for t in (0.0, made.duration_s * 0.4, made.duration_s * 0.8, made.duration_s):
        for p in scene.at(made, t):
            box = panels[p.panel]
            x, y, w, h = p.geometry
            if p.kind in ("text", "clock"):
                w = text_width(p.text, p.style.size, p.style.weight, p.style.font)
                x -= {"start": 0, "middle": w / 2, "end": w}[p.style.anchor]
                h = 0.0
                assert p.style.size >= 7
            elif p.kind != "rect":
                continue
            assert x >= box.x - 2, (p.panel, p.text)
            assert y >= box.y - 2, (p.panel, p.text)
            assert x + w <= box.x + box.w + 2, (p.panel, p.text)
            assert y + h <= box.y + box.h + 3, (p.panel, p.text)


def test_bars_lie_at_the_times_of_the_trace(simulated: Make) -> None:
    trace = simulated(n=4, count=4096)
    made = film(trace, view="full")
    bars = [
        p
        for p in _panel(made, 0.0, "gantt")
        if p.kind == "pick" and p.ref is not None and p.ref["kind"] == "message"
    ]
    assert len(bars) == 24
    starts = {p.ref["send"]: p.geometry[0] for p in bars if p.ref is not None}
    rows = sorted(starts)
    times = [trace.events["t_start_ns"][row] for row in rows]
    xs = [starts[row] for row in rows]
    span = max(xs) - min(xs)
    scale = span / (max(times) - min(times))
    for time, x in zip(times, xs, strict=True):
        assert x == pytest.approx(min(xs) + scale * (time - min(times)), abs=0.1)


def test_film_time_is_linear_in_trace_time(simulated: Make) -> None:
    made = film(simulated(n=4, count=4096), view="full")
    clock = made.clock
    quarter = clock.s[0] + 0.25 * (clock.s[-1] - clock.s[0])
    assert scene.trace_ns(clock, quarter) == pytest.approx(0.25 * clock.ns[-1])


def test_the_state_table_counts_the_ranks_in_each_cell(simulated: Make) -> None:
    made = film(simulated(n=4, count=4096), view="full")

    def numbers(t: float) -> list[str]:
        found = [p.text for p in _panel(made, t, "state") if p.kind == "text"]
        # Less the heads of columns and rows.
        return sorted(text for text in found if text.isdigit())[4:]

    assert numbers(0.0).count("4") == 0
    assert numbers(made.duration_s).count("4") == 16


def test_hosts_are_drawn_and_named_with_their_rates(simulated: Make) -> None:
    topology = "two-level:2x4:100GB/s,1us:10GB/s,5us"
    trace = simulated(n=8, count=8192, topology=topology)
    said = [p.text for p in _panel(film(trace, view="full"), 0.0, "stage") if p.text]
    assert "host0" in said
    assert "host1" in said
    assert said.count("100 GB/s") == 2
    assert "between hosts 10 GB/s" in said


def test_without_a_topology_the_picture_says_that_it_is_logical(simulated: Make) -> None:
    from dataclasses import replace

    trace = simulated(n=4)
    bare = Trace(trace.events, trace.states, replace(trace.meta, topology=None))
    said = [p.text for p in _panel(film(bare, view="full"), 0.0, "stage")]
    assert "logical picture: who sends to whom" in said


def test_a_bare_call_has_the_textbook_picture_in_both_views(called: Make) -> None:
    trace = called("all_reduce", [[1.0], [2.0]], [[3.0], [3.0]], op="SUM")
    assert film(trace, view="full").to_bytes() == film(trace).to_bytes()


def test_the_same_message_has_one_key_in_all_panels(simulated: Make) -> None:
    made = film(simulated(n=4, count=4096), view="full")
    t = made.steps[1].start_s + 0.3
    sends: dict[str, set[int]] = {}
    for p in scene.at(made, t):
        if p.kind == "pick" and p.ref is not None and p.ref.get("kind") == "message":
            sends.setdefault(p.panel, set()).add(p.ref["send"])
    assert sends["stage"]
    assert sends["stage"] == sends["flight"]
    assert sends["stage"] <= sends["gantt"]


def test_two_messages_on_one_way_stand_side_by_side() -> None:
    sample = Path(chunkscope.__file__).parent / "dashboard" / "samples" / "ring-4.jsonl"
    trace = chunkscope.read(sample)
    picture = film(trace, view="full")
    messages = [m for m in tell(trace, trace.calls()[0]).messages if not m.local]
    met = 0
    for one, other in combinations(messages, 2):
        start, end = max(one.t_start_ns, other.t_start_ns), min(one.t_end_ns, other.t_end_ns)
        if (one.src, one.dst) != (other.src, other.dst) or end - start < 200_000:
            continue
        met += 1
        moment = scene.film_s(picture.clock, (start + end) // 2)
        moving = [
            p.geometry
            for p in scene.at(picture, moment)
            if p.kind == "pick" and p.panel == "stage" and p.layer == 2
        ]
        assert len(moving) >= 2
        for (ax, ay, *_), (bx, by, *_) in combinations(moving, 2):
            assert abs(ax - bx) + abs(ay - by) > 20
    assert met > 0
