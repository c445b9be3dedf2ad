"""The examples in the docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules_with_examples() -> list[str]:
    return [
        package if file.stem == "__init__" else f"{package}.{file.stem}"
        for package in PACKAGES
        for file in sorted(ROOT.joinpath(*package.split(".")[1:]).glob("*.py"))
        if ">>> " in file.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    for case in finder.find(module, module.__name__):
        output: list[str] = []
        doctest.DocTestRunner(optionflags=FLAGS).run(case, out=output.append)
        assert not output, "".join(output)
