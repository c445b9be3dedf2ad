"""The hooks in this very process, on one rank: what they see, and that they break nothing."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import chunkscope
from chunkscope.traces.record import current, hooks, start, states, works, writer
from chunkscope.traces.record.ops import plan_of, plans
from chunkscope.traces.trace import Trace


@pytest.fixture
def group() -> Iterator[None]:
    """A gloo group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture(autouse=True)
def _fresh_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_warned", set())


def rows(trace: Trace, **cells: Any) -> list[dict[str, Any]]:
    return [{**trace.events.row(int(row)), "row": int(row)} for row in trace.where(**cells)]


def values(trace: Trace, row: int, when: str) -> list[list[float]]:
    found = [trace.values(int(state)) for state in trace.states_of(row, when=when)]
    return [[] if each is None else np.ravel(each).tolist() for each in found]


def test_nothing_is_left_in_place_afterwards(group: None, tmp_path: Path) -> None:
    before = (dist.init_process_group, dist.destroy_process_group, dist.Work.wait)
    with chunkscope.record(tmp_path / "run"):
        assert dist.Work.wait is not before[2]
        dist.all_reduce(torch.ones(1))
    assert (dist.init_process_group, dist.destroy_process_group, dist.Work.wait) == before
    assert current() is None
    dist.all_reduce(torch.ones(1))
    trace = chunkscope.read(tmp_path / "run")
    assert len(trace.where(kind="collective")) == 1
    assert trace.meta.processes[0].closed


def test_blocks_for_one_folder_are_one_and_others_take_turns(group: None, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with chunkscope.record(a) as outer:
        with chunkscope.record(a) as inner:
            assert inner is outer
            dist.barrier()
        with chunkscope.record(b):
            dist.all_reduce(torch.ones(1))
        dist.barrier()
    assert [r["collective"] for r in rows(chunkscope.read(a))] == ["barrier", "barrier"]
    assert [r["collective"] for r in rows(chunkscope.read(b))] == ["all_reduce"]


def test_second_block_of_a_process_goes_on_counting(group: None, tmp_path: Path) -> None:
    for _ in range(2):
        with chunkscope.record(tmp_path / "run"):
            dist.all_reduce(torch.ones(1))
    trace = chunkscope.read(tmp_path / "run")
    assert trace.events["coll_seq"].to_list() == [0, 1]
    assert len(trace.meta.processes) == 2


def test_silence(group: None, tmp_path: Path) -> None:
    with chunkscope.record(tmp_path / "run") as recorder:
        with recorder.silent():
            dist.all_reduce(torch.ones(1))
        dist.barrier()
    assert [r["collective"] for r in rows(chunkscope.read(tmp_path / "run"))] == ["barrier"]


def test_calls_below_python_are_seen(group: None, tmp_path: Path) -> None:
    pg = dist.group.WORLD
    assert pg is not None
    model = torch.nn.Linear(2, 1)
    with chunkscope.record(tmp_path / "run"):
        pg.allreduce([torch.ones(1)]).wait()
        ddp = DistributedDataParallel(model)
        ddp(torch.ones(1, 2)).sum().backward()
        thread = threading.Thread(target=dist.barrier, name="my thread")
        thread.start()
        thread.join()
    trace = chunkscope.read(tmp_path / "run")
    found = rows(trace, kind="collective")
    assert {r["status"] for r in found} == {"ok"}
    assert found[0]["api"] == "allreduce_"
    apis = [r["api"] for r in found]
    assert "DistributedDataParallel.__init__" in apis
    assert found[-1]["thread"] == "my thread"
    (gradients,) = rows(trace, api="Tensor.backward")
    assert gradients["collective"] == "all_reduce"
    # Parameters in order: the weight's gradient, then the bias's.
    assert values(trace, gradients["row"], "after") == [[1.0, 1.0, 1.0]]
    site = trace.meta.sites[gradients["site"]]
    assert "backward()" in site.source[site.line - site.first_line]
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[1.0, 1.0]]


def test_python_keeps_its_own_work(group: None, tmp_path: Path) -> None:
    with chunkscope.record(tmp_path / "run"):
        work = dist.all_reduce(torch.ones(1), async_op=True)
        assert work is not None
        assert work.get_future().wait()[0].tolist() == [1.0]
        assert work.wait()
        assert work.is_completed()
    trace = chunkscope.read(tmp_path / "run")
    assert [r["kind"] for r in rows(trace)] == ["collective", "wait"]


