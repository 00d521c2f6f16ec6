"""The normalised scan as one registered torch operation, and who computes it.

``engine`` is "numba" (CPU), "triton" (GPU) or "chunked" (plain torch, everywhere).  A gradient that is to be
differentiated again comes from the reference loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from transductor.checks import differentiated, one_of, vmapped
from transductor.kernels.cpu import normalised as cpu_normalised
from transductor.kernels.cpu import scan as cpu
from transductor.kernels.gpu.cuts import LARGEST_BELIEF, TRITON_FOUND
from transductor.recurrence import normalised_chunks as torch_chunks
from transductor.recurrence.backends import triton_missing
from transductor.recurrence.normalised import cut_out, documents_side_by_side, reference
from transductor.recurrence.normalised_chunks import (
    alive_gradients,
    inverse_norms,
    inverse_of_start,
    matrix_gradient,
)
from transductor.recurrence.norms import LARGEST, Normalised, log_dtyped, logs_of, normalised, scaled
from transductor.recurrence.problem import Problem, folded, rows_side_by_side


def normalised_backends() -> list[str]:
    """Return the backends that know ``normalise`` and can run here."""
    numba, triton = ["numba"] if cpu.available() else [], ["triton"] if TRITON_FOUND else []
    return ["reference", "chunked", *numba, *triton]


def solved_normalised(problem: Problem, norm: str, backend: str) -> Normalised:
    """Compute states ``(B, T, D)`` and logs ``(B, T)`` of a checked scan by the backend of that name."""
    one_of("backend with normalise", backend, ["auto", *normalised_backends()])
    on_cpu = problem.initial.device.type == "cpu"
    if backend == "numba" and not on_cpu:
        raise ValueError(f"backend='numba' runs on the CPU; transitions are on {problem.initial.device}: use 'chunked'")
    if backend == "triton" and (error := _triton_refusal(problem)) is not None:
        raise error
    work = problem.initial.dtype
    problem = replace(problem, matrices=problem.matrices.to(work))
    leaves = problem.matrices, problem.initial
    unknown = differentiated(*leaves) or (problem.offsets is not None and vmapped(*leaves, problem.tokens))
    if backend == "reference" or not (problem.time and problem.batch) or unknown:
        return reference(problem, norm)
    engine = backend if backend != "auto" else _quickest(problem)
    plain = folded(replace(problem, offsets=None))  # padded steps become identities
    operands = plain.matrices, plain.tokens, problem.initial, problem.offsets
    return Normalised(*torch.ops.transductor.normalised_scan(*operands, norm, engine))


def _quickest(problem: Problem) -> str:
    if problem.initial.device.type == "cpu":
        return "numba" if cpu.available() else "chunked"
    suits = problem.initial.device.type == "cuda" and _triton_refusal(problem) is None
    return "triton" if suits else "chunked"


def _triton_refusal(problem: Problem) -> Exception | None:
    """Return the error that says why the GPU's kernels cannot compute a problem; None where they can."""
    if (error := triton_missing(problem.initial.device)) is not None:
        return error
    if problem.state_dim > LARGEST_BELIEF:
        return ValueError(
            f"backend='triton' with normalise takes D ≤ {LARGEST_BELIEF}; got D = {problem.state_dim}: use 'chunked'"
        )
    return None


def _forward(engine: str) -> Callable[..., tuple[Tensor, Tensor]]:
    return {"numba": _forward_on_cpu, "triton": _forward_on_gpu}.get(engine, torch_chunks.forward)


def _backward(engine: str) -> Callable[..., tuple[Tensor | None, Tensor]]:
    if engine == "chunked":
        return torch_chunks.backward
    return partial(_backward_compiled, _retreat_on_gpu if engine == "triton" else cpu_normalised.backward)


