"""The real scan as one registered torch operation: differentiable, and opaque to compilers.

``torch.compile`` sees a single node with known shapes, whatever the length.  ``engine`` chooses the kernels behind it:
"triton" (GPU, or Triton's interpreter), "numba" (CPU), "chunked" (plain torch, everywhere) or "columns" (for
matrices with at most one entry in a column).

Torch takes longer to call a registered operation of Python than a GPU to compute a small scan.  So where no one looks
at operations (no compiler, no mode, no tensors of another type), the same functions are called directly.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from transductor.checks import readable, unseen
from transductor.kernels.cpu import scan as cpu
from transductor.kernels.gpu.cuts import product_shapes
from transductor.recurrence import chunked as torch_chunks
from transductor.recurrence import columns
from transductor.recurrence.derivatives import States, differentiable_gradients
from transductor.recurrence.overflow import all_finite
from transductor.recurrence.problem import Problem, documents, folded, rows_side_by_side
from transductor.recurrence.reference import reference


def kernel_scan(problem: Problem, engine: str) -> Tensor:
    """Compute all states ``(B, T, D)`` by the kernels of ``engine``; only "triton" knows masks and documents."""
    if problem.time == 0 or problem.batch == 0:
        return reference(problem)
    flat = problem if engine == "triton" else folded(problem)
    if unseen(flat.matrices, flat.tokens, flat.bias, flat.start, flat.mask, flat.offsets):
        states = _direct_states(flat, engine)
    else:
        operands = flat.matrices, flat.tokens, flat.bias, flat.initial, flat.mask, flat.offsets
        states = cast(Tensor, torch.ops.transductor.scan(*operands, engine)[0])
    if flat is not problem and problem.offsets is not None and readable(states) and not all_finite(states):
        return reference(problem)  # a folded boundary is a zero matrix, which an infinite state turns into NaN
    return states


def kernel_states(engine: str) -> States:
    """Return the function that computes states by the kernels of ``engine``, as plain numbers."""
    # Derivatives scan transposed matrices, too, whose columns hold anything: "columns" leaves them to the chunked scan.
    return {"triton": _triton_states, "numba": cpu.forward}.get(engine, torch_chunks.chunked_states)


def _triton_states(matrices: Tensor, tokens: Tensor | None, bias: Tensor | None, initial: Tensor) -> Tensor:
    return cast(Tensor, _gpu("forward")(matrices, tokens, bias, initial, None, None)[0])


@cache
def _gpu(name: str) -> Any:
    """Return the forward or the backward pass of the kernels."""
    from transductor.kernels.gpu import repeats, scan  # Triton is optional

    return repeats.Repeats(getattr(scan, name))


def forget_repeats() -> None:
    """Follow every kind of call on a GPU again: for whoever changes kernels, or how rows are cut."""
    _gpu.cache_clear()


@torch.library.custom_op("transductor::scan", mutates_args=())
def _scan(
    matrices: Tensor,
    tokens: Tensor | None,
    bias: Tensor | None,
    initial: Tensor,
    mask: Tensor | None,
    offsets: Tensor | None,
    engine: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute states, and the products of chunks and of groups of chunks where the backward pass uses them again."""
    if engine == "triton":
        starts = _starts(offsets, matrices, tokens)
        return cast("tuple[Tensor, Tensor, Tensor]", _gpu("forward")(matrices, tokens, bias, initial, mask, starts))
    nothing = initial.new_empty(0)
    return _states(matrices, tokens, bias, initial, engine), nothing, nothing.clone()


def _states(matrices: Tensor, tokens: Tensor | None, bias: Tensor | None, initial: Tensor, engine: str) -> Tensor:
    states_of = columns.forward if engine == "columns" else kernel_states(engine)
    return states_of(matrices, tokens, bias, initial)


@_scan.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    matrices, tokens, _, initial, mask, offsets, engine = arguments
    batch, time = (matrices if tokens is None else tokens).shape[:2]
    states = initial.new_empty(batch, time, initial.shape[-1])
    if engine != "triton":
        return states, initial.new_empty(0), initial.new_empty(0)
    if torch.compiler.is_exporting():  # how a row is cut depends on its length; a program must hold for all
        size = torch.library.get_ctx().new_dynamic_size
        return states, initial.new_empty(size()), initial.new_empty(size())
    symbols = 0 if tokens is None else matrices.shape[0]
    chunks, groups = product_shapes(
        batch, time, initial.shape[-1], symbols,
        masked=mask is not None, packed=offsets is not None, double=initial.dtype == torch.float64,
    )  # fmt: skip
    return states, initial.new_empty(chunks), initial.new_empty(groups)


