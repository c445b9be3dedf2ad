"""Does gloo send what its schedules here say? Every operation, number of ranks and size.

    python tests/benchmarks/wire_exact.py [RANKS ...]

For each number of ranks one job runs every operation in every size under the wire tap. Each call's
messages are then compared with the schedule of its size, one by one, payloads included, by their
bytes or by the digest of all of them. A cell says how many messages were equal, or what differs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RANKS = (2, 3, 4, 5, 8)
SIZES = (4, 4096, 1 << 20, 16 << 20)
OPERATIONS = (
    "all_reduce",
    "broadcast",
    "all_gather",
    "all_gather_into_tensor",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "all_to_all_single",
    "all_to_all_single, uneven",
    "gather",
    "scatter",
    "barrier",
    "send, recv",
)
MARK = "CHUNKSCOPE_WIRE_EXACT"


def numbers(rank: int, call: int, count: int) -> np.ndarray[Any, Any]:
    """The tensor that a rank gives in a call: odd float32 values, all ranks different."""
    k = np.arange(count, dtype=np.int64)
    return ((k * 7 + rank * 131 + call * 17) % 251 * 0.1 + rank).astype(np.float32)


def shares(rank: int, n: int, block: int) -> list[int]:
    """Uneven: what a rank sends to each other, some of it nothing at all."""
    return [max(0, block + (rank - 2 * other) % 5 - 2) for other in range(n)]


def elements(operation: str, rank: int, n: int, size: int) -> int:
    """How many elements a rank gives, for blocks or a vector of so many bytes."""
    count = size // 4
    if operation == "all_to_all_single, uneven":
        return sum(shares(rank, n, -(-count // n)))
    if operation in ("all_reduce", "broadcast", "reduce", "send, recv"):
        return count
    block = -(-count // n)
    return block if operation.startswith("all_gather") or operation == "gather" else block * n


def run(rank: int, n: int) -> None:
    """Be one rank: every operation in every size."""
    import torch
    import torch.distributed as dist

    gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
    scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    call = 0
    for size in SIZES:
        for operation in OPERATIONS:
            count = elements(operation, rank, n, size)
            given = torch.from_numpy(numbers(rank, call, count))
            call += 1
            block = count // n
            room = torch.empty(max(block, 1) if block else 0)
            many = [torch.empty(count) for _ in range(n)]
            if operation == "all_reduce":
                dist.all_reduce(given)
            elif operation == "broadcast":
                dist.broadcast(given, src=n - 1)
            elif operation == "all_gather":
                dist.all_gather(many, given)
            elif operation == "all_gather_into_tensor":
                gather(torch.empty(n * count), given)
            elif operation == "reduce":
                dist.reduce(given, dst=n // 2)
            elif operation == "reduce_scatter":
                dist.reduce_scatter(room, list(given.split(block)))
            elif operation == "reduce_scatter_tensor":
                scatter(room, given)
            elif operation == "all_to_all":
                dist.all_to_all(list(torch.empty(count).split(block)), list(given.split(block)))
            elif operation == "all_to_all_single":
                dist.all_to_all_single(torch.empty(count), given)
            elif operation == "all_to_all_single, uneven":
                block = -(-(size // 4) // n)
                sent = shares(rank, n, block)
                got = [shares(other, n, block)[rank] for other in range(n)]
                dist.all_to_all_single(torch.empty(sum(got)), given, got, sent)
            elif operation == "gather":
                dist.gather(given, many if rank == 0 else None, dst=0)
            elif operation == "scatter":
                blocks = list(given.split(block)) if rank == n - 1 else None
                dist.scatter(room, blocks, src=n - 1)
            elif operation == "barrier":
                dist.barrier()
            elif rank == 0:
                dist.send(given, 1, tag=7)
            elif rank == 1:
                dist.recv(given, 0, tag=7)


def main_of_a_rank() -> None:
    """Join the job that the recorder has started, and run."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    run(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


