"""The scan of a sequence that lies in stretches on the ranks of a process group.

Forward: every rank multiplies its stretch into one affine map ``[M | b]``, all maps are gathered once, the state that
enters a stretch follows from the maps before it, and the stretch is scanned from there.  Backward: every rank sends
the gradient that its own states have at its beginning, ``D`` numbers a row, all are gathered once, and what later
ranks send back, carried through the maps between, is added at the end of the stretch.  The rest is the local scan.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from transductor.checks import one_of, readable, working_dtype
from transductor.kernels.precise import full_precision
from transductor.recurrence.arguments import check_offsets, check_tensor, checked_problem
from transductor.recurrence.backends import BACKENDS, solved
from transductor.recurrence.chunked import affine_product
from transductor.recurrence.overflow import all_finite
from transductor.recurrence.problem import Problem, folded
from transductor.recurrence.semirings import SEMIRINGS
from transductor.recurrence.shards import Stretches, gathered

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
    backend: str = "auto",
    return_final: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Our stretch of the states of :func:`~transductor.recurrence.scan` over the real numbers.

    Every rank of ``group`` calls it with its stretch of the time axis, in the order of ranks; stretches may differ in
    length and may be empty.  All ranks together compute what ``scan`` computes of the whole.

    Args:
        transitions: The table ``(V, D, D)``, the same on every rank; or the matrices of our stretch,
            ``(B, T, D, D)`` or ``(T, D, D)``.
        tokens: Of our stretch, ``(B, T)`` or ``(T)``.
        group: The ranks; the default group if None.
        bias: Of our stretch, ``(B, T, D)``.
        token_bias: ``(V, D)``, the same on every rank.
        initial_state: ``h_0`` of the whole, the same on every rank: ``(D)``, ``(B, D)``, or ``(N, D)`` per document.
        mask: Of our stretch, ``(B, T)`` bool.
        lengths: ``(B)``, of the whole, the same on every rank.
        cu_seqlens: Boundaries of the whole packed row, the same on every rank; documents may cross ranks.
        backend: Of the local scans, as in ``scan``.
        return_final: Also return the state after the last step of the whole (of every document), on every rank.

    Returns:
        States ``(B, T, D)`` of our stretch; with ``return_final`` also ``(B, D)`` or ``(N, D)``.

    Gradients are those of the *sum* of what the ranks call ``backward`` on.  Every rank must call it, on something
    that its states reach, even if the stretch is empty.  ``bias`` and matrices per position get their own gradient;
    of what all ranks share (table, ``token_bias``, ``initial_state``) each rank gets its share, and the sum over ranks
    is the whole.  ``DistributedDataParallel`` takes the mean: multiply the loss by the number of ranks.

    Not differentiable twice.  The matrices of a stretch are multiplied with each other, so that their product must
    fit the floating-point range; if it does not, a ``ValueError`` says so on every rank.
    """
    one_of("backend", backend, ["auto", *BACKENDS])
    check_tensor("transitions", transitions)
    batched = transitions.ndim == 4
    if tokens is not None:
        check_tensor("tokens", tokens)
        batched = tokens.ndim == 2
    stretch = _Stretch.of(transitions, tokens, group, batched, cu_seqlens)
    if lengths is not None:
        if mask is not None or cu_seqlens is not None:
            raise ValueError("give at most one of mask, lengths and cu_seqlens")
        batch = (transitions if tokens is None else tokens).shape[0] if batched else 1
        mask = stretch.all.mask_from_lengths(lengths, batch, transitions.device)
        mask = mask if batched else mask[0]
    work = working_dtype(transitions.dtype)
    with full_precision(transitions.device):
        problem = checked_problem(
            transitions.to(work),
            tokens,
            bias,
            token_bias,
            initial_state,
            mask,
            None,
            stretch.local,
            SEMIRINGS["real"],
            batched,
        )
        maps = _every_map(problem, stretch)
        entering = _entering(problem, maps, stretch)
        # On a rank that is entered, the state comes from another; its gradient goes there by itself.
        rows = torch.where(stretch.entered(problem.initial), entering, problem.initial)
        states = solved(replace(problem, initial=rows), backend)
        operands = problem.matrices, problem.bias, problem.tokens, problem.mask, maps[..., :-1], entering
        states, final = cast(
            tuple[Tensor, Tensor],
            _JoinedRanks.apply(states, problem.initial, *operands, stretch, backend, return_final),  # type: ignore[no-untyped-call]
        )
    states = states.to(transitions.dtype)
    states = states if batched else states.squeeze(0)
    if not return_final:
        return states
    if stretch.bounds is not None:  # an empty document ends where it began
        assert cu_seqlens is not None
        nothing = cu_seqlens.to(final.device).diff().unsqueeze(-1) == 0
        final = torch.where(nothing, problem.initial, final)
    final = final.to(transitions.dtype)
    return states, final if batched or cu_seqlens is not None else final.squeeze(0)


