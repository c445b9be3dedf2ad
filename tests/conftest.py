"""Settings that all tests share: a clean environment, and a browser where there is one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import hypothesis
import pytest

pytest_plugins = ["pytester"]

# Real ranks share the machine's cores: one thread each is enough for tensors of test size.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A busy machine is no failure; what CI finds, everybody finds again.
hypothesis.settings.register_profile(
    "chunkscope", deadline=None, derandomize="CI" in os.environ, database=None
)
hypothesis.settings.load_profile("chunkscope")
# What the person at the keyboard has set must not change what the tests see.
for _name in [name for name in os.environ if name.startswith("CHUNKSCOPE_")]:
    del os.environ[_name]


def find_chromium() -> Path | None:
    """Return where this machine's Chromium is, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    return None if found is None else Path(found)


@pytest.fixture(scope="session")
def chromium() -> Path:
    """Path of the Chromium that the browser tests drive; tests without one are skipped."""
    found = find_chromium()
    if found is None:
        message = "no Chromium on this machine: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    return found


@pytest.fixture(autouse=True)
def _browser_tests_need_a_browser(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("browser") is not None:
        request.getfixturevalue("chromium")
