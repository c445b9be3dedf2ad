"""What the wire tap costs an all_reduce: bare, recorded and tapped groups in turns, as ratios.

Run it:

    python tests/benchmarks/wire_cost.py [ranks ...]

All kinds of groups stand in the same processes and take turns many times, so that what else the
machine does falls on all of them. A time is the slowest rank's of that call; the table has medians.
The bar is a ratio of 1.6 for 16 MB on 2 ranks with 64 bytes of each payload.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

from chunkscope.traces.record.folder import claim_new
from chunkscope.traces.record.options import Options
from chunkscope.traces.record.ranks import Ranks
from chunkscope.traces.record.start import start, stop
from chunkscope.traces.record.wire import tap
from chunkscope.traces.record.wire.client import ENV_TAP

PAYLOADS = ("64", "digest")
KINDS = ("bare", "recorded", *(f"wire {payload}" for payload in PAYLOADS))
# Turns and calls a turn, by bytes.
ROUNDS = {4: (15, 20), 4096: (15, 20), 1_000_000: (15, 4), 16_000_000: (11, 1)}
Times = dict[tuple[int, str], list[float]]


def measure(controls: list[str], folder: str) -> Times:
    """Return seconds a call of each turn, by size and kind of group; runs in each rank."""
    groups = {"bare": None, "recorded": None}
    for payload, control in zip(PAYLOADS, controls, strict=True):
        recorder = start(f"{folder}/{payload}", run="benchmark")
        os.environ[ENV_TAP] = control
        groups[f"wire {payload}"] = dist.new_group()
        del os.environ[ENV_TAP]
        stop(recorder)
    found: Times = {}
    for size_bytes, (turns, calls) in ROUNDS.items():
        tensor = torch.ones(size_bytes // 4)
        for turn in range(turns):
            for kind, group in groups.items():
                recorder = None
                if kind != "bare":
                    recorder = start(f"{folder}/{kind}-{size_bytes}-{turn}", run="benchmark")
                tensor.fill_(1.0)
                dist.all_reduce(tensor[:1], group=group)
                dist.barrier()
                begun = time.perf_counter()
                for _ in range(calls):
                    dist.all_reduce(tensor, group=group)
                taken = (time.perf_counter() - begun) / calls
                if turn:  # the first one warms up
                    found.setdefault((size_bytes, kind), []).append(taken)
                if recorder is not None:
                    stop(recorder)
    return found


def main() -> None:
    """Measure and print."""
    print(f"{'ranks':>5}  {'size':>6}" + "".join(f"{kind + ' ms':>16}{'':8}" for kind in KINDS))
    for n in [int(word) for word in sys.argv[1:]] or [2, 4, 8]:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            controls = []
            for payload in PAYLOADS:
                tapped = folder / f"tap-{payload}"
                run = claim_new(tapped)
                variables = stack.enter_context(tap(tapped, run, Options(wire=payload)))
                controls.append(variables[ENV_TAP])
            ranks = stack.enter_context(Ranks(n))
            answers = ranks.run(measure, controls, str(folder), timeout=300)
            for size_bytes in ROUNDS:
                print(row(n, size_bytes, answers), flush=True)


def row(n: int, size_bytes: int, answers: list[Times]) -> str:
    """Return a line of the table: medians of each call's slowest rank, and ratios to bare."""
    medians = {
        kind: statistics.median(
            max(turn) for turn in zip(*(times[size_bytes, kind] for times in answers), strict=True)
        )
        for kind in KINDS
    }
    cells = "".join(
        f"{medians[kind] * 1e3:>16.3f} {medians[kind] / medians['bare']:>6.2f}x" for kind in KINDS
    )
    if size_bytes >= 1_000_000:
        name = f"{size_bytes // 1_000_000} MB"
    else:
        name = f"{size_bytes} B" if size_bytes < 1000 else f"{size_bytes // 1000} KB"
    return f"{n:>5}  {name:>6}{cells}"


if __name__ == "__main__":
    main()