def test_waiting_for_the_future_is_waiting_for_the_work(
    group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A future lets who waits go before its callbacks run: here they never do.
    tensor = torch.ones(2)
    with chunkscope.record(tmp_path / "run"):
        monkeypatch.setattr(works.Works, "watch", lambda self, event, work: True)
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        work.get_future().wait()
        tensor.fill_(9.0)
        plain = torch.futures.Future[int]()
        plain.set_result(3)
        assert plain.wait() == 3
    trace = chunkscope.read(tmp_path / "run")
    assert values(trace, 0, "after") == [[1.0, 1.0]]


def test_exception_is_the_one_that_torch_raised(group: None, tmp_path: Path) -> None:
    wrong = torch.ones(2, dtype=torch.int16)
    with pytest.raises(RuntimeError) as bare:
        dist.all_reduce(wrong)
    with chunkscope.record(tmp_path / "run"), pytest.raises(RuntimeError) as recorded:
        dist.all_reduce(wrong)
    assert recorded.type is bare.type
    assert str(recorded.value) == str(bare.value)
    (row,) = rows(chunkscope.read(tmp_path / "run"))
    assert (row["status"], row["error"]) == ("error", f"RuntimeError: {bare.value}")


def test_init_that_fails_leaves_a_group_that_began(tmp_path: Path) -> None:
    with chunkscope.record(tmp_path / "run"), pytest.raises(Exception, match="x"):
        dist.init_process_group("x", store=dist.HashStore(), rank=1, world_size=3)
    trace = chunkscope.read(tmp_path / "run")
    (row,) = rows(trace)
    assert (row["kind"], row["collective"], row["status"]) == (
        "group",
        "init_process_group",
        "error",
    )
    assert trace.meta.groups[row["group"]].ranks == (0, 1, 2)
    assert (row["rank"], row["group_rank"]) == (1, 1)
    assert "ranks 0, 2 have no file" in trace.meta.notes[0]


def _broken(*args: Any, **kwargs: Any) -> Any:
    raise ZeroDivisionError("a bug of ours")


@pytest.mark.parametrize(
    ("owner", "name"),
    [(states.States, "list"), (hooks, "_reduce_op"), (hooks.Hooks, "_finish"), (hooks, "_cells")],
)
def test_bug_of_ours_is_one_warning_and_the_program_goes_on(
    owner: Any, name: str, group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = torch.full((2,), 3.0)
    with chunkscope.record(tmp_path / "run"):
        monkeypatch.setattr(owner, name, _broken)
        if owner is hooks.Hooks:
            assert start._hooks is not None
            start._hooks.remove()
            start._hooks.install()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dist.all_reduce(tensor)
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        monkeypatch.undo()
        dist.barrier()
    assert tensor.tolist() == [3.0, 3.0]
    assert len(caught) == 1
    assert "the recorder failed and left out a call (ZeroDivisionError: a bug of ours)" in str(
        caught[0].message
    )
    trace = chunkscope.read(tmp_path / "run")
    assert rows(trace)[-1]["collective"] == "barrier"


def test_bug_of_ours_is_silent_where_warnings_are_errors(
    group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with chunkscope.record(tmp_path / "run"):
        monkeypatch.setattr(hooks, "_reduce_op", _broken)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dist.all_reduce(torch.ones(1))


def _repeat(function: Callable[..., Any], *args: Any, times: int) -> None:
    for _ in range(times):
        function(*args)


def test_full_disk_loses_records_but_not_the_program(
    group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    real = os.write
    room = [700]

    def write(descriptor: int, data: bytes) -> int:
        taken = min(room[0], len(data))
        if not taken:
            raise OSError(28, "No space left on device")
        room[0] -= taken
        return real(descriptor, data[:taken])

    tensor = torch.ones(1)
    with chunkscope.record(tmp_path / "run"):
        monkeypatch.setattr("os.write", write)
        with pytest.warns(RuntimeWarning, match="loses records"):
            _repeat(dist.all_reduce, tensor, times=5)
        room[0] = 10**6  # somebody made room
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        monkeypatch.undo()
    trace = chunkscope.read(tmp_path / "run")
    last = rows(trace)[-1]
    assert (last["collective"], last["reduce_op"], last["status"]) == ("all_reduce", "MAX", "ok")
    notes = "\n".join(trace.meta.notes)
    assert "records could not be written" in notes
    assert "damaged" in notes


@contextmanager
def recording_goes_on(recording: AbstractContextManager[Any]) -> Iterator[None]:
    """Leave a block that was entered by hand."""
    try:
        yield
    finally:
        recording.__exit__(None, None, None)


def test_torch_without_our_hooks_is_recorded_by_its_functions(
    group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks.Hooks, "install", _broken)
    bare = dist.all_reduce
    tensor, parts = torch.full((2,), 3.0), [torch.zeros(2)]
    recording = chunkscope.record(tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="cannot be recorded at its dispatcher") as caught:
        recording.__enter__()
    assert len(caught) == 1
    with recording_goes_on(recording):
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        dist.broadcast(tensor, 0)
        dist.all_gather(parts, tensor)
        with pytest.raises(RuntimeError):
            dist.all_reduce(torch.ones(2, dtype=torch.int16))
        dist.barrier()
    assert dist.all_reduce is bare
    trace = chunkscope.read(tmp_path / "run")
    found = rows(trace)
    assert [r["collective"] for r in found] == [
        "all_reduce",
        "broadcast",
        "all_gather",
        "all_reduce",
        "barrier",
    ]
    assert [r["status"] for r in found] == ["ok", "ok", "ok", "error", "ok"]
    assert (found[0]["reduce_op"], found[1]["root"]) == ("MAX", 0)
    assert values(trace, found[2]["row"], "after") == [[3.0, 3.0]]
    assert Path(trace.meta.sites[found[0]["site"]].file).name == Path(__file__).name


def test_self_test_notices_hooks_that_see_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from chunkscope.traces.record.selftest import problem

    assert problem([]) == 'a call left no "collective":"all_reduce"'


def test_every_operation_with_a_group_has_a_plan() -> None:
    found = plans()
    assert {"allreduce_", "send", "recv_", "barrier", "alltoall_base_"} <= set(found)
    assert found["_reduce_scatter_base_"][0].collective == "reduce_scatter"
    assert found["reduce_"][0].collective == "reduce"
    assert found["recv_any_source_"][0].kind == "recv"


def test_operation_of_a_later_torch_is_understood_by_its_schema() -> None:
    group = "__torch__.torch.classes.c10d.ProcessGroup process_group"
    schema = torch._C.parse_schema(
        f"c10d::gather_into_tensor_(Tensor output_tensor, Tensor input_tensor, {group}, "
        "int root_rank, bool async_op=True) -> __torch__.torch.classes.c10d.Work"
    )
    plan = plan_of("gather_into_tensor_", schema)
    assert (plan.kind, plan.collective) == ("collective", "gather")
    assert (plan.inputs, plan.outputs, plan.work) == ((1,), (0,), -1)
    assert plan.number("async_op", (None, None, None, 2)) is True
    assert plan.number("root_rank", (None, None, None, 2)) == 2


@pytest.fixture
def coalescing(group: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Broadcasts as NCCL coalesces them: they have no Work, and the end of the batch has one."""
    library: Any = torch.library.Library
    fake = library("c10d", "IMPL")
    none: Any = dist.Work.boxed(None)  # what C++ returns for a null pointer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that its own kernel is replaced
        fake.impl("broadcast_", lambda tensors, *_: (tensors, none), "CPU")
    pg = dist.ProcessGroup
    monkeypatch.setattr(pg, "_start_coalescing", lambda *_: None)
    monkeypatch.setattr(
        pg, "_end_coalescing", lambda *_: dist.all_reduce(torch.ones(1), async_op=True)
    )
    yield
    fake._destroy()


def test_coalesced_operations_have_one_batch_and_end_with_it(
    coalescing: None, tmp_path: Path
) -> None:
    pg = dist.group.WORLD
    assert pg is not None
    with chunkscope.record(tmp_path / "run"):
        for _ in range(2):
            manager = dist.distributed_c10d._coalescing_manager(pg, torch.device("cpu"), True)
            with manager as works_:
                for value in (1.0, 2.0):
                    pg.broadcast([torch.full((1,), value)], dist.BroadcastOptions())
            works_.wait()
        dist.barrier()
    trace = chunkscope.read(tmp_path / "run")
    found = rows(trace, collective="broadcast")
    seqs = [r["seq"] for r in found]
    assert [r["batch"] for r in found] == [seqs[0]] * 2 + [seqs[2]] * 2
    assert [r["status"] for r in found] == ["ok"] * 4
    assert [values(trace, r["row"], "after") for r in found] == [[[1.0]], [[2.0]]] * 2
    assert "batch" not in rows(trace, collective="barrier")[0]


def test_destroyed_group_is_gone(group: None, tmp_path: Path) -> None:
    threads = Path("/proc/self/task")
    before = len(list(threads.iterdir()))
    with chunkscope.record(tmp_path / "run"):
        for _ in range(3):
            pg = dist.new_group([0])
            dist.barrier(group=pg)
            dist.destroy_process_group(pg)
            del pg
        assert len(list(threads.iterdir())) == before


def test_work_is_held_no_longer_than_the_program_holds_it(group: None, tmp_path: Path) -> None:
    with chunkscope.record(tmp_path / "run"):
        work = dist.reduce_scatter(torch.zeros(1), [torch.ones(1)], async_op=True)
        assert work is not None
        with pytest.raises(RuntimeError):
            work.get_future()  # gloo's has none: only the program can say when it is over
        ref = weakref.ref(work)
        del work
        assert ref() is None


def test_end_of_the_process_cuts_off_what_is_pending(group: None, tmp_path: Path) -> None:
    future = torch.futures.Future[Any]()

    class Pending:
        """The Work of an operation whose peer never comes."""

    with chunkscope.record(tmp_path / "run") as recorder:
        ends = works.Works(hooks.report)
        ends._get_future = lambda _: future
        event = works.Open(recorder, 0, (), b"output", is_async=True)
        assert ends.watch(event, Pending())
        ends.settle(patience_s=0.0)
        assert not ends._flying
        future.set_result([])
        assert event.is_open
