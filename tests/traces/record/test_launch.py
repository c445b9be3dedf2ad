"""`run_recorded` on programs that know nothing of it: what they do stays what it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chunkscope
from chunkscope.errors import RecorderError
from chunkscope.traces.record.launch import command_of, environment_of, run_recorded
from chunkscope.traces.trace import Trace

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT_S = 90

RUN = "import sys; from pathlib import Path; from chunkscope.traces.record.launch import "
RUN += "run_recorded; sys.exit(run_recorded(sys.argv[2:], Path(sys.argv[1])))"


def launch(folder: Path, *argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program under the launcher, with a time limit."""
    return subprocess.run(
        [sys.executable, "-c", RUN, str(folder), *argv],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        **options,
    )


def script(folder: Path, text: str) -> str:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


def values(trace: Trace, rank: int, collective: str, **cells: Any) -> list[Any]:
    """Return [before, after] of each call of a rank, flat."""
    found = []
    for row in trace.where(rank=rank, collective=collective, **cells):
        states = [trace.values(int(state)) for state in trace.states_of(int(row))]
        assert all(state is not None for state in states)
        found.append([np.ravel(state).tolist() for state in states if state is not None])
    return found


@pytest.mark.ranks
def test_lesson_all_reduce(tmp_path: Path) -> None:
    done = launch(tmp_path / "run", str(EXAMPLES / "lesson_all_reduce.py"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "reduced values: [3.0, 3.0]" in done.stdout
    assert "both ranks hold the sum: True" in done.stdout
    trace = chunkscope.read(tmp_path / "run")
    assert trace.meta.world_size == 2
    assert trace.meta.notes == ()
    assert values(trace, 0, "all_reduce") == [[[1.0], [3.0]]]
    assert values(trace, 1, "all_reduce") == [[[2.0], [3.0]]]
    assert values(trace, 1, "all_gather") == [[[3.0], [3.0], [3.0]]]
    calls = [(call.collective, call.coll_seq) for call in trace.calls()]
    assert calls == [("all_reduce", 0), ("all_gather", 1)]
    row = int(trace.where(rank=1, collective="all_reduce")[0])
    site = trace.meta.sites[trace.events["site"][row]]
    assert Path(site.file).name == "lesson_all_reduce.py"
    assert "dist.all_reduce(mine" in site.source[1]
    assert trace.events["api"][row] == "all_reduce"
    groups = [trace.events["collective"][int(row)] for row in trace.where(kind="group", rank=0)]
    assert groups == ["init_process_group", "destroy_process_group"]


@pytest.mark.ranks
def test_lesson_broadcast(tmp_path: Path) -> None:
    done = launch(tmp_path / "run", str(EXAMPLES / "lesson_broadcast.py"))
    assert done.returncode == 0, done.stderr
    trace = chunkscope.read(tmp_path / "run")
    for rank, before in ((0, 123.0), (1, 0.0), (2, 0.0)):
        assert values(trace, rank, "broadcast") == [[[before], [123.0]]]
        assert values(trace, rank, "all_reduce", reduce_op="SUM") == [[[float(rank)], [3.0]]]
        assert values(trace, rank, "all_reduce", reduce_op="MAX") == [[[float(rank)], [2.0]]]
        for line in (f"rank {rank} before broadcast: {before:g}", f"rank {rank} after the sum: 3"):
            assert line in done.stdout


RANK = """
    import os, sys, tempfile, time
    import torch, torch.distributed as dist
    def work(rank, store, world=2):
        dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world)
        mine = torch.tensor([float(rank + 1)])
        dist.all_reduce(mine)
        return mine
"""

FORKS = """
    import multiprocessing
    if __name__ == "__main__":
        store = tempfile.mkdtemp()
        for method in ("fork", "forkserver"):
            context = multiprocessing.get_context(method)
            ranks = [context.Process(target=work, args=(k, store + "/" + method)) for k in (0, 1)]
            [rank.start() for rank in ranks]
            [rank.join() for rank in ranks]
            assert [rank.exitcode for rank in ranks] == [0, 0]
"""


@pytest.mark.ranks
def test_forked_children_write_files_of_their_own(tmp_path: Path) -> None:
    done = launch(tmp_path / "run", script(tmp_path, RANK + FORKS), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    trace = chunkscope.read(tmp_path / "run")
    assert sorted(str(p.rank) for p in trace.meta.processes) == ["0", "0", "1", "1"]
    assert all(process.closed for process in trace.meta.processes)
    assert values(trace, 0, "all_reduce") == [[[1.0], [3.0]]] * 2


MODULE = """
    import runpy, subprocess
    if __name__ == "__main__" and len(sys.argv) > 1:
        work(int(sys.argv[1]), sys.argv[2])
        sys.stdout.write(f"{__name__} {sys.argv[1]} {'customised' in os.environ}\\n")
    elif __name__ == "__main__":
        store = tempfile.mkdtemp() + "/store"
        command = [sys.executable, "-m", "program"]
        ranks = [subprocess.Popen([*command, str(k), store]) for k in (0, 1)]
        sys.exit(max(rank.wait() for rank in ranks))
"""


@pytest.mark.ranks
def test_module_its_subprocesses_and_a_hidden_sitecustomize(tmp_path: Path) -> None:
    script(tmp_path, RANK + MODULE)
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['customised'] = 'yes'\n")
    done = launch(
        tmp_path / "run",
        "-m",
        "program",
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["__main__ 0 True", "__main__ 1 True"]
    trace = chunkscope.read(tmp_path / "run")
    assert values(trace, 1, "all_reduce") == [[[2.0], [3.0]]]
    assert len(trace.meta.processes) == 2  # the parent used no torch.distributed


ENDS = """
    import multiprocessing, signal
    def end(rank, store, how):
        mine = work(rank, store)
        if rank == 0:
            if how == "os._exit":
                os._exit(3)
            if how == "SIGKILL":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ZeroDivisionError("the program's own")
        try:
            dist.all_reduce(mine)
        except RuntimeError:
            sys.exit(5)
        sys.exit(6)
    if __name__ == "__main__":
        context = multiprocessing.get_context("fork")
        codes = []
        for how in ("os._exit", "SIGKILL", "raise"):
            store = tempfile.mkdtemp() + "/store"
            ranks = [context.Process(target=end, args=(k, store, how)) for k in (0, 1)]
            [rank.start() for rank in ranks]
            [rank.join() for rank in ranks]
            codes += [rank.exitcode for rank in ranks]
        print(codes)
        sys.exit(17)
"""


@pytest.mark.ranks
def test_what_happened_before_an_end_is_there_and_ends_stay_what_they_were(tmp_path: Path) -> None:
    program = script(tmp_path, RANK + ENDS)
    bare = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=LIMIT_S
    )
    done = launch(tmp_path / "run", program)
    assert done.stdout == bare.stdout == "[3, 5, -9, 5, 1, 5]\n"
    assert done.returncode == bare.returncode == 17
    trace = chunkscope.read(tmp_path / "run")
    assert len(trace.meta.processes) == 6
    assert [process.closed for process in trace.meta.processes if process.rank == 0] == [
        False,
        False,
        True,
    ]
    assert values(trace, 0, "all_reduce") == [[[1.0], [3.0]]] * 3
    failed = trace.where(rank=1, status="error")
    assert len(failed) == 3
    assert "RuntimeError: " in trace.events["error"][int(failed[0])]


HANGS = """
    if __name__ == "__main__":
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        dist.all_reduce(torch.ones(1))
        try:
            print("ready", flush=True)
            for _ in range(600):  # a signal just before a long sleep would be seen only after it
                time.sleep(0.1)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            raise
"""


@pytest.mark.ranks
def test_ctrl_c_reaches_the_program_once_and_keeps_what_was_recorded(tmp_path: Path) -> None:
    program = script(tmp_path, RANK + HANGS)
    running = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path / "run"), program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        output, errors = running.communicate(timeout=LIMIT_S)
    finally:
        running.kill()
        running.wait()
    assert output == "interrupted\n"
    assert errors.count("KeyboardInterrupt") == 1
    assert running.returncode == 130
    trace = chunkscope.read(tmp_path / "run")
    (process,) = trace.meta.processes
    assert process.closed
    assert (process.exit_code, process.signal) == (None, signal.SIGINT)
    assert values(trace, 0, "all_reduce") == [[[1.0], [1.0]]]


UNWAITED = """
    import multiprocessing
    def leave(rank, store):
        work(rank, store)
        big = torch.ones(1 << 20)
        for _ in range(8):
            dist.all_reduce(big, async_op=True)
        if rank == 1:
            dist.all_reduce(big, async_op=True)  # rank 0 never does
    if __name__ == "__main__":
        context = multiprocessing.get_context("spawn")
        store = tempfile.mkdtemp() + "/store"
        ranks = [context.Process(target=leave, args=(k, store)) for k in (0, 1)]
        [rank.start() for rank in ranks]
        [rank.join() for rank in ranks]
        print([rank.exitcode for rank in ranks])
"""


@pytest.mark.ranks
def test_unfinished_operations_at_the_end_abort_nothing(tmp_path: Path) -> None:
    done = launch(tmp_path / "run", script(tmp_path, RANK + UNWAITED))
    assert done.stdout == "[0, 0]\n", done.stderr
    trace = chunkscope.read(tmp_path / "run")
    last = int(trace.where(rank=1, collective="all_reduce")[-1])
    assert trace.events["status"][last] in ("unobserved", "error")
    ended = trace.where(rank=0, collective="all_reduce", status="ok")
    assert len(ended) == 9


def test_script_that_uses_no_torch_leaves_a_recording_that_says_so(tmp_path: Path) -> None:
    program = script(tmp_path, "import sys; print(sys.argv[1:]); sys.exit(4)")
    done = launch(tmp_path / "run", program, "-a", "--b")
    assert (done.returncode, done.stdout) == (4, "['-a', '--b']\n")
    trace = chunkscope.read(tmp_path / "run")
    assert len(trace) == 0
    assert "nothing was recorded" in trace.meta.notes[0]


def test_command_after_two_dashes(tmp_path: Path) -> None:
    done = launch(tmp_path / "run", "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "nothing to run"),
        (["--"], "a command is missing"),
        (["-m"], "a module is missing"),
        (["nothing.py"], "nothing.py: there is no such script"),
        (["--", "no-such-command-here"], "cannot run no-such-command-here: No such file"),
    ],
)
def test_what_cannot_be_run_is_said(argv: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(RecorderError, match=message):
        run_recorded(argv, tmp_path / "run")


def test_second_run_into_a_folder_is_refused(tmp_path: Path) -> None:
    program = script(tmp_path, "pass")
    assert run_recorded([program], tmp_path / "run") == 0
    with pytest.raises(RecorderError, match="holds the recording of another run"):
        run_recorded([program], tmp_path / "run")


def test_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(RecorderError, match=r"taken.*cannot record into this folder"):
        run_recorded([script(tmp_path, "pass")], tmp_path / "taken" / "run")


def test_environment_keeps_what_was_on_the_path() -> None:
    found = environment_of(Path("run"), "id", base={"PYTHONPATH": "a:b"})
    first, *rest = found["PYTHONPATH"].split(os.pathsep)
    assert (Path(first) / "sitecustomize.py").is_file()
    assert rest == ["a", "b"]
    assert Path(found["CHUNKSCOPE_RECORD"]).is_absolute()


def test_commands() -> None:
    assert command_of(["-m", "pkg", "x"]) == [sys.executable, "-m", "pkg", "x"]
    assert command_of(["--", "torchrun", "a.py"]) == ["torchrun", "a.py"]


ELASTIC = """
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    rank = int(os.environ["RANK"])
    # A store of each attempt's own: torchrun's still holds the addresses of the attempt before.
    mine = work(rank, f"{sys.argv[1]}/store-{attempt}")
    assert mine.item() == 3
    if attempt == 0 and rank == 1:
        sys.exit(3)
    dist.all_reduce(mine)
    dist.destroy_process_group()  # a process that ends with a group may abort, recorded or not
"""


@pytest.mark.ranks
def test_restarts_of_torchrun_are_attempts(tmp_path: Path) -> None:
    program = script(tmp_path, RANK + ELASTIC)
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1")
    words = ("-m", *torchrun, "--monitor-interval=0.1", program, str(tmp_path))
    done = launch(tmp_path / "run", *words)
    assert done.returncode == 0, done.stderr
    trace = chunkscope.read(tmp_path / "run")
    processes = {(process.attempt, process.rank): process for process in trace.meta.processes}
    assert set(processes) == {(0, 0), (0, 1), (1, 0), (1, 1)}
    # The launcher sees torchrun's end alone; that a rank ended in order stands in its own file.
    assert {process.exit_code for process in processes.values()} == {None}
    assert processes[1, 0].closed
    assert processes[1, 1].closed
    assert processes[0, 1].closed  # sys.exit(3) is in order, too
    for attempt, n_calls in ((0, 1), (1, 2)):
        for rank in (0, 1):
            cells = {"attempt": attempt, "rank": rank, "collective": "all_reduce"}
            assert len(trace.where(status="ok", **cells)) == n_calls
    calls = {(call.attempt, call.coll_seq) for call in trace.calls()}
    # Whether rank 0 begins a second one in the first attempt is a race with torchrun's SIGTERM.
    assert calls - {(0, 1)} == {(0, 0), (1, 0), (1, 1)}
