"""Run a collective by a schedule on real ranks, recorded: what `chunkscope run` does.

    run_collective(Spec("all_reduce", "ring", ranks=4), "chunkscope-out/run")

The inputs are those of a simulation, so that the two traces can be compared in their values.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from ..traces.record.ranks import Ranks
from .bind import BoundSchedule, bind
from .plan import check_call

if TYPE_CHECKING:
    from .spec import Spec

RANK = f"{__package__}.rank"


def run_collective(
    spec: Spec,
    folder: str | os.PathLike[str],
    *,
    state: str = "full",
    timeout: float = 300.0,
    backend: str = "gloo",
) -> bool:
    """Run a collective on real ranks, and record every message and tensor state.

    Inside torchrun (where RANK and WORLD_SIZE are set) this process is one of the ranks, and all of
    them record into rank 0's folder; elsewhere the ranks are processes of their own.

    Args:
        spec: What to run; inside torchrun with as many ranks as there are.
        folder: Folder of the recording.
        state: What to keep of tensors, see `chunkscope.record`.
        timeout: Seconds that the ranks may take.
        backend: `gloo`, or `nccl` with rank k on GPU k; there values are not recorded.

    Returns:
        Whether this process is the one to report: True, but for ranks above 0 inside torchrun.

    Raises:
        ScheduleError: The schedule, the size, the dtype or the operation does not fit, or this
            machine cannot run the backend.
        RanksError: A rank failed or did not return in time.
        RecorderError: The folder holds another run, or cannot be written.
    """
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        from .rank import check_backend, join_and_run

        local = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
        check_backend(backend, local)
        spec = replace(spec, ranks=int(os.environ["WORLD_SIZE"]))
        return join_and_run(_checked(spec), spec.op, os.fspath(folder), state, backend)
    bound = _checked(spec)
    if backend != "gloo":  # which any torch on a CPU has, and which need not be imported for
        from .rank import check_backend

        check_backend(backend, spec.ranks)
    with Ranks(spec.ranks, preload=(RANK,)) as ranks:
        # The first messages of a pair wait for its connection, which is no part of the collective.
        ranks.run(_run, bound, spec.op, backend, timeout=timeout)
        ranks.run(_run, bound, spec.op, backend, record=folder, state=state, timeout=timeout)
    return True


def _checked(spec: Spec) -> BoundSchedule:
    """Return the schedule and its sizes, after all checks that need no ranks."""
    schedule = spec.schedule()
    check_call(schedule, spec.ranks, spec.op, spec.dtype)
    return bind(schedule, spec.count(), spec.dtype)


def _run(bound: BoundSchedule, op: str, backend: str) -> None:
    from .rank import run_with_default_inputs

    run_with_default_inputs(bound, op, backend)
