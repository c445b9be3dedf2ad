"""The player: the same picture as Python's, and the same controls for hand and keyboard."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

import chunkscope
from chunkscope.dashboard import scene
from chunkscope.dashboard.film import Film, film
from chunkscope.sim.spec import Spec, parse_spec

from .conftest import Seen, lesson, player

pytestmark = pytest.mark.browser

SCRIPT = Path(chunkscope.__file__).parent / "dashboard" / "assets" / "player.js"
FILMS = {
    "ring": lambda: film(parse_spec("all_reduce:ring:4").trace()),
    "ring of 8, large": lambda: film(parse_spec("all_reduce:ring:8:64MiB").trace()),
    "tree": lambda: film(parse_spec("broadcast:tree:8").trace()),
    "torus": lambda: film(
        Spec("all_reduce", "torus2d", 8, topology="torus:2x4:100GB/s,1us").trace()
    ),
    "full": lambda: film(parse_spec("all_reduce:ring:8:64MiB").trace(), view="full"),
    "textbook": lambda: film(lesson()),
}


@pytest.fixture(scope="module")
def bare_page(browser: Any) -> Iterator[Any]:
    """A page with the player's script alone."""
    page = browser.new_page()
    page.set_default_timeout(30_000)
    page.add_script_tag(path=str(SCRIPT))
    yield page
    page.close()


AT = """async ([bytes, times]) => {
  const film = await chunkscopePlayer.decode(bytes);
  return times.map((t) => JSON.stringify(chunkscopePlayer.at(film, t)));
}"""


@pytest.mark.parametrize("name", FILMS)
def test_browser_and_python_see_the_same_primitives(bare_page: Any, name: str) -> None:
    made = FILMS[name]()
    ends = [-1.0, 0.0, made.duration_s, made.duration_s + 1]
    starts = [step.start_s for step in made.steps][:3]
    times = [*ends, *starts, *np.linspace(0.013, made.duration_s, 14).tolist()]
    bytes_ = base64.b64encode(made.to_bytes()).decode()
    for t, found in zip(times, bare_page.evaluate(AT, [bytes_, times]), strict=True):
        assert [plain(prim, made) for prim in json.loads(found)] == [
            prim_of(p) for p in scene.at(made, t)
        ], t


def prim_of(prim: scene.Prim) -> tuple[Any, ...]:
    points = None if prim.points is None else [rounded(p) for p in prim.points.tolist()]
    return (prim.row, prim.kind, prim.panel, prim.layer, rounded(prim.geometry),
            round(prim.opacity, 4), prim.style, prim.text, points, prim.ref)  # fmt: skip


def plain(prim: dict[str, Any], made: Film) -> tuple[Any, ...]:
    points = None if prim["points"] is None else [rounded(p) for p in prim["points"]]
    return (prim["row"], prim["kind"], prim["panel"], prim["layer"], rounded(prim["geometry"]),
            round(prim["opacity"], 4), made.styles[prim["style"]], prim["text"], points,
            prim["ref"])  # fmt: skip


def rounded(numbers: Any) -> list[float]:
    """Return numbers to 0.01 px, minus zero made zero."""
    return [round(number, 2) + 0.0 for number in numbers]


def test_a_file_that_is_no_film_is_refused(bare_page: Any) -> None:
    import gzip

    junk = base64.b64encode(gzip.compress(b"something else, long enough")).decode()
    with pytest.raises(Exception, match="no film: begins with"):
        bare_page.evaluate("(junk) => chunkscopePlayer.decode(junk)", junk)


Play = Callable[..., Any]


def test_keys_step_and_go_to_both_ends(play: Play, seen: Seen) -> None:
    page = play("/trace/ring-4.jsonl")
    starts = [step.start_s for step in FILMS["ring"]().steps]
    for key, expected in (
        ("ArrowRight", starts[0]), ("ArrowRight", starts[1]), ("ArrowRight", starts[2]),
        ("ArrowLeft", starts[1]), ("Home", 0.0), ("End", FILMS["ring"]().duration_s),
        ("ArrowLeft", starts[5]),
    ):  # fmt: skip
        page.keyboard.press(key)
        assert player(page, "t") == pytest.approx(expected), key
    page.keyboard.press("Shift+ArrowRight")
    assert player(page, "t") == pytest.approx(starts[5] + (starts[1] - starts[0]) / 10, abs=0.05)
    assert seen.errors == []


def test_space_plays_and_pauses(play: Play) -> None:
    page = play("/trace/ring-4.jsonl")
    page.keyboard.press("Space")
    assert player(page, "playing") is True
    assert page.locator(".cs-play").get_attribute("aria-label") == "Pause"
    page.wait_for_function("() => window.chunkscopePlayers.main.t > 0.2")
    page.keyboard.press("Space")
    stopped = player(page, "t")
    page.wait_for_timeout(200)
    assert player(page, "t") == stopped
    assert player(page, "playing") is False


def test_play_at_the_end_begins_again(play: Play) -> None:
    page = play("/trace/ring-4.jsonl")
    page.keyboard.press("End")
    page.click(".cs-play")
    page.wait_for_function("() => window.chunkscopePlayers.main.t < 5")
    assert player(page, "playing") is True


def test_keys_in_a_field_belong_to_the_field(play: Play) -> None:
    page = play("/trace/ring-4.jsonl")
    page.evaluate("document.body.append(Object.assign(document.createElement('input'), {id: 'x'}))")
    page.focus("#x")
    page.keyboard.type(" ")
    page.keyboard.press("End")
    assert player(page, "playing") is False
    assert player(page, "t") == 0


