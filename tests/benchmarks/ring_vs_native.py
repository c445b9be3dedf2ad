"""Our ring all_reduce against native gloo's, unrecorded, on loopback.

    python tests/benchmarks/ring_vs_native.py

The bar is a ratio of 1.2 at 64 MB.
"""

from __future__ import annotations

from _race import HEADER, race, row

from chunkscope.traces.record.ranks import Ranks

ROUNDS = {4_000: 201, 1_000_000: 101, 64_000_000: 25}


def main() -> None:
    print(HEADER)
    for n in (2, 4):
        with Ranks(n) as ranks:
            for size_bytes, rounds in ROUNDS.items():
                by_rank = ranks.run(race, size_bytes, rounds, timeout=120.0)
                print(row(size_bytes, by_rank), flush=True)


if __name__ == "__main__":
    main()
