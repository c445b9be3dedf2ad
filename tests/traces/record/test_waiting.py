"""However a program waits, the recording has what the tensor held when the wait was over.

Whoever waited overwrites the tensor at once, many times: a state that was read too late shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import chunkscope
from chunkscope.traces.record.ranks import Ranks

pytestmark = pytest.mark.ranks

TRIES = 300


def program() -> Any:
    """Wait in each way for sums of known values, and overwrite them."""
    import torch.distributed._functional_collectives as functional

    rank, told = dist.get_rank(), []

    def started(turn: int) -> tuple[torch.Tensor, Any]:
        tensor = torch.tensor([float(turn), rank])
        return tensor, dist.all_reduce(tensor, async_op=True)

    def by_chain(work: Any) -> None:
        work.get_future().then(lambda future: told.append(len(future.value()))).wait()

    def by_polling(work: Any) -> None:
        while not work.is_completed():
            pass
        work.wait()

    ways = (
        lambda work: work.wait(),
        lambda work: work.get_future().wait(),
        lambda work: torch.futures.wait_all([work.get_future()]),
        by_chain,
        by_polling,
    )
    for way in ways:
        for turn in range(TRIES):
            tensor, work = started(turn)
            way(work)
            tensor.fill_(-1.0)
    for turn in range(TRIES):
        output = functional.all_reduce(torch.tensor([float(turn), rank]), "sum", dist.group.WORLD)
        functional.wait_tensor(output).fill_(-1.0)
    try:
        dist.all_reduce(torch.ones(2, dtype=torch.complex32), async_op=True).wait()
    except RuntimeError as error:
        told.append(f"{type(error).__name__}: {error}")
    return told


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    """Return what the ranks tell bare and recorded, and the trace."""
    folder = tmp_path_factory.mktemp("waiting") / "run"
    with Ranks(2) as ranks:
        bare = ranks.run(program)
        recorded = ranks.run(program, record=folder, timeout=100)
    return bare, recorded, chunkscope.read(folder)


def test_program_sees_what_it_sees_bare(runs: tuple[Any, Any, Any]) -> None:
    bare, recorded, trace = runs
    assert recorded == bare
    assert trace.meta.notes == ()


def test_no_state_is_stale(runs: tuple[Any, Any, Any]) -> None:
    trace = runs[2]
    for rank in (0, 1):
        rows = trace.where(kind="collective", collective="all_reduce", rank=rank)[: 6 * TRIES]
        found = [trace.values(trace.states_of(row, when="after")[0]) for row in rows]
        wanted = [[2.0 * turn, 1.0] for _ in range(6) for turn in range(TRIES)]
        np.testing.assert_array_equal(found, wanted)


def test_every_end_is_there(runs: tuple[Any, Any, Any]) -> None:
    trace = runs[2]
    rows = trace.where(kind="collective", collective="all_reduce", rank=0)[: 6 * TRIES]
    assert set(trace.events["status"].take(rows).to_list()) == {"ok"}
