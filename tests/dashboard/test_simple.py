"""The simple view: what somebody sees who sees it first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest

from chunkscope.dashboard import scene
from chunkscope.dashboard.film import Film, film
from chunkscope.dashboard.scene import Prim
from chunkscope.dashboard.theme import PALETTES, contrast
from chunkscope.dashboard.views.metrics import text_width
from chunkscope.dashboard.views.numbers import short
from chunkscope.traces.trace import Trace

Make = Callable[..., Trace]
Box = tuple[float, float, float, float]

CASES = [
    ("all_reduce", "ring", 1, None),
    ("all_reduce", "ring", 2, None),
    ("all_reduce", "ring", 3, None),
    ("all_reduce", "ring", 4, None),
    ("all_reduce", "gloo", 5, None),
    ("all_reduce", "ring_tutorial", 6, None),
    ("all_reduce", "ring", 7, None),
    ("all_reduce", "ring", 8, None),
    ("all_reduce", "tree", 2, None),
    ("all_reduce", "tree", 5, None),
    ("all_reduce", "tree", 8, None),
    ("reduce_scatter", "ring", 4, None),
    ("all_gather", "ring", 4, None),
    ("broadcast", "tree", 8, 0),
    ("broadcast", "chain", 4, 1),
    ("reduce", "chain", 5, 2),
    ("reduce", "tree", 7, 3),
]


def _texts(prims: list[Prim]) -> list[Prim]:
    return [p for p in prims if p.kind in ("text", "clock") and p.text and p.opacity > 0]


def _box(prim: Prim) -> Box:
    style = prim.style
    # The table's widths are a little generous, so letters that touch do not count.
    w = 0.97 * text_width(prim.text, style.size, style.weight, style.font)
    x = prim.geometry[0] - {"start": 0, "middle": w / 2, "end": w}[style.anchor]
    return x, prim.geometry[1] - 0.7 * style.size, w, 0.7 * style.size


def _overlap(a: Box, b: Box) -> float:
    w = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    h = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    return max(w, 0) * max(h, 0)


def _moments(made: Film) -> Iterator[float]:
    yield 0.0
    for step in made.steps:
        for share in (0.3, 0.8):
            yield step.start_s + share * (step.end_s - step.start_s)
    yield made.duration_s


@pytest.mark.parametrize(("collective", "algorithm", "n", "root"), CASES)
def test_texts_are_large_inside_the_frame_and_do_not_cover_each_other(
    simulated: Make, collective: str, algorithm: str, n: int, root: int | None
) -> None:
    made = film(simulated(collective, algorithm, n, root=root))
    lifts = "tree" in algorithm
    for t in _moments(made):
        texts = _texts(scene.at(made, t))
        for prim in texts:
            x, y, w, h = _box(prim)
            assert prim.style.size >= 14, prim.text
            assert x >= 20, (prim.text, t)
            assert x + w <= 1262, (prim.text, t)
            assert y >= 10, (prim.text, t)
            assert y + h <= 712, (prim.text, t)
        # In a tree a message lifts out of its cell, so it covers that cell's number for a while.
        still = [p for p in texts if not (lifts and p.layer == 2)]
        for k, a in enumerate(still):
            for b in still[k + 1 :]:
                assert _overlap(_box(a), _box(b)) < 2, (a.text, b.text, t)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("n", [4, 8])
def test_every_text_stands_out_from_its_ground(simulated: Make, theme: str, n: int) -> None:
    made = film(simulated(n=n))
    palette = PALETTES[theme]
    for t in _moments(made):
        prims = scene.at(made, t)
        for k, prim in enumerate(prims):
            if prim.kind not in ("text", "clock") or not prim.text:
                continue
            x, y, w, h = _box(prim)
            middle = (x + w / 2, y + h / 2)
            ground = next(
                str(palette[p.style.fill or ""])
                for p in reversed(prims[:k])
                if p.kind == "rect" and p.style.fill and palette[p.style.fill] and _holds(p, middle)
            )
            large = prim.style.size >= 18
            ink = str(palette[str(prim.style.fill)])
            assert contrast(ink, ground) >= (3.0 if large else 4.5), (prim.text, ink, ground)


def _holds(prim: Prim, point: tuple[float, float]) -> bool:
    x, y, w, h = prim.geometry
    return x <= point[0] <= x + w and y <= point[1] <= y + h


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_hue_reaches_three_to_one_or_carries_an_edge(theme: str) -> None:
    palette = PALETTES[theme]
    for rank in range(8):
        colour, edge = str(palette[f"hue{rank}"]), palette[f"edge{rank}"]
        assert edge is not None or contrast(colour, str(palette["card"])) >= 3


def _cards(made: Film) -> list[Box]:
    prims = scene.at(made, 0.0)
    return [p.geometry for p in prims if p.kind == "pick" and (p.ref or {}).get("kind") == "rank"]


def _tokens(made: Film, t: float) -> dict[tuple[int, int], Box]:
    prims = scene.at(made, t)
    return {
        (p.ref["src"], p.ref["dst"]): p.geometry
        for p in prims
        if p.kind == "pick" and p.ref is not None and p.ref.get("kind") == "message"
    }


def _gap(a: Box, b: Box) -> float:
    dx = max(a[0] - b[0] - b[2], b[0] - a[0] - a[2], 0)
    dy = max(a[1] - b[1] - b[3], b[1] - a[1] - a[3], 0)
    return math.hypot(dx, dy)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 8])
def test_tokens_go_from_sender_to_receiver_and_touch_neither(simulated: Make, n: int) -> None:
    made = film(simulated(n=n))
    cards = _cards(made)
    step = made.steps[0]
    early, late = _tokens(made, step.start_s + 0.02), _tokens(made, step.start_s + 0.98)
    assert set(early) == {(r, (r + 1) % n) for r in range(n)}
    for (src, dst), token in early.items():
        assert _gap(token, cards[src]) < 16
        assert _gap(token, cards[src]) > 0
        goal = late[src, dst]
        # The arrowhead lies between.
        assert 15 <= _gap(goal, cards[dst]) < 40
        assert _gap(goal, cards[src]) > _gap(token, cards[src]) + 25


@pytest.mark.parametrize("collective", ["all_reduce", "broadcast"])
def test_in_a_tree_a_message_moves_far_enough_to_be_seen(simulated: Make, collective: str) -> None:
    made = film(simulated(collective, "tree", 8, root=0 if collective == "broadcast" else None))
    for step in made.steps:
        early, late = _tokens(made, step.start_s + 0.01), _tokens(made, step.start_s + 1.0)
        for key, a in early.items():
            b = late[key]
            assert math.hypot(b[0] - a[0], b[1] - a[1]) > 55


def test_an_arrival_is_written_as_a_sum(simulated: Make) -> None:
    made = film(simulated(n=4))
    words = _said(made, made.steps[1].start_s + 0.9)
    assert "500+200=700" in words
    assert "Step 2 of 6" in words


def _said(made: Film, t: float) -> str:
    """Return all that is written, sums in one piece."""
    return (
        " ".join(p.text for p in _texts(scene.at(made, t))).replace(" + ", "+").replace(" = ", "=")
    )


@pytest.mark.parametrize(("op", "sign"), [("MAX", "max("), ("PRODUCT", " × "), ("MIN", "min(")])
def test_other_operations_are_written_with_their_own_sign(
    simulated: Make, op: str, sign: str
) -> None:
    made = film(simulated(n=2, op=op))
    assert sign in _said(made, made.steps[0].start_s + 0.9)


def test_at_the_end_all_cells_are_solid_and_say_the_sums(simulated: Make) -> None:
    made = film(simulated(n=4))
    prims = scene.at(made, made.duration_s)
    numbers = [p.text for p in prims if p.kind == "text" and p.style.size == 28]
    assert sorted(numbers) == sorted(["10", "100", "1000", "10000"] * 4)
    assert {p.style.fill for p in prims if p.kind == "text" and p.style.size == 28} == {"inverse"}
    assert "Done: every rank holds the same four sums." in _said(made, made.duration_s)
    assert not _tokens(made, made.duration_s)


def test_average_ends_with_the_average(simulated: Make) -> None:
    made = film(simulated(n=4, op="AVG"))
    numbers = {p.text for p in scene.at(made, made.duration_s) if p.style.size == 28}
    assert numbers == {"2.5", "25", "250", "2500"}


def test_without_values_up_to_four_ranks_are_named_and_above_that_are_bars(
    simulated: Make,
) -> None:
    named = _said(film(simulated(n=3, values=False, count=3000)), 99)
    assert "a+b+c" in named
    bars = film(simulated(n=8, values=False, count=8000))
    assert "chunk" in _said(bars, bars.steps[0].start_s + 0.5)


def test_a_chunk_of_several_elements_says_how_many(simulated: Make) -> None:
    assert "4 equal numbers" in _said(film(simulated(n=4, count=16)), 0)


def test_one_rank_has_nothing_to_move(simulated: Make) -> None:
    made = film(simulated(n=1))
    assert "There is one rank, so nothing has to move." in _said(made, 0)
    assert made.steps == ()


def test_a_simulated_trace_is_marked_by_shape_as_well(simulated: Make) -> None:
    made = film(simulated(n=2))
    prims = scene.at(made, 0)
    word = next(p for p in prims if p.text == "simulated")
    frame = next(p for p in prims if p.kind == "rect" and p.panel == "header" and p.style.dash)
    assert _holds(frame, word.geometry[:2])


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        (12345, 5, "12345"),
        (12345, 4, "12k"),
        (1234567, 5, "1235k"),
        (1.5, 5, "1.5"),
        (0.3333333, 5, "0.333"),
        (-2.0, 5, "-2"),
        (float("inf"), 5, "inf"),
        (1e-9, 5, "1e-9"),
        (3.2e21, 5, "3e21"),
    ],
)
def test_long_numbers_are_shortened(value: float, width: int, text: str) -> None:
    assert short(value, width) == text
