"""The default scan where no kernel runs: chunks side by side, in plain torch.

Forward, with K chunks of C steps: (1) the product of every chunk, C steps of N = B·K small matrix products;
(2) the state that enters every chunk, a scan over K dense matrices, cut into chunks again when K is large;
(3) all states, C steps of N matrix–vector products.  With K = 1 only (3) is left, which is the plain
recurrence over the batch.

Backward is the reverse scan of the adjoint ``δ_{t-1} = M_{x_t}ᵀ δ_t + v_{t-1}`` over the same chunks.  The
products of (1) are kept (B·T·d²/C numbers, C ≥ 2d), so memory grows as B·T·d.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from transductor.recurrence.cost_model import Plan, plan_chunks
from transductor.recurrence.derivatives import differentiable_gradients
from transductor.recurrence.grouped import outer_by_token
from transductor.recurrence.lanes import DenseLanes, Lanes, TokenLanes, from_lanes, to_lanes
from transductor.recurrence.overflow import all_finite, overflowed_rows
from transductor.recurrence.problem import Problem, folded, some_rows
from transductor.recurrence.reference import reference
from transductor.recurrence.semirings import SEMIRINGS, Semiring

REAL = SEMIRINGS["real"]


def chunked(problem: Problem) -> Tensor:
    """Compute all states ``(B, T, D)``."""
    if problem.time == 0 or problem.batch == 0:
        return reference(problem)
    flat = folded(problem)
    operands = flat.matrices, flat.tokens, flat.bias, flat.initial
    if problem.semiring.name != "real":
        return cast(Tensor, _SemiringScan.apply(*operands, problem.semiring))  # type: ignore[no-untyped-call]
    states = cast(tuple[Tensor, ...], _RealScan.apply(*operands))[0]  # type: ignore[no-untyped-call]
    if problem.offsets is not None and not all_finite(states):
        return reference(problem)  # a folded boundary is a zero matrix, which an infinite state turns into NaN
    return states


def _lanes(matrices: Tensor, tokens: Tensor | None, span: slice, chunks: int, semiring: Semiring) -> Lanes:
    if tokens is None:
        return DenseLanes(matrices[:, span], chunks, semiring)
    return TokenLanes(matrices, to_lanes(tokens[:, span], chunks), semiring)


def _plan_for(matrices: Tensor, tokens: Tensor | None, additive: bool, semiring: Semiring = REAL) -> Plan:
    batch, time = (matrices if tokens is None else tokens).shape[:2]
    symbols = None if tokens is None else matrices.shape[0]
    expanded = semiring.name not in ("real", "boolean")
    return plan_chunks(batch, time, matrices.shape[-1], symbols, additive=additive, expanded=expanded)


def _advance(lanes: Lanes, bias: Tensor | None, state: Tensor, semiring: Semiring) -> Tensor:
    """Take step (3): states ``(C, N, D)`` from the state entering each lane."""
    states = state.new_empty(lanes.steps, *state.shape)
    for step, out in enumerate(states.unbind(0)):
        state = lanes.apply(step, state, out)
        if bias is not None:
            state.copy_(semiring.add(state, bias[step]))
    return states


def _chunk_products(lanes: Lanes, bias: Tensor | None, semiring: Semiring) -> tuple[Tensor, Tensor | None]:
    """Take step (1): the product ``(N, D, D)`` and, with an additive term, the response from zero ``(N, D)``."""
    product = lanes.matrix(0)
    if bias is None:
        for step in range(1, lanes.steps):
            product = semiring.matmul(lanes.matrix(step), product)
        return product, None
    affine = torch.cat((product, bias[0].unsqueeze(-1)), -1)
    for step in range(1, lanes.steps):
        affine = semiring.matmul(lanes.matrix(step), affine)
        affine[..., -1] = semiring.add(affine[..., -1], bias[step])
    return affine[..., :-1].contiguous(), affine[..., -1]


def then(earlier: Tensor, later: Tensor) -> Tensor:
    """Compose two affine maps ``[M | b]`` of shape ``(..., D, D + 1)``."""
    both = later[..., :-1] @ earlier
    both[..., -1] += later[..., -1]
    return both


def affine_product(matrices: Tensor, tokens: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return what all steps together do to the state that enters: ``[M | b]`` of shape ``(B, D, D + 1)``; no gradient.

    Chunks side by side, then pairs of chunks: 2·max(32, 2D) + log₂ T steps from Python, about the memory of the states.
    """
    batch, time = (matrices if tokens is None else tokens).shape[:2]
    dim = matrices.shape[-1]
    affine = torch.eye(dim, dim + 1, dtype=matrices.dtype, device=matrices.device).expand(batch, -1, -1)
    length = max(32, 2 * dim)
    body = time - time % length
    for span in (slice(0, body), slice(body, time)):
        chunks = max(1, (span.stop - span.start) // length)
        if span.start == span.stop:
            continue
        lane_bias = None if bias is None else to_lanes(bias[:, span], chunks)
        products, responses = _chunk_products(_lanes(matrices, tokens, span, chunks, REAL), lane_bias, REAL)
        if responses is None:
            responses = products.new_zeros(products.shape[:-1])
        maps = torch.cat((products, responses.unsqueeze(-1)), -1).unflatten(0, (batch, chunks))
        while maps.shape[1] > 1:
            pairs = maps.shape[1] // 2 * 2
            maps = torch.cat((then(maps[:, :pairs:2], maps[:, 1:pairs:2]), maps[:, pairs:]), 1)
        affine = then(affine, maps[:, 0])
    return affine


def _gram_lanes(table: Tensor, ids: Tensor, gram: int) -> TokenLanes:
    """Return lanes that read words of ``gram`` tokens at a time: the table holds the product of every word once."""
    symbols = table.shape[0]
    grams, words = table, ids[::gram]
    for place in range(1, gram):
        # Word index: the earliest token is the lowest digit.
        grams = (table.unsqueeze(1) @ grams.unsqueeze(0)).flatten(0, 1)
        words = words + ids[place::gram] * symbols**place
    return TokenLanes(grams, words, REAL)


def _forward(
    matrices: Tensor, tokens: Tensor | None, bias: Tensor | None, initial: Tensor, semiring: Semiring
) -> tuple[Tensor, ...]:
    """Compute states ``(B, T, D)``, then the products ``(B, K, D, D)`` of every level of chunks."""
    batch, time = (matrices if tokens is None else tokens).shape[:2]
    dim = initial.shape[-1]
    plan = _plan_for(matrices, tokens, bias is not None, semiring)
    chunks, body = plan.chunks, plan.chunks * plan.length
    lanes = _lanes(matrices, tokens, slice(0, body), chunks, semiring)
    lane_bias = None if bias is None else to_lanes(bias[:, :body], chunks)
    entering = initial
    levels: tuple[Tensor, ...] = ()
    if chunks > 1:
        words = lanes
        if plan.gram > 1 and semiring is REAL and isinstance(lanes, TokenLanes):
            words = _gram_lanes(lanes.table, lanes.ids, plan.gram)
        flat, responses = _chunk_products(words, lane_bias, semiring)
        products = flat.view(batch, chunks, dim, dim)
        if responses is not None:
            responses = responses.view(batch, chunks, dim)
        # Step (2) is a scan over chunks, with a matrix per position: the same function, one level up.
        after, *above = _forward(products, None, responses, initial, semiring)
        entering = torch.cat((initial.unsqueeze(1), after[:, :-1]), 1).flatten(0, 1)
        levels = (products, *above)
    lane_states = _advance(lanes, lane_bias, entering, semiring)
    if body == time:
        return from_lanes(lane_states, chunks).reshape(batch, time, dim), *levels
    states = initial.new_empty(batch, time, dim)
    states[:, :body].view(batch, chunks, plan.length, dim).copy_(from_lanes(lane_states, chunks))
    tail = _lanes(matrices, tokens, slice(body, time), 1, semiring)
    tail_bias = None if bias is None else to_lanes(bias[:, body:], 1)
    states[:, body:] = _advance(tail, tail_bias, states[:, body - 1], semiring).movedim(0, 1)
    return states, *levels


def _accumulate_adjoints(lanes: Lanes, adjoints: Tensor) -> Tensor:
    """Turn ``v (C, N, D)`` into ``δ`` in place; return the adjoint that leaves each lane at its start."""
    rows = adjoints.unbind(0)
    for step in range(lanes.steps - 1, 0, -1):
        rows[step - 1].add_(lanes.apply_adjoint(step, rows[step]))
    return lanes.apply_adjoint(0, rows[0])


def _backward(
    matrices: Tensor, tokens: Tensor | None, additive: bool, levels: Sequence[Tensor], grad: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the adjoints of every state ``(B, T, D)`` and of the initial state ``(B, D)``."""
    batch, time, dim = grad.shape
    plan = _plan_for(matrices, tokens, additive)
    chunks, body = plan.chunks, plan.chunks * plan.length
    adjoints = to_lanes(grad[:, :body], chunks)
    if adjoints.untyped_storage().data_ptr() == grad.untyped_storage().data_ptr():
        adjoints = adjoints.clone()
    tail_adjoints = to_lanes(grad[:, body:], 1).clone()
    ends = from_lanes(adjoints, chunks)[:, :, -1]  # a view: the adjoints of the states that leave the chunks
    if body < time:
        ends[:, -1] += _accumulate_adjoints(_lanes(matrices, tokens, slice(body, time), 1, REAL), tail_adjoints)
    lanes = _lanes(matrices, tokens, slice(0, body), chunks, REAL)
    if chunks > 1:
        rows = adjoints.unbind(0)
        response = rows[-1]
        for step in range(lanes.steps - 1, 0, -1):
            response = lanes.apply_adjoint(step, response).add_(rows[step - 1])
        response = lanes.apply_adjoint(0, response).view(batch, chunks, dim)
        # What later chunks send back is the adjoint scan over chunk products, one level up.
        sent = torch.cat((response[:, 1:], torch.zeros_like(response[:, :1])), 1)
        products, *above = levels
        ends += _backward(products, None, additive, above, sent)[0]
    initial = _accumulate_adjoints(lanes, adjoints).view(batch, chunks, dim)[:, 0]
    body_adjoints = from_lanes(adjoints, chunks).reshape(batch, body, dim)
    if body == time:
        return body_adjoints, initial
    return torch.cat((body_adjoints, tail_adjoints.movedim(0, 1)), 1), initial


class _RealScan(torch.autograd.Function):
    """Returns ``(states, *products)``; the products serve only the backward pass."""

    @staticmethod
    def forward(matrices: Tensor, tokens: Tensor | None, bias: Tensor | None, initial: Tensor) -> tuple[Tensor, ...]:
        return forward(matrices, tokens, bias, initial)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        matrices, tokens, bias, initial = inputs
        states, *levels = output
        ctx.mark_non_differentiable(*levels)
        ctx.set_materialize_grads(False)
        # The bias is kept only for second derivatives; saving an input costs nothing.
        ctx.save_for_backward(matrices, tokens, bias, initial, states, *levels)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None, None
        matrices, tokens, bias, initial, states, *levels = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: a gradient that can be differentiated again
            problem, needs = Problem(matrices, tokens, bias, initial), ctx.needs_input_grad
            needed = needs[0], needs[2], needs[3]
            to_matrices, to_bias, to_initial = differentiable_gradients(problem, chunked_states, needed, grad)
            return to_matrices, None, to_bias, to_initial
        adjoints, to_initial = _adjoints(matrices, tokens, bias is not None, levels, grad)
        to_matrices = None
        if ctx.needs_input_grad[0]:
            to_matrices = _matrix_gradient(matrices, tokens, initial, states, adjoints)
        return to_matrices, None, adjoints if ctx.needs_input_grad[2] else None, to_initial


def _matrix_gradient(
    matrices: Tensor, tokens: Tensor | None, initial: Tensor, states: Tensor, adjoints: Tensor
) -> Tensor:
    """Compute ``Σ δ_t h_{t-1}ᵀ``, per token or per position."""
    if tokens is None:
        out = torch.empty_like(matrices)
        torch.mul(adjoints[:, :1].unsqueeze(-1), initial[:, None, None, :], out=out[:, :1])
        torch.mul(adjoints[:, 1:].unsqueeze(-1), states[:, :-1].unsqueeze(-2), out=out[:, 1:])
        return out
    time, dim = states.shape[1:]
    flat_states = states.reshape(-1, dim)

    def before(rows: Tensor) -> Tensor:
        """Return the state before each row of the flattened batch, which is the initial one at the first step."""
        first = (rows % time == 0).unsqueeze(-1)
        return torch.where(first, initial[rows // time], flat_states[(rows - 1).clamp_min(0)])

    return outer_by_token(adjoints.reshape(-1, dim), before, tokens.flatten(), matrices.shape[0])


def forward(matrices: Tensor, tokens: Tensor | None, bias: Tensor | None, initial: Tensor) -> tuple[Tensor, ...]:
    """Compute states ``(B, T, D)`` and products of a scan without mask or boundaries; no gradient.

    The loop computes the rows in which a state or a product is not finite; the other rows keep their bits.
    """
    states, *levels = _forward(matrices, tokens, bias, initial, REAL)
    if len(rows := overflowed_rows(states, *levels)):
        states[rows] = reference(some_rows(Problem(matrices, tokens, bias, initial), rows))
    return states, *levels


def chunked_states(matrices: Tensor, tokens: Tensor | None, bias: Tensor | None, initial: Tensor) -> Tensor:
    """Compute the states alone; no gradient."""
    return forward(matrices, tokens, bias, initial)[0]


def _adjoints(
    matrices: Tensor, tokens: Tensor | None, additive: bool, levels: Sequence[Tensor], grad: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the adjoints of states and initial states; step by step in rows where a product is not finite."""
    adjoints, to_initial = _backward(matrices, tokens, additive, levels, grad)
    if len(rows := overflowed_rows(adjoints, *levels)):
        drive = matrices[rows] if tokens is None else matrices
        lanes = _lanes(drive, None if tokens is None else tokens[rows], slice(0, grad.shape[1]), 1, REAL)
        stepped = to_lanes(grad[rows], 1).clone()
        to_initial = to_initial.index_copy(0, rows, _accumulate_adjoints(lanes, stepped))
        adjoints = adjoints.index_copy(0, rows, stepped.movedim(0, 1))
    return adjoints, to_initial


def backward(
    matrices: Tensor,
    tokens: Tensor | None,
    additive: bool,
    initial: Tensor,
    states: Tensor,
    grad: Tensor,
    *,
    wants_matrices: bool,
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Compute gradients of matrices, bias and initial states; the products are formed again."""
    _, *levels = _forward(matrices, tokens, torch.zeros_like(states) if additive else None, initial, REAL)
    adjoints, to_initial = _adjoints(matrices, tokens, additive, levels, grad)
    to_matrices = _matrix_gradient(matrices, tokens, initial, states, adjoints) if wants_matrices else None
    return to_matrices, adjoints, to_initial


class _SemiringScan(torch.autograd.Function):
    """The scan of other semirings: chunked forward; backward one step at a time from the states alone."""

    @staticmethod
    def forward(
        matrices: Tensor, tokens: Tensor | None, bias: Tensor | None, initial: Tensor, semiring: Semiring
    ) -> Tensor:
        return _forward(matrices, tokens, bias, initial, semiring)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *operands, ctx.semiring = inputs
        if output.dtype == torch.bool:
            ctx.mark_non_differentiable(output)
        ctx.save_for_backward(*operands, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        matrices, tokens, bias, initial, states = ctx.saved_tensors
        semiring: Semiring = ctx.semiring
        if torch.is_grad_enabled():
            raise NotImplementedError(
                f"second derivatives of a {semiring.name} scan need backend='reference' (create_graph was set)"
            )
        to_matrices = torch.zeros_like(matrices)
        to_bias = None if bias is None else torch.zeros_like(bias)
        carried = torch.zeros_like(initial)
        for t in range(states.shape[1] - 1, -1, -1):
            adjoint = grad[:, t] + carried
            before = initial if t == 0 else states[:, t - 1]
            matrix = matrices[:, t] if tokens is None else matrices[tokens[:, t]]
            scores = matrix + before.unsqueeze(-2)
            if bias is not None and to_bias is not None:
                scores = torch.cat((scores, bias[:, t].unsqueeze(-1)), -1)
            flow = semiring.path_weights(scores, states[:, t]) * adjoint.unsqueeze(-1)
            if to_bias is not None:
                to_bias[:, t] = flow[..., -1]
                flow = flow[..., :-1]
            if tokens is None:
                to_matrices[:, t] = flow
            else:
                to_matrices.index_add_(0, tokens[:, t], flow)
            carried = flow.sum(-2)
        return to_matrices, None, to_bias, carried, None
