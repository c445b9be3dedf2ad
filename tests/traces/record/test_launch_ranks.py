"""`run_recorded(..., ranks=n)`: ranks that start, speak, fail and stop together."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import chunkscope
from chunkscope.errors import RecorderError
from chunkscope.traces.record import children
from chunkscope.traces.record.children import Child, collected_signals, follow
from chunkscope.traces.record.launch import run_recorded

LIMIT_S = 90
RUN = "import sys; from pathlib import Path; from chunkscope.traces.record.launch import "
RUN += "run_recorded; sys.exit(run_recorded(sys.argv[3:], Path(sys.argv[1]), ranks=int(sys.argv[2])"
RUN += ", say=lambda text: print(text, file=sys.stderr)))"


def shell(folder: Path, text: str, ranks: int, **more: Any) -> int:
    """Run a shell script as ranks, in this process."""
    return run_recorded(["--", "sh", "-c", text], folder / "run", ranks=ranks, **more)


def exits(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the exit records of the launcher's file, by rank."""
    (path,) = (folder / "run").glob("launcher-*.rec.jsonl")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert records[-1]["r"] == "close"
    return {record["rank"]: record for record in records if record["r"] == "exit"}


@contextlib.contextmanager
def running(folder: Path, ranks: int, *argv: str, **options: Any) -> Iterator[Any]:
    """Start a launcher of its own session; it and what it started are killed at the end."""
    launcher = subprocess.Popen(
        [sys.executable, "-c", RUN, str(folder), str(ranks), *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **{"stdin": subprocess.DEVNULL, **options},
    )
    try:
        yield launcher
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGKILL)
        launcher.communicate()


def test_lines_carry_their_rank_and_stay_on_their_stream(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert shell(tmp_path, 'echo "ü one"; echo two >&2; printf rest-$RANK', ranks=2) == 0
    out, err = capfd.readouterr()
    for rank in (0, 1):
        own = [line for line in out.splitlines() if line.startswith(f"[rank {rank}] ")]
        assert own == [f"[rank {rank}] ü one", f"[rank {rank}] rest-{rank}"]
    assert sorted(err.splitlines()) == ["[rank 0] two", "[rank 1] two"]


def test_ranks_find_each_other_by_the_environment(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT"
    text = "; ".join(f"echo {name}=${name}" for name in names.split())
    assert shell(tmp_path, text, ranks=3) == 0
    found: dict[str, dict[str, str]] = {}
    for line in capfd.readouterr().out.splitlines():
        prefix, _, said = line.partition("] ")
        name, _, value = said.partition("=")
        found.setdefault(prefix[-1], {})[name] = value
    ports = {variables.pop("MASTER_PORT") for variables in found.values()}
    assert len(ports) == 1
    assert int(ports.pop()) > 1023
    same = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1"}
    assert found == {str(k): {"RANK": str(k), "LOCAL_RANK": str(k), **same} for k in range(3)}


def test_when_one_fails_the_others_are_stopped_and_its_code_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "FOLLOW_S", 0.2)
    said: list[str] = []
    text = "test $RANK = 1 && exit 3; exec sleep 60"
    assert shell(tmp_path, text, ranks=3, say=said.append) == 3
    assert said == ["a rank has failed: stopping ranks 0, 2"]
    ends = exits(tmp_path)
    assert ends[1]["code"] == 3
    assert ends[0]["signal"] == ends[2]["signal"] == signal.SIGTERM


def test_a_rank_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "FOLLOW_S", 2.0)
    monkeypatch.setattr(children, "GRACE_S", 0.2)
    text = "trap '' TERM; test $RANK = 1 && sleep 0.2 && kill -9 $$; exec sleep 60"
    assert shell(tmp_path, text, ranks=2) == 128 + signal.SIGKILL
    assert exits(tmp_path)[0]["signal"] == signal.SIGKILL


def test_the_others_may_fail_by_themselves_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(children, "FOLLOW_S", 60.0)
    text = "test $RANK = 1 && exit 3; sleep 0.3; echo why; exit 5"
    assert shell(tmp_path, text, ranks=2) == 3
    assert exits(tmp_path)[0]["code"] == 5
    assert capfd.readouterr().out == "[rank 0] why\n"


