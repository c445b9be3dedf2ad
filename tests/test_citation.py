"""CITATION.cff says what the package says of itself."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import chunkscope

ROOT = Path(__file__).resolve().parents[1]


def test_the_citation_is_of_this_version_under_this_licence() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    said = dict(re.findall(r"^([a-z-]+): (.+)$", text, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert said["cff-version"] == "1.2.0"
    assert said["title"] == project["name"]
    assert said["version"] == chunkscope.__version__
    assert said["license"] == project["license"]
    assert said["type"] == "software"
    authors = re.findall(r"^  - name: (.+)$", text, re.MULTILINE)
    assert [name.lower() for name in authors] == [a["name"].lower() for a in project["authors"]]
