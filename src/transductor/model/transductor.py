"""The Rational Transductor: a Transformer with a rational head whose state enters its layers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from torch import Tensor

from transductor.configuration import LATER, configuration
from transductor.heads import HeadConfig, HeadState, RationalHead
from transductor.injection import Inject, build_injection
from transductor.model.backbone import Backbone, BackboneConfig, BackboneState
from transductor.model.base import BackboneModel
from transductor.recurrence import Layout


@configuration
@dataclass(frozen=True)
class TransductorConfig:
    """What is needed to build a :class:`RationalTransductor` again."""

    head: HeadConfig
    backbone: BackboneConfig
    injection: str = "deep"
    projections: str = field(default="linear", metadata=LATER)


@dataclass(frozen=True)
class TransductorState:
    """Where a stream stands: the state of the head and that of the backbone."""

    head: HeadState
    backbone: BackboneState

    def reordered(self, rows: Tensor) -> TransductorState:
        """Return the stream with these rows of the batch, as beam search needs it."""
        return TransductorState(self.head.reordered(rows), self.backbone.reordered(rows))


@final
class RationalTransductor(BackboneModel[TransductorState]):
    """A Transformer with a rational head whose state enters every layer.

    With all projections zero, as they can start, it is the Transformer, bit for bit.

    Args:
        head: A head driven by tokens, with the backbone's vocabulary.
        backbone: The sizes of the Transformer.
        injection: ``"deep"`` (every layer), ``"input"`` (the first) or ``"none"``.
        projections: How the projections of the state start: ``"linear"``, as ``nn.Linear`` draws them, or ``"zero"``,
            so that the model starts as its Transformer: for text, where the head is not what carries the task.
    """

    def __init__(
        self, head: RationalHead, backbone: BackboneConfig, *, injection: str = "deep", projections: str = "linear"
    ) -> None:
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
        self.injection.start_at(projections)
        self._projections = projections
        self.backbone = Backbone(backbone)

    @property
    def config(self) -> TransductorConfig:
        """The configuration of head, backbone and injection."""
        return TransductorConfig(
            self.rational_head.config, self.backbone.config, self.injection.name, self._projections
        )

    @property
    def heads(self) -> tuple[RationalHead, ...]:
        """The head that each layer receives the state of: the same one for all layers."""
        return (self.rational_head,) * self.backbone.config.layers

    def projection(self, layer: int) -> Tensor | None:
        """Return ``W^(layer) (W, D)``, or None where no state enters."""
        return self.injection.projection(layer)

    def injecting(self, tokens: Tensor, layout: Layout) -> Inject:
        """Return what adds the states after checked tokens ``(B, T)`` to the stream before each layer."""
        return self.injection.into(self.rational_head(tokens, layout=layout))

    def start(self, batch_size: int) -> TransductorState:
        """Return a stream before its first token; keep the parameters fixed while it lasts."""
        backbone = self.backbone.start(batch_size)
        return TransductorState(self.rational_head.start(batch_size), backbone)

    def _advanced(self, tokens: Tensor, state: TransductorState, layout: Layout) -> tuple[Tensor, TransductorState]:
        states, head = self.rational_head.advance(tokens, state.head, layout=layout)
        token_positions = state.backbone.next_positions(tokens, layout.mask)
        logits, backbone = self.backbone(tokens, token_positions, self.injection.into(states), state.backbone)
        return logits, TransductorState(head, backbone)
