"""A first lesson: one process tells the others a number, then all put theirs together.

Run it:

    python lesson_broadcast.py
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD_SIZE = 3


def say(rank: int, when: str, tensor: torch.Tensor) -> None:
    """Print what a rank holds."""
    print(f"rank {rank} {when}: {tensor.item():g}", flush=True)


def work(rank: int, meeting_point: str) -> None:
    """What each process does."""
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=WORLD_SIZE
    )

    # Only rank 0 knows the number; the others have an empty place for it.
    told = torch.tensor([123.0]) if rank == 0 else torch.zeros(1)
    say(rank, "before broadcast", told)
    dist.broadcast(told, src=0)
    say(rank, "after broadcast", told)

    # 0 + 1 + 2 on every rank.
    total = torch.tensor([float(rank)])
    say(rank, "before the sum", total)
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    say(rank, "after the sum", total)

    # The largest of 0, 1 and 2 on every rank.
    largest = torch.tensor([float(rank)])
    say(rank, "before the maximum", largest)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    say(rank, "after the maximum", largest)

    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, args=(str(Path(folder) / "meeting_point"),), nprocs=WORLD_SIZE)
