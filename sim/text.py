"""The text form of a schedule: a header, then one transfer a line.

    collective all_reduce
    algorithm ring
    group_size 2
    input 0:2
    output 0:2
    # step channel, from -> to; +> reduces
    0 0  r0[1] +> r1[1]
    0 0  r1[0] +> r0[0]
    1 0  r0[0] -> r1[0]
    1 0  r1[1] -> r0[1]

`r0[2:4]` are the slots 2 and 3 of rank 0, helpers go by their names. A list that differs from rank
to rank stands one line a rank (`input r1 2:4`). `after 12 5` says that row 12 (the 13th transfer,
from 0) waits for row 5. Lines that start with # and empty lines are passed over.
"""

from __future__ import annotations

import re
from typing import NoReturn

from ..errors import ScheduleError
from .schedule import Schedule, Slots, Transfer

_BUFFERS = ("input", "output", "scratch")
_NUMBERS = ("group_size", "root", "window")
_HEADER = (
    "collective",
    "algorithm",
    *_NUMBERS,
    "idempotent",
    "chunk_elements",
    "helper",
    *_BUFFERS,
)
_TRANSFER = re.compile(
    r"(?P<step>\d+) +(?P<channel>\d+) +(?P<src>\S+)\[(?P<from>[\d:]+)\] +"
    r"(?P<arrow>\+?>|->) +(?P<dst>\S+)\[(?P<to>[\d:]+)\]"
)
_RANGE = re.compile(r"(\d+)(?::(\d+))?")
_RANK = re.compile(r"r(\d+)")
_LARGEST = 2**31 - 1
# A text may come from anybody: what it says must not fill the memory.
_MOST_RANKS = 1 << 16
_MOST_STEPS = 1 << 24
_MOST_SLOTS = 1 << 20
_MOST_CELLS = 1 << 26
_MOST_CHANNELS = 2**15 - 1


def to_text(schedule: Schedule) -> str:
    """Return a schedule as text; `parse` reads it back.

    Example:
        >>> from .library import build
        >>> print(to_text(build("broadcast", "tree", 2)).splitlines()[-1])
        0 0  r0[0] -> r1[0]
    """
    header = [
        f"collective {schedule.collective}",
        f"algorithm {schedule.algorithm}",
        f"group_size {schedule.group_size}",
    ]
    if schedule.root is not None:
        header.append(f"root {schedule.root}")
    if schedule.window != 1:
        header.append(f"window {schedule.window}")
    if schedule.idempotent:
        header.append("idempotent")
    if schedule.chunk_elements is not None:
        header.append("chunk_elements " + " ".join(map(str, schedule.chunk_elements.tolist())))
    header += [f"helper {name}" for name in schedule.helpers]
    for name in _BUFFERS:
        header += _buffer_lines(name, getattr(schedule, name))
    names = [f"r{rank}" for rank in range(schedule.group_size)] + list(schedule.helpers)
    lines = [_transfer_line(row, names) for row in schedule.transfers]
    after = [f"after {row} {earlier}" for row, earlier in schedule.after.tolist()]
    return "\n".join([*header, *lines, *after, ""])


def _transfer_line(row: Transfer, names: list[str]) -> str:
    arrow = "+>" if row.reduce else "->"
    src = f"{names[row.src]}[{_slots(row.src_slot, row.n_slots)}]"
    dst = f"{names[row.dst]}[{_slots(row.dst_slot, row.n_slots)}]"
    return f"{row.step} {row.channel}  {src} {arrow} {dst}"


def _slots(first: int, n_slots: int) -> str:
    return str(first) if n_slots == 1 else f"{first}:{first + n_slots}"


def _buffer_lines(name: str, slots: Slots) -> list[str]:
    if len(slots.lists) == 1:
        return [f"{name} {_ranges(slots.lists[0])}"] if slots.lists[0] else []
    return [f"{name} r{rank} {_ranges(one)}".rstrip() for rank, one in enumerate(slots.lists)]


def _ranges(slots: tuple[int, ...]) -> str:
    """Return slots as `0:4 7 2`: runs of neighbours, in order."""
    runs: list[list[int]] = []
    for slot in slots:
        if runs and slot == runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([slot, slot + 1])
    return " ".join(_slots(first, stop - first) for first, stop in runs)


