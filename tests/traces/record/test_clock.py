"""Exchanges of clocks in one process: threads are the ranks, and their clocks are skewed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.distributed import FileStore, HashStore, PrefixStore  # noqa: E402

from chunkscope.traces.record import clock  # noqa: E402
from chunkscope.traces.record.clock import Clocks, Exchange, clock_id, may_span_hosts  # noqa: E402

HOUR_NS = 3_600_000_000_000
Records = list[dict[str, Any]]


def skewed(offset_ns: int, rate: float = 1.0) -> Callable[[], int]:
    origin = time.monotonic_ns()
    return lambda: origin + round((time.monotonic_ns() - origin) * rate) + offset_ns


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def exchange(
    store: Any, rank: int, records: Records, host: str, world_size: int = 3, offset_ns: int = 0
) -> Exchange:
    now = skewed(offset_ns)
    started = Exchange(store, rank, world_size, records.append, clock=host, now=now)
    started.start()
    return started


def ended(exchange: Exchange) -> bool:
    return not exchange._thread.is_alive()


def test_the_true_offset_lies_within_the_bounds() -> None:
    store, records, none = HashStore(), [], []
    late = exchange(store, 1, records, "b", offset_ns=HOUR_NS)
    more = exchange(store, 2, none, "b", offset_ns=HOUR_NS)
    zero = exchange(store, 0, none, "a")
    until(lambda: records)
    first = records[0]
    assert (first["clock"], first["to"]) == ("b", "a")
    assert first["low"] <= -HOUR_NS <= first["high"]
    assert first["high"] - first["low"] < 10_000_000_000
    assert ended(more)  # one process a host takes part
    zero.finish()
    late.finish()
    until(lambda: ended(zero) and ended(late))
    assert not none


def test_a_last_exchange_when_the_group_is_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "LAST_REPLY_S", 20.0)  # a busy machine is no failure
    monkeypatch.setattr(clock, "BURST_S", 2.0)
    store, records = HashStore(), []
    zero = exchange(store, 0, [], "a", 2)
    other = exchange(store, 1, records, "b", 2, offset_ns=-HOUR_NS)
    until(lambda: records)
    begun = time.monotonic_ns()
    other.finish(patience_s=30)
    zero.finish(patience_s=30)
    assert ended(other)
    assert ended(zero)
    assert records[-1]["t"] >= begun - HOUR_NS
    assert records[-1]["low"] <= HOUR_NS <= records[-1]["high"]


def test_ranks_of_one_host_exchange_nothing() -> None:
    store, records = HashStore(), []
    ranks = [exchange(store, rank, records, "a") for rank in range(3)]
    until(lambda: all(ended(rank) for rank in ranks))
    assert not records
    assert not store.check(["ping/1"])


def test_nothing_waits_for_a_rank_that_takes_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "GIVE_UP_S", 0.2)
    alone = exchange(HashStore(), 1, [], "b")
    until(lambda: ended(alone))
    zero = exchange(HashStore(), 0, [], "a")
    until(lambda: ended(zero))


def test_a_sender_that_died_does_not_hold_up_the_others() -> None:
    store, records = HashStore(), []
    store.add("drawn", 1)  # and no message
    zero = exchange(store, 0, [], "a", 2)
    other = exchange(store, 1, records, "b", 2)
    until(lambda: records)
    zero.cancel()
    other.cancel()


class Gone(HashStore):  # type: ignore[misc,valid-type]
    def add(self, key: str, value: int) -> int:
        raise RuntimeError("Connection reset by peer")


def test_a_store_that_is_gone_ends_it_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    exchanges = [exchange(Gone(), rank, [], "a") for rank in (0, 1)]
    until(lambda: all(ended(one) for one in exchanges))
    assert capfd.readouterr() == ("", "")


def test_where_all_ranks_are_here_the_store_is_left_alone(tmp_path: Any) -> None:
    class Host:
        host = "10.0.0.1"

    assert may_span_hosts(Host(), 2, {})
    assert may_span_hosts(Host(), 4, {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"})
    assert not may_span_hosts(Host(), 1, {})
    assert not may_span_hosts(Host(), 2, {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"})
    for name in ("localhost", "127.0.0.1", "::1"):
        Host.host = name
        assert not may_span_hosts(Host(), 2, {})
    store = PrefixStore("default_pg", FileStore(str(tmp_path / "store"), 2))
    before = (tmp_path / "store").read_bytes()
    clocks = Clocks(lambda record: None)
    clocks.begin(store, 0, 2)
    clocks.finish()
    assert (tmp_path / "store").read_bytes() == before


def test_processes_of_one_boot_have_one_clock() -> None:
    assert clock_id() == clock_id()
    boot, _, namespace = clock_id().partition("/")
    assert len(boot) == 36
    assert namespace.isdigit()