def _forward_on_cpu(matrices: Tensor, tokens: Tensor | None, initial: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    begun, exponent = scaled(initial)
    states, norms, powers = cpu_normalised.forward(matrices, tokens, begun, cpu_normalised.KINDS[norm])
    return states, logs_of(norms, powers + exponent.unsqueeze(1))


# Importing Triton takes a second, and it is not everywhere.
def _gpu() -> ModuleType:
    return import_module("transductor.kernels.gpu.normalised")


def _forward_on_gpu(matrices: Tensor, tokens: Tensor | None, initial: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    begun, exponent = scaled(initial)
    states, logs = _gpu().forward(matrices, tokens, begun, cpu_normalised.KINDS[norm])
    return states, logs + logs_of(torch.ones_like(logs), exponent.unsqueeze(1))


def _backward_compiled(
    retreat: Callable[..., tuple[Tensor | None, Tensor]],
    matrices: Tensor,
    tokens: Tensor | None,
    initial: Tensor,
    result: Normalised,
    sent: Normalised,
    norm: str,
    *,
    wants_matrices: bool,
) -> tuple[Tensor | None, Tensor]:
    states, logs = result
    begun, log_begun = normalised(initial, norm)
    grad, totals = alive_gradients(logs, *sent)
    sides = grad, totals, inverse_norms(log_begun, logs, states.dtype)
    kind, limit = cpu_normalised.KINDS[norm], LARGEST[states.dtype]
    to_matrices, leaving = retreat(
        matrices, tokens, begun, states, sides, kind, limit, wants_matrices=wants_matrices
    )  # fmt: skip
    return to_matrices, leaving * inverse_of_start(log_begun, states.dtype)


def _retreat_on_gpu(
    matrices: Tensor, tokens: Tensor | None, begun: Tensor, states: Tensor, *how: Any, wants_matrices: bool
) -> tuple[Tensor | None, Tensor]:
    adjoints, leaving = _gpu().backward(matrices, tokens, states, *how)
    if not wants_matrices:
        return None, leaving
    to_matrices = _gpu().matrix_gradient(matrices, tokens, begun, states, adjoints)
    if to_matrices is None:
        to_matrices = matrix_gradient(matrices, tokens, begun, states, adjoints)
    return to_matrices, leaving


@torch.library.custom_op("transductor::normalised_scan", mutates_args=())
def _scan(
    matrices: Tensor, tokens: Tensor | None, initial: Tensor, offsets: Tensor | None, norm: str, engine: str
) -> tuple[Tensor, Tensor]:
    """Compute normalised states ``(B, T, D)`` and logs ``(B, T)``."""
    if offsets is None:
        states, logs = _forward(engine)(matrices, tokens, initial, norm)
        return states.contiguous(), logs.contiguous()
    time = (matrices if tokens is None else tokens).shape[1]
    states = initial.new_empty(1, time, initial.shape[-1])
    logs = log_dtyped(initial.new_empty(1, time))
    packed = Problem(matrices, tokens, None, initial, None, offsets)
    for rows, positions, real in documents_side_by_side(offsets):
        part = cut_out(packed, rows, positions)
        some = _forward(engine)(part.matrices, part.tokens, part.initial, norm)
        states[0, positions[real]], logs[0, positions[real]] = some[0][real], some[1][real]
    return states, logs


@_scan.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor]:
    matrices, tokens, initial, *_ = arguments
    batch, time = (matrices if tokens is None else tokens).shape[:2]
    return initial.new_empty(batch, time, initial.shape[-1]), log_dtyped(initial.new_empty(batch, time))


@torch.library.custom_op("transductor::normalised_scan_backward", mutates_args=())
def _scan_backward(
    matrices: Tensor,
    tokens: Tensor | None,
    initial: Tensor,
    offsets: Tensor | None,
    states: Tensor,
    logs: Tensor,
    grad: Tensor,
    grad_logs: Tensor,
    norm: str,
    engine: str,
    wants_matrices: bool,
) -> tuple[Tensor, Tensor]:
    """Compute gradients of matrices (empty where not wanted) and initial states."""
    run = _backward(engine)
    if offsets is None:
        to_matrices, to_initial = run(
            matrices,
            tokens,
            initial,
            Normalised(states, logs),
            Normalised(grad, grad_logs),
            norm,
            wants_matrices=wants_matrices,
        )
        return grad.new_empty(0) if to_matrices is None else to_matrices, to_initial.contiguous()
    to_initial = torch.zeros_like(initial, memory_format=torch.contiguous_format)
    every = torch.zeros_like(matrices, memory_format=torch.contiguous_format) if wants_matrices else grad.new_empty(0)
    packed = Problem(matrices, tokens, None, initial, None, offsets)
    for rows, positions, real in documents_side_by_side(offsets):
        part = cut_out(packed, rows, positions)
        own = Normalised(grad[0, positions].where(real.unsqueeze(-1), 0.0), grad_logs[0, positions].where(real, 0.0))
        computed = Normalised(states[0, positions], logs[0, positions])
        to_matrices, to_initial[rows] = run(
            part.matrices, part.tokens, part.initial, computed, own, norm, wants_matrices=wants_matrices
        )
        if to_matrices is not None and tokens is None:
            every[0, positions[real]] = to_matrices[real]
        elif to_matrices is not None:
            every += to_matrices
    return every, to_initial


@_scan_backward.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor]:
    matrices, _, initial, *_, grad, _, _, _, wants_matrices = arguments
    to_matrices = matrices.new_empty(matrices.shape) if wants_matrices else grad.new_empty(0)
    return to_matrices, initial.new_empty(initial.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *operands, ctx.norm, ctx.engine = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*operands, *output)


