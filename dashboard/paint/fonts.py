"""The font files, and parts of them to embed.

The fonts come as packages; without them the pictures name the families and the viewer's own fonts
stand in.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path

from ...errors import MissingExtra

_PACKAGES = {"sans": "fontpkg_inter", "mono": "fontpkg_jetbrains_mono"}


@cache
def font_file(font: str) -> Path | None:
    """Return the variable font of a family ("sans" or "mono"); None where it is not installed."""
    try:
        package = import_module(_PACKAGES[font])
    except ImportError:
        return None
    upright = [p for p in Path(package.ROOT).rglob("*.ttf") if "Italic" not in p.name]
    return upright[0] if upright else None


def require(font: str) -> Path:
    """Return the font file of a family.

    Raises:
        MissingExtra: Its package is not installed.
    """
    path = font_file(font)
    if path is None:
        raise MissingExtra("Pictures", "export", _PACKAGES[font].replace("_", "-"))
    return path


def subset(font: str, characters: Iterable[str]) -> bytes | None:
    """Return the characters' part of a font as woff2; None where fonts or fontTools are missing."""
    path = font_file(font)
    try:
        from fontTools import subset as tool
    except ImportError:
        return None
    if path is None:
        return None
    options = tool.Options(flavor="woff2", layout_features=["kern", "calt", "ccmp", "mark"])
    options.notdef_outline = True
    face = tool.load_font(str(path), options)
    subsetter = tool.Subsetter(options)
    subsetter.populate(text="".join(sorted(set(characters))))
    subsetter.subset(face)
    out = io.BytesIO()
    face.flavor = "woff2"
    # The time of writing stays out, so that the same film gives the same bytes.
    face.recalcTimestamp = False
    tool.save_font(face, out, options)
    face.close()
    return out.getvalue()
