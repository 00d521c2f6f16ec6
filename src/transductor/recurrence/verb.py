"""The verb: arguments checked, a backend chosen, states returned."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Final, Literal, overload

import torch
from torch import Tensor

from transductor.kernels import cpu
from transductor.notation import check_token_ids, one_of, readable, working_dtype
from transductor.recurrence.chunked import chunked
from transductor.recurrence.kogge_stone import kogge_stone
from transductor.recurrence.operator import kernel_scan
from transductor.recurrence.plan import kogge_stone_microseconds, plan_chunks
from transductor.recurrence.problem import Problem
from transductor.recurrence.reference import reference
from transductor.recurrence.semirings import SEMIRINGS, Semiring

__all__ = ["BACKENDS", "check_offsets", "mask_from_lengths", "scan"]

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
    states of its row NaN, at the latest from the next chunk on, for the kernels.  Gradients flow to ``transitions``,
    ``bias``, ``token_bias`` and ``initial_state``; second derivatives of the real scan are computed by the
    reference loop; those of the other semirings need ``backend="reference"``.
    """
    compiling = torch.compiler.is_compiling()
    run = _hidden_from_compilers() if compiling and not _traceable(transitions, semiring, backend) else _run
    given = transitions, tokens, bias, token_bias, initial_state, mask, lengths, cu_seqlens
    states, final = run(*given, semiring, backend, return_final)
    return states if final is None else (states, final)


def _traceable(transitions: Tensor, semiring: str, backend: str) -> bool:
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
    _check_tensor("transitions", transitions)
    if tokens is not None:
        _check_tensor("tokens", tokens)
    batched = (tokens.ndim == 2) if tokens is not None else (transitions.ndim == 4)
    with torch.autocast(transitions.device.type, enabled=False):
        problem = _checked(
            transitions, tokens, bias, token_bias, initial_state, mask, lengths, cu_seqlens, ring, batched
        )
        if backend == "auto":
            backend = _quickest(problem)
        else:
            _check_backend(backend, problem)
        if backend != "triton":  # which widens what it reads
            problem = replace(problem, matrices=problem.matrices.to(problem.initial.dtype))
        if backend == "chunked" and torch.compiler.is_compiling():
            states = kernel_scan(problem, "chunked")
        else:
            states = BACKENDS[backend](problem)
        final = _final(problem, states) if return_final else None
    states = states.to(transitions.dtype)
    if not batched:
        states = states.squeeze(0)
    if final is None:
        return states, None
    final = final.to(transitions.dtype)
    return states, final if batched or cu_seqlens is not None else final.squeeze(0)


# Kogge–Stone holds a matrix per position; `auto` takes it only where that is at most a megabyte.
_SMALL = 1 << 18


def _quickest(problem: Problem) -> str:
    """The backend `auto` stands for: the kernels of the device, else plain torch."""
    if problem.semiring.name != "real":
        return "chunked"
    device = problem.initial.device.type
    if device == "cuda" and _HAS_TRITON and _fits_triton(problem):
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
    if not _HAS_TRITON:
        raise ImportError("backend='triton' needs triton, which comes with CUDA builds of torch; use 'chunked'")
    if device != "cuda" and not _interpreted():
        raise ValueError(
            f"backend='triton' runs on a GPU; transitions are on {device}: use 'auto' or 'chunked' (to test kernels "
            "on a CPU, slowly, set TRITON_INTERPRET=1)"
        )
    if not _fits_triton(problem):
        raise ValueError(
            f"backend='triton' takes D ≤ {_LARGEST}, and tables and batches of fewer than 2³¹ numbers and positions; "
            f"got D = {problem.state_dim}: use 'chunked'"
        )


_LARGEST = 64


def _fits_triton(problem: Problem) -> bool:
    table = problem.tokens is None or problem.matrices.numel() < 2**31
    return problem.state_dim <= _LARGEST and table and problem.batch * problem.time < 2**31


