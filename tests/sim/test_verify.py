"""The verifier against hand-made faults, and against numbers under shuffled completion order."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from chunkscope.errors import ScheduleError
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.verify import MOST_OF_A_CODE, Code, Finding, check, verify


def sized(sizes: Iterable[int]) -> list[tuple[str, str, int]]:
    """Every algorithm with each of the group sizes that it can do."""
    return [(e.collective, e.name, n) for n in sizes for e in algorithms(group_size=n)]


# An oracle that knows nothing of the verifier: it runs the rows on numbers, each moment as soon or
# as late as the rules of order allow, in an order drawn at random.


@dataclass
class Oracle:
    """Runs one schedule on integers, one number a slot."""

    schedule: Schedule
    rng: random.Random
    op: Callable[[int, int], int] = operator.add
    slots: dict[tuple[int, int], int] = field(default_factory=dict)
    filled: set[tuple[int, int]] = field(default_factory=set)
    started: set[int] = field(default_factory=set)
    arrived: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    payload: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Note for each row which rows must have arrived, started or been written before it may."""
        self.rows = rows = self.schedule.transfers
        reads = [{(r.src, r.src_slot + k) for k in range(r.n_slots)} for r in rows]
        writes = [{(r.dst, r.dst_slot + k) for k in range(r.n_slots)} for r in rows]
        message = [(r.step, r.channel, r.src, r.dst) for r in rows]
        self.together: list[list[int]] = []
        self.start_needs: list[tuple[set[int], set[int]]] = []
        self.write_needs: list[tuple[set[int], set[int]]] = []
        for row, me in enumerate(rows):
            same = [(k, r) for k, r in enumerate(rows) if r.channel == me.channel]
            alone = me.src == me.dst
            self.together.append(
                [row] if alone else [k for k, _ in same if message[k] == message[row]]
            )
            entered = me.step - self.schedule.window
            arrived = {k for k, r in same if r.src == me.src and r.step <= entered}
            written = {k for k, r in same if r.step < me.step and reads[row] & writes[k]}
            for later, earlier in self.schedule.after.tolist():
                if later == row:
                    (written if rows[earlier].dst == me.src else arrived).add(earlier)
            self.start_needs.append((arrived, written))
            up_to_now = [k for k, r in same if k != row and r.step <= me.step]
            started = {k for k in up_to_now if reads[k] & writes[row]}
            before = [k for k in up_to_now if (rows[k].step, k) < (me.step, row)]
            self.write_needs.append((started, {k for k in before if writes[k] & writes[row]}))

    def value(self, place: int, chunk: int) -> int:
        """The number that a rank puts in as a chunk: large, so that no two sums are equal."""
        whose = place if self.schedule.kind.reduces else 0
        return random.Random(f"{whose} {chunk}").getrandbits(60)

    def run(self) -> bool:
        """Run to the end; return whether every output is right. Stuck rows are an error."""
        schedule = self.schedule
        for place in range(schedule.n_places):
            for slot in range(schedule.slots_a_place):
                self.slots[place, slot] = self.rng.getrandbits(60)
        for place in range(schedule.group_size):
            for slot, chunk in zip(*schedule.input_of(place), strict=True):
                self.slots[place, slot] = self.value(place, int(chunk))
                self.filled.add((place, slot))
        while len(self.written) < len(self.rows):
            ready = [*self.can_start(), *self.can_arrive(), *self.can_be_written()]
            if not ready:
                raise RuntimeError("stuck")
            act, row = self.rng.choice(ready)
            act(row)
        return self.right()

    def can_start(self) -> list[tuple[Callable[[int], None], int]]:
        waiting = [row for row in range(len(self.rows)) if row not in self.started]
        return [
            (self.start, row) for row in waiting if all(map(self.may_start, self.together[row]))
        ]

    def may_start(self, row: int) -> bool:
        arrived, written = self.start_needs[row]
        return arrived <= self.arrived and written <= self.written

    def start(self, row: int) -> None:
        for k in self.together[row]:
            me = self.rows[k]
            self.payload[k] = [self.slots[me.src, me.src_slot + j] for j in range(me.n_slots)]
            self.started.add(k)

    def can_arrive(self) -> list[tuple[Callable[[int], None], int]]:
        return [(self.arrive, row) for row in self.started - self.arrived]

    def arrive(self, row: int) -> None:
        self.arrived.update(self.together[row])

    def can_be_written(self) -> list[tuple[Callable[[int], None], int]]:
        return [
            (self.write, row) for row in self.arrived - self.written if self.may_be_written(row)
        ]

    def may_be_written(self, row: int) -> bool:
        started, written = self.write_needs[row]
        return started <= self.started and written <= self.written

    def write(self, row: int) -> None:
        me = self.rows[row]
        for k, number in enumerate(self.payload[row]):
            cell = (me.dst, me.dst_slot + k)
            empty_helper = me.dst >= self.schedule.group_size and cell not in self.filled
            self.filled.add(cell)
            if me.reduce and not empty_helper:
                number = self.op(self.slots[cell], number)
            self.slots[cell] = number
        self.written.add(row)

    def right(self) -> bool:
        schedule = self.schedule
        for place in range(schedule.group_size):
            for slot, chunk in zip(*schedule.output_of(place), strict=True):
                ranks = range(schedule.group_size) if schedule.kind.reduces else [0]
                due = self.value(ranks[0], int(chunk))
                for rank in ranks[1:]:
                    due = self.op(due, self.value(rank, int(chunk)))
                if self.slots[place, slot] != due:
                    return False
        return True


