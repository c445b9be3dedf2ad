"""Fitting a machine: what went in comes out of it, and into a file that sim takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import chunkscope
from chunkscope.cli import main
from chunkscope.errors import ScheduleError, TopologyError
from chunkscope.sim.fitting import GLOO_HEADER_BYTES, Level, MachineFit, Measurements, fit
from chunkscope.sim.measuring import SIZES_BYTES, Effort, measure_machine
from chunkscope.sim.topology import Topology, parse

SIZE = np.array(SIZES_BYTES)
WIRE = SIZE + GLOO_HEADER_BYTES


def level(
    latency_ns: float,
    step_ns: float,
    alone_Bps: float,
    all_Bps: float,
    burst_bytes: float = 0.0,
    noise: float = 0.0,
) -> Level:
    """Messages on links that are token buckets, played one after the other; noise only delays."""
    random = np.random.default_rng(5)
    one_way, ring = [], []
    for wire in WIRE:
        one_way.append(_per_message(wire, latency_ns, alone_Bps / 1e9, burst_bytes, turns=2))
        ring.append(_per_message(wire, step_ns, all_Bps / 1e9, burst_bytes, turns=1))
    late = noise * random.exponential(latency_ns, size=(2, len(SIZE), 7))
    return Level(SIZE, np.array(one_way)[:, None] + late[0], np.array(ring)[:, None] + late[1])


def _per_message(
    wire: float, pause_ns: float, rate: float, burst_bytes: float, turns: int
) -> float:
    """Time of one of many messages that follow one another, on `turns` links in turn."""
    now, saved, since = 0.0, [burst_bytes] * turns, [0.0] * turns
    half = 0.0
    for number in range(400):
        link = number % turns
        now += pause_ns
        tokens = min(burst_bytes, saved[link] + (now - since[link]) * rate)
        now += max(0.0, wire - tokens) / rate
        saved[link], since[link] = max(0.0, tokens - wire), now
        if number == 199:
            half = now
    return (now - half) / 200


def machine(
    found: Level, *, hosts: tuple[int, ...] = (0, 0, 0, 0), inside: Level | None = None
) -> MachineFit:
    return fit(Measurements(hosts, found, inside, 5e9))


@pytest.mark.parametrize(
    ("latency_ns", "step_ns", "alone_Bps", "all_Bps", "burst_bytes"),
    [
        (1e4, 1.8e4, 12e9, 11.5e9, 0),
        (1e5, 2e5, 11.95e6, 11.7e6, 28_000),
        (1e5, 9e5, 11.95e6, 11.7e6, 28_000),
        (2e4, 3e4, 118e6, 115e6, 0),
        (6e4, 2e5, 3e9, 0.8e9, 0),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_what_went_in_comes_out(
    latency_ns: float,
    step_ns: float,
    alone_Bps: float,
    all_Bps: float,
    burst_bytes: float,
    noise: float,
) -> None:
    found = machine(level(latency_ns, step_ns, alone_Bps, all_Bps, burst_bytes, noise)).link

    close = 0.02 if noise == 0 else 0.15
    assert found.latency_ns == pytest.approx(latency_ns, rel=close)
    assert found.step_ns == pytest.approx(step_ns, rel=close)
    assert found.alone_Bps == pytest.approx(alone_Bps, rel=close)
    assert found.bandwidth_Bps == pytest.approx(all_Bps, rel=close)
    assert found.burst_bytes == pytest.approx(burst_bytes, rel=2 * close)
    if noise == 0:
        assert found.worst < 0.02


def test_a_few_disturbed_times_change_nothing() -> None:
    quiet = level(2e4, 3e4, 1e9, 0.95e9)
    times = np.tile(quiet.ring_ns, 7)
    times[:, 1::2] *= 5  # another program, every second time
    found = machine(replace(quiet, ring_ns=times)).link

    assert found.step_ns == pytest.approx(3e4, rel=0.05)
    assert found.bandwidth_Bps == pytest.approx(0.95e9, rel=0.05)


def test_a_predicted_ring_takes_what_was_measured() -> None:
    found = machine(level(2e4, 3e4, 1e9, 0.95e9))
    n, size_bytes = 4, 1 << 20
    ring = chunkscope.build("all_reduce", "ring", n).bind(size_bytes // 4, "float32")
    replay = chunkscope.simulate(ring, found.topology(), reduce_Bps=float("inf"))

    a_step_ns = 3e4 + (size_bytes / n + GLOO_HEADER_BYTES) / 0.95
    assert replay.duration_ns == pytest.approx(2 * (n - 1) * a_step_ns, rel=0.02)


def test_a_bucket_hides_the_pauses_of_a_ring() -> None:
    """What a link saves up while a rank waits, it passes afterwards: bytes alone count."""
    found = machine(level(1e5, 9e5, 12e6, 12e6, 28_000))
    size_bytes = 1 << 20
    ring = chunkscope.build("all_reduce", "ring", 4).bind(size_bytes // 4, "float32")
    duration_ns = chunkscope.simulate(ring, found.topology()).duration_ns

    bytes_ns = 1.5 * size_bytes / 12e6 * 1e9
    assert bytes_ns - 28_000 / 0.012 < duration_ns < bytes_ns * 1.01


def test_notices_that_come_at_the_moment_of_their_messages_do_not_put_them_off_for_ever() -> None:
    """Times that should be equal differ in their last digits; this one never came to an end."""
    link = level(89539.31637334194, 1031822.338994797, 11842268.83, 11169383.17, 29875.32)
    topology = machine(link, hosts=(0,) * 8).topology()
    size_bytes = 1 << 19
    ring = chunkscope.build("all_reduce", "gloo", 8, size_bytes=size_bytes, itemsize=4)
    replay = chunkscope.simulate(ring.bind(size_bytes // 4, "float32"), topology)

    assert replay.duration_ns == pytest.approx(1.75 * size_bytes / 0.01117, rel=0.03)


def test_ranks_that_share_one_medium_share_it_in_the_prediction() -> None:
    found = machine(level(6e4, 2e5, 3e9, 0.8e9))
    topology = found.topology()
    alone = chunkscope.build("broadcast", "chain", 4).bind(1 << 24, "uint8")
    ring = chunkscope.build("all_gather", "ring", 4).bind(1 << 24, "uint8")

    assert found.link.is_shared
    assert chunkscope.simulate(alone, topology).duration_ns == pytest.approx(
        3 * (1 << 24) / 3, rel=0.1
    )
    assert chunkscope.simulate(ring, topology).duration_ns == pytest.approx(
        0.75 * (1 << 24) / 0.8, rel=0.1
    )


def test_hosts_with_several_ranks_become_two_levels() -> None:
    inside, across = level(1e4, 2e4, 8e9, 7.9e9), level(5e4, 1e5, 1e9, 0.98e9)
    topology = machine(across, hosts=(0, 0, 1, 1), inside=inside).topology()

    assert topology.hosts == {"host0": (0, 1), "host1": (2, 3)}
    near, far = (
        chunkscope.simulate(
            chunkscope.build("broadcast", "flat", 2).bind(10**7, "uint8"),
            replace(topology, ranks=(topology.ranks[0], topology.ranks[peer])),
        ).duration_ns
        for peer in (1, 2)
    )
    assert near == pytest.approx(1e7 / 7.9, rel=0.05)
    assert far == pytest.approx(1e7 / 0.98, rel=0.05)


def test_the_file_is_a_topology_with_its_costs(tmp_path: Path) -> None:
    found = machine(level(1e5, 2.5e5, 11.95e6, 11.7e6, 28_000))
    path = tmp_path / "new" / "machine.json"
    found.write(path)

    topology = parse(str(path), 4)
    assert topology == found.topology()
    assert topology.costs.header_bytes == GLOO_HEADER_BYTES
    assert topology.costs.rendezvous_bytes == 0
    assert topology.costs.burst_bytes == pytest.approx(28_000, rel=0.05)
    assert parse(str(path), 3).costs == topology.costs
    assert json.loads(json.dumps(found.to_dict()))["link"]["size_bytes"] == list(SIZES_BYTES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ring_ns": np.zeros((len(SIZE), 1))}, "times of 0 ns"),
        ({"one_way_ns": np.full((len(SIZE), 1), np.nan)}, "times above 0"),
    ],
)
def test_times_that_cannot_be_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(TopologyError, match=said):
        machine(replace(level(1e4, 1e4, 1e9, 1e9), **change))


def test_fewer_than_three_sizes_are_refused() -> None:
    two = Level(SIZE[:2], np.ones((2, 1)), np.ones((2, 1)))
    with pytest.raises(TopologyError, match="measured 2 sizes"):
        machine(two)


def test_one_rank_has_nobody_to_measure_with() -> None:
    with pytest.raises(ScheduleError, match="number of ranks is 1, expected 2 or more"):
        measure_machine(1)
    result = CliRunner().invoke(main, ["fit", "-n", "1"])
    assert result.exit_code == 2
    assert "expected 2 or more" in result.output


@pytest.mark.ranks
def test_two_real_ranks_are_measured_and_predicted(tmp_path: Path) -> None:
    effort = Effort(rounds=2, slot_s=0.005, sizes_bytes=SIZES_BYTES[1::2])
    measured = measure_machine(2, effort, timeout=60)

    assert measured is not None
    assert measured.hosts == (0, 0)
    assert measured.level.one_way_ns.shape == (*measured.level.ring_ns.shape[:1], 2)
    found = fit(measured)
    assert 1e3 < found.link.latency_ns < 1e9
    assert 1e6 < found.link.bandwidth_Bps <= found.link.alone_Bps < 1e12
    assert 1e7 < found.reduce_Bps < 1e12
    path = tmp_path / "machine.json"
    found.write(path)
    ring = chunkscope.build("all_reduce", "ring", 2).bind(1 << 20, "float32")
    assert 1e4 < chunkscope.simulate(ring, parse(str(path), 2)).duration_ns < 1e10


def test_fit_writes_a_file_and_sim_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command, with measurements that another test makes for real."""
    monkeypatch.chdir(tmp_path)
    measured = Measurements((0, 0), level(1e5, 2e5, 11.95e6, 11.7e6, 28_000), None, 5e9)
    monkeypatch.setattr("chunkscope.sim.measuring.measure_machine", lambda *_: measured)

    said = CliRunner().invoke(main, ["fit", "-n", "2"])
    assert said.exit_code == 0, said.output
    assert "27.2 KiB at once after a pause" in said.output
    assert "Wrote machine.json" in said.output
    found = json.loads(CliRunner().invoke(main, ["fit", "-n", "2", "--json"]).output)
    assert found["output"] == "machine.json"
    assert found["link"]["latency_ns"] == pytest.approx(1e5, rel=0.05)

    command = said.output.splitlines()[-1].removeprefix("Next: chunkscope ").split()
    simulated = CliRunner().invoke(main, [*command, "--json"])
    assert simulated.exit_code == 0, simulated.output
    facts = json.loads(simulated.output)
    assert facts["duration_ns"] == pytest.approx((4 << 20) / 11.7e6 * 1e9, rel=0.02)
    assert facts["model"]["burst_bytes"] == pytest.approx(28_000, rel=0.05)


def test_a_poor_fit_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = level(1e5, 2e5, 1e9, 1e9)
    bad = replace(good, one_way_ns=np.linspace(1e5, 1e7, len(SIZE))[:, None] * [[1, 1]])
    for measured, warns in ((good, False), (bad, True)):
        found = Measurements((0, 0), measured, None, 5e9)
        monkeypatch.setattr(
            "chunkscope.sim.measuring.measure_machine", lambda *_, found=found: found
        )
        said = CliRunner().invoke(main, ["fit", "-o", str(tmp_path / "machine.json")])
        assert said.exit_code == 0
        assert ("do not explain" in said.output) == warns


def test_the_topology_of_a_fit_is_drawn_as_any_other() -> None:
    topology = machine(level(6e4, 2e5, 3e9, 0.8e9)).topology()
    assert Topology.from_json(topology.to_json()) == topology
