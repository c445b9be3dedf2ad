"""Our ring all_reduce against native gloo's on four hosts with links of 100 Mbit/s.

    sudo python tests/benchmarks/shaped_links.py

The hosts are network namespaces, see `_shaped`. The bar is a ratio of 1.05 from 1 MB up.
"""

from __future__ import annotations

import json
import sys

from _race import HEADER, race, row
from _shaped import MISSING, are_possible, hosts, run_on

RANKS = 4
RATE = "100mbit"
ROUNDS = {1_000_000: 25, 16_000_000: 7}


def worker() -> None:
    """Be one rank and print its times."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {size: race(size, rounds) for size, rounds in ROUNDS.items()}
    dist.barrier()
    print(json.dumps(found))


def main() -> None:
    if "--worker" in sys.argv:
        worker()
        return
    if not are_possible():
        print(f"shaped links: {MISSING}")
        return
    with hosts(RANKS, RATE) as names:
        outputs = run_on(names, [sys.executable, __file__, "--worker"], timeout=200)
    answers = [json.loads(output) for output in outputs]
    print(HEADER)
    for size_bytes in ROUNDS:
        print(row(size_bytes, [answer[str(size_bytes)] for answer in answers]))


if __name__ == "__main__":
    main()
