"""How attention uses the state: the paper's virtual tensorisation, measured.

A query at t and a key at t' see ``LN(z + W h)``.  Given the standard deviation that the layer norm divides by, this is
affine, so each of them is a content part plus a state part, and a score is exactly the sum of four terms.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transductor.model.attention import CausalAttention
from transductor.model.backbone import Block
from transductor.model.token_positions import TokenPositions
from transductor.model.transductor import RationalTransductor
from transductor.recurrence import Layout


@dataclass(frozen=True)
class ScoreTerms:
    """The four terms of one layer's scores, each ``(B, H, T, T)``, query × key, before the causal mask.

    ``position_bias`` is what relative positions add (zero otherwise).
    """

    content_content: Tensor
    content_state: Tensor
    state_content: Tensor
    state_state: Tensor
    position_bias: Tensor

    @property
    def total(self) -> Tensor:
        """The score: the sum of all terms."""
        four = self.content_content + self.content_state + self.state_content + self.state_state
        return four + self.position_bias


def _attention_of(model: RationalTransductor, layer: int) -> tuple[CausalAttention, nn.LayerNorm]:
    block = model.backbone.blocks[layer]
    assert isinstance(block, Block)
    if block.attention is None:
        raise ValueError("model must have attention: its layers are feed-forward only")
    return block.attention, block.attention_norm


def interaction_matrices(model: RationalTransductor) -> Tensor:
    """Return ``Ω (L, H, D, D)``: ``h_tᵀ Ω h_t'`` over both deviations of the layer norm is the state–state term.

    ``Ω = Wᵀ C G W_Qᵀ W_K G C W / √E`` with C centring and G the layer norm's gain.  Layers that receive no
    state give zero.  With rotary positions this is the matrix at distance 0.
    """
    terms = []
    for layer in range(len(model.backbone.blocks)):
        attention, norm = _attention_of(model, layer)
        projection = model.injection.projection(layer)
        heads, dim = attention.attention_heads, model.rational_head.output_dim
        if projection is None:
            terms.append(norm.weight.new_zeros(heads, dim, dim))
            continue
        entering = (projection - projection.mean(0)) * norm.weight.unsqueeze(-1)
        query = (attention.query.weight @ entering).unflatten(0, (heads, -1))
        key = (attention.key.weight @ entering).unflatten(0, (heads, -1))
        terms.append(query.mT @ key * attention.scale())
    return torch.stack(terms).detach()


@torch.no_grad()
def score_terms(model: RationalTransductor, tokens: Tensor) -> tuple[ScoreTerms, ...]:
    """Return the four terms of every score, layer by layer, for ``tokens (B, T)``, without dropout."""
    if not isinstance(model, RationalTransductor):
        raise TypeError(f"model must be a RationalTransductor; got {type(model).__name__}")
    model = copy.deepcopy(model).eval() if model.training else model
    tokens = model.checked_tokens(tokens)
    token_positions, scheme = TokenPositions.of(tokens, Layout()), model.backbone.positions
    states = model.rational_head(tokens)
    stream = model.backbone.embedded(tokens, token_positions)
    terms = []
    for layer, block in enumerate(model.backbone.blocks):
        attention, norm = _attention_of(model, layer)
        entered = model.injection(layer, stream, states)
        deviation = (entered.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
        from_state = entered - stream
        parts = []
        for part, offset in ((stream, norm.bias), (from_state, torch.zeros_like(norm.bias))):
            centred = part - part.mean(-1, keepdim=True)
            parts.append(centred / deviation * norm.weight + offset)
        queries: list[Tensor] = []
        keys: list[Tensor] = []
        for index, part in enumerate(parts):
            for linear, side in ((attention.query, queries), (attention.key, keys)):
                projected = nn.functional.linear(part, linear.weight, linear.bias if index == 0 else None)
                side.append(scheme.turned(attention.heads(projected), token_positions.positions))
        (cc, cs), (sc, ss) = [[query @ key.mT * attention.scale() for key in keys] for query in queries]
        bias = scheme.score_bias(token_positions.positions, token_positions.positions)
        terms.append(ScoreTerms(cc, cs, sc, ss, torch.zeros_like(cc) if bias is None else bias.expand_as(cc)))
        stream, _ = block(entered, token_positions, scheme, None)
    return tuple(terms)