@torch.library.custom_op("transductor::scan_backward", mutates_args=())
def _scan_backward(
    matrices: Tensor,
    tokens: Tensor | None,
    initial: Tensor,
    mask: Tensor | None,
    offsets: Tensor | None,
    states: Tensor,
    chunk_products: Tensor,
    group_products: Tensor,
    grad: Tensor,
    engine: str,
    wants_matrices: bool,
    additive: bool,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute gradients of matrices, bias and initial states; empty where they are not wanted."""
    starts = _starts(offsets, matrices, tokens) if engine == "triton" else None
    to_matrices, to_bias, to_initial = _gradients(
        matrices, tokens, initial, mask, starts, states, chunk_products, group_products, grad, engine,
        wants_matrices=wants_matrices, additive=additive, wants_bias=wants_bias,
    )  # fmt: skip
    nothing = grad.new_empty(0)
    if to_bias is None or not wants_bias:
        to_bias = nothing.clone()
    return nothing if to_matrices is None else to_matrices, to_bias, to_initial


def _gradients(
    matrices: Tensor,
    tokens: Tensor | None,
    initial: Tensor,
    mask: Tensor | None,
    starts: Tensor | None,
    states: Tensor,
    chunk_products: Tensor | None,
    group_products: Tensor | None,
    grad: Tensor,
    engine: str,
    *,
    wants_matrices: bool,
    additive: bool,
    wants_bias: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Compute gradients of matrices, bias and initial states; one that is not wanted may be None."""
    if engine == "triton":
        gradients = _gpu("backward")(
            matrices, tokens, initial, mask, starts, states, chunk_products, group_products, grad,
            wants_matrices=wants_matrices, wants_bias=wants_bias,
        )  # fmt: skip
        return cast("tuple[Tensor | None, Tensor | None, Tensor]", gradients)
    if engine == "chunked":
        return torch_chunks.backward(matrices, tokens, additive, initial, states, grad, wants_matrices=wants_matrices)
    backward = cpu.backward if engine == "numba" else columns.backward
    return backward(matrices, tokens, initial, states, grad, wants_matrices=wants_matrices)


@_scan_backward.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    matrices, _, initial, _, _, states, *_, grad, _, wants_matrices, _, wants_bias = arguments
    nothing = grad.new_empty(0)
    to_matrices = matrices.new_empty(matrices.shape) if wants_matrices else nothing
    to_bias = states.new_empty(states.shape) if wants_bias else nothing.clone()
    return to_matrices, to_bias, initial.new_empty(initial.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    matrices, tokens, bias, initial, mask, offsets, engine = inputs
    states, chunk_products, group_products = output
    ctx.engine = engine
    ctx.set_materialize_grads(False)
    # The bias is kept only for second derivatives; saving an input costs nothing.
    ctx.save_for_backward(
        matrices, tokens, bias, initial, mask, offsets, states, chunk_products, group_products
    )  # fmt: skip


def _differentiate(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 7
    matrices, tokens, bias, initial, mask, offsets, *computed = ctx.saved_tensors
    needs = ctx.needs_input_grad
    if torch.is_grad_enabled():  # create_graph=True: a gradient that can be differentiated again
        problem, needed = Problem(matrices, tokens, bias, initial, mask, offsets), (needs[0], needs[2], needs[3])
        gradients = differentiable_gradients(problem, kernel_states(ctx.engine), needed, grad)
        return gradients[0], None, *gradients[1:], None, None, None
    additive = bias is not None
    to_matrices, to_bias, to_initial = torch.ops.transductor.scan_backward(
        matrices, tokens, initial, mask, offsets, *computed, grad, ctx.engine, needs[0], additive, additive and needs[2]
    )
    return (
        to_matrices if needs[0] else None,
        None,
        to_bias.to(bias.dtype) if additive and needs[2] else None,
        to_initial if needs[3] else None,
        None,
        None,
        None,
    )


_scan.register_autograd(_differentiate, setup_context=_remember)


def _direct_states(problem: Problem, engine: str) -> Tensor:
    """Compute all states without the operation."""
    matrices, tokens, bias, start = problem.matrices, problem.tokens, problem.bias, problem.start
    learned = matrices.requires_grad or start.requires_grad or (bias is not None and bias.requires_grad)
    if learned and torch.is_grad_enabled():
        states = _DirectScan.apply(matrices, tokens, bias, start, problem, engine)  # type: ignore[no-untyped-call]
        return cast(Tensor, states)
    return _computed(problem, engine)[0]


def _computed(problem: Problem, engine: str) -> tuple[Tensor, ...]:
    """Compute states; by "triton" also the products that the backward pass uses again, and where documents begin."""
    matrices, tokens, bias, initial = problem.matrices, problem.tokens, problem.bias, problem.initial
    if engine != "triton":
        return (_states(matrices, tokens, bias, initial, engine),)
    starts = _starts(problem.offsets, matrices, tokens)
    return *_gpu("forward")(matrices, tokens, bias, initial, problem.mask, starts), starts


class _DirectScan(torch.autograd.Function):
    """The same without the operation; torch looks the signature up at every call of a ``setup_context``."""

    @staticmethod
    def forward(
        ctx: Any,
        matrices: Tensor,
        tokens: Tensor | None,
        bias: Tensor | None,
        start: Tensor,
        problem: Problem,
        engine: str,
    ) -> Tensor:
        states, *computed = _computed(problem, engine)
        ctx.engine = engine
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(matrices, tokens, bias, start, problem.mask, problem.offsets, states, *computed)
        return states

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 6
        saved = ctx.saved_tensors  # read once: a checkpoint computes them again at every look
        matrices, tokens, bias, start, mask, offsets, states, *computed = saved
        needs, problem = ctx.needs_input_grad, Problem(matrices, tokens, bias, start, mask, offsets)
        if torch.is_grad_enabled():
            needed = needs[0], needs[2], needs[3]
            gradients = differentiable_gradients(problem, kernel_states(ctx.engine), needed, grad)
            return gradients[0], None, *gradients[1:], None, None
        chunk_products, group_products, starts = computed or (None, None, None)
        additive, wants_bias = bias is not None, bias is not None and needs[2]
        initial = problem.initial
        if unseen(*saved, grad):
            to_matrices, to_bias, to_initial = _gradients(
                matrices, tokens, initial, mask, starts, states, chunk_products, group_products, grad, ctx.engine,
                wants_matrices=needs[0], additive=additive, wants_bias=wants_bias,
            )  # fmt: skip
        else:  # a graph that is compiled as it is differentiated
            products = (grad.new_empty(0) if value is None else value for value in (chunk_products, group_products))
            to_matrices, to_bias, to_initial = torch.ops.transductor.scan_backward(
                matrices, tokens, initial, mask, offsets, states, *products, grad, ctx.engine, needs[0], additive,
                wants_bias,
            )  # fmt: skip
        if start.ndim == 1:
            to_initial = to_initial[0] if len(to_initial) == 1 else to_initial.sum(0)
        if not wants_bias or to_bias is None or bias is None:
            to_bias = None
        elif to_bias.dtype != bias.dtype:
            to_bias = to_bias.to(bias.dtype)
        return to_matrices if needs[0] else None, None, to_bias, to_initial if needs[3] else None, None, None


@_scan.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
    """Run many scans as one inside a compiled graph: rows side by side, each with its own part of one long table."""
    *operands, offsets, engine = arguments
    size = info.batch_size
    if offsets is not None:
        raise NotImplementedError("vmap over packed documents: give cu_seqlens outside of vmap")
    folded = rows_side_by_side(size, in_dims, operands)
    states, *products = torch.ops.transductor.scan(*folded, None, engine)
    if engine != "triton":
        return (states.unflatten(0, (size, -1)), *products), (0, None, None)
    return tuple(each.unflatten(0, (size, -1)) for each in (states, *products)), (0, 0, 0)


def _starts(offsets: Tensor | None, matrices: Tensor, tokens: Tensor | None) -> Tensor | None:
    """Return for every position of a packed row the document that begins there, else -1: ``(T)`` int32."""
    if offsets is None:
        return None
    document, begins = documents(offsets, (matrices if tokens is None else tokens).shape[1])
    return document.where(begins, -1).int()
