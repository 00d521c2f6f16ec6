"""A filter alone: beliefs, and the predictions that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.heads import FactoredFilterHead, FilterHead, HeadConfig
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
    place of ``C h`` was four times further from the best prediction.  Of several beliefs side by side, each has a C of
    its own, and the result is that of their product: ``Σ_f log(C_f h_f)``, normalised.
    """

    def __init__(self, factor_dims: Sequence[int], output_size: int) -> None:
        super().__init__(sum(factor_dims), output_size, bias=False)
        self.factor_dims = tuple(factor_dims)
        nn.init.normal_(self.weight, std=0.5)

    def forward(self, input: Tensor) -> Tensor:
        """Return ``log(C h)`` for ``(..., D + 1)``; the last number is not read."""
        beliefs = input[..., : self.in_features].split(self.factor_dims, -1)
        tables = torch.softmax(self.weight, 0).split(self.factor_dims, 1)
        least = torch.finfo(input.dtype).tiny
        logs = [(belief @ table.mT).clamp_min(least).log() for belief, table in zip(beliefs, tables, strict=True)]
        return logs[0] if len(logs) == 1 else torch.log_softmax(torch.stack(logs).sum(0), -1)


@final
class FilterReadout(HeadReadout):
    """``logits_t = log(C h_t)`` of a belief ``h_t``: what a hidden Markov model predicts, learned.

    Of a :class:`~transductor.heads.FactoredFilterHead` it is the product of what its beliefs predict.

    Args:
        head: A filter driven by tokens.
        output_size: How many outputs are told apart.
    """

    def __init__(self, head: FilterHead, output_size: int) -> None:
        super().__init__()
        if not isinstance(head, FilterHead):
            raise TypeError(f"head must be a FilterHead; got {type(head).__name__}")
        self._take(head, output_size)
        dims = head.factor_dims if isinstance(head, FactoredFilterHead) else (head.transitions.state_dim,)
        self.readout = MixtureReadout(dims, output_size)

    @property
    def config(self) -> FilterReadoutConfig:
        """The configuration of the head and the number of outputs."""
        return FilterReadoutConfig(self.rational_head.config, self.output_size)
