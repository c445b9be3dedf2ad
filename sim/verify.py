"""Symbolic verification: does a schedule do what its collective must, whatever the timing?

    for finding in verify(schedule):
        print(finding.code, finding.message)
    check(schedule)         # raises on the first

Each slot holds a chunk and the set of ranks whose parts are in it. The rows are walked through in
an order of the dataflow wait graph, so the answer holds for every order that the graph allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ScheduleError
from .compiled import kernel, run
from .flow import EMPTY, Chunks, inputs, n_cells, outputs, walk_chunks
from .order import POLICIES, Moves, Order, Policy, moves, order_of, step_ordered, wait_graph
from .races import Race, races
from .schedule import Ints, Schedule
from .sums import doubts

Flags = npt.NDArray[np.bool_]
Bits = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Progress = Callable[[int, int], None]

# Findings of one code that are told one by one.
MOST_OF_A_CODE = 50
# Words of 64 ranks that are followed at once.
_WORDS = 4
# What a move does with a set: nothing that matters, copy it, or add it.
_REST, _COPIES, _ADDS = 0, 1, 2


class Code(StrEnum):
    """What is wrong."""

    DEADLOCK = "DEADLOCK"  # rows wait for each other in a circle
    RACE = "RACE"  # two accesses of a slot have no order
    EMPTY_READ = "EMPTY_READ"  # a row sends a slot that holds nothing
    EMPTY_REDUCE = "EMPTY_REDUCE"  # a rank reduces into a slot that holds nothing
    MIXED_CHUNKS = "MIXED_CHUNKS"  # a row reduces one chunk into another
    DOUBLE_CONTRIBUTION = "DOUBLE_CONTRIBUTION"  # a rank's part is added twice
    POSTCONDITION = "POSTCONDITION"  # an output slot ends without what is due in it


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a schedule.

    Attributes:
        code: Which rule is broken.
        place: Place (rank or helper) where it shows.
        step: Step at which it shows; None at the end.
        row: Row at which it shows; None at the end.
        message: One line that says what was found and what was expected.
        harmless: Whether results are right all the same: a double contribution in a schedule that
            is meant for idempotent ops alone.
    """

    code: Code
    place: int | None
    step: int | None
    row: int | None
    message: str
    harmless: bool = False


def check(schedule: Schedule, policy: Policy = "dataflow") -> None:
    """Raise where a schedule is not valid.

    Raises:
        ScheduleError: The first finding that is not harmless, with its code, place and step.

    Example:
        >>> from .library import build
        >>> check(build("all_reduce", "tree", 5))
    """
    for finding in verify(schedule, policy):
        if not finding.harmless:
            raise ScheduleError(
                f"{finding.code}: {finding.message}",
                code=finding.code,
                place=finding.place,
                step=finding.step,
            )


def verify(
    schedule: Schedule, policy: Policy = "dataflow", *, progress: Progress | None = None
) -> list[Finding]:
    """Return what is wrong with a schedule; nothing if it is valid.

    The answer is exact. It takes time in proportion to the rows, but for chunks with something
    wrong with them: these are followed rank by rank, 256 ranks at a time.

    Args:
        schedule: The schedule.
        policy: Policy whose wait graph is searched for deadlocks.
        progress: Called with (ranks followed so far, ranks) where that takes long.

    Returns:
        A deadlock alone, or races, then what is wrong with rows in program order, then outputs.

    Raises:
        ScheduleError: The policy is unknown.

    Example:
        >>> from .library import build
        >>> verify(build("all_reduce", "ring", 4))
        []
    """
    deadlock = _deadlock(schedule, policy)
    if deadlock is not None:
        return [deadlock]
    moved = moves(schedule)
    order = order_of(schedule, moved)
    found = [_race(schedule, race) for race in races(schedule, moved)]
    doubt = doubts(schedule, moved, order)
    if not doubt.any:
        return _few(found)
    chunks = walk_chunks(schedule, moved, order)
    contributions = _contributions(schedule, moved, order, chunks, doubt.chunks, progress)
    rows = [
        *_row_findings(schedule, moved, chunks),
        *_double_findings(schedule, moved, chunks, contributions.twice),
    ]
    found += sorted(rows, key=lambda finding: finding.row or 0)
    return _few([*found, *_output_findings(schedule, chunks, contributions.lacking)])


def _few(findings: list[Finding]) -> list[Finding]:
    """Return the findings, of each code only the first, and a word on how many there are."""
    kept = []
    counts: dict[Code, int] = {}
    for finding in findings:
        counts[finding.code] = counts.get(finding.code, 0) + 1
        if counts[finding.code] <= MOST_OF_A_CODE:
            kept.append(finding)
    for code, count in counts.items():
        if count > MOST_OF_A_CODE:
            more = f"and {count - MOST_OF_A_CODE} more"
            harmless = all(finding.harmless for finding in findings if finding.code == code)
            kept.append(Finding(code, None, None, None, more, harmless))
    return kept


