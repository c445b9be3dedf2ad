"""The look of the pages: what Mantine is told, and the colours as CSS variables.

Colours come from `theme.PALETTES`, so that a page and the pictures on it are of one kind.
"""

from __future__ import annotations

from typing import Any

from .theme import PALETTES

SANS = "Inter, system-ui, sans-serif"
MONO = "'JetBrains Mono', ui-monospace, monospace"

# From the lightest to the darkest; Mantine's "gray" and its primary colour. There is no accent.
_GREYS = [
    "#f5f6f8", "#e9ecf0", "#e2e6eb", "#cfd6de", "#bcc5d0",
    "#8c97a5", "#5f6b7a", "#414b58", "#2a323d", "#141a22",
]  # fmt: skip
# Mantine's "dark": 0 is text, 4 borders, 6 surfaces, 7 the page.
_DARKS = [
    "#d5dbe3", "#b7c0cb", "#8b96a5", "#6b7686", "#36414f",
    "#252c36", "#161b22", "#0e1116", "#0c0f13", "#090b0e",
]  # fmt: skip
_INK = ["#f2f5f8", *_GREYS[1:]]


def mantine_theme() -> dict[str, Any]:
    """Return Mantine's theme."""
    return {
        "primaryColor": "ink",
        "primaryShade": {"light": 9, "dark": 0},
        "colors": {"ink": _INK, "gray": _GREYS, "dark": _DARKS},
        "autoContrast": True,
        "black": "#141a22",
        "fontFamily": SANS,
        "fontFamilyMonospace": MONO,
        "headings": {"fontFamily": SANS, "fontWeight": "600"},
        "defaultRadius": 8,
        "fontSizes": {"xs": "12px", "sm": "13px", "md": "14px", "lg": "16px", "xl": "20px"},
        "cursorType": "pointer",
        "respectReducedMotion": True,
        "components": {
            "Tooltip": {"defaultProps": {"openDelay": 400, "withArrow": False}},
            "Menu": {"defaultProps": {"shadow": "none", "radius": 10}},
            "Modal": {"defaultProps": {"centered": True, "radius": 10, "shadow": "none"}},
            "Select": {"defaultProps": {"comboboxProps": {"shadow": "none"}}},
            "Autocomplete": {"defaultProps": {"comboboxProps": {"shadow": "none"}}},
        },
    }


def css_variables() -> str:
    """Return the CSS that gives each colour of the pictures a name, ``--cs-ink`` for ink."""
    light, dark = (_rules(PALETTES[name]) for name in ("light", "dark"))
    return (
        f":root{{{light};color-scheme:light}}"
        f":root[data-mantine-color-scheme=dark]{{{dark};color-scheme:dark}}"
        # Before Mantine has spoken, the system's wish.
        f"@media(prefers-color-scheme:dark){{:root:not([data-mantine-color-scheme])"
        f"{{{dark};color-scheme:dark}}}}"
    )


def _rules(palette: Any) -> str:
    return ";".join(f"--cs-{token}:{colour or 'transparent'}" for token, colour in palette.items())
