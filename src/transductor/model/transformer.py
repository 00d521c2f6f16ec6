"""The baseline: the backbone alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from torch import Tensor

from transductor.model.backbone import Backbone, BackboneConfig, BackboneState
from transductor.model.base import BackboneModel, layout

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@final
class Transformer(BackboneModel[BackboneState]):
    """A causal Transformer with any position scheme: what a Rational Transductor is without its head."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.backbone = Backbone(config)

    @property
    def config(self) -> BackboneConfig:
        """Sizes."""
        return self.backbone.config

    def forward(
        self,
        tokens: Tensor,
        *,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        time_group: ProcessGroup | None = None,
    ) -> Tensor:
        """Tokens ``(B, T)`` to logits ``(B, T, output_size)``; see :class:`SequenceModel`.

        With a ``time_group``, every rank of it calls this with its stretch of the tokens (and of ``mask``), in the
        order of ranks, and gets the logits of its stretch; see :mod:`transductor.model.time_parallel`.
        """
        given = layout(tokens, self.vocab_size, mask, lengths, cu_seqlens, time_group)
        tokens = given.tokens
        logits: Tensor = self.backbone(tokens, given.places)[0]
        return logits

    def start(self, batch_size: int) -> BackboneState:
        """A stream before its first token."""
        return self.backbone.start(batch_size)

    def advance(
        self, tokens: Tensor, state: BackboneState, *, mask: Tensor | None = None
    ) -> tuple[Tensor, BackboneState]:
        """Logits of the next tokens of a stream."""
        tokens = layout(tokens, self.vocab_size, mask, None, None).tokens
        logits, after = self.backbone(tokens, state.places(tokens, mask), None, state)
        return logits, after
