"""What each c10d operation is: worked out from its schema, so that new torch versions fit, too.

A c10d operation is named here by its schema's name without the namespace, such as `allreduce_` or
`_allgather_base_`. Its arguments are told apart by type and by name: tensors whose name begins with
`output` are written, with `input` read, and `tensors` are both, but for send and recv.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

# Longest name first where one begins with another.
_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "gather": "gather",
    "scatter": "scatter",
    "alltoall": "all_to_all",
    "barrier": "barrier",
    "monitored_barrier": "barrier",
}
REDUCE_OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")


@dataclass(frozen=True, slots=True)
class Plan:
    """How to read the arguments and the result of one operation.

    Attributes:
        name: Name of the operation.
        kind: See `schema.Kind`: collective, send or recv.
        collective: As torch spells it; None for send and recv.
        group: Number of the argument that is the process group.
        inputs: Numbers of the arguments whose tensors are read.
        outputs: Numbers of the arguments whose tensors are written.
        role: Roles of inputs and outputs, as bytes of a record.
        is_simple: Whether there is one list of tensors, read and written.
        ints: Number and default of each argument that is a number, by name.
        places: Numbers of those arguments.
        tail: Where the arguments begin that are all single numbers; 0 where it is not so simple.
        reduce_op: Number of the argument that is a reduce op; None for none.
        work: Where the Work is in the result: -1 is the result itself; None for none.
    """

    name: str
    kind: str
    collective: str | None
    group: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    role: tuple[bytes, bytes]
    is_simple: bool
    ints: dict[str, tuple[int, Any]]
    places: tuple[int, ...]
    tail: int
    reduce_op: int | None
    work: int | None

    def number(self, name: str, args: tuple[Any, ...]) -> Any:
        """Return an argument by name, its default where the caller left it out, None for none."""
        found = self.ints.get(name)
        if found is None:
            return None
        return args[found[0]] if found[0] < len(args) else found[1]


def plans() -> dict[str, tuple[Plan, Any]]:
    """Return the plan and the overload of each c10d operation that takes a process group."""
    found: dict[str, tuple[Plan, Any]] = {}
    for full in torch._C._dispatch_get_all_op_names():
        if not full.startswith("c10d::"):
            continue
        name = full.removeprefix("c10d::").partition(".")[0]
        overload = getattr(torch.ops.c10d, name).default
        if any(_is(argument, "ProcessGroup") for argument in overload._schema.arguments):
            found[name] = (plan_of(name, overload._schema), overload)
    return found


def plan_of(name: str, schema: Any) -> Plan:
    """Return the plan of an operation from its schema."""
    arguments = list(enumerate(schema.arguments))
    tensors = [(at, argument.name) for at, argument in arguments if "Tensor" in str(argument.type)]
    outputs = tuple(at for at, label in tensors if label.startswith("output"))
    inputs = tuple(at for at, label in tensors if label.startswith("input"))
    in_place = tuple(at for at, label in tensors if label == "tensors")
    kind = _kind(name)
    returns = [str(item.type) for item in schema.returns]
    works = [at for at, type in enumerate(returns) if type.endswith("c10d.Work")]
    payload = (b"payload", b"payload") if kind != "collective" else (b"input", b"output")
    ints = {
        argument.name: (at, argument.default_value)
        for at, argument in arguments
        if str(argument.type) in ("int", "bool", "List[int]")
    }
    return Plan(
        name=name,
        kind=kind,
        collective=_collective(name) if kind == "collective" else None,
        group=next(at for at, argument in arguments if _is(argument, "ProcessGroup")),
        inputs=inputs + (in_place if kind != "recv" else ()),
        outputs=outputs + (in_place if kind != "send" else ()),
        role=payload,
        is_simple=bool(in_place) and not inputs and not outputs,
        ints=ints,
        places=tuple(at for at, _ in ints.values()),
        tail=_tail(schema.arguments),
        reduce_op=next((at for at, argument in arguments if _is(argument, "ReduceOp")), None),
        work=None if not works else -1 if len(returns) == 1 else works[0],
    )


def flat(value: Any) -> list[torch.Tensor]:
    """Return the tensors of an argument: a tensor, a list of them, or a list of lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    found: list[torch.Tensor] = []
    for item in value or ():
        if isinstance(item, torch.Tensor):
            found.append(item)
        else:
            found += item
    return found


def splits_of(
    plan: Plan, args: tuple[Any, ...], inputs: list[Any], outputs: list[Any]
) -> tuple[int, ...] | None:
    """Return the uneven sizes, in elements, inputs then outputs; None where all are even."""
    given = [plan.number(name, args) for name in ("input_split_sizes", "output_split_sizes")]
    if any(given):
        sizes: list[int] = []
        for rows, tensor in zip(given, (inputs[0], outputs[0]), strict=True):
            per_row = tensor.numel() // tensor.shape[0] if tensor.dim() and tensor.shape[0] else 0
            sizes += [row * per_row for row in rows or ()]
        return tuple(sizes)
    uneven = [[tensor.numel() for tensor in tensors] for tensors in (inputs, outputs)]
    if plan.is_simple or not any(len(set(sizes)) > 1 for sizes in uneven):
        return None
    return tuple(size for sizes in uneven if len(sizes) > 1 for size in sizes)


def size_bytes(plan: Plan, group_size: int, inputs: list[Any], outputs: list[Any]) -> int:
    """Return the bytes of the whole logical data.

    Source: nccl-tests, doc/PERFORMANCE.md: all_gather, reduce_scatter, gather, scatter and
    all_to_all count all ranks.
    """
    if plan.collective == "barrier":
        return 0
    if plan.collective == "gather":
        return group_size * _nbytes(inputs)
    if plan.collective == "scatter":
        return group_size * _nbytes(outputs)
    return _nbytes(outputs if plan.collective == "all_gather" else inputs or outputs)


def _nbytes(tensors: list[Any]) -> int:
    # Not `nbytes`, which sparse tensors lack: their logical data counts.
    return sum(int(tensor.numel()) * tensor.element_size() for tensor in tensors)


def _kind(name: str) -> str:
    bare = name.strip("_")
    return bare.partition("_")[0] if bare.startswith(("send", "recv")) else "collective"


def _collective(name: str) -> str:
    bare = name.strip("_")
    known = sorted((known for known in _COLLECTIVES if bare.startswith(known)), key=len)
    return _COLLECTIVES[known[-1]] if known else bare


def _tail(arguments: Any) -> int:
    """Return where the single numbers at the end begin, 0 where there are lists of numbers."""
    types = [str(argument.type) for argument in arguments]
    tail = len(types)
    while tail and types[tail - 1] in ("int", "bool"):
        tail -= 1
    return 0 if "List[int]" in types else tail


def _is(argument: Any, type_name: str) -> bool:
    return str(argument.type).endswith(f"c10d.{type_name}")
