"""What `check` says of runs that went wrong: traces made by hand, and what a user would read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chunkscope.traces.check import Code, Report, check
from chunkscope.traces.trace import Clock, Group, Meta, Process, Site, Trace, encode

MS = 1_000_000
TIMED_OUT = "RuntimeError: Timed out waiting 3000ms for recv operation to complete"


class Story:
    """A run under construction: what each rank did, line by line of one `train.py`."""

    def __init__(self, n: int, **meta: Any) -> None:
        self.n = n
        self.rows: list[dict[str, Any]] = []
        self.states: list[dict[str, Any]] = []
        self.groups = [Group(tuple(range(n)), backend=meta.pop("backend", "gloo"))]
        self.endings: dict[int, dict[str, Any]] = meta.pop("endings", {})
        self.without_file: tuple[int, ...] = meta.pop("without_file", ())
        self.meta = meta
        self._counts: dict[Any, int] = {}

    def event(self, rank: int, kind: str, line: int, at_ms: float, **cells: Any) -> int:
        """Add an event of a rank; `took_ms` None has no end."""
        took = cells.pop("took_ms", 1.0)
        group = cells.pop("group", 0)
        status = cells.pop("status", "ok" if took is not None else "begun")
        issue = round(at_ms * MS)
        row = {
            "file": f"rank{rank}",
            "seq": sum(r["rank"] == rank for r in self.rows),
            "kind": kind,
            "provenance": "called",
            "rank": rank,
            "group": group,
            "group_rank": self.groups[group].ranks.index(rank)
            if rank in self.groups[group].ranks
            else None,
            "attempt": 0,
            "site": line,
            "t_issue_ns": issue,
            "t_end_ns": None if took is None else issue + round(took * MS),
            "status": status,
            **cells,
        }
        self.rows.append(row)
        return len(self.rows) - 1

    def call(self, rank: int, name: str, line: int, at_ms: float, **cells: Any) -> int:
        """Add a collective call, of 8 bytes of float32 where nothing else is said."""
        key = ("call", rank, cells.get("group", 0))
        seq = self._counts[key] = self._counts.get(key, -1) + 1
        given = {"size_bytes": 8, "dtype": "float32", "coll_seq": seq, "collective": name, **cells}
        if name in ("all_reduce", "reduce"):
            given.setdefault("reduce_op", "SUM")
        return self.event(rank, "collective", line, at_ms, **given)

    def message(
        self, kind: str, rank: int, peer: int, line: int, at_ms: float, **cells: Any
    ) -> int:
        """Add a send or recv outside of any call."""
        given = {"size_bytes": 8, "dtype": "float32", "tag": 0, "api": kind, **cells}
        src, dst = (rank, peer) if kind == "send" else (peer, rank)
        key = (kind, src, dst, given["tag"])
        number = self._counts[key] = self._counts.get(key, -1) + 1
        given = {**given, "peer": peer, "peer_group_rank": peer, "message": number}
        return self.event(rank, kind, line, at_ms, **given)

    def state(self, row: int, when: str, role: str, values: Any, **cells: Any) -> None:
        """Add a tensor state with its values."""
        given = {"index": 0, "dtype": "float32", "shape": [len(values)], **cells}
        data = encode(values, given["dtype"])
        self.states.append({"event": row, "when": when, "role": role, "data": data, **given})

    def trace(self) -> Trace:
        """Return the trace."""

        def columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
            names = {name: None for row in rows for name in row}
            return {name: [row.get(name) for row in rows] for name in names}

        processes = tuple(
            Process(f"rank{rank}", "host", 100 + rank, rank, **self.endings.get(rank, {}))
            for rank in range(self.n)
            if rank not in self.without_file
        )
        sites = tuple(Site("/home/ada/train.py", line) for line in range(100))
        meta = Meta(
            world_size=self.n,
            groups=tuple(self.groups),
            processes=processes,
            sites=sites,
            **self.meta,
        )
        return Trace.build(columns(self.rows), columns(self.states), meta)

    def check(self, **options: Any) -> Report:
        """Return what check says."""
        return check(self.trace(), **options)


def only(report: Report) -> Any:
    """Return the one finding of a report."""
    assert len(report.findings) == 1, report.to_text()
    return report.findings[0]


def good_run(n: int = 4, calls: int = 3) -> Story:
    story = Story(n)
    for k in range(calls):
        for rank in range(n):
            story.call(rank, "all_reduce", 10 + k, k * 100 + rank, took_ms=50)
    return story


# Nothing wrong


def test_good_run_has_no_problem_and_tells_who_came_last() -> None:
    story = good_run()
    story.call(3, "barrier", 20, 300)
    for rank in range(3):
        story.call(rank, "barrier", 20, 340 + rank)
    report = story.check()
    assert report.ok
    assert not report.findings
    text = report.to_text()
    assert text.startswith("No problem found in 4 collective calls of 4 ranks.")
    assert "rank 3: last 3 times, 3.00 ms in all, 1.00 ms a time" in text
    assert "rank 2: last 1 time" in text


def test_lateness_within_the_clocks_error_tells_nothing() -> None:
    story = good_run(2, 1)
    story.meta["clocks"] = (Clock("rank0", 0, 2 * MS), Clock("rank1", 0, 2 * MS))
    assert story.check().late == ()
    story.meta["clocks"] = (Clock("rank0", 0, 10), Clock("rank1", 0, 10))
    assert story.check().late == (
        "rank 1 came last to all_reduce #0 at train.py:10, 1.00 ms after the rank before it.",
    )


def test_empty_trace_is_no_problem() -> None:
    assert check(Trace.build({})).ok


# Who never came


def test_missing_rank_is_named_with_what_it_did_last_and_where_others_wait() -> None:
    story = good_run(4, 2)
    for rank in (0, 1, 3):
        story.call(rank, "barrier", 34, 1000 + rank, took_ms=3000, status="error", error=TIMED_OUT)
    finding = only(story.check())
    assert finding.code is Code.NEVER_ARRIVED
    assert finding.ranks == (2,)
    assert finding.message == (
        "rank 2 never arrived: ranks 0, 1 and 3 waited 3.00 s in barrier #2 at train.py:34"
    )
    assert finding.look[0].startswith(
        "rank 2 last called all_reduce #1 at train.py:11, which ended 848 ms before the others came"
    )
    assert "ranks 0, 1 and 3 got: RuntimeError: Timed out" in finding.look[1]
    assert not story.check().ok


def test_missing_rank_that_was_killed_or_left_says_how_it_ended() -> None:
    endings = {1: {"signal": 9, "closed": False}, 2: {"exit_code": 3}}
    story = Story(3, endings=endings)
    for rank in range(3):
        story.call(rank, "all_reduce", 10, rank)
    story.call(0, "all_reduce", 11, 100, took_ms=None)
    finding = only(story.check())
    assert finding.ranks == (1, 2)
    assert "killed by signal 9 (SIGKILL)" in finding.look[0]
    assert "exit code 3" in finding.look[1]
    assert "rank 0 has waited" in finding.message


def test_missing_rank_that_is_elsewhere_says_where() -> None:
    story = Story(3)
    story.call(0, "all_reduce", 10, 0, took_ms=None)
    story.call(1, "all_reduce", 10, 1, took_ms=None)
    story.message("recv", 2, 0, 55, 1, took_ms=None)
    report = story.check()
    # Rank 2 waits for rank 0, which waits for rank 2: that is the cause.
    assert report.findings[0].code is Code.DEADLOCK
    assert set(report.findings[0].ranks) == {0, 2}
    assert "rank 2 is in recv from rank 0 at train.py:55, and waits for rank 0" in (
        report.findings[0].look
    )


def test_rank_without_a_file_is_said_to_have_none() -> None:
    story = Story(2, without_file=(1,))
    story.call(0, "barrier", 10, 0, took_ms=None)
    finding = only(story.check())
    assert finding.ranks == (1,)
    assert "rank 1 left no recording" in finding.look[0]


def test_calls_that_a_bounded_recording_dropped_are_not_missed() -> None:
    story = Story(2)
    for seq in range(5):
        story.event(0, "collective", 3, seq, coll_seq=seq, collective="barrier")
        if seq > 2:
            story.event(1, "collective", 3, seq, coll_seq=seq, collective="barrier")
    assert not story.check().findings


def test_call_that_ended_without_a_rank_is_harmless() -> None:
    story = good_run(2, 1)
    story.call(0, "broadcast", 12, 100, root=0)
    report = story.check()
    assert report.ok
    assert only(report).harmless


def test_rank_that_never_reached_init() -> None:
    story = Story(2, without_file=(1,))
    story.event(0, "group", 5, 0, took_ms=None, collective="init_process_group", api="init")
    finding = only(story.check())
    assert finding.code is Code.NEVER_ARRIVED
    assert finding.ranks == (1,)
    assert "in init_process_group of 2 ranks at train.py:5" in finding.message


def test_rank_that_does_not_call_new_group() -> None:
    story = Story(3)
    story.groups.append(Group((0, 1)))
    for rank in (0, 1):
        story.event(rank, "group", 7, 0, took_ms=None, collective="new_group", group=1)
    story.call(2, "barrier", 9, 0, took_ms=None)
    finding = story.check().findings[0]
    assert finding.code is Code.NEVER_ARRIVED
    assert finding.ranks == (2,)
    assert "in new_group of ranks 0 and 1 at train.py:7" in finding.message


def test_groups_made_in_another_order() -> None:
    story = Story(2)
    story.groups += [Group((0,)), Group((1,))]
    for rank, order in ((0, (1, 2)), (1, (2, 1))):
        for k, group in enumerate(order):
            story.event(
                rank, "group", 7, k, group=group, collective="new_group", status="error",
                error=TIMED_OUT,
            )  # fmt: skip
    codes = {finding.code for finding in story.check().findings}
    assert Code.GROUP_ORDER in codes


def test_rank_that_was_killed_inside_a_call_that_all_made() -> None:
    story = Story(2, endings={1: {"signal": 11, "closed": False, "last_ns": 5}})
    story.call(0, "all_reduce", 10, 0, took_ms=9, status="error", error="Connection closed by peer")
    story.call(1, "all_reduce", 10, 1, took_ms=None)
    finding = only(story.check())
    assert finding.code is Code.DIED
    assert finding.message == (
        "rank 1 inside all_reduce #0 at train.py:10: its process was killed by signal 11 (SIGSEGV)"
    )


# What does not match


@pytest.mark.parametrize(
    ("column", "ours", "theirs", "words"),
    [
        ("collective", "all_reduce", "broadcast", "call #0 does not match across ranks: rank 1"),
        ("size_bytes", 8, 12, "has float32, 12 B"),
        ("dtype", "float32", "int32", "has dtype int32"),
        ("reduce_op", "SUM", "MAX", "reduces with MAX"),
        ("root", 0, 2, "has root rank 2"),
    ],
)
def test_the_odd_one_out_is_named(column: str, ours: Any, theirs: Any, words: str) -> None:
    story = Story(3)
    for rank in range(3):
        cells = {"collective": "all_reduce", column: theirs if rank == 1 else ours}
        story.call(rank, cells.pop("collective"), 10 + rank, rank, **cells)
    finding = story.check().findings[0]
    assert finding.code is Code.MISMATCH
    assert finding.ranks == (1,)
    assert words in finding.message
    assert "train.py:11" in finding.message
    assert any("no rank noticed" in line for line in finding.look)


def test_only_the_first_mismatch_of_a_group_is_told() -> None:
    story = Story(2)
    for rank in range(2):
        for k in range(4):
            story.call(rank, "all_reduce", 10, k, size_bytes=8 + 4 * rank * (k > 0))
    finding = only(story.check())
    assert finding.coll_seq == 1
    assert "2 later calls of the group differ too" in finding.look


def test_swapped_calls_are_told_by_their_lines() -> None:
    story = Story(2)
    for rank in range(2):
        for k, line in enumerate((10, 11) if rank == 0 else (11, 10)):
            story.call(rank, "all_reduce", line, k)
    finding = only(story.check())
    assert finding.code is Code.ORDER
    assert "comes in another order on rank 1" in finding.message
    assert "train.py:10" in finding.message
    assert "train.py:11" in finding.message


def test_lines_that_depend_on_the_rank_are_no_other_order() -> None:
    story = Story(2)
    for rank in range(2):
        for k in range(4):
            story.call(rank, "all_reduce", 10 + rank, k)
    assert not story.check().findings


def test_uneven_parts_that_were_meant_are_no_mismatch() -> None:
    story = Story(2)
    for rank in range(2):
        story.call(rank, "reduce_scatter", 10, rank, size_bytes=16 + rank, splits=[1, 3])
    assert not story.check().findings


def test_split_matrix_that_is_not_symmetric() -> None:
    story = Story(2)
    story.call(0, "all_to_all", 10, 0, splits=[2, 2, 2, 2], took_ms=None)
    story.call(1, "all_to_all", 10, 0, splits=[2, 2, 3, 1], took_ms=None)
    finding = only(story.check())
    assert finding.code is Code.SPLITS
    assert "rank 0 sends 2 elements to rank 1" in finding.message
    assert "which expects 3" in finding.message


def test_error_of_a_rank_is_told_with_those_who_wait_for_it() -> None:
    story = Story(2)
    story.call(0, "scatter", 10, 0, status="error", error="RuntimeError: Incorrect input list size")
    story.call(1, "scatter", 10, 0, took_ms=3000, status="error", error=TIMED_OUT)
    finding = only(story.check())
    assert finding.code is Code.ERROR
    assert finding.ranks == (0,)
    assert finding.look == ("rank 1 at train.py:10 waited for it in vain",)


# Messages


def test_message_that_nobody_receives() -> None:
    story = Story(2)
    story.message("send", 0, 1, 10, 0, took_ms=3000, status="error", error=TIMED_OUT)
    story.call(1, "barrier", 12, 0, took_ms=None, group=0)
    report = story.check()
    assert report.findings[0].code is Code.DEADLOCK  # rank 1's barrier waits for rank 0
    story = Story(2)
    story.message("send", 0, 1, 10, 0, took_ms=3000, status="error", error=TIMED_OUT)
    story.message("send", 1, 0, 14, 0)
    story.message("recv", 0, 1, 15, 0)
    finding = only(story.check())
    assert finding.code is Code.NOT_RECEIVED
    assert "send to rank 1 at train.py:10" in finding.message
    assert "nobody receives it" in finding.message


def test_recv_that_nobody_sends_for() -> None:
    story = Story(2)
    story.message("recv", 1, 0, 10, 0, took_ms=None)
    story.message("send", 0, 1, 9, 0, group=0, tag=0, message=5)  # another one: counts differ
    story.rows.pop()
    finding = only(story.check())
    assert finding.code is Code.NOT_SENT
    assert "rank 0 made no call at all" in finding.look[0]


def test_tags_that_differ_are_both_named() -> None:
    story = Story(2)
    story.message("send", 0, 1, 10, 0, tag=7, took_ms=None)
    story.message("recv", 1, 0, 11, 0, tag=8, took_ms=None)
    finding = only(story.check())
    assert finding.code is Code.TAGS
    assert "with tag 7" in finding.message
    assert "with tag 8" in finding.message


def test_nccl_knows_no_tags() -> None:
    story = Story(2, backend="nccl")
    story.message("send", 0, 1, 10, 0, tag=7)
    story.message("recv", 1, 0, 11, 0, tag=8)
    assert not story.check().findings


@pytest.mark.parametrize(
    ("sent", "room", "words"),
    [(12, 8, "4 B longer than the buffer"), (8, 12, "the last 4 B of the buffer keep")],
)
def test_buffer_of_another_size(sent: int, room: int, words: str) -> None:
    story = Story(2)
    story.message("send", 0, 1, 10, 0, size_bytes=sent)
    story.message("recv", 1, 0, 11, 0, size_bytes=room)
    finding = only(story.check())
    assert finding.code is Code.SIZES
    assert words in finding.look[0]
    assert "train.py:10" in finding.message
    assert "train.py:11" in finding.message


def test_bytes_taken_for_another_type() -> None:
    story = Story(2)
    story.message("send", 0, 1, 10, 0)
    story.message("recv", 1, 0, 11, 0, dtype="int32")
    assert only(story.check()).code is Code.DTYPES


def test_send_to_oneself() -> None:
    story = Story(2)
    story.message("send", 0, 0, 10, 0, status="error", error="RuntimeError: bad")
    assert story.check().findings[0].code is Code.SELF_SEND


@pytest.mark.parametrize("n", [2, 5])
def test_circle_of_sends_is_a_deadlock(n: int) -> None:
    story = Story(n)
    for rank in range(n):
        story.message("send", rank, (rank + 1) % n, 10 + rank, rank, took_ms=3000,
                      status="error", error=TIMED_OUT)  # fmt: skip
    finding = only(story.check())
    assert finding.code is Code.DEADLOCK
    assert set(finding.ranks) == set(range(n))
    assert "rank 0 is in send to rank 1 at train.py:10, and waits for rank 1" in finding.look
    assert any("none receives" in line for line in finding.look)


def test_wait_of_an_isend_counts_as_its_send() -> None:
    story = Story(2)
    for rank in range(2):
        sent = story.message(
            "send", rank, 1 - rank, 10, 0, api="isend", is_async=True, took_ms=None
        )
        story.event(rank, "wait", 11, 1, parent=sent, took_ms=None)
    finding = only(story.check())
    assert finding.code is Code.DEADLOCK
    assert "wait() at train.py:11 for isend to rank 1 at train.py:10" in finding.look[0]


def test_isend_that_nobody_waited_for_is_to_blame_for_the_other_end() -> None:
    story = Story(2)
    story.message(
        "send", 0, 1, 10, 0, api="isend", is_async=True, took_ms=None, status="unobserved"
    )
    story.message("recv", 1, 0, 11, 1, took_ms=9, status="error", error="Connection closed by peer")
    finding = only(story.check())
    assert finding.code is Code.NOT_WAITED
    assert not finding.harmless
    assert finding.ranks == (0,)
    assert "so that rank 1 failed in recv from rank 0 at train.py:11" in finding.message


def test_isend_that_arrived_all_the_same_is_harmless() -> None:
    story = Story(2)
    story.message(
        "send", 0, 1, 10, 0, api="isend", is_async=True, took_ms=None, status="unobserved"
    )
    story.message("recv", 1, 0, 11, 1)
    assert story.check().ok
    assert only(story.check()).code is Code.NOT_WAITED


# Tensors


def test_outputs_in_the_same_memory() -> None:
    story = Story(1)
    row = story.call(0, "all_gather", 10, 0)
    for index in range(2):
        story.state(row, "after", "output", [6.0], index=index, storage=3, offset=0)
    assert only(story.check()).code is Code.ALIASED
    story.states[1]["offset"] = 1
    assert not story.check().findings


def broadcast(got: list[float], strides: list[int] | None) -> Story:
    story = Story(2)
    for rank, after in ((0, [0.0, 10.0]), (1, got)):
        row = story.call(rank, "broadcast", 10, rank, root=0)
        story.state(row, "before", "input", [10.0 * rank, 10.0], strides=strides)
        story.state(row, "after", "output", after, strides=strides)
    return story


def test_view_that_was_filled_wrongly_is_shown_with_its_strides() -> None:
    finding = only(broadcast([0.0, 11.0], [2]).check())
    assert finding.code is Code.WRONG_RESULT
    assert finding.ranks == (1,)
    assert "the result is [0, 11], but the inputs make it [0, 10]" in finding.message
    assert "a view with strides [2]" in finding.look[0]


def test_view_that_was_filled_rightly_is_no_finding() -> None:
    assert not broadcast([0.0, 10.0], [2]).check().findings


def test_what_other_ranks_hold_after_a_gather_or_reduce_is_no_result() -> None:
    for name in ("reduce", "gather"):
        story = Story(2)
        for rank in range(2):
            row = story.call(rank, name, 10, rank, root=0)
            story.state(row, "before", "input", [1.0 + rank])
            values = [[1.0], [2.0]] if rank == 0 and name == "gather" else [[3.0]]
            for index, each in enumerate(values):
                story.state(row, "after", "output", each, index=index)
        assert not story.check().findings


def test_equal_size_and_other_shape_is_worth_a_look() -> None:
    story = Story(2)
    for rank, shape in ((0, [2, 3]), (1, [3, 2])):
        row = story.call(rank, "all_reduce", 10, rank)
        story.state(row, "before", "input", [0.0] * 6, shape=shape)
    report = story.check()
    assert report.ok
    assert only(report).code is Code.SHAPES
    assert "Worth a look, and likely harmless" in report.to_text()


# Output


def test_json_has_what_the_text_has() -> None:
    story = Story(2)
    story.message("send", 0, 1, 10, 0, tag=7, took_ms=None)
    story.message("recv", 1, 0, 11, 0, tag=8, took_ms=None)
    found = json.loads(story.check().to_json())
    assert found["ok"] is False
    (finding,) = found["findings"]
    assert finding["code"] == "tags"
    assert finding["ranks"] == [0, 1]
    assert finding["message"] in story.check().to_text()


def test_the_cause_comes_first_and_many_findings_are_counted() -> None:
    story = Story(2)
    for k in range(15):
        story.message("send", 0, 1, 10 + k, 100 - k, size_bytes=4)
        story.message("recv", 1, 0, 40 + k, 100 - k)
    report = story.check()
    times = [finding.t_ns for finding in report.findings]
    assert times == sorted(times)
    assert "15 problems found" in report.to_text()
    assert "and 5 more problems" in report.to_text()
