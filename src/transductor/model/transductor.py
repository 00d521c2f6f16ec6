"""The Rational Transductor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from torch import Tensor

from transductor.configuration import configuration
from transductor.heads import HeadConfig, HeadState, RationalHead
from transductor.injection import build_injection
from transductor.model.backbone import Backbone, BackboneConfig, BackboneState
from transductor.model.base import BackboneModel, layout

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@configuration
@dataclass(frozen=True)
class TransductorConfig:
    """How to build a :class:`RationalTransductor` again."""

    head: HeadConfig
    backbone: BackboneConfig
    injection: str = "deep"


@dataclass(frozen=True)
class TransductorState:
    """Where a stream stands: the automaton's state and the backbone's."""

    head: HeadState
    backbone: BackboneState

    def reordered(self, rows: Tensor) -> TransductorState:
        """Batch rows picked anew, as beam search does."""
        return TransductorState(self.head.reordered(rows), self.backbone.reordered(rows))


@final
class RationalTransductor(BackboneModel[TransductorState]):
    """A Transformer with a rational head whose state enters every layer.

    With all projections zero it is the Transformer, bit for bit.

    Args:
        head: Driven by tokens, with the backbone's vocabulary.
        backbone: Sizes of the Transformer.
        injection: ``"deep"`` (every layer), ``"input"`` (the first) or ``"none"``.
    """

    def __init__(self, head: RationalHead, backbone: BackboneConfig, *, injection: str = "deep") -> None:
        super().__init__()
        if not isinstance(head, RationalHead):
            raise TypeError(f"head must be a RationalHead; got {type(head).__name__}")
        if not isinstance(backbone, BackboneConfig):
            raise TypeError(f"backbone must be a BackboneConfig; got {type(backbone).__name__}")
        if head.transitions.vocab_size != backbone.vocab_size:
            raise ValueError(
                f"head must be driven by the backbone's {backbone.vocab_size} tokens; it has "
                f"{head.transitions.extra_repr()}"
            )
        self.rational_head = head
        self.injection = build_injection(injection, head.output_dim, backbone.width, backbone.layers)
        self.backbone = Backbone(backbone)

    @property
    def config(self) -> TransductorConfig:
        """Head, sizes, injection."""
        return TransductorConfig(self.rational_head.config, self.backbone.config, self.injection.name)

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
        states = self.rational_head(tokens, mask=given.mask, cu_seqlens=given.offsets, time_group=time_group)
        logits: Tensor = self.backbone(tokens, given.places, self.injection.into(states))[0]
        return logits

    def start(self, batch_size: int) -> TransductorState:
        """A stream before its first token; keep the parameters fixed while it lasts."""
        backbone = self.backbone.start(batch_size)
        return TransductorState(self.rational_head.start(batch_size), backbone)

    def advance(
        self, tokens: Tensor, state: TransductorState, *, mask: Tensor | None = None
    ) -> tuple[Tensor, TransductorState]:
        """Logits of the next tokens of a stream."""
        tokens = layout(tokens, self.vocab_size, mask, None, None).tokens
        states, head = self.rational_head.advance(tokens, state.head, mask=mask)
        inject = self.injection.into(states)
        logits, backbone = self.backbone(tokens, state.backbone.places(tokens, mask), inject, state.backbone)
        return logits, TransductorState(head, backbone)
