"""The linear baseline, evaluated step by step: one matrix for all tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor, nn

from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.model.base import SequenceModel
from transductor.recurrence import Layout, scan


@configuration
@dataclass(frozen=True)
class LinearRNNConfig:
    """The sizes of a :class:`LinearRNN`."""

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
    """Where a stream stands: the state ``(B, W)``."""

    state: Tensor

    def reordered(self, rows: Tensor) -> LinearRNNState:
        """Return the stream with these rows of the batch, as beam search needs it."""
        return replace(self, state=self.state.index_select(0, rows))


@final
class LinearRNN(SequenceModel[LinearRNNState]):
    """``h_t = A h_{t−1} + b_{x_t}`` from ``h_0 = 0``, evaluated step by step, with a linear readout.

    The transition does not depend on the token, as that of a rational head does; only the additive term does.

    Args:
        vocab_size: How many tokens the model reads.
        output_size: How many logits a position has; ``vocab_size`` when 0.
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
        """The sizes of the model."""
        return self._config

    def _logits(self, tokens: Tensor, layout: Layout) -> Tensor:
        logits: Tensor = self.readout(self._states(tokens, layout)[0])
        return logits

    def _states(self, tokens: Tensor, layout: Layout, initial_state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scan with one matrix for all tokens; only the additive term depends on the token."""
        return scan(
            self.transition[None],
            torch.zeros_like(tokens),
            bias=self.embedding(tokens),
            initial_state=initial_state,
            layout=layout,
            backend="reference",
            return_final=True,
        )

    def start(self, batch_size: int) -> LinearRNNState:
        """Return a stream before its first token."""
        check_positive("batch_size", batch_size)
        return LinearRNNState(self.transition.new_zeros(batch_size, self._config.width))

    def _advanced(self, tokens: Tensor, state: LinearRNNState, layout: Layout) -> tuple[Tensor, LinearRNNState]:
        if len(tokens) != len(state.state):
            raise ValueError(f"tokens must have {len(state.state)} rows like the stream; got {len(tokens)}")
        states, final = self._states(tokens, layout, state.state)
        return self.readout(states), LinearRNNState(final)
