"""What is shipped: the wheel has the packages, the assets and the samples, and no tests."""

from __future__ import annotations

import ast
import configparser
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["setuptools"]["packages"]
NOT_SOURCES = (".*", "build", "dist", "*.egg-info", "__pycache__", "chunkscope-out", "node_modules")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy under another name, so that the checkout stays clean."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "a-clone"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*NOT_SOURCES))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--no-cache-dir", "-w", str(folder), str(source)],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("chunkscope-*.whl"))


@pytest.fixture(scope="module")
def shipped(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def files_under(folder: str) -> set[str]:
    found = (file for file in (ROOT / folder).rglob("*") if file.is_file())
    paths = {file.relative_to(ROOT) for file in found}
    return {f"chunkscope/{path}" for path in paths if "__pycache__" not in path.parts}


def test_wheel_has_every_module(shipped: set[str]) -> None:
    folders = [Path(*package.split(".")[1:]) for package in PACKAGES]
    modules = {f"chunkscope/{f / m.name}" for f in folders for m in (ROOT / f).glob("*.py")}
    assert modules <= shipped, sorted(modules - shipped)


@pytest.mark.parametrize("folder", ["dashboard/assets", "dashboard/samples"])
def test_wheel_has_assets_and_samples(shipped: set[str], folder: str) -> None:
    wanted = files_under(folder)
    assert wanted, f"{folder} is empty"
    assert wanted <= shipped, sorted(wanted - shipped)


def test_wheel_has_what_starts_the_recorder(shipped: set[str]) -> None:
    assert "chunkscope/traces/record/site/sitecustomize.py" in shipped


def test_wheel_has_nothing_else(shipped: set[str]) -> None:
    wanted = re.compile(
        r"chunkscope/(py\.typed|dashboard/(assets|samples)/.+|([a-z_]+/)*[a-z_0-9]+\.py)"
        r"|chunkscope-[^/]+\.dist-info/.+"
    )
    strangers = [name for name in shipped if not wanted.fullmatch(name)]
    assert not strangers
    assert not [name for name in shipped if name.split("/")[1] in {"tests", "docs"}]


def test_wheel_is_marked_as_typed_and_licensed(shipped: set[str]) -> None:
    assert "chunkscope/py.typed" in shipped
    assert any(name.endswith("licenses/LICENSE") for name in shipped)


def test_wheel_announces_the_command_and_the_plugin(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith("entry_points.txt"))
        entries = configparser.ConfigParser()
        entries.read_string(archive.read(name).decode())
    assert entries["console_scripts"]["chunkscope"] == "chunkscope.cli:main"
    assert entries["pytest11"]["chunkscope"] == "chunkscope.pytest_plugin"


def test_wheel_works_where_it_is_unpacked(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", "import chunkscope, chunkscope.cli; print(chunkscope.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)


def test_core_stands_without_extras() -> None:
    core = {re.split(r"[<>=]", line)[0] for line in PROJECT["project"]["dependencies"]}
    assert core == {"click", "msgspec", "networkx", "numpy", "rich"}


def test_development_versions_are_pinned_without_places() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins == sorted(pins, key=str.lower)
    for pin in pins:
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*", pin), pin


def test_every_dependency_is_pinned() -> None:
    project = PROJECT["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    asked = [line for lines in lists for line in lines]
    names = {re.split(r"[<>=\[]", line)[0] for line in asked} - {"chunkscope"}
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().split()}
    assert {normal(name) for name in names} <= {normal(name) for name in pinned}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_package_that_the_product_imports_is_declared() -> None:
    extras = [v for k, v in PROJECT["project"]["optional-dependencies"].items() if k != "test"]
    lists = [PROJECT["project"]["dependencies"], *extras, ["pytest"]]
    declared = {normal(re.split(r"[<>=\[]", line)[0]) for lines in lists for line in lines}
    homes = packages_distributions()
    roots = {
        name.partition(".")[0]
        for package in PACKAGES
        for file in ROOT.joinpath(*package.split(".")[1:]).glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for name in absolute_imports(node)
    }
    strangers = {
        root
        for root in roots - sys.stdlib_module_names
        if not declared & {normal(home) for home in homes.get(root, ())}
    }
    assert not strangers, f"pyproject.toml declares no package for {sorted(strangers)}"


def absolute_imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [node.module or ""]
    return []
