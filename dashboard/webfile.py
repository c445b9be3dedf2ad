"""One HTML file with the player, the film and the fonts inside; it asks for nothing else."""

from __future__ import annotations

import base64
from html import escape
from importlib.resources import files

from .film import Film
from .paint.svg import face_rule

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{fonts}
html, body {{ margin: 0; background: {ground}; }}
{css}
</style>
</head>
<body>
<main id="player"></main>
<script id="film" type="text/plain">{film}</script>
<script>
{script}
</script>
<script>
window.chunkscopePlayer(
  document.getElementById("player"),
  document.getElementById("film").textContent,
  {{ theme: "{theme}", autoplay: true, link: true }},
);
</script>
</body>
</html>
"""


def page(film: Film, *, theme: str = "light") -> str:
    """Return a film as a page that plays it.

    Args:
        film: The film.
        theme: light or dark.
    """
    folder = files(__package__) / "assets"
    script = (folder / "player.js").read_text("utf-8")
    if "</script" in script:
        raise ValueError("player.js must not contain '</script'")
    words = "".join(film.texts) + "".join(step.name + step.sentence for step in film.steps)
    # What the player's own controls and its list of keys may say.
    signs = "".join(chr(code) for code in range(32, 127)) + words + "·×µ→–…¼½"
    fonts = [face_rule(font, family, signs) for font, family in film.fonts.items()]
    return _PAGE.format(
        title=escape(str(film.meta.get("title", "chunkscope"))),
        fonts="\n".join(fonts),
        ground=film.palettes[theme]["bg"],
        css=(folder / "player.css").read_text("utf-8"),
        film=base64.b64encode(film.to_bytes()).decode(),
        script=script,
        theme=theme,
    )
