"""The picture of a bare call: both ends, and nothing invented between them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chunkscope.dashboard import scene
from chunkscope.dashboard.film import Film, film
from chunkscope.dashboard.views.metrics import text_width
from chunkscope.traces.trace import Trace

Make = Callable[..., Trace]


def _said(made: Film, t: float) -> list[str]:
    return [p.text for p in scene.at(made, t) if p.kind in ("text", "clock") and p.text]


def _inside(made: Film) -> None:
    """Assert that all texts are large and inside the frame, before, during and after the call."""
    for t in (0.0, 2.5, made.duration_s):
        for p in scene.at(made, t):
            if p.kind == "text" and p.text:
                w = text_width(p.text, p.style.size, p.style.weight, p.style.font)
                left = p.geometry[0] - {"start": 0, "middle": w / 2, "end": w}[p.style.anchor]
                assert p.style.size >= 14, p.text
                assert left >= 20, p.text
                assert left + w <= 1264, p.text


def test_the_first_lesson_shows_1_and_2_becoming_3_and_3(called: Make) -> None:
    made = film(called("all_reduce", [[1.0], [2.0]], [[3.0], [3.0]], op="SUM"))
    _inside(made)
    before, after = _said(made, 0.0), _said(made, made.duration_s)
    assert before.count("1.0") == 1
    assert before.count("2.0") == 1
    assert "3.0" not in before
    # Both outputs, and the sum in the operator.
    assert after.count("3.0") == 3
    assert "Both ranks hand in a number, and both get the sum back." in after
    assert "SUM" in after


def test_the_second_lesson_shows_123_everywhere_and_what_was_overwritten(called: Make) -> None:
    trace = called(
        "broadcast", [[123.0], [0.0], [0.0]], [[123.0]] * 3, root=0, line="dist.broadcast(t, src=0)"
    )
    made = film(trace)
    _inside(made)
    assert _said(made, 0.0).count("123.0") == 1
    after = _said(made, made.duration_s)
    assert after.count("123.0") == 3
    assert after.count("0.0") == 2
    assert "Rank 0 gives its number to every other rank." in after
    assert "the route was" in after


@pytest.mark.parametrize(("op", "total"), [("SUM", "3.0"), ("MAX", "2.0")])
def test_the_operator_says_what_it_does(called: Make, op: str, total: str) -> None:
    value = float(total)
    made = film(called("all_reduce", [[0.0], [1.0], [2.0]], [[value]] * 3, op=op))
    _inside(made)
    after = _said(made, made.duration_s)
    assert op in after
    assert after.count(total) >= 4
    written = "0.0 1.0 2.0 + =" if op == "SUM" else "max(0.0, 1.0, 2.0)"
    assert all(word in " ".join(after) for word in written.split())


def test_the_callers_line_stands_in_each_card(called: Make) -> None:
    after = _said(film(called("all_reduce", [[1.0], [2.0]], [[3.0], [3.0]], op="SUM")), 0.0)
    assert after.count("lesson.py:14") == 2
    assert after.count("dist.all_reduce(tensor)") == 2


def test_no_message_is_invented(called: Make) -> None:
    made = film(called("all_reduce", [[1.0], [2.0]], [[3.0], [3.0]], op="SUM"))
    assert not [ref for ref in made.refs if ref and ref.get("kind") == "message"]
    assert "what happens inside" in _said(made, 0.0)
    assert {"action": "how"} in made.refs


def test_a_gather_shows_each_ranks_part_in_its_own_colour(called: Make) -> None:
    made = film(called("all_gather", [[3.0], [4.0]], [[3.0, 4.0], [3.0, 4.0]]))
    _inside(made)
    after = _said(made, made.duration_s)
    assert after.count("3.0") == 3
    assert after.count("4.0") == 3


def test_many_ranks_and_many_values_still_fit(called: Make) -> None:
    many = [[0.1 * k for k in range(12)]] * 8
    _inside(film(called("all_reduce", many, many, op="SUM")))
    _inside(film(called("broadcast", many, many, root=5)))
    _inside(film(called("barrier", [None] * 8, [None] * 8)))


def test_a_call_without_an_end_says_so(called: Make) -> None:
    trace = called("all_reduce", [[1.0], [2.0]], [None, None], op="SUM", open_ranks=[0, 1])
    made = film(trace)
    after = _said(made, made.duration_s)
    assert after.count("no end was recorded") == 2
    assert "The recording ends here: no end was seen." in after


def test_a_rank_that_never_called_has_a_dashed_card(called: Make) -> None:
    trace = called(
        "all_reduce", [[1.0], [2.0]], [None, None], op="SUM", missing=[1], open_ranks=[0]
    )
    made = film(trace)
    after = _said(made, made.duration_s)
    assert "no call was recorded" in after
    assert "The recording ends here: rank 1 never called." in after


def test_values_that_were_not_recorded_are_missed_in_words(called: Make) -> None:
    made = film(called("all_reduce", [None, None], [None, None], op="SUM"))
    assert _said(made, made.duration_s).count("values were not recorded") == 4


@pytest.mark.parametrize("collective", ["reduce", "gather", "scatter", "reduce_scatter"])
def test_every_collective_has_its_sentence(called: Make, collective: str) -> None:
    root = None if collective == "reduce_scatter" else 1
    trace = called(collective, [[1.0, 2.0]] * 3, [[3.0]] * 3, op="SUM", root=root)
    made = film(trace)
    _inside(made)
    assert f"All ranks call {collective}." not in _said(made, 0.0)
