"""The page of a comparison: it draws, fits its window, and asks nobody for anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import chunkscope
from chunkscope.dashboard import comparison_page
from chunkscope.dashboard.comparison_page import page

pytestmark = pytest.mark.browser


def test_the_page_draws_and_asks_for_nothing(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison_page, "face_rule", lambda *args: "")  # fonts take seconds to cut
    found = chunkscope.compare("all_reduce", 8, "star:10GB/s,1us", sizes="1KiB:1GiB:x16")
    file = tmp_path / "page.html"
    file.write_text(page(found))
    tab = browser.new_page(viewport={"width": 900, "height": 700})
    tab.set_default_timeout(60_000)
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("request", lambda asked: errors.append(asked.url) if asked.url[:4] == "http" else 0)
    tab.goto(file.as_uri())
    tab.wait_for_selector("#chart .scatterlayer .trace")
    wide = tab.evaluate("document.documentElement.scrollWidth")
    words = tab.locator("#chart .annotation").all_text_contents()
    lines_drawn = tab.locator("#chart .scatterlayer .trace").count()
    tab.close()
    assert not errors
    assert wide <= 900
    assert {"1 KiB", "1 GiB", "time", "lower bound", found.winners[-1]} <= set(words)
    assert lines_drawn >= 2 * len(found.algorithms)
