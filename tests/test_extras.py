"""A missing extra names its pip line, and the core goes without all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXTRAS = {
    "record": ["torch", "cloudpickle"],
    "dashboard": ["dash", "dash_mantine_components", "plotly", "flask", "werkzeug"],
    "export": ["skia", "imageio_ffmpeg"],
    "parquet": ["pyarrow"],
    "fonts": ["fontTools", "brotli", "fontpkg", "fontpkg_inter", "fontpkg_jetbrains_mono"],
}
WITHOUT = """
import runpy, sys
for name in {missing!r}:
    sys.modules[name] = None
sys.argv = ["chunkscope", *{arguments!r}]
runpy.run_module("chunkscope", run_name="__main__")
"""


def chunkscope_without(
    missing: list[str], *arguments: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(missing=missing, arguments=arguments)
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("record", ("run", "all_reduce")),
        ("dashboard", ("open", "--no-browser")),
        ("export", ("export", "all_reduce:ring:4", "out.png")),
        ("export", ("export", "all_reduce:ring:4", "out.gif")),
        ("export", ("export", "all_reduce:ring:4", "out.mp4")),
        ("parquet", ("sim", "all_reduce", "-o", "out.parquet")),
    ],
)
def test_missing_extra_names_its_pip_line(
    tmp_path: Path, extra: str, arguments: tuple[str, ...]
) -> None:
    done = chunkscope_without(EXTRAS[extra], *arguments, folder=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"pip install 'chunkscope[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("sim", "all_reduce", "-o", "out.jsonl"),
        ("verify", "all_reduce:ring"),
        ("list",),
        ("export", "all_reduce:ring:4", "out.svg"),
        ("export", "all_reduce:ring:4", "out.html"),
    ],
    ids=" ".join,
)
def test_core_goes_without_extras(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    everything = [name for names in EXTRAS.values() for name in names]
    done = chunkscope_without(everything, *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    written = tmp_path / arguments[-1]
    assert "." not in arguments[-1] or written.stat().st_size > 0
