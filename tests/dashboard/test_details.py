"""What the inspector says about a message, and what the cards say about a trace."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from chunkscope.dashboard import details
from chunkscope.dashboard.details import message_details, place_details, statistics
from chunkscope.dashboard.facts import call_title, facts
from chunkscope.dashboard.story import tell
from chunkscope.sim.spec import Spec, parse_spec
from chunkscope.traces.trace import Trace


@pytest.fixture(scope="module")
def ring() -> Trace:
    return parse_spec("all_reduce:ring:4").trace()


def message_of(trace: Trace, src: int, step: int) -> details.MessageDetails:
    story = tell(trace)
    number = next(
        k for k, m in enumerate(story.messages) if (m.src, m.step) == (src, step)
    )  # fmt: skip
    found = message_details(trace, story, {"send": story.messages[number].send})
    assert found is not None
    return found


def test_message_tells_who_what_and_when(ring: Trace) -> None:
    found = message_of(ring, src=0, step=2)
    assert (found.src.rank, found.dst.rank) == (0, 1)
    assert found.step == "Step 3 of 6, reduce-scatter"
    assert (found.size_bytes, found.n_elements, found.dtype) == (16, 4, "float32")
    assert found.reduces
    assert (found.started_ns, found.ended_ns) == (2000, 3000)
    assert found.provenance == "simulated"


def test_message_tells_what_met_in_the_slot(ring: Trace) -> None:
    before, arrives, after = message_of(ring, src=0, step=2).holdings
    assert [h.label for h in (before, arrives, after)] == ["Before", "Arrives", "After"]
    assert (before.who, arrives.who, after.who) == ((1,), (0, 2, 3), (0, 1, 2, 3))
    # Rank r's chunk 1 is (r + 1) * 10.
    assert (before.values, arrives.values, after.values) == (
        (20.0,) * 4, (80.0,) * 4, (100.0,) * 4,
    )  # fmt: skip
    assert (after.mean, after.min, after.max, after.nan) == (100.0, 100.0, 100.0, 0)
    assert after.digest == zlib.crc32(np.full(4, 100, "<f4").tobytes())
    assert not after.more


def test_message_knows_its_link_and_what_came_before_it(ring: Trace) -> None:
    found = message_of(ring, src=0, step=2)
    assert found.speed is not None
    assert found.speed.speed_Bps == pytest.approx(16 / 1e-6)
    assert found.speed.link_Bps == 100e9
    assert found.speed.latency_ns == 1000
    assert found.previous is not None
    assert (found.previous.start_ns, found.previous.end_ns) == (1000, 2000)
    earlier = message_details(ring, tell(ring), {"send": int(found.previous.key)})
    assert earlier is not None
    assert (earlier.src.rank, earlier.dst.rank) == (0, 1)


def test_first_message_has_nothing_before_it(ring: Trace) -> None:
    found = message_of(ring, src=0, step=0)
    assert found.previous is None
    assert found.cause is None


def test_message_that_waited_names_what_it_waited_for() -> None:
    trace = Spec("broadcast", "chain", 3, 3 << 20, topology="ring:1GB/s,1us").trace()
    story = tell(trace)
    second = next(k for k, m in enumerate(story.messages) if m.src == 1)
    found = message_details(trace, story, {"send": story.messages[second].send})
    assert found is not None
    cause = details._cause(story, second, None)
    assert cause is not None
    assert cause.name.endswith("from rank 0")
    assert cause.end_ns <= found.started_ns


def test_without_values_nothing_is_made_up() -> None:
    trace = Spec("all_reduce", "ring", 4, 64 << 20).trace(values=False)
    found = message_of(trace, src=0, step=2)
    assert not any(holding.recorded for holding in found.holdings)
    assert [holding.who for holding in found.holdings][-1] == (0, 1, 2, 3)


def test_ref_of_nothing_finds_nothing(ring: Trace) -> None:
    assert message_details(ring, tell(ring), {"send": None, "recv": None}) is None
    assert message_details(ring, tell(ring), {"send": 10**9}) is None


def test_rank_shows_its_tensors_before_and_after(ring: Trace) -> None:
    before, after = place_details(ring, tell(ring), 2)
    assert (before.label, after.label) == ("Input", "Output")
    assert before.values == (3.0, 3.0, 3.0, 3.0)
    assert after.values == (10.0, 10.0, 10.0, 10.0)
    assert after.more
    assert after.n_elements == 16


def test_statistics_leave_nan_out_and_count_it() -> None:
    found = statistics([1.0, float("nan"), 3.0])
    assert found == {"nan": 1, "mean": 2.0, "min": 1.0, "max": 3.0}
    assert statistics([float("nan")]) == {"nan": 1}
    assert statistics([]) == {"nan": 0}


def test_facts_of_a_card(ring: Trace) -> None:
    found = facts(ring)
    assert (found.title, found.provenance, found.ranks) == ("Ring all_reduce", "simulated", 4)
    assert (found.size, found.time, found.algorithm) == ("64 B", "6.00 µs", "ring")
    assert not found.recorded


def test_facts_of_an_empty_trace() -> None:
    found = facts(Trace.build({}))
    assert (found.title, found.ranks, found.time) == ("No events", 0, "not known")


def test_facts_of_a_call_without_an_end() -> None:
    events = {
        "file": ["a", "b"], "seq": [0, 0], "rank": [0, 1], "kind": ["collective"] * 2,
        "collective": ["all_reduce"] * 2, "coll_seq": [0, 0], "provenance": ["called"] * 2,
        "t_issue_ns": [5, 6], "t_end_ns": [9, None], "status": ["ok", "begun"],
    }  # fmt: skip
    assert facts(Trace.build(events)).time == "open"


def test_title_of_a_call() -> None:
    assert call_title("all_reduce", "gloo") == "Gloo all_reduce"
    assert call_title("all_reduce", None) == "all_reduce"
