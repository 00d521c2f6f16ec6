"""A filter alone: beliefs, and the predictions that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.heads import FilterHead, HeadConfig
from transductor.model.rational_readout import HeadReadout


@configuration
@dataclass(frozen=True)
class FilterReadoutConfig:
    """What is needed to build a :class:`FilterReadout` again."""

    head: HeadConfig
    output_size: int

    def __post_init__(self) -> None:
        check_positive("output_size", self.output_size)


@final
class MixtureReadout(nn.Linear):
    """``log(C h)`` of ``[h ; log]``: each hidden state has a distribution over outputs, a column of C.

    Columns are softmaxes, and the results log-probabilities.  A linear map of beliefs, or of their logarithms, in the
    place of ``C h`` was four times further from the best prediction.
    """

    def __init__(self, state_dim: int, output_size: int) -> None:
        super().__init__(state_dim, output_size, bias=False)
        nn.init.normal_(self.weight, std=0.5)

    def forward(self, input: Tensor) -> Tensor:
        """Return ``log(C h)`` for ``(..., D + 1)``; the last number is not read."""
        belief = input[..., : self.in_features]
        return (belief @ torch.softmax(self.weight, 0).mT).clamp_min(torch.finfo(belief.dtype).tiny).log()


@final
class FilterReadout(HeadReadout):
    """``logits_t = log(C h_t)`` of a belief ``h_t``: what a hidden Markov model predicts, learned.

    Args:
        head: A filter driven by tokens.
        output_size: How many outputs are told apart.
    """

    def __init__(self, head: FilterHead, output_size: int) -> None:
        super().__init__()
        if not isinstance(head, FilterHead):
            raise TypeError(f"head must be a FilterHead; got {type(head).__name__}")
        self._take(head, output_size)
        self.readout = MixtureReadout(head.transitions.state_dim, output_size)

    @property
    def config(self) -> FilterReadoutConfig:
        """The configuration of the head and the number of outputs."""
        return FilterReadoutConfig(self.rational_head.config, self.output_size)
