"""The pages: what a person sees and finds by clicking."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import chunkscope
from chunkscope.sim.spec import parse_spec

from .conftest import Seen, lesson, player

pytestmark = pytest.mark.browser

Open = Callable[..., Any]

POINT = """(key) => {
  const { main } = window.chunkscopePlayers;
  const { columns: c, refs } = main.film;
  const t = main.shownTime();
  for (const pane of main.panes) {
    const box = pane.element.getBoundingClientRect();
    for (const row of pane.picks) {
      const shown = c.t0[row] <= t && t < c.t1[row];
      if (!shown || window.chunkscopePlayer.refKey(refs[c.ref[row]]) !== key) continue;
      const p = (t - c.t0[row]) / (c.t1[row] - c.t0[row]);
      const q = c.ease[row] ? 0.65 * p + 0.35 * p * p * (3 - 2 * p) : p;
      const [x, y, w, h] = [0, 1, 2, 3].map(
        (k) => c.a[4 * row + k] + (c.b[4 * row + k] - c.a[4 * row + k]) * q);
      return [box.x + (x + w / 2 - pane.crop.x) * pane.scale,
              box.y + (y + h / 2 - pane.crop.y) * pane.scale];
    }
  }
  return null;
}"""


def click_on(page: Any, key: str) -> None:
    """Click where the picture shows a thing."""
    point = page.evaluate(POINT, key)
    assert point is not None, f"{key} is not in the picture"
    page.mouse.click(*point)


def message_at(page: Any, step: int) -> str:
    """Return the name of a message that is on its way in a step."""
    key: str = page.evaluate(
        "(step) => window.chunkscopePlayer.refKey(window.chunkscopePlayers.main.film.refs.find("
        "(ref) => ref?.kind === 'message' && ref.step === step && ref.src === 0))",
        step,
    )
    return key


def test_start_page_lists_the_folder_with_pictures(open_page: Open, seen: Seen) -> None:
    page = open_page("/")
    page.wait_for_selector(".card b:text('Ring all_reduce')")
    page.wait_for_selector(".card b:text('Tree broadcast')")
    card = page.locator(".card", has_text="ring-4.jsonl")
    assert card.locator(".badge").text_content() == "simulated"
    words = card.locator("dl").text_content()
    assert words == "Ranks4Bytes64 BTime6.00 µsAlgorithmring"
    card.locator(".drawing[data-loaded=true]").wait_for()
    page.wait_for_load_state("networkidle")
    assert seen.errors == []
    assert all(host.startswith("127.0.0.1:") for host in seen.hosts)


def test_a_broken_file_keeps_its_card_and_says_why(open_page: Open) -> None:
    page = open_page("/")
    card = page.locator(".card", has_text="broken.jsonl")
    card.locator("[role=alert]").wait_for()
    assert "This file cannot be opened" in card.text_content()
    assert "expected" in card.text_content()
    assert "unreadable" in card.text_content()


def test_search_and_filter_leave_what_fits(open_page: Open) -> None:
    page = open_page("/")
    page.wait_for_selector(".card b:text('Tree broadcast')")
    page.keyboard.press("/")
    page.keyboard.type("broadcast")
    page.wait_for_function("() => document.querySelectorAll('.card').length === 1")
    assert "tree-4.jsonl" in page.locator(".card").text_content()
    page.fill("#find", "no such thing")
    page.wait_for_selector("text=No trace matches 'no such thing'")
    page.click("text=Clear")
    page.wait_for_function("() => document.querySelectorAll('.card').length === 5")
    page.click(".listing-head label:has-text('Recorded')")
    page.wait_for_function("() => document.querySelectorAll('.card').length === 1")
    assert "lesson.jsonl" in page.locator(".card").text_content()


def test_a_new_trace_appears_by_itself(open_page: Open, tmp_path: Path) -> None:
    page = open_page("/", of=tmp_path)
    page.wait_for_selector("h1:text('No traces here yet. Three ways to get one')")
    assert page.locator(".command code").all_text_contents()[0] == "chunkscope demo"
    chunkscope.write(parse_spec("all_gather:ring:3").trace(), tmp_path / "gather.jsonl")
    page.wait_for_selector(".card b:text('Ring all_gather')")


def test_a_card_leads_to_the_player_and_the_mark_back(open_page: Open, seen: Seen) -> None:
    page = open_page("/")
    page.click(".card:has-text('ring-4.jsonl') a")
    page.wait_for_selector("#player-root[data-ready]", state="attached")
    assert "/trace/ring-4.jsonl" in page.url
    assert "token" not in page.url
    page.click(".brand")
    page.wait_for_selector(".card")
    page.keyboard.press("Space")  # the player of the page before must not wake up
    assert seen.errors == []


def test_simulate_shows_time_bound_and_the_other_algorithms(open_page: Open) -> None:
    page = open_page("/")
    page.wait_for_selector("#sim-player[data-ready]")
    page.fill("#sim-bytes", "64MiB")
    page.wait_for_function("() => document.querySelector('#sim-time').textContent.endsWith('ms')")
    spec = parse_spec("all_reduce:ring:4:64MiB")
    from chunkscope.units import format_ns

    assert page.text_content("#sim-time") == format_ns(spec.simulate().duration_ns)
    names = page.locator(".sim-bar span:first-child").all_text_contents()
    assert {"ring", "tree"} <= set(names)
    assert page.get_attribute("#sim-open", "href").startswith("/sim/all_reduce:ring:4:67108864")
    page.click("#sim-open")
    page.wait_for_selector("#player-root[data-ready]", state="attached")
    assert page.evaluate("window.chunkscopePlayers.main.film.meta.provenance") == "simulated"


@pytest.mark.parametrize(
    ("field", "text", "error"),
    [
        ("ranks", "0", "1 to 64"),
        ("ranks", "65", "1 to 64"),
        ("bytes", "3 apples", "unknown unit"),
        ("bytes", "10", "10 bytes are no multiple"),
        ("topology", "ring:fast", "fast"),
        ("topology", "cube", "cube"),
    ],
)
def test_bad_input_is_told_under_its_field(
    open_page: Open, field: str, text: str, error: str
) -> None:
    page = open_page("/")
    page.wait_for_selector("#sim-player[data-ready]")
    page.fill(f"#sim-{field}", text)
    page.wait_for_selector(".sim-preview.stale")
    wrapper = page.locator(".mantine-InputWrapper-root", has=page.locator(f"#sim-{field}"))
    assert error in wrapper.locator(".mantine-InputWrapper-error").text_content()
    assert page.locator(".mantine-InputWrapper-error").count() == 1
    assert page.locator("#sim-player canvas").count() == 3  # the last picture stays


def test_time_by_size_opens_a_chart(open_page: Open, seen: Seen) -> None:
    page = open_page("/")
    page.wait_for_selector("#sim-player[data-ready]")
    page.click("#sim-chart")
    page.wait_for_selector("#chart-body .only-light .legendtext:text('tree')")
    assert "64 MiB" in page.locator("#chart-body .only-light .xtick").all_text_contents()
    assert seen.errors == []


def test_a_dropped_file_is_opened_and_a_wrong_one_refused(
    open_page: Open, folder: Path, tmp_path: Path
) -> None:
    page = open_page("/")
    wrong = tmp_path / "notes.txt"
    wrong.write_text("to do")
    page.set_input_files("#drop input[type=file]", wrong)
    page.wait_for_function("() => document.querySelector('#drop-error').textContent.length > 0")
    assert page.text_content("#drop-error").startswith("notes.txt: ")
    page.set_input_files("#drop input[type=file]", folder / "tree-4.jsonl")
    page.wait_for_selector("#player-root[data-ready]", state="attached")
    assert "/upload/" in page.url


@pytest.mark.parametrize("view", ["simple", "full"])
def test_click_on_a_moving_chunk_tells_everything_about_it(
    play: Open, seen: Seen, view: str
) -> None:
    page = play(f"/trace/ring-4.jsonl?view={view}&t=2.5")
    key = message_at(page, 2)
    click_on(page, key)
    page.wait_for_selector(".inspect h3")
    words = page.locator(".inspect").inner_text()
    trace = parse_spec("all_reduce:ring:4").trace()
    send = trace.events.row(int(key))
    assert words.startswith(f"rank {send['rank']}\n→\nrank {send['peer']}\nchunk 1")
    assert "Step 3 of 6, reduce-scatter, 16 B" in words
    assert "travelled 1.00 µs" in words
    table = [
        page.locator(f".holdings tbody tr:nth-child({k}) td.number").all_text_contents()
        for k in (1, 2, 3)
    ]
    # Chunk 1 at rank 1: 20 is there, 10 + 30 + 40 arrives.
    assert table == [["20.0"] * 5, ["80.0"] * 5, ["100.0"] * 5]
    counts = page.locator(".holdings td.nowrap").all_text_contents()
    assert counts == ["1 of 4", "3 of 4", "4 of 4"]
    assert f"m={key}" in page.url
    page.keyboard.press("Escape")
    page.wait_for_function(
        "() => document.querySelector('#player-page').dataset.inspector === 'closed'"
    )
    assert "m=" not in page.url
    assert seen.errors == []


def test_a_called_collective_shows_its_numbers_and_the_callers_line(play: Open, seen: Seen) -> None:
    page = play("/trace/lesson.jsonl")
    page.keyboard.press("End")
    shown = page.evaluate(
        "(() => { const { main } = window.chunkscopePlayers;"
        " return window.chunkscopePlayer.at(main.film, main.t).map((p) => p.text); })()"
    )
    assert {"1.0", "2.0", "3.0"} <= set(shown)
    assert any("lesson.py:14" in text for text in shown)
    click_on(page, "r1")
    page.wait_for_selector(".inspect h3")
    words = page.locator(".inspect").inner_text()
    assert "lesson.py:14" in words
    lines = page.locator(".source .line").all_inner_texts()
    assert [line.split("\n")[0] for line in lines] == ["13", "14", "15"]
    assert "dist.all_reduce(tensor)" in page.locator(".source .here").inner_text()
    values = page.locator(".holdings td.number").all_text_contents()
    assert values == ["2.0", "2.0", "3.0", "3.0"]  # value and mean, before and after
    assert seen.errors == []


def test_how_could_this_be_done_takes_the_same_inputs(play: Open, seen: Seen) -> None:
    page = play("/trace/lesson.jsonl")
    point = page.evaluate(
        """() => {
      const { main } = window.chunkscopePlayers;
      const { columns: c, refs } = main.film;
      const [pane] = main.panes;
      const box = pane.element.getBoundingClientRect();
      const row = pane.picks.find((k) => refs[c.ref[k]]?.action === 'how');
      const [x, y, w, h] = c.a.slice(4 * row, 4 * row + 4);
      return [box.x + (x + w / 2 - pane.crop.x) * pane.scale,
              box.y + (y + h / 2 - pane.crop.y) * pane.scale];
    }"""
    )
    page.mouse.click(*point)
    page.wait_for_selector(".how-row")
    assert "tree" in page.locator(".how-row b").all_text_contents()
    page.click(".how-row:has-text('tree')")
    page.wait_for_url("**/how/tree/0/trace/lesson.jsonl*")
    page.wait_for_function(
        "() => window.chunkscopePlayers.main.film.meta.provenance === 'simulated'"
    )
    page.keyboard.press("End")
    shown = page.evaluate(
        "(() => { const { main } = window.chunkscopePlayers;"
        " return window.chunkscopePlayer.at(main.film, main.t).map((p) => p.text); })()"
    )
    assert "3" in shown or "3.0" in shown
    assert seen.errors == []


def test_calls_are_reached_by_keys_buttons_and_list(play: Open) -> None:
    page = play("/trace/lesson.jsonl")
    assert page.text_content(".here") == "all_reduce #0"
    page.keyboard.press("]")
    page.wait_for_selector(".here:text('broadcast #1')")
    page.wait_for_function("() => window.chunkscopePlayers.main.film.meta.call === 1")
    assert "call=1" in page.url
    page.keyboard.press("[")
    page.wait_for_selector(".here:text('all_reduce #0')")
    page.click("[aria-label='Next call']")
    page.wait_for_selector(".here:text('broadcast #1')")
    page.click("[aria-label='All 2 calls']")
    page.click(".call-item:has-text('all_reduce')")
    page.wait_for_selector(".here:text('all_reduce #0')")
    again = play("/trace/lesson.jsonl?call=1")
    assert again.text_content(".here") == "broadcast #1"


def test_view_switch_keeps_the_moment_of_the_trace(play: Open) -> None:
    page = play("/trace/ring-4.jsonl?t=2.5")
    page.click("#view label:has-text('Full')")
    page.wait_for_selector("#player-page[data-view=full]")
    page.wait_for_function("() => window.chunkscopePlayers.main.film.view === 'full'")
    assert player(page, "ns") == pytest.approx(2500)
    assert page.locator("#pane-state canvas").count() == 3
    page.click("button[role=tab]:has-text('In flight')")
    page.wait_for_function("() => document.querySelector('#pane-flight canvas').width > 300")
    assert "view=full" in page.url


def test_opening_the_inspector_does_not_move_the_full_picture(play: Open) -> None:
    page = play("/trace/ring-4.jsonl?view=full&t=2.5")
    before = page.locator("#pane-main").bounding_box()
    click_on(page, message_at(page, 2))
    page.wait_for_selector(".inspect h3")
    assert page.locator("#pane-main").bounding_box() == before


def test_export_menu_saves_a_file(play: Open, tmp_path: Path) -> None:
    page = play("/trace/ring-4.jsonl")
    page.click("#export .button-ink")
    with page.expect_download(timeout=30_000) as started:
        page.click(".export-item:has-text('SVG')")
    assert started.value.suggested_filename == "ring-4.svg"
    saved = tmp_path / "ring-4.svg"
    started.value.save_as(saved)
    assert saved.read_text("utf-8").startswith("<svg")


def test_link_is_copied_with_its_moment(browser: Any, play: Open) -> None:
    page = play("/trace/ring-4.jsonl", permissions=["clipboard-read", "clipboard-write"])
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.click("#copy-link")
    page.wait_for_selector("#copy-link:has-text('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    assert "t=1&" in page.url + "&"


def test_a_trace_that_is_not_there_is_told(open_page: Open) -> None:
    page = open_page("/trace/nothing.jsonl")
    page.wait_for_selector("[role=alert]:has-text('nothing.jsonl: no trace of this folder')")


def test_an_empty_trace_is_told(open_page: Open, tmp_path: Path) -> None:
    chunkscope.write(chunkscope.Trace.build({}), tmp_path / "empty.jsonl")
    page = open_page("/trace/empty.jsonl", of=tmp_path)
    page.wait_for_selector("[role=alert]:has-text('This trace has no events')")


def test_nothing_leaves_the_machine(play: Open, seen: Seen) -> None:
    page = play("/trace/large-8.jsonl?view=full")
    page.keyboard.press("ArrowRight")
    page.wait_for_load_state("networkidle")
    assert {host.split(":")[0] for host in seen.hosts} == {"127.0.0.1"}
    assert seen.errors == []


def test_phone_has_one_column_and_the_bar_at_the_bottom(play: Open) -> None:
    page = play("/trace/ring-4.jsonl", viewport=(390, 844))
    bar = page.locator(".cs-bar").bounding_box()
    assert bar["y"] + bar["height"] == pytest.approx(844, abs=1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    play_button = page.locator(".cs-play").bounding_box()
    assert min(play_button["width"], play_button["height"]) >= 44


def test_lesson_is_a_real_trace() -> None:
    assert [call.collective for call in lesson().calls()] == ["all_reduce", "broadcast"]
