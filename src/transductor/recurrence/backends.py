"""The backends of the scan: how each computes all states, where it runs, and which one ``auto`` stands for."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from transductor.checks import nested_forward_mode, transformed, vmapped
from transductor.kernels.cpu import scan as cpu
from transductor.kernels.gpu.cuts import LARGEST_STATE, LARGEST_WALK, TRITON_FOUND
from transductor.recurrence.chunked import chunked, chunked_states
from transductor.recurrence.columns import one_per_column
from transductor.recurrence.cost_model import kogge_stone_microseconds, plan_chunks
from transductor.recurrence.derivatives import States, differentiable_scan
from transductor.recurrence.kogge_stone import kogge_stone
from transductor.recurrence.operator import kernel_scan, kernel_states
from transductor.recurrence.problem import Problem
from transductor.recurrence.reference import reference


@dataclass(frozen=True)
class Backend:
    """One way to compute all states of a scan.

    Args:
        name: What ``backend=`` is called with.
        states: All states ``(B, T, D)`` of a problem, differentiable.
        refusal: The error that says why it cannot compute a problem, and what can; None where it can.
        suits: Whether ``auto`` should prefer it to the backends listed before it, where it does not refuse.
        plain: The states of a scan over the reals without mask and boundaries, as plain numbers; derivatives of every
            kind are scans of their own.  None where autograd sees through ``states``.
        traceable: Whether it is one registered torch operation, which compilers need not look into.
        widens: Whether it reads float16 and bfloat16 matrices itself; others get them in the dtype of the states.
    """

    name: str
    states: Callable[[Problem], Tensor]
    refusal: Callable[[Problem], Exception | None] = lambda problem: None
    suits: Callable[[Problem], bool] = lambda problem: False
    plain: States | None = None
    traceable: bool = False
    widens: bool = False


def solved(problem: Problem, backend: str) -> Tensor:
    """Compute all states ``(B, T, D)`` of a checked scan by the backend of that name."""
    chosen = _quickest(problem) if backend == "auto" else BACKENDS.get(backend) or STRUCTURED[backend]
    if backend != "auto" and (error := chosen.refusal(problem)) is not None:
        raise error
    if not chosen.widens and problem.matrices.dtype != problem.start.dtype:
        problem = replace(problem, matrices=problem.matrices.to(problem.start.dtype))
    operands = problem.matrices, problem.bias, problem.start
    if transformed(*operands):
        return _transformed(problem, chosen)
    return chosen.states(problem)


def _quickest(problem: Problem) -> Backend:
    """Choose the backend that ``auto`` stands for."""
    for backend in reversed(BACKENDS.values()):
        allowed = backend.traceable or not torch.compiler.is_compiling()
        if allowed and backend.suits(problem) and backend.refusal(problem) is None:
            return backend
    raise AssertionError("the chunked scan computes every problem")


def _chunked(problem: Problem) -> Tensor:
    if problem.ring == "real" and torch.compiler.is_compiling():
        return kernel_scan(problem, "chunked")
    return chunked(problem)


def _kogge_stone_states(matrices: Tensor, tokens: Tensor | None, bias: Tensor | None, initial: Tensor) -> Tensor:
    return kogge_stone(Problem(matrices, tokens, bias, initial))


def _transformed(problem: Problem, backend: Backend) -> Tensor:
    """Compute all states inside a transform of ``torch.func``, or with tangents of forward mode."""
    if backend.plain is None or problem.ring != "real" or nested_forward_mode():
        return reference(problem)  # torch sees through its every step; it loses what a tangent owes to another one
    return differentiable_scan(problem, backend.plain)


# Kogge–Stone holds a matrix per position; `auto` takes it only where that is at most a megabyte.
_SMALL = 1 << 18


def _suits_kogge_stone(problem: Problem) -> bool:
    batch, time, dim = problem.batch, problem.time, problem.state_dim
    if problem.ring != "real" or time < 2 or batch * time * dim**2 > _SMALL:
        return False
    symbols = None if problem.tokens is None else problem.matrices.shape[0]
    plan = plan_chunks(batch, time, dim, symbols, additive=problem.bias is not None)
    return kogge_stone_microseconds(batch, time, dim) < plan.microseconds


def _wrong_ring(backend: str, problem: Problem) -> ValueError:
    return ValueError(f"backend='{backend}' knows the real semiring only; use 'chunked' for {problem.ring}")


def _numba_refusal(problem: Problem) -> Exception | None:
    if problem.ring != "real":
        return _wrong_ring("numba", problem)
    device = problem.start.device.type
    if device != "cpu":
        return ValueError(f"backend='numba' runs on the CPU; transitions are on {device}: use 'triton' or 'chunked'")
    if not cpu.available():
        return ImportError("backend='numba' needs numba: pip install 'transductor[cpu]', or use 'chunked'")
    return None


def triton_missing(device: torch.device) -> Exception | None:
    """Return the error that says why Triton's kernels cannot run on a device; None where they can."""
    if not TRITON_FOUND:
        return ImportError("backend='triton' needs triton, which comes with CUDA builds of torch; use 'chunked'")
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET", "0") != "1":
        return ValueError(
            f"backend='triton' runs on a GPU; transitions are on {device.type}: use 'auto' or 'chunked' (to test "
            "kernels on a CPU, slowly, set TRITON_INTERPRET=1)"
        )
    return None