def inputs_of(n: int) -> Callable[[Any], Any]:
    """What each rank gave, by the number of the call among the collectives."""
    numbered = [
        (number, operation, size)
        for number, (size, operation) in enumerate(
            (size, operation) for size in SIZES for operation in OPERATIONS
        )
        if operation != "send, recv"
    ]

    def given(call: Any) -> Any:
        number, operation, size = numbered[call.coll_seq]
        return [numbers(rank, number, elements(operation, rank, n, size)) for rank in range(n)]

    return given


def table(n: int) -> dict[tuple[str, int], str]:
    """Record a job of n ranks and return what each operation and size came to."""
    from chunkscope.sim.wire import annotate, compare
    from chunkscope.traces.files import read
    from chunkscope.traces.record.launch import run_recorded
    from chunkscope.traces.record.options import Options

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        os.environ[MARK] = "1"
        code = run_recorded([__file__], path, options=Options(wire="digest"), ranks=n)
        del os.environ[MARK]
        if code:
            sys.exit(f"the job of {n} ranks ended with exit code {code}")
        trace = annotate(read(path))
    found = compare(trace, inputs_of(n), limit=100_000)
    problems = differences(trace, found)
    sends = trace.where(kind="send", provenance="wire")
    calls = trace.events["coll_seq"].take(sends).to_list()
    sizes = Counter(calls)
    collectives = [(size, op) for size in SIZES for op in OPERATIONS if op != "send, recv"]
    cells = {}
    for number, (size, operation) in enumerate(collectives):
        bad = problems.get(number)
        cells[operation, size] = bad or f"{sizes[number]} equal"
    for k, size in enumerate(SIZES):
        bad = problems.get(None)
        cells["send, recv", size] = bad or ("1 equal" if sizes[None] > k else "missing")
    unknown = [note for note in found.notes if "not kept" in note]
    print(f"{n} ranks: {len(sends)} messages; {'; '.join(unknown) or 'every value was compared'}")
    return cells


def differences(trace: Any, found: Any) -> dict[int | None, str]:
    """Return the first difference of each call, by its number."""
    first: dict[int | None, str] = {}
    for difference in found.differences:
        _, _, rest = difference.text.partition("#")
        number = int(rest.split(",")[0].split(":")[0].split()[0]) if rest else None
        first.setdefault(number, difference.text)
    for note in trace.meta.notes:
        if "unmatched" in note:
            first.setdefault(None, note)
    return first


def main(ranks: list[int]) -> None:
    """Print the table."""
    begin = time.monotonic()
    by_cell: dict[tuple[str, int], list[str]] = defaultdict(list)
    for n in ranks:
        for cell, text in table(n).items():
            by_cell[cell].append(text)
    names = {4: "4 B", 4096: "4 KB", 1 << 20: "1 MB", 16 << 20: "16 MB"}
    print(f"\nmessages that were equal, on {', '.join(map(str, ranks))} ranks")
    print(f"{'operation':27}" + "".join(f"{names[size]:26}" for size in SIZES))
    bad = []
    for operation in OPERATIONS:
        row = f"{operation:27}"
        for size in SIZES:
            texts = by_cell[operation, size]
            good = [text.endswith("equal") for text in texts]
            bad += [f"{operation}, {names[size]}: {t}" for t, g in zip(texts, good) if not g]
            row += f"{' '.join(t.split()[0] if g else '!' for t, g in zip(texts, good)):26}"
        print(row.rstrip())
    total = len(OPERATIONS) * len(SIZES) * len(ranks)
    print(f"exact: {total - len(bad)} of {total}; {time.monotonic() - begin:.0f} s")
    for text in bad:
        print(f"  {text}")


if __name__ == "__main__":
    if MARK in os.environ:
        main_of_a_rank()
    else:
        main([int(text) for text in sys.argv[1:]] or list(RANKS))
