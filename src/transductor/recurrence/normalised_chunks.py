"""The normalised scan in plain torch, chunks side by side: forward and backward on plain numbers.

A chunk's product is kept as D columns, each with a power of two of its own: column j is what the scan would do from
state j alone.  With one power for the complete product, a column that is far less likely than another would vanish,
and with it a belief that rests on that column.  All these powers are exact.

With E_t the sum of the gradients of the logs from t on, n_t the slope of the norm and c_t = ‖M_t h_{t-1}‖, the adjoint
of the normalised state obeys ``d_t = y_t + (E_t − h_t·y_t) n_t``, ``y_t = g_t + M_{t+1}ᵀ d_{t+1} / c_{t+1}``: a linear
scan whose component along h_t is known, so that rounding does not accumulate in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from transductor.recurrence.cost_model import plan_normalised
from transductor.recurrence.grouped import outer_by_token
from transductor.recurrence.lanes import DenseLanes, Lanes, TokenLanes, from_lanes, to_lanes
from transductor.recurrence.norms import (
    Normalised,
    cut,
    exponents,
    finished,
    log_dtyped,
    normalised,
    power_of_two,
    scaled,
    slope,
)
from transductor.recurrence.semirings import SEMIRINGS

_REAL = SEMIRINGS["real"]


def _lanes(matrices: Tensor, tokens: Tensor | None, span: slice, chunks: int) -> Lanes:
    if tokens is None:
        return DenseLanes(matrices[:, span], chunks, _REAL)
    return TokenLanes(matrices, to_lanes(tokens[:, span], chunks), _REAL)


def _products(lanes: Lanes) -> tuple[Tensor, Tensor]:
    """Multiply the matrices of every lane: scaled columns ``(N, D, D)`` and their exponents ``(N, D)``."""
    product, exponent = scaled(lanes.matrix(0), -2)
    for step in range(1, lanes.steps):
        product, more = scaled(lanes.matrix(step) @ product, -2)
        exponent = exponent + more
    return product, exponent


def _carried(state: Tensor, exponent: Tensor, product: Tensor, powers: Tensor) -> tuple[Tensor, Tensor]:
    """Apply products with scaled columns to scaled states ``(B, D)``."""
    sizes = powers + exponents(state.abs())
    largest = sizes.where(state != 0, -(1 << 62)).amax(-1, keepdim=True)
    # Two factors, because the power of a column alone may leave the floating-point range.
    unit = state * power_of_two(-exponents(state.abs()).clamp_min(-126), state.dtype)
    weights = unit * power_of_two(sizes - largest, state.dtype)
    moved, more = scaled((product @ weights.unsqueeze(-1)).squeeze(-1))
    reached = largest.squeeze(-1).where((state != 0).any(-1), 0)
    return moved, exponent + reached + more


def _stepped(lanes: Lanes, state: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
    """Compute scaled states ``(C, N, D)`` and exponents ``(C, N)`` from those that enter the lanes."""
    states = state.new_empty(lanes.steps, *state.shape)
    powers = exponent.new_empty(lanes.steps, *exponent.shape)
    for step, (out, power) in enumerate(zip(states.unbind(0), powers.unbind(0), strict=True)):
        state, more = scaled(lanes.apply(step, state, out))
        exponent = exponent + more
        out.copy_(state)
        power.copy_(exponent)
    return states, powers


def _entering(initial: Tensor, products: Tensor, powers: Tensor) -> tuple[Tensor, Tensor]:
    """Return what enters every chunk: scaled states ``(B, K, D)`` and exponents ``(B, K)``."""
    state, exponent = scaled(initial)
    states, exponents_ = [state], [exponent]
    for product, power in zip(products.unbind(1)[:-1], powers.unbind(1)[:-1], strict=True):
        state, exponent = _carried(state, exponent, product, power)
        states.append(state)
        exponents_.append(exponent)
    return torch.stack(states, 1), torch.stack(exponents_, 1)


def forward(matrices: Tensor, tokens: Tensor | None, initial: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    """Compute states ``(B, T, D)`` and logs ``(B, T)``, T ≥ 1; no gradient."""
    batch, time = (matrices if tokens is None else tokens).shape[:2]
    dim = initial.shape[-1]
    plan = plan_normalised(batch, time, dim)
    chunks, body = plan.chunks, plan.chunks * plan.length
    lanes = _lanes(matrices, tokens, slice(0, body), chunks)
    if chunks == 1:
        entering = scaled(initial)
    else:
        products, powers = _products(lanes)
        shape = batch, chunks, dim
        each = _entering(initial, products.view(*shape, dim), powers.view(shape))
        entering = each[0].flatten(0, 1), each[1].flatten(0, 1)
    states, exponent = _stepped(lanes, *entering)
    states = from_lanes(states, chunks).reshape(batch, body, dim)
    exponent = from_lanes(exponent, chunks).reshape(batch, body)
    if body < time:
        tail = _lanes(matrices, tokens, slice(body, time), 1)
        more, powers = _stepped(tail, states[:, -1], exponent[:, -1])
        states = torch.cat((states, more.movedim(0, 1)), 1)
        exponent = torch.cat((exponent, powers.movedim(0, 1)), 1)
    result = finished(states, exponent, norm)
    rows = (~result[0].isfinite().all(-1).all(-1)).nonzero().squeeze(-1) if chunks > 1 else ()
    if len(rows):  # a product may overflow where the states do not
        drive = matrices[rows] if tokens is None else matrices
        alone = _lanes(drive, None if tokens is None else tokens[rows], slice(0, time), 1)
        again, powers = _stepped(alone, *scaled(initial[rows]))
        again, logs = finished(again.movedim(0, 1), powers.movedim(0, 1), norm)
        result[0][rows], result[1][rows] = again, logs
    return result


def inverse_norms(initial_logs: Tensor, logs: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``1 / ‖M_t h_{t-1}‖ (B, T)``; 0 where no state is left."""
    before = torch.cat((initial_logs.unsqueeze(1), logs[:, :-1]), 1)
    alive = logs > -torch.inf
    return cut((before - logs).where(alive, -torch.inf).exp().to(dtype))


