"""Messages of a wire tap, joined to calls and to the schedules that gloo follows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chunkscope.sim.contributors import derive_contributors
from chunkscope.sim.source import open_trace
from chunkscope.sim.wire import annotate, compare, expected
from chunkscope.sim.wire.plans import Asked
from chunkscope.traces.diff import diff
from chunkscope.traces.files import write
from chunkscope.traces.show import summary
from chunkscope.traces.trace import Trace

from .wire_traces import Job, asked

SPLITS = ((0, 2, 1), (3, 1, 0), (1, 1, 4))


def every_call(n: int = 3) -> list[Asked]:
    """One call of each collective, in sizes that divide badly."""
    return [
        asked("all_reduce", n, 1, reduce_op="SUM"),
        asked("all_reduce", n, 7, reduce_op="SUM"),
        asked("broadcast", n, 5, root=1),
        asked("all_gather", n, 4 * n),
        asked("all_gather", n, 3 * n),  # halves of an element
        asked("reduce", n, 9, root=2, reduce_op="SUM"),
        asked("reduce_scatter", n, 5 * n, api="reduce_scatter", reduce_op="SUM", n_inputs=n),
        asked("reduce_scatter", n, 3 * n, api="reduce_scatter_tensor", reduce_op="SUM", n_inputs=1),
        asked("all_to_all", n, 2 * n),
        asked("gather", n, 2 * n, root=0),
        asked("scatter", n, 2 * n, root=1),
        asked("barrier", n, 0, dtype=None),
    ]


def job(*calls: Asked, n: int = 3) -> Job:
    made = Job(n)
    for call in calls or every_call(n):
        made.call(call)
    return made


def sends(trace: Trace) -> Any:
    return trace.where(kind="send", provenance="wire")


def test_every_message_gets_its_place() -> None:
    trace = annotate(job().trace())
    rows = np.concatenate([sends(trace), trace.where(kind="recv", provenance="wire")])
    for name in ("parent", "coll_seq", "collective", "algorithm", "step", "slot", "message"):
        assert trace.events[name].valid[rows].all(), name
    assert trace.meta.notes == ()
    row = int(trace.where(kind="recv", provenance="wire", coll_seq=1, rank=1, step=2)[0])
    found = trace.events.row(row)
    assert {name: found[name] for name in ("collective", "slot", "peer", "reduces", "dtype")} == {
        "collective": "all_reduce",
        "slot": 2,
        "peer": 2,
        "reduces": True,
        "dtype": "float32",
    }
    assert found["reduce_op"] == "SUM"
    parent = trace.events.row(found["parent"])
    assert (parent["kind"], parent["rank"], parent["algorithm"]) == ("collective", 1, "gloo")
    state = int(trace.states_of(row)[0])
    assert trace.states["dtype"][state] == "float32"
    assert trace.values(state).tolist() == [28.0, 30.0]  # ranks 0 and 2, elements 4 and 5


def test_annotating_again_changes_nothing() -> None:
    once = annotate(job().trace())
    assert annotate(once) == once
    plain = Trace.build({"kind": ["send"], "provenance": ["called"]})
    assert annotate(plain) is plain


def test_the_wire_is_what_the_plans_say() -> None:
    found = compare(job().trace())
    assert found.same, found
    assert not [note for note in found.notes if "not kept" in note]


def test_uneven_blocks_are_told_of_by_the_other_ranks() -> None:
    call = asked("all_to_all", 3, 6, splits=SPLITS)
    made = Job(3)
    made.call(call, known=(0, 2))
    trace = annotate(made.trace())
    assert trace.meta.notes == ()
    assert (trace.events["step"].valid[sends(trace)]).all()
    assert compare(trace, values="ignore").same


def test_ranks_without_a_recording() -> None:
    made = Job(3)
    for call in every_call():
        made.call(call, known=(1,))
    trace = annotate(made.trace())
    assert trace.events["step"].valid[sends(trace)].all()
    assert trace.events["parent"].valid[sends(trace)].sum() < len(sends(trace))
    assert compare(trace).same


def test_a_run_that_was_killed_ends_in_the_middle() -> None:
    made = job()
    made.call(asked("all_reduce", 3, 600, reduce_op="SUM"))
    total = len(made.wire)
    trace = annotate(made.trace(lambda wire: wire[: total - 5]))
    assert trace.meta.notes == ()
    assert trace.events["step"].valid[sends(trace)].all()
    found = compare(trace)
    assert found.total == 5
    assert all("is not in B" in one.text for one in found.differences)


def test_calls_that_the_recorder_did_not_know_of() -> None:
    """Calls before the recording, and kinds that were left out, take tags as well."""
    made = Job(3)
    for call in every_call():
        made.call(call, seen=call.collective in ("all_reduce", "reduce", "scatter"))
    made.now += 10_000
    for call in every_call():
        made.call(call, seen=call.collective != "broadcast")
    trace = annotate(made.trace())
    known = trace.events["coll_seq"].valid[sends(trace)]
    assert trace.events["step"].valid[sends(trace)][known].all()
    assert {trace.events["collective"][int(row)] for row in sends(trace)[known]} >= {
        "all_reduce",
        "reduce",
        "scatter",
        "all_to_all",
    }
    (note,) = trace.meta.notes
    assert f"wire: {int((~known).sum())} unmatched messages of the group of ranks 0, 1, 2" in note
    last = trace.where(kind="send", provenance="wire", collective="barrier")
    assert len(last) == 6


def test_messages_of_the_programs_own() -> None:
    made = job(asked("all_reduce", 3, 7, reduce_op="SUM"))
    made.own(0, 1, 0, [1, 2])
    made.own(0, 1, 5, [3])
    made.call(asked("barrier", 3, 0, dtype=None, api="monitored_barrier"))
    made.own(0, 1, 5, [4])
    made.call(asked("all_reduce", 3, 8, reduce_op="SUM"))
    trace = annotate(made.trace())
    assert trace.meta.notes == ()
    own = [int(row) for row in sends(trace) if trace.events["coll_seq"][int(row)] is None]
    cells = [trace.events.row(row) for row in own]
    assert [(one["tag"], one["message"], one["dtype"]) for one in cells] == [
        (0, 0, "float32"),
        (5, 0, "float32"),
        (5, 1, "float32"),
    ]
    assert [trace.events["kind"][one["parent"]] for one in cells] == ["send"] * 3
    monitored = trace.where(kind="send", provenance="wire", algorithm="gloo_monitored")
    assert len(monitored) == 4
    assert compare(trace).same


def test_a_call_that_failed_takes_no_tag() -> None:
    made = job(asked("all_reduce", 3, 7, reduce_op="SUM"))
    tag = made.tag
    made.call(asked("reduce_scatter", 3, 6, api="reduce_scatter", reduce_op="SUM", n_inputs=3))
    made.wire = [one for one in made.wire if (one["slot"] >> 24) & 0xFFFF < tag]
    made.tag = tag
    for row in made.rows:
        if row.get("collective") == "reduce_scatter":
            row["status"] = "error"
    made.call(asked("broadcast", 3, 4, root=0))
    trace = annotate(made.trace())
    assert trace.meta.notes == ()
    assert len(trace.where(kind="send", provenance="wire", collective="broadcast")) == 2


def test_groups_and_attempts_count_for_themselves() -> None:
    made = job(asked("all_reduce", 3, 7, reduce_op="SUM"))
    trace = made.trace()
    # The same job restarted: attempt 1 begins again at tag 0.
    again = {name: trace.events[name].to_list() for name in trace.events.columns}
    events = {name: cells * 2 for name, cells in again.items()}
    n = len(trace)
    events["attempt"] = [0] * n + [1] * n
    events["file"] = again["file"] + [f"{file}-2" for file in again["file"]]
    both = Trace.build(events, None, trace.meta)
    both = annotate(both)
    assert both.events["step"].valid[sends(both)].all()
    for row in sends(both).tolist():
        parent = both.events["parent"][row]
        assert both.events["attempt"][row] == both.events["attempt"][parent]


def test_silence_of_a_group_is_noted() -> None:
    made = Job(3)
    made.call(asked("all_reduce", 3, 7, reduce_op="SUM"))
    made.own(0, 1, 3, [1])
    trace = made.trace(lambda wire: [one for one in wire if one["slot"] >> 56 == 0])
    assert compare(trace).total == len(made.wire) - 1


# What went wrong on the wire is found, and named.


def changed(change: Any) -> tuple[Job, Any]:
    made = job()
    return made, compare(made.trace(change))


def test_a_lost_message_is_found() -> None:
    made, found = changed(lambda wire: [one for k, one in enumerate(wire) if k != 9])
    lost = made.wire[9]
    first = found.first
    assert "all_reduce #1" in first.text
    lone = [d.text for d in found.differences if "is not in B" in d.text]
    assert len(lone) == 1
    assert f"from rank {lost['src']} to rank {lost['dst']}" in lone[0]


def test_a_message_of_another_size_is_found() -> None:
    def longer(wire: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**one, "raw": one["raw"] + bytes(4)} if k == 9 else one for k, one in enumerate(wire)
        ]

    _, found = changed(longer)
    assert "all_reduce #1, step" in found.first.text
    assert "size_bytes of the send" in found.first.text


def test_other_contents_are_found() -> None:
    def other(wire: list[dict[str, Any]]) -> list[dict[str, Any]]:
        raw = np.float32(99).tobytes()
        return [{**one, "raw": raw} if k == 2 else one for k, one in enumerate(wire)]

    made, found = changed(other)
    assert found.total == 2  # at both ends
    assert f"what it sent to rank {made.wire[2]['dst']} differs at 1 of 1 elem" in found.first.text
    assert "99, expected" in found.first.text


def test_a_message_too_many_is_found() -> None:
    made, found = changed(lambda wire: [*wire[:10], wire[9], *wire[10:]])
    twice = made.wire[9]
    lone = [d.text for d in found.differences if "is not in A" in d.text]
    assert len(lone) == 1
    assert f"all_reduce #1: the message from rank {twice['src']} to rank {twice['dst']}" in lone[0]


def test_a_message_of_no_call_is_found() -> None:
    stray = {"src": 0, "dst": 2, "slot": 4 << 56 | 999 << 24, "raw": bytes(12), "t": 10**6}
    _, found = changed(lambda wire: [*wire, stray])
    assert [d.text for d in found.differences] == [
        "the message from rank 0 to rank 2 (12 bytes) is not in A"
    ]


# What follows from it.


def test_contributors_and_words() -> None:
    made = job(asked("all_reduce", 3, 12, reduce_op="SUM"))
    trace = derive_contributors(annotate(made.trace()))
    payloads = {
        tuple(trace.states["contributors"][int(trace.states_of(int(row))[0])])
        for row in sends(trace)
    }
    assert payloads == {(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)}
    called = trace.where(kind="collective", rank=1)
    outputs = trace.states_of(int(called[0]), role="output")
    assert trace.states["contributors"][int(outputs[0])] == [0, 1, 2]
    lines = summary(trace)
    assert "calls: 1 × all_reduce by gloo" in lines
    assert "wire: 24 messages, 192 B: 24 in the calls' plans" in lines


def test_a_file_is_joined_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    write(job().trace(), path)
    trace = open_trace(path)
    assert trace.events["step"].valid[sends(trace)].all()
    write(trace, path)
    assert diff(open_trace(path), trace).same


def test_inputs_can_be_given() -> None:
    trace = annotate(job(asked("all_reduce", 3, 7, reduce_op="SUM")).trace())
    bare = Trace(trace.events, trace.states.take(~trace.states["role"].where("input")), trace.meta)
    assert any("not kept" in note for note in compare(bare).notes)
    found = compare(bare, lambda call: [np.arange(7.0) % 50 + 10 * rank for rank in range(3)])
    assert found.same, found
    wrong = compare(bare, lambda call: [np.zeros(7)] * 3)
    assert "what it sent" in wrong.first.text
    assert len(expected(bare)) == len(bare)


SCRIPT = """
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
pair = dist.new_group([2, 0])

