"""The real scan for every derivative of torch: forward mode, ``torch.func``, and derivatives of derivatives.

The tangent of a scan is a scan, ``ḣ_t = M_t ḣ_{t-1} + (Ṁ_t h_{t-1} + ḃ_t)``, and so is its adjoint, in reverse.  Both
are written here as scans by the same backend, so that they can be differentiated again, in either mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from transductor.checks import readable, transformed
from transductor.recurrence.grouped import outer_by_token
from transductor.recurrence.overflow import all_finite
from transductor.recurrence.problem import Problem, folded
from transductor.recurrence.reference import reference

# All states (B, T, D) from matrices, tokens, bias and initial states: plain numbers, no derivative.
States = Callable[[Tensor, Tensor | None, Tensor | None, Tensor], Tensor]

# Positions whose matrices are gathered at a time.
_BLOCK = 1 << 14


def differentiable_scan(problem: Problem, states_of: States) -> Tensor:
    """Compute all states ``(B, T, D)`` by ``states_of``; every transform of torch may be applied."""
    if problem.time == 0 or problem.batch == 0:
        return reference(problem)
    flat = folded(problem)
    states = _applied(flat.matrices.to(flat.initial.dtype), flat.tokens, flat.bias, flat.initial, states_of)
    if problem.offsets is not None and readable(states) and not all_finite(states):
        return reference(problem)  # a folded boundary is a zero matrix, which an infinite state turns into NaN
    return states


def differentiable_gradients(
    problem: Problem, states_of: States, needs: tuple[bool, bool, bool], grad: Tensor
) -> list[Tensor | None]:
    """Differentiate the states by matrices, bias and initial states where needed; the results can be, again."""
    # Views, because one operand may have been computed from another: at a document's first step the folded bias holds
    # M α, and the gradient of M through it is counted where the bias was made.
    matrices, bias, start = (
        None if value is None else value.view_as(value) for value in (problem.matrices, problem.bias, problem.start)
    )
    assert matrices is not None
    assert start is not None
    operands = [value if needed else None for value, needed in zip((matrices, bias, start), needs, strict=True)]
    states = differentiable_scan(replace(problem, matrices=matrices, bias=bias, start=start), states_of)
    wanted = [operand for operand in operands if operand is not None]
    gradients = iter(torch.autograd.grad(states, wanted, grad, create_graph=True, allow_unused=True))
    return [None if operand is None else next(gradients) for operand in operands]


def _applied(
    matrices: Tensor, tokens: Tensor | None, bias: Tensor | None, initial: Tensor, states_of: States
) -> Tensor:
    return cast(Tensor, _Scan.apply(matrices, tokens, bias, initial, states_of))  # type: ignore[no-untyped-call]


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        matrices: Tensor, tokens: Tensor | None, bias: Tensor | None, initial: Tensor, states_of: States
    ) -> Tensor:
        return states_of(matrices, tokens, bias, initial)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        matrices, tokens, bias, initial, ctx.states_of = inputs
        ctx.additive = bias is not None
        ctx.save_for_backward(matrices, tokens, initial, output)
        ctx.save_for_forward(matrices, tokens, initial, output)

    @staticmethod
    def jvp(ctx: Any, moved: Tensor | None, _: None, pushed: Tensor | None, begun: Tensor | None, __: None) -> Tensor:
        """Return the tangent of the states from those of matrices, bias and initial states."""
        matrices, tokens, initial, states = ctx.saved_tensors
        if moved is not None:
            through = _products(moved, tokens, _before(initial, states))
            pushed = through if pushed is None else pushed + through
        return _applied(matrices, tokens, pushed, torch.zeros_like(initial) if begun is None else begun, ctx.states_of)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        matrices, tokens, initial, states = ctx.saved_tensors
        # δ_{t-1} = M_tᵀ δ_t + v_{t-1}, read from the last step to the first, where it begins with v_T.
        pushed = torch.cat((grad[:, :-1].flip(1), torch.zeros_like(grad[:, :1])), 1)
        reverse = None if tokens is None else tokens.flip(1)
        adjoints = _applied(
            matrices.mT.flip(1) if tokens is None else matrices.mT, reverse, pushed, grad[:, -1], ctx.states_of
        ).flip(1)
        to_initial, later = adjoints[:, 0], torch.cat((adjoints[:, 1:], grad[:, -1:]), 1)
        to_matrices = None
        if ctx.needs_input_grad[0]:
            to_matrices = _outers(later, _before(initial, states), tokens, len(matrices))
        return to_matrices, None, later if ctx.additive else None, to_initial, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *operands: Any) -> tuple[Tensor, int]:
        """Run many scans as one: their rows side by side, each with its own part of one long table."""
        size, (*values, states_of) = info.batch_size, operands
        shared = in_dims[0] is None
        matrices, tokens, bias, initial = (
            None if value is None else value.movedim(dim, 0) if dim is not None else value.expand(size, *value.shape)
            for value, dim in zip(values, in_dims[:4], strict=True)
        )
        assert matrices is not None
        if tokens is None and shared:  # a matrix per position, the same for all: a table that each of them reads
            batch, time = values[0].shape[:2]
            tokens = torch.arange(batch * time, device=matrices.device).view(batch, time).expand(size, -1, -1)
            matrices = values[0].flatten(0, 1)
        elif shared:
            matrices = values[0]
        elif tokens is not None:
            symbols = matrices.shape[1]
            shift = symbols * torch.arange(size, device=tokens.device)[:, None, None]
            # An unknown token must not point to another scan's matrices.
            tokens = torch.where((tokens >= 0) & (tokens < symbols), tokens + shift, size * symbols)
            matrices = matrices.flatten(0, 1)
        else:
            matrices = matrices.flatten(0, 1)
        folded_rows = (None if value is None else value.flatten(0, 1) for value in (tokens, bias, initial))
        tokens, bias, initial = folded_rows
        assert initial is not None
        return _applied(matrices, tokens, bias, initial, states_of).unflatten(0, (size, -1)), 0


def _before(initial: Tensor, states: Tensor) -> Tensor:
    """Return the state before every step, ``(B, T, D)``."""
    return torch.cat((initial.unsqueeze(1), states[:, :-1]), 1)


def _products(matrices: Tensor, tokens: Tensor | None, states: Tensor) -> Tensor:
    """Multiply the matrix of every position with its vector, ``(B, T, D)``."""
    if tokens is None:
        return (matrices @ states.unsqueeze(-1)).squeeze(-1)
    parts = [(matrices[ids] @ part.unsqueeze(-1)).squeeze(-1) for ids, part in _blocks(tokens, states)]
    return torch.cat(parts, 1)


def _outers(left: Tensor, right: Tensor, tokens: Tensor | None, symbols: int) -> Tensor:
    """Compute ``left ⊗ right`` of every position, or the sum over the positions of every token."""
    if tokens is None:
        return left.unsqueeze(-1) * right.unsqueeze(-2)
    dim = left.shape[-1]
    if not torch.is_grad_enabled() and not transformed(left, right, tokens):
        rows = right.reshape(-1, dim)
        return outer_by_token(left.reshape(-1, dim), lambda at: rows[at], tokens.flatten(), symbols)
    total = left.new_zeros(symbols, dim, dim)
    for ids, ours, theirs in _blocks(tokens, left, right):
        total = total.index_add(0, ids.flatten(), (ours.unsqueeze(-1) * theirs.unsqueeze(-2)).flatten(0, 1))
    return total


def _blocks(*values: Tensor) -> list[tuple[Tensor, ...]]:
    """Cut tensors ``(B, T, ...)`` along time into blocks of a bounded number of positions."""
    length = max(1, _BLOCK // max(1, values[0].shape[0]))
    return list(zip(*(value.split(length, 1) for value in values), strict=True))
