"""The one interface of everything that turns tokens into logits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from transductor.checks import check_token_ids
from transductor.model.attention import Places
from transductor.model.backbone import Backbone
from transductor.model.time_parallel import EarlierRanks, past_mask
from transductor.recurrence import Stretches, check_offsets, mask_from_lengths

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

StateT = TypeVar("StateT")


class SequenceModel(nn.Module, ABC, Generic[StateT]):
    """``logits = model(tokens)``; a stream with :meth:`start` and :meth:`advance`.

    ``StateT`` is the model's decode state, a small frozen dataclass.
    """

    readout: nn.Linear  # from the last features of a position to its logits

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """How many tokens the model reads: they are ``0 … vocab_size − 1``."""

    @property
    def output_size(self) -> int:
        """How many logits a position has."""
        return self.readout.out_features

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


class BackboneModel(SequenceModel[StateT]):
    """A model around a :class:`~transductor.model.backbone.Backbone`, which holds the vocabulary and the readout."""

    backbone: Backbone

    @property
    def vocab_size(self) -> int:
        """How many tokens the model reads."""
        return self.backbone.config.vocab_size

    @property
    def readout(self) -> nn.Linear:  # type: ignore[override]
        """The backbone's readout."""
        return self.backbone.readout


class Layout:
    """A checked batch: its tokens, which of them are real, which document and position they have.

    With ``stretches`` it is our stretch of a longer time axis, which ``offsets`` are boundaries of.
    """

    def __init__(
        self, tokens: Tensor, mask: Tensor | None, offsets: Tensor | None, stretches: Stretches | None = None
    ) -> None:
        self.tokens, self.mask, self.offsets = tokens.long(), mask, offsets
        begin = 0 if stretches is None else stretches.begin
        index = torch.arange(begin + tokens.shape[1], device=tokens.device).unsqueeze(0)
        if mask is not None and stretches is not None:
            mask = past_mask(mask, stretches)
        documents = None
        positions = index
        if offsets is not None:
            documents = torch.bucketize(index, offsets[1:], right=True)
            positions = index - offsets[documents]
        elif mask is not None:
            # A padded token shares the position of the real one before it; nobody looks at it.
            positions = (mask.long().cumsum(1) - 1).clamp_min(0)
        self.places = Places(positions, documents, mask)
        if stretches is not None:
            earlier = EarlierRanks(stretches, self.places.between(0, begin))
            self.places = replace(self.places.between(begin, None), earlier=earlier)


def layout(
    tokens: Tensor,
    vocab_size: int,
    mask: Tensor | None,
    lengths: Tensor | None,
    cu_seqlens: Tensor | None,
    time_group: ProcessGroup | None = None,
) -> Layout:
    """Check tokens and boundaries once, for all layers.

    With a ``time_group``, ``tokens`` and ``mask`` are our stretch, ``lengths`` and ``cu_seqlens`` those of the whole.
    """
    if not isinstance(tokens, Tensor) or tokens.ndim != 2:
        shape = tuple(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ValueError(f"tokens must be a tensor of shape (B, T); got {shape}")
    check_token_ids("tokens", tokens, vocab_size)
    batch, time = tokens.shape
    if sum(given is not None for given in (mask, lengths, cu_seqlens)) > 1:
        raise ValueError("give at most one of mask, lengths and cu_seqlens")
    stretches = None if time_group is None else Stretches.of(time_group, time, tokens.device)
    if lengths is not None:
        if stretches is None:
            mask = mask_from_lengths(lengths, batch, time, tokens.device)
        else:
            mask = stretches.mask_from_lengths(lengths, batch, tokens.device)
    elif mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != tokens.shape):
        given = f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"mask must be a bool tensor of shape {tuple(tokens.shape)}; got {given}")
    whole = time if stretches is None else stretches.total
    offsets = None if cu_seqlens is None else check_offsets(cu_seqlens, batch, whole, tokens.device)
    return Layout(tokens, mask, offsets, stretches)