def _deadlock(schedule: Schedule, policy: Policy) -> Finding | None:
    if policy not in POLICIES:
        raise ScheduleError(f"unknown policy {policy!r}; known: {', '.join(POLICIES)}")
    if step_ordered(schedule):
        return None
    graph = wait_graph(schedule, policy)
    cycle = graph.cycle()
    if cycle is None:
        return None
    row = graph.first_row(cycle)
    place, step = int(schedule.src[row]), int(schedule.step[row])
    return Finding(Code.DEADLOCK, place, step, row, graph.describe(cycle))


def _race(schedule: Schedule, race: Race) -> Finding:
    place, slot = divmod(race.cell, schedule.slots_a_place)
    first, second = (
        f"{schedule.row_text(row)} {'writes' if writes else 'reads'} on channel "
        f"{schedule.channel[row]}"
        for row, writes in ((race.first, race.first_writes), (race.second, race.second_writes))
    )
    step = int(schedule.step[race.second])
    message = (
        f"slot {slot} of {schedule.place_name(place)}: {first}, {second}, and nothing orders them; "
        "use one channel, or `after`"
    )
    return Finding(Code.RACE, place, step, race.second, message)


class _Contributions(NamedTuple):
    """What the sets of contributors tell.

    Attributes:
        twice: Move that adds a part that is there already -> one such rank.
        lacking: Place of an output in the list of outputs -> ranks whose part is missing.
    """

    twice: dict[int, int]
    lacking: dict[int, list[int]]


