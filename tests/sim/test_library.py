"""Schedules by name, from functions and from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from chunkscope.errors import ScheduleError
from chunkscope.sim.collectives import COLLECTIVES
from chunkscope.sim.library import algorithms, build, phases, resolve
from chunkscope.sim.schedule import Schedule, Transfer

MINE = """
from __future__ import annotations

from dataclasses import dataclass

import chunkscope
from chunkscope.errors import ScheduleError

@dataclass
class Plan:
    size: int

def star(group_size, root=0):
    assert Plan(group_size).size == group_size
    others = [rank for rank in range(group_size) if rank != root]
    rows = [chunkscope.Transfer(0, 0, root, rank, 0, 0) for rank in others]
    return chunkscope.Schedule.of(
        "broadcast", "star", group_size, rows, input=[0], output=[0], root=root
    )

def ring(group_size):
    return chunkscope.build("all_reduce", "ring", group_size)

def broken(group_size):
    return 1 / 0

def nothing(group_size):
    return None

def even(group_size):
    raise ScheduleError(f"even numbers alone, found {group_size}")
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "my_plans.py"
    path.write_text(MINE)
    return str(path)


def test_which_algorithms_there_are() -> None:
    names = {(e.collective, e.name) for e in algorithms()}
    assert names >= {
        ("all_reduce", "ring"),
        ("all_reduce", "tree"),
        ("all_gather", "ring"),
        ("broadcast", "chain"),
        ("reduce", "tree"),
        ("scatter", "binomial"),
        ("barrier", "gloo_monitored"),
        *((collective, "gloo") for collective in COLLECTIVES if collective != "send_recv"),
    }
    assert [e.collective for e in algorithms()][:2] == ["all_reduce", "all_reduce"]
    assert next(e.name for e in algorithms("broadcast")) == "tree"  # the default first
    for collective in COLLECTIVES:
        assert sum(e.default for e in algorithms(collective)) == 1
    (chain,) = [e for e in algorithms("broadcast") if e.name == "chain"]
    assert chain.parameters == {"segments": 4}


@pytest.mark.parametrize(
    ("collective", "name"),
    [("all_reduce", "ring"), ("reduce_scatter", "ring"), ("broadcast", "tree")],
)
def test_the_default(collective: str, name: str) -> None:
    assert build(collective, None, 4).algorithm == name


