"""The actions of all ranks together, on a network made of threads: nothing waits forever, and no
buffer is written while a message may still be read from it, however early or late data moves."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import pytest
import torch

from chunkscope.sim.bind import bind
from chunkscope.sim.execute import _Call
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.plan import Plan
from chunkscope.sim.program import Do, batches, compile_program
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.values import compute, default_inputs


class Network:
    """Pairs the k-th send of a (src, dst, tag) with the k-th receive.

    Args:
        is_late: Whether data moves at the last moment that gloo allows, when one end waits; else
            at the first, when both ends are posted.
    """

    def __init__(self, is_late: bool) -> None:
        self.is_late = is_late
        self.condition = threading.Condition()
        self.ends: dict[Any, dict[str, list[Any]]] = defaultdict(lambda: {"send": [], "recv": []})
        self.moved: set[Any] = set()

    def post(self, end: str, key: Any, tensor: torch.Tensor) -> Any:
        with self.condition:
            number = len(self.ends[key][end])
            self.ends[key][end].append(tensor)
            if not self.is_late:
                self.move(key, number)
            self.condition.notify_all()
        return (key, number)

    def move(self, key: Any, number: int) -> bool:
        sends, receives = self.ends[key]["send"], self.ends[key]["recv"]
        if (key, number) not in self.moved:
            if min(len(sends), len(receives)) <= number:
                return False
            assert len(sends[number]) == len(receives[number])
            receives[number].copy_(sends[number])
            self.moved.add((key, number))
        return True

    def wait(self, message: Any) -> None:
        with self.condition:
            assert self.condition.wait_for(lambda: self.move(*message), timeout=20), "deadlock"


class Work:
    def __init__(self, network: Network, message: Any) -> None:
        self.network, self.message = network, message

    def wait(self) -> None:
        self.network.wait(self.message)


class Group:
    """What a rank sees of the network."""

    def __init__(self, network: Network, rank: int) -> None:
        self.network, self.rank = network, rank

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Work:
        return Work(self.network, self.network.post("send", (self.rank, peer, tag), tensors[0]))

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Work:
        return Work(self.network, self.network.post("recv", (peer, self.rank, tag), tensors[0]))


def outputs(schedule: Schedule, count: int, segment_bytes: int, is_late: bool) -> list[Any]:
    """Run all ranks of a schedule in threads and return their outputs."""
    bound, network = bind(schedule, count, "int64"), Network(is_late)
    inputs = default_inputs(bound)
    results: list[Any] = [None] * schedule.group_size
    errors: list[BaseException] = []

    def rank(place: int) -> None:
        program = compile_program(bound, place, segment_bytes=segment_bytes)
        plan = Plan(bound, place, "SUM", program, batches(program), False, None)
        given = inputs[place]
        size = program.input_elements if given is not None else program.output_elements
        tensor = torch.zeros(size, dtype=torch.int64)
        if given is not None:
            tensor.copy_(torch.from_numpy(given))
        in_place = schedule.kind.sends == schedule.kind.receives or given is None
        output = tensor if in_place else torch.zeros(program.output_elements, dtype=torch.int64)
        try:
            group: Any = Group(network, place)
            _Call(plan, group, tensor, output if program.has_output else None).run()
        except BaseException as error:
            errors.append(error)
        results[place] = output.tolist() if program.has_output else None

    threads = [threading.Thread(target=rank, args=(k,)) for k in range(schedule.group_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not errors, errors
    return results


def expected(schedule: Schedule, count: int) -> list[Any]:
    bound = bind(schedule, count, "int64")
    found = compute(bound, default_inputs(bound)).outputs
    return [None if values is None else values.tolist() for values in found]


def recursive_doubling(n: int) -> Schedule:
    """Partners swap everything: each slot is read and written in the same step."""
    rows = [
        Transfer(step, 0, rank, rank ^ 1 << step, 0, 0, 1, True)
        for step in range(n.bit_length() - 1)
        for rank in range(n)
    ]
    return Schedule.of("all_reduce", "doubling", n, rows, input=[0], output=[0])


def rotation(n: int) -> Schedule:
    """A ring all_gather through scratch slots, put into order by local rows at the end."""
    ranks = range(n)
    rows = [Transfer(k, 0, r, (r + 1) % n, k, k + 1) for k in range(n - 1) for r in ranks]
    rows += [Transfer(n - 1, 0, r, r, (r - k) % n, n + k) for r in ranks for k in ranks]
    return Schedule.of(
        "all_gather", "rotation", n, rows, input=[0], output=range(n, 2 * n), scratch=range(1, n)
    )


LIBRARY = [
    pytest.param(entry.collective, entry.name, n, id=f"{entry.collective}-{entry.name}-{n}")
    for n in (1, 2, 5)
    for entry in algorithms(group_size=n)
    if not build(entry.collective, entry.name, n).helpers
]


@pytest.mark.parametrize("is_late", [False, True], ids=["early", "late"])
@pytest.mark.parametrize(("collective", "name", "n"), LIBRARY)
def test_every_algorithm_gives_its_result(
    collective: str, name: str, n: int, is_late: bool
) -> None:
    schedule = build(collective, name, n)
    for count, segment_bytes in ((0, 64), (n, 64), (20 * n, 32)):
        found = outputs(schedule, count, segment_bytes, is_late)
        assert found == expected(schedule, count), (count, segment_bytes)


@pytest.mark.parametrize("is_late", [False, True], ids=["early", "late"])
@pytest.mark.parametrize("make", [recursive_doubling, rotation])
def test_slots_used_again_at_once(make: Any, is_late: bool) -> None:
    for count, segment_bytes in ((4, 64), (80, 64)):
        assert outputs(make(4), count, segment_bytes, is_late) == expected(make(4), count)


def test_large_chunks_are_cut_into_lanes_and_small_ones_are_not() -> None:
    ring = build("all_reduce", "ring", 4)
    small = compile_program(bind(ring, 1000, "float32"), 0, segment_bytes=1 << 20)
    assert small.lanes == 1
    assert [action.do for action in small.actions].count(Do.START) == 6
    large = compile_program(bind(ring, 4 << 20, "float32"), 0, segment_bytes=1 << 20)
    assert large.lanes == 4
    assert [action.do for action in large.actions].count(Do.START) == 6 * 4
    middle = compile_program(bind(ring, 256 << 10, "float32"), 0, segment_bytes=1 << 20)
    assert middle.lanes == 2  # so that the link is busy while the other half is added


def test_staging_memory_does_not_grow_with_the_data() -> None:
    ring = build("all_reduce", "ring", 4)
    room = []
    for count in (4 << 20, 64 << 20):
        program = compile_program(bind(ring, count, "float32"), 0, segment_bytes=1 << 20)
        room.append(program.n_staging * program.staging_elements)
    assert room[0] == room[1] <= 4 << 18