_HAS_TRITON = find_spec("triton") is not None


def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def _final(problem: Problem, states: Tensor) -> Tensor:
    if problem.offsets is not None:
        if problem.time == 0:
            return problem.initial
        last = states[0, (problem.offsets[1:] - 1).clamp_min(0)]
        return last.where((problem.offsets.diff() > 0).unsqueeze(-1), problem.initial)
    return states[:, -1] if problem.time else problem.initial


def _checked(
    transitions: Tensor,
    tokens: Tensor | None,
    bias: Tensor | None,
    token_bias: Tensor | None,
    initial_state: Tensor | None,
    mask: Tensor | None,
    lengths: Tensor | None,
    cu_seqlens: Tensor | None,
    ring: Semiring,
    batched: bool,
) -> Problem:
    if transitions.dtype not in ring.dtypes:
        allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in ring.dtypes)
        raise TypeError(f"transitions must have dtype {allowed} for the {ring.name} semiring; got {transitions.dtype}")
    if tokens is not None:
        _check_shape("transitions", transitions, "(V, D, D) with tokens", 3)
        check_token_ids("tokens", tokens, transitions.shape[0])
        if tokens.ndim not in (1, 2):
            raise ValueError(f"tokens must have shape (B, T) or (T); got {tuple(tokens.shape)}")
        _check_device("tokens", tokens, transitions)
        tokens = (tokens if batched else tokens[None]).long()
    else:
        expected = "(B, T, D, D) or (T, D, D) without tokens"
        _check_shape("transitions", transitions, expected, 4 if batched else 3)
    _check_weights("transitions", transitions, ring)
    work = working_dtype(transitions.dtype)
    matrices = transitions
    if tokens is None and not batched:
        matrices = matrices[None]
    batch, time = (matrices if tokens is None else tokens).shape[:2]
    dim = matrices.shape[-1]

    if bias is not None:
        _check_exact("bias", bias, (batch, time, dim) if batched else (time, dim), ring, transitions)
        bias = bias.to(work).view(batch, time, dim) if batched else bias.to(work)[None]
    if token_bias is not None:
        if tokens is None:
            raise ValueError("token_bias needs tokens; use bias for an additive term per position")
        _check_exact("token_bias", token_bias, (matrices.shape[0], dim), ring, transitions)
        per_token = token_bias.to(work)[tokens]
        bias = per_token if bias is None else ring.add(per_token, bias)

    if mask is not None and lengths is not None:
        raise ValueError("mask and lengths say the same thing: give one of them")
    offsets = None
    if cu_seqlens is not None:
        if lengths is not None:
            raise ValueError("cu_seqlens already says where documents end: give no lengths")
        offsets = check_offsets(cu_seqlens, batch, time, matrices.device)
    if lengths is not None:
        mask = mask_from_lengths(lengths, batch, time, matrices.device)
    elif mask is not None:
        _check_tensor("mask", mask)
        wanted = (batch, time) if batched else (time,)
        if mask.dtype != torch.bool or tuple(mask.shape) != wanted:
            raise ValueError(
                f"mask must be a bool tensor of shape {wanted}; got {mask.dtype} of shape {tuple(mask.shape)}"
            )
        _check_device("mask", mask, transitions)
        mask = mask.view(batch, time)

    rows = batch if offsets is None else offsets.numel() - 1
    if initial_state is None:
        if bias is None:
            raise ValueError("initial_state is required when there is no bias: a zero state stays zero")
        initial = torch.full((rows, dim), ring.zero, dtype=work, device=matrices.device)
    else:
        _check_tensor("initial_state", initial_state)
        if tuple(initial_state.shape) not in ((dim,), (rows, dim)):
            raise ValueError(
                f"initial_state must have shape ({dim},) or ({rows}, {dim}); got {tuple(initial_state.shape)}"
            )
        _check_weights("initial_state", initial_state, ring)
        _check_device("initial_state", initial_state, transitions)
        initial = initial_state.to(work).expand(rows, dim)
    return Problem(matrices, tokens, bias, initial, mask, offsets, ring.name)


