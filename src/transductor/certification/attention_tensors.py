"""The arrays of a transductor with attention, taken out of the model by name."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from transductor.certification.ball_arithmetic import Array
from transductor.model import (
    FullAttention,
    NoPositions,
    RationalTransductor,
    RelativePositions,
    RotaryPositions,
    SlidingWindow,
)
from transductor.model.attention import CausalAttention
from transductor.model.backbone import Backbone, Block
from transductor.model.positions import build_positions

# Schemes that act on scores alone: whatever they do, attention returns an average of the values.
_ON_SCORES = (NoPositions, RotaryPositions, RelativePositions)


class NotAnalysed(ValueError):
    """The model has a part that the bound for attention does not cover; the message names it."""


def attention_tensors(model: RationalTransductor) -> dict[str, Array]:
    """Return all arrays of the stream of a model with attention, by name.

    ``embedding``, ``projections``, and for each layer n ``block{n}.`` with ``attention_norm``, ``query``, ``key``,
    ``value``, ``output``, ``norm``, ``into`` and ``back``; then ``norm`` and ``readout``, and ``position_biases`` where
    positions are relative.  Linear maps have ``.weight`` and ``.bias``, norms also ``.eps``.

    Raises:
        NotAnalysed: If a module is not exactly of the kind that was analysed, or positions are added to the stream.
    """
    config, backbone = model.backbone.config, model.backbone
    _exactly(model, RationalTransductor, "model")
    _exactly(backbone, Backbone, "backbone")
    if type(config.attention) not in (FullAttention, SlidingWindow):
        raise NotAnalysed(f"the model must have FullAttention or a SlidingWindow; got {config.attention!r}")
    if type(config.positions) not in _ON_SCORES:
        raise NotAnalysed(
            f"positions must act on attention scores alone ({', '.join(kind.__name__ for kind in _ON_SCORES)}); "
            f"{type(config.positions).__name__} are added to the stream, so that it has no finite set of inputs"
        )
    if model.training and config.dropout > 0:
        raise NotAnalysed("the model must be in evaluation mode: call model.eval(), or dropout makes it random")
    dtypes = {parameter.dtype for parameter in [*backbone.parameters(), *model.injection.parameters()]}
    if len(dtypes) != 1:
        raise NotAnalysed(f"the stream must have one dtype; got {', '.join(sorted(map(str, dtypes)))}")
    scheme = build_positions(config.positions, config.width, config.attention_heads)
    _exactly(backbone.positions, type(scheme), "positions")
    _exactly(backbone.embedding, nn.Embedding, "embedding")
    if backbone.embedding.max_norm is not None:
        raise NotAnalysed("the embedding must not renormalise its vectors")
    out = {"embedding": _array(backbone.embedding.weight)}
    if isinstance(config.positions, RelativePositions):
        out["position_biases"] = _array(backbone.positions.get_parameter("biases.weight"))
    if model.injection.projections is not None:
        out["projections"] = _linear("projections", model.injection.projections)["projections.weight"]
    for number, block in enumerate(backbone.blocks):
        out |= _of_block(f"block{number}", block)
    return out | _norm("norm", backbone.final_norm) | _linear("readout", backbone.readout)


def _of_block(name: str, block: nn.Module) -> dict[str, Array]:
    _exactly(block, Block, name)
    attention = block.get_submodule("attention")
    _exactly(attention, CausalAttention, f"{name}.attention")
    out = _norm(f"{name}.attention_norm", block.get_submodule("attention_norm"))
    for part in ("query", "key", "value", "output"):
        out |= _linear(f"{name}.{part}", attention.get_submodule(part))
    feedforward = list(block.get_submodule("feedforward").children())
    if len(feedforward) != 3:
        raise NotAnalysed(f"{name}.feedforward must be two linear maps with GELU between; it has {len(feedforward)}")
    into, activation, back = feedforward
    _exactly(activation, nn.GELU, f"{name}.activation")
    if getattr(activation, "approximate", None) != "none":
        raise NotAnalysed(f"{name}.activation must be exact GELU; got {activation}")
    out |= _norm(f"{name}.norm", block.get_submodule("feedforward_norm"))
    return out | _linear(f"{name}.into", into) | _linear(f"{name}.back", back)


def _exactly(module: nn.Module, kind: type[nn.Module], name: str) -> None:
    """Refuse a subclass or a wrapper, which may compute something else."""
    if type(module) is not kind:
        raise NotAnalysed(f"{name} must be a {kind.__name__} and nothing else; got a {type(module).__name__}")


def _linear(name: str, module: nn.Module) -> dict[str, Array]:
    _exactly(module, nn.Linear, name)
    weight, bias = module.get_parameter("weight"), getattr(module, "bias", None)
    zeros = weight.new_zeros(len(weight))
    return {f"{name}.weight": _array(weight), f"{name}.bias": _array(zeros if bias is None else bias)}


def _norm(name: str, module: nn.Module) -> dict[str, Array]:
    _exactly(module, nn.LayerNorm, name)
    assert isinstance(module, nn.LayerNorm)
    weight, bias = module.weight, module.bias
    ones = torch.ones(module.normalized_shape)
    parts = {"weight": ones if weight is None else weight, "bias": 0 * ones if bias is None else bias}
    return {f"{name}.{part}": _array(value) for part, value in parts.items()} | {f"{name}.eps": np.array([module.eps])}


def _array(tensor: Tensor) -> Array:
    """Return a copy as float64, which changes no number."""
    return np.array(tensor.detach().cpu().double().numpy())
