"""The verb: arguments checked, a backend chosen, states returned."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal, overload

import torch
from torch import Tensor

from transductor.checks import one_of, vmapped
from transductor.kernels.cpu import scan as cpu
from transductor.kernels.gpu.cuts import LARGEST_STATE, TRITON_FOUND
from transductor.kernels.precise import full_precision
from transductor.recurrence.arguments import check_tensor, checked_problem
from transductor.recurrence.chunked import chunked
from transductor.recurrence.cost_model import kogge_stone_microseconds, plan_chunks
from transductor.recurrence.kogge_stone import kogge_stone
from transductor.recurrence.operator import kernel_scan
from transductor.recurrence.problem import Problem
from transductor.recurrence.reference import reference
from transductor.recurrence.semirings import SEMIRINGS

BACKENDS: Final[dict[str, Callable[[Problem], Tensor]]] = {
    "reference": reference,
    "kogge_stone": kogge_stone,
    "chunked": chunked,
    "numba": lambda problem: kernel_scan(problem, "numba"),
    "triton": lambda problem: kernel_scan(problem, "triton"),
}


@overload
def scan(
    transitions: Tensor,
    tokens: Tensor | None = ...,
    *,
    bias: Tensor | None = ...,
    token_bias: Tensor | None = ...,
    initial_state: Tensor | None = ...,
    mask: Tensor | None = ...,
    lengths: Tensor | None = ...,
    cu_seqlens: Tensor | None = ...,
    semiring: str = ...,
    backend: str = ...,
    return_final: Literal[False] = ...,
) -> Tensor: ...


@overload
def scan(
    transitions: Tensor,
    tokens: Tensor | None = ...,
    *,
    bias: Tensor | None = ...,
    token_bias: Tensor | None = ...,
    initial_state: Tensor | None = ...,
    mask: Tensor | None = ...,
    lengths: Tensor | None = ...,
    cu_seqlens: Tensor | None = ...,
    semiring: str = ...,
    backend: str = ...,
    return_final: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def scan(
    transitions: Tensor,
    tokens: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    token_bias: Tensor | None = None,
    initial_state: Tensor | None = None,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    semiring: str = "real",
    backend: str = "auto",
    return_final: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """All states of ``h_t = M_t h_{t-1} + b_t``.

    Args:
        transitions: With ``tokens``, a table ``(V, D, D)``, read where it lies; without, one matrix per
            position, ``(B, T, D, D)`` or ``(T, D, D)``.  ``M[..., to, from]``.
        tokens: ``(B, T)`` or ``(T)`` integers in ``[0, V)``.
        bias: Additive term per position, ``(B, T, D)`` (``(T, D)`` when unbatched).
        token_bias: Additive term per token, ``(V, D)``; may be given beside ``bias``.
        initial_state: ``h_0``: ``(D)``, or ``(B, D)`` per batch row, or ``(N, D)`` per packed document.
            Without it, and with an additive term, the scan starts from the semiring's zero.
        mask: ``(B, T)`` bool, true where the step is real; a padded step keeps the state.
        lengths: ``(B)`` integers: the same as a mask that is true below the length.
        cu_seqlens: ``(N + 1)`` boundaries ``0 = c_0 ≤ … ≤ c_N = T`` of documents packed into one row; each
            begins again from ``initial_state``.
        semiring: ``"real"``, ``"max_plus"``, ``"min_plus"``, ``"log"`` or ``"boolean"``.
        backend: ``"auto"``, or ``"reference"``, ``"kogge_stone"``, ``"chunked"`` (plain torch, any device), ``"numba"``
            (compiled loops on a CPU), ``"triton"`` (kernels on a GPU; D ≤ 64).
        return_final: Also return the state after the last real step of each row (of each document).

    Returns:
        States ``(B, T, D)`` in the dtype of ``transitions``; with ``return_final`` also ``(B, D)`` (packed:
        ``(N, D)``).  Unbatched input gives unbatched output.  To go on later, pass the final state as the
        next ``initial_state``.

    float16 and bfloat16 are accumulated in float32, under autocast too.  Bad values (unknown tokens, NaN weights) are
    refused where reading them costs nothing: on the CPU, outside compiled graphs.  Elsewhere an unknown token makes the
    states of its row NaN from its position on.  Gradients flow to ``transitions``,
    ``bias``, ``token_bias`` and ``initial_state``; second derivatives of the real scan are computed by the
    reference loop; those of the other semirings need ``backend="reference"``.
    """
    compiling = torch.compiler.is_compiling()
    run = _hidden_from_compilers() if compiling and not _traceable(semiring, backend) else _run
    given = transitions, tokens, bias, token_bias, initial_state, mask, lengths, cu_seqlens
    states, final = run(*given, semiring, backend, return_final)
    return states if final is None else (states, final)


def _traceable(semiring: str, backend: str) -> bool:
    """Whether the scan is one registered operation, which compilers need not look into."""
    return semiring == "real" and backend not in ("reference", "kogge_stone")


def _hidden_from_compilers() -> Callable[..., tuple[Tensor, Tensor | None]]:
    """The scan as one opaque step: traced, its loops would be unrolled and compiled anew for every length.

    Made when first wanted: torch.compiler.disable imports a second's worth of compiler.
    """
    if not _HIDDEN:
        _HIDDEN.append(torch.compiler.disable(_run))
    return _HIDDEN[0]


_HIDDEN: list[Callable[..., tuple[Tensor, Tensor | None]]] = []


def _run(
    transitions: Tensor,
    tokens: Tensor | None,
    bias: Tensor | None,
    token_bias: Tensor | None,
    initial_state: Tensor | None,
    mask: Tensor | None,
    lengths: Tensor | None,
    cu_seqlens: Tensor | None,
    semiring: str,
    backend: str,
    return_final: bool,
) -> tuple[Tensor, Tensor | None]:
    one_of("semiring", semiring, SEMIRINGS)
    one_of("backend", backend, ["auto", *BACKENDS])
    ring = SEMIRINGS[semiring]
    check_tensor("transitions", transitions)
    if tokens is not None:
        check_tensor("tokens", tokens)
    batched = (tokens.ndim == 2) if tokens is not None else (transitions.ndim == 4)
    with full_precision(transitions.device):
        problem = checked_problem(
            transitions, tokens, bias, token_bias, initial_state, mask, lengths, cu_seqlens, ring, batched
        )
        states = solved(problem, backend)
        final = _final(problem, states) if return_final else None
    states = states.to(transitions.dtype)
    if not batched:
        states = states.squeeze(0)
    if final is None:
        return states, None
    final = final.to(transitions.dtype)
    return states, final if batched or cu_seqlens is not None else final.squeeze(0)


def solved(problem: Problem, backend: str) -> Tensor:
    """All states ``(B, T, D)`` of a checked scan, by the backend of that name."""
    if backend == "auto":
        backend = _quickest(problem)
    else:
        _check_backend(backend, problem)
    if backend != "triton":  # which widens what it reads
        problem = replace(problem, matrices=problem.matrices.to(problem.initial.dtype))
    operands = problem.matrices, problem.tokens, problem.bias, problem.initial, problem.mask
    if backend == "chunked" and (torch.compiler.is_compiling() or vmapped(*operands)):
        return kernel_scan(problem, "chunked")
    return BACKENDS[backend](problem)


# Kogge–Stone holds a matrix per position; `auto` takes it only where that is at most a megabyte.
_SMALL = 1 << 18


def _quickest(problem: Problem) -> str:
    """The backend `auto` stands for: the kernels of the device, else plain torch."""
    if problem.semiring.name != "real":
        return "chunked"
    device = problem.initial.device.type
    if device == "cuda" and TRITON_FOUND and _fits_triton(problem):
        return "triton"
    if device == "cpu" and cpu.available():
        return "numba"
    batch, time, dim = problem.batch, problem.time, problem.state_dim
    if torch.compiler.is_compiling() or time < 2 or batch * time * dim**2 > _SMALL:
        return "chunked"
    symbols = None if problem.tokens is None else problem.matrices.shape[0]
    plan = plan_chunks(batch, time, dim, symbols, additive=problem.bias is not None)
    return "kogge_stone" if kogge_stone_microseconds(batch, time, dim) < plan.microseconds else "chunked"


def _check_backend(backend: str, problem: Problem) -> None:
    """Refuse kernels where they cannot run, saying what can."""
    if backend not in ("numba", "triton"):
        return
    if problem.semiring.name != "real":
        raise ValueError(f"backend='{backend}' knows the real semiring only; use 'chunked' for {problem.semiring.name}")
    device = problem.initial.device.type
    if backend == "numba":
        if device != "cpu":
            raise ValueError(f"backend='numba' runs on the CPU; transitions are on {device}: use 'triton' or 'chunked'")
        if not cpu.available():
            raise ImportError("backend='numba' needs numba: pip install 'transductor[cpu]', or use 'chunked'")
        return
    if not TRITON_FOUND:
        raise ImportError("backend='triton' needs triton, which comes with CUDA builds of torch; use 'chunked'")
    if device != "cuda" and not _interpreted():
        raise ValueError(
            f"backend='triton' runs on a GPU; transitions are on {device}: use 'auto' or 'chunked' (to test kernels "
            "on a CPU, slowly, set TRITON_INTERPRET=1)"
        )
    if not _fits_triton(problem):
        raise ValueError(
            f"backend='triton' takes D ≤ {LARGEST_STATE}, and tables and batches of fewer than 2³¹ numbers and "
            f"positions; got D = {problem.state_dim}: use 'chunked'"
        )


def _fits_triton(problem: Problem) -> bool:
    table = problem.tokens is None or problem.matrices.numel() < 2**31
    return problem.state_dim <= LARGEST_STATE and table and problem.batch * problem.time < 2**31


def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def _final(problem: Problem, states: Tensor) -> Tensor:
    if problem.offsets is not None:
        if problem.time == 0:
            return problem.initial
        last = states[0, (problem.offsets[1:] - 1).clamp_min(0)]
        return last.where((problem.offsets.diff() > 0).unsqueeze(-1), problem.initial)
    return states[:, -1] if problem.time else problem.initial
