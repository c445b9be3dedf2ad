"""What opening a trace costs: its three forms, and decoding their JSON alone, in CPU seconds.

Run it:

    python tests/benchmarks/reading.py [events]

The trace is a recording of 4 ranks with 2 states an event, each 16 bytes of float32, as recorders
write it. CPU seconds hardly depend on what else the machine does; the last column divides them by
those that `json.loads` takes for the same lines of the folder. The bars, for 1,000,000 events and
2,000,000 states: folder 4 s, .jsonl 6 s, Parquet 1 s.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from base64 import b64encode
from pathlib import Path
from struct import pack

import chunkscope

RANKS = 4
CALLS = 40  # different calls of a rank: a line of the program, a size, a thread
BARS_S = {"folder": 4.0, ".jsonl": 6.0, ".parquet": 1.0}


def make_recording(folder: Path, n_events: int) -> None:
    """Write a recording as a program of 4 ranks leaves it that calls all_reduce again and again."""
    folder.mkdir()
    (folder / "run.json").write_text('{"schema_version":1,"run":"benchmark"}\n')
    for rank in range(RANKS):
        lines = [*_definitions(rank)]
        for seq in range(n_events // RANKS):
            t, call = 81_000_000_000_000 + 50_000 * seq + rank, seq % CALLS
            before, after = (
                b64encode(pack("<4f", seq, rank, call, scale)).decode() for scale in (1.0, 4.0)
            )
            lines.append(
                f'{{"r":"begin","seq":{seq},"call":{call},"t":{t},'
                f'"s":[["before","input",0,{call},"{before}"]]}}\n'
                f'{{"r":"end","seq":{seq},"t":{t + 40_000},'
                f'"s":[["after","output",0,{call},"{after}"]]}}\n'
            )
        lines.append(f'{{"r":"close","t":{t + 50_000}}}\n')
        (folder / f"ada-{100 + rank}.rec.jsonl").write_text("".join(lines))


def _definitions(rank: int) -> list[str]:
    records = [
        {"r": "header", "schema_version": 1, "run": "benchmark", "host": "ada", "pid": 100 + rank},
        {"r": "group", "n": 0, "ranks": [*range(RANKS)], "label": "0", "backend": "gloo"},
        {"r": "site", "n": 0, "file": "train.py", "line": 7, "function": "step"},
    ]
    for n in range(CALLS):
        storage = {"storage": n, "offset": 0}
        records.append({"r": "tensor", "n": n, "dtype": "float32", "shape": [4], **storage})
        call = {"kind": "collective", "provenance": "called", "api": "all_reduce", "site": 0}
        call |= {"collective": "all_reduce", "reduce_op": "SUM", "is_async": False, "group": 0}
        call |= {"rank": rank, "group_rank": rank, "size_bytes": 16, "dtype": "float32"}
        records.append({"r": "call", "n": n, "thread": f"worker-{n}", **call})
    return [json.dumps(record, separators=(",", ":")) + "\n" for record in records]


def main() -> None:
    """Measure and print."""
    n_events = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as temp:
        folder = Path(temp) / "run"
        make_recording(folder, n_events)
        trace = chunkscope.read(folder)
        paths = {"folder": folder, ".jsonl": folder.with_suffix(".jsonl")}
        paths[".parquet"] = folder.with_suffix(".parquet")
        for path in (paths[".jsonl"], paths[".parquet"]):
            chunkscope.write(trace, path)
        plain_s = _decoding_s(folder)
        print(f"{len(trace):,} events, {len(trace.states):,} states; json.loads: {plain_s:.2f} s")
        del trace
        print(f"{'form':<9}{'CPU s':>8}{'wall s':>8}{'bar s':>8}{'CPU / json.loads':>18}")
        for form, path in paths.items():
            chunkscope.read(path)
            wall, cpu = time.perf_counter(), time.process_time()
            chunkscope.read(path)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            bar = BARS_S[form] * n_events / 1_000_000
            print(f"{form:<9}{cpu:>8.2f}{wall:>8.2f}{bar:>8.2f}{cpu / plain_s:>18.2f}")


def _decoding_s(folder: Path) -> float:
    begun = time.process_time()
    for path in folder.glob("*.rec.jsonl"):
        with path.open("rb") as file:
            for line in file:
                json.loads(line)
    return time.process_time() - begun


if __name__ == "__main__":
    main()
