"""Small transductors with attention over an exact counter, and what their layers do when attention may choose."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from torch.nn import functional as F

from tests.certification.perturbed import counter
from transductor.certification.attention_tensors import attention_tensors
from transductor.certification.bounds.attended_stream import AttendedStream
from transductor.extraction.hardening import machine_head
from transductor.model import BackboneConfig, FullAttention, RationalTransductor


def random_model(seed=0, *, modulus=3, values=0.1, scores=1.0, dtype=torch.float32, classes=None, **options):
    """A random model whose attention's values and scores have these sizes."""
    torch.manual_seed(seed)
    torch.randn(2, modulus**2)  # the tests state facts about models that were drawn after matrices of this size
    sizes = {"width": 8, "layers": 2, "attention_heads": 2, "feedforward": 12, **options}
    config = BackboneConfig(vocab_size=2, output_size=classes or modulus, **sizes)
    model = RationalTransductor(machine_head(counter(modulus)), config).to(dtype).eval()
    with torch.no_grad():
        for block in model.backbone.blocks:
            block.attention.value.weight.mul_(values)
            block.attention.value.bias.normal_().mul_(values)
            block.attention.query.weight.mul_(scores)
            for norm in (block.attention_norm, block.feedforward_norm):
                norm.weight.uniform_(0.5, 1.5)
                norm.bias.normal_().mul_(0.2)
        model.backbone.readout.weight.normal_()
    return model


def pairs_of(modulus):
    """Token and count of every edge: edge ``2 q + a`` reads token a and leads to count ``q + a``."""
    letters = np.tile([0, 1], modulus)
    return letters, (np.repeat(np.arange(modulus), 2) + letters) % modulus


def stream_of(model, modulus=3, sees=None):
    letters, counts = pairs_of(modulus)
    attention = model.backbone.config.attention
    return AttendedStream(
        attention_tensors(model),
        model.backbone.config.attention_heads,
        None if isinstance(attention, FullAttention) else attention.window,
        str(model.backbone.readout.weight.dtype).removeprefix("torch."),
        letters,
        np.eye(modulus)[counts],
        sees,
    )


def edges_of(words, modulus=3):
    """The edge that each position of ``words (B, T)`` takes."""
    counts = words.cumsum(1)
    return ((counts - words) % modulus * 2 + words).numpy()


def short_words(longest):
    """All words of at most that many letters, by length."""
    return [torch.tensor(list(product((0, 1), repeat=length))) for length in range(1, longest + 1)]


def choosing(model, modulus, rng, samples):
    """Return logits ``(samples, E, K)`` in float64 where each attention head of each layer takes one value it likes."""
    letters, counts = pairs_of(modulus)
    weights = {name: value.double() for name, value in model.state_dict().items()}
    backbone = model.backbone
    width, heads = backbone.config.width, backbone.config.attention_heads
    states = torch.eye(modulus, dtype=torch.float64)[torch.tensor(counts)]

    def affine(name, stream):
        return stream @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def normal(name, stream):
        return F.layer_norm(stream, (width,), weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-5)

    stream = weights["backbone.embedding.weight"][torch.tensor(letters)].expand(samples, -1, -1)
    for layer in range(backbone.config.layers):
        name = f"backbone.blocks.{layer}"
        projection = weights["injection.projections.weight"][layer * width : (layer + 1) * width]
        stream = stream + states @ projection.T
        values = affine(f"{name}.attention.value", normal(f"{name}.attention_norm", stream)).flatten(0, 1)
        # An independent choice for every sample, pair and attention head.
        chosen = torch.tensor(rng.integers(0, len(values), (samples, len(letters), heads)))
        per_head = values.unflatten(-1, (heads, -1))
        mixed = torch.stack([per_head[chosen[..., head], head] for head in range(heads)], -2).flatten(-2)
        stream = stream + affine(f"{name}.attention.output", mixed)
        hidden = F.gelu(affine(f"{name}.feedforward.0", normal(f"{name}.feedforward_norm", stream)))
        stream = stream + affine(f"{name}.feedforward.2", hidden)
    return affine("backbone.readout", normal("backbone.final_norm", stream)).numpy()
