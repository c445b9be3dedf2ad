"""What a recording keeps: one value that travels from the command line to every process.

    options = Options(state="sample", only=("all_reduce",))
    environment.update(options.to_environment())        # in the launcher
    options = Options.from_environment()                # in every process below it

This module uses the standard library alone: it is imported in other people's programs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ..schema import Kind

STATES = ("none", "sample", "full")
WIRE_PAYLOADS = ("digest", "whole")
# What `only` may name: collectives as torch spells them, and the other kinds of calls.
KINDS = (Kind.SEND.value, Kind.RECV.value)
COLLECTIVES = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
)

# Environment variables, by field.
VARIABLES = {
    "state": "CHUNKSCOPE_STATE",
    "stack": "CHUNKSCOPE_STACK",
    "only": "CHUNKSCOPE_ONLY",
    "keep_last": "CHUNKSCOPE_KEEP_LAST",
    "max_bytes": "CHUNKSCOPE_MAX_BYTES",
    "wire": "CHUNKSCOPE_WIRE",
}


@dataclass(frozen=True, slots=True)
class Options:
    """What a recording keeps.

    Attributes:
        state: `none`, `sample` or `full`, see `states`; None for `full`, and `none` on tensors that
            lie on a GPU.
        stack: Frames of the user's program that are kept of each call, beside its own line.
        only: Collectives and kinds (`send`, `recv`) to record; empty for all. Groups are always
            recorded.
        keep_last: Calls that a process keeps at least, the last ones; None for all.
        max_bytes: Bytes of tensor data that a process may write; then states go on without data.
        wire: What to keep of the messages inside native gloo: `digest` (payloads up to 64 KiB
            whole, of longer ones the digest and the first values), `whole`, or a number of bytes
            a message as text; None for no tap.

    Raises:
        ValueError: A field has a value that it cannot have; the message says which ones it can.
    """

    state: str | None = None
    stack: int = 0
    only: tuple[str, ...] = ()
    keep_last: int | None = None
    max_bytes: int | None = None
    wire: str | None = None

    def __post_init__(self) -> None:
        if self.state is not None and self.state not in STATES:
            raise ValueError(f"state policy {self.state!r} is none of {', '.join(STATES)}")
        for name in self.only:
            if name not in COLLECTIVES + KINDS:
                known = ", ".join(COLLECTIVES + KINDS)
                raise ValueError(f"cannot record only {name!r}; known are {known}")
        for name, least in (("stack", 0), ("keep_last", 1), ("max_bytes", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}, expected {least} or more")
        if self.wire is not None and self.wire not in WIRE_PAYLOADS and not self.wire.isdigit():
            raise ValueError(
                f"wire payload {self.wire!r} is neither {' nor '.join(WIRE_PAYLOADS)} "
                "nor a number of bytes"
            )

    def to_environment(self) -> dict[str, str]:
        """Return the environment variables that say the same; what is the default is left out.

        Example:
            >>> Options(only=("all_reduce", "send"), stack=3).to_environment()
            {'CHUNKSCOPE_STACK': '3', 'CHUNKSCOPE_ONLY': 'all_reduce,send'}
        """
        found = {}
        for field, variable in VARIABLES.items():
            value = getattr(self, field)
            if value:
                found[variable] = ",".join(value) if isinstance(value, tuple) else str(value)
            elif value == 0 and field == "max_bytes":
                found[variable] = "0"
        return found

    def to_json(self) -> dict[str, object]:
        """Return what is not the default, as the header of a recording says it.

        Example:
            >>> Options(only=("all_reduce",)).to_json()
            {'only': ['all_reduce']}
        """
        found: dict[str, object] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                found[field.name] = list(value) if isinstance(value, tuple) else value
        return found

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> Options:
        """Return what the environment variables say.

        Args:
            environment: Variables; this process's by default.

        Raises:
            ValueError: A variable has a value that it cannot have; the message names it.
        """
        given = os.environ if environment is None else environment
        found = {field: given.get(variable, "") for field, variable in VARIABLES.items()}
        numbers = {}
        for field in ("stack", "keep_last", "max_bytes"):
            text = found[field]
            if text and not text.isdigit():
                raise ValueError(f"{VARIABLES[field]} is {text!r}, expected a whole number")
            numbers[field] = int(text) if text else None
        return Options(
            state=found["state"] or None,
            stack=numbers["stack"] or 0,
            only=tuple(filter(None, found["only"].split(","))),
            keep_last=numbers["keep_last"],
            max_bytes=numbers["max_bytes"],
            wire=found["wire"] or None,
        )
