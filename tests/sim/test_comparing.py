"""Comparing algorithms over sizes: times, winners, crossovers, executors, and what is left out."""

from __future__ import annotations

import csv
import json
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

import chunkscope
from chunkscope.errors import ScheduleError, TopologyError
from chunkscope.sim import compiled
from chunkscope.sim.compare import Comparison, parse_sizes
from chunkscope.sim.compare.comparison import fastest
from chunkscope.sim.compare.words import answer, best, everything, left_out, reigns

CHOSEN = ["ring", "tree", "recursive_doubling", "halving_doubling"]


@pytest.fixture(scope="module")
def found() -> Comparison:
    return chunkscope.compare("all_reduce", 8, "star:10GB/s,1us", CHOSEN)


# Sizes


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1KiB:16KiB", [1024, 2048, 4096, 8192, 16384]),
        ("1KiB:16KiB:x4", [1024, 4096, 16384]),
        ("1KiB:10KiB:x4", [1024, 4096, 10240]),  # both ends are asked for
        ("1KiB,64KiB,1MiB", [1024, 65536, 1048576]),
        ("1MiB,1KiB:2KiB,1KiB", [1024, 2048, 1048576]),
        ("4:10:x1.5", [4, 6, 9, 10]),
        ("1e3", [1000]),
    ],
)
def test_sizes_are_ranges_and_lists(text: str, sizes: list[int]) -> None:
    assert list(parse_sizes(text)) == sizes


@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        ("1KiB:1XiB", "1XiB", "unknown unit"),
        ("1KiB:1MiB:4", "4", "expected x1.01"),
        ("1KiB:1MiB:x1", "x1", "expected x1.01"),
        ("1KiB:1MiB:x4:x2", "x2", "expected FROM:TO"),
        ("1MiB:1KiB", "1KiB", "before it begins"),
        ("1KiB,,2KiB", ",2KiB", "is no number"),
        ("1KiB,0", "0", "size 0"),
        ("1KiB,", "", "after the comma"),
        ("", "", "is no number"),
        ("-4", "-4", "is no number"),
        ("8,1:1e18:x1.01", "1:1e18:x1.01", "more than 1,000"),
    ],
)
def test_a_wrong_size_is_pointed_at(text: str, at: str, words: str) -> None:
    with pytest.raises(ScheduleError, match=words) as error:
        parse_sizes(text)
    shown, caret = str(error.value).splitlines()[-2:]
    assert shown == f"  {text}"
    place = caret.index("^") - 2
    assert text[place:] == at


# Times and winners


def test_times_are_those_of_a_simulation(found: Comparison) -> None:
    network = chunkscope.topology("star:10GB/s,1us", 8)
    for name in ("ring", "tree"):
        bound = chunkscope.build("all_reduce", name, 8).bind(1 << 18, "float32")
        replay = chunkscope.simulate(bound, network)
        k = found.size_bytes.tolist().index(1 << 20)
        a = found.algorithms.index(name)
        assert found.time_ns[a, k] == pytest.approx(replay.exact_duration_ns, rel=1e-12)
        assert found.busbw_Bps[a, k] == pytest.approx(replay.busbw_Bps, rel=1e-12)
        assert found.bound_ns[k] == pytest.approx(replay.bounds.time_ns, rel=1e-12)


def test_the_winner_is_the_fastest_and_nobody_beats_the_bound(found: Comparison) -> None:
    assert found.size_bytes.tolist() == [1 << power for power in range(10, 31)]
    for k, winner in enumerate(found.winners):
        times = found.time_ns[:, k]
        assert times[found.algorithms.index(winner)] == pytest.approx(times.min())
        assert (times >= found.bound_ns[k] * (1 - 1e-9)).all()
        assert found.winner(int(found.size_bytes[k])) == winner


