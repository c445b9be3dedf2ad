"""Which line of the user's program a call comes from, and which function it called.

Frames of torch, of this package and of the machinery around them are skipped. A line is written
once, with the lines around it, and named by number afterwards.
"""

from __future__ import annotations

import itertools
import linecache
import os
import threading
from enum import Enum, auto
from types import CodeType, FrameType
from typing import Any, NamedTuple

from .writer import Writer, clean

AROUND = 1  # lines shown before and after the user's own

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_OURS = ("traces", "sim", "dashboard")
_STDLIB = os.path.dirname(os.__file__) + os.sep
_TORCH = os.sep + "torch" + os.sep
# Wrappers that torch puts around its functions: the user never called them.
_WRAPPERS = ("c10d_logger.py", "_contextlib.py")


# How multiprocessing starts a Python: with a line of its own, of which these are the first names.
_STARTERS = (("multiprocessing.forkserver",), ("multiprocessing.spawn",))


class Owner(Enum):
    """Whose code a frame runs."""

    USER = auto()
    LIBRARY = auto()  # installed, such as a training library
    TORCH = auto()
    MACHINERY = auto()  # Python's own library, and this package


class Caller(NamedTuple):
    """Where a call comes from: number of the site (None: no line), and function called."""

    site: int | None
    api: str | None


class _Known(NamedTuple):
    code: CodeType  # kept, so that its id stays its own
    owner: Owner
    api: str | None


class Sites:
    """Finds callers and writes their lines.

    Args:
        writer: Writes the sites.
        depth: Frames of the program to keep with each line, outward from it.
        before: Sites of the file before, whose numbers go on.
    """

    def __init__(self, writer: Writer, depth: int = 0, before: Sites | None = None) -> None:
        self._writer = writer
        self._depth = depth
        self._lock = threading.Lock()
        self._codes: dict[int, _Known] = {}  # by id: hashing a code object is slow
        self._numbers: itertools.count[int] = itertools.count()
        if before is not None:
            self._codes, self._numbers = before._codes, before._numbers
        self._callers: dict[Any, Caller] = {}

    def find(self, frame: FrameType | None) -> Caller:
        """Return the caller, looking outward from a frame.

        Where no frame is the user's own, the first one of an installed library counts.
        """
        api: str | None = None
        library: tuple[FrameType, str | None] | None = None
        codes = self._codes
        while frame is not None:
            code = frame.f_code
            _, owner, name = codes.get(id(code)) or self._learn(code)
            if owner is Owner.USER:
                return self._caller(frame, api)
            if owner is Owner.TORCH:
                api = name or api
            elif owner is Owner.LIBRARY and library is None:
                library = (frame, api)
            frame = frame.f_back
        return Caller(None, api) if library is None else self._caller(*library)

    def _learn(self, code: CodeType) -> _Known:
        owner = owner_of(code.co_filename)
        if code.co_filename == "<string>" and code.co_names[:1] in _STARTERS:
            owner = Owner.MACHINERY
        known = _Known(code, owner, _public_name(code) if owner is Owner.TORCH else None)
        self._codes[id(code)] = known
        return known

    def _caller(self, frame: FrameType, api: str | None) -> Caller:
        key: Any = (id(frame.f_code), frame.f_lasti, api)
        outer: list[FrameType] = []
        if self._depth:
            outer = self._outer(frame)
            key = (*key, *((id(each.f_code), each.f_lasti) for each in outer))
        found = self._callers.get(key)
        if found is None:
            with self._lock:
                found = Caller(next(self._numbers), api)
                record = {"r": "site", "n": found.site, **describe(frame)}
                if outer:
                    record["stack"] = [_line_of(each) for each in outer]
                if self._writer.write_json(record):
                    self._callers[key] = found
        return found

    def _outer(self, frame: FrameType) -> list[FrameType]:
        """Return the frames of the program that called this one, innermost first."""
        found: list[FrameType] = []
        outer = frame.f_back
        while outer is not None and len(found) < self._depth:
            code = outer.f_code
            if (self._codes.get(id(code)) or self._learn(code)).owner is Owner.USER:
                found.append(outer)
            outer = outer.f_back
        return found


def _line_of(frame: FrameType) -> str:
    code = frame.f_code
    return clean(f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}")


def describe(frame: FrameType) -> dict[str, Any]:
    """Return file, line, function and source lines of a frame, as a site record has them."""
    code, line = frame.f_code, frame.f_lineno
    first = max(1, line - AROUND)
    lines = linecache.getlines(code.co_filename, frame.f_globals)[first - 1 : line + AROUND]
    return {
        "file": clean(code.co_filename),
        "line": line,
        "function": clean(code.co_qualname),
        "source": [clean(text.rstrip("\r\n")) for text in lines],
        "first_line": first if lines else 0,
    }


def owner_of(file: str) -> Owner:
    """Return whose code a source file holds.

    Example:
        >>> owner_of("/home/ada/train.py").name
        'USER'
        >>> owner_of("/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py").name
        'TORCH'
    """
    if "-packages" + os.sep in file:
        return Owner.TORCH if _TORCH in file else Owner.LIBRARY
    if file.startswith(("<frozen", _STDLIB)):
        return Owner.MACHINERY
    if file.startswith(_ROOT):
        part, _, below = file[len(_ROOT) :].partition(os.sep)
        return Owner.MACHINERY if not below or part in _OURS else Owner.USER
    return Owner.USER


def _public_name(code: CodeType) -> str | None:
    """Return the name of a function of torch that a user could have called, else None."""
    if os.path.basename(code.co_filename) in _WRAPPERS:
        return None
    name = code.co_qualname
    is_private = any(part.startswith(("_", "<")) and part != "__init__" for part in name.split("."))
    return None if is_private else clean(name)
