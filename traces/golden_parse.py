"""Reading the text of a golden back as a trace, so that it can be compared and played.

The times of such a trace are made up: a step takes a microsecond, as on a slide.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import TraceFormatError
from .golden import CALL_KEYS, CALLED_KEYS, FIRST_LINE, ROW_KEYS, usual_shape
from .schema import DTYPES, EVENTS, Kind, Provenance, Role, Status, Type, When
from .trace import Group, Meta, Trace

_STEP_NS = 1000
_TYPES = {spec.name: spec.type for spec in EVENTS}
_END = re.compile(r"(?P<sort>[rp])(?P<number>\d+|-)")
_ARROWS = {"->": False, "+>": True, "<-": False, "<+": True}
_STATE = re.compile(
    r"(?P<when>before|after)\.(?P<role>\w+)(?:\[(?P<index>\d+)\])?="
    r"(?P<dtype>\w+)?(?:\[(?P<shape>[\dx]*)\])?(?:\{(?P<contributors>[\d,]*)\})?"
    r"(?::(?P<sample>~)?(?P<digest>[0-9a-f]{8}))?"
)
_CALL = re.compile(r"call \d+: (?P<collective>\S+) #(?P<coll_seq>\d+)(?P<rest>.*)")
_GROUP = re.compile(r"group \d+: ranks (?P<ranks>[\d ]*?)(?: ordinal (?P<ordinal>\d+))?")
_MESSAGE = re.compile(r"#(?P<message>\d+)(?:\.(?P<part>\d+))?")


def parse(
    text: str, *, provenance: Provenance = Provenance.SIMULATED, file: str | None = None
) -> Trace:
    """Return the trace that a golden's text tells of; `golden.to_text` gives the text again.

    Args:
        text: The text.
        provenance: What the events shall say of how they are known; the text does not.
        file: Path of the file that it came from, for messages.

    Raises:
        TraceFormatError: A line cannot be read; the message says which and what was expected.
    """
    lines = text.splitlines()
    if not lines or lines[0].strip() != FIRST_LINE:
        found = repr(lines[0][:40]) if lines else "an empty file"
        raise TraceFormatError(f"found {found}, expected {FIRST_LINE!r}", file=file, line=1)
    parser = _Parser(provenance)
    for number, line in enumerate(lines[1:], 2):
        try:
            parser.line(line)
        except (ValueError, KeyError, IndexError) as error:
            message = f"found {line.strip()[:80]!r}: {error}"
            raise TraceFormatError(message, file=file, line=number) from None
    try:
        return parser.trace()
    except ValueError as error:
        raise TraceFormatError(str(error), file=file) from None


class _Parser:
    """Collects rows line by line."""

    def __init__(self, provenance: Provenance) -> None:
        self.provenance = provenance
        self.world_size: int | None = None
        self.groups: list[Group] = []
        self.events: list[dict[str, Any]] = []
        self.states: list[dict[str, Any]] = []
        self.call: dict[str, Any] = {}
        self.begun: dict[int, int] = {}  # row of the call at each rank
        self.step: int | None = None
        self.start_ns = self.now_ns = 0

    def line(self, line: str) -> None:
        """Take in one line."""
        words = line.split()
        if not words or words[0].startswith("--"):
            return
        deed = getattr(self, f"_on_{words[0]}", None)
        if deed is not None:
            deed(words, line.strip())
        elif words[0] in set(Kind):
            self._on_row(words)
        else:
            raise ValueError("expected world, group, call, begin, step, send, recv, ... or end")

    def _on_world(self, words: list[str], line: str) -> None:
        self.world_size = int(words[1])

    def _on_group(self, words: list[str], line: str) -> None:
        found = _matched(_GROUP, line)
        ranks = tuple(map(int, found["ranks"].split()))
        self.groups.append(Group(ranks, int(found["ordinal"] or 0)))

    def _on_call(self, words: list[str], line: str) -> None:
        found = _matched(_CALL, line)
        self.call = {"collective": found["collective"], "coll_seq": int(found["coll_seq"])}
        self._keys(found["rest"].split(), self.call)
        self.begun = {}
        self.start_ns = self.now_ns = self.now_ns + _STEP_NS

    def _on_outside(self, words: list[str], line: str) -> None:
        self.call, self.begun, self.step = {}, {}, None
        self._keys(words[4:], self.call)
        self.start_ns = self.now_ns = self.now_ns + _STEP_NS

    def _on_step(self, words: list[str], line: str) -> None:
        self.step = None if words[1] == "-" else int(words[1])
        self.now_ns = self.start_ns + _STEP_NS * (0 if self.step is None else self.step)

    def _on_begin(self, words: list[str], line: str) -> None:
        row = {**self.call, "kind": Kind.COLLECTIVE.value, **self._place(words[1])}
        row.update(t_issue_ns=self.start_ns, t_start_ns=self.start_ns)
        rest = self._keys(words[2:], row)
        self.begun[row["rank"]] = len(self.events)
        self._states(rest, row)
        self.events.append(row)

    def _on_end(self, words: list[str], line: str) -> None:
        number = self.begun[self._place(words[1])["rank"]]
        row = self.events[number]
        row["status"] = Status.OK.value
        rest = self._keys(words[2:], row)
        if row["status"] != Status.BEGUN:
            row["t_end_ns"] = self.now_ns + _STEP_NS
        self._states(rest, row, number)

    def _on_row(self, words: list[str]) -> None:
        row: dict[str, Any] = {"status": Status.OK.value}
        if self.provenance is not Provenance.CALLED:
            row.update(channel=0, n_slots=1)
        row.update({k: v for k, v in self.call.items() if k in ("collective", "coll_seq", "group")})
        row.update(algorithm=self.call.get("algorithm"), dtype=self.call.get("dtype"))
        row.update(kind=words[0], step=self.step, **self._place(words[1]))
        row.update(t_issue_ns=self.now_ns, t_start_ns=self.now_ns)
        row["t_end_ns"] = self.now_ns + _STEP_NS
        row["parent"] = self.begun.get(row.get("rank", -1))
        rest = words[2:]
        if rest and rest[0] in _ARROWS:
            if row["kind"] in (Kind.SEND, Kind.RECV):
                row["reduces"] = _ARROWS[rest[0]]
            row.update(self._peer(rest[1]))
            rest = rest[2:]
        if rest and (found := _MESSAGE.fullmatch(rest[0])):
            row.update(message=int(found["message"]), part=int(found["part"] or 0))
            rest = rest[1:]
        rest = self._keys(rest, row)
        if row["kind"] == Kind.REDUCE:
            row["reduce_op"] = self.call.get("reduce_op")
        self._states(rest, row)
        self.events.append(row)

    def _place(self, word: str) -> dict[str, Any]:
        """Return the columns of the rank or helper that a row is at."""
        found = _matched(_END, word)
        if found["number"] == "-":
            return {}
        number = int(found["number"])
        if found["sort"] == "p":
            return {"place": number}
        within = self._within(number)
        return {"rank": number, "group_rank": within, "place": within}

    def _peer(self, word: str) -> dict[str, Any]:
        found = _matched(_END, word)
        if found["number"] == "-":
            return {}
        number = int(found["number"])
        if found["sort"] == "p":
            return {"peer_group_rank": number}
        return {"peer": number, "peer_group_rank": self._within(number)}

    def _within(self, rank: int) -> int | None:
        """Return the group_rank of a global rank."""
        group = self.call.get("group")
        return rank if group is None else self.groups[group].ranks.index(rank)

    def _keys(self, words: list[str], row: dict[str, Any]) -> list[str]:
        """Put the cells that are said as key=value into a row, and return the other words."""
        names = {**CALL_KEYS, **CALLED_KEYS, "group": "group", "collective": "collective"}
        names |= {key: column for key, (column, _) in ROW_KEYS.items()}
        rest = []
        for word in words:
            key, equals, value = word.partition("=")
            if not equals or "." in key or key not in names:
                rest.append(word)
            else:
                row[names[key]] = _value(names[key], value)
        return rest

    def _states(self, words: list[str], row: dict[str, Any], number: int | None = None) -> None:
        for word in words:
            found = _matched(_STATE, word)
            dtype = found["dtype"] or row.get("dtype")
            shape = found["shape"]
            usual = usual_shape(row.get("size_bytes"), dtype)
            contributors = found["contributors"]
            self.states.append(
                {
                    "event": len(self.events) if number is None else number,
                    "when": When(found["when"]).value,
                    "role": Role(found["role"]).value,
                    "index": None if found["index"] is None else int(found["index"]),
                    "dtype": dtype if dtype in DTYPES or found["dtype"] else None,
                    "shape": usual if shape is None else [int(n) for n in shape.split("x") if n],
                    "digest": None if found["digest"] is None else int(found["digest"], 16),
                    "digest_of": "sample" if found["sample"] else None,
                    "contributors": None
                    if contributors is None
                    else [int(rank) for rank in contributors.split(",") if rank],
                }
            )

    def trace(self) -> Trace:
        """Return the trace of all lines."""
        n = len(self.events)
        columns: dict[str, Any] = {name: [row.get(name) for row in self.events] for name in _TYPES}
        columns.update(
            file=["golden"] * n, seq=list(range(n)), provenance=[self.provenance.value] * n
        )
        states = {
            name: [state[name] for state in self.states]
            for name in (self.states[0] if self.states else ())
        }
        meta = Meta(world_size=self.world_size, groups=tuple(self.groups))
        return Trace.build(columns, states, meta)


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} cannot be read")
    return found


def _value(column: str, text: str) -> Any:
    if text == "-":
        return None
    if _TYPES[column] is Type.INT:
        return int(text)
    if _TYPES[column] is Type.BOOL:
        return text == "True"
    if _TYPES[column] is Type.INTS:
        return [int(item) for item in text.split(",") if item]
    return text
