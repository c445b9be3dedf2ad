"""Averages a vector over the ranks, twice; started by torchrun or `chunkscope record -n`."""

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    vector = torch.arange(8, dtype=torch.float32) + rank
    for _ in range(2):
        dist.all_reduce(vector)
        vector /= ranks
    if rank == 0:
        print("average:", vector.tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
