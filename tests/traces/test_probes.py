"""Probes: what a sum of them tells, and what it does not take for one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import chunkscope
from chunkscope.traces.probes import decode, value_of
from chunkscope.traces.record.probe import LAYOUTS, code, position_of

DTYPES = {"int64": torch.int64, "float64": torch.float64, "float32": torch.float32}


@given(
    name=st.sampled_from(sorted(DTYPES)),
    counts=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    elements=st.integers(1, 300),
)
def test_a_sum_tells_who_how_often_and_which_element(
    name: str, counts: list[int], elements: int
) -> None:
    n = len(counts)
    total = torch.zeros(elements, dtype=DTYPES[name])
    for rank, count in enumerate(counts):
        for _ in range(count):
            total += chunkscope.probe(rank, n, elements, dtype=DTYPES[name])
    told = decode(total.numpy(), n, elements=elements)
    per_element = LAYOUTS[name].ranks
    blocks = -(-n // per_element)
    for element in range(elements):
        shown = [r for r in range(n) if r // per_element == element % blocks]
        due = [r for r in shown for _ in range(counts[r])]
        assert told.parts(element) == due
        assert told.position(element) == (element if due else None)
    assert (
        value_of(np.tile(counts, (elements, 1)), np.arange(elements), name) == total.numpy()
    ).all()


def test_moved_elements_tell_where_they_belong() -> None:
    total = chunkscope.probe(0, 2, (4, 4)) + chunkscope.probe(1, 2, (4, 4))
    told = decode(total.reshape(-1).roll(3).numpy(), 2)
    assert told.positions.tolist() == [13, 14, 15, *range(13)]


@pytest.mark.parametrize("name", ["int64", "float64"])
def test_parts_of_different_elements_are_no_sum(name: str) -> None:
    ours, theirs = (chunkscope.probe(r, 2, 60, dtype=DTYPES[name]).numpy() for r in (0, 1))
    for shift in (1, 2, 17):
        mixed = ours + np.roll(theirs, shift)
        assert not decode(mixed, 2, elements=60).valid.any()


@pytest.mark.parametrize("name", ["int64", "float64"])
def test_other_numbers_are_no_probes(name: str) -> None:
    rng = np.random.default_rng(0)
    small = np.arange(-50, 1000).astype(name)
    wild = rng.integers(-(2**62), 2**62, 1000).astype(name)
    for values in (small, wild):
        assert not decode(values, 4, elements=1000).valid.any()
    odd = np.array([np.nan, np.inf, 0.5, -1.0, 2.0**60])
    assert not decode(odd, 4).valid.any()


def test_zero_is_nobody() -> None:
    told = decode(np.zeros(2, np.int64), 3)
    assert told.parts(0) == []
    assert told.position(0) is None
    assert told.zero.all()


def test_four_parts_of_one_rank_do_not_pass_for_one_of_the_next() -> None:
    told = decode((chunkscope.probe(0, 3, 8) * 4).numpy(), 3, elements=8)
    assert told.parts(0) is None


def test_a_rank_that_there_is_not_is_no_part() -> None:
    assert not decode(chunkscope.probe(5, 6, 8).numpy(), 4, elements=8).valid.any()


def test_sums_may_wrap() -> None:
    total = sum(chunkscope.probe(rank, 16, 100) for rank in range(16))
    assert isinstance(total, torch.Tensor)
    assert (total < 0).any()
    assert decode(total.numpy(), 16, elements=100).positions.tolist() == list(range(100))


@pytest.mark.parametrize("bits", [12, 32])
def test_codes_differ_and_lead_back(bits: int) -> None:
    codes = [code(k, bits) for k in range(4095)]
    assert len({0, *codes}) == 4096
    assert [position_of(c, bits) for c in codes] == list(range(4095))
    assert position_of(0, bits) == 2**bits - 1


def test_codes_are_not_linear() -> None:
    codes = [code(k, 32) for k in range(40)]
    sums = {(a + b) % 2**32 for a, b in itertools.combinations(codes, 2)}
    assert not sums & {2 * c % 2**32 for c in codes}


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rank is 4, expected 0 to 3"):
        chunkscope.probe(4, 4, 8)
    with pytest.raises(ValueError, match=r"bfloat16 holds no probes.*int64, float64, float32"):
        chunkscope.probe(0, 4, 8, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"5000 elements, expected at most 4094"):
        chunkscope.probe(0, 4, 5000, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"int32 holds no probes"):
        decode(np.zeros(3, np.int32), 4)
