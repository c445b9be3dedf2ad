"""Laws of the step model, for random schedules on random networks under random parameters."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from chunkscope.sim.activity import STATES
from chunkscope.sim.critical import PARTS
from chunkscope.sim.cuts import Border, hardest_cut
from chunkscope.sim.library import algorithms, build
from chunkscope.sim.needs import Needs
from chunkscope.sim.order import POLICIES
from chunkscope.sim.replay import Replay, simulate
from chunkscope.sim.schedule import Schedule, Transfer
from chunkscope.sim.topology import Topology, parse
from chunkscope.sim.verify import verify

laws = settings(max_examples=60, deadline=None, derandomize=True, phases=[Phase.generate])
few = settings(max_examples=30, deadline=None, derandomize=True, phases=[Phase.generate])


class Case(NamedTuple):
    """What is simulated, and how."""

    schedule: Schedule
    count: int
    topology: Topology
    how: dict[str, Any]

    def run(self, **other: Any) -> Replay:
        """Simulate it, with some parameters changed."""
        bound = self.schedule.bind(self.count, "int8")
        return simulate(bound, self.topology, **{**self.how, **other})


# Networks


@st.composite
def networks(draw: st.DrawFn, n_ranks: int) -> Topology:
    """A connected graph of ranks and switches; each direction of a link has rates of its own."""
    n_nodes = n_ranks + draw(st.integers(0, 3))
    order = draw(st.permutations(range(n_nodes)))
    links = {(order[draw(st.integers(0, k - 1))], order[k]) for k in range(1, n_nodes)}
    node = st.integers(0, n_nodes - 1)
    links |= {(a, b) for a, b in draw(st.lists(st.tuples(node, node), max_size=6)) if a != b}
    graph = nx.DiGraph()
    graph.add_nodes_from(f"n{k:02}" for k in range(n_nodes))
    for a, b in sorted(links):
        for src, dst in ((a, b), (b, a)):
            graph.add_edge(
                f"n{src:02}",
                f"n{dst:02}",
                bandwidth_Bps=draw(st.sampled_from([0.5e9, 1e9, 3e9, 7e9])),
                latency_ns=draw(st.sampled_from([0, 1, 100, 1234.5])),
            )
    return Topology.of(graph, [f"n{k:02}" for k in range(n_ranks)])


# Schedules


@st.composite
def trees(draw: st.DrawFn, n: int, root: int) -> list[int]:
    """A parent for each rank, -1 for the root, in no particular shape."""
    others = [rank for rank in draw(st.permutations(range(n))) if rank != root]
    order, parent = [root, *others], [-1] * n
    for k in range(1, n):
        parent[order[k]] = order[draw(st.integers(0, k - 1))]
    return parent


def way_up(parent: list[int], rank: int) -> list[int]:
    """A rank and those above it, without the root."""
    return [] if parent[rank] < 0 else [rank, *way_up(parent, parent[rank])]


ROOTED = ("reduce", "broadcast", "gather", "scatter")
BY_BLOCK = ("reduce_scatter", "all_gather", "gather", "scatter")
UP = ("all_reduce", "reduce_scatter", "reduce", "gather")
DOWN = ("all_reduce", "all_gather", "broadcast", "scatter")


@st.composite
def plans(draw: st.DrawFn) -> Schedule:
    """A plan that is right: each chunk goes up a tree of its own, or down, or both."""
    name = draw(st.sampled_from(sorted({*UP, *DOWN})))
    n = draw(st.integers(2, 6))
    root = draw(st.integers(0, n - 1)) if name in ROOTED else None
    n_chunks = n if name in BY_BLOCK else draw(st.integers(1, 3))
    rows = []
    for chunk in range(n_chunks):
        parent = draw(trees(n, chunk % n if root is None else root))
        ways = {rank: way_up(parent, rank) for rank in range(n)}
        passed = ways[chunk] if name in ("gather", "scatter") else range(n)
        begin, deepest = draw(st.integers(0, 3)), max(map(len, ways.values()))
        for rank in passed:
            if parent[rank] >= 0 and name in UP:
                step, reduces = begin + deepest - len(ways[rank]), name != "gather"
                rows.append(Transfer(step, 0, rank, parent[rank], chunk, chunk, 1, reduces))
            if parent[rank] >= 0 and name in DOWN:
                step = begin + deepest + len(ways[rank])
                rows.append(Transfer(step, 0, parent[rank], rank, chunk, chunk))
    whole, own = list(range(n_chunks)), [[rank] for rank in range(n)]
    return Schedule.of(
        name,
        "trees",
        n,
        rows,
        input=own if name in ("all_gather", "gather") else whole,
        output=own if name in ("reduce_scatter", "scatter") else whole,
        root=root,
        window=draw(st.integers(1, 3)),
    )


@st.composite
def named_plans(draw: st.DrawFn) -> Schedule:
    """A plan by one of the algorithms, but for those whose switches must be there."""
    n = draw(st.integers(2, 6))
    names = [(e.collective, e.name) for e in algorithms(group_size=n)]
    collective, name = draw(st.sampled_from([pair for pair in names if pair[1] not in IN_SWITCH]))
    return build(collective, name, n)


IN_SWITCH = ("sharp", "nvls")


@st.composite
def scrambles(draw: st.DrawFn) -> Schedule:
    """A plan that moves slots about, right or wrong: the step model does not mind."""
    n = draw(st.integers(2, 6))
    rank, slot = st.integers(0, n - 1), st.integers(0, 2)
    row = st.tuples(
        st.integers(0, 4),
        st.integers(0, 1),
        rank,
        rank,
        slot,
        slot,
        st.integers(1, 2),
        st.booleans(),
    )
    rows = [Transfer(*values) for values in draw(st.lists(row, max_size=20))]
    every = range(4)
    return Schedule.of(
        "all_reduce", "scramble", n, rows, input=every, output=every,
        window=draw(st.integers(1, 3)),
    )  # fmt: skip


PARAMETERS = st.fixed_dictionaries(
    {"policy": st.sampled_from(POLICIES)},
    optional={
        "reduce_Bps": st.sampled_from([0.5e9, 2e9]),
        "message_ns": st.sampled_from([0, 77.7]),
        "header_bytes": st.sampled_from([0, 16]),
        "rendezvous_bytes": st.sampled_from([0, 500]),
        "delay_ns": st.dictionaries(st.sampled_from([0, 1]), st.sampled_from([10.0, 3e4])),
        "sharing": st.booleans(),
        "burst_bytes": st.sampled_from([0, 300]),
        "segment_bytes": st.sampled_from([1000]),
        "ports": st.sampled_from([1, 2]),
        "jitter": st.sampled_from([0.1, 2.0]),
        "slow": st.dictionaries(st.sampled_from([0, 1]), st.sampled_from([1.5, 4.0])),
    },
)


@st.composite
def cases(draw: st.DrawFn, schedules: st.SearchStrategy[Schedule]) -> Case:
    schedule = draw(schedules)
    # A multiple of all numbers of chunks here.
    count = 12 * schedule.group_size * draw(st.sampled_from([0, 1, 7, 250, 10_000, 1_000_000]))
    return Case(schedule, count, draw(networks(schedule.group_size)), draw(PARAMETERS))


# Laws


@few
@given(plans())
def test_random_trees_are_right(schedule: Schedule) -> None:
    assert not [finding for finding in verify(schedule) if not finding.harmless]


@laws
@given(cases(st.one_of(plans(), named_plans())))
def test_nothing_beats_the_lower_bounds(case: Case) -> None:
    replay = case.run()
    bounds = replay.bounds
    for bound_ns in (bounds.latency_ns, bounds.bandwidth_ns, bounds.cut_ns):
        assert replay.exact_duration_ns >= bound_ns * (1 - 1e-9)
    assert bounds.time_ns >= bounds.cut_ns >= bounds.bandwidth_ns


@few
@given(st.one_of(plans(), named_plans()), st.data())
def test_no_set_of_nodes_is_a_harder_cut(schedule: Schedule, data: st.DataObject) -> None:
    n = schedule.group_size
    topology = data.draw(networks(n))
    border = Border.of(topology)
    border = replace(border, latency_ns=0 * border.latency_ns, near_ns=0 * border.near_ns)
    needs = Needs.of(schedule.bind(120 * n, "int8"))
    found = hardest_cut(border, needs)
    hardest = 0.0 if found is None else found.time_ns
    for chosen in range(1, 2**border.n_nodes - 1):
        side = (chosen >> np.arange(border.n_nodes)) & 1
        group = side[border.node]
        if 0 < group.sum() < n:
            leaves = (side[border.tail] == 1) & (side[border.head] == 0)
            least = needs.leaving(group)[1] * 1e9 / border.rate_Bps[leaves].sum()
            # A set may be harder for what each pair has of its own: flows look at single ranks.
            assert least <= hardest * (1 + 1e-9) or needs.pair_bytes is not None


@laws
@given(cases(scrambles()))
def test_what_is_sent_arrives_once_and_all_accounts_add_up(case: Case) -> None:
    replay, n = case.run(), case.schedule.group_size
    schedule, end = case.schedule, replay.exact_duration_ns
    assert (replay.start_ns <= replay.arrived_ns).all()
    assert (replay.arrived_ns <= replay.written_ns).all()
    # Links: what enters a node of a rank is what leaves it, but for its own.
    crosses = schedule.src != schedule.dst
    sizes = replay.bound.row_bytes + 0.0
    if header := case.how.get("header_bytes"):
        longest = case.how.get("segment_bytes") or max(case.count, 1)
        parts = np.maximum(-(-replay.bound.message_bytes // longest), 1)
        sizes[schedule.messages.first_row] += header * parts
    own = np.bincount(schedule.src[crosses], sizes[crosses], n)
    arrived = np.bincount(schedule.dst[crosses], sizes[crosses], n)
    for rank, node in enumerate(case.topology.ranks):
        sent = sum(b for (a, _), b in replay.link_bytes.items() if a == node)
        got = sum(b for (_, to), b in replay.link_bytes.items() if to == node)
        assert sent - own[rank] == got - arrived[rank] >= 0
    # Links over time.
    links = replay.links
    np.testing.assert_allclose(links.by_time(5).sum(axis=1), links.size_bytes, rtol=1e-9)
    for a, b in links.ends:
        steps = links.over_time(a, b)
        assert steps.size_bytes == pytest.approx(replay.link_bytes[a, b], rel=1e-6)
        if case.how.get("sharing", True) and not case.how.get("burst_bytes"):
            rate = case.topology.graph.edges[a, b]["bandwidth_Bps"]
            assert steps.rate_Bps.max(initial=0) <= rate * (1 + 1e-6)
    # Ranks.
    total = sum(getattr(replay.activity, f"{state}_ns") for state in STATES)
    np.testing.assert_allclose(total, np.full(n, end), rtol=1e-9)
    # The chain.
    parts = sum(getattr(stage, f"{part}_ns") for stage in replay.chain for part in PARTS)
    assert parts == pytest.approx(replay.written_ns.max(initial=0))


@few
@given(cases(scrambles()), st.data())
def test_more_latency_never_helps_without_contention(case: Case, data: st.DataObject) -> None:
    # Every two ranks have a link, which stays their shortest way: elsewhere a message may be led
    # over other links when a latency grows, which may well be faster.
    n = case.schedule.group_size
    rates = data.draw(st.lists(st.sampled_from([1e9, 3e9]), min_size=n * n, max_size=n * n))
    graph = nx.DiGraph()
    for src, dst in permutations(range(n), 2):
        rate = rates[src * n + dst]
        graph.add_edge(f"r{src}", f"r{dst}", bandwidth_Bps=rate, latency_ns=1000.0)
    fast = Topology.of(graph, [f"r{rank}" for rank in range(n)])
    a, b = data.draw(st.sampled_from(sorted(graph.edges)))
    slow = fast.with_link(a, b, latency_ns=data.draw(st.sampled_from([1000.5, 1999.0])))
    one, two = (case._replace(topology=each).run(sharing=False) for each in (fast, slow))
    for name in ("start_ns", "arrived_ns", "written_ns"):
        assert (getattr(two, name) >= getattr(one, name) * (1 - 1e-12)).all()


@few
@given(cases(scrambles()), st.randoms(use_true_random=False))
def test_calling_ranks_otherwise_calls_the_same_times_otherwise(case: Case, random: Any) -> None:
    schedule, n = case.schedule, case.schedule.group_size
    new = list(range(n))
    random.shuffle(new)
    place = np.array(new)
    rows = (
        schedule.step, schedule.channel, place[schedule.src], place[schedule.dst],
        schedule.src_slot, schedule.dst_slot, schedule.n_slots, schedule.reduce,
    )  # fmt: skip
    every = range(4)
    renamed = Schedule.of(
        "all_reduce", "scramble", n, rows, input=every, output=every, window=schedule.window
    )
    nodes = [case.topology.ranks[new.index(rank)] for rank in range(n)]
    how = {name: value for name, value in case.how.items() if name != "jitter"}  # goes by ranks
    case = case._replace(how=how.copy())
    for name in how.keys() & {"delay_ns", "slow"}:
        how[name] = {new[rank]: value for rank, value in how[name].items()}
    one = case.run()
    two = case._replace(
        schedule=renamed, topology=Topology.of(case.topology.graph, nodes), how=how
    ).run()
    np.testing.assert_allclose(two.written_ns, one.written_ns, rtol=1e-9, atol=1e-6)
    for state in STATES:
        ours, theirs = (getattr(run.activity, f"{state}_ns") for run in (one, two))
        np.testing.assert_allclose(theirs[place], ours, rtol=1e-9, atol=1e-3)
    mine, theirs = one.trace().events, two.trace().events
    for name in ("place", "peer"):  # after the calls, one a rank, rows lie in one order
        ours = mine[name].values[n:]
        assert theirs[name].values[n:].tolist() == place[ours].tolist()
    for name in ("kind", "step", "slot", "message", "part", "size_bytes"):
        assert theirs[name].values[n:].tolist() == mine[name].values[n:].tolist()
    for name in ("t_start_ns", "t_end_ns"):
        np.testing.assert_allclose(theirs[name].values[n:], mine[name].values[n:], atol=1)


@few
@given(cases(scrambles()), st.integers(0, 3))
def test_the_same_seed_gives_the_same_trace_to_the_byte(case: Case, seed: int) -> None:
    case.how["jitter"] = 0.5
    one, two = (case.run(seed=seed).trace().events for _ in range(2))
    for name in ("kind", "place", "peer", "size_bytes", "t_issue_ns", "t_start_ns", "t_end_ns"):
        assert one[name].values.tobytes() == two[name].values.tobytes()
    other = case.run(seed=seed + 1)
    takes_time = other.arrived_ns > other.start_ns
    if takes_time.any():
        assert (other.arrived_ns != case.run(seed=seed).arrived_ns)[takes_time].any()


def test_the_first_message_that_can_go_has_the_port_whatever_its_ranks_are_called() -> None:
    for r in permutations(range(4)):
        ways = ((0, 0, 2), (1, 1, 3), (1, 3, 2))
        rows = [Transfer(step, 0, r[a], r[b], k, k) for k, (step, a, b) in enumerate(ways)]
        plan = Schedule.of("all_reduce", "test", 4, rows, input=range(4), output=range(4))
        fully = parse("fully:1GB/s,1us", 4)
        replay = simulate(plan.bind(4000, "int8"), fully, ports=1)
        assert replay.t_start_ns.tolist() == [0, 0, 2000], r
