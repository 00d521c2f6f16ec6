"""The scan of block-diagonal matrices, block by block: a direct sum of automata costs the sum of what they cost.

On a GPU all blocks are one registered operation, which writes the states of every block to their columns of one tensor.
Elsewhere they are scans of their own, put side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from transductor.checks import transformed, vmapped
from transductor.kernels.gpu.cuts import product_shapes
from transductor.recurrence.backends import BACKENDS, solved
from transductor.recurrence.derivatives import differentiable_gradients
from transductor.recurrence.operator import kernel_states
from transductor.recurrence.problem import Problem

# Small blocks are scanned together up to this dimension: a step of sixteen coordinates costs no more than one of five.
_TOGETHER = 16
# From this many positions on, blocks by themselves are quicker than all as one.
_MANY = 1 << 15


def joined_blocks(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of the blocks that are scanned: small neighbours are one block."""
    joined: list[int] = []
    for size in sizes:
        if joined and joined[-1] + size <= _TOGETHER:
            joined[-1] += size
        else:
            joined.append(size)
    return tuple(joined)


def solved_blocks(problem: Problem, backend: str, sizes: Sequence[int]) -> Tensor:
    """Compute all states ``(B, T, D)`` of matrices with blocks of these sizes on the diagonal, zero beside them."""
    sizes = joined_blocks(sizes)
    refusal = BACKENDS["triton"].refusal
    kernels = backend in ("auto", "triton") and problem.start.is_cuda and problem.ring == "real"
    if len(sizes) == 1 or not kernels:
        return solved(problem, backend)
    operands = problem.matrices, problem.bias, problem.start
    if problem.batch * problem.time < _MANY or transformed(*operands) or vmapped(*operands):
        return solved(problem, backend)
    if problem.tokens is None or torch.compiler.is_exporting():
        return solved(problem, backend)
    parts = _split(problem, sizes)
    if any(refusal(part) is not None for part in parts):
        return solved(problem, backend)
    if problem.bias is not None or problem.offsets is not None:
        return torch.cat([solved(part, "triton") for part in parts], -1)
    return block_states(problem, sizes)


def block_states(problem: Problem, sizes: Sequence[int]) -> Tensor:
    """Compute all states of rows of tokens by the kernels of a GPU, in one operation."""
    operation = torch.ops.transductor.block_scan
    return cast(Tensor, operation(problem.matrices, problem.tokens, problem.initial, problem.mask, list(sizes))[0])


def _bounds(sizes: Sequence[int]) -> list[tuple[int, int]]:
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    return [(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _split(problem: Problem, sizes: Sequence[int]) -> list[Problem]:
    """Return the scan of every block."""
    return [
        replace(
            problem,
            matrices=problem.matrices[..., begin:end, begin:end],
            bias=None if problem.bias is None else problem.bias[..., begin:end],
            start=problem.initial[..., begin:end],
        )
        for begin, end in _bounds(sizes)
    ]


def _gpu() -> Any:
    from transductor.kernels.gpu import scan  # Triton is optional

    return scan


@torch.library.custom_op("transductor::block_scan", mutates_args=())
def _block_scan(
    matrices: Tensor, tokens: Tensor, initial: Tensor, mask: Tensor | None, sizes: list[int]
) -> tuple[Tensor, list[Tensor]]:
    """Compute states, and of every block the products of chunks and of groups of chunks."""
    states = initial.new_empty(*tokens.shape, initial.shape[-1])
    products: list[Tensor] = []
    for begin, end in _bounds(sizes):
        part = matrices[:, begin:end, begin:end], tokens, None, initial[:, begin:end], mask, None
        products += _gpu().forward(*part, out=states[..., begin:end])[1:]
    return states, products


@_block_scan.register_fake
def _(
    matrices: Tensor, tokens: Tensor, initial: Tensor, mask: Tensor | None, sizes: list[int]
) -> tuple[Tensor, list[Tensor]]:
    products = []
    for size in sizes:
        shapes = product_shapes(
            tokens.shape[0], tokens.shape[1], size, matrices.shape[0],
            masked=mask is not None, double=initial.dtype == torch.float64,
        )  # fmt: skip
        products += [initial.new_empty(shape) for shape in shapes]
    return initial.new_empty(*tokens.shape, initial.shape[-1]), products


@torch.library.custom_op("transductor::block_scan_backward", mutates_args=())
def _block_scan_backward(
    matrices: Tensor,
    tokens: Tensor,
    initial: Tensor,
    mask: Tensor | None,
    states: Tensor,
    products: list[Tensor],
    grad: Tensor,
    sizes: list[int],
    wants_matrices: bool,
) -> tuple[Tensor, Tensor]:
    """Compute gradients of matrices and initial states; beside the blocks that of the matrices is zero."""
    to_matrices = torch.zeros_like(matrices) if wants_matrices else grad.new_empty(0)
    to_initial = torch.empty_like(initial)
    grad = grad.contiguous()
    for number, (begin, end) in enumerate(_bounds(sizes)):
        part, _, started = _gpu().backward(
            matrices[:, begin:end, begin:end], tokens, initial[:, begin:end], mask, None, states[..., begin:end],
            *products[2 * number : 2 * number + 2], grad[..., begin:end],
            wants_matrices=wants_matrices, wants_bias=False,
        )  # fmt: skip
        to_initial[:, begin:end] = started
        if wants_matrices:
            to_matrices[:, begin:end, begin:end] = part
    return to_matrices, to_initial


@_block_scan_backward.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor]:
    matrices, _, initial, *_, grad, _, wants_matrices = arguments
    to_matrices = matrices.new_empty(matrices.shape) if wants_matrices else grad.new_empty(0)
    return to_matrices, initial.new_empty(initial.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, list[Tensor]]) -> None:
    *operands, ctx.sizes = inputs
    states, products = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*operands, states, *products)


def _differentiate(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 5
    matrices, tokens, initial, mask, states, *products = ctx.saved_tensors
    needs = ctx.needs_input_grad
    if torch.is_grad_enabled():  # create_graph=True: a gradient that can be differentiated again
        problem, needed = Problem(matrices, tokens, None, initial, mask), (needs[0], False, needs[2])
        to_matrices, _, to_initial = differentiable_gradients(problem, kernel_states("triton"), needed, grad)
        return to_matrices, None, to_initial, None, None
    to_matrices, to_initial = torch.ops.transductor.block_scan_backward(
        matrices, tokens, initial, mask, states, products, grad, ctx.sizes, needs[0]
    )
    return to_matrices if needs[0] else None, None, to_initial if needs[2] else None, None, None


_block_scan.register_autograd(_differentiate, setup_context=_remember)
