"""The text form: it round-trips, reads well, and says where it cannot be read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.errors import ScheduleError
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.text import looks_like_schedule, parse, to_text

HEADER = "collective all_reduce\nalgorithm x\ngroup_size 2\ninput 0:2\noutput 0:2\n"


def test_it_reads_well() -> None:
    assert to_text(build("all_reduce", "ring", 2)) == (
        "collective all_reduce\n"
        "algorithm ring\n"
        "group_size 2\n"
        "input 0:2\n"
        "output 0:2\n"
        "0 0  r0[1] +> r1[1]\n"
        "0 0  r1[0] +> r0[0]\n"
        "1 0  r0[0] -> r1[0]\n"
        "1 0  r1[1] -> r0[1]\n"
    )


def test_every_part_of_the_header() -> None:
    rows = [Transfer(0, 3, 0, 3, 0, 4, 2, True), Transfer(1, 3, 3, 1, 4, 2, 2)]
    schedule = Schedule.of(
        "reduce",
        "in_network",
        3,
        rows,
        input=[0, 1],
        output=[[4, 2], [2, 3], [2, 3]],
        scratch=[7],
        root=2,
        window=8,
        helpers=["switch"],
        after=[(1, 0)],
        idempotent=True,
        chunk_elements=[5, 0],
    )
    text = to_text(schedule)
    assert text == (
        "collective reduce\nalgorithm in_network\ngroup_size 3\nroot 2\nwindow 8\nidempotent\n"
        "chunk_elements 5 0\nhelper switch\ninput 0:2\noutput r0 4 2\noutput r1 2:4\n"
        "output r2 2:4\nscratch 7\n0 3  r0[0:2] +> switch[4:6]\n1 3  switch[4:6] -> r1[2:4]\n"
        "after 1 0\n"
    )
    again = parse(text)
    assert to_text(again) == text
    assert again.transfers == schedule.transfers
    assert again == schedule
    assert again.chunk_elements is not None
    assert again.chunk_elements.tolist() == [5, 0]


@pytest.mark.parametrize(
    ("entry", "group_size"),
    [
        pytest.param(entry, n, id=f"{entry.collective}-{entry.name}-{n}")
        for n in (1, 2, 5)
        for entry in algorithms(group_size=n)
    ],
)
def test_every_algorithm_round_trips(entry: Any, group_size: int) -> None:
    schedule = build(entry.collective, entry.name, group_size)
    again = parse(to_text(schedule))
    assert again == schedule
    assert again.transfers == schedule.transfers
    assert (again.root, again.window) == (schedule.root, schedule.window)


transfers = st.builds(
    Transfer,
    step=st.integers(0, 5),
    channel=st.integers(0, 2),
    src=st.integers(0, 3),
    dst=st.integers(0, 3),
    src_slot=st.integers(0, 6),
    dst_slot=st.integers(0, 6),
    n_slots=st.integers(1, 3),
    reduce=st.booleans(),
)


@given(
    st.lists(transfers, max_size=8),
    st.permutations(range(9)),
    st.integers(1, 4),
    st.lists(st.integers(0, 7), max_size=4),
)
def test_any_schedule_round_trips(
    rows: list[Transfer], slots: list[int], window: int, pairs: list[int]
) -> None:
    after = [(k, k) for k in pairs if k < len(rows)]
    schedule = Schedule.of(
        "all_reduce",
        "any",
        3,
        rows,
        input=slots,
        output=slots,
        helpers=["h"],
        window=window,
        after=after,
    )
    again = parse(to_text(schedule))
    assert again.transfers == schedule.transfers
    assert again.after.tolist() == schedule.after.tolist()
    assert again.input == schedule.input
    assert to_text(again) == to_text(schedule)


def test_comments_empty_lines_and_spaces_are_passed_over() -> None:
    schedule = parse(f"# a comment\n\n{HEADER}   1   0   r0[1]  ->  r1[1]   \n\n# end\n")
    assert schedule.transfers == [Transfer(1, 0, 0, 1, 1, 1)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 0 r0[0] => r1[0]", "found `0 0 r0[0] => r1[0]`, expected `STEP CHANNEL  r0[3] -> "),
        ("0 r0[0] -> r1[0]", "expected `STEP CHANNEL  r0[3] -> r1[3]` (+> where it reduces)"),
        ("0 0 r0[0:2] -> r1[0]", "2 slot(s) go into 1, expected as many"),
        ("0 0 r0[2:2] -> r1[0]", "found slots '2:2', expected the second number to be larger"),
        ("0 0 r0[0] -> r2[0]", "found place 'r2', expected r0 to r1"),
        ("0 0 r0[0] -> switch[0]", "found place 'switch', expected r0 to r1"),
        ("99999999999 0 r0[0] -> r1[0]", "found '99999999999', expected a step"),
        ("0 99999 r0[0] -> r1[0]", "channel 99999 is beyond 32767"),
        ("99999999 0 r0[0] -> r1[0]", "step 99999999 is beyond 16777216"),
        ("group_size 999999999", "group_size 999999999 is beyond 65536"),
        ("after 1", "found `after 1`, expected `after ROW EARLIER`"),
        ("after one two", "found 'one', expected `after ROW EARLIER`"),
        ("group_size two", "found 'two', expected a number after `group_size`"),
        ("group_size -2", "found '-2', expected a number after `group_size`"),
        ("collective", "`collective` without a name"),
        ("input 0:2", "`input` is given twice: one line for all ranks, or one a rank"),
        ("input r0 0:2", "`input` is given twice: one line for all ranks, or one a rank"),
        ("scratch 1-3", "found '1-3', expected a slot such as `3` or slots such as `2:4`"),
        ("scratch 0:99999999", "found slots '0:99999999'"),
        ("helper r7", "helper 'r7': expected a new name without spaces, and no rank's"),
        ("send 0 1", "found 'send', expected a transfer or collective, algorithm, group_size"),
    ],
)
def test_a_line_that_cannot_be_read(line: str, message: str) -> None:
    with pytest.raises(ScheduleError) as raised:
        parse(HEADER + line + "\n", file="plans/mine.txt")
    assert str(raised.value).startswith("plans/mine.txt:6: ")
    assert message in str(raised.value)


def test_a_row_that_cannot_be_is_found_by_line() -> None:
    text = HEADER + "1 0  r0[0] -> r1[0]\n0 0  r0[0] -> r1[5]\n"
    with pytest.raises(ScheduleError, match=r"^mine.txt:7: row 0: dst_slot 5 with 1 slot"):
        parse(text, file="mine.txt")


def test_a_header_that_lacks_something() -> None:
    with pytest.raises(ScheduleError, match=r"^x: no line `group_size ...`"):
        parse("collective all_reduce\n", file="x")
    with pytest.raises(ScheduleError, match=r"^x: no line `collective ...`"):
        parse("", file="x")
    with pytest.raises(ScheduleError, match=r"x:2: a transfer before the line `group_size ...`"):
        parse("collective all_reduce\n0 0 r0[0] -> r1[0]", file="x")
    with pytest.raises(ScheduleError, match=r"^x: unknown collective 'allreduce' .did you mean"):
        parse("collective allreduce\ngroup_size 2", file="x")
    with pytest.raises(ScheduleError, match=r"^x: `input r5` is beyond the 2 ranks"):
        parse("collective all_reduce\ngroup_size 2\ninput r5 0\noutput 0", file="x")


def test_a_text_that_would_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkscope.sim.room.memory_bytes", lambda: math.inf)
    text = "collective all_reduce\ngroup_size 65000\ninput 0:100000\noutput 0:100000\n"
    with pytest.raises(ScheduleError, match="x: 6500000000 slots in all are beyond 67108864"):
        parse(text, file="x")


def test_what_looks_like_a_schedule(tmp_path: Path) -> None:
    assert looks_like_schedule(to_text(build("all_reduce", "ring", 2))[:64])
    assert looks_like_schedule("# my plan for\n\ngroup_size")
    assert not looks_like_schedule('{"schema_version": 1}')
    assert not looks_like_schedule("")
