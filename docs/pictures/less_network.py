"""Draw docs/pictures/less-network.svg: where the time goes on three networks.

python docs/pictures/less_network.py [OUT.svg]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from chunkscope.dashboard.film import Clock
from chunkscope.dashboard.paint.svg import svg
from chunkscope.dashboard.reel import Reel
from chunkscope.sim.critical import Stage
from chunkscope.sim.spec import Spec

RANKS, SIZE_BYTES = 64, 1 << 30
NETWORKS = (
    ("star", "one switch", "no uplinks"),
    ("fat-tree:8", "fat-tree:8", "16 leaves, 64 uplinks"),
    ("fat-tree:8x4", "fat-tree:8x4", "4 leaves, 16 uplinks"),
)
W, H = 1200, 420
LEFT, RIGHT = 270.0, 1090.0
TOP, PITCH, BAR_H = 120.0, 84.0, 48.0


def chain(topology: str) -> tuple[Sequence[Stage], float]:
    """Return the messages that decide the end, and the end itself in ns."""
    spec = Spec("all_reduce", "halving_doubling", RANKS, size_bytes=SIZE_BYTES, topology=topology)
    replay = spec.simulate()
    return replay.chain, replay.exact_duration_ns


def draw(found: Sequence[tuple[Sequence[Stage], float]]) -> Reel:
    """Return the picture: a bar a network, a piece a message."""
    reel = Reel()
    reel.panel("picture", 0, 0, W, H)
    reel.rect(0, 0, W, H, fill="panel", z=-2)
    reel.text(30, 48, "64 ranks add up 1 GiB by halving-doubling", size=28, weight=700, fill="ink")
    reel.text(30, 82, "The twelve messages in a row that decide when it is over",
              size=20, weight=500, fill="text")  # fmt: skip
    longest = max(end for _, end in found)
    for k, ((_, name, about), (stages, end)) in enumerate(zip(NETWORKS, found, strict=True)):
        y = TOP + k * PITCH
        reel.text(30, y + 20, name, size=20, weight=700, fill="ink")
        reel.text(30, y + 43, about, size=17, weight=400, fill="muted")
        for stage in stages:
            x1, x2 = (LEFT + t / longest * (RIGHT - LEFT) for t in (stage.begin_ns, stage.end_ns))
            shared = stage.shared_ns / longest * (RIGHT - LEFT)
            reel.rect(x1, y, max(x2 - x1 - shared - 1.5, 0.5), BAR_H, fill="ink", radius=2)
            if shared > 2.5:
                reel.rect(x2 - shared - 0.5, y + 1, shared - 2, BAR_H - 2, fill="hue1",
                          stroke="ink", width=1, radius=2)  # fmt: skip
        x = LEFT + end / longest * (RIGHT - LEFT)
        reel.text(x + 10, y + 31, f"{end / 1e6:.1f} ms", size=20, weight=700, fill="ink",
                  font="mono")  # fmt: skip
    y = TOP + len(NETWORKS) * PITCH + 14
    for x, fill, text in (
        (LEFT, "ink", "the message’s own bytes"),
        (LEFT + 290, "hue1", "longer, because others use a link of its path"),
    ):
        reel.rect(x, y, 26, 18, fill=fill, stroke="ink", width=1, radius=2)
        reel.text(x + 38, y + 15, text, size=18, weight=500, fill="text")
    return reel


def main(out: Path) -> None:
    """Simulate and draw."""
    reel = draw([chain(topology) for topology, _, _ in NETWORKS])
    film = reel.film(
        size=(W, H),
        view="simple",
        duration_s=1.0,
        steps=(),
        phases=(),
        clock=Clock((0.0,), (0.0,), "ms", 1_000_000, 1),
        meta={},
    )
    out.write_text(svg(film, 0.0, theme="light"), "utf-8")


if __name__ == "__main__":
    here = Path(__file__).with_name("less-network.svg")
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else here)
