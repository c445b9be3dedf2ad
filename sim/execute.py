"""Schedules on real ranks: each row is a send at one rank and a receive at another.

    ring = chunkscope.build("all_reduce", "ring", dist.get_world_size())
    chunkscope.execute(ring, gradients, "AVG")

    with chunkscope.record("chunkscope-out/run"):       # every message and what it carried
        chunkscope.execute(ring, gradients)

Works with any backend of torch.distributed that has send and recv; where messages must be issued
together (all but CPU tensors), they are batched. The plan of a rank's actions is in `program`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import ScheduleError
from ..traces.record import current
from .bind import Splits
from .execution_log import ExecutionLog
from .plan import Plan, hashable, plan_call
from .program import ISSUES, Action, Do, Piece
from .schedule import Schedule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

# Tags of ours start here, so that they do not meet those of the program's own messages.
FIRST_TAG = 1 << 30
_N_TAGS = 1 << 29

Combine = Callable[["Tensor", "Tensor"], object]


def execute(
    schedule: Schedule,
    tensor: Tensor,
    op: str = "SUM",
    group: ProcessGroup | None = None,
    *,
    output: Tensor | None = None,
    splits: Splits | None = None,
    factor: float | None = None,
) -> Tensor | None:
    """Carry out a schedule with the other ranks of a group and return this rank's output.

    Every rank of the group calls it, as with a collective of torch.distributed. Where a recorder is
    active (`chunkscope.record`), the call, its messages and their contents are recorded.

    Args:
        schedule: The plan; its group size must be the group's. It is verified once.
        tensor: This rank's input, of any shape, contiguous or not. all_reduce, broadcast and reduce
            work in place. A rank that the collective takes no input from (broadcast and scatter,
            except at the root) gives the tensor to fill.
        op: SUM, AVG, PRODUCT, MIN or MAX, BAND, BOR or BXOR (integers and bool), or PREMUL_SUM
            (floating point), where the collective reduces. AVG is a sum, divided once at the end;
            for integers the quotient is rounded towards zero.
        group: A process group; None for the default one.
        output: Where to write the output. By default a new tensor, or `tensor` itself for the
            collectives that work in place.
        splits: Elements of each rank's block where blocks differ, see `bind`.
        factor: What PREMUL_SUM multiplies each input by.

    Returns:
        The output: for all_reduce, broadcast and reduce `tensor`; for all_gather and gather the
        blocks of all ranks, one after the other along dimension 0; for reduce_scatter and scatter
        this rank's block; for all_to_all the blocks that it received. None where the rank has no
        output (reduce and gather, except at the root), and outside of the group.

    Raises:
        ScheduleError: The schedule breaks a rule, has helpers, or does not fit the group, the
            tensor, the operation or the splits.
        RuntimeError: A peer is gone or does not answer, from torch.distributed.
    """
    import torch

    process_group = _member_of(group)
    if process_group is None:
        return None
    if tensor.layout is not torch.strided:
        raise ScheduleError(f"tensor is {tensor.layout}, expected a dense one")
    plan = plan_call(
        schedule,
        process_group.rank(),
        process_group.size(),
        op,
        tensor.numel(),
        str(tensor.dtype).removeprefix("torch."),
        hashable(splits),
        is_batched=tensor.device.type != "cpu",
        factor=factor,
    )
    target = _target(plan, tensor, output)
    with torch.no_grad():
        call = _Call(plan, process_group, tensor, target)
        with _recorded(call):
            call.run()
    return target


def _member_of(group: ProcessGroup | None) -> ProcessGroup | None:
    """Return the process group, or None where this rank is outside of it."""
    import torch.distributed as dist

    if not dist.is_initialized():
        raise ScheduleError("torch.distributed is not initialised: call init_process_group first")
    found = dist.group.WORLD if group is None else group
    # What new_group gives to an outsider is no group.
    return found if isinstance(found, dist.ProcessGroup) else None


def _target(plan: Plan, tensor: Tensor, output: Tensor | None) -> Tensor | None:
    """Return the tensor that this rank's output goes to, None where it has none."""
    kind, program = plan.bound.schedule.kind, plan.program
    if not program.has_output:
        return None
    count = program.output_elements
    if output is not None:
        if output.numel() != count or output.dtype != tensor.dtype:
            raise ScheduleError(
                f"{kind.name}: output has {output.numel()} elements of {output.dtype}, "
                f"expected {count} of {tensor.dtype}",
                place=plan.place,
            )
        return output
    if kind.sends == kind.receives or not program.has_input:
        return tensor
    rest = tensor.shape[1:]
    divides = rest.numel() > 0 and count % rest.numel() == 0
    return tensor.new_empty((count // rest.numel(), *rest) if divides else (count,))


@contextmanager
def _recorded(call: _Call) -> Iterator[None]:
    """Write the call's rows where a recorder is active, and keep its hooks still inside."""
    import torch.distributed as dist

    recorder = current()
    if recorder is None:
        yield
        return
    plan = call.plan
    ranks = [dist.get_global_rank(call.group, rank) for rank in range(call.group.size())]
    log = call.log = ExecutionLog(
        recorder, plan.bound, plan.place, recorder.group(call.group), ranks
    )
    with recorder.silent(), log.collective(plan.op, call.tensor, call.output):
        yield


class _Call:
    """One execution at one rank: its memory, and the loop over its actions."""

    def __init__(
        self, plan: Plan, group: ProcessGroup, tensor: Tensor, output: Tensor | None
    ) -> None:
        self.plan = plan
        self.combine = _combine(plan.op)
        self.group = group
        self.tensor = tensor
        self.output = output
        self.log: ExecutionLog | None = None
        self.works: dict[int, Any] = {}

    def run(self) -> None:
        """Do the actions, then write the output back where it was not computed in place."""
        given = self.tensor.detach().contiguous().view(-1)
        result = self._lay_out(self._scaled(given))
        for actions in self.plan.groups:
            if actions[0].do in ISSUES:
                self._issue(actions)
            else:
                self._finish(actions)
        if not self.plan.is_batched:
            _kept_room[:] = [self.room]
        if self.output is None:
            return
        if self.plan.op == "AVG" and self.plan.bound.schedule.kind.reduces:
            is_exact = result.is_floating_point() or result.is_complex()
            size = self.plan.bound.schedule.group_size
            result.div_(size, rounding_mode=None if is_exact else "trunc")
        if result.data_ptr() != self.output.data_ptr():
            self.output.copy_(result.view(self.output.shape))

    def _scaled(self, given: Tensor) -> Tensor:
        """Return the input as it is summed: multiplied by the factor, where there is one."""
        factor, kind = self.plan.factor, self.plan.bound.schedule.kind
        if factor is None or not kind.reduces or not self.plan.program.has_input:
            return given
        return given.mul_(factor) if self.output is self.tensor else given * factor

    def _lay_out(self, given: Tensor) -> Tensor:
        """Put the input where the schedule wants it, make room for the rest, return the output.

        Args:
            given: The rank's tensor, contiguous and flat.
        """
        program = self.plan.program
        if self.output is None:
            result = given[:0]
        elif self.output is self.tensor:
            result = given
        elif self.output.is_contiguous():
            result = self.output.detach().view(-1)
        else:
            result = given.new_empty(self.output.numel())
        if result is not given and self.output is not None:
            for start, to, count in program.copies:
                result[to : to + count].copy_(given[start : start + count])
        scratch = given.new_empty(program.scratch_elements)
        self.buffers = (given.clone() if program.writes_input else given, result, scratch)
        size = program.staging_elements
        room = self.room = _take_room(given, program.n_staging * size)
        self.staging = [room[k * size : (k + 1) * size] for k in range(program.n_staging)]
        return result

    def _view(self, piece: Piece) -> Tensor:
        return self.buffers[piece.buffer][piece.start : piece.stop]

    def _views(self, action: Action) -> list[Tensor]:
        return [self._view(piece) for part in action.parts for piece in part.pieces]

    def _issue(self, actions: tuple[Action, ...]) -> None:
        """Post sends and receives."""
        if self.plan.is_batched:
            self._issue_batch(actions)
            return
        for action in actions:
            peer, tag = action.peer, _tag(action)
            if action.do is Do.START:
                self.works[action.key] = self.group.send([self._outgoing(action)], peer, tag)
            else:
                self.works[action.key] = self.group.recv([self._incoming(action)], peer, tag)

    def _issue_batch(self, actions: tuple[Action, ...]) -> None:
        import torch.distributed as dist

        messages = []
        for action in actions:
            is_send = action.do is Do.START
            data = self._outgoing(action) if is_send else self._incoming(action)
            issue = dist.isend if is_send else dist.irecv
            peer = dist.get_global_rank(self.group, action.peer)
            messages.append(dist.P2POp(issue, data, peer, self.group, _tag(action)))
        issued = dist.batch_isend_irecv(messages)
        for k, action in enumerate(actions):  # some backends give one work for all
            self.works[action.key] = issued[k if len(issued) == len(actions) else 0]

    def _finish(self, actions: tuple[Action, ...]) -> None:
        """Wait for what was issued, and write what arrived."""
        for action in actions:
            work = self.works.pop(action.key, None)
            if work is not None:
                work.wait()
                if self.log is not None:
                    _drain(self.tensor)
            if action.do is Do.WRITE:
                self._write(action)
            elif action.do is Do.SNAP:
                self._snap(action)
            elif self.log is not None:
                self.log.sent(action)

    def _outgoing(self, action: Action) -> Tensor:
        """Return what a message carries: straight from its slots, or packed."""
        import torch

        views = self._views(action)
        if self.log is not None:
            self.log.started(action, views)
        if len(views) == 1:
            return views[0]
        return torch.cat(views) if views else self.buffers[0][:0]

    def _incoming(self, action: Action) -> Tensor:
        """Return where a message arrives: in its slots, or in a staging buffer."""
        if self.log is not None:
            self.log.posted(action, [] if action.staging is not None else self._views(action))
        if action.staging is not None:
            return self.staging[action.staging][: action.elements]
        return next(iter(self._views(action)), self.buffers[0][:0])

    def _snap(self, action: Action) -> None:
        assert action.staging is not None
        room, at = self.staging[action.staging], 0
        for view in self._views(action):
            room[at : at + len(view)].copy_(view)
            at += len(view)

    def _write(self, action: Action) -> None:
        """Copy or reduce what arrived into its slots."""
        log = self.log
        staged = None if action.staging is None else self.staging[action.staging]
        at = 0
        for part in action.parts:
            slots = [self._view(piece) for piece in part.pieces]
            if staged is None:
                if log is not None:
                    log.arrived(action, part, slots, None)
                    log.written(action, part, slots)
                continue
            arrived = []
            for view in slots:
                arrived.append(staged[at : at + len(view)])
                at += len(view)
            if log is not None:
                log.arrived(action, part, arrived, slots)
            for view, data in zip(slots, arrived, strict=True):
                if part.reduces:
                    self.combine(view, data)
                else:
                    view.copy_(data)
            if log is not None:
                log.written(action, part, slots)


# Staging memory of the last call: fresh memory would cost a page fault every 4 KB.
_kept_room: list[Tensor] = []


def _take_room(like: Tensor, elements: int) -> Tensor:
    """Return memory for so many elements, that of the last call where it fits."""
    try:
        room = _kept_room.pop()
    except IndexError:
        return like.new_empty(elements)
    fits = room.dtype == like.dtype and room.device == like.device and len(room) >= elements
    return room if fits else like.new_empty(elements)


def _tag(action: Action) -> int:
    return FIRST_TAG + action.tag % _N_TAGS


def _combine(op: str) -> Combine:
    """Return the function that combines what arrived into a slot, in place."""
    import torch

    if op == "PRODUCT":
        return lambda slot, data: slot.mul_(data)
    bitwise = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}
    if op in bitwise:
        return lambda slot, data: bitwise[op](slot, data, out=slot)
    if op in ("MIN", "MAX"):
        pick = torch.minimum if op == "MIN" else torch.maximum
        return lambda slot, data: pick(slot, data, out=slot)
    return lambda slot, data: slot.add_(data)


def _drain(tensor: Tensor) -> None:
    """Let a GPU finish what was waited for: its wait returns before, and times would be wrong."""
    import torch

    if tensor.is_cuda:
        torch.cuda.current_stream(tensor.device).synchronize()
