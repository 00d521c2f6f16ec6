"""The scan of a sequence that lies in shards on the ranks of a process group.

Forward: every rank multiplies its shard into one affine map ``[M | b]``, all maps are gathered once, the state that
enters a shard follows from the maps before it, and the shard is scanned from there.  Backward: every rank computes the
gradient of its states with respect to the state that enters it (``D`` numbers a row), all are gathered once, and those
of later ranks, carried back through the maps between, are added at the end of the shard.  The rest is the local scan.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from transductor.checks import one_of, readable, transformed
from transductor.kernels.precise import full_precision
from transductor.recurrence.arguments import Arguments
from transductor.recurrence.backends import BACKENDS, solved
from transductor.recurrence.chunked import affine_product
from transductor.recurrence.layout import Layout
from transductor.recurrence.overflow import all_finite
from transductor.recurrence.problem import Problem, folded
from transductor.recurrence.shards import Shards, gathered

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def sequence_parallel_scan(
    transitions: Tensor,
    tokens: Tensor | None = None,
    *,
    group: ProcessGroup | None = None,
    bias: Tensor | None = None,
    token_bias: Tensor | None = None,
    initial_state: Tensor | None = None,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    layout: Layout | None = None,
    backend: str = "auto",
    return_final: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return our shard of the states of :func:`~transductor.recurrence.scan` over the real numbers.

    Every rank of ``group`` calls it with its shard of the time axis, in the order of ranks; shards may differ in
    length and may be empty.  Together the ranks compute what ``scan`` computes for the complete sequence.

    Args:
        transitions: The table ``(V, D, D)``, the same on every rank; or the matrices of our shard,
            ``(B, T, D, D)`` or ``(T, D, D)``.
        tokens: The tokens of our shard, ``(B, T)`` or ``(T)``.
        group: The ranks; the default group if None.
        bias: The additive term of our shard, ``(B, T, D)``.
        token_bias: ``(V, D)``, the same on every rank.
        initial_state: ``h_0`` of the complete sequence, the same on every rank: ``(D)``, ``(B, D)``, or ``(N, D)`` per
            document.
        mask: The mask of our shard, ``(B, T)`` bool.
        lengths: ``(B)``, lengths of the complete rows, the same on every rank.
        cu_seqlens: Boundaries of the complete packed row, the same on every rank; documents may cross ranks.
        layout: The last three and the shards of the group, checked by a caller who has also checked the tokens.
        backend: The backend of the local scans, as in ``scan``.
        return_final: Also return the state after the last step of the sequence (of every document), on every rank.

    Returns:
        The states ``(B, T, D)`` of our shard; with ``return_final`` also ``(B, D)`` or ``(N, D)``.

    Gradients are those of the *sum* of what the ranks call ``backward`` on.  Every rank must call it, on something
    that its states reach, even if the shard is empty.  ``bias`` and matrices per position get their own gradient;
    of what all ranks have in common (table, ``token_bias``, ``initial_state``) each rank gets its part, and the sum
    over ranks is the gradient.  ``DistributedDataParallel`` takes the mean: multiply the loss by the number of ranks.

    Not differentiable twice.  The matrices of a shard are multiplied with each other, so that their product must
    fit the floating-point range; if it does not, a ``ValueError`` says so on every rank.
    """
    one_of("backend", backend, ["auto", *BACKENDS])
    arguments = Arguments(transitions, tokens, bias, token_bias, initial_state, mask, lengths, cu_seqlens, layout)
    arguments.check_types()
    if transformed(transitions, bias, token_bias, initial_state):
        raise NotImplementedError(
            "sequence_parallel_scan is differentiated by backward() alone: for torch.func and forward mode, scan the "
            "complete sequence in one process"
        )
    if lengths is not None and (mask is not None or cu_seqlens is not None):
        raise ValueError("give at most one of mask, lengths and cu_seqlens")
    shards = None if layout is None else layout.shards
    if shards is None:
        axes = transitions if tokens is None else tokens
        shards = Shards.of(group, axes.shape[1 if arguments.batched else 0], transitions.device)
    with full_precision(transitions.device):
        problem, checked = arguments.problem(shards=shards)
        problem = replace(problem, matrices=problem.matrices.to(problem.start.dtype))
        shard = _Shard(shards, None if checked.offsets is None else tuple(checked.offsets.tolist()))
        maps = _every_map(problem, shard)
        entering = _entering(problem, maps, shard)
        # On a rank that is entered, the state comes from another; its gradient goes there by itself.
        rows = torch.where(shard.entered(problem.initial), entering, problem.initial)
        states = solved(replace(problem, start=rows), backend)
        operands = problem.matrices, problem.bias, problem.tokens, problem.mask, maps[..., :-1], entering
        states, final = cast(
            tuple[Tensor, Tensor],
            _JoinedRanks.apply(states, problem.initial, *operands, shard, backend, return_final),  # type: ignore[no-untyped-call]
        )
    states = arguments.as_given(states)
    if not return_final:
        return states
    if checked.offsets is not None:  # an empty document ends where it began
        final = torch.where(checked.offsets.diff().unsqueeze(-1) == 0, problem.initial, final)
    return states, arguments.as_given(final, checked.offsets is None)


