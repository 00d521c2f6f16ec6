"""The scan of matrices with at most one entry in a column: deterministic moves, each with a gain.

Such a matrix is a pair (images, gains): column j sends its number, times ``gains[j]``, to row ``images[j]``.  A step is
D products and a sum by destination, and a product of two matrices is two gathers: D numbers instead of D³.  On a
CPU with numba the rows are walked in compiled loops; elsewhere chunks advance side by side as in the chunked scan.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from transductor.kernels.cpu import columns as cpu_columns
from transductor.kernels.cpu import scan as cpu
from transductor.recurrence.lanes import from_lanes, to_lanes
from transductor.recurrence.normalised_chunks import matrix_gradient
from transductor.recurrence.overflow import overflowed_rows

# Positions below which a row is not cut: the calls of a chunk's product cost more than those of its steps.
_WORTH_CUTTING = 64


class Moves(NamedTuple):
    """Matrices with at most one entry in a column: ``images`` and ``gains``, both ``(..., D)``."""

    images: Tensor
    gains: Tensor

    def at(self, rows: Tensor) -> Moves:
        """Return the pairs of these rows."""
        return Moves(self.images[rows], self.gains[rows])

    def part(self, rows: slice) -> Moves:
        """Return some positions ``(B, T, ...)``."""
        return Moves(self.images[:, rows], self.gains[:, rows])

    def lanes(self, chunks: int) -> list[Moves]:
        """Return what moves all chunks at every step, ``(B · chunks, D)`` each."""
        images, gains = to_lanes(self.images, chunks), to_lanes(self.gains, chunks)
        return [Moves(*pair) for pair in zip(images.unbind(0), gains.unbind(0), strict=True)]

    def applied(self, states: Tensor) -> Tensor:
        """Return ``M · states``."""
        return torch.zeros_like(states).scatter_add(-1, self.images, self.gains * states)

    def adjoint(self, adjoints: Tensor) -> Tensor:
        """Return ``Mᵀ · adjoints``."""
        return self.gains * adjoints.gather(-1, self.images)

    def then(self, later: Moves) -> Moves:
        """Return the product ``later · self``."""
        return Moves(later.images.gather(-1, self.images), later.gains.gather(-1, self.images) * self.gains)


def one_per_column(matrices: Tensor) -> bool:
    """Tell whether no column of ``(..., D, D)`` holds more than one entry that is not 0."""
    return not matrices.numel() or bool(((matrices != 0).sum(-2) <= 1).all())


def moves_of(matrices: Tensor) -> Moves:
    """Return the pairs of matrices ``(..., D, D)`` that have at most one entry in a column; not checked."""
    images = (matrices != 0).to(torch.uint8).argmax(-2)
    return Moves(images, matrices.gather(-2, images.unsqueeze(-2)).squeeze(-2))


def _at_positions(matrices: Tensor, tokens: Tensor | None) -> Moves:
    every = moves_of(matrices.detach())
    return every if tokens is None else every.at(tokens)


def _cut(time: int) -> tuple[int, int]:
    """Return how many chunks of which length; the rest is a tail."""
    if time < 2 * _WORTH_CUTTING:
        return 1, time
    length = max(_WORTH_CUTTING, round(time**0.5))
    return time // length, length


def _stepped(moves: list[Moves], bias: list[Tensor] | None, state: Tensor) -> Tensor:
    """Return the states ``(C, N, D)`` of lanes from those that enter them."""
    states = []
    for step, move in enumerate(moves):
        state = move.applied(state)
        if bias is not None:
            state = state + bias[step]
        states.append(state)
    return torch.stack(states)


def _retreated(moves: list[Moves], grad: list[Tensor], incoming: Tensor) -> tuple[Tensor, Tensor]:
    """Return the adjoints ``(C, N, D)`` of lanes, and what they send back to the states that entered them."""
    adjoints = []
    for move, own in zip(reversed(moves), reversed(grad), strict=True):
        adjoints.append(own + incoming)
        incoming = move.adjoint(adjoints[-1])
    return torch.stack(adjoints[::-1]), incoming


def _products(moves: list[Moves], batch: int) -> Moves:
    """Multiply every lane's matrices: pairs ``(B, K, D)``."""
    product = moves[0]
    for move in moves[1:]:
        product = product.then(move)
    return Moves(product.images.unflatten(0, (batch, -1)), product.gains.unflatten(0, (batch, -1)))


