"""The sequential, linear baseline: one matrix for all tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor, nn

from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.model.base import SequenceModel, layout
from transductor.recurrence import scan


@configuration
@dataclass(frozen=True)
class LinearRNNConfig:
    """Sizes of a :class:`LinearRNN`."""

    vocab_size: int
    output_size: int = 0
    width: int = 32

    def __post_init__(self) -> None:
        for name in ("vocab_size", "width"):
            check_positive(name, getattr(self, name))
        if self.output_size != 0:
            check_positive("output_size", self.output_size)


@dataclass(frozen=True)
class LinearRNNState:
    """The state ``(B, W)``."""

    state: Tensor

    def reordered(self, rows: Tensor) -> LinearRNNState:
        """Batch rows picked anew, as beam search does."""
        return replace(self, state=self.state.index_select(0, rows))


@final
class LinearRNN(SequenceModel[LinearRNNState]):
    """``h_t = A h_{t−1} + b_{x_t}`` from ``h_0 = 0``, evaluated step by step, with a linear readout.

    The transition ignores the token: what is left of a rational head when only its input may depend on it.

    Args:
        vocab_size: V, tokens in.
        output_size: Logits out; ``vocab_size`` when 0.
        width: Dimension of the state.
    """

    def __init__(self, *, vocab_size: int, output_size: int = 0, width: int = 32) -> None:
        super().__init__()
        self._config = LinearRNNConfig(vocab_size, output_size, width)
        noise = torch.randn(width, width) * 0.1 / math.sqrt(width)
        self.transition = nn.Parameter(0.95 * torch.eye(width) + noise)
        self.embedding = nn.Embedding(vocab_size, width)
        self.readout = nn.Linear(width, output_size or vocab_size)

    @property
    def config(self) -> LinearRNNConfig:
        """Sizes."""
        return self._config

    @property
    def vocab_size(self) -> int:
        """How many tokens the model reads."""
        return self._config.vocab_size

    def forward(
        self,
        tokens: Tensor,
        *,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
    ) -> Tensor:
        """Tokens ``(B, T)`` to logits ``(B, T, output_size)``; see :class:`SequenceModel`."""
        given = layout(tokens, self.vocab_size, mask, lengths, cu_seqlens)
        tokens = given.tokens
        logits: Tensor = self.readout(self._states(tokens, mask=given.mask, cu_seqlens=given.offsets)[0])
        return logits

    def _states(
        self,
        tokens: Tensor,
        *,
        initial_state: Tensor | None = None,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One letter for all tokens; what differs is the additive term."""
        return scan(
            self.transition[None],
            torch.zeros_like(tokens),
            bias=self.embedding(tokens),
            initial_state=initial_state,
            mask=mask,
            cu_seqlens=cu_seqlens,
            backend="reference",
            return_final=True,
        )

    def start(self, batch_size: int) -> LinearRNNState:
        """A stream before its first token."""
        check_positive("batch_size", batch_size)
        return LinearRNNState(self.transition.new_zeros(batch_size, self._config.width))

    def advance(
        self, tokens: Tensor, state: LinearRNNState, *, mask: Tensor | None = None
    ) -> tuple[Tensor, LinearRNNState]:
        """Logits of the next tokens of a stream."""
        tokens = layout(tokens, self.vocab_size, mask, None, None).tokens
        if len(tokens) != len(state.state):
            raise ValueError(f"tokens must have {len(state.state)} rows like the stream; got {len(tokens)}")
        states, final = self._states(tokens, initial_state=state.state, mask=mask)
        return self.readout(states), LinearRNNState(final)
