"""A Spec: everything that says which collective to plan, and on what, in a few short words.

    Spec("all_reduce", "ring", ranks=8, size_bytes=64 * 2**20, topology="ring:100GB/s,1us")
    parse_spec("all_reduce:ring:4").trace()

The command line, the dashboard's Simulate panel and the exporter all come through here.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace

from ..errors import ScheduleError
from ..traces.schema import DTYPES
from ..traces.trace import Trace
from ..units import format_bytes, parse_bytes
from .algorithms import ALGORITHMS
from .bind import BoundSchedule
from .collectives import collective
from .library import resolve
from .model import Model
from .model_text import words as model_words
from .parameters import split
from .replay import Replay, simulate
from .schedule import Schedule
from .topology import parse as parse_topology
from .values import default_inputs

DEFAULT_RANKS = 4
DEFAULT_ELEMENTS = 16
DEFAULT_TOPOLOGY = "ring"
# Above this, values are left out of a simulated trace unless they are asked for.
VALUES_UP_TO_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Spec:
    """Which collective, by which algorithm, on how many ranks, of how many bytes, on what network.

    Attributes:
        collective: Name of the collective.
        algorithm: Name, ``file.py:function``, ``package.module:function`` or a schedule's text
            file; None for the collective's default.
        ranks: Group size.
        size_bytes: Bytes of the whole data, as nccl-tests counts them; None for 16 elements, or
            the next number above that divides into one block a rank where there must be blocks.
        dtype: Torch's name of the element type.
        op: SUM, AVG, PRODUCT, MIN or MAX.
        root: Group rank of the root, for collectives that have one (0 by default).
        topology: Text such as ``ring:100GB/s,1us``; None for a ring, or for a star where
            the plan has a switch that helps.
        model: Parameters of the step model.
    """

    collective: str
    algorithm: str | None = None
    ranks: int = DEFAULT_RANKS
    size_bytes: int | None = None
    dtype: str = "float32"
    op: str = "SUM"
    root: int | None = None
    topology: str | None = None
    model: Model = field(default_factory=Model)

    def schedule(self) -> Schedule:
        """Return the plan.

        Raises:
            ScheduleError: The collective or algorithm is unknown or does not fit the group size.
        """
        root = self.root
        if root is None and collective(self.collective).rooted:
            root = 0
        sized = self.sized()
        if sized and self.size_bytes is None:
            try:
                return resolve(self.collective, self.algorithm, self.ranks, root=root, **sized)
            except ScheduleError:  # no plan for the default size, which nobody asked for
                sized = {}
        return resolve(self.collective, self.algorithm, self.ranks, root=root, **sized)

    def sized(self) -> dict[str, int]:
        """Return the size for an algorithm whose plan depends on it; else nothing."""
        name, _ = split(self.algorithm or "")
        entry = ALGORITHMS.get((self.collective, name))
        if entry is None or "size_bytes" not in entry.parameters:
            return {}
        itemsize = DTYPES.get(self.dtype, 1)
        return {"size_bytes": self.count() * itemsize, "itemsize": itemsize}

    def count(self) -> int:
        """Return the number of elements.

        Raises:
            ScheduleError: The dtype is unknown, or the bytes are no multiple of the element.
        """
        if self.dtype not in DTYPES:
            raise ScheduleError(f"unknown dtype {self.dtype!r}; known: {', '.join(DTYPES)}")
        itemsize = DTYPES[self.dtype]
        if self.size_bytes is None:
            block = self.ranks if collective(self.collective).by_block else 1
            return -(-DEFAULT_ELEMENTS // block) * block
        if self.size_bytes < 0 or self.size_bytes % itemsize:
            raise ScheduleError(
                f"{self.size_bytes} bytes are no multiple of {self.dtype}'s {itemsize}"
            )
        return self.size_bytes // itemsize

    def bound(self) -> BoundSchedule:
        """Return the plan with its sizes."""
        return self.schedule().bind(self.count(), self.dtype)

    def simulate(self) -> Replay:
        """Return the simulated run.

        Raises:
            TopologyError: The topology cannot be read, or has no path between two ranks.
        """
        bound = self.bound()
        # A plan with helpers needs a switch to put them on.
        default = "star" if bound.schedule.helpers else DEFAULT_TOPOLOGY
        topology = parse_topology(self.topology or default, self.ranks)
        return simulate(bound, topology, self.model)

    def trace(self, replay: Replay | None = None, *, values: bool | None = None) -> Trace:
        """Return the simulated run as a trace.

        Args:
            replay: What `simulate` returned, if it was called before.
            values: Whether states carry numbers, of the inputs that `default_inputs` gives; None
                for "where the data is small".
        """
        replay = replay or self.simulate()
        if values is None:
            values = self.count() * DTYPES[self.dtype] <= VALUES_UP_TO_BYTES
        inputs = default_inputs(replay.bound) if values else None
        return replay.trace(inputs=inputs, op=self.op)

    def command(self, verb: str = "sim") -> str:
        """Return the command line that does the same.

        Example:
            >>> Spec("all_reduce", "ring", 8).command()
            'chunkscope sim all_reduce -a ring -n 8'
        """
        words = ["chunkscope", verb, self.collective]
        default = Spec(self.collective)
        for flag, name in (
            ("-a", "algorithm"),
            ("-n", "ranks"),
            ("--bytes", "size_bytes"),
            ("--dtype", "dtype"),
            ("--op", "op"),
            ("--root", "root"),
            ("--topology", "topology"),
        ):
            value = getattr(self, name)
            if value == getattr(default, name) or (verb == "run" and name in _SIMULATED_ONLY):
                continue
            if name == "size_bytes":
                short = format_bytes(value).replace(" ", "")
                value = short if parse_bytes(short) == value else value
            words += [flag, str(value)]
        if verb != "run":
            words += model_words(self.model)
        return shlex.join(words)


_SIMULATED_ONLY = ("topology",)


def parse_spec(text: str) -> Spec:
    """Return the Spec in text such as ``all_reduce``, ``all_reduce:ring:4`` or ``...:4:64MiB``.

    An algorithm may hold a colon of its own, as ``file.py:function`` does.

    Raises:
        ScheduleError: A part is wrong; the message names it.

    Example:
        >>> parse_spec("all_gather:ring:3").ranks
        3
    """
    name, *rest = text.split(":")
    spec = Spec(collective(name).name)
    if rest and not rest[-1].isdigit() and len(rest) > 1 and rest[-2].isdigit():
        try:
            spec = replace(spec, size_bytes=parse_bytes(rest.pop()))
        except ValueError as error:
            raise ScheduleError(f"{text!r}: {error}") from None
    elif len(rest) > 2 and rest[-1].isdigit() and rest[-2].isdigit():
        spec = replace(spec, size_bytes=int(rest.pop()))
    if rest and rest[-1].isdigit():
        spec = replace(spec, ranks=int(rest.pop()))
    return replace(spec, algorithm=":".join(rest) or None)