@dataclass(frozen=True)
class _Stretch:
    """Our stretch among the others, and the documents in it.

    ``bounds`` are the document boundaries of the whole axis, ``local`` the same ``(N + 1)`` cut to our stretch.
    """

    all: Stretches
    bounds: tuple[int, ...] | None = None
    local: Tensor | None = None

    @classmethod
    def of(
        cls,
        transitions: Tensor,
        tokens: Tensor | None,
        group: ProcessGroup | None,
        batched: bool,
        cu_seqlens: Tensor | None,
    ) -> _Stretch:
        shape = (transitions if tokens is None else tokens).shape
        batch, time = shape[:2] if batched else (1, shape[0])
        stretches = Stretches.of(group, time, transitions.device)
        if cu_seqlens is None:
            return cls(stretches)
        offsets = check_offsets(cu_seqlens, batch, stretches.total, transitions.device)
        local = (offsets - stretches.begin).clamp(0, time)
        return cls(stretches, tuple(offsets.tolist()), local)

    @property
    def time(self) -> int:
        return self.all.sizes[self.all.rank]

    @property
    def starts(self) -> list[int]:
        """Where documents begin in our stretch."""
        if self.bounds is None:
            return []
        return [bound - self.all.begin for bound in self.bounds[:-1] if self.all.begin <= bound < self.all.end]

    def entered(self, initial: Tensor) -> Tensor:
        """Which rows of the initial state ``(rows, 1)`` an earlier rank decides."""
        index = torch.arange(len(initial), device=initial.device).unsqueeze(-1)
        if self.bounds is None:
            return index >= (0 if self.all.rank else len(initial))
        begun_here = self.time == 0 or 0 in self.starts
        return index == (-1 if begun_here else bisect_right(self.bounds, self.all.begin) - 1)

    def ends(self) -> tuple[list[int], list[int]]:
        """The documents that end in our stretch, and their last steps there."""
        assert self.bounds is not None
        pairs = zip(self.bounds, self.bounds[1:], strict=False)
        found = [
            (document, end - 1 - self.all.begin)
            for document, (begin, end) in enumerate(pairs)
            if begin < end and self.all.begin < end <= self.all.end
        ]
        return [document for document, _ in found], [step for _, step in found]


def _cut(problem: Problem, span: slice) -> Problem:
    """Some steps of a scan, without documents and mask; no gradient."""
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
def _every_map(problem: Problem, stretch: _Stretch) -> Tensor:
    """The affine maps ``(R, B, D, D + 1)`` of all stretches.  The first step of a document forgets what was before."""
    last = stretch.starts[-1] if stretch.starts else None
    flat = _cut(problem, slice(last or 0, None))
    affine = affine_product(flat.matrices, flat.tokens, flat.bias)
    if last is not None:
        assert stretch.bounds is not None
        document = bisect_right(stretch.bounds[:-1], last + stretch.all.begin) - 1
        reached = affine[..., :-1] @ problem.initial[document] + affine[..., -1]
        affine = torch.cat((torch.zeros_like(affine[..., :-1]), reached.unsqueeze(-1)), -1)
    maps = gathered(affine, stretch.all.group)
    if readable(maps):
        wrong = [rank for rank, each in enumerate(maps) if not all_finite(each)]
        if wrong:
            raise ValueError(
                f"the product of the transitions of rank {wrong[0]} leaves the range of {maps.dtype}: use float64, "
                "more ranks, or scan the whole in one process"
            )
    return maps


