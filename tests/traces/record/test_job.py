"""What names a job alike on all its hosts, and who may write into its folder."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from chunkscope.errors import RecorderError
from chunkscope.traces.record.folder import claim_new, host_name
from chunkscope.traces.record.job import job_id

TORCHRUN = ["torchrun", "--nnodes=2"]


@pytest.mark.parametrize(
    ("command", "environ", "expected"),
    [
        (["python", "x.py"], {}, None),
        (["python", "x.py"], {"CHUNKSCOPE_RUN": "mine", "SLURM_JOB_ID": "1"}, "mine"),
        ([*TORCHRUN, "--rdzv-id", "7", "--rdzv-endpoint=a:1", "x.py"], {}, "torchrun-7"),
        ([*TORCHRUN, "--rdzv_id=7"], {}, "torchrun-7"),
        ([*TORCHRUN, "--rdzv-endpoint=a:1", "x.py"], {}, "a:1"),
        ([*TORCHRUN, "--rdzv-endpoint=localhost:0", "x.py"], {}, None),
        ([*TORCHRUN, "--master_addr=a", "--master-port", "2", "x.py"], {}, "a:2"),
        (TORCHRUN, {"PET_RDZV_ID": "none", "PET_RDZV_ENDPOINT": "a:3"}, "a:3"),
        (["x"], {"SLURM_JOB_ID": "5", "SLURM_PROCID": "0", "SLURM_STEP_ID": "2"}, "slurm-5.2.0"),
        (["x"], {"SLURM_JOB_ID": "5"}, None),  # an interactive allocation, not a step of it
        (["x"], {"MASTER_ADDR": "a", "MASTER_PORT": "4"}, "a:4"),
        (["x"], {"MASTER_ADDR": "a"}, None),
        (["torchrun", "--rdzv-id"], {}, None),
    ],
)
def test_job_id(command: list[str], environ: dict[str, str], expected: str | None) -> None:
    assert job_id(command, environ) == expected


def launcher(folder: Path, host: str, pid: int, *, has_ended: bool) -> None:
    lines = [{"r": "header", "schema_version": 1, "host": host, "pid": pid, "launcher": True}]
    lines += [{"r": "close", "t": 1}] * has_ended
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (folder / f"launcher-{host}-{pid}.rec.jsonl").write_text(text)


def test_second_host_of_a_job_is_let_in_while_the_first_runs(tmp_path: Path) -> None:
    assert claim_new(tmp_path / "run", "job") == "job"
    assert claim_new(tmp_path / "run", "job") == "job"
    launcher(tmp_path / "run", "elsewhere", 1, has_ended=False)
    launcher(tmp_path / "run", "third", 1, has_ended=True)
    assert claim_new(tmp_path / "run", "job") == "job"


def test_another_job_is_refused(tmp_path: Path) -> None:
    claim_new(tmp_path / "run", "job")
    for run in ("other", None):
        with pytest.raises(RecorderError, match=r"another run \(job\)"):
            claim_new(tmp_path / "run", run)


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_earlier_run_with_the_same_id_is_refused(is_killed: bool, tmp_path: Path) -> None:
    claim_new(tmp_path / "run", "host:29500")
    gone = subprocess.Popen(["true"])
    gone.wait()
    launcher(tmp_path / "run", host_name(), gone.pid, has_ended=not is_killed)
    with pytest.raises(RecorderError, match="earlier run of host:29500; name a new folder"):
        claim_new(tmp_path / "run", "host:29500")


def test_an_id_given_by_hand_is_always_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKSCOPE_RUN", "mine")
    claim_new(tmp_path / "run", "mine")
    launcher(tmp_path / "run", "elsewhere", 1, has_ended=True)
    assert claim_new(tmp_path / "run", "mine") == "mine"
