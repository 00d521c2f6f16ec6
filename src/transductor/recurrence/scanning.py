"""The function ``scan``: it checks its arguments, chooses a backend and returns the states."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from transductor.checks import differentiated, one_of
from transductor.kernels.precise import full_precision
from transductor.recurrence.arguments import Arguments
from transductor.recurrence.backends import BACKENDS, backend_names, solved
from transductor.recurrence.blocks import solved_blocks
from transductor.recurrence.layout import Layout
from transductor.recurrence.normalised import checked_logs, continued, final_of
from transductor.recurrence.normalised_operator import solved_normalised
from transductor.recurrence.norms import NORMS, Normalised
from transductor.recurrence.problem import Problem
from transductor.recurrence.semirings import SEMIRINGS


class ScanOptions(TypedDict, total=False):
    """The options of :func:`scan` that do not change what it returns; for the type checker."""

    bias: Tensor | None
    token_bias: Tensor | None
    initial_state: Tensor | Normalised | None
    mask: Tensor | None
    lengths: Tensor | None
    cu_seqlens: Tensor | None
    layout: Layout | None
    blocks: Sequence[int] | None
    semiring: str
    backend: str


Norm = Literal["l1", "l2", "max"]


@overload
def scan(
    transitions: Tensor,
    tokens: Tensor | None = ...,
    *,
    normalise: None = ...,
    return_final: Literal[False] = ...,
    **options: Unpack[ScanOptions],
) -> Tensor: ...


@overload
def scan(
    transitions: Tensor,
    tokens: Tensor | None = ...,
    *,
    normalise: None = ...,
    return_final: Literal[True],
    **options: Unpack[ScanOptions],
) -> tuple[Tensor, Tensor]: ...


@overload
def scan(
    transitions: Tensor,
    tokens: Tensor | None = ...,
    *,
    normalise: Norm,
    return_final: Literal[False] = ...,
    **options: Unpack[ScanOptions],
) -> Normalised: ...


@overload
def scan(
    transitions: Tensor,
    tokens: Tensor | None = ...,
    *,
    normalise: Norm,
    return_final: Literal[True],
    **options: Unpack[ScanOptions],
) -> tuple[Normalised, Normalised]: ...


def scan(
    transitions: Tensor,
    tokens: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    token_bias: Tensor | None = None,
    initial_state: Tensor | Normalised | None = None,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    layout: Layout | None = None,
    blocks: Sequence[int] | None = None,
    semiring: str = "real",
    normalise: Norm | None = None,
    backend: str = "auto",
    return_final: bool = False,
) -> Tensor | tuple[Tensor, Tensor] | Normalised | tuple[Normalised, Normalised]:
    """Compute all states of ``h_t = M_t h_{t-1} + b_t``.

    Args:
        transitions: With ``tokens``, a table ``(V, D, D)``, which is not copied; without, one matrix per
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
        layout: The last three, checked by a caller who has also checked the tokens; a model passes it on.
        blocks: Sizes of the blocks on the diagonal of block-diagonal matrices, such as those of a
            :class:`~transductor.transitions.DirectSum`; many positions on a GPU are then scanned block by block, and
            what stands beside the blocks is not looked at.
        semiring: ``"real"``, ``"max_plus"``, ``"min_plus"``, ``"log"`` or ``"boolean"``.
        normalise: ``"l1"``, ``"l2"`` or ``"max"``: divide every state by that norm, over the real numbers without bias.
            Non-negative matrices and ``"l1"`` are the forward algorithm: beliefs, and the log-likelihood.
        backend: ``"auto"``, or ``"reference"``, ``"kogge_stone"``, ``"chunked"`` (plain torch, any device), ``"numba"``
            (compiled loops on a CPU), ``"triton"`` (kernels on a GPU; D ≤ 64, rows of tokens or ``normalise`` D ≤ 128),
            ``"columns"`` (plain torch, for matrices with at most one entry in a column: products of chunks in O(D)).
        return_final: Also return the state after the last real step of each row (of each document).

    Returns:
        States ``(B, T, D)`` in the dtype of ``transitions``; with ``return_final`` also ``(B, D)`` (packed:
        ``(N, D)``).  Unbatched input gives unbatched output.  To go on later, pass the final state as the
        next ``initial_state``.  With ``normalise``, each of the two is a pair
        :class:`~transductor.recurrence.Normalised`: states, and the logs ``(B, T)`` of the norms that the states of the
        plain scan would have, in float64.  The final pair may be passed on as the next ``initial_state``, too.

    float16 and bfloat16 are accumulated in float32, under autocast too.  Bad values (unknown tokens, NaN weights) are
    refused where reading them costs nothing: on the CPU, outside compiled graphs.  Elsewhere an unknown token makes the
    states of its row NaN from its position on.  Gradients flow to ``transitions``,
    ``bias``, ``token_bias`` and ``initial_state``, in every mode of torch (``torch.func``, forward mode, twice); second
    derivatives of the other semirings need ``backend="reference"``.
    """
    if normalise is not None:
        return _normalised(
            transitions, tokens, bias, token_bias, initial_state, mask, lengths, cu_seqlens, layout,
            semiring=semiring, norm=normalise, backend=backend, return_final=return_final,
        )  # fmt: skip
    run = _run
    # A compiler that gives up on a transformed function still looks into the functions that it calls.
    if torch.compiler.is_compiling() or "torch._dynamo" in sys.modules:
        # Inside a compiled graph `auto` chooses only among traceable backends; their operation has no tangent.
        traces = backend == "auto" or (backend in BACKENDS and BACKENDS[backend].traceable)
        if semiring != "real" or not traces or differentiated():
            run = _hidden_from_compilers()
    values = transitions, tokens, bias, token_bias, initial_state, mask, lengths, cu_seqlens, layout
    states, final = run(values, semiring, backend, return_final, blocks)
    return states if final is None else (states, final)


def _normalised(
    *values: Any, semiring: str, norm: str, backend: str, return_final: bool
) -> Normalised | tuple[Normalised, Normalised]:
    one_of("normalise", norm, NORMS)
    if semiring != "real":
        raise ValueError(f"semiring must be 'real' with normalise; got {semiring!r}, whose scores need no normaliser")
    transitions, tokens, bias, token_bias, begun, *layout = values
    if bias is not None or token_bias is not None:
        raise ValueError(
            "bias and token_bias must be None with normalise: a normalised state has lost the scale that an additive "
            "term is relative to; for one that is scaled with the state, append a coordinate that stays 1 to the "
            "matrices, as AffineTransitions do"
        )
    logs = None
    if isinstance(begun, Normalised):
        begun, logs = begun
    arguments = Arguments(transitions, tokens, None, None, begun, *layout)
    arguments.check_types()
    with full_precision(transitions.device):
        problem, _ = arguments.problem()
        if logs is not None:
            logs = checked_logs(logs, problem.initial)
        result = solved_normalised(problem, norm, backend)
        result = continued(problem, result, logs)
        final = final_of(problem, result, norm, logs) if return_final else None
    states, final_is_row = _paired(arguments, result), problem.offsets is None
    return states if final is None else (states, _paired(arguments, final, final_is_row))


def _paired(arguments: Arguments, pair: Normalised, has_batch_axis: bool = True) -> Normalised:
    logs = pair.logs if arguments.batched or not has_batch_axis else pair.logs.squeeze(0)
    return Normalised(arguments.as_given(pair.states, has_batch_axis), logs)


def _hidden_from_compilers() -> Callable[..., tuple[Tensor, Tensor | None]]:
    """Return the scan as one opaque step: traced, its loops would be unrolled and compiled again for every length.

    It is made when first needed, because ``torch.compiler.disable`` imports the compiler, which takes a second.
    """
    if not _HIDDEN:
        _HIDDEN.append(torch.compiler.disable(_run))
    return _HIDDEN[0]


_HIDDEN: list[Callable[..., tuple[Tensor, Tensor | None]]] = []


def _run(
    values: tuple[Any, ...], semiring: str, backend: str, return_final: bool, blocks: Sequence[int] | None = None
) -> tuple[Tensor, Tensor | None]:
    one_of("semiring", semiring, SEMIRINGS)
    one_of("backend", backend, backend_names())
    arguments = Arguments(*values)
    arguments.check_types()
    with full_precision(arguments.transitions.device):
        problem, _ = arguments.problem(semiring)
        if blocks is None:
            states = solved(problem, backend)
        elif min(blocks, default=0) < 1 or sum(blocks) != problem.state_dim:
            raise ValueError(f"blocks must be sizes that add up to {problem.state_dim}; got {tuple(blocks)}")
        else:
            states = solved_blocks(problem, backend, blocks)
        final = _final(problem, states) if return_final else None
    return arguments.as_given(states), None if final is None else arguments.as_given(final, problem.offsets is None)


def _final(problem: Problem, states: Tensor) -> Tensor:
    """Return the state after the last step of each row or document."""
    if problem.offsets is not None:
        if problem.time == 0:
            return problem.initial
        last = states[0, (problem.offsets[1:] - 1).clamp_min(0)]
        return last.where((problem.offsets.diff() > 0).unsqueeze(-1), problem.initial)
    return states[:, -1] if problem.time else problem.initial
