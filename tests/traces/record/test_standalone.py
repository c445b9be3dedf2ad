"""The recorder in an environment that has torch and nothing else: a copied folder is enough."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import chunkscope

pytestmark = pytest.mark.ranks

PROGRAM = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ALLOWED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

ALLOWED = {*sys.stdlib_module_names, *sys.argv[3].split(",")}
for name in list(sys.modules):  # what a .pth file of this environment loaded
    if name.partition(".")[0] not in ALLOWED and name != "__main__":
        del sys.modules[name]
sys.meta_path.insert(0, Nothing())
import chunkscope
assert chunkscope.__file__.startswith(sys.argv[2]), chunkscope.__file__
assert not any(name.startswith("chunkscope.") for name in sys.modules), "loads on demand"
import torch
import torch.distributed as dist

with chunkscope.record(sys.argv[1], stack=2, keep_last=50, max_bytes=10_000):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for dtype in (torch.float32, torch.bfloat16, torch.complex64):
        dist.all_reduce(torch.ones(70_000, dtype=dtype)[::2].contiguous())
        dist.all_reduce(torch.ones(3, dtype=dtype), async_op=True).wait()
    dist.barrier()
    dist.destroy_process_group()
foreign = {name.partition(".")[0] for name in sys.modules} - ALLOWED - {"__main__", "__mp_main__"}
assert not foreign, foreign
"""
# What torch needs, and what comes with it.
_TORCH = "torch,torchgen,functorch,chunkscope,typing_extensions,filelock,sympy,mpmath,jinja2"


def test_recorder_needs_torch_alone(tmp_path: Path) -> None:
    package = Path(chunkscope.__file__).parent
    ignored = shutil.ignore_patterns(".*", "tests", "docs", "build", "shared", "*.egg-info")
    shutil.copytree(package, tmp_path / "lib" / "chunkscope", ignore=ignored)
    arguments = [str(tmp_path / "run"), str(tmp_path / "lib"), _TORCH + ",markupsafe,fsspec"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        timeout=120,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "lib")},
    )
    assert done.returncode == 0, done.stderr
    assert "chunkscope:" not in done.stderr, "no warning of the recorder"
    trace = chunkscope.read(tmp_path / "run")
    kinds = trace.events["kind"].to_list()
    assert (kinds.count("collective"), kinds.count("group")) == (7, 2)
    assert set(trace.events["status"].to_list()) == {"ok"}