def _differentiate(ctx: Any, grad: Tensor | None, grad_logs: Tensor | None) -> tuple[Tensor | None, ...]:
    matrices, tokens, initial, offsets, states, logs = ctx.saved_tensors
    if grad is None and grad_logs is None:
        return (None,) * 6
    grad = torch.zeros_like(states) if grad is None else grad
    grad_logs = torch.zeros_like(logs) if grad_logs is None else grad_logs
    wants_matrices, wants_initial = ctx.needs_input_grad[0], ctx.needs_input_grad[2]
    if torch.is_grad_enabled():  # create_graph=True: a gradient that can be differentiated again
        operands = matrices.view_as(matrices), initial.view_as(initial)
        outputs = reference(Problem(operands[0], tokens, None, operands[1], None, offsets), ctx.norm)
        wanted = [each for each, want in zip(operands, (wants_matrices, wants_initial), strict=True) if want]
        # A log of −inf is a constant.
        sent = grad, grad_logs.where(logs > -torch.inf, 0.0)
        gradients = iter(torch.autograd.grad(outputs, wanted, sent, create_graph=True, allow_unused=True))
        to_matrices = next(gradients) if wants_matrices else None
        return to_matrices, None, next(gradients) if wants_initial else None, None, None, None
    to_matrices, to_initial = torch.ops.transductor.normalised_scan_backward(
        matrices, tokens, initial, offsets, states, logs, grad, grad_logs, ctx.norm, ctx.engine, wants_matrices
    )
    return (
        to_matrices if wants_matrices else None,
        None,
        to_initial if wants_initial else None,
        None,
        None,
        None,
    )


_scan.register_autograd(_differentiate, setup_context=_remember)


@_scan.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Run many scans as one: rows side by side, each with its own part of one long table."""
    *operands, offsets, norm, engine = arguments
    assert offsets is None
    folded_rows = rows_side_by_side(info.batch_size, in_dims, operands)
    states, logs = torch.ops.transductor.normalised_scan(*folded_rows, None, norm, engine)
    return (states.unflatten(0, (info.batch_size, -1)), logs.unflatten(0, (info.batch_size, -1))), (0, 0)