@dataclass(frozen=True)
class _Shard:
    """Our shard among the others, and ``bounds``, the document boundaries of the complete axis."""

    all: Shards
    bounds: tuple[int, ...] | None = None

    @property
    def starts(self) -> list[int]:
        """The steps of our shard at which documents begin."""
        if self.bounds is None:
            return []
        return [bound - self.all.begin for bound in self.bounds[:-1] if self.all.begin <= bound < self.all.end]

    def entered(self, initial: Tensor) -> Tensor:
        """Return which rows of the initial state an earlier rank decides, ``(rows, 1)`` bool."""
        index = torch.arange(len(initial), device=initial.device).unsqueeze(-1)
        if self.bounds is None:
            return index >= (0 if self.all.rank else len(initial))
        begun_here = self.all.time == 0 or 0 in self.starts
        return index == (-1 if begun_here else bisect_right(self.bounds, self.all.begin) - 1)

    def ends(self) -> tuple[list[int], list[int]]:
        """Return the documents that end in our shard, and the steps of our shard at which they end."""
        assert self.bounds is not None
        pairs = zip(self.bounds, self.bounds[1:], strict=False)
        ending = [
            (document, end - 1 - self.all.begin)
            for document, (begin, end) in enumerate(pairs)
            if begin < end and self.all.begin < end <= self.all.end
        ]
        return [document for document, _ in ending], [step for _, step in ending]


def _cut(problem: Problem, span: slice) -> Problem:
    """Return some steps of a scan, without documents and mask; no gradient."""
    cut = replace(
        problem,
        matrices=problem.matrices.detach() if problem.tokens is not None else problem.matrices.detach()[:, span],
        tokens=None if problem.tokens is None else problem.tokens[:, span],
        bias=None if problem.bias is None else problem.bias.detach()[:, span],
        mask=None if problem.mask is None else problem.mask[:, span],
        offsets=None,
    )
    return folded(cut)


@torch.no_grad()
def _every_map(problem: Problem, shard: _Shard) -> Tensor:
    """Return the affine maps ``(R, B, D, D + 1)`` of all shards.

    A map does not depend on the state that enters the shard if a document begins in it.
    """
    last = shard.starts[-1] if shard.starts else None
    flat = _cut(problem, slice(last or 0, None))
    affine = affine_product(flat.matrices, flat.tokens, flat.bias)
    if last is not None:
        assert shard.bounds is not None
        document = bisect_right(shard.bounds[:-1], last + shard.all.begin) - 1
        reached = affine[..., :-1] @ problem.initial[document] + affine[..., -1]
        affine = torch.cat((torch.zeros_like(affine[..., :-1]), reached.unsqueeze(-1)), -1)
    maps = gathered(affine, shard.all.group)
    if readable(maps):
        wrong = [rank for rank, each in enumerate(maps) if not all_finite(each)]
        if wrong:
            raise ValueError(
                f"the product of the transitions of rank {wrong[0]} leaves the range of {maps.dtype}: use float64, "
                "more ranks, or scan the complete sequence in one process"
            )
    return maps


