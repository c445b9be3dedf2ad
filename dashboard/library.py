"""The traces that the dashboard may open: those of one folder, uploads, and simulations.

A page names a trace by an address, which is the path of its URL:

    trace/<name in the folder>                  a file or recording of the folder
    upload/<number>/<name>                      a file that was dropped on the page
    sim/<spec>[/<topology>]                     simulated on the spot: sim/all_reduce:ring:8:64MiB
    how/<algorithm>/<call>/<address>            a recorded call's inputs, through an algorithm

Nothing in an address is ever run: algorithms go by the names of the library alone, and files by
their place under the folder, symbolic links resolved.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from ..errors import ChunkscopeError, ScheduleError, TraceFormatError
from ..sim.library import algorithms
from ..sim.source import open_trace
from ..sim.spec import Spec, parse_spec
from ..traces.files import FORMATS, format_of
from ..traces.trace import Trace
from ..units import format_bytes
from .facts import Facts, facts
from .film import Film, film
from .story import Story, tell
from .views.thumbnail import thumbnail

T = TypeVar("T")

# Folders below the given one that are searched for traces, and how many traces are listed.
MAX_DEPTH = 3
MAX_ENTRIES = 400
MAX_UPLOAD_BYTES = 256 << 20
# What a page may ask the simulator for.
MAX_RANKS = 64
MAX_BYTES = 1 << 40
SUFFIXES = tuple(suffix for form in FORMATS for suffix in form.suffixes if suffix)


class Refused(ChunkscopeError):
    """An address names nothing that may be opened."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A trace of the folder, readable or not.

    Attributes:
        name: Its path under the folder, with slashes.
        is_folder: Whether it is a recording.
        modified_s: When it was last written, seconds since 1970.
        stamp: Changes whenever its content does.
    """

    name: str
    is_folder: bool
    modified_s: float
    stamp: tuple[int, int]

    @property
    def address(self) -> str:
        """The address of its trace."""
        return "trace/" + quote(self.name)


class Cache:
    """Keeps the results that were asked for last; safe to use from several threads."""

    def __init__(self, size: int) -> None:
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._size = size
        self._lock = threading.Lock()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is kept under the key, else what `make` returns, which is then kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                found: T = self._kept[key]
                return found
        made = make()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return made


class Library:
    """Opens traces by address.

    Args:
        path: A folder, whose traces are listed and opened, or one trace.

    Raises:
        TraceFormatError: There is no such file or folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        given = Path(path)
        if not given.exists():
            raise TraceFormatError("there is no such file or folder", file=str(path))
        # A file that is named outright is opened, and its error shown, whatever it holds.
        self.only = given.name if not given.is_dir() or format_of(given) is not None else None
        self.root = (given.absolute().parent if self.only else given).resolve()
        self._uploads: dict[int, Path] = {}
        self._numbers = itertools.count(1)
        self._drawer: Path | None = None
        self._traces = Cache(8)
        self._films = Cache(32)
        self._stories = Cache(32)
        self._pictures = Cache(MAX_ENTRIES)
        self._facts = Cache(2 * MAX_ENTRIES)

    @property
    def title(self) -> str:
        """The folder as people write it, with ~ for the home folder."""
        home = Path.home()
        if self.root == home or home not in self.root.parents:
            return str(self.root)
        return str(Path("~") / self.root.relative_to(home))

    def entries(self) -> list[Entry]:
        """Return the traces of the folder, the newest first."""
        found = [self.only] if self.only else self._walk(self.root, 0)
        entries = [self._entry(name) for name in found]
        return sorted((e for e in entries if e), key=lambda e: -e.modified_s)

    def _walk(self, folder: Path, depth: int) -> list[str]:
        names: list[str] = []
        try:
            children = sorted(os.scandir(folder), key=lambda child: child.name)
        except OSError:
            return names
        for child in children:
            path = Path(child.path)
            if child.name.startswith(".") or not self._inside(path):
                continue
            if child.is_dir():
                if format_of(path) is not None:
                    names.append(path.relative_to(self.root).as_posix())
                elif depth < MAX_DEPTH:
                    names.extend(self._walk(path, depth + 1))
            elif path.suffix.lower() in SUFFIXES:
                names.append(path.relative_to(self.root).as_posix())
            if len(names) >= MAX_ENTRIES:
                break
        return names[:MAX_ENTRIES]

    def _entry(self, name: str) -> Entry | None:
        path = self.root / name
        try:
            files = [path, *path.iterdir()] if path.is_dir() else [path]
            stats = [file.stat() for file in files]
        except OSError:
            return None
        newest = max(stat.st_mtime_ns for stat in stats)
        size = sum(stat.st_size for stat in stats)
        return Entry(name, path.is_dir(), newest / 1e9, (newest, size))

    def entry(self, name: str) -> Entry | None:
        """Return a trace of the folder by its name; None where there is none or it may not be."""
        try:
            self.locate(name)
        except Refused:
            return None
        return self._entry(name)

    def _inside(self, path: Path) -> bool:
        """Return whether a path, links resolved, lies under the folder."""
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            return False
        if self.only is not None:
            allowed = (self.root / self.only).resolve()
            return real == allowed or allowed in real.parents
        return real == self.root or self.root in real.parents

    def locate(self, name: str) -> Path:
        """Return the path of a trace of the folder.

        Raises:
            Refused: It lies elsewhere, or does not exist; the message does not say which.
        """
        path = self.root / name
        refused = Refused(f"{name}: no trace of this folder")
        if not name or "\0" in name or not self._inside(path):
            raise refused
        if path.is_dir() and not all(map(self._inside, path.iterdir())):
            raise refused
        return path

    def facts(self, entry: Entry) -> Facts | str:
        """Return what the card of a trace says, or why the trace cannot be read."""

        def look() -> Facts | str:
            try:
                return facts(self.trace(entry.address))
            except ChunkscopeError as error:
                return str(error).replace(str(self.root / entry.name), entry.name)

        return self._facts.get((entry.name, entry.stamp), look)

    def knows(self, entry: Entry) -> bool:
        """Return whether `facts` would answer at once."""
        return (entry.name, entry.stamp) in self._facts

    def add_upload(self, name: str, content: bytes) -> str:
        """Keep a file that came from a page, and return its address.

        Raises:
            Refused: It is too large.
            TraceFormatError: It is no trace.
        """
        if len(content) > MAX_UPLOAD_BYTES:
            limit, size = format_bytes(MAX_UPLOAD_BYTES), format_bytes(len(content))
            raise Refused(f"{name} has {size}; up to {limit} can be dropped here")
        if self._drawer is None:
            self._drawer = Path(tempfile.mkdtemp(prefix="chunkscope-"))
            weakref.finalize(self, shutil.rmtree, self._drawer, ignore_errors=True)
        number = next(self._numbers)
        suffix = Path(name).suffix.lower()
        path = self._drawer / f"{number}{suffix if suffix in SUFFIXES else ''}"
        path.write_bytes(content)
        try:
            open_trace(path)
        except ChunkscopeError as error:
            path.unlink()
            raise TraceFormatError(str(error).replace(str(path), name)) from None
        self._uploads[number] = path
        return f"upload/{number}/{quote(Path(name).name)}"

    def trace(self, address: str) -> Trace:
        """Return the trace of an address.

        Raises:
            Refused: The address names nothing that may be opened.
            ChunkscopeError: The file cannot be read, or the simulation makes no sense.
        """
        kind, _, rest = address.partition("/")
        if kind == "trace":
            path = self.locate(unquote(rest))
            return self._traces.get(self._mark(address), lambda: open_trace(path))
        if kind == "upload":
            number = rest.partition("/")[0]
            upload = self._uploads.get(int(number)) if number.isdecimal() else None
            if upload is None:
                raise Refused("that upload is gone: drop the file again")
            return self._traces.get(address, lambda: open_trace(upload))
        if kind == "sim":
            spec = spec_of(rest)
            return self._traces.get(address, lambda: spec.trace())
        if kind == "how":
            return self._traces.get(self._mark(address), lambda: self._how(rest))
        raise Refused(f"{address}: no such page")

    def _mark(self, address: str) -> Hashable:
        """Return what changes whenever the trace of an address does."""
        kind, _, rest = address.partition("/")
        if kind == "how":
            return address, self._mark(rest.split("/", 2)[-1])
        entry = self._entry(unquote(rest)) if kind == "trace" else None
        return address, entry.stamp if entry is not None else None

    def _how(self, rest: str) -> Trace:
        from .how import could_be

        algorithm, call, address = (*rest.split("/", 2), "", "")[:3]
        if not call.isdecimal() or not address or address.startswith("how/"):
            raise Refused(f"how/{rest}: no such page")
        return could_be(self.trace(address), int(call), unquote(algorithm))

    def story(self, address: str, call: int) -> Story:
        """Return what happens in one call of a trace.

        Raises:
            Refused: There is no such trace or call.
            ChunkscopeError: The trace cannot be read.
        """
        trace = self.trace(address)
        if not 0 <= call < len(trace.calls()):
            raise Refused(f"{address} has no call {call}")
        return self._stories.get((self._mark(address), call), lambda: tell(trace, call))

    def film(self, address: str, call: int, view: str) -> Film:
        """Return the film of one call of a trace.

        Raises:
            Refused: There is no such trace or call.
            ChunkscopeError: The trace cannot be read.
        """
        trace = self.trace(address)
        if not 0 <= call < max(1, len(trace.calls())) or view not in ("simple", "full"):
            raise Refused(f"{address} has no call {call}")
        return self._films.get(
            (self._mark(address), call, view), lambda: film(trace, call, view=view)
        )

    def picture(self, address: str, theme: str) -> str:
        """Return a small picture of a trace's first call, as SVG without fonts.

        Raises:
            Refused: There is no such trace.
            ChunkscopeError: The trace cannot be read.
            ValueError: There is nothing to draw.
        """
        trace = self.trace(address)
        return self._pictures.get(
            (self._mark(address), theme), lambda: thumbnail(trace, theme=theme)
        )


