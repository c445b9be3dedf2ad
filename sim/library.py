"""Schedules by name.

build("all_reduce", "ring", 8)
resolve("all_reduce", "my_rings.py:two_rings", 8)
for entry in algorithms("broadcast"): print(entry.name, entry.doc)
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import ScheduleError
from . import parameters as written
from .algorithms import ALGORITHMS, Algorithm, Phase, phases_of_rows
from .collectives import COLLECTIVES
from .collectives import collective as collective_named
from .room import check_room
from .schedule import Schedule
from .text import parse

# Ranks are numbered in 32 bits.
_MOST_RANKS = np.iinfo(np.int32).max


def algorithms(collective: str | None = None, group_size: int | None = None) -> list[Algorithm]:
    """Return the algorithms that can be asked for: each collective's default, then by name.

    Args:
        collective: Name of the collective; None for all.
        group_size: Number of ranks that they must be able to do; None for any.

    Raises:
        ScheduleError: There is no such collective.
    """
    if collective is not None:
        collective_named(collective)
    found = [entry for entry in ALGORITHMS.values() if collective in (None, entry.collective)]
    if group_size is not None:
        found = [entry for entry in found if entry.sizes.fits(group_size)]
    order = list(COLLECTIVES)
    return sorted(found, key=lambda e: (order.index(e.collective), not e.default, e.name))


def build(
    collective: str,
    algorithm: str | None,
    group_size: int,
    *,
    root: int | None = None,
    **parameters: Any,
) -> Schedule:
    """Return the schedule of an algorithm.

    Args:
        collective: Name of the collective.
        algorithm: Name of the algorithm; None for the default.
        group_size: Number of ranks.
        root: Rank of the root; None for 0 where the collective has one.
        parameters: What the algorithm takes beside, such as `segments`.

    Raises:
        ScheduleError: The name is unknown or the algorithm does not fit; says what does. Or its
            transfers would not fit into memory.

    Example:
        >>> len(build("all_reduce", "ring", 4))
        24
    """
    kind = collective_named(collective)
    if group_size < 1:
        raise ScheduleError(f"group size is {group_size}, expected 1 or more")
    if group_size > _MOST_RANKS:
        raise ScheduleError(f"group size is {group_size}, expected at most {_MOST_RANKS}")
    entry = _named(collective, algorithm)
    if not entry.sizes.fits(group_size):
        near = _sizes_near(entry, group_size)
        raise ScheduleError(
            f"{collective} {entry.name} does not fit {group_size} ranks; it does "
            f"{entry.sizes.text}; try {' or '.join(map(str, near))}"
        )
    unknown = next((name for name in parameters if name not in entry.parameters), None)
    if unknown is not None:
        known = ", ".join(entry.parameters) or "no parameters"
        raise ScheduleError(f"{collective} {entry.name} takes no {unknown!r}; it takes: {known}")
    _check_kinds(entry, parameters)
    if kind.rooted:
        parameters["root"] = 0 if root is None else root
    elif root is not None:
        raise ScheduleError(f"{collective} has no root, found {root}")
    called = f"{collective} {entry.name}"
    check_room(called, entry.builder, entry.sizes.fits, group_size, parameters)
    try:
        return entry.builder(group_size, **parameters)
    except MemoryError:
        raise ScheduleError(f"{called} on {group_size} ranks does not fit into memory") from None


def _check_kinds(entry: Algorithm, parameters: dict[str, Any]) -> None:
    """Raise where a word or a list is given for a number, or the other way round."""
    for name, value in parameters.items():
        kind = entry.builder.__annotations__[name]
        expected = "word" if "str" in kind else "list" if "Sequence" in kind else "number"
        found = "word" if isinstance(value, str) else "list" if np.ndim(value) else "number"
        if value is not None and found != expected:
            shape = " such as 2x4" if expected == "list" else ""
            where = f"{entry.collective} {entry.name}"
            raise ScheduleError(f"{where}: {name} is {value!r}, expected a {expected}{shape}")


def _sizes_near(entry: Algorithm, group_size: int) -> list[int]:
    """Return the nearest group sizes below and above that an algorithm can do."""
    below = next(filter(entry.sizes.fits, range(group_size - 1, 0, -1)), None)
    above = next(filter(entry.sizes.fits, range(group_size + 1, 2 * group_size + 1)), None)
    return [size for size in (below, above) if size is not None]


def _named(collective: str, name: str | None) -> Algorithm:
    known = algorithms(collective)
    if name is None:
        return next((entry for entry in known if entry.default), known[0])
    names = [entry.name for entry in known]
    if name in names:
        return known[names.index(name)]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise ScheduleError(
        f"unknown algorithm {name!r} for {collective}{hint}; known: {', '.join(names)}"
    )


def resolve(
    collective: str | None,
    algorithm: str | None = None,
    group_size: int | None = None,
    *,
    root: int | None = None,
    **parameters: Any,
) -> Schedule:
    """Return the schedule that a user means: by an algorithm's name, a function or a text file.

    A function runs the user's code, so nothing that comes from a page may come here.

    Args:
        collective: Name of the collective; None where a text file says it.
        algorithm: A name, ``file.py:function``, ``package.module:function`` or the path of a
            schedule's text file; None for the default. The function takes the group size (and
            `root` if it has such a parameter) and returns a Schedule. Parameters may follow, as in
            ``ring_segmented:segments=8``.
        group_size: Number of ranks; None where a text file says it.
        root: Rank of the root.
        parameters: What the algorithm takes beside.

    Raises:
        ScheduleError: There is no such thing, or its schedule is of another collective, group size
            or root.
    """
    if algorithm is not None:
        algorithm, given = written.split(algorithm)
        parameters = given | parameters
    if algorithm is not None and _is_function(algorithm):
        if group_size is None:
            raise ScheduleError(f"{algorithm} needs a group size")
        schedule = _call(_function(algorithm), algorithm, group_size, root, parameters)
    elif algorithm is not None and _is_file(algorithm):
        schedule = _read(algorithm)
    else:
        if collective is None or group_size is None:
            raise ScheduleError(f"algorithm {algorithm!r} needs a collective and a group size")
        return build(collective, algorithm, group_size, root=root, **parameters)
    for name, wanted in (("collective", collective), ("group_size", group_size), ("root", root)):
        found = getattr(schedule, name)
        if wanted is not None and found != wanted:
            words = name.replace("_", " ")
            raise ScheduleError(f"{algorithm}: {words} is {found}, expected {wanted}")
    return schedule


def phases(schedule: Schedule) -> list[Phase]:
    """Return what the steps of a schedule do, for a picture of it.

    An algorithm known by name tells; for others, and for a plan that only bears a known name, the
    rows do.

    Returns:
        Phases that follow each other from step 0 to the last; none without steps.

    Example:
        >>> [phase.name for phase in phases(build("all_reduce", "ring", 4))]
        ['reduce-scatter', 'all-gather']
    """
    entry = ALGORITHMS.get((schedule.collective, schedule.algorithm))
    if schedule.n_steps == 0:
        return []
    if entry is not None and entry.phases is not None:
        told = entry.phases(schedule)
        if _match(told, schedule):
            return told
    return phases_of_rows(schedule)


def _match(told: list[Phase], schedule: Schedule) -> bool:
    """Return whether phases cover the steps, each with rows that all reduce or all copy."""
    if sum(phase.n_steps for phase in told) != schedule.n_steps:
        return False
    for phase in told:
        low, high = phase.first_step, phase.first_step + phase.n_steps
        reduce = schedule.reduce[slice(*np.searchsorted(schedule.step, [low, high]))]
        if reduce.any() and not reduce.all():
            return False
    return True


def _is_function(spec: str) -> bool:
    module, colon, name = spec.rpartition(":")
    return bool(colon and module and name.isidentifier())


def _is_file(spec: str) -> bool:
    return "/" in spec or "." in spec or Path(spec).is_file()


def _read(path: str) -> Schedule:
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no UTF-8 text"
        raise ScheduleError(f"{path}: cannot read a schedule: {reason}") from None
    return parse(text, file=path)


def _function(spec: str) -> Any:
    """Return the function that ``file.py:function`` or ``package.module:function`` names."""
    where, _, name = spec.rpartition(":")
    module = _load_file(where) if where.endswith(".py") else _load_module(where)
    function = getattr(module, name, None)
    if callable(function):
        return function
    known = [key for key, value in vars(module).items() if inspect.isfunction(value)]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ScheduleError(f"{where} has no function {name!r}{hint}")


def _load_file(path: str) -> ModuleType:
    if not Path(path).is_file():
        raise ScheduleError(f"no such file: {path}")
    # A name that cannot hide another module; dataclasses look their module up by it.
    name = f"chunkscope_user_file_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ScheduleError(f"{path} cannot be loaded as Python")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ScheduleError(f"{path} cannot be loaded: {_told(error)}") from error
    return module


def _load_module(name: str) -> ModuleType:
    # As `python -m` does, so that a module beside the caller is found.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise ScheduleError(f"module {name!r} cannot be loaded: {_told(error)}") from error


def _call(
    function: Any, spec: str, group_size: int, root: int | None, parameters: dict[str, Any]
) -> Schedule:
    if root is not None and "root" in inspect.signature(function).parameters:
        parameters = {**parameters, "root": root}
    try:
        schedule = function(group_size, **parameters)
    except ScheduleError:
        raise
    except Exception as error:
        raise ScheduleError(f"{spec} failed for {group_size} ranks: {_told(error)}") from error
    if not isinstance(schedule, Schedule):
        kind = type(schedule).__name__
        raise ScheduleError(f"{spec} returned {kind}, expected a Schedule")
    return schedule


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
