"""Films become files."""

from __future__ import annotations

import base64
import builtins
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from chunkscope.dashboard import video
from chunkscope.dashboard.export import export, telling, thumbnail
from chunkscope.dashboard.film import Film, film
from chunkscope.errors import ChunkscopeError, MissingExtra
from chunkscope.traces.trace import Trace

Make = Callable[..., Trace]
SMALL = (320, 180)


def test_a_png_has_the_size_asked_for_and_is_the_same_every_time(
    simulated: Make, tmp_path: Path
) -> None:
    for name in ("a.png", "b.png"):
        export(simulated(n=2), tmp_path / name, size=SMALL)
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == SMALL
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_the_moment_and_the_theme_can_be_chosen(simulated: Make, tmp_path: Path) -> None:
    trace = simulated(n=2)
    export(trace, tmp_path / "start.svg", at=0.0)
    export(trace, tmp_path / "end.svg", at=99.0)
    export(trace, tmp_path / "dark.svg", theme="dark")
    assert "2 steps" in (tmp_path / "start.svg").read_text("utf-8")
    assert "Done:" in (tmp_path / "end.svg").read_text("utf-8")
    assert "#0e1116" in (tmp_path / "dark.svg").read_text("utf-8")


def test_a_gif_loops_and_moves(simulated: Make, tmp_path: Path) -> None:
    out = tmp_path / "ring.gif"
    export(simulated(n=2), out, size=SMALL, fps=5)
    with Image.open(out) as picture:
        assert picture.info["loop"] == 0
        frames = getattr(picture, "n_frames", 1)
        assert frames > 5
        picture.seek(0)
        first = np.asarray(picture.convert("RGB"))
        picture.seek(frames - 1)
        last = np.asarray(picture.convert("RGB"))
    assert not np.array_equal(first, last)


