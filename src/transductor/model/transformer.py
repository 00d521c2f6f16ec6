"""The Transformer baseline: the backbone alone."""

from __future__ import annotations

from typing import final

from torch import Tensor

from transductor.model.backbone import Backbone, BackboneConfig, BackboneState
from transductor.model.base import BackboneModel
from transductor.recurrence import Layout


@final
class Transformer(BackboneModel[BackboneState]):
    """A causal Transformer with any position scheme: what a Rational Transductor is without its head."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.backbone = Backbone(config)

    @property
    def config(self) -> BackboneConfig:
        """The sizes of the backbone."""
        return self.backbone.config

    def start(self, batch_size: int) -> BackboneState:
        """Return a stream before its first token."""
        return self.backbone.start(batch_size)

    def _advanced(self, tokens: Tensor, state: BackboneState, layout: Layout) -> tuple[Tensor, BackboneState]:
        logits, after = self.backbone(tokens, state.next_positions(tokens, layout.mask), None, state)
        return logits, after