def test_the_root_is_0_where_none_is_named() -> None:
    assert build("reduce", "tree", 4).root == 0
    assert build("reduce", "tree", 4, root=3).root == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("all_reduce", "rign", 4),
            r"unknown algorithm 'rign' for all_reduce \(did you mean 'ring'\?\); known: ring, ",
        ),
        (("all_reduce", "xyz", 4), "unknown algorithm 'xyz' for all_reduce; known: ring, "),
        (
            ("allreduce", "ring", 4),
            r"unknown collective 'allreduce' \(did you mean 'all_reduce'\?\); known: all_reduce",
        ),
        (("all_reduce", "ring", 0), "group size is 0, expected 1 or more"),
    ],
)
def test_what_cannot_be_built(arguments: tuple[str, str, int], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        build(*arguments)


def test_arguments_that_an_algorithm_does_not_take() -> None:
    with pytest.raises(ScheduleError, match="all_reduce has no root, found 1"):
        build("all_reduce", "ring", 4, root=1)
    with pytest.raises(ScheduleError, match="root of reduce is 4, expected 0 to 3"):
        build("reduce", "chain", 4, root=4)
    with pytest.raises(
        ScheduleError, match="broadcast chain takes no 'segment'; it takes: segments"
    ):
        build("broadcast", "chain", 4, segment=2)
    with pytest.raises(
        ScheduleError, match="all_reduce ring takes no 'segments'; it takes: no par"
    ):
        build("all_reduce", "ring", 4, segments=2)


def test_an_algorithm_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    from chunkscope.sim.algorithms import ALGORITHMS, Sizes, algorithm

    monkeypatch.setattr("chunkscope.sim.algorithms.registry.ALGORITHMS", dict(ALGORITHMS))
    powers = Sizes("powers of two", lambda n: n & (n - 1) == 0)

    @algorithm("all_reduce", "butterfly", sizes=powers)
    def butterfly(group_size: int) -> Schedule:
        return build("all_reduce", "ring", group_size)

    from chunkscope.sim.algorithms import registry

    monkeypatch.setattr("chunkscope.sim.library.ALGORITHMS", registry.ALGORITHMS)
    assert build("all_reduce", "butterfly", 4).group_size == 4
    with pytest.raises(
        ScheduleError, match="butterfly does not fit 6 ranks; it does powers of two; try 4 or 8"
    ):
        build("all_reduce", "butterfly", 6)


# Functions and files


def test_a_function_in_a_file(mine: str) -> None:
    assert resolve("broadcast", f"{mine}:star", 3, root=2).transfers[0].src == 2
    assert resolve("all_reduce", f"{mine}:ring", 3) == build("all_reduce", "ring", 3)


def test_a_function_in_a_module(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(mine).parent)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    assert resolve("broadcast", "my_plans:star", 3).algorithm == "star"


def test_a_text_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.txt"
    path.write_text(build("reduce", "chain", 3, root=1).to_text())
    assert resolve("reduce", str(path), 3) == build("reduce", "chain", 3, root=1)
    assert resolve(None, str(path)).group_size == 3


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{mine}:sta", "my_plans.py has no function 'sta'; did you mean 'star'?"),
        ("{mine}:broken", ":broken failed for 3 ranks: ZeroDivisionError: division by zero"),
        ("{mine}:nothing", ":nothing returned NoneType, expected a Schedule"),
        ("{mine}:even", "even numbers alone, found 3"),
        ("{mine}:ring", ":ring: collective is all_reduce, expected broadcast"),
        ("absent.py:ring", "no such file: absent.py"),
        ("no_such_module:ring", "module 'no_such_module' cannot be loaded: ModuleNotFoundError"),
        ("absent.txt", "absent.txt: cannot read a schedule: No such file or directory"),
        ("{bad}:f", "bad.py cannot be loaded: SyntaxError"),
        ("{text}", "plan.txt:1: found 'colective'"),
        ("{small}", "small.txt: group size is 2, expected 3"),
    ],
)
def test_what_cannot_be_resolved(spec: str, message: str, mine: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(:\n")
    (tmp_path / "plan.txt").write_text("colective broadcast\n")
    (tmp_path / "small.txt").write_text(build("broadcast", "tree", 2).to_text())
    names = {name: str(tmp_path / name) for name in ("bad.py", "plan.txt", "small.txt")}
    spec = spec.format(
        mine=mine, bad=names["bad.py"], text=names["plan.txt"], small=names["small.txt"]
    )
    with pytest.raises(ScheduleError) as raised:
        resolve("broadcast", spec, 3)
    assert message in str(raised.value)


def test_what_needs_a_collective_and_a_size(mine: str) -> None:
    with pytest.raises(ScheduleError, match=":ring needs a group size"):
        resolve(None, f"{mine}:ring")
    with pytest.raises(ScheduleError, match="'ring' needs a collective and a group size"):
        resolve(None, "ring", 4)


def test_a_function_is_known_by_its_own_file(mine: str) -> None:
    """A user's `schedule.py` must not be taken for another module of that name."""
    import sys

    before = set(sys.modules)
    resolve("all_reduce", f"{mine}:ring", 2)
    assert "my_plans" not in set(sys.modules) - before


# Phases of what is not known


def test_phases_of_an_unknown_plan_are_told_by_its_rows() -> None:
    rows = [
        Transfer(0, 0, 1, 0, 0, 0, 1, True),
        Transfer(1, 0, 2, 0, 0, 0, 1, True),
        Transfer(2, 0, 0, 1, 0, 0),
        Transfer(4, 0, 0, 2, 0, 0),
    ]
    star = Schedule.of("all_reduce", "star", 3, rows, input=[0], output=[0])
    assert [(p.name, p.first_step, p.n_steps) for p in phases(star)] == [
        ("reduce", 0, 2),
        ("copy", 2, 3),
    ]
    assert phases(star)[0].sentence == "Each rank that receives adds what arrives to its own."
    impostor = Schedule.of("all_reduce", "ring", 3, rows, input=[0], output=[0])
    assert [p.name for p in phases(impostor)] == ["reduce", "copy"]
    assert phases(build("all_reduce", "ring", 1)) == []
