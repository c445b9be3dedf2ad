"""The estimator of clock differences, on simulated messages with random delays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.traces.record.reader.clock_fit import Bounds, fit

SECOND_NS = 1_000_000_000


def messages(seed: int, offset_ns: int, drift: float, length_ns: int, n: int, bend: float = 0.0):  # type: ignore[no-untyped-def]
    """Return bounds as n messages each way give them, and the true difference as a function."""
    random = np.random.default_rng(seed)

    def true(at):  # type: ignore[no-untyped-def]
        part = at / length_ns
        return offset_ns + drift * at + bend * np.sin(2 * np.pi * part)

    start = 7_000 * SECOND_NS  # moments of the one clock count from its boot
    sent = np.sort(random.integers(0, length_ns, n))
    delay = random.exponential(200_000, (2, n)) + 20_000
    # There: received by the other clock at sent + true + delay, so true <= that minus sent.
    high = np.ceil(true(sent) + delay[0]).astype(np.int64)
    low = np.floor(true(sent) - delay[1]).astype(np.int64)
    return Bounds(start + sent, low, start + sent, high), lambda at: true(at - start)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(-(10**15), 10**15),
    st.floats(-150e-6, 150e-6),
    st.sampled_from([SECOND_NS // 100, SECOND_NS, 100 * SECOND_NS]),
    st.integers(1, 60),
)
def test_the_true_difference_is_within_the_error(
    seed: int, offset_ns: int, drift: float, length_ns: int, n: int
) -> None:
    bounds, true = messages(seed, offset_ns, drift, length_ns, n)
    found = fit(bounds)
    assert found is not None
    at = np.linspace(bounds.low_at.min(), bounds.low_at.max(), 50).astype(np.int64)
    wrong = np.abs(found.offset_ns(at) - true(at))
    assert wrong.max() <= found.error_ns + 2
    assert (found.offset_ns(bounds.low_at) >= bounds.low - 2).all()
    assert (found.offset_ns(bounds.high_at) <= bounds.high + 2).all()


def test_drift_is_followed_and_many_messages_make_it_exact() -> None:
    bounds, true = messages(1, 10**14, 80e-6, 100 * SECOND_NS, 2000)
    found = fit(bounds)
    assert found is not None
    assert found.error_ns < 60_000  # the drift alone moves the clocks apart by 8 ms
    end = np.array([bounds.low_at.max()])
    assert abs(found.offset_ns(end) - true(end)).max() < 60_000


def test_a_clock_that_is_corrected_on_the_way_is_followed() -> None:
    bounds, true = messages(2, 5, 0.0, 1000 * SECOND_NS, 4000, bend=4_000_000.0)
    found = fit(bounds)
    assert found is not None
    at = np.linspace(bounds.low_at.min(), bounds.low_at.max(), 300).astype(np.int64)
    wrong = np.abs(found.offset_ns(at) - true(at)).max()
    assert wrong < 400_000  # one line would be wrong by milliseconds
    assert wrong <= 2 * found.error_ns


def test_bounds_on_one_side_alone_tell_nothing() -> None:
    none, one = np.zeros(0, np.int64), np.array([5])
    assert fit(Bounds(one, one, none, none)) is None
    assert fit(Bounds(none, none, one, one)) is None


def test_one_exchange_is_enough() -> None:
    at = np.array([100])
    found = fit(Bounds(at, np.array([-60]), at, np.array([-40])))
    assert found is not None
    assert found.offset_ns(np.array([100])).tolist() == [-50]
    assert found.error_ns == pytest.approx(10, abs=1)


def test_what_was_measured_once_is_less_sure_later() -> None:
    at = np.array([100])
    found = fit(Bounds(at, np.array([-60]), at, np.array([-40])), span=(0, SECOND_NS))
    assert found is not None
    assert found.offset_ns(np.array([SECOND_NS])).tolist() == [-50]
    assert found.error_ns == pytest.approx(10 + 200_000, abs=2)  # 200 ppm of a second
