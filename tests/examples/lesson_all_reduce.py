"""A first lesson: two processes add their numbers up, and each learns the other's.

Run it:

    python lesson_all_reduce.py
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD_SIZE = 2


def work(rank: int, meeting_point: str) -> None:
    """What each process does."""
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=WORLD_SIZE
    )

    # Rank 0 holds 1.0, rank 1 holds 2.0.
    mine = torch.tensor([float(rank + 1)])

    # Afterwards every rank holds the sum.
    dist.all_reduce(mine, op=dist.ReduceOp.SUM)

    # Now everybody collects what everybody holds.
    everyone = [torch.zeros(1) for _ in range(WORLD_SIZE)]
    dist.all_gather(everyone, mine)

    if rank == 0:
        print("reduced values:", [value.item() for value in everyone])
        print("both ranks hold the sum:", all(value.item() == 3.0 for value in everyone))

    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, args=(str(Path(folder) / "meeting_point"),), nprocs=WORLD_SIZE)
