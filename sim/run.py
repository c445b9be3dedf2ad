"""Run a collective by a schedule on real ranks, recorded: what `chunkscope run` does.

    run_collective(Spec("all_reduce", "ring", ranks=4), "chunkscope-out/run")

The inputs are those of a simulation, so that the two traces can be compared in their values.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from ..traces.record.ranks import Ranks

if TYPE_CHECKING:
    from .schedule import Schedule
    from .spec import Spec


def run_collective(
    spec: Spec, folder: str | os.PathLike[str], *, state: str = "full", timeout: float = 300.0
) -> bool:
    """Run a collective on real gloo ranks, and record every message and tensor state.

    Inside torchrun (where RANK and WORLD_SIZE are set) this process is one of the ranks, and all of
    them record into rank 0's folder; elsewhere the ranks are processes of their own.

    Args:
        spec: What to run; inside torchrun with as many ranks as there are.
        folder: Folder of the recording.
        state: What to keep of tensors, see `chunkscope.record`.
        timeout: Seconds that the ranks may take.

    Returns:
        Whether this process is the one to report: True, but for ranks above 0 inside torchrun.

    Raises:
        ScheduleError: The schedule, the size, the dtype or the operation does not fit.
        RanksError: A rank failed or did not return in time.
        RecorderError: The folder holds another run, or cannot be written.
    """
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        from .execute import join_and_run

        spec = replace(spec, ranks=int(os.environ["WORLD_SIZE"]))
        return join_and_run(_planned(spec), spec, os.fspath(folder), state)
    schedule = _planned(spec)
    with Ranks(spec.ranks) as ranks:
        ranks.run(_run, schedule, spec, record=folder, state=state, timeout=timeout)
    return True


def _planned(spec: Spec) -> Schedule:
    """Return the schedule, after all checks that need no ranks."""
    from .plan import check_call

    schedule = spec.schedule()
    check_call(schedule, spec.ranks, spec.op)
    schedule.bind(spec.count(), spec.dtype)
    return schedule


def _run(schedule: Schedule, spec: Spec) -> None:
    from .execute import run_with_default_inputs

    run_with_default_inputs(schedule, spec)