def looks_like_schedule(head: str) -> bool:
    """Return whether a text that starts with `head` is meant to be a schedule.

    Example:
        >>> looks_like_schedule("# a ring\\ncollective all_red")
        True
    """
    lines = [line.strip() for line in head.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith("#")]
    return bool(lines) and (not said or said[0].split()[0] in _HEADER)


def parse(text: str, file: str | None = None) -> Schedule:
    """Return the schedule that a text describes.

    Args:
        text: The text form.
        file: Path of the file, for messages.

    Raises:
        ScheduleError: A line cannot be read or says what cannot be; the message has file and line.

    Example:
        >>> parse("collective broadcast\\ngroup_size 1\\nroot 0\\ninput 0\\noutput 0").group_size
        1
    """
    return _Parser(file).parse(text)


class _Parser:
    """Reads one text; keeps what was read and the line it is at."""

    def __init__(self, file: str | None) -> None:
        self.file = file or "schedule"
        self.line = 0
        self.header: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        self.helpers: list[str] = []
        self.buffers: dict[str, dict[int | None, list[int]]] = {name: {} for name in _BUFFERS}
        self.rows: list[Transfer] = []
        self.row_lines: list[int] = []
        self.after: list[tuple[int, int]] = []
        self.idempotent = False
        self.chunk_elements: list[int] | None = None

    def fail(self, message: str) -> NoReturn:
        raise ScheduleError(f"{self.file}:{self.line}: {message}")

    def parse(self, text: str) -> Schedule:
        for self.line, line in enumerate(text.splitlines(), start=1):
            stripped = line.strip()
            if stripped and not stripped.startswith("#"):
                self._read(stripped)
        for key in ("collective", "group_size"):
            if key not in self.header and key not in self.numbers:
                raise ScheduleError(f"{self.file}: no line `{key} ...` before the transfers")
        try:
            return self._build()
        except ScheduleError as error:
            raise ScheduleError(
                f"{self._where(error)}: {error}",
                code=error.code,
                place=error.place,
                step=error.step,
            ) from None

    def _read(self, line: str) -> None:
        key, _, rest = line.partition(" ")
        rest = rest.strip()
        if key.isdigit():
            self._read_transfer(line)
        elif key in ("collective", "algorithm"):
            self.header[key] = rest or self.fail(f"`{key}` without a name")
        elif key in _NUMBERS:
            self.numbers[key] = self._number(rest, f"a number after `{key}`")
            if key == "group_size" and self.numbers[key] > _MOST_RANKS:
                self.fail(f"group_size {rest} is beyond {_MOST_RANKS}")
        elif key == "helper":
            self._read_helper(rest)
        elif key == "idempotent" and not rest:
            self.idempotent = True
        elif key == "chunk_elements":
            self.chunk_elements = [self._number(w, "numbers of elements") for w in rest.split()]
        elif key in _BUFFERS:
            self._read_buffer(key, rest)
        elif key == "after":
            words = [self._number(word, "`after ROW EARLIER`") for word in rest.split()]
            if len(words) != 2:
                self.fail(f"found `{line}`, expected `after ROW EARLIER`")
            self.after.append((words[0], words[1]))
        else:
            self.fail(f"found {key!r}, expected a transfer or {', '.join(_HEADER)} or after")

    def _number(self, word: str, expected: str) -> int:
        if not re.fullmatch(r"[0-9]{1,10}", word) or int(word) > _LARGEST:
            self.fail(f"found {word!r}, expected {expected}")
        return int(word)

    def _read_helper(self, name: str) -> None:
        if not re.fullmatch(r"[^\s\[\]]+", name) or _RANK.fullmatch(name) or name in self.helpers:
            self.fail(f"helper {name!r}: expected a new name without spaces, and no rank's")
        self.helpers.append(name)

    def _read_buffer(self, name: str, rest: str) -> None:
        words = rest.split()
        rank = None
        if words and (match := _RANK.fullmatch(words[0])):
            rank = self._number(match.group(1), "a rank")
            words = words[1:]
        given = self.buffers[name]
        if rank in given or ((None in given) != (rank is None) and given):
            self.fail(f"`{name}` is given twice: one line for all ranks, or one a rank")
        slots: list[int] = []
        for word in words:
            first, n_slots = self._range(word)
            slots += range(first, first + n_slots)
            if len(slots) > _MOST_SLOTS:
                self.fail(f"`{name}` names more than {_MOST_SLOTS} slots")
        given[rank] = slots

    def _range(self, word: str) -> tuple[int, int]:
        match = _RANGE.fullmatch(word)
        if match is None:
            self.fail(f"found {word!r}, expected a slot such as `3` or slots such as `2:4`")
        first = self._number(match.group(1), "a slot")
        stop = first + 1 if match.group(2) is None else self._number(match.group(2), "a slot")
        if stop <= first or stop - first > _MOST_SLOTS:
            self.fail(f"found slots {word!r}, expected the second number to be larger")
        return first, stop - first

    def _read_transfer(self, line: str) -> None:
        match = _TRANSFER.fullmatch(line)
        if match is None:
            self.fail(
                f"found `{line}`, expected `STEP CHANNEL  r0[3] -> r1[3]` (+> where it reduces)"
            )
        src_slot, n_slots = self._range(match["from"])
        dst_slot, n_there = self._range(match["to"])
        if n_slots != n_there:
            self.fail(f"{n_slots} slot(s) go into {n_there}, expected as many")
        step = self._number(match["step"], "a step")
        channel = self._number(match["channel"], "a channel")
        if channel > _MOST_CHANNELS:
            self.fail(f"channel {channel} is beyond {_MOST_CHANNELS}")
        if step > _MOST_STEPS:
            self.fail(f"step {step} is beyond {_MOST_STEPS}")
        src, dst = self._place(match["src"]), self._place(match["dst"])
        reduce = match["arrow"] == "+>"
        self.rows.append(Transfer(step, channel, src, dst, src_slot, dst_slot, n_slots, reduce))
        self.row_lines.append(self.line)

    def _place(self, name: str) -> int:
        match = _RANK.fullmatch(name)
        group_size = self.numbers.get("group_size")
        if group_size is None:
            self.fail("a transfer before the line `group_size ...`")
        if match and int(match.group(1)) < group_size:
            return int(match.group(1))
        if name in self.helpers:
            return group_size + self.helpers.index(name)
        helpers = f" or a helper ({', '.join(self.helpers)})" if self.helpers else ""
        self.fail(f"found place {name!r}, expected r0 to r{group_size - 1}{helpers}")

    def _build(self) -> Schedule:
        group_size = self.numbers["group_size"]
        buffers = {name: self._lists(name, group_size) for name in _BUFFERS}
        schedule = Schedule.of(
            self.header["collective"],
            self.header.get("algorithm", "unnamed"),
            group_size,
            self.rows,
            input=buffers["input"],
            output=buffers["output"],
            scratch=buffers["scratch"],
            root=self.numbers.get("root"),
            window=self.numbers.get("window", 1),
            helpers=self.helpers,
            after=self.after,
            idempotent=self.idempotent,
            chunk_elements=self.chunk_elements,
        )
        cells = schedule.n_places * schedule.slots_a_place
        if cells > _MOST_CELLS:
            raise ScheduleError(f"{cells} slots in all are beyond {_MOST_CELLS}")
        return schedule

    def _lists(self, name: str, group_size: int) -> list[int] | list[list[int]]:
        given = self.buffers[name]
        if not given:
            return []
        if None in given:
            return given[None]
        beyond = [rank for rank in given if rank is not None and rank >= group_size]
        if beyond:
            raise ScheduleError(f"`{name} r{beyond[0]}` is beyond the {group_size} ranks")
        return [given.get(rank, []) for rank in range(group_size)]

    def _where(self, error: ScheduleError) -> str:
        """Return file and line; the line of the row where the message starts with one."""
        match = re.match(r"row (\d+): ", str(error))
        if match is None or int(match.group(1)) >= len(self.rows):
            return self.file
        by_step = sorted(range(len(self.rows)), key=lambda row: self.rows[row].step)
        return f"{self.file}:{self.row_lines[by_step[int(match.group(1))]]}"
