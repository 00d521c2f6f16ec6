"""What a compiled model writes into a Transformer: coordinates of the stream, and a table as a feed-forward layer.

Every label has a coordinate of its own, which the readout copies.  The final norm applies one increasing affine map to
all coordinates of a position, so it cannot change their argmax: the label of the stream is the label of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import torch
from torch import Tensor, nn

from transductor.compilation.realisation import CannotCompile
from transductor.model import BackboneConfig, LearnedPositions, NoAttention, SinusoidalPositions
from transductor.model.backbone import Backbone, Block

# By how much the logit of the right label exceeds any other, at every position.
MARGIN: Final = 8.0

# The input of a unit whose key matches; a mismatch gives the negative.  GELU(12) = 12 and GELU(−12) = 0 in float64.
_ACTIVATION: Final = 12.0


@dataclass(frozen=True)
class Moments:
    """The mean and variance that a norm removes: known beforehand, because they are the same at every position."""

    mean: float
    variance: float

    @classmethod
    def of(cls, streams: Tensor) -> Moments:
        """Return the moments of streams ``(N, W)`` that all have the same."""
        return cls(float(streams.mean(-1).mean()), float(streams.var(-1, unbiased=False).mean()))

    @classmethod
    def of_ones(cls, ones: int, width: int) -> Moments:
        """Return the moments of streams with so many coordinates at 1 and the others at 0."""
        mean = ones / width
        return cls(mean, mean - mean**2)

    def deviation(self, norm: nn.LayerNorm) -> float:
        """Return what a norm divides by, with its ``eps`` added to the variance."""
        return float((self.variance + norm.eps) ** 0.5)


def bare_backbone(vocab_size: int, output_size: int, width: int, *, layers: int, units: int) -> BackboneConfig:
    """Return a backbone without attention, with as many feed-forward units as a table needs."""
    return BackboneConfig(
        vocab_size, output_size, width, layers=layers, attention_heads=1, feedforward=units, attention=NoAttention()
    )


def checked_backbone(
    backbone: BackboneConfig | None, *, vocab_size: int, output_size: int, width: int, units: int
) -> BackboneConfig:
    """Return the smallest backbone with ``width`` coordinates and ``units`` keys, or ``backbone`` if it has them."""
    width = max(2, width)
    if backbone is None:
        return bare_backbone(vocab_size, output_size, width, layers=1, units=max(1, units))
    if not isinstance(backbone, BackboneConfig):
        raise TypeError(f"backbone must be a BackboneConfig; got {type(backbone).__name__}")
    if isinstance(backbone.positions, SinusoidalPositions):
        raise CannotCompile("backbone must have positions that can be silenced, and SinusoidalPositions() are fixed")
    if backbone.vocab_size != vocab_size:
        raise ValueError(f"backbone must have vocab_size={vocab_size}, one token a letter; got {backbone.vocab_size}")
    outputs, hidden = backbone.output_size or backbone.vocab_size, backbone.feedforward or 4 * backbone.width
    sizes = ("output_size", outputs, output_size), ("width", backbone.width, width), ("feedforward", hidden, units)
    for name, size, least in sizes:
        if size < least:
            raise ValueError(f"backbone must have {name} of at least {least} for this automaton; got {size}")
    return backbone


@torch.no_grad()
def silence(backbone: Backbone, *, all_weights: bool) -> None:
    """Let nothing reach the stream but what is written from here on.

    ``all_weights`` also clears the weights that feed what is silent; otherwise training begins from them.
    """
    if all_weights:
        for module in backbone.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                for parameter in module.parameters(recurse=False):
                    parameter.zero_()
    silent: list[nn.Module] = [backbone.embedding, backbone.readout]
    if isinstance(backbone.config.positions, LearnedPositions):
        silent.append(backbone.positions)
    for block in _blocks(backbone):
        silent.append(block.feedforward[-1])
        if block.attention is not None:
            silent.append(block.attention.output)
    for module in silent:
        for parameter in module.parameters():
            parameter.zero_()


def _blocks(backbone: Backbone) -> list[Block]:
    return [block for block in backbone.blocks if isinstance(block, Block)]


@torch.no_grad()
def write_lookup(
    backbone: Backbone, layer: int, keys: Tensor, values: Sequence[int | None], moments: Moments, *, nearest: float
) -> None:
    """Write a table as the feed-forward part of a block: where the stream holds key i, add 1 to ``values[i]``.

    Args:
        backbone: The backbone to write into.
        layer: The number of the block.
        keys: ``(N, W)``, of one length; every stream of the layer agrees with one of them, or belongs to no position.
        values: A coordinate, or None where nothing is written.
        moments: The moments of the stream before the block, with which the norm is undone.
        nearest: The largest cosine between two keys: 1/2 where they are pairs of ones.

    Unit i is fed 12 by its own key and −12 or less by any other, the threshold being halfway between their cosines, so
    all others are silent to the last bit.
    """
    block = _blocks(backbone)[layer]
    steepness, threshold = 2 * _ACTIVATION / (1 - nearest), (1 + nearest) / 2
    directions = keys / keys.square().sum(-1, keepdim=True)
    deviation = moments.deviation(block.feedforward_norm)
    first, last = cast(nn.Linear, block.feedforward[0]), cast(nn.Linear, block.feedforward[-1])
    first.weight[: len(keys)] = steepness * deviation * directions
    first.bias[: len(keys)] = steepness * (moments.mean * directions.sum(-1) - threshold)
    written = [(coordinate, unit) for unit, coordinate in enumerate(values) if coordinate is not None]
    if written:
        last.weight[tuple(torch.tensor(written).T)] = 1 / _ACTIVATION


@torch.no_grad()
def write_labels(backbone: Backbone, labels: int, moments: Moments) -> None:
    """Make coordinates ``0 … labels − 1`` of the final stream the logits, :data:`MARGIN` apart."""
    gain = MARGIN * moments.deviation(backbone.final_norm)
    backbone.readout.weight[:labels, :labels] = gain * torch.eye(labels, dtype=backbone.readout.weight.dtype)
    # A label's coordinate gives at least −MARGIN: outputs that no label uses stay below all others.
    backbone.readout.bias[labels:] = -2 * MARGIN
