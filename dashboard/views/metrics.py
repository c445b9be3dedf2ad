"""Widths of texts, so that layout needs no font file.

text_width("Rank 3", 24, 700)     # 82.2 px
"""

from __future__ import annotations

from ..theme import MONO_EM

# Advance widths of Inter 4.1 at optical size 22, in thousandths of an em, characters 32 to 126.
# Source: the font's hmtx table.
_MEDIUM = (
    254, 271, 464, 625, 638, 940, 639, 289, 343, 343, 507, 654, 270, 450, 270, 355, 637, 396, 597,
    618, 645, 595, 614, 552, 613, 614, 270, 278, 654, 654, 654, 532, 983, 693, 649, 729, 709, 597,
    578, 741, 729, 259, 562, 671, 555, 894, 738, 758, 631, 760, 644, 638, 638, 724, 692, 986, 684,
    679, 632, 343, 355, 343, 463, 462, 302, 551, 600, 558, 600, 568, 356, 600, 583, 237, 237, 542,
    237, 873, 583, 584, 600, 600, 366, 517, 336, 583, 553, 805, 540, 553, 530, 424, 331, 424, 654,
)  # fmt: skip
_BOLD = (
    227, 297, 516, 638, 654, 981, 661, 309, 357, 357, 549, 668, 294, 458, 294, 377, 664, 413, 616,
    634, 667, 612, 635, 567, 635, 635, 294, 300, 668, 668, 668, 563, 1012, 732, 654, 734, 713, 607,
    584, 744, 734, 271, 574, 704, 562, 915, 746, 760, 641, 764, 654, 654, 653, 720, 729, 1020, 720,
    713, 651, 357, 377, 357, 476, 476, 334, 568, 616, 574, 616, 581, 386, 617, 606, 260, 260, 567,
    260, 899, 606, 599, 616, 616, 392, 542, 367, 606, 580, 836, 561, 581, 550, 456, 360, 456, 668,
)  # fmt: skip
_OTHERS = {"·": 282, "×": 660, "→": 941, "–": 500, "µ": 600, "…": 840}


def text_width(text: str, size: float, weight: int = 500, font: str = "sans") -> float:
    """Return the width of a text in px; kerning is not counted, so it is a px or two too wide."""
    if font == "mono":
        return len(text) * MONO_EM * size
    table = _BOLD if weight >= 600 else _MEDIUM
    widths = (table[ord(c) - 32] if " " <= c <= "~" else _OTHERS.get(c, 700) for c in text)
    return sum(widths) * size / 1000


def fit(text: str, width: float, size: float, weight: int = 500, font: str = "sans") -> str:
    """Return a text cut with "…" where it is wider than `width`."""
    if text_width(text, size, weight, font) <= width:
        return text
    while text and text_width(text + "…", size, weight, font) > width:
        text = text[:-1]
    return text.rstrip() + "…"
