"""Which tags belong to which call: a group counts its collectives, and so do we."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...traces.diff.align import align
from .calls import CalledCall
from .plans import MONITORED, WirePlan, plans_of


class Seen(NamedTuple):
    """What went over the wire under one tag.

    Attributes:
        kind: Kind of collective, see plans.SLOT_KINDS.
        size_bytes: Bytes of all messages.
        end_ns: When the last one ended; None if not known.
    """

    kind: int
    size_bytes: int
    end_ns: int | None


class Joined(NamedTuple):
    """A call, the first of its tags, and the plan that gloo followed; None where none is known."""

    call: CalledCall
    tag: int
    plan: WirePlan | None


def join(calls: Sequence[CalledCall], seen: dict[int, Seen]) -> list[Joined]:
    """Return which tags each call of a group took.

    A group's counter starts at 0, and each call takes one tag, some take several. Where what was
    seen contradicts that (calls before the recording began or left out of it, calls that failed
    before they took a tag), calls and tags are aligned by kind and size.

    Args:
        calls: The calls of a group in order.
        seen: What was seen under each tag.
    """
    straight, sound = _count(calls, seen)
    return straight if sound else _align(calls, seen)


def _count(calls: Sequence[CalledCall], seen: dict[int, Seen]) -> tuple[list[Joined], bool]:
    """Return the tags by counting, and whether nothing that was seen contradicts them."""
    tag, sound, joined = 0, True, []
    for call in calls:
        plans = plans_of(call.asked)
        plan = next((p for p in plans if _fits(call, p, tag, seen, whole=True)), None)
        plan = plan or next((p for p in plans if _fits(call, p, tag, seen, whole=False)), None)
        if plan is None and plans:
            if call.failed:
                continue  # it may have failed before it took a tag
            sound, plan = False, plans[0]
        joined.append(Joined(call, tag, plan))
        tag += n_tags(call, plan)
    return joined, sound


def n_tags(call: CalledCall, plan: WirePlan | None) -> int:
    """Return how many tags a call takes."""
    if plan is not None:
        return plan.n_tags
    return 2 if call.asked.api == MONITORED else 1


def _fits(
    call: CalledCall, plan: WirePlan, first: int, seen: dict[int, Seen], *, whole: bool
) -> bool:
    """Return whether what was seen under a call's tags can be what a plan sends."""
    for lane in range(plan.n_tags):
        found = seen.get(first + lane)
        if found is None or plan.kind == 0:
            continue
        if found.kind != plan.kind:
            return False
        if whole and found.size_bytes != plan.lane_bytes[lane]:
            return False
        if _is_before(found.end_ns, call.issue_ns):
            return False
    return True


def _is_before(one_ns: int | None, other_ns: int | None) -> bool:
    return one_ns is not None and other_ns is not None and one_ns < other_ns


def _align(calls: Sequence[CalledCall], seen: dict[int, Seen]) -> list[Joined]:
    """Return the tags by aligning what the calls send with what was seen, like a text diff."""
    begin = min((c.issue_ns for c in calls if c.issue_ns is not None), default=None)
    tags = [tag for tag in sorted(seen) if not _is_before(seen[tag].end_ns, begin)]
    numbers: dict[tuple[int, int], int] = {}
    found = [_token(numbers, seen[tag].kind, seen[tag].size_bytes) for tag in tags]
    known = set(numbers)
    lanes = [
        (number, plan, lane)
        for number, call in enumerate(calls)
        for plan in _likely(plans_of(call.asked), known)
        if plan.kind
        for lane in range(plan.n_tags)
        if len(plan.lanes[lane].row)
    ]
    wanted = [_token(numbers, plan.kind, plan.lane_bytes[lane]) for _, plan, lane in lanes]
    joined: dict[int, Joined] = {}
    for i, j in align(wanted, found):
        if i is None or j is None:
            continue
        number, plan, lane = lanes[i]
        if seen[tags[j]].kind == plan.kind:
            joined.setdefault(number, Joined(calls[number], tags[j] - lane, plan))
    return list(joined.values())


def _token(numbers: dict[tuple[int, int], int], kind: int, size_bytes: int) -> int:
    return numbers.setdefault((kind, size_bytes), len(numbers))


def _likely(plans: Sequence[WirePlan], known: set[tuple[int, int]]) -> list[WirePlan]:
    """Return the plan of a call all of whose tags can be among those seen, else the first."""
    for plan in plans:
        if all((plan.kind, size) in known for size in plan.lane_bytes):
            return [plan]
    return list(plans[:1])
