"""How long the player's script takes for a frame and for a jump, in Chromium.

Run: python tests/benchmarks/player_frame.py [frames]

JS time is taken inside the page around `paint`, without compositing. Bars: 2 ms a frame and
10 ms a jump to any moment.
"""

from __future__ import annotations

import base64
import shutil
import sys
from pathlib import Path

import chunkscope
from chunkscope.dashboard.film import film
from chunkscope.sim.spec import parse_spec

ASSETS = Path(chunkscope.__file__).parent / "dashboard" / "assets"
FILMS = (
    ("ring of 4, numbers", "all_reduce:ring:4", "simple"),
    ("ring of 8, barcodes", "all_reduce:ring:8:64MiB", "simple"),
    ("tree of 8", "all_reduce:tree:8", "simple"),
    ("ring of 8, full view", "all_reduce:ring:8:64MiB", "full"),
    ("ring of 64", "all_reduce:ring:64:64MiB", "simple"),
)
MEASURE = """async ([bytes, frames]) => {
  document.body.innerHTML = '<div id="root" style="width:1280px"></div>';
  const player = await chunkscopePlayer(document.getElementById("root"), bytes, { theme: "light" });
  const { duration } = player.film;
  const cost = (moments) => {
    const times = moments.map((t) => { player.t = t; player.paint(); return player.cost; });
    return times.sort((a, b) => a - b);
  };
  const share = (times, q) => times[Math.min(times.length - 1, Math.floor(q * times.length))];
  // As played: 60 frames a second, from the middle of the film on.
  const frame = cost(Array.from({ length: frames }, (_, k) => (duration / 2 + k / 60) % duration));
  const jump = cost(Array.from({ length: 60 }, (_, k) => ((k * 37) % 60 / 60) * duration));
  player.destroy();
  return [share(frame, 0.5), share(frame, 0.95), share(jump, 0.5), share(jump, 0.95)];
}"""


def main() -> None:
    from playwright.sync_api import sync_playwright

    frames = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if chromium is None:
        print("no Chromium on this machine")
        return
    print(f"{'film':<24}{'rows':>8}{'kB':>7}{'frame ms':>10}{'p95':>7}{'jump ms':>9}{'p95':>7}")
    with sync_playwright() as driver:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page()
        page.add_style_tag(path=str(ASSETS / "player.css"))
        page.add_script_tag(path=str(ASSETS / "player.js"))
        for name, spec, view in FILMS:
            made = film(parse_spec(spec).trace(), view=view)
            raw = made.to_bytes()
            numbers = page.evaluate(MEASURE, [base64.b64encode(raw).decode(), frames])
            frame, late, jump, late_jump = (f"{number:.2f}" for number in numbers)
            print(
                f"{name:<24}{len(made):>8}{len(raw) / 1000:>7.0f}"
                f"{frame:>10}{late:>7}{jump:>9}{late_jump:>7}"
            )
        browser.close()


if __name__ == "__main__":
    main()