def test_an_mp4_plays_in_every_player(simulated: Make, tmp_path: Path) -> None:
    out = tmp_path / "ring.mp4"
    seen: list[tuple[int, int]] = []
    export(
        simulated(n=2),
        out,
        size=(321, 181),
        fps=5,
        seconds=2.0,
        progress=lambda k, n: seen.append((k, n)),
    )
    told = subprocess.run(
        [video.ffmpeg(), "-hide_banner", "-i", str(out)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    ).stderr
    assert "h264" in told
    assert "yuv420p" in told
    assert "322x182" in told  # H.264 needs even sizes
    assert "Duration: 00:00:05.0" in told  # 1.5 + 2 + 1.5 seconds
    assert seen[-1] == (25, 25)
    assert [k for k, _ in seen] == list(range(1, 26))


def test_seconds_change_the_pace_of_the_steps_and_not_of_the_holds(simulated: Make) -> None:
    made = film(simulated(n=2))
    times = video.moments(made, 10, 4.8)
    start, end = made.steps[0].start_s, made.steps[-1].end_s
    inside = [t for t in times if start < t < end]
    assert len(inside) == pytest.approx(48, abs=1)
    assert len([t for t in times if t <= start]) == 16
    assert times == sorted(times)
    assert times[-1] <= made.duration_s
    whole = video.moments(made, 10, None)
    assert len(whole) == pytest.approx(made.duration_s * 10, abs=1)


def test_a_html_holds_the_player_the_film_and_the_fonts_and_asks_for_nothing(
    simulated: Make, tmp_path: Path
) -> None:
    trace = simulated(n=4)
    out = tmp_path / "ring.html"
    export(trace, out, theme="dark")
    text = out.read_text("utf-8")
    found = re.search(r'<script id="film" type="text/plain">([^<]+)</script>', text)
    assert found is not None
    inside = Film.from_bytes(base64.b64decode(found[1]))
    assert inside.meta["title"] == "Ring all-reduce · 4 ranks"
    assert inside.to_bytes() == film(trace).to_bytes()
    assert "chunkscopePlayer" in text
    assert text.count("@font-face") == 2
    assert not re.findall(r"""(?:src|href)=["']?https?:""", text)
    assert not re.findall(r"url\((?!data:)", text)
    assert len(text) < 400_000


def test_a_short_spec_and_a_film_are_sources_too(simulated: Make, tmp_path: Path) -> None:
    export("broadcast:chain:3", tmp_path / "spec.svg")
    assert "Chain broadcast" in (tmp_path / "spec.svg").read_text("utf-8")
    export(film(simulated(n=2), view="full"), tmp_path / "film.svg")
    assert "In flight" in (tmp_path / "film.svg").read_text("utf-8")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"theme": "blue"}, "theme is 'blue', expected light or dark"),
        ({"size": (4, 720)}, "size is 4x720, expected 16 to 8192 each"),
        ({"fps": 0}, "fps is 0, expected 1 to 120"),
        ({"seconds": -1.0}, "seconds is -1.0, expected more than 0"),
        ({"view": "big"}, "unknown view 'big'; known: simple, full"),
        ({"call": 7}, "call 7 of 1: expected 0 to 0"),
    ],
)
def test_wrong_arguments_are_told(
    simulated: Make, tmp_path: Path, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(ChunkscopeError, match=re.escape(message)):
        export(simulated(n=2), tmp_path / "x.svg", **how)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_suffix_is_refused_with_those_that_exist(
    simulated: Make, tmp_path: Path
) -> None:
    with pytest.raises(ChunkscopeError, match=r"unknown kind of file '.avi', expected .html, .gif"):
        export(simulated(n=2), tmp_path / "x.avi")


def test_an_output_that_cannot_be_written_is_told(simulated: Make, tmp_path: Path) -> None:
    (tmp_path / "taken.svg").mkdir()
    with pytest.raises(ChunkscopeError, match=r"cannot write .*taken\.svg"):
        export(simulated(n=2), tmp_path / "taken.svg")


def test_a_failed_export_leaves_the_old_file(
    simulated: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "ring.mp4"
    out.write_bytes(b"old")

    def broken(*_: object) -> None:
        raise RuntimeError("stopped half way")

    monkeypatch.setattr("chunkscope.dashboard.paint.skia.Canvas.frame", broken)
    with pytest.raises(RuntimeError, match="stopped half way"):
        export(simulated(n=2), out, size=SMALL)
    assert out.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["ring.mp4"]


@pytest.mark.parametrize(
    ("name", "package"), [("x.png", "skia"), ("x.mp4", "skia"), ("x.gif", "imageio_ffmpeg")]
)
def test_a_missing_package_names_the_pip_line(
    simulated: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    real = builtins.__import__

    def without(wanted: str, *rest: Any, **more: Any) -> Any:
        if wanted == package:
            raise ModuleNotFoundError(wanted, name=wanted)
        return real(wanted, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install 'chunkscope\[export\]'"):
        export(simulated(n=2), tmp_path / name, size=SMALL, fps=1)


def test_the_telling_moment_has_something_on_its_way(simulated: Make, called: Make) -> None:
    from chunkscope.dashboard import scene

    made = film(simulated(n=4))
    kinds = [(p.ref or {}).get("kind") for p in scene.at(made, telling(made)) if p.kind == "pick"]
    assert kinds.count("message") == 4
    bare = film(called("all_reduce", [[1.0], [2.0]], [[3.0], [3.0]], op="SUM"))
    assert telling(bare) == bare.duration_s


@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_small_pictures_are_small_and_differ_by_theme(simulated: Make, n: int) -> None:
    trace = simulated(n=n)
    light, dark = thumbnail(trace, "light"), thumbnail(trace, "dark")
    assert light != dark
    assert len(light) < 60_000
    assert "R0" in light


def test_a_bare_call_has_a_small_picture_too(called: Make) -> None:
    drawn = thumbnail(called("all_reduce", [[1.0], [2.0]], [[3.0], [3.0]], op="SUM"))
    assert "SUM" in drawn
    assert "3.0" in drawn