@torch.no_grad()
def _entering(problem: Problem, maps: Tensor, stretch: _Stretch) -> Tensor:
    """The state ``(B, D)`` at the beginning of our stretch; of a packed row that begins, something nobody asks for."""
    state = problem.initial if stretch.bounds is None else torch.zeros_like(problem.initial[:1])
    for affine in maps[: stretch.all.rank]:
        state = (affine[..., :-1] @ state.unsqueeze(-1)).squeeze(-1) + affine[..., -1]
    return state


class _JoinedRanks(torch.autograd.Function):
    """States as they are, and the final state of the whole; on the way back, what later ranks have to say."""

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
        stretch: _Stretch,
        backend: str,
        return_final: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(matrices, bias, tokens, mask, products)
        ctx.stretch, ctx.backend, ctx.return_final = stretch, backend, return_final
        final = torch.zeros_like(initial)
        if return_final:
            if stretch.bounds is not None:
                documents, steps = stretch.ends()
                final[documents] = states[0, steps]
            elif stretch.all.rank == len(stretch.all.sizes) - 1:
                final = (states[:, -1] if stretch.time else entering).clone()
            dist.all_reduce(final, group=stretch.all.group)
        else:
            ctx.mark_non_differentiable(final)
        return states.view_as(states), final

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_final: Tensor) -> tuple[Tensor | None, ...]:
        matrices, bias, tokens, mask, products = ctx.saved_tensors
        stretch: _Stretch = ctx.stretch
        group, rank, packed = stretch.all.group, stretch.all.rank, stretch.bounds is not None
        adjoint = grad.new_zeros(grad.shape[0], grad.shape[-1])  # of the state at the end of our stretch
        grad = grad.clone()
        if ctx.return_final:
            grad_final = grad_final.clone()
            dist.all_reduce(grad_final, group=group)
            if packed:
                documents, steps = stretch.ends()
                grad[0, steps] += grad_final[documents]
            else:
                adjoint = grad_final
        with full_precision(grad.device):
            problem = Problem(matrices, tokens, None, adjoint, mask)
            until = stretch.starts[0] if stretch.starts else stretch.time
            sent = gathered(_response(problem, grad, until, ctx.backend), group)
            for later in range(len(sent) - 1, rank, -1):
                adjoint = (products[later].mT @ adjoint.unsqueeze(-1)).squeeze(-1) + sent[later]
        if stretch.time:
            grad[:, -1] += adjoint
            return grad, *[None] * 10
        # An empty scan is differentiable by nothing; a rank without steps has a share all the same, of zero.
        to_initial = adjoint if rank == 0 and not packed else None
        to_bias = None if bias is None else torch.zeros_like(bias)
        return grad, to_initial, torch.zeros_like(matrices), to_bias, *[None] * 7


def _response(problem: Problem, grad: Tensor, until: int, backend: str) -> Tensor:
    """What the gradients of our first states add to that of the state before them, ``(B, D)``: a scan backwards."""
    if until == 0:
        return torch.zeros_like(problem.initial)
    flat = _cut(problem, slice(0, until))
    grad = grad[:, :until].flip(1)
    backwards = replace(
        flat,
        matrices=flat.matrices.mT.contiguous() if flat.tokens is not None else flat.matrices.mT.flip(1),
        tokens=None if flat.tokens is None else flat.tokens.flip(1),
        bias=torch.cat((grad[:, 1:], torch.zeros_like(grad[:, :1])), 1),
        initial=grad[:, 0],
    )
    return solved(backwards, backend)[:, -1]
