"""What happens in a call, read out of traces that have all or lack much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from chunkscope.dashboard.story import Mark, Story, tell
from chunkscope.traces.trace import Trace

Make = Callable[..., Trace]


def _without(trace: Trace, *columns: str, states: bool = True) -> Trace:
    """Return a trace that lacks columns, schedules, and perhaps states."""
    events = {n: c for n, c in trace.events.columns.items() if n not in (*columns, "schedule")}
    kept = dict(trace.states.columns) if states else {}
    return Trace.build(events, kept, replace(trace.meta, schedules=(), topology=None))


def _final(story: Story, place: int) -> dict[int, tuple[Mark, object]]:
    cells = story.places[place].cells
    return {c.slot: (c.changes[-1].mark, c.changes[-1].content.values) for c in cells}


def test_a_ring_is_told_with_ranks_messages_steps_and_phases(simulated: Make) -> None:
    story = tell(simulated(n=4))
    assert (story.n, len(story.messages), len(story.steps)) == (4, 24, 6)
    assert story.phases == ("Reduce-scatter", "All-gather")
    assert [beat.phase for beat in story.steps] == [0, 0, 0, 1, 1, 1]
    assert story.links() == ((0, 1), (1, 2), (2, 3), (3, 0))
    assert story.finished
    assert not story.textbook


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_every_cell_of_an_all_reduce_ends_complete(simulated: Make, n: int) -> None:
    story = tell(simulated(n=n))
    for place in range(n):
        for mark, values in _final(story, place).values():
            assert mark is Mark.COMPLETE
            assert values


def test_a_rings_cells_go_through_their_signs_in_order(simulated: Make) -> None:
    cells = tell(simulated(n=4)).places[0].cells
    signs = {"own": "o", "partial": "p", "passed": "h", "complete": "C"}
    told = ["".join(signs[change.mark] for change in cell.changes) for cell in cells]
    # What rank 0 sends first comes back finished; slot 0 is finished here, in step 2.
    assert told == ["oC", "ophC", "ophC", "ohC"]


def test_a_cell_is_passed_on_when_its_chunk_departs_and_not_before(simulated: Make) -> None:
    story = tell(simulated(n=4))
    for place in story.places:
        for cell in place.cells:
            for change in cell.changes:
                if change.mark is Mark.PASSED:
                    assert not change.arrives
                    message = story.messages[change.message or 0]
                    assert message.src == cell.place


def test_a_complete_chunk_stays_complete_when_a_copy_leaves(simulated: Make) -> None:
    story = tell(simulated(n=4))
    for place in story.places:
        for cell in place.cells:
            marks = [change.mark for change in cell.changes]
            assert marks[-1] is Mark.COMPLETE
            assert marks.count(Mark.COMPLETE) == 1


def test_a_rank_that_still_needs_its_part_keeps_it_in_a_reduce(simulated: Make) -> None:
    story = tell(simulated("reduce", "tree", 8, root=3))
    assert _final(story, 3)[0][0] is Mark.COMPLETE
    others = [_final(story, place)[0][0] for place in range(8) if place != 3]
    assert others == [Mark.PASSED] * 7


def test_all_gather_starts_with_one_chunk_a_rank_and_ends_with_all(simulated: Make) -> None:
    story = tell(simulated("all_gather", "ring", 4))
    starts = [[cell.changes[0].mark for cell in place.cells] for place in story.places]
    assert all(marks.count(Mark.COMPLETE) == 1 for marks in starts)
    assert all(marks.count(Mark.EMPTY) == 3 for marks in starts)
    assert all(_final(story, p)[k][0] is Mark.COMPLETE for p in range(4) for k in range(4))
    origins = [sorted(c.changes[-1].content.who or ()) for c in story.places[0].cells]
    assert origins == [[0], [1], [2], [3]]


def test_values_and_ranks_of_what_travels_are_those_of_the_sender(simulated: Make) -> None:
    story = tell(simulated(n=4))
    first = story.messages[0].pieces[0]
    assert first.payload.who == {story.messages[0].src}
    assert first.payload.values is not None
    assert first.before.values is not None
    total = np.add(first.payload.values, first.before.values)
    assert np.array_equal(total, np.asarray(first.after.values))


def test_a_trace_without_its_schedule_tells_the_same_marks(simulated: Make) -> None:
    trace = simulated(n=4)
    whole, bare = tell(trace), tell(_without(trace))
    for a, b in zip(whole.places, bare.places, strict=True):
        for one, other in zip(a.cells, b.cells, strict=True):
            assert [c.mark for c in one.changes] == [c.mark for c in other.changes]


def test_contributors_are_derived_where_none_were_recorded(simulated: Make) -> None:
    trace = simulated(n=4, values=False)
    story = tell(_without(trace, states=False))
    assert all(_final(story, p)[k][0] is Mark.COMPLETE for p in range(4) for k in range(4))
    assert story.messages[0].pieces[0].payload.values is None


def test_steps_are_found_where_the_trace_names_none(simulated: Make) -> None:
    trace = simulated(n=4)
    story = tell(_without(trace, "step"))
    assert [len(beat.messages) for beat in story.steps] == [4] * 6


def test_a_message_without_an_end_leaves_the_call_unfinished(simulated: Make) -> None:
    trace = simulated(n=4)
    events = dict(trace.events.columns)
    step, kind = trace.events["step"], trace.events["kind"]
    cut = [s is not None and s >= 3 for s in step]
    ends = [None if c else t for c, t in zip(cut, trace.events["t_end_ns"], strict=True)]
    status = ["begun" if c else "ok" for c in cut]
    received = [k in ("recv", "reduce") and c for k, c in zip(kind, cut, strict=True)]
    events["t_end_ns"], events["status"] = ends, status  # type: ignore[assignment]
    broken = Trace.build(events, {}, trace.meta)
    story = tell(broken)
    assert any(received)
    assert not story.finished
    assert sum(m.t_end_ns is None for m in story.messages) == 12
    assert all(_final(story, p)[k] for p in range(4) for k in range(4))


def test_a_bare_call_has_no_messages_and_its_ranks_have_their_tensors(called: Make) -> None:
    trace = called("all_reduce", [[1.0], [2.0]], [[3.0], [3.0]], op="SUM")
    story = tell(trace)
    assert story.textbook
    assert story.messages == ()
    assert [place.inputs for place in story.places] == [(1.0,), (2.0,)]
    assert [place.outputs for place in story.places] == [(3.0,), (3.0,)]
    assert story.places[0].site is not None
    assert story.backend == "gloo"


def test_a_rank_that_never_called_is_there_without_a_row(called: Make) -> None:
    trace = called("all_reduce", [[1.0], [2.0]], [None, None], missing=[1], open_ranks=[0])
    story = tell(trace)
    assert [place.row for place in story.places] == [0, None]
    assert not story.finished


def test_calls_are_told_one_by_one(simulated: Make) -> None:
    one = simulated(n=2)
    events = {n: c.to_list() for n, c in one.events.columns.items()}
    n = len(one)
    twice = {name: [*cells, *cells] for name, cells in events.items()}
    twice["seq"] = list(range(2 * n))
    twice["parent"] = [*events["parent"], *(None if p is None else p + n for p in events["parent"])]
    twice["coll_seq"] = [0] * n + [1] * n
    later = [t + 10**6 for t in events["t_issue_ns"]]
    twice["t_issue_ns"] = [*events["t_issue_ns"], *later]
    trace = Trace.build(twice, {}, one.meta)
    stories = [tell(trace, k) for k in (0, 1)]
    assert [story.call for story in stories] == [0, 1]
    assert [len(story.messages) for story in stories] == [4, 4]
    rows = [{m.send for m in story.messages} for story in stories]
    assert not rows[0] & rows[1]
