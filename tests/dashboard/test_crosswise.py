"""The simple view where ranks send far and crosswise, and on networks that have a shape."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from chunkscope.dashboard import scene
from chunkscope.dashboard.film import MOTION, Film, film
from chunkscope.dashboard.scene import Prim
from chunkscope.dashboard.views.metrics import text_width
from chunkscope.sim.algorithms import ALGORITHMS
from chunkscope.traces.trace import Trace

Make = Callable[..., Trace]
Box = tuple[float, float, float, float]

CROSSWISE = [
    ("all_reduce", "double_tree"), ("all_reduce", "halving_doubling"),
    ("all_reduce", "hierarchical"), ("all_reduce", "nvls"), ("all_reduce", "one_shot"),
    ("all_reduce", "recursive_doubling"), ("all_reduce", "ring_bidirectional"),
    ("all_reduce", "ring_channels"), ("all_reduce", "sharp"), ("all_reduce", "swing"),
    ("all_reduce", "torus2d"), ("all_reduce", "torus3d"), ("all_reduce", "two_shot"),
    ("all_gather", "bruck"), ("all_to_all", "bruck"), ("all_to_all", "direct"),
    ("all_to_all", "pairwise"), ("barrier", "dissemination"), ("gather", "flat"),
    ("reduce", "flat"), ("scatter", "binomial"),
]  # fmt: skip
DOCS = Path(__file__).parents[2] / "docs"


def _made(simulated: Make, collective: str, algorithm: str, n: int = 8, **more: object) -> Film:
    entry = ALGORITHMS[collective, algorithm]
    assert entry.sizes.fits(n)
    more.setdefault("topology", "star:100GB/s,1us")
    return film(simulated(collective, algorithm, n, count=16 if n <= 8 else 2 * n, **more))


def _moments(made: Film, n: int = 20) -> list[float]:
    return [made.duration_s * (k + 0.5) / n for k in range(n)]


def _box(prim: Prim) -> Box:
    style = prim.style
    w = 0.97 * text_width(prim.text, style.size, style.weight, style.font)
    x = prim.geometry[0] - {"start": 0, "middle": w / 2, "end": w}[style.anchor]
    return x, prim.geometry[1] - 0.7 * style.size, w, 0.7 * style.size


def _common(a: Box, b: Box) -> float:
    w = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    h = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    return max(w, 0) * max(h, 0)


def _tokens(made: Film, t: float) -> list[Prim]:
    return [p for p in scene.at(made, t) if p.kind == "pick" and p.ref and "send" in p.ref]


def _cards(made: Film) -> dict[int, Box]:
    return {p.ref["rank"]: p.geometry for p in scene.at(made, 0)
            if p.kind == "pick" and p.ref and p.ref.get("kind") == "rank"}  # fmt: skip


def _texts(made: Film, t: float = 0.0) -> list[str]:
    return [p.text for p in scene.at(made, t) if p.kind == "text"]


@pytest.mark.parametrize(("collective", "algorithm"), CROSSWISE)
def test_labels_keep_apart_and_messages_do_not_hide_each_other(
    simulated: Make, collective: str, algorithm: str
) -> None:
    made = _made(simulated, collective, algorithm)
    for t in _moments(made):
        texts = [(p, _box(p)) for p in scene.at(made, t) if p.kind == "text" and p.text]
        for prim, (x, _, w, _) in texts:
            assert prim.style.size >= 14, prim.text
            assert x >= 24, prim.text
            assert x + w <= 1256, prim.text
        for (p, a), (q, b) in combinations(texts, 2):
            lifting = p.text == q.text and MOTION in (p.layer, q.layer)
            assert lifting or _common(a, b) < 6, f"{p.text!r} on {q.text!r} at {t:.2f} s"
        for p, q in combinations(_tokens(made, t), 2):
            a, b = p.geometry, q.geometry
            assert _common(a, b) < 0.25 * min(a[2] * a[3], b[2] * b[3]), f"{p.ref} {q.ref} {t:.2f}"


def test_of_all_to_all_one_rank_is_shown_and_the_others_as_dots(simulated: Make) -> None:
    made = _made(simulated, "all_to_all", "direct")
    seen = [token.ref for t in _moments(made, 40) for token in _tokens(made, t)]
    assert {ref["src"] for ref in seen} == {3}
    assert {ref["dst"] for ref in seen} == {0, 1, 2, 4, 5, 6, 7}
    middle = made.steps[0].start_s + 0.5
    dots = [p for p in scene.at(made, middle) if p.layer == MOTION and p.style.radius == 6]
    assert len(dots) > 20
    assert "others’ messages" in _texts(made)


def test_a_sum_says_all_that_goes_into_it(simulated: Make) -> None:
    made = _made(simulated, "reduce", "flat", root=0)
    parts = set(_texts(made, made.steps[0].start_s + 0.9))
    assert {"1", "8", "36", "+", "="} <= parts
    slim = _texts(_made(simulated, "all_reduce", "one_shot"), made.steps[0].start_s + 0.9)
    assert slim.count("…") == slim.count("=") == slim.count("36")


@pytest.mark.parametrize("algorithm", ["sharp", "nvls"])
def test_a_switch_lies_above_all_and_messages_go_straight_up_and_down(
    simulated: Make, algorithm: str
) -> None:
    made = _made(simulated, "all_reduce", algorithm)
    assert "Switch" in _texts(made)
    assert not any(re.fullmatch("Rank 8", text) for text in _texts(made))
    start = made.steps[0].start_s
    early, late = (_tokens(made, start + after) for after in (0.05, 0.9))
    assert len(early) == len(late) == 8
    for a, b in zip(early, late, strict=True):
        assert a.geometry[0] == pytest.approx(b.geometry[0])
        assert a.geometry[1] > b.geometry[1] + 30


def test_partners_at_one_distance_keep_it_while_they_move(simulated: Make) -> None:
    made = _made(simulated, "all_reduce", "recursive_doubling")
    step = made.steps[2]
    right = [p for p in _tokens(made, step.start_s + 0.5) if p.ref["src"] < p.ref["dst"]]
    xs = sorted(p.geometry[0] for p in right)
    assert len(xs) == 4
    assert np.diff(xs) == pytest.approx(np.diff(xs)[0], abs=12)


def test_a_torus_is_a_grid_whose_ways_leave_at_one_edge_and_come_in_at_the_other(
    simulated: Make,
) -> None:
    made = _made(simulated, "all_reduce", "torus2d", topology="torus:2x4:100GB/s,1us")
    cards = _cards(made)
    assert len({box[1] for box in cards.values()}) == 2
    assert len({box[0] for box in cards.values()}) == 4
    assert cards[0][0] == cards[1][0]
    assert cards[0][1] == cards[2][1] == cards[6][1]
    step = made.steps[2]
    out, back = (
        next(p for p in _tokens(made, step.start_s + after) if p.ref["src"] == 6)
        for after in (0.2, 0.8)
    )
    assert out.geometry[0] > cards[6][0] + cards[6][2]
    assert back.geometry[0] + back.geometry[2] < cards[0][0]


def test_neighbours_of_a_hypercube_stand_beside_each_other(simulated: Make) -> None:
    cards = _cards(_made(simulated, "all_reduce", "halving_doubling", topology="hypercube"))
    for a, b in combinations(range(8), 2):
        if (a ^ b).bit_count() == 1:
            assert cards[a][0] == cards[b][0] or cards[a][1] == cards[b][1]


def test_hosts_are_boxes_and_switches_bars_over_what_hangs_on_them(simulated: Make) -> None:
    made = _made(simulated, "all_reduce", "hierarchical", topology="two-level:2x4")
    cards, texts = _cards(made), _texts(made)
    assert {"host 0", "host 1", "switch"} <= set(texts)
    assert cards[4][0] - cards[3][0] > 1.1 * (cards[1][0] - cards[0][0])
    tree = _made(simulated, "all_reduce", "halving_doubling", topology="fat-tree:4")
    at = {p.text: p.geometry for p in scene.at(tree, 0) if p.kind == "text"}
    assert at["4 × core"][1] < at["2 × aggregation"][1] < at["edge 0.0"][1]
    assert at["edge 0.0"][0] < at["edge 0.1"][0] < at["4 × core"][0]


def test_the_numbers_of_the_surprise_are_those_of_the_model() -> None:
    picture = runpy.run_path(str(DOCS / "pictures" / "less_network.py"))
    said = re.findall(r"\| ([\d.]+) ms \|", (DOCS / "surprise.md").read_text("utf-8"))
    ends = [picture["chain"](topology)[1] for topology, *_ in picture["NETWORKS"]]
    assert said == [f"{end / 1e6:.1f}" for end in ends]
