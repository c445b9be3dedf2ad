"""The film as a whole, and its bytes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable

import numpy as np
import pytest

from chunkscope.dashboard import scene
from chunkscope.dashboard.film import Film, film
from chunkscope.traces.trace import Trace


@pytest.mark.parametrize("view", ["simple", "full"])
def test_bytes_come_back_as_the_same_film(simulated: Callable[..., Trace], view: str) -> None:
    made = film(simulated(), view=view)
    back = Film.from_bytes(made.to_bytes())
    assert back.to_bytes() == made.to_bytes()
    for t in (0.0, 2.0, made.duration_s):
        ours, theirs = scene.at(made, t), scene.at(back, t)
        assert [p[:8] for p in ours] == [p[:8] for p in theirs]
        assert [p.ref for p in ours] == [p.ref for p in theirs]


def test_the_same_trace_gives_the_same_bytes(simulated: Callable[..., Trace]) -> None:
    assert film(simulated()).to_bytes() == film(simulated()).to_bytes()


def test_columns_lie_where_the_header_says(simulated: Callable[..., Trace]) -> None:
    made = film(simulated())
    raw = gzip.decompress(made.to_bytes())
    assert raw[:8] == b"CSFILM1\n"
    start = 12 + int.from_bytes(raw[8:12], "little")
    header = json.loads(raw[12:start])
    assert start % 8 == 0
    for column in header["columns"]:
        assert column["offset"] % 8 == 0
    t0 = next(c for c in header["columns"] if c["name"] == "t0")
    found = np.frombuffer(raw, "<f8", t0["length"], start + t0["offset"])
    assert np.array_equal(found, made.columns["t0"])
    assert header["rows"] == len(made)


def test_state_never_moves_so_that_a_player_paints_it_only_when_it_changes(
    simulated: Callable[..., Trace],
) -> None:
    made = film(simulated())
    still = made.columns["layer"] != 2
    assert np.array_equal(made.columns["a"][still], made.columns["b"][still])
    assert (made.columns["opacity"][still] == 1).all()


def test_a_film_is_small_enough_to_send(simulated: Callable[..., Trace]) -> None:
    trace = simulated(n=8, values=False)
    assert len(film(trace).to_bytes()) < 80_000
    assert len(film(trace, view="full").to_bytes()) < 120_000


def test_unknown_view_and_call_are_refused(simulated: Callable[..., Trace]) -> None:
    with pytest.raises(ValueError, match="unknown view 'big'; known: simple, full"):
        film(simulated(), view="big")
    with pytest.raises(ValueError, match="call 3 of 1: expected 0 to 0"):
        film(simulated(), 3)


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(ValueError, match="the trace has no collective call"):
        film(Trace.build({"kind": []}))


def test_every_colour_that_a_film_uses_is_in_both_palettes(
    simulated: Callable[..., Trace], called: Callable[..., Trace]
) -> None:
    films = [film(simulated(n=8)), film(simulated(), view="full")]
    films.append(film(called("all_reduce", [[1.0], [2.0]], [[3.0], [3.0]], op="SUM")))
    for made in films:
        for style in made.styles:
            for token in {style.fill, style.stroke} - {None}:
                assert all(token in palette for palette in made.palettes.values())