def _contributions(
    schedule: Schedule,
    moved: Moves,
    order: Order,
    chunks: Chunks,
    doubt: Flags,
    progress: Progress | None,
) -> _Contributions:
    """Follow the chunks in doubt with sets of contributors, some ranks at a time.

    Args:
        schedule: The schedule.
        moved: Its moves.
        order: The order of its rows.
        chunks: The chunks of the moves.
        doubt: Whether each chunk is in doubt, the last one for none; see `sums`.
        progress: Called with (ranks followed so far, ranks).
    """
    found = _Contributions({}, {})
    start, end = inputs(schedule), outputs(schedule)
    asked = np.flatnonzero(doubt[chunks.final[end.cell]])
    # What a move does with the set at its destination.
    adds = schedule.reduce[moved.row] & ~_mixes(schedule, moved, chunks)
    does = np.where(doubt[chunks.carried], np.where(adds, _ADDS, _COPIES), _REST).astype(np.uint8)
    # Where nothing is reduced a chunk has one contributor, its origin: one bit shows doubles.
    ranks = schedule.group_size if schedule.kind.reduces else 1
    words = min(_WORDS, -(-ranks // 64))
    payload = np.empty((order.n_pending, words), np.uint64)
    noted: Any = np.empty((2, int((does == _ADDS).sum())), np.int32)
    twice, first = noted
    add = run(_add, len(moved))
    for low in range(0, ranks, words * 64):
        state = np.zeros((n_cells(schedule), words), np.uint64)
        rank = np.arange(low, min(low + words * 64, ranks))
        bits = np.zeros((len(rank), words), np.uint64)
        bits[rank - low, (rank - low) // 64] = np.uint64(1) << (rank % 64).astype(np.uint64)
        if schedule.kind.reduces:
            here = slice(*np.searchsorted(start.place, [low, low + len(rank)]))
            state[start.cell[here]] = bits[start.place[here] - low]
        else:
            state[start.cell] = 1
        n = add(order, does, state, payload, twice, first)
        for move, bit in zip(twice[:n].tolist(), first[:n].tolist(), strict=True):
            found.twice.setdefault(move, low + bit)
        if schedule.kind.reduces:
            missing = state[end.cell[asked]]
            missing ^= bits.sum(axis=0, dtype=np.uint64)
            for output in np.flatnonzero(missing.any(axis=1)).tolist():
                lacking = found.lacking.setdefault(int(asked[output]), [])
                lacking += [low + bit for bit in _bits_in(missing[output])]
        if progress is not None:
            progress(int(rank[-1]) + 1, ranks)
    return found


@kernel
def _add(order: Order, does: Bytes, state: Bits, payload: Bits, twice: Ints, first: Ints) -> int:
    """Make the moves that do something on `state`; return how many add what is there already.

    Those moves are put into `twice`, and the first bit that they add twice into `first`.
    """
    o = order
    words = state.shape[1]
    read, write, n = 0, 0, 0
    for wave in range(len(o.read_ends)):
        base = o.base[wave]
        for k in range(read, o.read_ends[wave]):
            row = o.reads[k]
            cell, at = int(o.src[row]) * o.slots_a_place + o.src_slot[row], o.first[row] - base
            for slot in range(o.n_slots[row]):
                if does[o.first[row] + slot] == _REST:
                    continue
                for word in range(words):
                    payload[at + slot, word] = state[cell + slot, word]
        for k in range(write, o.write_ends[wave]):
            row = o.writes[k]
            cell, at = int(o.dst[row]) * o.slots_a_place + o.dst_slot[row], o.first[row] - base
            for slot in range(o.n_slots[row]):
                if does[o.first[row] + slot] == _REST:
                    continue
                bit = -1
                for word in range(words):
                    new = payload[at + slot, word]
                    if does[o.first[row] + slot] == _ADDS:
                        both = state[cell + slot, word] & new
                        new |= state[cell + slot, word]
                        if both != 0 and bit < 0:
                            bit = 64 * word
                            while not (both >> np.uint64(bit % 64)) & np.uint64(1):
                                bit += 1
                    state[cell + slot, word] = new
                if bit >= 0:
                    twice[n] = o.first[row] + slot
                    first[n] = bit
                    n += 1
        read, write = o.read_ends[wave], o.write_ends[wave]
    return n


def _bits_in(words: Bits) -> list[int]:
    """Return the numbers of the bits that are set in some words."""
    flat = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")
    return np.flatnonzero(flat).tolist()


def _row_findings(schedule: Schedule, moved: Moves, chunks: Chunks) -> Iterator[Finding]:
    """Yield what the chunks tell about rows."""
    reduces = schedule.reduce[moved.row]
    empty_read = chunks.carried == EMPTY
    at_rank = schedule.dst[moved.row] < schedule.group_size
    empty_reduce = reduces & (chunks.before == EMPTY) & at_rank & ~empty_read
    for move in np.flatnonzero(empty_read).tolist():
        yield _finding(schedule, moved, move, Code.EMPTY_READ, "sends {src}, which holds nothing")
    for move in np.flatnonzero(empty_reduce).tolist():
        yield _finding(
            schedule, moved, move, Code.EMPTY_REDUCE, "reduces into {dst}, which holds nothing"
        )
    for move in np.flatnonzero(_mixes(schedule, moved, chunks)).tolist():
        words = f"reduces chunk {chunks.carried[move]} into {{dst}}, which holds chunk "
        yield _finding(schedule, moved, move, Code.MIXED_CHUNKS, f"{words}{chunks.before[move]}")


def _mixes(schedule: Schedule, moved: Moves, chunks: Chunks) -> Flags:
    """Return whether each move reduces one chunk into another, (moves,)."""
    full = (chunks.before != EMPTY) & (chunks.carried != EMPTY)
    mixes: Flags = schedule.reduce[moved.row] & full & (chunks.before != chunks.carried)
    return mixes


def _double_findings(
    schedule: Schedule, moved: Moves, chunks: Chunks, twice: dict[int, int]
) -> Iterator[Finding]:
    harmless = schedule.idempotent or schedule.kind.idempotent
    for move, rank in twice.items():
        whose = f"rank {rank}'s part of chunk" if schedule.kind.reduces else "chunk"
        ending = " (harmless for MIN and MAX)" if schedule.kind.reduces else ""
        words = f"adds {whose} {chunks.carried[move]} to {{dst}}, which has it already{ending}"
        finding = _finding(schedule, moved, move, Code.DOUBLE_CONTRIBUTION, words)
        yield replace(finding, harmless=harmless)


def _finding(schedule: Schedule, moved: Moves, move: int, code: Code, words: str) -> Finding:
    """Return a finding at a move; `{src}` and `{dst}` in the words become its slots."""
    row = int(moved.row[move])
    slots = {}
    for end, cell in (("src", moved.src[move]), ("dst", moved.dst[move])):
        place, slot = divmod(int(cell), schedule.slots_a_place)
        slots[end] = f"slot {slot} of {schedule.place_name(place)}"
    place = int((schedule.src if code is Code.EMPTY_READ else schedule.dst)[row])
    message = f"{schedule.row_text(row)} {words.format(**slots)}"
    return Finding(code, place, int(schedule.step[row]), row, message)


def _output_findings(
    schedule: Schedule, chunks: Chunks, lacking: dict[int, list[int]]
) -> Iterator[Finding]:
    end = outputs(schedule)
    wrong = chunks.final[end.cell] != end.chunk
    suspects = set(np.flatnonzero(wrong).tolist()) | set(lacking)
    sizes = schedule.chunk_elements
    for output in sorted(suspects):
        chunk, place = int(end.chunk[output]), int(end.place[output])
        if sizes is not None and sizes[chunk] == 0:
            continue  # nothing is due
        slot = int(end.cell[output]) % schedule.slots_a_place
        held = int(chunks.final[end.cell[output]])
        if held == EMPTY:
            words = "holds nothing at the end"
        elif held != chunk:
            words = f"holds chunk {held} at the end"
        else:
            words = f"lacks the part of {_ranks_text(lacking[output])} at the end"
        message = f"slot {slot} of rank {place}, where chunk {chunk} is due, {words}"
        yield Finding(Code.POSTCONDITION, place, None, None, message)


def _ranks_text(ranks: list[int]) -> str:
    """Return some ranks in words, the first few by number."""
    shown = ", ".join(str(rank) for rank in ranks[:4])
    more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
    return f"rank{'s' * (len(ranks) > 1)} {shown}{more}"
