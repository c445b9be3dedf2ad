"""What a recording says of real calls between ranks: one recording, many questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import chunkscope
from chunkscope.traces.record.ranks import Ranks
from chunkscope.traces.trace import Trace

pytestmark = pytest.mark.ranks

HERE = Path(__file__).name


def program() -> dict[str, Any]:
    """What every rank does; each part uses tensors of its own."""
    rank = dist.get_rank()
    told: dict[str, Any] = {}

    # Asynchronous: waited for, never waited for, waited for twice.
    waited = torch.full((3,), rank + 1.0)
    work = dist.all_reduce(waited, async_op=True)
    work.wait()
    work.wait()
    dist.all_reduce(torch.full((2,), 1.0), async_op=True)

    # Point to point: plain, asynchronous, batched, from anybody.
    token = torch.tensor([7.0 + rank])
    if rank == 0:
        dist.send(token, 1, tag=3)
        dist.send(token, 1, tag=3)
        dist.recv(token)
    else:
        dist.recv(token, 0, tag=3)
        dist.irecv(token, 0, tag=3).wait()
        dist.isend(token, 0).wait()
    told["token"] = token.tolist()
    there, back = torch.tensor([10.0 + rank]), torch.zeros(1)
    for _ in range(2):
        pair = [
            dist.P2POp(dist.isend, there, 1 - rank),
            dist.P2POp(dist.irecv, back, 1 - rank),
        ]
        for request in dist.batch_isend_irecv(pair):
            request.wait()
    told["back"] = back.tolist()

    # Lists, uneven splits, views.
    parts = [torch.tensor([rank * 10.0 + k]) for k in range(2)]
    swapped = [torch.zeros(1) for _ in range(2)]
    dist.all_to_all(swapped, parts)
    uneven = torch.zeros(3 if rank == 0 else 1)
    dist.all_to_all_single(
        uneven,
        torch.arange(2.0) + 10 * rank,
        output_split_sizes=[1, 2] if rank == 0 else [1, 0],
        input_split_sizes=[1, 1] if rank == 0 else [2, 0],
    )
    told["uneven"] = uneven.tolist()
    column = torch.arange(4.0).reshape(2, 2)[:, 1] + rank
    dist.all_reduce(torch.arange(4.0).reshape(2, 2).t() + rank)
    dist.reduce(column, 1, op=dist.ReduceOp.MAX)
    dist.scatter(torch.zeros(1), parts if rank == 1 else None, src=1)
    dist.gather(token, swapped if rank == 0 else None, dst=0)

    # Objects, and an error that the program lives with.
    everyone: list[Any] = [None, None]
    dist.all_gather_object(everyone, {"rank": rank})
    told["everyone"] = everyone
    try:
        dist.all_reduce(torch.ones(2, dtype=torch.int16))
    except RuntimeError as error:
        told["error"] = f"{type(error).__name__}: {error}"

    # Groups: of one, of both again, and used.
    dist.new_group([1])
    both = dist.new_group([0, 1])
    dist.broadcast(token, 1, group=both)
    dist.barrier()
    dist.destroy_process_group(both)
    return told


class Recorded:
    """A trace and what the program saw."""

    def __init__(self, trace: Trace, told: list[dict[str, Any]]) -> None:
        self.trace = trace
        self.told = told

    def rows(self, **cells: Any) -> list[dict[str, Any]]:
        """Return event rows as dicts, in order."""
        return [
            {**self.trace.events.row(int(row)), "row": int(row)}
            for row in self.trace.where(**cells)
        ]

    def values(self, row: int, when: str) -> list[list[float]]:
        """Return the values of an event's states, flat."""
        found = [self.trace.values(int(s)) for s in self.trace.states_of(row, when=when)]
        return [[] if each is None else np.ravel(each).tolist() for each in found]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded") / "run"
    with Ranks(2) as ranks:
        told = ranks.run(program, record=folder, timeout=60)
    return Recorded(chunkscope.read(folder), told)


def test_nothing_went_wrong_in_the_recorder(recorded: Recorded) -> None:
    assert recorded.trace.meta.notes == ()
    assert [p.rank for p in recorded.trace.meta.processes] in ([0, 1], [1, 0])
    assert all(process.closed for process in recorded.trace.meta.processes)


def test_program_saw_the_right_values(recorded: Recorded) -> None:
    zero, one = recorded.told
    assert zero["token"] == [7.0]
    assert one["token"] == [7.0]
    assert (zero["back"], one["back"]) == ([11.0], [10.0])
    assert (zero["uneven"], one["uneven"]) == ([0.0, 10.0, 11.0], [1.0])
    assert zero["everyone"] == [{"rank": 0}, {"rank": 1}]


def test_asynchronous_call_has_its_wait_and_its_true_values(recorded: Recorded) -> None:
    call = recorded.rows(collective="all_reduce", rank=1, is_async=True)[0]
    waits = recorded.rows(kind="wait", parent=call["row"])
    assert len(waits) == 1
    assert waits[0]["rank"] == 1
    assert waits[0]["t_issue_ns"] >= call["t_issue_ns"]
    assert recorded.values(call["row"], "before") == [[2.0, 2.0, 2.0]]
    assert recorded.values(call["row"], "after") == [[3.0, 3.0, 3.0]]