def _triton_refusal(problem: Problem) -> Exception | None:
    if problem.ring != "real":
        return _wrong_ring("triton", problem)
    if (error := triton_missing(problem.start.device)) is not None:
        return error
    table = problem.tokens is None or problem.matrices.numel() < 2**31
    largest, rows_of_tokens = LARGEST_STATE, problem.tokens is not None and problem.offsets is None
    # A compiler would have to look into the question about the device.
    asks = problem.state_dim > largest and rows_of_tokens and not torch.compiler.is_compiling()
    if asks and _holds_wide_matrices(problem.start.device):
        largest = LARGEST_WALK
    if problem.state_dim > largest or not table or problem.batch * problem.time >= 2**31:
        return ValueError(
            f"backend='triton' takes D ≤ {LARGEST_STATE}, for rows of tokens D ≤ {LARGEST_WALK}, and tables and "
            f"batches of fewer than 2³¹ numbers and positions; got D = {problem.state_dim}: use 'chunked'"
        )
    return None


def _holds_wide_matrices(device: torch.device) -> bool:
    """Tell whether a program has the 200 KiB in which it multiplies at D = 128, as H100s, H200s and B200s have."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device)[0] in (9, 10)


def _columns_refusal(problem: Problem) -> Exception | None:
    if problem.ring != "real":
        return _wrong_ring("columns", problem)
    # Inside vmap numbers cannot be looked at: there states are those of the chunked scan, right for all matrices.
    if not vmapped(problem.matrices) and not one_per_column(problem.matrices):
        return ValueError("backend='columns' takes matrices with at most one entry in a column: use 'auto'")
    return None


# By name.  `auto` takes the last one that suits a problem.
BACKENDS: Final[dict[str, Backend]] = {
    backend.name: backend
    for backend in (
        Backend("reference", reference),
        Backend("chunked", _chunked, suits=lambda problem: True, plain=chunked_states, traceable=True),
        Backend("kogge_stone", kogge_stone, suits=_suits_kogge_stone, plain=_kogge_stone_states),
        Backend(
            "numba",
            lambda problem: kernel_scan(problem, "numba"),
            refusal=_numba_refusal,
            suits=lambda problem: True,
            plain=kernel_states("numba"),
            traceable=True,
        ),
        Backend(
            "triton",
            lambda problem: kernel_scan(problem, "triton"),
            refusal=_triton_refusal,
            suits=lambda problem: problem.start.device.type == "cuda",
            plain=kernel_states("triton"),
            traceable=True,
            widens=True,
        ),
    )
}

# By name: those for matrices of one structure, which refuse all others; they run where a caller asks for them.
STRUCTURED: Final[dict[str, Backend]] = {
    "columns": Backend(
        "columns",
        lambda problem: kernel_scan(problem, "columns"),
        refusal=_columns_refusal,
        plain=chunked_states,
    )
}


def backend_names() -> tuple[str, ...]:
    """Return what ``backend=`` may be called with; backends may be added."""
    return ("auto", *BACKENDS, *STRUCTURED)
