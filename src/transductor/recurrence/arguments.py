"""The arguments of a scan: checked, each refusal naming the argument and what is allowed, and stated as a problem."""

from __future__ import annotations

import torch
from torch import Tensor

from transductor.checks import check_token_ids, readable, working_dtype
from transductor.recurrence.problem import Problem
from transductor.recurrence.semirings import Semiring


def checked_problem(
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
    """The scan that these arguments of :func:`~transductor.recurrence.scan` mean, or a clear refusal."""
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
        check_tensor("mask", mask)
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
        check_tensor("initial_state", initial_state)
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
    check_tensor("cu_seqlens", cu_seqlens)
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
    check_tensor("lengths", lengths)
    if lengths.dtype not in (torch.int32, torch.int64) or tuple(lengths.shape) != (batch,):
        raise ValueError(
            f"lengths must be int32 or int64 of shape ({batch},); got {lengths.dtype} of shape {tuple(lengths.shape)}"
        )
    if lengths.numel() and readable(lengths) and not 0 <= int(lengths.min()) <= int(lengths.max()) <= time:
        raise ValueError(f"lengths must lie in [0, {time}]; got {lengths.tolist()[:8]}")
    return torch.arange(time, device=device) < lengths.to(device).unsqueeze(1)


def _names(ring: Semiring) -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in ring.dtypes)


def check_tensor(argument: str, value: object) -> None:
    """Refuse what is no tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{argument} must be a torch.Tensor; got {type(value).__name__}")


def _check_shape(argument: str, value: Tensor, expected: str, ndim: int) -> None:
    if value.ndim != ndim or value.shape[-1] != value.shape[-2] or 0 in value.shape[-2:]:
        raise ValueError(f"{argument} must have shape {expected}, D ≥ 1; got {tuple(value.shape)}")


def _check_exact(argument: str, value: object, shape: tuple[int, ...], ring: Semiring, like: Tensor) -> None:
    check_tensor(argument, value)
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
