"""The evaluator: what a film shows at a moment."""

from __future__ import annotations

import pytest

from chunkscope.dashboard import scene
from chunkscope.dashboard.film import Clock, Film, Step
from chunkscope.dashboard.reel import Reel


def _film(draw, duration_s: float = 4.0, clock: Clock | None = None) -> Film:  # type: ignore[no-untyped-def]
    reel = Reel()
    reel.panel("stage", 0, 0, 100, 100)
    draw(reel)
    return reel.film(
        size=(100, 100),
        view="simple",
        duration_s=duration_s,
        steps=[Step(1.0, 3.0, "Step 1 of 1", None, "It moves.")],
        phases=(),
        clock=clock or Clock((1.0, 3.0), (0.0, 2e6), "ms", 10**6, 2),
        meta={},
    )


def test_what_has_its_time_shows_from_its_start_until_before_its_end() -> None:
    film = _film(lambda reel: reel.rect(0, 0, 9, 9, fill="ink", during=(1.0, 2.0)))
    shown = [len(scene.at(film, t)) for t in (0.99, 1.0, 1.99, 2.0)]
    assert shown == [0, 1, 1, 0]


def test_a_mover_goes_from_its_start_to_its_goal() -> None:
    def draw(reel: Reel) -> None:
        reel.rect(0, 0, 9, 9, to=(80, 40, 9, 9), during=(1.0, 3.0), fill="ink")

    film = _film(draw)
    xs = [scene.at(film, t)[0].geometry[0] for t in (1.0, 1.5, 2.0, 2.5, 2.999)]
    assert xs[0] == 0
    assert xs == sorted(xs)
    assert xs[2] == pytest.approx(40)  # half way at half time, eased or not
    assert xs[1] < 20  # soft start
    assert xs[-1] == pytest.approx(80, abs=0.1)


def test_linear_motion_is_not_eased() -> None:
    def draw(reel: Reel) -> None:
        reel.line(
            0, 0, 0, 0, to=(0, 0, 80, 0), during=(1.0, 3.0), ease=False, stroke="ink", width=1
        )

    assert scene.at(_film(draw), 1.5)[0].geometry == (0, 0, 20, 0)


def test_things_fade() -> None:
    def draw(reel: Reel) -> None:
        reel.text(0, 9, "a", during=(0.0, 2.0), opacity=(0, 1), ease=False, size=9, fill="ink")

    assert scene.at(_film(draw), 1.0)[0].opacity == pytest.approx(0.5)


def test_painting_order_is_layer_then_height_then_order_of_drawing() -> None:
    def draw(reel: Reel) -> None:
        reel.text(0, 0, "moving", to=(1, 1), during=(0, 4), size=9, fill="ink")
        reel.text(0, 0, "high", z=1, size=9, fill="ink")
        reel.text(0, 0, "state", during=(0, 4), size=9, fill="ink")
        reel.text(0, 0, "low", size=9, fill="ink")

    texts = [prim.text for prim in scene.at(_film(draw), 1.0)]
    assert texts == ["low", "high", "state", "moving"]


def test_time_outside_the_film_is_held_at_its_ends() -> None:
    film = _film(lambda reel: reel.text(0, 0, "{} ms", clock=True, size=9, fill="ink"))
    assert [scene.at(film, t)[0].text for t in (-5.0, 2.0, 99.0)] == [
        "0.00 ms",
        "1.00 ms",
        "2.00 ms",
    ]


@pytest.mark.parametrize(
    ("ns", "decimals", "unit_ns", "text"),
    [
        (0, 2, 10**6, "0.00"),
        (1_319_999, 2, 10**6, "1.32"),
        (50, 2, 10**3, "0.05"),
        (999_999, 0, 10**3, "1000"),
        (12_345_678, 1, 10**6, "12.3"),
    ],
)
def test_times_are_written_with_a_constant_count_of_decimals(
    ns: int, decimals: int, unit_ns: int, text: str
) -> None:
    assert scene.format_ns(ns, Clock((0.0,), (0.0,), "", unit_ns, decimals)) == text


def test_trace_time_and_film_time_are_inverse_between_the_knots() -> None:
    clock = Clock((1.5, 2.7, 3.9), (0.0, 700.0, 1000.0), "ns", 1, 0)
    for t in (1.5, 2.0, 2.7, 3.3, 3.9):
        assert scene.film_s(clock, scene.trace_ns(clock, t)) == pytest.approx(t)
    assert scene.trace_ns(clock, 0.0) == 0.0
    assert scene.trace_ns(clock, 9.0) == 1000.0
