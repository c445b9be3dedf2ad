"""The numbers that a schedule moves: a replay of its rows in numpy, as torch would compute them.

    moved = compute(bound, default_inputs(bound), "SUM")
    moved.payload[5]        # what row 5 carried
    moved.outputs[2]        # the output of rank 2

bfloat16 is held as float32 and rounded to bfloat16 after each operation, as torch does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ScheduleError
from ..traces.trace import decode, encode
from .bind import BoundSchedule, Pieces
from .flow import walk_chunks
from .order import Picked, moves, order_of, waves
from .schedule import Schedule

Array = npt.NDArray[Any]

BITWISE = ("BAND", "BOR", "BXOR")
ARITHMETIC = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
OPS = (*ARITHMETIC, *BITWISE)
# A sum of inputs that are multiplied by a factor first, which the caller gives.
PREMUL_SUM = "PREMUL_SUM"
# Up to so many chunks, the default inputs have a power of ten for each.
_POWERS_OF_TEN = 4
_TINY_ELEMENTS = 16
# Types that hold sums of those powers exactly.
_WIDE = ("float64", "float32", "int64", "int32", "complex64", "complex128")


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """What the rows of a schedule carried and found.

    Attributes:
        payload: What each row carried.
        before: What its destination held before; None where that was empty.
        after: What its destination held after.
        inputs: Input of each rank; None where it has none.
        outputs: Output of each rank; None where it has none, or the schedule left a part empty.
    """

    payload: list[Array]
    before: list[Array | None]
    after: list[Array]
    inputs: list[Array | None]
    outputs: list[Array | None]


def compute(
    bound: BoundSchedule, inputs: Sequence[Any], op: str = "SUM", factor: float | None = None
) -> Values:
    """Return the numbers that a schedule moves.

    Args:
        bound: The schedule and its sizes.
        inputs: Input of each rank, in its flat order; None where it has none.
        op: SUM, AVG, PRODUCT, MIN or MAX; BAND, BOR or BXOR of integers and bool; or PREMUL_SUM.
            AVG is a sum, divided once at the end; for integers the quotient is rounded towards
            zero.
        factor: What PREMUL_SUM multiplies each input by.

    Raises:
        ScheduleError: The inputs or the operation do not fit, or a row combines two sizes.

    Example:
        >>> from .library import build
        >>> bound = build("all_reduce", "ring", 2).bind(2, "int32")
        >>> compute(bound, [[1, 2], [30, 40]]).outputs[0].tolist()
        [31, 42]
    """
    check_op(op, bound.dtype, factor)
    arithmetic = _Arithmetic.of(bound.dtype, op)
    given = _checked_inputs(bound, inputs, arithmetic)
    with np.errstate(all="ignore"):
        scaled = given
        if factor is not None and bound.schedule.kind.reduces:
            scaled = [None if each is None else arithmetic.scale(each, factor) for each in given]
        cells = _initial(bound, scaled)
        payload, before, after = _walk(bound, cells, arithmetic)
        outputs = [_output(bound, place, cells) for place in range(bound.schedule.group_size)]
        if op == "AVG" and bound.schedule.kind.reduces:
            n = bound.schedule.group_size
            outputs = [None if out is None else arithmetic.divide(out, n) for out in outputs]
    first = bound.moves.first.tolist()
    ends = [*first[1:], len(payload)]
    spans = list(zip(first, ends))
    return Values(
        payload=[_joined(payload[a:b]) for a, b in spans],
        before=[None if _lacks(before[a:b]) else _joined(before[a:b]) for a, b in spans],
        after=[_joined(after[a:b]) for a, b in spans],
        inputs=given,
        outputs=outputs,
    )


def check_op(op: str, dtype: str, factor: float | None = None) -> None:
    """Refuse an operation that is unknown or has no meaning for a dtype.

    Args:
        op: The operation.
        dtype: Torch's name.
        factor: What PREMUL_SUM multiplies by; None for all other operations.

    Raises:
        ScheduleError: It does not fit; the message says what would.
    """
    if op not in (*OPS, PREMUL_SUM):
        raise ScheduleError(f"unknown operation {op!r}; known: {', '.join(OPS)}, {PREMUL_SUM}")
    is_float = "float" in dtype
    is_complex = dtype.startswith("complex")
    if op in BITWISE and (is_float or is_complex):
        raise ScheduleError(f"{op} has no meaning for {dtype}: expected integers or bool")
    if op in ("MIN", "MAX") and is_complex:
        raise ScheduleError(f"{op} has no meaning for {dtype}")
    if (op == PREMUL_SUM) != (factor is not None):
        raise ScheduleError(
            f"{op} takes no factor: only {PREMUL_SUM} does"
            if factor is not None
            else f"{PREMUL_SUM} needs a factor to multiply the inputs by"
        )
    if op == PREMUL_SUM and not (is_float or is_complex):
        raise ScheduleError(f"{op} has no meaning for {dtype}: expected floating point")


@dataclass(frozen=True, slots=True)
class _Arithmetic:
    """How numbers of one dtype are held, combined and rounded.

    Attributes:
        dtype: Torch's name.
        holds: Numpy's type to compute in.
        combine: What a reduce does with the slot and what arrived.
    """

    dtype: str
    holds: np.dtype[Any]
    combine: Callable[[Array, Array], Array]

    @staticmethod
    def of(dtype: str, op: str) -> _Arithmetic:
        if dtype.startswith("float8"):
            raise ScheduleError(f"no numbers can be computed in {dtype}: simulate without inputs")
        holds = np.dtype("float32" if dtype == "bfloat16" else dtype)
        combine: dict[str, Any] = {
            "PRODUCT": np.multiply,
            "MIN": np.minimum,
            "MAX": np.maximum,
            "BAND": np.bitwise_and,
            "BOR": np.bitwise_or,
            "BXOR": np.bitwise_xor,
        }
        return _Arithmetic(dtype, holds, combine.get(op, np.add))

    def round(self, values: Array) -> Array:
        """Return the values as the dtype can hold them."""
        if self.dtype == "bfloat16":
            return decode(encode(values, "bfloat16"), "bfloat16")
        return values.astype(self.holds, copy=False)

    def reduce(self, slot: Array, arrived: Array) -> Array:
        return self.round(self.combine(slot, arrived))

    def scale(self, values: Array, factor: float) -> Array:
        return self.round(values * self.holds.type(factor))

    def divide(self, values: Array, divisor: int) -> Array:
        if self.holds.kind in "fc":
            return self.round(values / self.holds.type(divisor))
        quotient = np.abs(values.astype(object)) // divisor * np.sign(values)
        return np.asarray(quotient).astype(self.holds)


def _checked_inputs(
    bound: BoundSchedule, inputs: Sequence[Any], arithmetic: _Arithmetic
) -> list[Array | None]:
    schedule = bound.schedule
    if len(inputs) != schedule.group_size:
        raise ScheduleError(f"{len(inputs)} inputs for {schedule.group_size} ranks")
    given: list[Array | None] = []
    for place, values in enumerate(inputs):
        if not schedule.kind.has_input(place, schedule.root):
            given.append(None)
            continue
        expected = bound.input_elements(place)
        array = np.asarray([] if values is None else values).reshape(-1)
        if len(array) != expected:
            raise ScheduleError(
                f"input of rank {place} has {len(array)} elements, expected {expected}",
                place=place,
            )
        given.append(arithmetic.round(array))
    return given


def _initial(bound: BoundSchedule, given: list[Array | None]) -> dict[int, Array]:
    """Return what each cell holds at the start."""
    cells: dict[int, Array] = {}
    for place, values in enumerate(given):
        if values is None:
            continue
        pieces = bound.input(place)
        for slot, start, count in _each(pieces):
            cells[place * bound.schedule.slots_a_place + slot] = values[start : start + count]
    return cells


def _each(pieces: Pieces) -> list[tuple[int, int, int]]:
    starts, counts = pieces.offset_elements.tolist(), pieces.elements.tolist()
    return list(zip(pieces.slots, starts, counts))


def _walk(
    bound: BoundSchedule, cells: dict[int, Array], arithmetic: _Arithmetic
) -> tuple[list[Array], list[Array | None], list[Array]]:
    """Return payload, before and after of each move; `cells` then holds the end."""
    moved = bound.moves
    n = len(moved.row)
    src, dst = moved.src.tolist(), moved.dst.tolist()
    reduces = bound.schedule.reduce[moved.row].tolist()
    empty = np.zeros(0, arithmetic.holds)
    payload = [empty] * n
    before: list[Array | None] = [None] * n
    after = [empty] * n
    for wave in waves(bound.schedule, moved):
        for move in _picked(n, wave.reads):
            payload[move] = cells[src[move]]
        for move in _picked(n, wave.writes):
            old, new = cells.get(dst[move]), payload[move]
            if reduces[move] and old is not None:
                if len(old) != len(new):
                    raise ScheduleError(
                        f"row {moved.row[move]} reduces {len(new)} elements into {len(old)}"
                    )
                new = arithmetic.reduce(old, new)
            before[move], after[move], cells[dst[move]] = old, new, new
    return payload, before, after


def _picked(n: int, picked: Picked) -> list[int]:
    return list(range(n)[picked]) if isinstance(picked, slice) else picked.tolist()


def _output(bound: BoundSchedule, place: int, cells: dict[int, Array]) -> Array | None:
    if not bound.schedule.kind.has_output(place, bound.schedule.root):
        return None
    base = place * bound.schedule.slots_a_place
    slots = bound.output(place).slots
    if not slots or any(base + slot not in cells for slot in slots):
        return None
    return _joined([cells[base + slot] for slot in slots])


def _lacks(parts: Sequence[Array | None]) -> bool:
    return any(part is None for part in parts)


def _joined(parts: Sequence[Any]) -> Array:
    return np.asarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)


def held_before(schedule: Schedule) -> npt.NDArray[np.bool_]:
    """Return whether all destination slots of each row hold something before it, (rows,)."""
    moved = moves(schedule)
    if not len(moved.row):
        return np.zeros(0, np.bool_)
    chunks = walk_chunks(schedule, moved, order_of(schedule, moved))
    return np.asarray(np.minimum.reduceat(chunks.before, moved.first) >= 0)


def default_inputs(bound: BoundSchedule) -> list[Array | None]:
    """Return inputs that show who contributed and where: small whole numbers.

    Where there are at most 16 elements and 4 chunks, rank r has (r + 1) × 10^chunk, so that a
    column shows in the magnitude; up to 16 elements otherwise (r + 1) × (chunk mod 8 + 1); above
    that (r + 1) × (k mod 8 + 1) in element k.

    Returns:
        One array a rank, in the numpy type of the dtype (bfloat16: float32); None where a rank has
        no input.

    Example:
        >>> from .library import build
        >>> default_inputs(build("all_reduce", "ring", 2).bind(4, "float32"))[1].tolist()
        [2.0, 2.0, 20.0, 20.0]
    """
    schedule = bound.schedule
    arithmetic = _Arithmetic.of(bound.dtype, "SUM")
    made: list[Array | None] = []
    for place in range(schedule.group_size):
        if not schedule.kind.has_input(place, schedule.root):
            made.append(None)
            continue
        pieces = bound.input(place)
        if pieces.total_elements > _TINY_ELEMENTS:
            weights = np.arange(pieces.total_elements) % 8 + 1
        elif schedule.n_chunks <= _POWERS_OF_TEN and bound.dtype in _WIDE:
            weights = np.repeat(10**pieces.chunks, pieces.elements)
        else:
            weights = np.repeat(pieces.chunks % 8 + 1, pieces.elements)
        made.append(arithmetic.round((place + 1) * weights))
    return made
