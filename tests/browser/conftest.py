"""A dashboard and a Chromium that all browser tests share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import chunkscope
from chunkscope.sim.spec import parse_spec
from chunkscope.traces.trace import Group, Meta, Site, Trace

playwright = pytest.importorskip("playwright.sync_api")

TOKEN = "a-token-of-the-tests"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT_MS = 60_000


@dataclass
class Seen:
    """What went wrong on a page, and which machines it asked."""

    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)


@pytest.fixture(scope="session")
def browser(chromium: Path) -> Iterator[playwright.Browser]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(chromium), args=FLAGS, timeout=60_000)
        yield browser
        browser.close()


def lesson() -> Trace:
    """An all_reduce of two ranks as torch saw it: 1.0 and 2.0 become 3.0 and 3.0, and a barrier."""
    source = ("    tensor = torch.ones(1) * (rank + 1)", "    dist.all_reduce(tensor)",
              "    print(rank, tensor)")  # fmt: skip
    site = Site("/home/ada/lesson.py", 14, "run", source, 13)
    common = {"file": [f"host-{r}.rec.jsonl" for r in (0, 0, 1, 1)], "seq": [0, 1, 0, 1]}
    events = {
        **common,
        "rank": [0, 0, 1, 1],
        "group_rank": [0, 0, 1, 1],
        "group": [0] * 4,
        "coll_seq": [0, 1, 0, 1],
        "kind": ["collective"] * 4,
        "provenance": ["called"] * 4,
        "api": ["all_reduce", "broadcast"] * 2,
        "collective": ["all_reduce", "broadcast"] * 2,
        "reduce_op": ["SUM", None] * 2,
        "root": [None, 0] * 2,
        "size_bytes": [4] * 4,
        "dtype": ["float32"] * 4,
        "t_issue_ns": [1000, 501_000, 3000, 502_000],
        "t_start_ns": [1000, 501_000, 3000, 502_000],
        "t_end_ns": [381_000, 700_000, 380_000, 690_000],
        "status": ["ok"] * 4,
        "site": [0] * 4,
    }
    held = [(0, 1.0, 3.0), (1, 3.0, 3.0), (2, 2.0, 3.0), (3, 3.0, 3.0)]
    rows = [
        (row, when, role, np.float32(value).tobytes())
        for row, before, after in held
        for when, role, value in (("before", "input", before), ("after", "output", after))
    ]
    states = {
        "event": [row for row, *_ in rows],
        "when": [when for _, when, *_ in rows],
        "role": [role for _, _, role, _ in rows],
        "index": [0] * len(rows),
        "dtype": ["float32"] * len(rows),
        "shape": [[1]] * len(rows),
        "data": [data for *_, data in rows],
    }
    group = Group((0, 1), label="default", backend="gloo")
    return Trace.build(events, states, Meta(world_size=2, groups=(group,), sites=(site,)))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with some traces, one of them broken."""
    folder = tmp_path_factory.mktemp("runs")
    for spec, name in (
        ("all_reduce:ring:4", "ring-4"),
        ("broadcast:tree:4", "tree-4"),
        ("all_reduce:ring:8:64MiB", "large-8"),
    ):
        chunkscope.write(parse_spec(spec).trace(), folder / f"{name}.jsonl")
    chunkscope.write(lesson(), folder / "lesson.jsonl")
    (folder / "broken.jsonl").write_text("no trace\n", "utf-8")
    return folder


@pytest.fixture(scope="session")
def site(folder: Path) -> Iterator[Callable[..., str]]:
    """The running dashboard: a function from a path to its address with the token."""
    pytest.importorskip("dash")
    from chunkscope.dashboard.app import create_app
    from chunkscope.dashboard.server import address, listen, serve_on

    servers = []

    def start(path: Path) -> int:
        listener = listen("127.0.0.1", 0)
        port: int = listener.getsockname()[1]
        server = serve_on(listener, create_app(path, token=TOKEN).server)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        servers.append((server, thread))
        return port

    ports = {folder: start(folder)}

    def where(path: str = "/", of: Path = folder) -> str:
        if of not in ports:
            ports[of] = start(of)
        return address("127.0.0.1", ports[of], TOKEN, path)

    yield where
    for server, thread in servers:
        server.shutdown()
        thread.join(10)


@pytest.fixture
def seen() -> Seen:
    """What went wrong on the pages of this test; nothing may."""
    return Seen()


@pytest.fixture(scope="session")
def shared(browser: playwright.Browser) -> Iterator[playwright.BrowserContext]:
    """A profile that keeps what it has loaded from test to test, as a person's does."""
    context = browser.new_context()
    yield context
    context.close()


@pytest.fixture
def open_page(
    browser: playwright.Browser,
    shared: playwright.BrowserContext,
    site: Callable[..., str],
    seen: Seen,
) -> Iterator[Callable[..., playwright.Page]]:
    """A function that opens a path of the dashboard.

    It takes the size, what the system wishes for (`color_scheme`, `reduced_motion`), and settings
    that need a profile of their own.
    """
    closing = []

    def open_page(
        path: str = "/",
        of: Path | None = None,
        *,
        viewport: tuple[int, int] = (1440, 900),
        color_scheme: str = "light",
        reduced_motion: str = "no-preference",
        **profile: object,
    ) -> playwright.Page:
        context = shared
        if profile:
            context = browser.new_context(**profile)
            closing.append(context)
        page = context.new_page()
        closing.append(page)
        page.set_default_timeout(TIMEOUT_MS)
        page.set_viewport_size({"width": viewport[0], "height": viewport[1]})
        page.emulate_media(color_scheme=color_scheme, reduced_motion=reduced_motion)
        page.on("console", lambda message: note(message.type, message.text))
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("request", lambda request: seen.hosts.add(request.url.split("/")[2]))
        page.goto(site(path) if of is None else site(path, of))
        return page

    def note(kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            seen.errors.append(text)

    yield open_page
    for opened in reversed(closing):
        opened.close()


@pytest.fixture
def play(open_page: Callable[..., playwright.Page]) -> Callable[..., playwright.Page]:
    """As `open_page`, for a trace: waits until the player has painted."""

    def play(path: str, **context: object) -> playwright.Page:
        page = open_page(path, **context)
        page.wait_for_selector("#player-root[data-ready]", state="attached")
        return page

    return play


def player(page: playwright.Page, what: str) -> object:
    """Return a property of the page's player."""
    return page.evaluate(f"window.chunkscopePlayers.main.{what}")
