"""The pool of real ranks: results, failures that name the rank, hangs that end, and recovery."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from chunkscope.errors import RanksError
from chunkscope.traces.record.ranks import Ranks

pytestmark = pytest.mark.ranks


def reduced(x: float) -> float:
    tensor = torch.full((3,), x + dist.get_rank())
    dist.all_reduce(tensor)
    return tensor[0].item()


def rank_one_raises() -> None:
    if dist.get_rank() == 1:
        raise KeyError("no such layer")
    dist.all_reduce(torch.ones(3))


def rank_one_stays_away() -> None:
    if dist.get_rank() != 1:
        dist.all_reduce(torch.ones(3))


def rank_one_dies() -> None:
    if dist.get_rank() == 1:
        os._exit(7)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with Ranks(3) as pool:
        yield pool


def test_results_come_by_rank(ranks: Ranks) -> None:
    assert ranks.run(lambda: dist.get_rank()) == [0, 1, 2]
    assert ranks.run(reduced, 1.0) == [6.0, 6.0, 6.0]
    tensors = ranks.run(lambda: torch.arange(3) * dist.get_rank())
    assert [tensor.tolist() for tensor in tensors] == [[0, 0, 0], [0, 1, 2], [0, 2, 4]]


def test_ranks_see_the_callers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAVOUR", "vanilla")
    with Ranks(1) as one:
        assert one.run(lambda: (os.environ["FLAVOUR"], os.environ["RANK"])) == [("vanilla", "0")]


def test_exception_names_rank_and_line_and_pool_recovers(ranks: Ranks) -> None:
    with pytest.raises(RanksError) as caught:
        ranks.run(rank_one_raises)
    message = str(caught.value)
    assert message.startswith("rank 1 of 3 raised KeyError: 'no such layer'")
    assert 'raise KeyError("no such layer")' in message
    assert Path(__file__).name in message
    assert "rank_process.py" not in message  # our own frames help nobody
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.failed == (1,)
    assert ranks.run(reduced, 0.0) == [3.0, 3.0, 3.0]


def test_hang_ends_and_says_where_each_rank_stands(ranks: Ranks) -> None:
    began = time.monotonic()
    with pytest.raises(RanksError) as caught:
        ranks.run(rank_one_stays_away, timeout=0.5)
    assert time.monotonic() - began < 20
    message = str(caught.value)
    assert message.startswith("ranks 0, 2 of 3 had not returned after 0.5 s")
    assert "in all_reduce" in message
    assert "in rank_one_stays_away" in message
    assert caught.value.stuck == (0, 2)
    assert ranks.run(reduced, 0.0) == [3.0, 3.0, 3.0]


def test_death_of_a_rank_is_said_with_its_exit_code(ranks: Ranks) -> None:
    with pytest.raises(RanksError, match=r"rank 1 of 3 exited with 7"):
        ranks.run(rank_one_dies)
    assert ranks.run(reduced, 0.0) == [3.0, 3.0, 3.0]


def test_result_that_cannot_travel_is_an_error_of_its_rank(ranks: Ranks) -> None:
    with pytest.raises(RanksError, match=r"rank \d of 3 raised TypeError"):
        ranks.run(lambda: (item for item in "abc"))


def test_recording_is_of_the_call_alone(ranks: Ranks, tmp_path: Path) -> None:
    import chunkscope

    folder = tmp_path / "recording"
    assert ranks.run(reduced, 1.0, record=folder) == [6.0, 6.0, 6.0]
    trace = chunkscope.read(folder)
    assert [call.collective for call in trace.calls()] == ["all_reduce"]
    assert len(trace.where(kind="collective")) == 3
    site = trace.meta.sites[trace.events["site"][trace.where(kind="collective")[0]]]
    assert Path(site.file).name == Path(__file__).name
    assert "dist.all_reduce(tensor)" in "\n".join(site.source)


SCRIPT = """
import sys
from chunkscope.traces.record.ranks import Ranks

def double():
    import torch.distributed as dist
    return dist.get_rank() * 2

ranks = Ranks(2)  # no `if __name__ == "__main__"`, and never closed
print(ranks.run(double), "torch" in sys.modules)
"""


def test_plain_script_needs_no_main_guard_and_loads_no_torch(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "plain.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[0, 2] False\n", done.stderr
    assert done.stderr == ""


def test_no_ranks_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="number of ranks is 0, expected 1 or more"):
        Ranks(0)
