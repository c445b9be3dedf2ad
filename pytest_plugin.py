"""The pytest plugin of chunkscope: golden traces, and real ranks.

    def test_ring_moves_what_it_moved(ranks, golden):
        trace = ranks(my_step, n=4)         # my_step(rank) on 4 gloo processes, recorded
        assert trace == golden("my-step")   # golden/my-step.txt beside this test file

Goldens are text to be reviewed, without times, paths and versions. `pytest --chunkscope-update`
writes them. Nothing heavy is imported before a test asks for one of the two fixtures.
"""

from __future__ import annotations

import inspect
import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from .pytest_golden import Golden, Session
    from .traces.record.ranks import Ranks
    from .traces.trace import Trace

FOLDER = "golden"
_NAME = re.compile(r"[\w.-]+")


class GoldenOf(Protocol):
    """The fixture `golden`."""

    def __call__(self, name: str, *, values: bool = True) -> Golden:
        """Return the golden of a name; with `values=False`, digests of tensors are left out."""


class RunRanks(Protocol):
    """The fixture `ranks`."""

    def __call__(self, fn: Callable[..., Any], n: int = 4, timeout: float = 60.0) -> Trace:
        """Run `fn(rank)` (or `fn()`) on n gloo processes, recorded, and return the trace."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that rewrites goldens."""
    group = parser.getgroup("chunkscope")
    group.addoption(
        "--chunkscope-update",
        action="store_true",
        help="write the golden files of traces and schedules from what the tests find",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Watch which goldens are used."""
    config.pluginmanager.register(Watcher(config), "chunkscope-goldens")


# Fixtures


@pytest.fixture(scope="session")
def _chunkscope_session(request: pytest.FixtureRequest) -> Session:
    from .pytest_golden import Session

    config = request.config
    session = Session(config.getoption("--chunkscope-update"), config.rootpath / "chunkscope-out")
    watcher = config.pluginmanager.get_plugin("chunkscope-goldens")
    assert isinstance(watcher, Watcher)
    watcher.session = session
    return session


@pytest.fixture
def golden(request: pytest.FixtureRequest, _chunkscope_session: Session) -> GoldenOf:
    """Golden files: `assert trace == golden("ring-4")`, for a Trace or a Schedule."""
    from .pytest_golden import Golden

    folder = request.path.parent / FOLDER

    def golden_of(name: str, *, values: bool = True) -> Golden:
        if not _NAME.fullmatch(name):
            raise ValueError(f"found the name {name!r}, expected letters, digits, '-', '_', '.'")
        path = folder / f"{name}.txt"
        return Golden(path, request.node.nodeid, values, _chunkscope_session)

    return golden_of


@pytest.fixture(scope="session")
def _chunkscope_pools() -> Iterator[dict[int, Ranks]]:
    pools: dict[int, Ranks] = {}
    yield pools
    for pool in pools.values():
        pool.close()


@pytest.fixture
def ranks(
    _chunkscope_pools: dict[int, Ranks], tmp_path_factory: pytest.TempPathFactory
) -> RunRanks:
    """Real ranks: `trace = ranks(fn, n=4)` runs `fn(rank)` on n gloo processes, recorded."""
    from .traces.files import read
    from .traces.record.ranks import Ranks

    def run(fn: Callable[..., Any], n: int = 4, timeout: float = 60.0) -> Trace:
        if n not in _chunkscope_pools:
            _chunkscope_pools[n] = Ranks(n)
        folder = tmp_path_factory.mktemp("ranks") / "recording"
        _chunkscope_pools[n].run(_of_rank(fn), record=folder, timeout=timeout)
        return read(folder)

    return run


def _of_rank(fn: Callable[..., Any]) -> Callable[[], Any]:
    """Return a function without arguments that passes the rank on, if `fn` takes one."""
    if not inspect.signature(fn).parameters:
        return fn

    def call() -> Any:
        return fn(int(os.environ["RANK"]))

    # It travels with the module of the test, which no other process can import.
    call.__module__ = fn.__module__
    return call


# Failed comparisons


def pytest_assertrepr_compare(
    config: pytest.Config, op: str, left: object, right: object
) -> list[str] | None:
    """Say where a trace first leaves its golden, or another trace."""
    watcher = config.pluginmanager.get_plugin("chunkscope-goldens")
    if op != "==" or (watcher is not None and watcher.session is None and not _are_traces(left)):
        return None
    from .pytest_golden import Golden, compare_traces
    from .traces.trace import Trace

    if isinstance(right, Golden) and not isinstance(left, Golden):
        return right.explain(left)
    if isinstance(left, Golden) and not isinstance(right, Golden):
        return left.explain(right)
    if isinstance(left, Trace) and isinstance(right, Trace):
        return compare_traces(left, right)
    return None


def _are_traces(value: object) -> bool:
    return type(value).__module__.startswith(f"{__package__}.traces.")


# Unused goldens


class Watcher:
    """Finds goldens that no test asks for any more.

    A folder's goldens are judged only when every test of every test file beside it was run and
    passed; in a partial run, who knows. Under xdist each worker reports, and the first process
    adds up.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.session: Session | None = None
        self.used: set[str] = set()
        self.collected: Counter[str] = Counter()  # tests that take a golden, by file
        self.passed: Counter[str] = Counter()
        self.files: set[str] = set()
        self.partial = False
        self._takes: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note the tests that take a golden, before any is deselected."""
        self.files |= {str(item.path) for item in items}
        takers = [item for item in items if "golden" in getattr(item, "fixturenames", ())]
        self._takes = {item.nodeid for item in takers}
        self.collected = Counter(str(item.path) for item in takers)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Count the tests that took a golden and passed; show what changed where one failed."""
        report = yield
        if report.when == "call" and report.passed and item.nodeid in self._takes:
            self.passed[str(item.path)] += 1
        if report.when == "call" and report.failed and self.session is not None:
            report.sections += self.session.reports.pop(item.nodeid, [])
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand what a worker saw to the first process."""
        if self.session is not None:
            self.used |= {str(path) for path in self.session.used}
        self.partial |= any("::" in arg for arg in self.config.args)
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output["chunkscope"] = {
                "used": sorted(self.used),
                "collected": dict(self.collected),
                "passed": dict(self.passed),
                "files": sorted(self.files),
            }

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Add what a worker of xdist saw."""
        seen = getattr(node, "workeroutput", {}).get("chunkscope")
        if seen is None:
            self.partial = True  # the worker crashed
            return
        self.used |= set(seen["used"])
        self.files |= set(seen["files"])
        self.collected |= Counter(seen["collected"])
        self.passed += Counter(seen["passed"])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the goldens that nothing uses."""
        unused = self.unused()
        if not unused:
            return
        terminalreporter.section("unused goldens", yellow=True)
        for path in unused:
            terminalreporter.write_line(f"{path}: no test compares with it; delete it")

    def unused(self) -> list[str]:
        """Return the goldens that nothing uses, of folders all of whose tests were run."""
        if self.partial:
            return []
        found: list[str] = []
        for folder in sorted({Path(file).parent for file in self.files}):
            goldens = {str(path) for path in (folder / FOLDER).glob("*.txt")}
            if goldens - self.used and self._complete(folder):
                found += sorted(goldens - self.used)
        return found

    def _complete(self, folder: Path) -> bool:
        patterns = self.config.getini("python_files")
        tests = [
            str(file)
            for file in folder.glob("*.py")
            if any(fnmatch(file.name, pattern) for pattern in patterns)
        ]
        return all(
            file in self.files and self.passed[file] >= self.collected[file] for file in tests
        )