@torch.no_grad()
def _entering(problem: Problem, maps: Tensor, shard: _Shard) -> Tensor:
    """Return the state ``(B, D)`` at the beginning of our shard; it is not used where a document begins there."""
    state = problem.initial if shard.bounds is None else torch.zeros_like(problem.initial[:1])
    for affine in maps[: shard.all.rank]:
        state = (affine[..., :-1] @ state.unsqueeze(-1)).squeeze(-1) + affine[..., -1]
    return state


class _JoinedRanks(torch.autograd.Function):
    """Pass on the states and find the final state; backward, add the gradients that come from later ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        initial: Tensor,
        matrices: Tensor,
        bias: Tensor | None,
        tokens: Tensor | None,
        mask: Tensor | None,
        products: Tensor,
        entering: Tensor,
        shard: _Shard,
        backend: str,
        return_final: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(matrices, bias, tokens, mask, products)
        ctx.shard, ctx.backend, ctx.return_final = shard, backend, return_final
        final = torch.zeros_like(initial)
        if return_final:
            if shard.bounds is not None:
                documents, steps = shard.ends()
                final[documents] = states[0, steps]
            elif shard.all.rank == len(shard.all.sizes) - 1:
                final = (states[:, -1] if shard.all.time else entering).clone()
            dist.all_reduce(final, group=shard.all.group)
        else:
            ctx.mark_non_differentiable(final)
        return states.view_as(states), final

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_final: Tensor) -> tuple[Tensor | None, ...]:
        matrices, bias, tokens, mask, products = ctx.saved_tensors
        shard: _Shard = ctx.shard
        group, rank, packed = shard.all.group, shard.all.rank, shard.bounds is not None
        adjoint = grad.new_zeros(grad.shape[0], grad.shape[-1])  # gradient of the state at the end of our shard
        grad = grad.clone()
        if ctx.return_final:
            grad_final = grad_final.clone()
            dist.all_reduce(grad_final, group=group)
            if packed:
                documents, steps = shard.ends()
                grad[0, steps] += grad_final[documents]
            else:
                adjoint = grad_final
        with full_precision(grad.device):
            problem = Problem(matrices, tokens, None, adjoint, mask)
            until = shard.starts[0] if shard.starts else shard.all.time
            sent = gathered(_response(problem, grad, until, ctx.backend), group)
            for later in range(len(sent) - 1, rank, -1):
                adjoint = (products[later].mT @ adjoint.unsqueeze(-1)).squeeze(-1) + sent[later]
        if shard.all.time:
            grad[:, -1] += adjoint
            return grad, *[None] * 10
        # Autograd gives an empty scan no gradients; a rank without steps must still send zeros.
        to_initial = adjoint if rank == 0 and not packed else None
        to_bias = None if bias is None else torch.zeros_like(bias)
        return grad, to_initial, torch.zeros_like(matrices), to_bias, *[None] * 7


def _response(problem: Problem, grad: Tensor, until: int, backend: str) -> Tensor:
    """Return what the gradients of our first states add to that of the state before them, ``(B, D)``.

    It is a scan backwards in time.
    """
    if until == 0:
        return torch.zeros_like(problem.initial)
    flat = _cut(problem, slice(0, until))
    grad = grad[:, :until].flip(1)
    backwards = replace(
        flat,
        matrices=flat.matrices.mT.contiguous() if flat.tokens is not None else flat.matrices.mT.flip(1),
        tokens=None if flat.tokens is None else flat.tokens.flip(1),
        bias=torch.cat((grad[:, 1:], torch.zeros_like(grad[:, :1])), 1),
        start=grad[:, 0],
    )
    return solved(backwards, backend)[:, -1]
