"""Painter: primitives become an SVG document.

    Path("ring.svg").write_text(svg(film, 2.5, theme="light"))

Fonts are named, and embedded as far as they are used where the font packages are there.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from ..film import Film, Panel, Style
from ..scene import Prim, at
from . import fonts

_FALLBACK = {"sans": "system-ui, sans-serif", "mono": "ui-monospace, monospace"}


def svg(
    film: Film,
    t: float,
    *,
    theme: str = "light",
    size: tuple[int, int] | None = None,
    panel: Panel | None = None,
    embed: bool = True,
) -> str:
    """Return a film's moment as an SVG document.

    Args:
        film: The film.
        t: Film time in seconds.
        theme: light or dark.
        size: Width and height to show it at; the film's own by default.
        panel: A part of the frame, to show that alone.
        embed: Whether to embed the used characters of the fonts.
    """
    prims = [p for p in at(film, t) if panel is None or p.panel in ("frame", panel.name)]
    box = (0.0, 0.0, *film.size) if panel is None else (panel.x, panel.y, panel.w, panel.h)
    title = str(film.meta.get("title", ""))
    return document(prims, film.palettes[theme], film.fonts, box=box, size=size, title=title,
                    embed=embed)  # fmt: skip


def document(
    prims: Sequence[Prim],
    palette: Mapping[str, str | None],
    families: Mapping[str, str],
    *,
    box: tuple[float, float, float, float],
    size: tuple[int, int] | None = None,
    title: str = "",
    embed: bool = False,
) -> str:
    """Return primitives as an SVG document that shows `box` at `size`."""
    w, h = size or (round(box[2]), round(box[3]))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" '
        f'viewBox="{" ".join(_n(v) for v in box)}" role="img" aria-label={quoteattr(title)}>'
    ]
    if title:
        lines.append(f"<title>{escape(title)}</title>")
    if embed:
        lines.append(_embedded(prims, families))
    lines += [line for line in (_prim(prim, palette, families) for prim in prims) if line]
    return "\n".join([*(line for line in lines if line), "</svg>", ""])


def _embedded(prims: Sequence[Prim], families: Mapping[str, str]) -> str:
    """Return a style element with the used characters of each font; empty where there are none."""
    faces = [
        face_rule(font, families[font], "".join(p.text for p in prims if p.style.font == font))
        for font in families
    ]
    found = [face for face in faces if face]
    return f"<style>{''.join(found)}</style>" if found else ""


def face_rule(font: str, family: str, characters: str) -> str:
    """Return a CSS rule that holds a font's part for some characters; empty without the font."""
    raw = fonts.subset(font, characters) if characters else None
    if raw is None:
        return ""
    data = base64.b64encode(raw).decode()
    return (
        f"@font-face{{font-family:'{family}';font-weight:100 900;"
        f"src:url(data:font/woff2;base64,{data}) format('woff2')}}"
    )


def _prim(prim: Prim, palette: Mapping[str, str | None], families: Mapping[str, str]) -> str:
    style = prim.style
    fill = palette.get(style.fill) if style.fill is not None else None
    stroke = palette.get(style.stroke) if style.stroke is not None and style.width > 0 else None
    if prim.opacity <= 0 or prim.kind == "pick" or (fill is None and stroke is None):
        return ""
    fade = f' opacity="{_n(prim.opacity)}"' if prim.opacity < 1 else ""
    a, b, c, d = prim.geometry
    if prim.kind in ("text", "clock"):
        return "" if fill is None else _text(prim, fill, families, fade)
    paint = f' fill="{fill or "none"}"{_stroke(style, stroke)}{fade}'
    if prim.kind == "line":
        ends = f'x1="{_n(a)}" y1="{_n(b)}" x2="{_n(c)}" y2="{_n(d)}"'
        return f"<line {ends}{_stroke(style, stroke)}{fade}/>" if stroke else ""
    if prim.kind == "rect":
        if c <= 0 or d <= 0:
            return ""
        r = min(style.radius, c / 2, d / 2)
        corner = f' rx="{_n(r)}"' if r else ""
        return f'<rect x="{_n(a)}" y="{_n(b)}" width="{_n(c)}" height="{_n(d)}"{corner}{paint}/>'
    assert prim.points is not None
    points = " ".join(f"{_n(x)},{_n(y)}" for x, y in prim.points.tolist())
    shape = "polygon" if style.fill is not None else "polyline"
    return f'<{shape} points="{points}"{paint}/>'


def _text(prim: Prim, fill: str, families: Mapping[str, str], fade: str) -> str:
    style = prim.style
    anchor = f' text-anchor="{style.anchor}"' if style.anchor != "start" else ""
    family = f"{families[style.font]}, {_FALLBACK[style.font]}"
    return (
        f'<text x="{_n(prim.geometry[0])}" y="{_n(prim.geometry[1])}"{anchor} '
        f'font-family="{family}" font-size="{_n(style.size)}" font-weight="{style.weight}" '
        f'fill="{fill}" xml:space="preserve"{fade}>{escape(prim.text)}</text>'
    )


def _stroke(style: Style, stroke: str | None) -> str:
    if stroke is None:
        return ""
    dash = f' stroke-dasharray="{" ".join(map(_n, style.dash))}"' if style.dash else ""
    cap = ' stroke-linecap="round"' if style.cap == "round" else ""
    return f' stroke="{stroke}" stroke-width="{_n(style.width)}"{dash}{cap}'


def _n(value: float) -> str:
    """Return a number with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