def test_crossovers_are_where_two_algorithms_are_equally_fast(found: Comparison) -> None:
    assert found.crossovers
    network = chunkscope.topology("star:10GB/s,1us", 8)
    for cross in found.crossovers:
        times = {}
        for size in (cross.size_bytes, int(cross.size_bytes / 1.02) // 4 * 4):
            for name in (cross.before, cross.after):
                bound = chunkscope.build("all_reduce", name, 8).bind(size // 4, "float32")
                times[name, size] = chunkscope.simulate(bound, network).exact_duration_ns
        below = int(cross.size_bytes / 1.02) // 4 * 4
        assert times[cross.after, cross.size_bytes] <= times[cross.before, cross.size_bytes]
        assert times[cross.before, below] <= times[cross.after, below]
        assert found.winner(cross.size_bytes) == cross.after
        assert found.winner(cross.size_bytes - 4) == cross.before


def test_crossover_equals_the_closed_form() -> None:
    # On a star, 2α + S/B for one message against α' = 4α, S/(2B)-like sums: see where they meet.
    found = chunkscope.compare(
        "all_reduce", 4, "fully:1GB/s,1us", ["ring", "recursive_doubling"], sizes="1KiB:1MiB:x32"
    )
    # Ring 6(α + S/4B), recursive doubling 2(α + S/B): equal at S = 8αB = 8,000 bytes.
    (cross,) = found.crossovers
    assert (cross.before, cross.after) == ("recursive_doubling", "ring")
    assert cross.size_bytes == pytest.approx(8000, rel=0.01)


def test_equals_are_named_together_and_do_not_take_turns() -> None:
    found = chunkscope.compare(
        "all_reduce", 4, "ring:1GB/s,1us", ["ring", "ring_tutorial"], sizes="1KiB:1MiB"
    )
    assert found.crossovers == ()
    assert set(found.winners) == {"ring"}
    assert found.ranking(3) == [("ring", "ring_tutorial")]
    assert answer(found) == "Use ring at every size."


def test_times_that_differ_by_rounding_are_equal() -> None:
    assert fastest(np.array([[1e6, 1e6, 1e6], [1e6 + 1e-4, 1e6 - 1e-4, 1e6 - 1]])) == [0, 0, 1]


def test_sizes_are_rounded_to_whole_blocks() -> None:
    found = chunkscope.compare("all_gather", 6, "ring", ["ring"], sizes="1KiB,1MiB")
    assert found.size_bytes.tolist() == [1008, 1048560]
    tiny = chunkscope.compare("all_gather", 6, "ring", ["ring"], sizes=[1, 2, 30])
    assert tiny.size_bytes.tolist() == [24]


def test_a_barrier_has_no_sizes() -> None:
    found = chunkscope.compare("barrier", 4)
    assert found.size_bytes.tolist() == [0]
    assert {"tree", "dissemination"} <= set(found.algorithms)
    assert found.crossovers == ()


def test_rooted_collectives_and_plans_that_depend_on_the_size() -> None:
    found = chunkscope.compare("broadcast", 4, root=2, sizes="1KiB,1MiB")
    assert {"chain", "tree", "gloo"} <= set(found.algorithms)
    assert not np.isnan(found.time_ns).any()
    gloo = chunkscope.compare("all_reduce", 4, algorithms=["gloo"], sizes="1KiB,1MiB")
    assert gloo.time_ns[0, 0] < gloo.time_ns[0, 1]


def test_the_models_parameters_are_those_of_simulate() -> None:
    words: dict[str, Any] = {"sizes": "1MiB", "algorithms": ["tree"]}
    plain = chunkscope.compare("all_reduce", 6, "star", **words)
    slow = chunkscope.compare("all_reduce", 6, "star", message_ns=500, policy="lockstep", **words)
    assert slow.time_ns[0, 0] > plain.time_ns[0, 0] + 500
    assert (slow.model["policy"], slow.model["message_ns"]) == ("lockstep", 500)


@pytest.mark.parametrize("name", ["ring", "nvls", "tree"])
def test_another_count_is_as_if_bound_anew(name: str) -> None:
    schedule = chunkscope.build("all_reduce", name, 4)
    again, anew = schedule.bind(10, "int64").with_count(1003), schedule.bind(1003, "int64")
    assert again.size_bytes == anew.size_bytes
    assert np.array_equal(again.row_bytes, anew.row_bytes)
    with pytest.raises(ScheduleError, match="count is -1"):
        again.with_count(-1)


def test_a_sweep_of_small_plans_is_worth_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_compiled", lambda function: "compiled")
    monkeypatch.setattr(compiled, "has_numba", lambda: True)
    with compiled.expecting(compiled.WORTH):
        assert compiled.run(len, 1) == "compiled"
    assert compiled.run(len, 1) is len


# Own algorithms, and those that cannot


def own(group_size: int) -> chunkscope.Schedule:
    """Return the recursive doubling of docs/own-schedules.md."""
    plan = chunkscope.Builder("all_reduce", group_size, name="doubling")
    held = [plan.input(rank) for rank in range(group_size)]
    distance = 1
    while distance < group_size:
        before = list(held)
        for rank in range(group_size):
            held[rank ^ distance] = before[rank].reduce_into(before[rank ^ distance])
        distance *= 2
    return plan.schedule()


def test_own_functions_and_schedules_are_compared() -> None:
    ring = chunkscope.build("all_reduce", "ring", 8)
    found = chunkscope.compare("all_reduce", 8, algorithms=[own, ring, "tree"], sizes="1KiB,1MiB")
    assert found.algorithms == ("doubling", "ring", "tree")


def test_an_own_schedule_that_is_wrong_cannot_win() -> None:
    rows = [chunkscope.Transfer(0, 0, 0, 1, 0, 0)]
    lazy = chunkscope.Schedule.of("all_reduce", "lazy", 2, rows, input=[0], output=[0])
    found = chunkscope.compare("all_reduce", 2, algorithms=[lazy, "ring"], sizes="1KiB")
    assert found.algorithms == ("ring",)
    (out,) = found.left_out
    assert (out.algorithm, out.size_bytes) == ("lazy", ())
    assert out.reason.startswith("not valid: ")


def test_parameters_follow_the_name() -> None:
    names = ["ring_segmented:segments=1,window=1", "ring_segmented:segments=4"]
    found = chunkscope.compare("all_reduce", 4, algorithms=names, sizes="64MiB")
    assert found.algorithms == tuple(names)
    assert found.time_ns[0, 0] != found.time_ns[1, 0]


def test_what_cannot_run_is_listed_with_its_reason() -> None:
    found = chunkscope.compare("all_gather", 6, "ring", sizes="1KiB,2KiB")
    reasons = {out.algorithm: out.reason for out in found.left_out}
    assert "does not fit 6 ranks" in reasons["recursive_doubling"]
    known = {entry.name for entry in chunkscope.algorithms("all_gather")}
    assert known == {*found.algorithms, *reasons}
    switches = chunkscope.compare("all_reduce", 4, "ring", ["ring", "sharp"], sizes="1KiB")
    assert "no node of" in switches.left_out[0].reason
    assert "sharp: helper 'switch'" in left_out(switches)[0]


def test_a_size_that_does_not_fit_is_left_out_alone() -> None:
    fixed = chunkscope.build("all_reduce", "gloo", 4, size_bytes=4096, itemsize=4)
    found = chunkscope.compare("all_reduce", 4, "ring", [fixed, "ring"], sizes="1KiB,4KiB")
    assert np.isnan(found.time_ns[0]).tolist() == [True, False]
    (out,) = found.left_out
    assert out.size_bytes == (1024,)
    assert len(found.to_csv().splitlines()) == 1 + 3
    as_json: Any = found.to_dict()
    assert as_json["algorithms"]["gloo"]["time_ns"][0] is None


@pytest.mark.parametrize(("ranks", "most"), [(64, 8000), (1024, 1_000_000)])
def test_plans_that_are_too_large_are_left_out_unbuilt(ranks: int, most: int) -> None:
    found = chunkscope.compare(
        "all_reduce", ranks, "star", ["ring", "tree"], sizes="1MiB", most_transfers=most
    )
    (out,) = found.left_out
    assert out.algorithm == "ring"
    assert "more than the limit" in out.reason


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"algorithms": ["rink"]}, "did you mean 'ring'"),
        ({"algorithms": ["ring:segments=2"]}, "takes no 'segments'"),
        ({"algorithms": ["sharp"], "topology": "ring"}, "no algorithm of all_reduce"),
        ({"sizes": []}, "at least one"),
        ({"sizes": [4, 0]}, "1 byte or more"),
        ({"dtype": "float31"}, "unknown dtype"),
        ({"algorithms": [chunkscope.build("all_gather", "ring", 4)]}, "expected all_reduce"),
        ({"algorithms": [chunkscope.build("all_reduce", "ring", 3)]}, "group size is 3"),
        ({"policy": "eager"}, "unknown policy"),
    ],
)
def test_wrong_words_are_errors(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        chunkscope.compare("all_reduce", 4, **words)


def test_a_topology_of_another_size_is_an_error() -> None:
    with pytest.raises(TopologyError, match="4 ranks, expected 8"):
        chunkscope.compare("all_reduce", 8, chunkscope.topology("ring", 4))


# What it says


def test_words(found: Comparison) -> None:
    spans = reigns(found)
    assert spans[0].first_bytes == 1024
    assert spans[-1].last_bytes == 1 << 30
    assert all(a.last_bytes == b.first_bytes for a, b in pairwise(spans))
    assert all(f"{span.algorithm} " in answer(found) for span in spans)
    table = best(found)
    assert len(table.rows) == 21
    assert table.rows[-1][0] == "1 GiB"
    assert [row[1].split(" ")[0] for row in table.rows] == list(found.winners)
    all_times = everything(found)
    assert sum(len(part.header) - 1 for part in all_times) == 21
    assert [row[0] for row in all_times[0].rows] == [*found.algorithms, "lower bound"]


def test_csv_and_json_hold_every_time(found: Comparison) -> None:
    lines = list(csv.DictReader(found.to_csv().splitlines()))
    assert len(lines) == len(CHOSEN) * 21
    assert [line["algorithm"] for line in lines if line["winner"] == "1"] == list(found.winners)
    facts = json.loads(found.to_json())
    assert facts["size_bytes"] == found.size_bytes.tolist()
    assert facts["model"]["topology"] == "star:10GB/s,1us"
    for name, times in zip(found.algorithms, found.time_ns):
        assert facts["algorithms"][name]["time_ns"] == times.tolist()


def test_a_size_outside_has_no_winner(found: Comparison) -> None:
    with pytest.raises(ScheduleError, match="expected 1 KiB to 1 GiB"):
        found.winner(16)


# Executors

SMALL: dict[str, Any] = {"algorithms": ["ring", "tree", own], "sizes": "1KiB:1MiB:x4"}


def assert_same(one: Comparison, other: Comparison) -> None:
    assert one.to_json() == other.to_json()


def test_a_process_pool_finds_the_same() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert_same(
            chunkscope.compare("all_reduce", 8, executor=pool, **SMALL),
            chunkscope.compare("all_reduce", 8, **SMALL),
        )


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_dasks_local_cluster_finds_the_same() -> None:
    distributed = pytest.importorskip(
        "distributed", reason="Dask is not installed: pip install distributed"
    )
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor = client.get_executor(pure=False)
        assert_same(
            chunkscope.compare("all_reduce", 8, executor=executor, **SMALL),
            chunkscope.compare("all_reduce", 8, **SMALL),
        )


class Here(Executor):
    """Runs what is submitted at once, and notes it."""

    def __init__(self) -> None:
        self.submitted: list[Any] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.submitted.append(args[0])
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_work_is_cut_into_pieces_of_one_algorithm() -> None:
    executor, told = Here(), []
    chunkscope.compare(
        "all_reduce", 4, algorithms=["ring", "tree"], executor=executor,
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    first = executor.submitted[:6]
    assert [(piece.plan.name, len(piece.sizes)) for piece in first] == [
        ("ring", 8), ("ring", 8), ("ring", 5), ("tree", 8), ("tree", 8), ("tree", 5),
    ]  # fmt: skip
    assert {total for _, total in told[:6]} == {42}
    assert told[5] == (42, 42)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == told[-1][1]  # the bounds and crossovers have added theirs