def check_offsets(cu_seqlens: Tensor, batch: int, time: int, device: torch.device) -> Tensor:
    """The boundaries of packed documents as int64 on ``device``, or a clear refusal."""
    _check_tensor("cu_seqlens", cu_seqlens)
    if batch != 1:
        raise ValueError(f"cu_seqlens packs documents into one row: the batch must be 1; got {batch}")
    if cu_seqlens.ndim != 1 or cu_seqlens.numel() < 2 or cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            f"cu_seqlens must be int32 or int64 of shape (N + 1,), N ≥ 1; got {cu_seqlens.dtype} of shape "
            f"{tuple(cu_seqlens.shape)}"
        )
    if readable(cu_seqlens):
        bounds = cu_seqlens.tolist()
        if bounds[0] != 0 or bounds[-1] != time or bounds != sorted(bounds):
            shown = f"{bounds[:8]}{'…' if len(bounds) > 8 else ''}"
            raise ValueError(f"cu_seqlens must rise from 0 to T = {time}; got {shown}")
    return cu_seqlens.to(device=device, dtype=torch.int64)


def mask_from_lengths(lengths: Tensor, batch: int, time: int, device: torch.device) -> Tensor:
    """``(B, T)``, true below the length of each row."""
    _check_tensor("lengths", lengths)
    if lengths.dtype not in (torch.int32, torch.int64) or tuple(lengths.shape) != (batch,):
        raise ValueError(
            f"lengths must be int32 or int64 of shape ({batch},); got {lengths.dtype} of shape {tuple(lengths.shape)}"
        )
    if lengths.numel() and readable(lengths) and not 0 <= int(lengths.min()) <= int(lengths.max()) <= time:
        raise ValueError(f"lengths must lie in [0, {time}]; got {lengths.tolist()[:8]}")
    return torch.arange(time, device=device) < lengths.to(device).unsqueeze(1)


def _names(ring: Semiring) -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in ring.dtypes)


def _check_tensor(argument: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{argument} must be a torch.Tensor; got {type(value).__name__}")


def _check_shape(argument: str, value: Tensor, expected: str, ndim: int) -> None:
    if value.ndim != ndim or value.shape[-1] != value.shape[-2] or 0 in value.shape[-2:]:
        raise ValueError(f"{argument} must have shape {expected}, D ≥ 1; got {tuple(value.shape)}")


def _check_exact(argument: str, value: object, shape: tuple[int, ...], ring: Semiring, like: Tensor) -> None:
    _check_tensor(argument, value)
    assert isinstance(value, Tensor)
    if tuple(value.shape) != shape:
        raise ValueError(f"{argument} must have shape {shape}; got {tuple(value.shape)}")
    _check_weights(argument, value, ring)
    _check_device(argument, value, like)


def _check_device(argument: str, value: Tensor, like: Tensor) -> None:
    if value.device != like.device:
        raise ValueError(f"{argument} must be on {like.device} like transitions; got {value.device}")


def _check_weights(argument: str, values: Tensor, ring: Semiring) -> None:
    if values.dtype not in ring.dtypes:
        raise TypeError(f"{argument} must have dtype {_names(ring)} for the {ring.name} semiring; got {values.dtype}")
    if values.dtype == torch.bool or not readable(values):
        return
    values = values.detach()
    # One reduction settles the usual case: a finite sum has only finite terms.
    if bool(torch.isfinite(values.sum(dtype=working_dtype(values.dtype)))):
        return
    wrong = ~ring.is_weight(values)
    if bool(wrong.any()):
        where = tuple(int(i) for i in torch.nonzero(wrong)[0])
        allowed = "finite numbers" if ring.name == "real" else f"finite numbers or {ring.zero}"
        raise ValueError(f"{argument} must hold {allowed}; got {float(values[where])} at {list(where)}")
