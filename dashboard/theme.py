"""Colours, fonts and sizes: the only place that knows a colour.

A picture names colours by *tokens* ("ink", "cell", "hue3"), and each theme gives every token a
colour or nothing. So one film serves both themes. Hue stands for a contributing rank and for
nothing else; all that is not data is neutral.

    PALETTES["dark"]["ink"]     # '#f2f5f8'
    PALETTES["light"]["edge1"]  # '#141a22': yellow on white needs an ink edge
    PALETTES["dark"]["edge1"]   # None: on dark grounds it does not
"""

from __future__ import annotations

from collections.abc import Mapping

Palette = Mapping[str, str | None]

FONTS = {"sans": "Inter", "mono": "JetBrains Mono"}
# Width of a character of the mono font, in em; the sans font has no fixed width.
MONO_EM = 0.6

THEMES = ("light", "dark")
N_HUES = 16
# Lowest contrast that a patch of colour may have against the ground it lies on (WCAG 2, 1.4.11).
PATCH_CONTRAST = 3.0

_NEUTRALS: dict[str, dict[str, str | None]] = {
    "light": {
        "bg": "#f5f6f8", "panel": "#ffffff", "line": "#e2e6eb", "track": "#e9ecf0",
        "card": "#ffffff", "card_edge": "#cfd6de", "hull": "#f5f6f8",
        "link": "#8b97a5", "idle": "#bcc5d0", "faint": "#8c97a5", "muted": "#5f6b7a",
        "text": "#2a323d", "ink": "#141a22", "inverse": "#ffffff",
        "cell": "#dde3ea", "hollow": "#858f9c", "soft": "#5a6573", "slot": "#cdd4dc",
        "well": "#dde3ea", "window": None, "window_edge": None,
        "ramp0": "#d3d9e0", "ramp1": "#a0aab6",
    },
    "dark": {
        "bg": "#0e1116", "panel": "#161b22", "line": "#252c36", "track": "#222a34",
        "card": "#1a2029", "card_edge": "#36414f", "hull": "#1a2029",
        "link": "#6a7788", "idle": "#3d4856", "faint": "#6b7686", "muted": "#8b96a5",
        "text": "#d5dbe3", "ink": "#f2f5f8", "inverse": "#0e1116",
        "cell": "#303b49", "hollow": "#74808f", "soft": "#9ba6b4", "slot": "#3a4553",
        "well": "#0e1218", "window": "#0e1116", "window_edge": "#0e1116",
        "ramp0": "#36414f", "ramp1": "#8b96a5",
    },
}  # fmt: skip

# Eight hues chosen to stay apart under normal, deutan, protan and tritan sight.
_HUES = {
    "light": ("#5c68dc", "#f5c41f", "#87227d", "#27dcc0", "#e57b02", "#39ade6", "#515c04",
              "#9f6c80"),
    "dark": ("#707ff5", "#fece14", "#aa419b", "#a5ebc9", "#f68117", "#71c0ff", "#6f7633",
             "#b98499"),
}  # fmt: skip


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours, 1 to 21.

    Source: WCAG 2.2, definitions of relative luminance and contrast ratio.

    Example:
        >>> round(contrast("#000000", "#ffffff"), 1)
        21.0
    """
    dark, light = sorted((_luminance(first), _luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def patch(colour: str, ground: str, ink: str) -> str | None:
    """Return the colour of the edge that a patch needs on a ground, or None where it needs none."""
    return None if contrast(colour, ground) >= PATCH_CONTRAST else ink


def hue(rank: int) -> str:
    """Return the token of a rank's colour; beyond 16 ranks the colours come round again."""
    return f"hue{rank % N_HUES}"


def edge(rank: int) -> str:
    """Return the token of the edge around a patch of a rank's colour on a card."""
    return f"edge{rank % N_HUES}"


def ink_edge(rank: int) -> str:
    """Return the token of the edge around a patch of a rank's colour on an ink block."""
    return f"inkedge{rank % N_HUES}"


def mix(first: str, second: str, share: float) -> str:
    """Return the colour that lies `share` of the way from the first to the second."""
    pairs = zip(_rgb(first), _rgb(second), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    linear = [
        v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4
        for v in (c / 255 for c in _rgb(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _palette(theme: str) -> dict[str, str | None]:
    neutrals = _NEUTRALS[theme]
    palette: dict[str, str | None] = dict(neutrals)
    ink, card, inverse = (str(neutrals[name]) for name in ("ink", "card", "inverse"))
    window = neutrals["window"]
    for rank in range(N_HUES):
        base = _HUES[theme][rank % 8]
        # Ranks 8 to 15 repeat the hues in a second lightness.
        colour = base if rank < 8 else mix(base, "#ffffff" if theme == "dark" else "#000000", 0.4)
        palette[hue(rank)] = colour
        palette[edge(rank)] = patch(colour, card, ink)
        palette[ink_edge(rank)] = patch(colour, ink, inverse) if window is None else None
    for level in range(N_RAMP):
        share = level / (N_RAMP - 1)
        palette[f"fill{level}"] = mix(str(neutrals["ramp0"]), str(neutrals["ramp1"]), share)
    return palette


# Steps of lightness between "one rank is in it" and "all but one are in it".
N_RAMP = 8

PALETTES: dict[str, dict[str, str | None]] = {theme: _palette(theme) for theme in THEMES}
