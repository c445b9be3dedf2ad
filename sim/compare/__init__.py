"""Compare the algorithms of a collective over sizes, and choose.

found = compare("all_reduce", 64, "dgx-h100x8", sizes="1KiB:1GiB")
found.winner(1 << 20)           # 'two_shot'
found.crossovers                # sizes at which another one becomes the fastest
found.to_csv()
"""

from __future__ import annotations

from .comparison import Comparison, Crossover, LeftOut
from .sizes import parse_sizes
from .sweep import compare

__all__ = ["Comparison", "Crossover", "LeftOut", "compare", "parse_sizes"]
