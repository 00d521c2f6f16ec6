"""Stacks, in which every block has a rational head of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from torch import Tensor, nn

from transductor.configuration import configuration
from transductor.heads import HeadConfig, HeadState, RationalHead
from transductor.injection import Inject, Injection, build_injection
from transductor.model.backbone import Backbone, BackboneConfig, BackboneState
from transductor.model.base import BackboneModel
from transductor.recurrence import Layout


@configuration
@dataclass(frozen=True)
class StackedConfig:
    """What is needed to build a :class:`StackedTransductor` again."""

    heads: tuple[HeadConfig, ...]
    backbone: BackboneConfig


@dataclass(frozen=True)
class StackedState:
    """Where a stream stands: the state of every head, and that of the backbone."""

    heads: tuple[HeadState, ...]
    backbone: BackboneState

    def reordered(self, rows: Tensor) -> StackedState:
        """Return the stream with these rows of the batch, as beam search needs it."""
        return StackedState(tuple(head.reordered(rows) for head in self.heads), self.backbone.reordered(rows))


@final
class StackedTransductor(BackboneModel[StackedState]):
    """``h^k_t = M^k h^k_{t−1} + V^k u^{k−1}_t``, then ``u^k = Block_k(u^{k−1} + W^k h^k)``.

    A head driven by tokens takes ``M^k_{x_t}``: the linear stack.  A head driven by features takes ``M^k(u^{k−1}_t)``
    from the previous block's output: the non-linear stack, whose scans wait for each other.  Both may be mixed.

    Args:
        heads: One per layer, driven by ``vocab_size`` tokens, or by ``width`` features.
        backbone: The sizes of the Transformer.
    """

    def __init__(self, heads: Sequence[RationalHead], backbone: BackboneConfig) -> None:
        super().__init__()
        heads = tuple(heads)
        if len(heads) != backbone.layers:
            raise ValueError(f"heads must hold one head per layer, {backbone.layers}; got {len(heads)}")
        if len({id(head) for head in heads}) < len(heads):
            raise ValueError("heads must be different objects: each layer has its own")
        for layer, head in enumerate(heads):
            if not isinstance(head, RationalHead):
                raise TypeError(f"heads[{layer}] must be a RationalHead; got {type(head).__name__}")
            drive = head.transitions.vocab_size, head.transitions.feature_dim
            if drive not in ((backbone.vocab_size, None), (None, backbone.width)):
                raise ValueError(
                    f"heads[{layer}] must be driven by vocab_size={backbone.vocab_size} or "
                    f"feature_dim={backbone.width}; it has {head.transitions.extra_repr()}"
                )
        self.rational_heads = nn.ModuleList(heads)
        self.inputs = nn.ModuleList(
            nn.Linear(backbone.width, head.state_dim, bias=False) if head.linear else nn.Identity() for head in heads
        )
        self.injections = nn.ModuleList(build_injection("deep", head.output_dim, backbone.width, 1) for head in heads)
        self.backbone = Backbone(backbone)

    @property
    def heads(self) -> tuple[RationalHead, ...]:
        """The heads, one per layer."""
        return tuple(head for head in self.rational_heads if isinstance(head, RationalHead))

    @property
    def config(self) -> StackedConfig:
        """The configuration of the heads and the backbone."""
        return StackedConfig(tuple(head.config for head in self.heads), self.backbone.config)

    def _drive(self, layer: int, tokens: Tensor, stream: Tensor) -> Tensor:
        return tokens if self.heads[layer].transitions.vocab_size is not None else stream

    def _input(self, layer: int, stream: Tensor) -> Tensor | None:
        if not self.heads[layer].linear:
            return None
        term: Tensor = self.inputs[layer](stream)
        return term.to(self.heads[layer].initial_state().dtype)

    def projection(self, layer: int) -> Tensor:
        """Return ``W^(layer) (W, D)``, by which the state of the layer's own head enters."""
        injection = self.injections[layer]
        assert isinstance(injection, Injection)
        weight = injection.projection(0)
        assert weight is not None
        return weight

    def injecting(self, tokens: Tensor, layout: Layout) -> Inject:
        """Return what computes the states of a layer's own head and adds them to the stream before that layer."""

        def inject(layer: int, stream: Tensor) -> Tensor:
            head = self.heads[layer]
            states = head(self._drive(layer, tokens, stream), bias=self._input(layer, stream), layout=layout)
            injected: Tensor = self.injections[layer](0, stream, states)
            return injected

        return inject

    def start(self, batch_size: int) -> StackedState:
        """Return a stream before its first token; keep the parameters fixed while it lasts."""
        backbone = self.backbone.start(batch_size)
        return StackedState(tuple(head.start(batch_size) for head in self.heads), backbone)

    def _advanced(self, tokens: Tensor, state: StackedState, layout: Layout) -> tuple[Tensor, StackedState]:
        after: list[HeadState] = []

        def inject(layer: int, stream: Tensor) -> Tensor:
            states, head_state = self.heads[layer].advance(
                self._drive(layer, tokens, stream),
                state.heads[layer],
                bias=self._input(layer, stream),
                layout=layout,
            )
            after.append(head_state)
            injected: Tensor = self.injections[layer](0, stream, states)
            return injected

        token_positions = state.backbone.next_positions(tokens, layout.mask)
        logits, backbone = self.backbone(tokens, token_positions, inject, state.backbone)
        return logits, StackedState(tuple(after), backbone)