def test_a_process_left_behind_does_not_hold_the_launcher(tmp_path: Path) -> None:
    start = time.monotonic()
    assert shell(tmp_path, "sleep 30 & exit 0", ranks=1) == 0
    assert time.monotonic() - start < 20


def test_input_goes_to_rank_0(tmp_path: Path) -> None:
    with running(tmp_path / "run", 2, "--", "cat", stdin=subprocess.PIPE) as launcher:
        out, _ = launcher.communicate("hello\n", timeout=LIMIT_S)
    assert out == "[rank 0] hello\n"


def test_output_is_seen_while_the_ranks_run(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import time\nprint('ready')\nwhile True: time.sleep(0.1)\n")
    with running(tmp_path / "run", 2, str(program)) as launcher:
        lines = {launcher.stdout.readline() for _ in range(2)}
        assert lines == {"[rank 0] ready\n", "[rank 1] ready\n"}


COUNTS = """
    import signal, time
    seen = []
    signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    print("ready")
    while not seen:
        time.sleep(0.05)
    time.sleep(0.7)  # time for a second one
    print("seen", len(seen))
    raise SystemExit(130)
"""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_ctrl_c_reaches_each_rank_once(is_terminal: bool, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(COUNTS))
    keyboard, terminal = pty.openpty()
    options: dict[str, Any] = {}
    if is_terminal:
        options["stdin"] = terminal
        options["preexec_fn"] = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    try:
        with running(tmp_path / "run", 2, str(program), **options) as launcher:
            for _ in range(2):
                assert launcher.stdout.readline().endswith("ready\n")
            if is_terminal:
                os.write(keyboard, b"\x03")
            else:
                launcher.send_signal(signal.SIGINT)
            out, err = launcher.communicate(timeout=LIMIT_S)
        assert sorted(out.splitlines()) == ["[rank 0] seen 1", "[rank 1] seen 1"]
        assert launcher.returncode == 130, err
    finally:
        os.close(keyboard)
        os.close(terminal)


def test_a_signal_that_comes_before_the_wait_is_passed_on() -> None:
    with collected_signals() as signals:
        child = Child(subprocess.Popen(["sleep", "60"]))
        os.kill(os.getpid(), signal.SIGTERM)
        assert follow([child], signals) == -signal.SIGTERM


def test_the_end_is_seen_where_processes_have_no_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    assert follow([Child(subprocess.Popen(["sh", "-c", "exit 4"]))], None) == 4


def test_what_cannot_be_run_leaves_the_folder_free(tmp_path: Path) -> None:
    for argv, ranks in ((["--", "no-such-command-here"], 2), (["--", "true"], 0)):
        with pytest.raises(RecorderError):
            run_recorded(argv, tmp_path / "run", ranks=ranks)
    assert shell(tmp_path, "true", ranks=2) == 0


ORPHANS = """
    import os, time
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    mine = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(mine)
    print("ready", os.getpid())
    for _ in range(600):
        time.sleep(0.1)
        print("still here")
"""


@pytest.mark.ranks
def test_what_was_recorded_opens_after_the_launcher_was_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(ORPHANS))
    with running(tmp_path / "run", 2, str(program)) as launcher:
        pids = []
        while len(pids) < 2:
            words = launcher.stdout.readline().split()
            assert words, launcher.stderr.read()
            pids += [int(words[3])] * (words[2] == "ready")
        launcher.kill()
        launcher.wait()
        # Nobody reads what they print: they end as a program whose pipe is closed does.
        deadline = time.monotonic() + LIMIT_S
        while any(Path(f"/proc/{pid}").exists() for pid in pids):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    trace = chunkscope.read(tmp_path / "run")
    assert {process.pid for process in trace.meta.processes} == set(pids)
    assert {process.exit_code for process in trace.meta.processes} == {None}
    for rank in (0, 1):
        (row,) = trace.where(rank=rank, collective="all_reduce", status="ok")
        after = trace.values(int(trace.states_of(int(row), when="after")[0]))
        assert after is not None
        assert after.tolist() == [3.0]
