"""How attention uses the state: the paper's virtual tensorisation, measured.

A query at t and a key at t' see ``LN(z + W h)``.  Given the standard deviation that the layer norm divides by, this is
affine, so each of them is a content part plus a state part, and a score is exactly the sum of four terms.

In a stack the state of a layer is that of the layer's own head, and its content is what the block before left in the
stream: token, positions, and all that earlier heads and blocks wrote.  Whatever depends on the states of earlier heads
is content there, as what a :class:`RationalTransductor` injected into earlier layers is.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor, nn

from transductor.model.attention import CausalAttention
from transductor.model.backbone import Block
from transductor.model.stacked import StackedTransductor
from transductor.model.token_positions import TokenPositions
from transductor.model.transductor import RationalTransductor


@dataclass(frozen=True)
class ScoreTerms:
    """The four terms of one layer's scores, each ``(B, H, T, T)``, query × key, before anything is hidden.

    Later keys, padding, other documents and keys outside a window have terms too; attention does not look at them.
    ``position_bias`` is what relative positions add (zero otherwise).  In the name of a term the query comes first.
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


def _checked(model: RationalTransductor | StackedTransductor) -> None:
    if not isinstance(model, RationalTransductor | StackedTransductor):
        raise TypeError(f"model must be a RationalTransductor or a StackedTransductor; got {type(model).__name__}")


def _attention_of(model: RationalTransductor | StackedTransductor, layer: int) -> tuple[CausalAttention, nn.LayerNorm]:
    block = model.backbone.blocks[layer]
    assert isinstance(block, Block)
    if block.attention is None:
        raise ValueError("model must have attention: its layers are feed-forward only")
    return block.attention, block.attention_norm


@overload
def interaction_matrices(model: RationalTransductor) -> Tensor: ...


@overload
def interaction_matrices(model: StackedTransductor) -> tuple[Tensor, ...]: ...


@torch.no_grad()
def interaction_matrices(model: RationalTransductor | StackedTransductor) -> Tensor | tuple[Tensor, ...]:
    """Return ``Ω``: ``h_tᵀ Ω h_t'`` over both deviations of the layer norm is the state–state term.

    ``Ω = Wᵀ C G W_Qᵀ W_K G C W / √E`` with C centring and G the layer norm's gain.  Layers that receive no
    state give zero.  With rotary positions this is the matrix at distance 0.

    Returns:
        One tensor ``(L, H, D, D)`` for a model with one head; for a stack one tensor ``(H, D_k, D_k)`` for each layer,
        since its heads may differ in dimension.  D is what leaves the head: twice the state for a head that looks back.
    """
    _checked(model)
    terms = []
    for layer in range(len(model.backbone.blocks)):
        attention, norm = _attention_of(model, layer)
        projection, heads = model.projection(layer), attention.attention_heads
        if projection is None:
            dim = model.heads[layer].output_dim
            terms.append(norm.weight.new_zeros(heads, dim, dim))
            continue
        entering = (projection - projection.mean(0)) * norm.weight.unsqueeze(-1)
        query = (attention.query.weight @ entering).unflatten(0, (heads, -1))
        key = (attention.key.weight @ entering).unflatten(0, (heads, -1))
        terms.append(query.mT @ key * attention.scale())
    return torch.stack(terms) if isinstance(model, RationalTransductor) else tuple(terms)


@torch.no_grad()
def score_terms(
    model: RationalTransductor | StackedTransductor,
    tokens: Tensor,
    *,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
) -> tuple[ScoreTerms, ...]:
    """Return the four terms of every score, layer by layer, without dropout.

    Args:
        model: A model whose layers attend.  In a stack, linear or not, the state of a layer is that of its own head and
            the content is what the block before left in the stream, earlier heads' states included.
        tokens: ``(B, T)``.
        mask: As in the model's own call, like ``lengths`` and ``cu_seqlens``: what is padding or another document has
            other positions and states; its scores are not hidden here.
        lengths: ``(B)``.
        cu_seqlens: Boundaries of documents packed into one row.
    """
    _checked(model)
    model = copy.deepcopy(model).eval() if model.training else model
    tokens, layout = model.checked_call(tokens, mask=mask, lengths=lengths, cu_seqlens=cu_seqlens)
    token_positions, scheme = TokenPositions.of(tokens, layout), model.backbone.positions
    inject = model.injecting(tokens, layout)
    stream = model.backbone.embedded(tokens, token_positions)
    terms = []
    for layer, block in enumerate(model.backbone.blocks):
        attention, norm = _attention_of(model, layer)
        entered = inject(layer, stream)
        deviation = ((entered - entered.mean(-1, keepdim=True)).square().mean(-1, keepdim=True) + norm.eps).sqrt()
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
