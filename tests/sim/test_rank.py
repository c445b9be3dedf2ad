"""Where a rank of `chunkscope run` computes, and what a machine without a GPU says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from click.testing import CliRunner

from chunkscope.cli import main
from chunkscope.errors import ScheduleError
from chunkscope.sim import rank


def with_gpus(patch: pytest.MonkeyPatch, count: int) -> None:
    patch.setattr(torch.cuda, "device_count", lambda: count)
    patch.setattr(dist, "is_nccl_available", lambda: True)


def test_nccl_without_a_gpu_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(monkeypatch, 0)
    words = ["run", "all_reduce", "-n", "2", "--backend", "nccl", "-o", str(tmp_path / "x")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code != 0
    text = done.output + str(done.exception)
    assert "sees 0 GPUs, expected one or more" in text
    assert "use --backend gloo" in text
    assert not (tmp_path / "x").exists()


def test_two_ranks_on_one_gpu_must_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, 1)
    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    rank.check_backend("nccl", 1)
    with pytest.raises(ScheduleError, match="2 ranks on 1 GPUs"):
        rank.check_backend("nccl", 2)
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    rank.check_backend("nccl", 2)


def test_rank_takes_its_gpu_and_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, 2)
    monkeypatch.setenv("LOCAL_RANK", "3")
    taken: list[torch.device] = []
    made: list[str] = []

    def new_group(backend: str) -> Any:
        made.append(backend)
        return "the group"

    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(dist, "new_group", new_group)
    monkeypatch.setattr(rank, "_gpu_groups", {})
    for _ in range(2):
        assert rank._placed("nccl") == (torch.device("cuda", 1), "the group")
    assert taken == [torch.device("cuda", 1)] * 2
    assert made == ["nccl"]
    assert rank._placed("gloo") == (torch.device("cpu"), None)
