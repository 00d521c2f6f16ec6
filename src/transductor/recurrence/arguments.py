"""The arguments of a scan, checked and stated as a problem; a refusal names the argument and what is allowed."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from transductor.checks import check_tensor, check_token_ids, readable, working_dtype
from transductor.recurrence.layout import Layout
from transductor.recurrence.problem import Problem
from transductor.recurrence.semirings import SEMIRINGS, Semiring
from transductor.recurrence.shards import Shards

_EVERY_STEP = Layout()


class Arguments(NamedTuple):
    """What :func:`~transductor.recurrence.scan` was called with, not yet checked.

    With a ``layout``, the caller has checked the tokens too.
    """

    transitions: Tensor
    tokens: Tensor | None
    bias: Tensor | None
    token_bias: Tensor | None
    initial_state: Tensor | None
    mask: Tensor | None
    lengths: Tensor | None
    cu_seqlens: Tensor | None
    layout: Layout | None

    @property
    def batched(self) -> bool:
        """Whether there is a batch axis before time."""
        return self.transitions.ndim == 4 if self.tokens is None else self.tokens.ndim == 2

    def as_given(self, result: Tensor, has_batch_axis: bool = True) -> Tensor:
        """Return a result in the dtype of the transitions, without a batch axis where they had none."""
        dtype = self.transitions.dtype
        result = result if result.dtype == dtype else result.to(dtype)
        return result if self.batched or not has_batch_axis else result.squeeze(0)

    def check_types(self) -> None:
        """Refuse transitions and tokens that are no tensors."""
        check_tensor("transitions", self.transitions)
        if self.tokens is not None:
            check_tensor("tokens", self.tokens)

    def checked_layout(self, shards: Shards | None = None) -> Layout:
        """Return the layout that the keywords describe, unless one was given."""
        if self.layout is not None:
            return self.layout
        if shards is None and self.mask is self.lengths is self.cu_seqlens is None:
            return _EVERY_STEP
        if self.mask is not None:
            check_tensor("mask", self.mask)
        shape = self.transitions.shape[:-2] if self.tokens is None else self.tokens.shape
        return Layout.of(
            shape,
            self.transitions.device,
            mask=self.mask,
            lengths=self.lengths,
            cu_seqlens=self.cu_seqlens,
            shards=shards,
        )

    def problem(self, semiring: str = "real", shards: Shards | None = None) -> tuple[Problem, Layout]:
        """Return the scan that these arguments mean, and its layout; refuse what does not fit."""
        ring, transitions = SEMIRINGS[semiring], self.transitions
        matrices, tokens = self._checked_drive(ring)
        batch, time = (matrices if tokens is None else tokens).shape[:2]
        bias = self._checked_bias(tokens, (batch, time, matrices.shape[-1]), ring)
        layout = self.checked_layout(shards)
        rows = batch if layout.offsets is None else layout.offsets.numel() - 1
        dim, work = matrices.shape[-1], working_dtype(matrices.dtype)
        if self.initial_state is None:
            if bias is None:
                raise ValueError("initial_state is required when there is no bias: a zero state stays zero")
            initial = torch.full((rows, dim), ring.zero, dtype=work, device=matrices.device)
        else:
            initial = self.initial_state
            check_tensor("initial_state", initial)
            if tuple(initial.shape) not in ((dim,), (rows, dim)):
                raise ValueError(
                    f"initial_state must have shape ({dim},) or ({rows}, {dim}); got {tuple(initial.shape)}"
                )
            _check_weights("initial_state", initial, ring)
            _check_device("initial_state", initial, transitions)
            initial = initial if initial.dtype == work else initial.to(work)
        return Problem(matrices, tokens, bias, initial, layout.mask, layout.local_offsets, ring.name), layout

    def _checked_drive(self, ring: Semiring) -> tuple[Tensor, Tensor | None]:
        """Return transitions and tokens with a batch axis."""
        transitions, tokens = self.transitions, self.tokens
        _check_dtype("transitions", transitions, ring)
        expected, ndim = "(V, D, D) with tokens", 3
        if tokens is None:
            expected, ndim = "(B, T, D, D) or (T, D, D) without tokens", 4 if self.batched else 3
        square = transitions.ndim == ndim and transitions.shape[-1] == transitions.shape[-2]
        if not square or 0 in transitions.shape[-2:]:
            raise ValueError(f"transitions must have shape {expected}, D ≥ 1; got {tuple(transitions.shape)}")
        if tokens is not None:
            if self.layout is None:
                check_token_ids("tokens", tokens, transitions.shape[0])
                if tokens.ndim not in (1, 2):
                    raise ValueError(f"tokens must have shape (B, T) or (T); got {tuple(tokens.shape)}")
            _check_device("tokens", tokens, transitions)
            tokens = tokens if self.batched else tokens[None]
            tokens = tokens if tokens.dtype == torch.int64 else tokens.long()
        _check_weights("transitions", transitions, ring)
        return transitions if self.batched or tokens is not None else transitions[None], tokens

    def _checked_bias(self, tokens: Tensor | None, shape: tuple[int, int, int], ring: Semiring) -> Tensor | None:
        """Return the additive term of every position, ``(B, T, D)``."""
        bias, work = self.bias, working_dtype(self.transitions.dtype)
        if bias is not None:
            _check_exact("bias", bias, shape if self.batched else shape[1:], ring, self.transitions)
            bias = bias.to(work).view(shape)
        if self.token_bias is None:
            return bias
        if tokens is None:
            raise ValueError("token_bias needs tokens; use bias for an additive term per position")
        _check_exact("token_bias", self.token_bias, (self.transitions.shape[0], shape[-1]), ring, self.transitions)
        per_token = self.token_bias.to(work)[tokens]
        return per_token if bias is None else ring.add(per_token, bias)


def _check_exact(argument: str, value: Tensor, shape: tuple[int, ...], ring: Semiring, like: Tensor) -> None:
    check_tensor(argument, value)
    if tuple(value.shape) != shape:
        raise ValueError(f"{argument} must have shape {shape}; got {tuple(value.shape)}")
    _check_weights(argument, value, ring)
    _check_device(argument, value, like)


def _check_device(argument: str, value: Tensor, like: Tensor) -> None:
    if value.device != like.device:
        raise ValueError(f"{argument} must be on {like.device} like transitions; got {value.device}")


def _check_dtype(argument: str, values: Tensor, ring: Semiring) -> None:
    if values.dtype not in ring.dtypes:
        allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in ring.dtypes)
        raise TypeError(f"{argument} must have dtype {allowed} for the {ring.name} semiring; got {values.dtype}")


def _check_weights(argument: str, values: Tensor, ring: Semiring) -> None:
    _check_dtype(argument, values, ring)
    if values.dtype == torch.bool or not readable(values):
        return
    values = values.detach()
    # One reduction settles the usual case: a finite sum has only finite terms.
    if math.isfinite(values.sum(dtype=working_dtype(values.dtype)).item()):
        return
    wrong = ~ring.is_weight(values)
    if bool(wrong.any()):
        where = tuple(int(i) for i in torch.nonzero(wrong)[0])
        allowed = "finite numbers" if ring.name == "real" else f"finite numbers or {ring.zero}"
        raise ValueError(f"{argument} must hold {allowed}; got {float(values[where])} at {list(where)}")
