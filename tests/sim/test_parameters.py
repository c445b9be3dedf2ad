"""Parameters that are written after an algorithm's name."""

from __future__ import annotations

from typing import Any

import pytest

import chunkscope
from chunkscope.errors import ScheduleError
from chunkscope.sim.library import resolve
from chunkscope.sim.parameters import split
from chunkscope.sim.spec import Spec, parse_spec


@pytest.mark.parametrize(
    ("text", "name", "parameters"),
    [
        ("ring", "ring", {}),
        ("ring_segmented:segments=8", "ring_segmented", {"segments": 8}),
        ("mine.py:ring", "mine.py:ring", {}),
        ("mine.py:ring:k=2,way=left", "mine.py:ring", {"k": 2, "way": "left"}),
        ("torus2d:dims=4x16,mirrored=true", "torus2d", {"dims": (4, 16), "mirrored": True}),
        ("plans/a=b.txt", "plans/a=b.txt", {}),
    ],
)
def test_parameters_follow_a_colon(text: str, name: str, parameters: dict[str, Any]) -> None:
    assert split(text) == (name, parameters)


def test_they_are_what_the_function_is_called_with() -> None:
    assert Spec("all_reduce", "torus2d:dims=2x4", 8).schedule().n_steps == 8
    named = resolve("all_reduce", "ring_segmented:segments=3", 4)
    built = chunkscope.build("all_reduce", "ring_segmented", 4, segments=3)
    assert named.to_text() == built.to_text()
    assert parse_spec("all_reduce:ring_segmented:segments=3:4").ranks == 4


def test_an_own_function_gets_them(tmp_path: Any) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import chunkscope\n"
        "def ring(group_size, k=1):\n"
        "    return chunkscope.build('all_reduce', 'ring_segmented', group_size, segments=k)\n"
    )
    assert len(resolve("all_reduce", f"{file}:ring:k=3", 4)) == 3 * 24


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torus2d:dims=8", "dims is 8, expected a list such as 2x4"),
        ("ring_segmented:segments=x", "segments is 'x', expected a number"),
        ("ring_segmented:segments=2x2", r"segments is \(2, 2\), expected a number"),
        ("reduce_broadcast:reduce=3", "reduce is 3, expected a word"),
        ("ring_segmented:segment=3", "takes no 'segment'; it takes: segments, window"),
    ],
)
def test_a_wrong_kind_is_named(name: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        resolve("all_reduce", name, 8)
