"""Takes out of a trace what should not be shared: values, paths and names, hosts.

    shared = strip(chunkscope.read("chunkscope-out/run"))
    chunkscope.write(shared, "shared.parquet")

What is left tells who sent what to whom, how much, and when. Names become placeholders, equal where
the names were, so that lines, threads and hosts can still be told apart. Only words that this
module knows pass as they are; everything else that is text is replaced.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from .columns import Column, Table
from .schema import DTYPES, Type
from .trace import Meta, Site, Trace

_VALUES = ("data", "first", "digest", "digest_of", "min", "max", "mean", "nan")
_COLLECTIVES = [
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "send_recv",
    "barrier",
    "init_process_group",
    "new_group",
    "destroy_process_group",
]
_REDUCE_OPS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"]
# Functions of torch.distributed that a program calls, and the classes that call them.
_FUNCTIONS = [
    "all_reduce_coalesced",
    "all_gather_into_tensor",
    "all_gather_coalesced",
    "all_gather_object",
    "all_gather_single",
    "reduce_scatter_tensor",
    "reduce_scatter_single",
    "all_to_all_single",
    "broadcast_object_list",
    "gather_object",
    "scatter_object_list",
    "send_object_list",
    "recv_object_list",
    "monitored_barrier",
    "send",
    "recv",
    "isend",
    "irecv",
    "batch_isend_irecv",
    "split_group",
    "backward",
    "DistributedDataParallel",
    "FullyShardedDataParallel",
    "ZeroRedundancyOptimizer",
    "Tensor",
    "Module",
    "DeviceMesh",
    "init_device_mesh",
    "DTensor",
    "forward",
    "step",
    "wait",
    "execute",
]
_BACKENDS = re.compile(r"(?:(?:cpu|cuda|xpu|hpu|mps):)?(?:gloo|nccl|mpi|ucc|xccl|fake)")
_VERSION = re.compile(r"\d+(?:\.\d+)*(?:(?:a|b|rc|\.dev|\.post)\d+)?")
_BUILD = re.compile(r"\+(?:cpu|cu\d+|rocm[\d.]+|xpu)")
_PLAIN_KEY = re.compile(r"[a-z][a-z0-9_]{0,40}")
_FRAME = re.compile(r"(.*):(\d+) (.*)", re.DOTALL)
# Lines of a schedule's text form: transfers, and those that hold nothing but numbers and ranks.
_TRANSFER = re.compile(r"(\d+ +\d+ +)(\S+)(\[[\d:]+\] +(?:\+>|->|>) +)(\S+)(\[[\d:]+\])")
_PLAIN_LINE = re.compile(
    r"(?:group_size|root|window|idempotent|chunk_elements|input|output|scratch|after)"
    r"(?: +r?[\d:,x-]+)*"
)
_THREADS = ("MainThread", "not a Python thread")


def strip(
    trace: Trace,
    *,
    values: bool = True,
    paths: bool = True,
    hosts: bool = True,
    keep: Collection[str] = (),
) -> Trace:
    """Return a trace without what should not be shared.

    Args:
        trace: The trace, of any provenance.
        values: Take out all that tensors held: bytes, first values, statistics, digests.
        paths: Take out names that the program's author gave: source lines, and as placeholders
            files, functions, threads, labels of groups, algorithms.
        hosts: Take out where it ran: host names and names of recording files become placeholders;
            process ids are numbered; topology and model parameters in words are left out.
        keep: Names that pass as they are, such as those of built-in algorithms.

    Messages of errors, and notes, may hold any of the three, and go with each.

    Example:
        >>> strip(Trace.build({"kind": ["send"], "provenance": ["called"], "host": ["ada"]})
        ...      ).events["host"][0]
        'host-1'
    """
    names = _Names(keep)
    events, states, meta = trace.events, trace.states, trace.meta
    if values:
        states = states.replace(**{name: _nothing(states[name]) for name in _VALUES})
    if paths:
        events, states, meta = _without_names(events, states, meta, names)
    if hosts:
        events, meta = _without_hosts(events, meta, names)
    if values or paths or hosts:
        events = events.replace(error=_mapped(events["error"], _error_type))
        gone = [
            word
            for word, is_gone in (("values", values), ("paths", paths), ("hosts", hosts))
            if is_gone
        ]
        meta = replace(meta, notes=(f"stripped of {', '.join(gone)}",))
    return Trace(events, states, meta)


class _Names:
    """Gives each name of a kind a placeholder."""

    def __init__(self, keep: Collection[str]) -> None:
        self._keep = frozenset(keep)
        self._given: dict[str, dict[str, str]] = {}

    def of(self, kind: str, known: Collection[str] = ()) -> Callable[[str], str]:
        """Return what maps names: those known stay, others become `kind-1`, `kind-2` ..."""
        given = self._given.setdefault(kind, {})

        def name(text: str) -> str:
            if text in known or text in self._keep:
                return text
            return given.setdefault(text, f"{kind}-{len(given) + 1}")

        return name


def _without_names(
    events: Table, states: Table, meta: Meta, names: _Names
) -> tuple[Table, Table, Meta]:
    dtype, algorithm = names.of("dtype", DTYPES), names.of("algorithm")
    events = events.replace(
        api=_mapped(events["api"], _function_name(names)),
        collective=_mapped(events["collective"], names.of("collective", _COLLECTIVES)),
        algorithm=_mapped(events["algorithm"], algorithm),
        reduce_op=_mapped(events["reduce_op"], names.of("op", _REDUCE_OPS)),
        dtype=_mapped(events["dtype"], dtype),
        thread=_mapped(events["thread"], names.of("thread", _THREADS)),
    )
    states = states.replace(dtype=_mapped(states["dtype"], dtype))
    groups = tuple(
        replace(
            group,
            label=group.label if group.label.isdigit() else "",
            backend=",".join(
                part for part in group.backend.split(",") if _BACKENDS.fullmatch(part)
            ),
        )
        for group in meta.groups
    )
    schedules = tuple(_schedule(text, algorithm, names) for text in meta.schedules)
    sites = tuple(_site(site, names) for site in meta.sites)
    versions = {
        name: cleaned
        for name, version in meta.versions.items()
        if _PLAIN_KEY.fullmatch(name) and (cleaned := _version(version))
    }
    meta = replace(meta, groups=groups, schedules=schedules, sites=sites, versions=versions)
    return events, states, meta


def _without_hosts(events: Table, meta: Meta, names: _Names) -> tuple[Table, Meta]:
    host, file = names.of("host"), names.of("process")
    events = events.replace(file=_mapped(events["file"], file), host=_mapped(events["host"], host))
    processes = tuple(
        replace(process, file=file(process.file), host=host(process.host), pid=number)
        for number, process in enumerate(meta.processes, 1)
    )
    clocks = tuple(replace(clock, file=file(clock.file)) for clock in meta.clocks)
    model: dict[str, Any] = {
        name: value
        for name, value in meta.model.items()
        if _PLAIN_KEY.fullmatch(name) and (value is None or isinstance(value, bool | int | float))
    }
    return events, replace(meta, processes=processes, clocks=clocks, model=model, topology=None)


def _nothing(column: Column) -> Column:
    return Column.build(column.type, None, len(column))


def _mapped(column: Column, function: Callable[[str], str]) -> Column:
    """Return a text column with each text replaced; texts that become equal are one."""
    texts: dict[str, int] = {}
    used = np.unique(column.values[column.valid])
    codes = np.zeros(max(len(column.texts), 1), np.int32)
    for code in used.tolist():
        codes[code] = texts.setdefault(function(column.texts[code]), len(texts))
    values = np.where(column.valid, codes[column.values], 0).astype(np.int32)
    return Column(Type.TEXT, values, column.valid, tuple(texts))


def _function_name(names: _Names) -> Callable[[str], str]:
    known = {*_COLLECTIVES, *_FUNCTIONS}
    other = names.of("function")

    def name(text: str) -> str:
        parts = text.split(".")
        is_known = all(part in known or part.strip("_") in known for part in parts)
        return text if is_known else other(text)

    return name


def _site(site: Site, names: _Names) -> Site:
    file, function = names.of("file"), names.of("function")

    def frame(text: str) -> str:
        found = _FRAME.fullmatch(text)
        return f"{file(found[1])}:{found[2]} {function(found[3])}" if found else "a frame"

    return Site(
        file(site.file),
        site.line,
        function(site.function) if site.function else "",
        stack=tuple(frame(text) for text in site.stack),
    )


def _schedule(text: str, algorithm: Callable[[str], str], names: _Names) -> str:
    """Return a schedule's text with other names, without lines that are of no schedule."""
    maps = {
        "algorithm": algorithm,
        "collective": names.of("collective", _COLLECTIVES),
        "helper": names.of("helper"),
    }
    lines = []
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        found = _TRANSFER.fullmatch(line)
        if found:
            head, src, middle, dst, tail = found.groups()
            lines.append(head + _place(src, names) + middle + _place(dst, names) + tail)
        elif key in maps:
            lines.append(f"{key} {maps[key](value)}")
        elif _PLAIN_LINE.fullmatch(line):
            lines.append(line)
    return "\n".join([*lines, ""])


def _place(name: str, names: _Names) -> str:
    return name if re.fullmatch(r"r\d+", name) else names.of("helper")(name)


def _version(text: str) -> str:
    """Return a version without the name of a private build."""
    found = _VERSION.match(text)
    if found is None:
        return ""
    build = _BUILD.fullmatch(text[found.end() :])
    return found[0] + (build[0] if build else "")


def _error_type(text: str) -> str:
    """Return the type of an error alone."""
    name = text.partition(":")[0]
    is_known = isinstance(getattr(builtins, name, None), type) or re.fullmatch(
        r"Dist(?:Backend|Network|Store|Queue\w{0,5})?Error", name
    )
    return name if is_known else "Error"