def test_scrubber_goes_where_it_is_clicked(play: Play) -> None:
    page = play("/trace/ring-4.jsonl")
    box = page.locator(".cs-track").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    starts = [step.start_s for step in FILMS["ring"]().steps]
    assert player(page, "t") == pytest.approx(starts[3], abs=0.1)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] + 50, box["y"] + 5)
    page.mouse.up()
    assert player(page, "t") == pytest.approx(FILMS["ring"]().duration_s)
    assert page.locator(".cs-forward").count() or page.locator("[data-off]").count()


def test_speed_is_kept_and_keys_change_it(play: Play) -> None:
    page = play("/trace/ring-4.jsonl")
    page.select_option(".cs-speed select", "2")
    assert player(page, "speed") == 2
    page.locator(".cs-speed select").blur()
    page.keyboard.press("-")
    page.keyboard.press("-")
    assert player(page, "speed") == 0.5
    assert page.input_value(".cs-speed select") == "0.5"


@pytest.mark.parametrize("view", ["simple", "full"])
def test_a_link_opens_the_same_moment(play: Play, view: str) -> None:
    page = play(f"/trace/ring-4.jsonl?view={view}&t=2.345&m=28")
    ns, moment = player(page, "ns"), player(page, "t")
    assert ns == pytest.approx(2345)
    page.keyboard.press("Shift+ArrowRight")
    moment = player(page, "t")
    query = parse_qs(urlsplit(page.url).query)
    assert float(query["t"][0]) > 2.345
    assert query["m"] == ["28"]
    again = play("/trace/ring-4.jsonl?" + urlsplit(page.url).query)
    assert player(again, "t") == pytest.approx(moment, abs=2e-3)
    assert player(again, "selected") == player(page, "selected") > 0


def test_a_link_to_a_moment_at_which_the_traces_clock_stands_still(play: Play) -> None:
    page = play("/trace/ring-4.jsonl")
    page.keyboard.press("End")
    again = play("/trace/ring-4.jsonl?" + urlsplit(page.url).query)
    assert player(again, "t") == pytest.approx(FILMS["ring"]().duration_s, abs=1e-3)


def test_stepping_leaves_no_trail_in_the_history(play: Play) -> None:
    page = play("/trace/ring-4.jsonl")
    before = page.evaluate("history.length")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert page.evaluate("history.length") == before


# The colour of a point on the stage's ground, read through a copy of one pixel.
CORNER = """() => {
  const [canvas] = document.querySelectorAll('#pane-main canvas');
  const copy = Object.assign(document.createElement('canvas'), { width: 1, height: 1 });
  const context = copy.getContext('2d', { willReadFrequently: true });
  context.drawImage(canvas, -Math.round(canvas.width / 2), -Math.round(canvas.height * 0.6));
  return [...context.getImageData(0, 0, 1, 1).data];
}"""


def test_theme_changes_at_once_and_without_a_reload(play: Play, seen: Seen) -> None:
    page = play("/trace/ring-4.jsonl", accept_downloads=False)  # the choice would be remembered
    assert page.evaluate(CORNER)[:3] == [255, 255, 255]
    page.evaluate("window.stays = true")
    page.click("[aria-label='Light or dark']")
    page.wait_for_function(f"() => ({CORNER})()[0] < 60")
    assert page.evaluate("window.stays")
    assert seen.errors == []


def test_system_wish_for_dark_is_followed(play: Play) -> None:
    page = play("/trace/ring-4.jsonl", color_scheme="dark")
    assert max(page.evaluate(CORNER)[:3]) < 60


def test_reduced_motion_shows_one_picture_a_step(play: Play) -> None:
    page = play("/trace/ring-4.jsonl", reduced_motion="reduce")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    shown = []
    for _ in range(8):
        shown.append(player(page, "shownTime()"))
        page.wait_for_timeout(40)
    step = FILMS["ring"]().steps[0]
    middle = step.start_s + 0.6 * (step.end_s - step.start_s)
    assert shown[0] == pytest.approx(middle)
    assert len(set(shown)) <= 2  # a slow machine may reach the next step
    page.keyboard.press("Space")


def test_picture_is_named_and_each_step_is_said_once(play: Play) -> None:
    page = play("/trace/ring-4.jsonl")
    picture = page.locator("#pane-main")
    assert picture.get_attribute("role") == "img"
    assert picture.get_attribute("aria-label") == FILMS["ring"]().meta["title"]
    live = page.locator("[aria-live=polite]").first
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    step = FILMS["ring"]().steps[1]
    assert live.text_content() == f"{step.name}. {step.sentence}"
    slider = page.locator(".cs-track")
    assert slider.get_attribute("role") == "slider"
    assert slider.get_attribute("aria-valuetext").startswith(step.name)


def test_question_mark_lists_the_keys_and_escape_closes_them(play: Play) -> None:
    page = play("/trace/ring-4.jsonl")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").is_visible()
    page.keyboard.press("Space")
    assert player(page, "playing") is False
    page.keyboard.press("Escape")
    assert not page.locator("dialog[open]").count()


def test_picture_is_as_sharp_as_the_screen(play: Play) -> None:
    page = play("/trace/ring-4.jsonl", device_scale_factor=2)
    width, shown = page.evaluate(
        "(() => { const c = document.querySelector('#pane-main canvas');"
        " return [c.width, c.clientWidth]; })()"
    )
    assert width == pytest.approx(2 * shown, abs=2)


def test_first_stamp_of_a_frame_may_lie_before_the_start(play: Play) -> None:
    page = play("/trace/ring-4.jsonl?t=1")
    before = player(page, "t")
    page.evaluate(
        "(() => { const p = window.chunkscopePlayers.main; p.playing = true; p.last = null;"
        " p.advance(1000); p.advance(400); p.pause(); })()"
    )
    assert player(page, "t") >= before