def give(count, dtype=torch.float32):
    return ((torch.arange(count) * 7 + rank * 31) % 23).to(dtype) * 0.5

for count in (1, 7, 3000):
    dist.all_reduce(give(count))
    dist.all_reduce(give(count, torch.bfloat16), dist.ReduceOp.MAX)
    dist.all_reduce(give(count, torch.complex64))
    work = [dist.all_reduce(give(count), async_op=True) for _ in range(4)]
    if rank == 0:
        dist.send(give(count), 1, tag=3)
    if rank == 1:
        dist.recv(torch.empty(count), 0, tag=3)
    for one in work:
        one.wait()
    dist.broadcast(give(count), 1)
    dist.all_gather([torch.empty(count) for _ in range(n)], give(count))
    dist.reduce(give(count, torch.int64), 2)
    dist.reduce_scatter(torch.empty(count), [give(count) for _ in range(n)])
    dist.all_to_all_single(torch.empty(count * n), give(count * n))
    dist.gather(give(count), [torch.empty(count) for _ in range(n)] if rank == 0 else None)
    dist.scatter(torch.empty(count), [give(count) for _ in range(n)] if rank == 0 else None)
    if rank != 1:
        dist.all_reduce(give(count), group=pair)
    dist.barrier()
    dist.monitored_barrier()
dist.all_gather_object([None] * n, {"rank": rank})
dist.destroy_process_group()
"""


@pytest.mark.ranks
def test_a_real_run_is_what_the_plans_say(tmp_path: Path) -> None:
    from chunkscope.traces.record.launch import run_recorded
    from chunkscope.traces.record.options import Options

    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    folder = tmp_path / "run"
    assert sys.executable
    assert run_recorded([str(script)], folder, options=Options(wire="digest"), ranks=3) == 0
    trace = open_trace(folder)
    assert not [note for note in trace.meta.notes if note.startswith("wire")]
    assert len(sends(trace)) > 600
    found = compare(trace)
    assert found.same, found
    assert len(trace.meta.groups) == 2