def _forward(moves: Moves, bias: Tensor | None, initial: Tensor, chunks: int, length: int) -> Tensor:
    batch, time, dim = moves.gains.shape
    body = chunks * length
    lanes = moves.part(slice(0, body)).lanes(chunks)
    lane_bias = None if bias is None else list(to_lanes(bias[:, :body], chunks).unbind(0))
    entering = initial
    if chunks > 1:
        products = _products(lanes, batch)
        alone = initial.new_zeros(batch, chunks, dim)
        if lane_bias is not None:
            alone = _stepped(lanes, lane_bias, initial.new_zeros(batch * chunks, dim))[-1].view_as(alone)
        entered = [initial]
        for chunk in range(chunks - 1):
            product = Moves(products.images[:, chunk], products.gains[:, chunk])
            entered.append(product.applied(entered[-1]) + alone[:, chunk])
        entering = torch.stack(entered, 1).flatten(0, 1)
    states = from_lanes(_stepped(lanes, lane_bias, entering), chunks).reshape(batch, body, dim)
    if body == time:
        return states
    tail_bias = None if bias is None else list(to_lanes(bias[:, body:], 1).unbind(0))
    tail = _stepped(moves.part(slice(body, time)).lanes(1), tail_bias, states[:, -1])
    return torch.cat((states, tail.movedim(0, 1)), 1)


def _backward(moves: Moves, grad: Tensor, chunks: int, length: int) -> tuple[Tensor, Tensor]:
    batch, time, dim = grad.shape
    body = chunks * length
    incoming, parts = grad.new_zeros(batch, dim), []
    if body < time:
        tail = list(to_lanes(grad[:, body:], 1).unbind(0))
        part, incoming = _retreated(moves.part(slice(body, time)).lanes(1), tail, incoming)
        parts.append(part.movedim(0, 1))
    lanes = moves.part(slice(0, body)).lanes(chunks)
    sides = list(to_lanes(grad[:, :body], chunks).unbind(0))
    if chunks > 1:
        response = _retreated(lanes, sides, grad.new_zeros(batch * chunks, dim))[1].view(batch, chunks, dim)
        products = _products(lanes, batch)
        received = [incoming]
        for chunk in range(chunks - 1, 0, -1):
            product = Moves(products.images[:, chunk], products.gains[:, chunk])
            received.append(response[:, chunk] + product.adjoint(received[-1]))
        incoming = torch.stack(received[::-1], 1).flatten(0, 1)
    part, leaving = _retreated(lanes, sides, incoming)
    adjoints = from_lanes(part, chunks).reshape(batch, body, dim)
    return torch.cat((adjoints, *parts), 1), leaving.view(batch, chunks, dim)[:, 0]


def forward(matrices: Tensor, tokens: Tensor | None, bias: Tensor | None, initial: Tensor) -> Tensor:
    """Compute states ``(B, T, D)``, T ≥ 1; no gradient."""
    if _compiled(initial):
        return cpu_columns.forward(*moves_of(matrices.detach()), tokens, bias, initial)
    return in_chunks(matrices, tokens, bias, initial)


def backward(
    matrices: Tensor, tokens: Tensor | None, initial: Tensor, states: Tensor, grad: Tensor, *, wants_matrices: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Compute gradients of matrices (all of their entries), bias and initial states."""
    if _compiled(initial):
        return cpu_columns.backward(
            *moves_of(matrices.detach()), matrices, tokens, initial, states, grad, wants_matrices=wants_matrices
        )
    adjoints, to_initial = adjoints_in_chunks(matrices, tokens, grad)
    to_matrices = matrix_gradient(matrices, tokens, initial, states, adjoints) if wants_matrices else None
    return to_matrices, adjoints, to_initial


def _compiled(values: Tensor) -> bool:
    return values.device.type == "cpu" and cpu.available()


def in_chunks(matrices: Tensor, tokens: Tensor | None, bias: Tensor | None, initial: Tensor) -> Tensor:
    """Compute states in plain torch; step by step in rows where a product is not finite."""
    moves, added, start = _at_positions(matrices, tokens), None if bias is None else bias.detach(), initial.detach()
    chunks, length = _cut(moves.gains.shape[1])
    states = _forward(moves, added, start, chunks, length)
    if chunks > 1 and len(rows := overflowed_rows(states)):
        again = None if added is None else added[rows]
        states[rows] = _forward(moves.at(rows), again, start[rows], 1, states.shape[1])
    return states


def adjoints_in_chunks(matrices: Tensor, tokens: Tensor | None, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the adjoints of states and initial states in plain torch."""
    moves = _at_positions(matrices, tokens)
    chunks, length = _cut(grad.shape[1])
    adjoints, to_initial = _backward(moves, grad, chunks, length)
    if chunks > 1 and len(rows := overflowed_rows(adjoints, to_initial)):
        adjoints[rows], to_initial[rows] = _backward(moves.at(rows), grad[rows], 1, grad.shape[1])
    return adjoints, to_initial
