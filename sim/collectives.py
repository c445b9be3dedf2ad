"""What each collective must do: who holds which chunk before and after, sizes, bus bandwidth.

A chunk is a piece of the logical data and has a number. Where the collective reduces, chunk k is
the k-th piece of the vector that every rank contributes to. Elsewhere a chunk also has an origin,
the rank whose data it is:

    collective       input of place p          output of place p         chunks
    all_reduce       0 .. C-1                  0 .. C-1                  C
    reduce_scatter   0 .. nc-1                 pc .. pc+c-1              nc
    reduce           0 .. C-1                  0 .. C-1 at the root      C
    broadcast        0 .. C-1 at the root      0 .. C-1                  C
    all_gather       pc .. pc+c-1              0 .. nc-1                 nc
    gather           pc .. pc+c-1              0 .. nc-1 at the root     nc
    scatter          0 .. nc-1 at the root     pc .. pc+c-1              nc
    all_to_all       pnc .. pnc+nc-1           block p of every origin   nnc
    send_recv        pc .. pc+c-1              qc .. qc+c-1, q = p - 1   nc
    barrier          as all_reduce, with one empty chunk

n is the group size, C any number of chunks, c the chunks in one rank's block. In all_to_all and
send_recv every rank has data of its own, and sizes are those of one rank.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..errors import ScheduleError

Chunks = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective.

    Attributes:
        name: As torch spells it.
        reduces: Whether the ranks' data is combined.
        sends: What a place puts in: the whole vector, or its block of it.
        receives: What a place gets out, likewise; "transposed" is all_to_all's, "previous" is what
            the rank before it put in.
        input_at_root: Whether the root alone has an input.
        output_at_root: Whether the root alone has an output.
        idempotent: Whether contributing twice does no harm (barrier).
    """

    name: str
    reduces: bool
    sends: Literal["whole", "block"]
    receives: Literal["whole", "block", "transposed", "previous"]
    input_at_root: bool = False
    output_at_root: bool = False
    idempotent: bool = False

    @property
    def rooted(self) -> bool:
        """Whether it has a root."""
        return self.input_at_root or self.output_at_root

    @property
    def by_block(self) -> bool:
        """Whether its data is divided into one block a rank."""
        return self.sends == "block" or self.receives in ("block", "transposed")

    @property
    def by_rank(self) -> bool:
        """Whether what a place puts in is data of its own, and none of it anybody else's."""
        return self.sends == "block" or self.receives in ("transposed", "previous")

    def has_input(self, place: int, root: int | None) -> bool:
        """Return whether a rank puts data in."""
        return not self.input_at_root or place == root

    def has_output(self, place: int, root: int | None) -> bool:
        """Return whether a rank gets data out."""
        return not self.output_at_root or place == root

    def input_chunks(self, place: int, group_size: int, length: int) -> Chunks:
        """Return the chunks in the `length` input slots of a rank, shape (length,)."""
        k = np.arange(length, dtype=np.int64)
        return k + place * length if self.by_rank else k

    def output_chunks(self, place: int, group_size: int, length: int) -> Chunks:
        """Return the chunks that must be in the `length` output slots of a rank, (length,)."""
        k = np.arange(length, dtype=np.int64)
        if self.receives == "whole":
            return k
        if self.receives == "block":
            return k + place * length
        if self.receives == "previous":
            return k + (place - 1) % group_size * length
        block = length // group_size
        return (k // block) * length + place * block + k % block

    def n_chunks(self, group_size: int, input_length: int) -> int:
        """Return the number of chunks, from the number of input slots of a rank that has any."""
        return group_size * input_length if self.by_rank else input_length

    def n_output(self, group_size: int, input_length: int) -> float:
        """Return the output slots due on a rank, from the number of its input slots."""
        if self.sends == self.receives or self.receives in ("transposed", "previous"):
            return input_length
        return input_length * group_size if self.sends == "block" else input_length / group_size

    def origin(self, chunk: int, group_size: int, n_chunks: int, root: int | None) -> int | None:
        """Return the rank whose data a chunk is; None where the collective reduces."""
        if self.reduces:
            return None
        if self.input_at_root:
            return root
        return chunk // (n_chunks // group_size)


def _collectives(*rows: Collective) -> dict[str, Collective]:
    return {row.name: row for row in rows}


COLLECTIVES = _collectives(
    Collective("all_reduce", True, "whole", "whole"),
    Collective("reduce_scatter", True, "whole", "block"),
    Collective("all_gather", False, "block", "whole"),
    Collective("broadcast", False, "whole", "whole", input_at_root=True),
    Collective("reduce", True, "whole", "whole", output_at_root=True),
    Collective("gather", False, "block", "whole", output_at_root=True),
    Collective("scatter", False, "whole", "block", input_at_root=True),
    Collective("all_to_all", False, "whole", "transposed"),
    Collective("send_recv", False, "whole", "previous"),
    Collective("barrier", True, "whole", "whole", idempotent=True),
)


def collective(name: str) -> Collective:
    """Return a collective by its name.

    Raises:
        ScheduleError: There is no such collective; the message names those that exist.

    Example:
        >>> collective("all_gather").reduces
        False
    """
    if name not in COLLECTIVES:
        near = difflib.get_close_matches(name, COLLECTIVES, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        known = ", ".join(COLLECTIVES)
        raise ScheduleError(f"unknown collective {name!r}{hint}; known: {known}")
    return COLLECTIVES[name]


def busbw_factor(name: str, group_size: int) -> float:
    """Return busbw / algbw of a collective: the share of its bytes that must cross a rank's link.

    Args:
        name: Name of the collective.
        group_size: Number of ranks.

    Source: nccl-tests, doc/PERFORMANCE.md and the factors in its source, version 2.19.

    Example:
        >>> busbw_factor("all_reduce", 4)
        1.5
    """
    if name in ("all_reduce", "barrier"):
        return 2 * (group_size - 1) / group_size
    return (group_size - 1) / group_size if collective(name).by_block else 1.0
