"""The step model against SimGrid's: what both predict, and what both take, in one run.

    python tests/benchmarks/against_simgrid.py          # about 2 minutes
    python tests/benchmarks/against_simgrid.py --all    # rings of 1,024 ranks, minutes each
    python tests/benchmarks/against_simgrid.py --write tests/sim/simgrid.json

Each line is one collective on one network. Both take turns, and the best of several runs counts.
Our time is building, binding and simulating in a warm process; SimGrid's is its whole process, the
start included, which the first lines show alone. `difference` is the largest of all ranks' ends.

`--write` keeps what SimGrid predicts, for the test that has no SimGrid.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from _simgrid import (
    FLAGS,
    HEADER_BYTES,
    Case,
    Pair,
    compare,
    ends_s,
    replay,
    version,
    write_files,
)

from chunkscope.sim.compiled import expecting
from chunkscope.sim.topology import Routing

RATE = "12.5GB/s"
# Up to this, both have the same digits; rounding alone is less.
SAME = 1e-9

RING = ("all_reduce", "ring", "allreduce", "lr")
DOUBLING = ("all_reduce", "recursive_doubling", "allreduce", "rdb")
RABENSEIFNER = ("all_reduce", "halving_doubling", "allreduce", "rab_rdb")
OTHERS = (
    ("broadcast", "tree", "bcast", "binomial_tree"),
    ("all_gather", "ring", "allgather", "NTSLR"),
    ("all_gather", "bruck", "allgather", "bruck"),
    ("all_gather", "recursive_doubling", "allgather", "rdb"),
    ("all_gather", "neighbor_exchange", "allgather", "ompi_neighborexchange"),
    ("all_to_all", "pairwise", "alltoall", "pair"),
    ("all_to_all", "direct", "alltoall", "basic_linear"),
    ("all_to_all", "bruck", "alltoall", "bruck"),
)
TORUS = {8: "4x2", 64: "8x8", 256: "16x16", 1024: "32x32"}


def star(n: int) -> str:
    """Return a star; all paths are of the same latency."""
    return f"star:{RATE},1us"


def torus(n: int, latency: str = "0us") -> str:
    """Return a square torus, or nearly so."""
    return f"torus:{TORUS[n]}:{RATE},{latency}"


def fat_tree(n: int, latency: str = "0us") -> str:
    """Return a fat tree, on which ECMP makes some messages meet."""
    return f"fat-tree:{RATE},{latency}"


def leaf_spine(n: int, latency: str = "1us", down_for_up: int = 1) -> str:
    """Return a fat tree of two levels; by destination, it has no conflict unless it is thinned."""
    each = {8: 4, 64: 8, 256: 16, 1024: 32}[n]
    return f"leaf-spine:{n // each}x{each // down_for_up}x{each}:" + ":".join(
        [f"{RATE},{latency}"] * 2
    )


def cases(*, everything: bool) -> Iterator[Case]:
    """Yield all that both models mean the same: links are shared by paths of one latency, or 0."""
    for n in (8, 64, 256, 1024):
        networks = (star(n), None), (torus(n, "1us"), None), (fat_tree(n), None)
        for network, routing in (*networks, (leaf_spine(n), "destination")):
            for names in (RING, DOUBLING, RABENSEIFNER):
                if names is not RING or n < 1024 or everything:
                    yield Case(*names, network, n, routing)
    for names in (DOUBLING, RABENSEIFNER):
        yield Case(*names, star(100), 100)  # no power of two
    for names in OTHERS:
        for network in (star(64), torus(64), fat_tree(64)):
            yield Case(*names, network, 64)
    yield Case(*OTHERS[5], torus(256), 256)
    for names in (RING, RABENSEIFNER, OTHERS[5], OTHERS[6]):
        for network, routing in (
            (leaf_spine(64, "0us", 2), "destination"),
            (fat_tree(64), "shortest"),
        ):
            yield Case(*names, network, 64, routing)
    for names in (RING, DOUBLING, RABENSEIFNER):
        yield Case(*names, torus(64), 64)
    for names, n, size in (
        (RING, 8, 8_000),
        (RING, 64, 64_000),
        (RING, 256, 256_000),
        (DOUBLING, 64, 1024),
        (RABENSEIFNER, 64, 64_000),
        (OTHERS[5], 8, 64_000_000),
    ):
        yield Case(*names, star(n), n, size_bytes=size)


def weighted() -> Iterator[Case]:
    """Yield cases where paths of unequal latency share a link, on which the models differ."""
    yield Case(*OTHERS[5], torus(64, "1us"), 64)
    for names in (DOUBLING, RABENSEIFNER, OTHERS[5]):
        yield Case(*names, fat_tree(64, "1us"), 64)


def table(found: list[Case], folder: Path, rounds: int) -> list[Pair]:
    """Print the cases as lines, and return them."""
    print(
        f"{'collective':<15}{'algorithm':<20}{'network':<43}{'ranks':>5}{'messages':>10}"
        f"{'ours, ms':>19}{'SimGrid, ms':>19}{'difference':>12}"
        f"{'CPU s, ours':>13}{'SimGrid':>9}{'ratio':>7}{'of wall':>9}"
    )
    pairs = []
    for case in found:
        pair = compare(case, folder, rounds if case.n_ranks < 1024 else 1)
        ours, theirs = pair.ours, pair.theirs
        print(
            f"{case.collective:<15}{case.algorithm:<20}{case.network:<43}{case.n_ranks:>5}"
            f"{pair.messages:>10,}{pair.ours_s.max() * 1e3:>19.12f}"
            f"{pair.theirs_s.max() * 1e3:>19.12f}{pair.difference:>12.1e}{ours[0]:>13.4f}"
            f"{theirs[0]:>9.2f}{theirs[0] / ours[0]:>7.0f}{theirs[1] / ours[1]:>9.0f}",
            flush=True,
        )
        pairs.append(pair)
    return pairs


def reasons(folder: Path) -> None:
    """Print what the flags are for: what SimGrid says without one of them."""
    whys = {
        "--cfg=network/crosstraffic:no": "acknowledgements take a part of the way back",
        "--cfg=smpi/send-is-detached-thresh:0": "small sends end before they have arrived",
        "--cfg=surf/precision:1e-12": "what happens within a nanosecond happens at once",
    }
    case = Case(*RABENSEIFNER, fat_tree(1024), 1024)
    print(f"\nWithout one of the flags, {case.algorithm} on {case.network}, 1,024 ranks:")
    write_files(case, folder)
    ours = ends_s(case.simulate())
    for flag, why in whys.items():
        flags = [each for each in FLAGS if each != flag]
        theirs = replay(case, folder, flags=flags).end_s
        name = flag.partition(":")[0].partition("=")[2]
        print(f"  {name:<32}{np.abs(ours / theirs - 1).max():>9.1e}  {why}")


def write(pairs: list[Pair], path: Path) -> None:
    """Keep what SimGrid predicts, when the first and when the last rank is done.

    Large cases are left out, and those where a hash chooses the paths: another hash, other times.
    """
    names = ("collective", "algorithm", "network", "n_ranks", "routing", "size_bytes")
    rows = [
        [*(getattr(pair.case, name) for name in names), pair.theirs_s.min(), pair.theirs_s.max()]
        for pair in pairs
        if pair.messages < 200_000 and pair.case.topology.routing is not Routing.ECMP
    ]
    about = {"simgrid": version(), "flags": FLAGS, "header_bytes": HEADER_BYTES}
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    columns = json.dumps([*names, "first_end_s", "last_end_s"])
    path.write_text(
        json.dumps(about, indent=1)[:-2]
        + f',\n "columns": {columns},\n "rows": [\n{lines}\n ]\n}}\n'
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--all", action="store_true", help="rings of 1,024 ranks, too: minutes each"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of which the best counts")
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep what SimGrid predicts")
    asked = parser.parse_args()
    if version() is None:
        print("against SimGrid: left out, it needs smpirun (Debian: libsimgrid-dev)")
        return
    print(f"SimGrid {version()}: {' '.join(FLAGS)}; {HEADER_BYTES} bytes more a message\n")
    with tempfile.TemporaryDirectory() as temp, expecting(1_000_000):
        folder = Path(temp)
        pairs = table([*cases(everything=asked.all)], folder, asked.rounds)
        off = [pair for pair in pairs if pair.difference > SAME]
        print(f"\n{len(pairs) - len(off)} of {len(pairs)} within {SAME:.0e}, of every rank's end.")
        print(
            "\nWhere paths of unequal latency meet SimGrid gives the shorter one more of the link:"
        )
        table([*weighted()], folder, rounds=1)
        reasons(folder)
    if asked.write is not None:
        write(pairs, asked.write)


if __name__ == "__main__":
    main()