def runs(schedule: Schedule, seed: int, op: Callable[[int, int], int] = operator.add) -> bool:
    return Oracle(schedule, random.Random(seed), op).run()


def changed(schedule: Schedule, rows: list[Transfer], **header: object) -> Schedule:
    """Return a schedule with other rows."""
    given = {
        "input": schedule.input,
        "output": schedule.output,
        "scratch": schedule.scratch,
        "root": schedule.root,
        "window": schedule.window,
        "helpers": schedule.helpers,
    }
    return Schedule.of(
        schedule.collective,
        schedule.algorithm,
        schedule.group_size,
        rows,
        **{**given, **header},  # type: ignore[arg-type]
    )


def codes(findings: list[Finding]) -> set[str]:
    return {finding.code.value for finding in findings}


# Every algorithm is valid


@pytest.mark.parametrize(("collective", "name", "group_size"), sized(range(1, 18)))
def test_every_algorithm_is_valid(collective: str, name: str, group_size: int) -> None:
    rooted = collective in ("broadcast", "reduce", "gather", "scatter")
    for root in {0, group_size // 2, group_size - 1} if rooted else {None}:
        for policy in ("dataflow", "rank_step", "lockstep"):
            found = verify(build(collective, name, group_size, root=root), policy)
            # A barrier may hear of a rank twice: it does no harm.
            assert not [f for f in found if collective != "barrier" or not f.harmless]


@pytest.mark.parametrize("group_size", [63, 64, 65, 130])
def test_more_ranks_than_fit_one_word_of_bits(group_size: int) -> None:
    ring = build("all_reduce", "ring", group_size)
    assert verify(ring) == []
    lost = ring.transfers
    del lost[next(k for k, row in enumerate(lost) if row.src == group_size - 1)]
    messages = [f.message for f in verify(changed(ring, lost)) if f.code is Code.POSTCONDITION]
    assert any(f"lacks the part of rank {group_size - 1} at" in message for message in messages)


@pytest.mark.parametrize(("collective", "name", "group_size"), sized(range(1, 6)))
def test_a_valid_schedule_is_right_in_any_order(
    collective: str, name: str, group_size: int
) -> None:
    parameters = {"segments": 1} if (collective, name) == ("all_reduce", "gloo") else {}
    schedule = build(collective, name, group_size, **parameters)
    if len(schedule) > 60:
        return  # the oracle is slow, and smaller groups have shown it
    for seed in range(3):
        assert runs(schedule, seed, max if collective == "barrier" else operator.add)


# Mutations


def two_channels() -> Schedule:
    """Up on channel 0, two slots a row; down on channel 1, which waits for it."""
    up = [Transfer(0, 0, rank, 0, 0, 0, 2, True) for rank in (1, 2)]
    down = [Transfer(0, 1, 0, rank, 0, 0, 2) for rank in (1, 2)]
    return Schedule.of(
        "all_reduce",
        "star",
        3,
        up + down,
        input=[0, 1],
        output=[0, 1],
        after=[(row, earlier) for row in (2, 3) for earlier in (0, 1)],
    )


@st.composite
def mutants_of_channels(draw: st.DrawFn) -> Schedule:
    star = two_channels()
    rows = star.transfers
    at = draw(st.integers(0, 3))
    change = draw(
        st.sampled_from(
            [{"channel": 0}, {"channel": 1}, {"step": 1}, {"step": 2}, {"n_slots": 1}, {}]
        )
    )
    rows[at] = rows[at]._replace(**change)
    pairs = [(2, 0), (2, 1), (3, 0), (3, 1), (0, 2), (1, 3), (3, 2)]
    after = draw(st.lists(st.sampled_from(pairs), unique=True))
    window = draw(st.integers(1, 2))
    return changed(star, rows, after=after, window=window)


@st.composite
def mutants(draw: st.DrawFn) -> Schedule:
    known = [one for one in sized((2, 3, 4)) if one[0] != "barrier"]
    collective, name, group_size = draw(st.sampled_from(known))
    parameters = {"segments": draw(st.integers(1, 3))} if "chain" in name else {}
    if (collective, name) == ("all_reduce", "gloo"):
        parameters["segments"] = 1
    schedule = build(collective, name, group_size, **parameters)
    rows = schedule.transfers
    for _ in range(draw(st.integers(1, 2))):
        if not rows:
            break
        at = draw(st.integers(0, len(rows) - 1))
        row = rows[at]
        slot = st.integers(0, schedule.slots_a_place - row.n_slots)
        kind = draw(st.sampled_from(["drop", "src_slot", "dst_slot", "reduce", "step", "copy"]))
        if kind == "drop":
            del rows[at]
        elif kind == "reduce":
            rows[at] = row._replace(reduce=not row.reduce)
        elif kind == "step":
            rows[at] = row._replace(step=draw(st.integers(0, schedule.n_steps)))
        elif kind == "copy":
            rows.insert(at, row)
        else:
            rows[at] = row._replace(**{kind: draw(slot)})
    try:
        return changed(schedule, rows)
    except ScheduleError:  # a slot that this rank has not: rejected before it can be verified
        reject()


@settings(max_examples=150, deadline=None)
@given(mutants(), st.integers(0, 1000))
def test_a_mutant_is_rejected_or_harmless(mutant: Schedule, seed: int) -> None:
    found = codes(verify(mutant))
    right = all(runs(mutant, seed + k) for k in range(2))
    if not found:
        assert right
    if "POSTCONDITION" in found:
        assert not right
    if found == {"DOUBLE_CONTRIBUTION"} and mutant.kind.reduces:
        assert runs(mutant, seed, max)


@settings(max_examples=150, deadline=None)
@given(mutants_of_channels(), st.integers(0, 1000))
def test_a_mutant_of_channels_is_rejected_or_harmless(mutant: Schedule, seed: int) -> None:
    found = codes(verify(mutant))
    if "DEADLOCK" in found:
        with pytest.raises(RuntimeError, match="stuck"):
            runs(mutant, seed)
        return
    right = {runs(mutant, seed + k) for k in range(4)}
    if not found:
        assert right == {True}
    if found == {"POSTCONDITION"}:
        assert right == {False}


def test_channels_that_wait_for_each_other_are_valid() -> None:
    assert verify(two_channels()) == []
    lax = changed(two_channels(), two_channels().transfers, after=[(2, 0), (3, 1)])
    assert "RACE" in codes(verify(lax))
    assert {runs(lax, seed) for seed in range(20)} == {True, False}


def test_mutations_are_caught_at_all() -> None:
    """The test above must not pass because nothing is ever found."""
    ring = build("all_reduce", "ring", 4)
    rejected = 0
    for at, row in enumerate(ring.transfers):
        for other in (
            row._replace(reduce=not row.reduce),
            row._replace(dst_slot=(row.dst_slot + 1) % 4),
            row._replace(src_slot=(row.src_slot + 1) % 4),
            None,
        ):
            rows = ring.transfers
            rows[at : at + 1] = [] if other is None else [other]
            rejected += bool(verify(changed(ring, rows)))
    assert rejected == 4 * len(ring)


# What each finding says


def test_a_dropped_row_lacks_ranks_at_the_end() -> None:
    ring = build("all_reduce", "ring", 3)
    findings = verify(changed(ring, ring.transfers[1:]))
    assert codes(findings) == {"POSTCONDITION"}
    assert findings[0].place == 0
    assert findings[0].row is None
    assert findings[0].message == (
        "slot 2 of rank 0, where chunk 2 is due, lacks the part of rank 0 at the end"
    )


def test_a_reduce_that_comes_twice_is_a_double_contribution() -> None:
    tree = build("all_reduce", "tree", 4)
    rows = tree.transfers
    findings = verify(changed(tree, [rows[0], *rows]))
    assert codes(findings) == {"DOUBLE_CONTRIBUTION"}
    assert findings[0] == Finding(
        Code.DOUBLE_CONTRIBUTION,
        place=0,
        step=0,
        row=1,
        message="row 1 (step 0, r1 +> r0) adds rank 1's part of chunk 0 to slot 0 of rank 0, "
        "which has it already (harmless for MIN and MAX)",
    )
    assert not findings[0].harmless


def test_a_double_contribution_is_harmless_where_the_op_is_idempotent() -> None:
    tree = build("all_reduce", "tree", 4)
    twice = changed(tree, [tree.transfers[0], *tree.transfers], idempotent=True)
    (finding,) = verify(twice)
    assert finding.harmless
    check(twice)
    assert runs(twice, 0, max)
    assert not runs(twice, 0)


def test_a_barrier_may_count_twice_but_must_hear_from_all() -> None:
    """Dissemination among three: rank r tells r + 1, then r + 2, all that it knows."""
    rows = [Transfer(s, 0, r, (r + 2**s) % 3, 0, 0, 1, True) for s in (0, 1) for r in range(3)]
    barrier = Schedule.of("barrier", "dissemination", 3, rows, input=[0], output=[0])
    assert verify(barrier)
    assert all(finding.harmless for finding in verify(barrier))
    deaf = changed(barrier, rows[:-1])
    with pytest.raises(
        ScheduleError, match="of rank 1, where chunk 0 is due, lacks the part of rank 2"
    ):
        check(deaf)


def test_chunks_must_not_mix() -> None:
    ring = build("all_reduce", "ring", 3)
    rows = ring.transfers
    rows[0] = rows[0]._replace(dst_slot=0)
    first = verify(changed(ring, rows))[0]
    assert first.code is Code.MIXED_CHUNKS
    assert first.message == (
        "row 0 (step 0, r0 +> r1) reduces chunk 2 into slot 0 of rank 1, which holds chunk 0"
    )


def test_an_empty_slot_must_not_be_sent() -> None:
    gather = build("all_gather", "ring", 3)
    rows = gather.transfers
    rows[0] = rows[0]._replace(src_slot=1)
    first = verify(changed(gather, rows))[0]
    assert first.code is Code.EMPTY_READ
    assert first.place == 0
    assert first.message == ("row 0 (step 0, r0 -> r1) sends slot 1 of rank 0, which holds nothing")


def test_a_rank_must_not_reduce_into_an_empty_slot_but_a_switch_may() -> None:
    header = {"input": [0], "output": [0], "scratch": [1]}
    rows = [Transfer(0, 0, 1, 0, 0, 1, 1, True)]
    found = verify(Schedule.of("all_reduce", "x", 2, rows, **header))  # type: ignore[arg-type]
    assert found[0].code is Code.EMPTY_REDUCE
    assert found[0].message == (
        "row 0 (step 0, r1 +> r0) reduces into slot 1 of rank 0, which holds nothing"
    )
    up = [Transfer(0, 0, rank, 2, 0, 0, 1, True) for rank in (0, 1)]
    down = [Transfer(1, 0, 2, rank, 0, 0) for rank in (0, 1)]
    switch = Schedule.of(
        "all_reduce", "in_network", 2, up + down, input=[0], output=[0], helpers=["switch"]
    )
    assert verify(switch) == []
    assert runs(switch, 0)


def test_an_output_that_nothing_was_written_to() -> None:
    broadcast = build("broadcast", "tree", 3)
    findings = verify(changed(broadcast, broadcast.transfers[1:]))
    assert findings[0].message == (
        "slot 0 of rank 2, where chunk 0 is due, holds nothing at the end"
    )


def test_nothing_is_due_of_an_empty_chunk() -> None:
    gloo = build("all_reduce", "gloo", 3, size_bytes=8, itemsize=4)
    assert len(gloo) < len(build("all_reduce", "gloo", 3))
    assert verify(gloo) == []


def test_many_findings_are_counted() -> None:
    ring = build("all_reduce", "ring", 9)
    findings = verify(changed(ring, []))
    assert len(findings) == MOST_OF_A_CODE + 1
    assert findings[-1].message == f"and {81 - MOST_OF_A_CODE} more"


def test_check_raises_the_first_finding() -> None:
    ring = build("all_reduce", "ring", 3)
    with pytest.raises(ScheduleError, match="POSTCONDITION: slot 2 of rank 0") as raised:
        check(changed(ring, ring.transfers[1:]))
    assert raised.value.code == "POSTCONDITION"
    assert raised.value.place == 0


# Channels: races and deadlocks


def there_and_back(after: list[tuple[int, int]], step: int = 0) -> Schedule:
    """Rank 1's part goes to rank 0 on channel 0, the sum comes back on channel 1."""
    rows = [Transfer(0, 0, 1, 0, 0, 0, 1, True), Transfer(step, 1, 0, 1, 0, 0)]
    return Schedule.of("all_reduce", "two", 2, rows, input=[0], output=[0], after=after)


def test_a_read_of_what_another_channel_wrote_is_a_race() -> None:
    findings = verify(there_and_back([], step=1))
    assert codes(findings) == {"RACE"}
    assert findings[0].message == (
        "slot 0 of rank 0: row 1 (step 1, r0 -> r1) reads on channel 1, row 0 (step 0, r1 +> r0) "
        "writes on channel 0, and nothing orders them; use one channel, or `after`"
    )
    assert {runs(there_and_back([], step=1), seed) for seed in range(20)} == {True, False}


@pytest.mark.parametrize("step", [0, 1])
def test_after_orders_channels(step: int) -> None:
    ordered = there_and_back([(1, 0)], step)
    assert verify(ordered) == []
    assert all(runs(ordered, seed) for seed in range(20))


def test_races_are_looked_for_across_a_whole_ring() -> None:
    """Channel 1 gathers what channel 0 reduced: every slot is touched by both, in 30 steps."""
    n = 16
    ring = build("all_reduce", "ring", n)
    half = len(ring) // 2
    rows = [row._replace(channel=int(k >= half)) for k, row in enumerate(ring.transfers)]
    # What rank r sends at any time waits for what it got last on channel 0.
    after = [(k, half - n + (rows[k].src - 1) % n) for k in range(half, len(rows))]
    assert verify(changed(ring, rows, after=after)) == []
    late = half + 5 * n + 3
    lax = [pair for pair in after if pair[0] != late]
    assert verify(changed(ring, rows, after=lax)) == []  # the sender's step before it waited
    first = [pair for pair in after if rows[pair[0]].src != 3]
    found = verify(changed(ring, rows, after=first))
    assert codes(found) == {"RACE"}
    assert "slot 3 of rank 0: row 191 (step 11, r15 +> r0) writes on channel 0" in found[0].message


def test_two_reduces_are_a_race_even_if_the_sum_is_right() -> None:
    rows = [Transfer(0, c, c + 1, 0, 0, 0, 1, True) for c in (0, 1)]
    star = Schedule.of("reduce", "star", 3, rows, input=[0], output=[0], root=0)
    assert codes(verify(star)) == {"RACE"}
    assert runs(star, 0)
    same_channel = [row._replace(channel=0) for row in rows]
    assert verify(changed(star, same_channel)) == []


def test_after_that_reaches_back_is_followed() -> None:
    """Channel 1 begins at step 0 with what channel 0 ends with at step 2."""
    rows = [
        Transfer(2, 0, 2, 1, 0, 0, 1, True),
        Transfer(3, 0, 1, 0, 0, 0, 1, True),
        Transfer(0, 1, 0, 1, 0, 0),
        Transfer(1, 1, 1, 2, 0, 0),
    ]
    schedule = Schedule.of(
        "all_reduce", "line", 3, rows, input=[0], output=[0], after=[(2, 1), (3, 2)]
    )
    assert verify(schedule) == []
    assert all(runs(schedule, seed) for seed in range(10))
    unordered = Schedule.of("all_reduce", "line", 3, rows, input=[0], output=[0])
    assert "RACE" in codes(verify(unordered))


def test_rows_that_wait_for_each_other_are_a_deadlock() -> None:
    stuck = there_and_back([(1, 0), (0, 1)])
    (finding,) = verify(stuck)
    assert finding.code is Code.DEADLOCK
    assert finding.message in (
        "deadlock under policy dataflow: row 0 (step 0, r1 +> r0) waits for row 1 (step 0, r0 -> "
        "r1) waits for row 0 (step 0, r1 +> r0)",
        "deadlock under policy dataflow: row 1 (step 0, r0 -> r1) waits for row 0 (step 0, r1 +> "
        "r0) waits for row 1 (step 0, r0 -> r1)",
    )
    with pytest.raises(RuntimeError, match="stuck"):
        runs(stuck, 0)
    with pytest.raises(ScheduleError, match="DEADLOCK"):
        check(stuck)


def test_a_deadlock_of_one_policy_alone() -> None:
    rows = [Transfer(0, 0, 1, 0, 0, 0, 1, True), Transfer(1, 1, 0, 1, 1, 1)]
    header = {"input": [0, 1], "output": [0, 1]}
    held = Schedule.of("all_reduce", "x", 2, rows, after=[(0, 1)], **header)  # type: ignore[arg-type]
    assert "DEADLOCK" not in codes(verify(held, "dataflow"))
    assert "DEADLOCK" not in codes(verify(held, "rank_step"))
    (finding,) = verify(held, "lockstep")
    assert "deadlock under policy lockstep: " in finding.message


def test_unknown_policy() -> None:
    with pytest.raises(ScheduleError, match="unknown policy 'eager'; known: dataflow, rank_step"):
        verify(build("all_reduce", "ring", 2), "eager")  # type: ignore[arg-type]
