"""Loops that numba compiles where they are long enough to be worth it.

    @kernel
    def total(values): ...

    total(values)                   # as Python runs it
    run(total, n=len(values))(values)     # compiled, if n is large and numba is there

The same source runs both ways. A small schedule never pays for loading a compiler, and without
numba all results are the same, only later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from types import FunctionType
from typing import Any, TypeVar

# From so many transfers on, loading numba and its cached code takes less time than plain Python.
WORTH = 20_000

F = TypeVar("F", bound=Callable[..., Any])
_KERNELS: set[Any] = set()
_ALLOCATE: set[Any] = set()
_EXPECTED: ContextVar[int] = ContextVar("expected", default=0)


def kernel(function: F) -> F:
    """Mark a function of numbers, arrays and NamedTuples of arrays as one that can be compiled.

    It makes no arrays or lists of its own, unless it is marked `allocates` as well.
    """
    _KERNELS.add(function)
    return function


def allocates(function: F) -> F:
    """Mark a kernel as one that makes arrays or lists."""
    _ALLOCATE.add(function)
    return function


def run(function: F, n: int) -> F:
    """Return a kernel as it is best run.

    Args:
        function: The kernel; kernels that it calls are compiled along with it.
        n: How many transfers it will go through.
    """
    return _compiled(function) if compiles(n) else function


def compiles(n: int) -> bool:
    """Return whether `run` compiles a kernel that goes through so many transfers."""
    return max(n, _EXPECTED.get()) >= WORTH and has_numba()


@contextmanager
def expecting(n: int) -> Iterator[None]:
    """Let kernels be compiled where many small schedules, not one large, make it worth it.

    Args:
        n: How many transfers the kernels that run inside will go through, all together.
    """
    token = _EXPECTED.set(n)
    try:
        yield
    finally:
        _EXPECTED.reset(token)


@cache
def has_numba() -> bool:
    """Return whether numba is installed, without loading it."""
    return find_spec("numba") is not None


@cache
def _compiled(function: Any) -> Any:
    import numba

    scope = dict(function.__globals__)
    for name in function.__code__.co_names:
        if scope.get(name) in _KERNELS:
            scope[name] = _compiled(scope[name])
    copy = FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
    copy.__module__ = function.__module__
    # The cache asks only whether a kernel's own file has changed, and finds it by its name.
    copy.__qualname__ = f"{function.__qualname__}_{_fingerprint(function)}"
    options: dict[str, Any] = {
        "cache": True,
        "nogil": True,
        # Counting references to so many arrays, and passing them on, would take most of the time.
        "_nrt": function in _ALLOCATE,
        "forceinline": True,
    }
    compiled = numba.njit(copy, **options)
    typed = compiled.get_call_template
    compiled.get_call_template = lambda args, kws: typed(tuple(map(_plain, args)), kws)
    return compiled


def _plain(type: Any) -> Any:
    """Return the type of an argument as all calls have it: no version for each constant or size."""
    import numba

    plain: Any = numba.types
    type = plain.unliteral(type)
    return plain.int64 if isinstance(type, plain.Integer) else type


@cache
def _fingerprint(function: Any) -> str:
    """Return a short text that changes with a kernel, those that it calls, and its constants."""
    code = function.__code__
    used = [function.__globals__.get(name) for name in code.co_names]
    parts = [code.co_code.hex(), repr(code.co_consts), repr(code.co_names)]
    parts += [
        _fingerprint(it) if callable(it) and it in _KERNELS else repr(it)
        for it in used
        if isinstance(it, int | float) or (callable(it) and it in _KERNELS)
    ]
    return sha256("\n".join(parts).encode()).hexdigest()[:12]