def test_call_nobody_waited_for_is_there(recorded: Recorded) -> None:
    call = recorded.rows(collective="all_reduce", rank=0, is_async=True)[1]
    assert not recorded.rows(kind="wait", parent=call["row"])
    assert call["status"] in ("ok", "unobserved")


def test_messages_are_counted_per_pair_and_tag(recorded: Recorded) -> None:
    sends = recorded.rows(kind="send", rank=0, tag=3)
    recvs = recorded.rows(kind="recv", rank=1, tag=3)
    assert [row["message"] for row in sends] == [0, 1]
    assert [row["message"] for row in recvs] == [0, 1]
    assert [row["is_async"] for row in recvs] == [False, True]
    assert [row["api"] for row in recvs] == ["recv", "irecv"]
    assert recorded.values(sends[0]["row"], "before") == [[7.0]]
    assert recorded.values(recvs[0]["row"], "after") == [[7.0]]
    assert sends[0]["peer"] == 1
    assert recvs[0]["peer"] == 0
    assert "coll_seq" not in sends[0]


def test_receive_from_anybody_names_who_sent(recorded: Recorded) -> None:
    (row,) = recorded.rows(kind="recv", rank=0, tag=0, api="recv")
    assert row["peer"] == 1
    assert recorded.values(row["row"], "after") == [[7.0]]


def test_batches_are_bound_and_told_apart(recorded: Recorded) -> None:
    rows = recorded.rows(api="batch_isend_irecv", rank=0)
    assert [row["kind"] for row in rows] == ["send", "recv", "send", "recv"]
    assert [row["batch"] for row in rows] == [rows[0]["seq"]] * 2 + [rows[2]["seq"]] * 2
    assert recorded.values(rows[3]["row"], "after") == [[11.0]]


def test_lists_and_splits(recorded: Recorded) -> None:
    lists, single = recorded.rows(collective="all_to_all", rank=1)
    assert recorded.values(lists["row"], "before") == [[10.0], [11.0]]
    assert recorded.values(lists["row"], "after") == [[1.0], [11.0]]
    assert "splits" not in lists
    assert single["splits"] == [2, 0, 1, 0]
    assert lists["size_bytes"] == 8


def test_strided_tensors_are_told_truly(recorded: Recorded) -> None:
    call = next(
        row
        for row in recorded.rows(collective="all_reduce", rank=1, is_async=False)
        if row["dtype"] == "float32"
    )
    (before,) = recorded.trace.states_of(call["row"], when="before")
    assert recorded.trace.states["strides"][before] == [1, 2]
    values = recorded.trace.values(int(before))
    assert values is not None
    assert values.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert recorded.values(call["row"], "after") == [[1.0, 5.0, 3.0, 7.0]]


def test_roots_and_whole_sizes(recorded: Recorded) -> None:
    (reduce,) = recorded.rows(collective="reduce", rank=0)
    (scatter,) = recorded.rows(collective="scatter", rank=0)
    (gather,) = recorded.rows(collective="gather", rank=1)
    assert (reduce["root"], reduce["reduce_op"], reduce["size_bytes"]) == (1, "MAX", 8)
    assert (scatter["root"], scatter["size_bytes"]) == (1, 8)
    assert (gather["root"], gather["size_bytes"]) == (0, 8)
    assert recorded.values(scatter["row"], "after") == [[10.0]]


def test_objects_are_their_two_calls_under_the_name_the_user_called(recorded: Recorded) -> None:
    rows = recorded.rows(api="all_gather_object", rank=1)
    assert [row["collective"] for row in rows] == ["all_gather", "all_gather"]
    assert [row["dtype"] for row in rows] == ["int64", "uint8"]


def test_error_is_recorded_and_passed_on_unchanged(recorded: Recorded) -> None:
    (row,) = recorded.rows(status="error", rank=0)
    assert row["error"] == recorded.told[0]["error"]
    assert "t_end_ns" in row


def test_calls_of_a_group_are_counted_in_order(recorded: Recorded) -> None:
    for rank in (0, 1):
        rows = recorded.rows(kind="collective", rank=rank, group=0)
        assert [row["coll_seq"] for row in rows] == list(range(len(rows)))


def test_groups_are_told_apart_by_ranks_and_order(recorded: Recorded) -> None:
    groups = recorded.trace.meta.groups
    assert [(group.ranks, group.ordinal) for group in groups] == [
        ((0, 1), 0),
        ((1,), 0),
        ((0, 1), 1),
    ]
    made = recorded.rows(kind="group", rank=0, collective="new_group")
    assert [row["group"] for row in made] == [1, 2]
    assert "group_rank" not in made[0]
    (gone,) = recorded.rows(kind="group", rank=0, collective="destroy_process_group")
    assert gone["group"] == 2
    (broadcast,) = recorded.rows(collective="broadcast", rank=0)
    assert (broadcast["group"], broadcast["coll_seq"], broadcast["root"]) == (2, 0, 1)


def test_barrier_has_no_state(recorded: Recorded) -> None:
    (row,) = recorded.rows(collective="barrier", rank=0)
    assert row["size_bytes"] == 0
    assert not len(recorded.trace.states_of(row["row"]))


def test_each_call_names_the_users_line(recorded: Recorded) -> None:
    (row,) = recorded.rows(collective="reduce", rank=0)
    site = recorded.trace.meta.sites[row["site"]]
    assert Path(site.file).name == HERE
    assert site.function == "program"
    assert "dist.reduce(column, 1" in site.source[site.line - site.first_line]
    assert len(site.source) == 3
