"""A Film: one collective call as a table of timed primitives, ready to be painted at any moment.

    film = chunkscope.film(trace)                   # the simple view of the first call
    prims = scene.at(film, 2.5)                     # what to paint 2.5 s after the start
    Path("ring.film").write_bytes(film.to_bytes())  # what the browser's player loads

Layout, colours and words are decided when a film is made; evaluating it needs no more than a linear
interpolation. That rule exists twice: here in `scene`, and in assets/player.js.

The table. A row is one primitive. It shows while t0 <= t < t1 (film seconds at normal speed), and
its geometry goes from `a` (at t0) to `b` (at t1):

    kind      0 rect     x, y, width, height
              1 line     x1, y1, x2, y2
              2 poly     dx, dy added to its points (`points[point : point + n_points]`)
              3 text     x of the anchor, y of the baseline
              4 clock    a text; "{}" in it is replaced by the time of the trace, see `Clock`
              5 pick     as rect; paints nothing, tells what lies there (`ref`)
    panel     index into `panels`
    layer     0 static (always shows), 1 state (shows for a while, never moves), 2 motion
    ease      0 linear, 1 eased
    opacity   at t0 and at t1
    style     index into `styles`
    text      index into `texts`; entry 0 is ""
    ref       index into `refs`; entry 0 is null

Rows lie in the order in which they are painted.

The bytes of `to_bytes()` are gzip of: 8 bytes magic "CSFILM1\\n"; uint32 length of the header; the
header, JSON in UTF-8, padded with spaces so that the columns start at a multiple of 8; the columns,
little-endian, each at a multiple of 8. The header's "columns" gives name, type (u8 u16 u32 f32
f64), offset (bytes from the start of the columns) and length (items) of each. `a` and `b` have 4
items a row, `opacity` 2; `points` has 2 items a point.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .theme import FONTS, PALETTES

if TYPE_CHECKING:
    from ..sim.topology import Topology
    from ..traces.trace import Call, Trace

MAGIC = b"CSFILM1\n"
FOREVER = 1e9  # before and after every film, in seconds

RECT, LINE, POLY, TEXT, CLOCK, PICK = range(6)
KINDS = ("rect", "line", "poly", "text", "clock", "pick")
STATIC, STATE, MOTION = range(3)

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Style:
    """How a primitive is painted; colours are tokens of `theme`.

    Attributes:
        fill: Colour of the area or of the text; None for none.
        stroke: Colour of the line; None for none.
        width: Width of the line, centred on the edge.
        dash: Lengths of dash and gap; empty for a solid line.
        radius: Radius of a rect's corners.
        cap: Ends of lines: butt or round.
        font: sans or mono.
        size: Size of the text in px.
        weight: Weight of the text, 400 to 800.
        anchor: What x of a text means: start, middle or end.
    """

    fill: str | None = None
    stroke: str | None = None
    width: float = 0.0
    dash: tuple[float, ...] = ()
    radius: float = 0.0
    cap: str = "butt"
    font: str = "sans"
    size: float = 0.0
    weight: int = 400
    anchor: str = "start"


@dataclass(frozen=True, slots=True)
class Panel:
    """A named part of the frame: header, caption, stage, bar, and in the full view more."""

    name: str
    x: float
    y: float
    w: float
    h: float


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the film: when it is shown, and what a person is told then.

    Attributes:
        start_s: Start in film seconds; step buttons go here.
        end_s: End in film seconds.
        name: Such as "Step 2 of 6".
        phase: Index into the film's phases; None where there are none.
        sentence: What happens, in one sentence.
    """

    start_s: float
    end_s: float
    name: str
    phase: int | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of the trace at each film time, piecewise linear.

    Between knots k and k+1 it is `ns[k] + (t - s[k]) / (s[k+1] - s[k]) * (ns[k+1] - ns[k])`, and
    constant before the first and after the last. It is written as the whole number
    `floor(ns / unit_ns * 10**decimals + 0.5)` with the point put in, followed by `unit` where the
    text says so.

    Attributes:
        s: Film seconds of the knots, rising.
        ns: Trace times there, in nanoseconds since the call began.
        unit: ns, µs, ms or s.
        unit_ns: That unit in nanoseconds.
        decimals: Digits after the point.
    """

    s: tuple[float, ...]
    ns: tuple[float, ...]
    unit: str
    unit_ns: int
    decimals: int


_COLUMNS = (
    ("kind", np.uint8, 1), ("panel", np.uint8, 1), ("layer", np.uint8, 1), ("ease", np.uint8, 1),
    ("t0", np.float64, 1), ("t1", np.float64, 1), ("a", np.float32, 4), ("b", np.float32, 4),
    ("opacity", np.float32, 2), ("style", np.uint16, 1), ("text", np.uint32, 1),
    ("ref", np.uint32, 1), ("point", np.uint32, 1), ("n_points", np.uint16, 1),
)  # fmt: skip
_TYPES = {
    np.dtype(np.uint8): "u8", np.dtype(np.uint16): "u16", np.dtype(np.uint32): "u32",
    np.dtype(np.float32): "f32", np.dtype(np.float64): "f64",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Film:
    """One collective call, ready to be painted at any moment.

    Attributes:
        size: Width and height of the frame in px; painters scale it to what they are asked for.
        duration_s: Length in seconds at normal speed.
        view: simple or full.
        columns: The table of the module's docstring, by name.
        points: Points of the polys, float32, (points, 2).
        styles, texts, refs: What the columns of these names count into.
        panels: Parts of the frame.
        steps: Steps in order.
        phases: Names of the phases.
        clock: Film time to trace time.
        meta: title, badge, provenance, ranks, duration_ns, calls, call (index) and the like.
        palettes: Colours by theme and token.
        fonts: Families by name.
    """

    size: tuple[int, int]
    duration_s: float
    view: str
    columns: Mapping[str, Array]
    points: npt.NDArray[np.float32]
    styles: tuple[Style, ...]
    texts: tuple[str, ...]
    refs: tuple[dict[str, Any] | None, ...]
    panels: tuple[Panel, ...]
    steps: tuple[Step, ...]
    phases: tuple[str, ...]
    clock: Clock
    meta: dict[str, Any] = field(default_factory=dict)
    palettes: Mapping[str, Mapping[str, str | None]] = field(default_factory=lambda: PALETTES)
    fonts: Mapping[str, str] = field(default_factory=lambda: FONTS)

    def __post_init__(self) -> None:
        n = len(self.columns["kind"])
        for name, dtype, width in _COLUMNS:
            column = self.columns[name]
            shape = (n,) if width == 1 else (n, width)
            if column.dtype != dtype or column.shape != shape:
                raise ValueError(
                    f"column {name} is {column.dtype} {column.shape}, expected {shape}"
                )

    def __len__(self) -> int:
        return len(self.columns["kind"])

    def panel(self, name: str) -> Panel:
        """Return a panel by its name; KeyError where the view has none of it."""
        for panel in self.panels:
            if panel.name == name:
                return panel
        raise KeyError(name)

    def step_at(self, t: float) -> int | None:
        """Return the index of the step that is shown at film time t; None without steps."""
        shown = [k for k, step in enumerate(self.steps) if step.start_s <= t]
        return (shown[-1] if shown else 0) if self.steps else None

    def to_bytes(self) -> bytes:
        """Return the film as the player loads it; see the module's docstring for the layout."""
        arrays = [(name, self.columns[name]) for name, _, _ in _COLUMNS]
        arrays.append(("points", self.points))
        body = bytearray()
        layout = []
        for name, array in arrays:
            raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
            layout.append(
                {"name": name, "type": _TYPES[array.dtype], "offset": len(body),
                 "length": int(array.size)}
            )  # fmt: skip
            body += raw + bytes(-len(raw) % 8)
        header = json.dumps(self._header(layout), ensure_ascii=False, separators=(",", ":"))
        raw_header = header.encode()
        raw_header += b" " * (-(len(raw_header) + 12) % 8)
        head = MAGIC + len(raw_header).to_bytes(4, "little")
        return gzip.compress(head + raw_header + bytes(body), compresslevel=6, mtime=0)

    def _header(self, layout: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "version": 1,
            "size": list(self.size),
            "duration": self.duration_s,
            "view": self.view,
            "rows": len(self),
            "columns": layout,
            "styles": [asdict(style) for style in self.styles],
            "texts": list(self.texts),
            "refs": list(self.refs),
            "panels": [asdict(panel) for panel in self.panels],
            "steps": [asdict(step) for step in self.steps],
            "phases": list(self.phases),
            "clock": asdict(self.clock),
            "meta": self.meta,
            "palettes": {name: dict(palette) for name, palette in self.palettes.items()},
            "fonts": dict(self.fonts),
        }

    @staticmethod
    def from_bytes(raw: bytes) -> Film:
        """Return the film of `to_bytes()`."""
        data = gzip.decompress(raw)
        if data[:8] != MAGIC:
            raise ValueError(f"no film: begins with {data[:8]!r}, expected {MAGIC!r}")
        start = 12 + int.from_bytes(data[8:12], "little")
        header = json.loads(data[12:start])
        arrays = {}
        types: dict[str, Any] = {name: dtype for dtype, name in _TYPES.items()}
        widths = {name: width for name, _, width in _COLUMNS} | {"points": 2}
        for spec in header["columns"]:
            at = start + spec["offset"]
            flat: Array = np.frombuffer(data, types[spec["type"]], spec["length"], at)
            width = widths[spec["name"]]
            arrays[spec["name"]] = flat if width == 1 else flat.reshape(-1, width)
        clock = header["clock"]
        return Film(
            size=(header["size"][0], header["size"][1]),
            duration_s=header["duration"],
            view=header["view"],
            points=arrays.pop("points"),
            columns=arrays,
            styles=tuple(Style(**{**s, "dash": tuple(s["dash"])}) for s in header["styles"]),
            texts=tuple(header["texts"]),
            refs=tuple(header["refs"]),
            panels=tuple(Panel(**panel) for panel in header["panels"]),
            steps=tuple(Step(**step) for step in header["steps"]),
            phases=tuple(header["phases"]),
            clock=Clock(**{**clock, "s": tuple(clock["s"]), "ns": tuple(clock["ns"])}),
            meta=header["meta"],
            palettes=header["palettes"],
            fonts=header["fonts"],
        )


def film(
    trace: Trace,
    call: Call | int | None = None,
    *,
    view: str = "simple",
    topology: Topology | None = None,
) -> Film:
    """Return the film of one collective call of a trace.

    Args:
        trace: What happened.
        call: The call, or its place in `trace.calls()`; the first by default.
        view: simple (up to 8 ranks, for talks) or full (everything).
        topology: Where to place the ranks; by default the trace's own, else who talked to whom.

    Raises:
        ValueError: The trace has no such call, or the view is unknown.
    """
    from .story import tell

    story = tell(trace, call, topology=topology)
    if view == "simple":
        from .views import simple

        return simple.build(story)
    if view == "full":
        from .views import full

        return full.build(story)
    raise ValueError(f"unknown view {view!r}; known: simple, full")
