"""The shape of the house: who imports whom, what stays light, and which names are public."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import chunkscope

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]

# What a module of each part may import of ours. The longest prefix that fits decides.
LEAVES = {"__version__", "errors", "units"}  # these import none of ours
ALLOWED = {
    # What runs inside other people's processes. Its reader runs in ours, and makes a Trace.
    "traces.record": LEAVES | {"traces.schema", "traces.record"},
    "traces.record.reader": LEAVES | {"traces"},
    "traces": LEAVES | {"traces"},
    "sim": LEAVES | {"traces", "sim"},
    "dashboard": LEAVES | {"traces", "sim", "dashboard"},
    "errors": set(),
    "units": {"errors"},
}
READER = "traces.record.reader"
# Data, not a module of ours: Python loads it as `sitecustomize` in processes that are recorded.
STARTER = ROOT / "traces" / "record" / "site" / "sitecustomize.py"
MAY_IMPORT_TORCH = (
    "traces.record",
    "sim.execute",
    "sim.execution_log",
    "sim.measuring",
    "sim.rank",
)


class Import(NamedTuple):
    """One import statement's target, as seen from the package's root."""

    module: str
    line: int
    name: str
    relative: bool
    for_types: bool


def product_files() -> list[Path]:
    folders = [ROOT.joinpath(*package.split(".")[1:]) for package in PACKAGES]
    return sorted(file for folder in folders for file in folder.glob("*.py"))


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def inside(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def is_module(name: str) -> bool:
    base = ROOT.joinpath(*name.split("."))
    return base.with_suffix(".py").is_file() or base.joinpath("__init__.py").is_file()


def imports_of(file: Path) -> Iterator[Import]:
    """Yield what a file imports; names of ours are resolved to modules where they are modules."""
    module = module_name(file)
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    typing = lines_for_types(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, node.lineno, alias.name, False, node.lineno in typing)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".") if package else []
                assert node.level - 1 <= len(parents), f"{file}:{node.lineno} leaves the package"
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [base])])
            for alias in node.names:
                full = f"{base}.{alias.name}".strip(".")
                name = full if node.level and (not base or is_module(full)) else base
                yield Import(module, node.lineno, name, node.level > 0, node.lineno in typing)


def lines_for_types(tree: ast.Module) -> set[int]:
    """Lines that only a type checker reads."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


@functools.cache
def all_imports() -> list[Import]:
    return [found for file in product_files() for found in imports_of(file)]


def complain(wrong: list[Import], rule: str) -> None:
    lines = [f"{found.module}:{found.line} imports {found.name or '.'}" for found in wrong]
    assert not wrong, "\n".join([rule, *lines])


def test_every_module_is_in_a_listed_package() -> None:
    shipped = {*product_files(), STARTER}
    not_product = {"tests", "docs", "build", "dist", "chunkscope-out"}
    folders = [f for f in ROOT.iterdir() if f.name not in not_product and f.name[0] != "."]
    stray = [
        str(m)
        for f in folders
        for m in (f, *f.rglob("*.py"))
        if m.suffix == ".py" and m not in shipped
    ]
    assert not stray, f"packages in pyproject.toml lack the folders of {stray}"


def test_traces_know_nothing_of_sim_and_sim_nothing_of_the_dashboard() -> None:
    wrong = []
    for found in all_imports():
        part = max((p for p in ALLOWED if inside(found.module, p)), key=len, default=None)
        if part is None or not found.relative:
            continue
        allowed = any(inside(found.name, prefix) for prefix in ALLOWED[part])
        recorder_reads = part == "traces.record" and inside(found.name, READER)
        if not allowed or recorder_reads:
            wrong.append(found)
    complain(wrong, f"the direction is traces <- sim <- dashboard; allowed is {ALLOWED}")


def test_only_the_recorder_and_the_executor_import_torch() -> None:
    wrong = [
        found
        for found in all_imports()
        if inside(found.name, "torch")
        and not found.for_types
        and (
            inside(found.module, READER)
            or not any(inside(found.module, allowed) for allowed in MAY_IMPORT_TORCH)
        )
    ]
    complain(wrong, f"only {MAY_IMPORT_TORCH} import torch")


def test_imports_inside_the_product_are_relative() -> None:
    ours = {module_name(file).partition(".")[0] for file in product_files()} - {""}
    wrong = [
        found
        for found in all_imports()
        if not found.relative and found.name.partition(".")[0] in {"chunkscope", *ours}
    ]
    complain(wrong, "a module imported by an absolute name could be loaded twice")


def test_tests_import_the_product_by_its_package_name() -> None:
    ours = {module_name(file).partition(".")[0] for file in product_files()} - {""}
    wrong = [
        Import(f"tests/{file.relative_to(ROOT / 'tests')}", node.lineno, name, False, False)
        for file in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for name in imported_names(node)
        if name.partition(".")[0] in ours
    ]
    complain(wrong, "tests write `import chunkscope`, as users do")


def imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [node.module or ""]
    return []


# Fresh processes: what a command or an import really loads.

LOADED = "import json, sys; print(); print(json.dumps(sorted(sys.modules)))"


def loaded_after(code: str, folder: Path) -> set[str]:
    """Run code in a fresh interpreter, in an empty folder, and return the modules it loaded."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{LOADED}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def assert_not_loaded(loaded: set[str], *unwanted: str) -> None:
    found = sorted({name for name in loaded for prefix in unwanted if inside(name, prefix)})
    assert not found, f"loaded, but should not be: {found[:12]}"


HELP = """
import runpy, sys
sys.argv = ["chunkscope", "--help"]
try:
    runpy.run_module("chunkscope", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
"""


def test_help_loads_no_torch_and_nothing_heavy(tmp_path: Path) -> None:
    loaded = loaded_after(HELP, tmp_path)
    assert "chunkscope.cli" in loaded
    assert_not_loaded(loaded, "torch", "dash", "plotly", "skia", "pyarrow", "networkx")


def test_pytest_plugin_loads_no_torch(tmp_path: Path) -> None:
    loaded = loaded_after("import chunkscope.pytest_plugin", tmp_path)
    assert_not_loaded(loaded, "torch", "numpy", "networkx", "dash", "plotly", "skia")


def test_opening_a_trace_loads_no_torch(tmp_path: Path) -> None:
    samples = sorted((ROOT / "dashboard" / "samples").iterdir())
    assert samples, "no sample ships in dashboard/samples"
    code = f"import chunkscope\nassert len(chunkscope.read({str(samples[0])!r}).events)"
    assert_not_loaded(loaded_after(code, tmp_path), "torch", "networkx", "dash", "chunkscope.sim")


def test_recorder_loads_neither_graphs_nor_simulator_nor_dashboard(tmp_path: Path) -> None:
    modules = map(module_name, product_files())
    recorder = [m for m in modules if inside(m, "traces.record") and not inside(m, READER)]
    code = "\n".join(f"import chunkscope.{name}" for name in recorder)
    unwanted = ("networkx", "chunkscope.sim", "chunkscope.dashboard", "dash", "plotly", "rich")
    assert_not_loaded(loaded_after(code, tmp_path), *unwanted)


def test_package_import_is_light(tmp_path: Path) -> None:
    loaded = loaded_after("import chunkscope", tmp_path)
    assert {name for name in loaded if inside(name, "chunkscope")} == {"chunkscope"}
    assert_not_loaded(loaded, "torch", "numpy")


def test_no_module_has_two_names(tmp_path: Path) -> None:
    modules = [module_name(file) for file in product_files() if file.name != "__main__.py"]
    code = TWICE.format(root=str(ROOT), modules=sorted({*modules} - {""}))
    loaded_after(code, tmp_path)


TWICE = """
import importlib, os, sys
sys.path.insert(0, {root!r})  # as `python -m pytest` does in the checkout
for name in {modules!r}:
    importlib.import_module("chunkscope." + name)
names = {{}}
for name, module in list(sys.modules.items()):
    file = os.path.realpath(getattr(module, "__file__", None) or "")
    if file.startswith({root!r} + os.sep) and "site-packages" not in file:
        names.setdefault(file, set()).add(name)
twice = {{file: found for file, found in names.items() if len(found) > 1}}
assert not twice, twice
strangers = [n for found in names.values() for n in found if n.split(".")[0] != "chunkscope"]
assert not strangers, strangers
"""


# The public names. Adding one is a decision: there is room for twenty-four.

PUBLIC = [
    "Builder",
    "ChunkscopeError",
    "Schedule",
    "Topology",
    "Trace",
    "TraceMismatch",
    "Transfer",
    "algorithms",
    "build",
    "compare",
    "diff",
    "execute",
    "export",
    "film",
    "probe",
    "read",
    "record",
    "simulate",
    "topology",
    "verify",
    "write",
]


def test_public_names_are_these() -> None:
    assert sorted(chunkscope.__all__) == sorted(PUBLIC)
    assert len(PUBLIC) <= 24


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(chunkscope, name)
    assert value.__doc__, f"chunkscope.{name} has no docstring"
    assert name in dir(chunkscope)


def test_types_and_run_time_agree_on_where_public_names_live() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    typed = {
        alias.asname or alias.name: "." * node.level
        + (node.module or "")
        + (f":{alias.name}" if alias.name != (alias.asname or alias.name) else "")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    assert typed == chunkscope._HOMES


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"chunkscope.*no attribute.*'tracez'"):
        importlib.import_module("chunkscope").tracez  # noqa: B018
