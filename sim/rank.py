"""One rank of `chunkscope run`: its device, its group, its input.

    run_with_default_inputs(bound, "SUM")       # on every rank of the default group

With NCCL a rank computes on a GPU, in a group of its own beside gloo's, which moves the rest.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import TYPE_CHECKING

from ..errors import ScheduleError
from ..traces.record import current, record
from .bind import BoundSchedule
from .execute import execute
from .values import default_inputs

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup


def check_backend(backend: str, n_ranks: int) -> None:
    """Raise where this machine cannot run a backend.

    Args:
        backend: `gloo` or `nccl`.
        n_ranks: Ranks on this machine.

    Raises:
        ScheduleError: There is no GPU, no NCCL, or not a GPU for each rank.
    """
    import torch
    import torch.distributed as dist

    if backend == "gloo":
        return
    n_gpus = torch.cuda.device_count()
    if n_gpus == 0 or not dist.is_nccl_available():
        raise ScheduleError(
            f"backend nccl: torch {torch.__version__} sees {n_gpus} GPUs, expected one or more and "
            "a torch with NCCL; use --backend gloo"
        )
    if n_ranks > n_gpus and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") != "1":
        raise ScheduleError(
            f"backend nccl: {n_ranks} ranks on {n_gpus} GPUs, expected a GPU for each; run fewer "
            "ranks, or set NCCL_MULTI_RANK_GPU_ENABLE=1 (NCCL 2.30 or newer)"
        )


_gpu_groups: dict[ProcessGroup | None, ProcessGroup] = {}


def _placed(backend: str) -> tuple[torch.device, ProcessGroup | None]:
    """Return this rank's device, and a group of all ranks that works there; made once."""
    import torch
    import torch.distributed as dist

    if backend == "gloo":
        return torch.device("cpu"), None
    local = os.environ.get("LOCAL_RANK")
    index = dist.get_rank() if local is None else int(local)
    device = torch.device("cuda", index % torch.cuda.device_count())
    torch.cuda.set_device(device)
    everybody = dist.group.WORLD
    if everybody not in _gpu_groups:
        _gpu_groups[everybody] = dist.new_group(backend=backend)
    return device, _gpu_groups[everybody]


def run_with_default_inputs(bound: BoundSchedule, op: str, backend: str = "gloo") -> None:
    """Execute a schedule on the inputs that a simulation has, among all ranks.

    Args:
        bound: The schedule and its sizes.
        op: See `execute`.
        backend: `gloo`, or `nccl` with the tensors on a GPU.
    """
    import torch
    import torch.distributed as dist

    device, group = _placed(backend)
    rank = dist.get_rank()
    given = default_inputs(bound)[rank]
    dtype = getattr(torch, bound.dtype)
    if given is None:
        tensor = torch.zeros(bound.output_elements(rank), dtype=dtype)
    else:
        tensor = torch.from_numpy(given).to(dtype)
    tensor = tensor.to(device)
    recorder = current()
    with nullcontext() if recorder is None else recorder.silent():
        dist.barrier()  # ranks start together, so that the first step shows no late start
    execute(bound.schedule, tensor, op, group)


def join_and_run(
    bound: BoundSchedule, op: str, folder: str, state: str, backend: str = "gloo"
) -> bool:
    """Be one rank of a job that torchrun started; see `run.run_collective`."""
    import torch.distributed as dist

    joined_here = not dist.is_initialized()
    if joined_here:
        dist.init_process_group("gloo")
    named = [folder]
    dist.broadcast_object_list(named, src=0)
    run_with_default_inputs(
        bound, op, backend
    )  # the first messages of a pair wait for its connection
    with record(named[0], state=state):
        run_with_default_inputs(bound, op, backend)
    is_first = dist.get_rank() == 0
    dist.barrier()  # the recording is whole when rank 0 reads it
    if joined_here:
        dist.destroy_process_group()
    return is_first
