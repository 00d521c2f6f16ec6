"""The one interface of everything that turns tokens into logits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from transductor.model.attention import Places
from transductor.notation import check_token_ids
from transductor.recurrence import check_offsets, mask_from_lengths

__all__ = ["Layout", "SequenceModel", "layout"]

StateT = TypeVar("StateT")


class SequenceModel(nn.Module, ABC, Generic[StateT]):
    """``logits = model(tokens)``; a stream with :meth:`start` and :meth:`advance`.

    ``StateT`` is the model's decode state, a small frozen dataclass.
    """

    @property
    @abstractmethod
    def config(self) -> Any:
        """A configuration that builds this model again, without its weights."""

    @abstractmethod
    def forward(
        self,
        tokens: Tensor,
        *,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
    ) -> Tensor:
        """Tokens ``(B, T)`` to logits ``(B, T, output_size)``.

        Args:
            tokens: Integers in ``[0, vocab_size)``.
            mask: ``(B, T)`` bool, true where a token is real; left and right padding both work.
            lengths: ``(B)``: the same as a mask that is true below the length.
            cu_seqlens: Boundaries of documents packed into one row; nothing crosses them.
        """

    @abstractmethod
    def start(self, batch_size: int) -> StateT:
        """A stream before its first token."""

    @abstractmethod
    def advance(self, tokens: Tensor, state: StateT, *, mask: Tensor | None = None) -> tuple[Tensor, StateT]:
        """Logits ``(B, n, output_size)`` of the next n tokens of a stream, and where it then stands.

        Equal to the parallel pass to rounding, however the input is split.
        """

    def parameter_count(self) -> int:
        """Trainable numbers."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)


class Layout:
    """A checked batch: its tokens, which of them are real, which document and position they have."""

    def __init__(self, tokens: Tensor, mask: Tensor | None, offsets: Tensor | None) -> None:
        self.tokens, self.mask, self.offsets = tokens.long(), mask, offsets
        index = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        documents = None
        positions = index
        if offsets is not None:
            documents = torch.bucketize(index, offsets[1:], right=True)
            positions = index - offsets[documents]
        elif mask is not None:
            # A padded token shares the position of the real one before it; nobody looks at it.
            positions = (mask.long().cumsum(1) - 1).clamp_min(0)
        self.places = Places(positions, documents, mask)


def layout(
    tokens: Tensor, vocab_size: int, mask: Tensor | None, lengths: Tensor | None, cu_seqlens: Tensor | None
) -> Layout:
    """Check tokens and boundaries once, for all layers."""
    if not isinstance(tokens, Tensor) or tokens.ndim != 2:
        shape = tuple(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ValueError(f"tokens must be a tensor of shape (B, T); got {shape}")
    check_token_ids("tokens", tokens, vocab_size)
    batch, time = tokens.shape
    if sum(given is not None for given in (mask, lengths, cu_seqlens)) > 1:
        raise ValueError("give at most one of mask, lengths and cu_seqlens")
    if lengths is not None:
        mask = mask_from_lengths(lengths, batch, time, tokens.device)
    elif mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != tokens.shape):
        given = f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"mask must be a bool tensor of shape {tuple(tokens.shape)}; got {given}")
    offsets = None if cu_seqlens is None else check_offsets(cu_seqlens, batch, time, tokens.device)
    return Layout(tokens, mask, offsets)