def checked(spec: Spec) -> Spec:
    """Return a spec that came from a page, if it names no code or file and is of bearable size.

    Raises:
        ScheduleError: Something is wrong with it; the message says what is expected.
    """
    names = [entry.name for entry in algorithms(spec.collective)]
    if spec.algorithm is not None and spec.algorithm not in names:
        raise ScheduleError(
            f"unknown algorithm {spec.algorithm!r} for {spec.collective}; known: {', '.join(names)}"
        )
    if not 1 <= spec.ranks <= MAX_RANKS:
        raise ScheduleError(f"{spec.ranks} ranks; this page simulates 1 to {MAX_RANKS}")
    if spec.size_bytes is not None and spec.size_bytes > MAX_BYTES:
        raise ScheduleError(f"this page simulates up to {format_bytes(MAX_BYTES)}")
    return spec


def default_of(collective: str) -> str:
    """Return the name of a collective's default algorithm."""
    known = algorithms(collective)
    return next((entry.name for entry in known if entry.default), known[0].name)


def spec_of(rest: str) -> Spec:
    """Return the spec in the address ``sim/<spec>[/<topology>]``, its first word left out.

    Raises:
        ScheduleError: A part is wrong.
    """
    words, _, topology = rest.partition("/")
    spec = checked(parse_spec(unquote(words)))
    return replace(spec, topology=unquote(topology) or None)


def address_of(spec: Spec) -> str:
    """Return the address of a simulation; the reverse of `spec_of`.

    Example:
        >>> address_of(Spec("all_reduce", "ring", 8, 64, topology="star:25GB/s,5us"))
        'sim/all_reduce:ring:8:64/star%3A25GB%2Fs%2C5us'
    """
    size = f":{spec.size_bytes}" if spec.size_bytes is not None else ""
    words = f"{spec.collective}:{spec.algorithm or default_of(spec.collective)}:{spec.ranks}{size}"
    where = f"/{quote(spec.topology, safe='')}" if spec.topology else ""
    return f"sim/{quote(words, safe=':')}{where}"