def inverse_of_start(log_begun: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``1 / ‖h_0‖ (B, 1)``; 0 for a start of zeros."""
    return cut((-log_begun).where(log_begun > -torch.inf, -torch.inf).exp().to(dtype)).unsqueeze(-1)


def alive_gradients(logs: Tensor, grad: Tensor, grad_logs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of states, and E_t, the sum of those of the logs from t on; 0 where no state is left."""
    alive = logs > -torch.inf
    total = log_dtyped(grad_logs).where(alive, 0.0).flip(1).cumsum(1).flip(1)
    return grad.where(alive.unsqueeze(-1), 0.0), total.where(alive, 0.0).to(grad.dtype)


def _retreated(lanes: Lanes, sides: Sequence[Tensor], incoming: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ``q_t = d_t / c_t (C, N, D)``, and what leaves the lanes at their starts ``(N, D)``."""
    grad, states, slopes, totals, inverse = sides
    out = torch.empty_like(states)
    for t in range(lanes.steps - 1, -1, -1):
        pulled = grad[t] + incoming
        along = totals[t] - (states[t] * pulled).sum(-1)
        adjoint = cut((pulled + along.unsqueeze(-1) * slopes[t]) * inverse[t].unsqueeze(-1))
        out[t] = adjoint
        incoming = cut(lanes.apply_adjoint(t, adjoint))
    return out, incoming


def backward(
    matrices: Tensor,
    tokens: Tensor | None,
    initial: Tensor,
    result: Normalised,
    sent: Normalised,
    norm: str,
    *,
    wants_matrices: bool,
) -> tuple[Tensor | None, Tensor]:
    """Compute gradients of matrices and initial states from those ``sent`` to the result; products are formed again."""
    (states, logs), (grad, grad_logs) = result, sent
    batch, time, dim = states.shape
    begun, log_begun = normalised(initial, norm)
    plan = plan_normalised(batch, time, dim)
    chunks, body = plan.chunks, plan.chunks * plan.length
    inverse = inverse_norms(log_begun, logs, states.dtype)
    grad, totals = alive_gradients(logs, grad, grad_logs)
    slopes = slope(states, norm)
    every = grad, states, slopes, totals, inverse
    adjoints = torch.empty_like(states)
    incoming = torch.zeros_like(initial)
    if body < time:
        tail = _lanes(matrices, tokens, slice(body, time), 1)
        part, incoming = _retreated(tail, [to_lanes(each[:, body:], 1) for each in every], incoming)
        adjoints[:, body:] = part.movedim(0, 1)
    lanes = _lanes(matrices, tokens, slice(0, body), chunks)
    sides = [to_lanes(each[:, :body], chunks) for each in every]
    if chunks > 1:
        beyond = totals[:, body] if body < time else torch.zeros_like(totals[:, 0])
        received = _sent(lanes, sides, incoming, beyond, logs[:, :body], log_begun, chunks)
        entering = torch.cat((received, incoming.unsqueeze(1)), 1).flatten(0, 1)
    else:
        entering = incoming
    part, leaving = _retreated(lanes, sides, entering)
    adjoints[:, :body] = from_lanes(part, chunks).reshape(batch, body, dim)
    to_initial = leaving.view(batch, chunks, dim)[:, 0] * inverse_of_start(log_begun, states.dtype)
    if not wants_matrices:
        return None, to_initial
    return matrix_gradient(matrices, tokens, begun, states, adjoints), to_initial


def _sent(
    lanes: Lanes,
    sides: list[Tensor],
    incoming: Tensor,
    beyond: Tensor,
    logs: Tensor,
    log_begun: Tensor,
    chunks: int,
) -> Tensor:
    """Return the adjoints that enter all chunks but the last from their ends, ``(B, K - 1, D)``."""
    batch, body = logs.shape
    dim, length = incoming.shape[-1], body // chunks
    grad, states, slopes, totals, inverse = sides
    # A lane alone: E without what lies beyond its end.
    own = totals - torch.cat((totals[0].view(batch, chunks)[:, 1:], beyond.unsqueeze(1)), 1).flatten()
    _, response = _retreated(lanes, [grad, states, slopes, own, inverse], torch.zeros_like(states[0]))
    response = response.view(batch, chunks, dim)
    products, powers = _products(lanes)
    products = products.view(batch, chunks, dim, dim)
    bounds = torch.cat((log_begun.unsqueeze(1), logs[:, length - 1 :: length]), 1)
    grown = (bounds[:, 1:] - bounds[:, :-1]).where(bounds[:, 1:] > -torch.inf, torch.inf)
    powers = log_dtyped(powers.view(batch, chunks, dim)) * math.log(2.0)
    factors = cut((powers - grown.unsqueeze(-1)).exp().to(states.dtype))
    sent = [incoming]
    for chunk in range(chunks - 1, 0, -1):
        back = (products[:, chunk].mT @ sent[-1].unsqueeze(-1)).squeeze(-1)
        sent.append(cut(response[:, chunk] + cut(back) * factors[:, chunk]))
    return torch.stack(sent[:0:-1], 1)


def matrix_gradient(matrices: Tensor, tokens: Tensor | None, begun: Tensor, states: Tensor, adjoints: Tensor) -> Tensor:
    """Compute ``Σ q_t h_{t-1}ᵀ``, per token or per position."""
    before = torch.cat((begun.unsqueeze(1), states[:, :-1]), 1)
    if tokens is None:
        return adjoints.unsqueeze(-1) * before.unsqueeze(-2)
    rows = before.flatten(0, 1)
    return outer_by_token(adjoints.flatten(0, 1), lambda at: rows[at], tokens.flatten(), matrices.shape[0])
