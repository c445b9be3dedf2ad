"""The painters: the same primitives as pixels and as vectors."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pytest

from chunkscope.dashboard.film import Clock, Film, film
from chunkscope.dashboard.paint import fonts
from chunkscope.dashboard.paint.svg import svg
from chunkscope.dashboard.reel import Reel
from chunkscope.dashboard.theme import PALETTES
from chunkscope.traces.trace import Trace

skia = pytest.importorskip("skia")
from chunkscope.dashboard.paint.skia import Canvas  # noqa: E402

Make = Callable[..., Trace]
SVG = "{http://www.w3.org/2000/svg}"


def _film(draw: Callable[[Reel], None]) -> Film:
    reel = Reel()
    reel.panel("stage", 0, 0, 160, 90)
    draw(reel)
    clock = Clock((0.0, 1.0), (0.0, 1e6), "ms", 10**6, 2)
    return reel.film(
        size=(160, 90), view="simple", duration_s=2.0, steps=(), phases=(), clock=clock, meta={}
    )


def _rgb(theme: str, token: str) -> tuple[int, int, int]:
    colour = str(PALETTES[theme][token])
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_rect_has_its_themes_colour_inside_and_the_ground_outside(theme: str) -> None:
    made = _film(lambda reel: reel.rect(20, 20, 40, 40, fill="hue1", radius=8))
    pixels = Canvas(made, theme=theme, size=(160, 90)).frame(0.0)
    assert tuple(pixels[40, 40, :3]) == _rgb(theme, "hue1")
    assert tuple(pixels[21, 21, :3]) == _rgb(theme, "bg")  # outside the rounded corner
    assert tuple(pixels[80, 100, :3]) == _rgb(theme, "bg")


def test_a_token_that_a_theme_leaves_out_is_not_painted() -> None:
    made = _film(lambda reel: reel.rect(20, 20, 40, 40, stroke="edge1", width=6))
    light = Canvas(made, theme="light", size=(160, 90)).frame(0.0)[40, 20, :3].copy()
    dark = Canvas(made, theme="dark", size=(160, 90)).frame(0.0)[40, 20, :3]
    assert tuple(light) == _rgb("light", "ink")
    assert tuple(dark) == _rgb("dark", "bg")


def test_a_larger_picture_is_the_same_picture() -> None:
    made = _film(lambda reel: reel.rect(20, 20, 40, 40, fill="ink"))
    small = Canvas(made, theme="light", size=(160, 90)).frame(0.0)
    large = Canvas(made, theme="light", size=(320, 180)).frame(0.0)
    assert np.array_equal(small[30:50, 30:50], large[60:100:2, 60:100:2])


def test_another_shape_keeps_the_whole_picture_in_the_middle() -> None:
    made = _film(lambda reel: reel.rect(0, 0, 160, 90, fill="ink"))
    pixels = Canvas(made, theme="light", size=(160, 160)).frame(0.0)
    assert tuple(pixels[80, 80, :3]) == _rgb("light", "ink")
    assert tuple(pixels[10, 80, :3]) == _rgb("light", "bg")
    assert tuple(pixels[150, 80, :3]) == _rgb("light", "bg")


def test_text_is_anchored_where_it_says() -> None:
    def draw(reel: Reel) -> None:
        for y, anchor in ((20, "start"), (50, "middle"), (80, "end")):
            reel.text(80, y, "HHHH", size=20, weight=700, fill="ink", anchor=anchor)

    pixels = Canvas(_film(draw), theme="light", size=(160, 90)).frame(0.0)
    dark = pixels[..., :3].astype(int).sum(2) < 200
    for rows, left, right in ((slice(5, 20), 80, 160), (slice(80 - 14, 80), 0, 80)):
        columns = np.flatnonzero(dark[rows].any(0))
        assert columns.min() >= left - 1
        assert columns.max() <= right + 1
    middle = np.flatnonzero(dark[36:50].any(0))
    assert (middle.min() + middle.max()) / 2 == pytest.approx(80, abs=1.5)


def test_frames_do_not_depend_on_what_was_painted_before(simulated: Make) -> None:
    made = film(simulated(n=4))
    canvas = Canvas(made, theme="dark", size=(640, 360))
    wandering = {t: canvas.frame(t).copy() for t in (5.0, 1.0, 7.3, 2.2, 0.0)}
    for t, pixels in wandering.items():
        fresh = Canvas(made, theme="dark", size=(640, 360)).frame(t)
        assert np.array_equal(pixels, fresh)


def test_an_svg_is_well_formed_and_says_what_the_film_says(simulated: Make) -> None:
    made = film(simulated(n=4))
    root = ElementTree.fromstring(svg(made, 3.2, theme="light"))
    texts = {text.text for text in root.iter(f"{SVG}text")}
    assert {"Ring all-reduce · 4 ranks", "Step 2 of 6", "simulated", "Rank 3"} <= texts
    assert root.get("viewBox") == "0 0 1280 720"
    assert not [e for e in root.iter() if "href" in "".join(e.attrib)]


def test_an_svg_holds_the_letters_that_it_uses(simulated: Make) -> None:
    text = svg(film(simulated(n=4)), 3.2)
    faces = re.findall(r"font-family:'([^']+)'[^}]*base64,([A-Za-z0-9+/=]+)\)", text)
    assert {name for name, _ in faces} == {"Inter", "JetBrains Mono"}
    from fontTools.ttLib import TTFont

    inter = TTFont(io.BytesIO(base64.b64decode(dict(faces)["Inter"])))
    assert {ord("R"), ord("·")} <= set(inter.getBestCmap())
    assert ord("Z") not in inter.getBestCmap()


def test_a_part_of_the_frame_can_be_painted_alone(simulated: Make) -> None:
    made = film(simulated(n=4))
    root = ElementTree.fromstring(svg(made, 3.2, panel=made.panel("stage")))
    texts = {text.text for text in root.iter(f"{SVG}text")}
    assert "Rank 0" in texts
    assert "Step 2 of 6" not in texts


def test_names_from_a_trace_cannot_break_out_of_an_svg(called: Make) -> None:
    line = 'dist.all_reduce("<script>&\'")'
    trace = called("all_reduce", [[1.0], [2.0]], [[3.0], [3.0]], op="SUM", line=line)
    text = svg(film(trace), 9.0)
    assert "<script" not in text
    ElementTree.fromstring(text)


def test_without_the_font_packages_an_svg_names_the_fonts(
    simulated: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fonts, "font_file", lambda font: None)
    text = svg(film(simulated(n=2)), 2.0)
    assert "@font-face" not in text
    assert 'font-family="Inter, system-ui' in text
