"""Training that makes attention nearly constant, so that a model can be certified for all lengths.

What attention adds to a stream lies in the convex hull of ``W_O v`` over all values v that can occur.  A label is
certain where no point of that hull changes it; so the hull must be small beside the stream.  Ordinary training does not
see to it, and attention that decides labels drifts with the length.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from transductor.model import RationalTransductor
from transductor.model.attention import CausalAttention
from transductor.tasks import Task
from transductor.training.examples import FileData
from transductor.training.settings import TrainingSettings
from transductor.training.trainer import Trainer


@dataclass(frozen=True)
class Narrowed:
    """A model whose attention was narrowed.

    Attributes:
        model: A copy of the given model, in evaluation mode; its head is the same.
        before: The penalty on the first batch: the mean square of what attention's values move the stream by, summed
            over layers and attention heads.
        after: The penalty on the last batch.
        accuracy: Share of right labels on the last batch; NaN where labels are numbers.
    """

    model: RationalTransductor
    before: float
    after: float
    accuracy: float


def narrow_attention(
    model: RationalTransductor,
    source: Task | FileData,
    *,
    weight: float = 1.0,
    settings: TrainingSettings | None = None,
) -> Narrowed:
    """Train a copy of a hardened model a little longer, with a penalty on how much attention's values differ.

    The penalty is ``weight · Σ E|W_O (v − v̄)|²`` over layers and attention heads, v̄ the mean value of the batch.  The
    head stays as it is.  At the end the middle of the values is moved from the values into the bias of the output map,
    which changes no logit but for rounding, and makes the numbers that attention adds up small.

    Attention becomes nearly constant.  That is right where token and state decide the label.  Labels that need recall
    of an earlier token cannot be had this way: there the loss rises as the penalty falls, and ``accuracy`` shows it.

    Args:
        model: A transductor with attention, usually one that :func:`~transductor.extraction.harden` returned.
        source: What the model was trained on.
        weight: Factor of the penalty.
        settings: How to train; 200 steps at a learning rate of 1e-3 if not given.
    """
    if not isinstance(model, RationalTransductor):
        raise TypeError(f"model must be a RationalTransductor; got {type(model).__name__}")
    if not attentions(model):
        raise ValueError("model must have attention; it has none to narrow")
    if not 0 < weight < float("inf"):
        raise ValueError(f"weight must be a positive number; got {weight!r}")
    narrowed = copy.deepcopy(model)
    narrowed.rational_head.requires_grad_(False)
    settings = settings or TrainingSettings(steps=200, learning_rate=1e-3)
    trainer = _NarrowingTrainer(narrowed, source, settings, weight)
    points = trainer.run()
    move_middle_value(narrowed.eval(), trainer.last_tokens)
    return Narrowed(narrowed, trainer.penalties[0], trainer.penalties[-1], points[-1].accuracy)


def attentions(model: nn.Module) -> list[CausalAttention]:
    """Return the attention of every layer that has one."""
    return [module for module in model.modules() if isinstance(module, CausalAttention)]


def attention_spread(model: nn.Module, values: list[Tensor]) -> Tensor:
    """Return ``Σ E|W_O (v − v̄)|²`` over layers and attention heads, for values ``(B, T, W)`` of every layer."""
    total = values[0].new_zeros(())
    for attention, value in zip(attentions(model), values, strict=True):
        apart = value.flatten(0, -2) - value.flatten(0, -2).mean(0)
        heads = attention.attention_heads
        moved = torch.einsum(
            "nhk,whk->nhw", apart.unflatten(-1, (heads, -1)), attention.output.weight.unflatten(-1, (heads, -1))
        )
        total = total + moved.square().sum((1, 2)).mean()
    return total


@contextmanager
def values_kept(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the values ``(B, T, W)`` of every layer while the model runs."""
    kept: list[Tensor] = []
    handles = [
        attention.value.register_forward_hook(lambda module, inputs, output: kept.append(output))
        for attention in attentions(model)
    ]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def move_middle_value(model: RationalTransductor, tokens: Tensor) -> None:
    """Move the middle of the values that ``tokens`` have into the bias of the output map, in place.

    The weights of attention sum to one, so ``Σ a (v − m) = Σ a v − m``: logits change by rounding alone.  The middle of
    the range, because what attention's sums round is relative to the largest value.
    """
    for layer, attention in enumerate(attentions(model)):
        with values_kept(model) as kept:
            model(tokens)
        values = kept[layer].flatten(0, -2).double()
        middle = (0.5 * (values.amin(0) + values.amax(0))).to(attention.value.bias.dtype).double()
        moved = attention.output.weight.double() @ middle
        attention.value.bias.copy_(attention.value.bias.double() - middle)
        attention.output.bias.copy_(attention.output.bias.double() + moved)


class _NarrowingTrainer(Trainer):
    """Adds the penalty to the loss of every step."""

    def __init__(self, model: RationalTransductor, source: Any, settings: TrainingSettings, weight: float) -> None:
        super().__init__(model, source, settings)
        self.weight = weight
        self.penalties: list[float] = []
        self.last_tokens: Tensor

    def _measured(self, tokens: Tensor, labels: Tensor, lengths: Tensor | None) -> tuple[Tensor, float, float]:
        with values_kept(self.model) as values:
            loss, value, accuracy = super()._measured(tokens, labels, lengths)
        spread = attention_spread(self.model, values)
        self.penalties.append(float(spread.detach()))
        self.last_tokens = tokens
        return loss + self.weight * spread, value, accuracy
