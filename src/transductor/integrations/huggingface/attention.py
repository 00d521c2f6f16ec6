"""Attention of the native model: our queries, keys and values in Hugging Face's kernels and caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import eager_attention_forward

from transductor.integrations.huggingface.configuration import RationalTransductorConfig
from transductor.integrations.huggingface.head_states import any_mask
from transductor.model.positions import Positions
from transductor.model.token_positions import TokenPositions


@dataclass(frozen=True)
class AttentionInputs:
    """What attention needs to know about the tokens of a call, besides the tokens themselves.

    Args:
        token_positions: Their positions ``(B or 1, T)``.
        mask: Which keys they may see, ``(B, 1, T, keys)``, bool or additive; None for the complete past.
        packed: Whether a row may hold several documents.
    """

    token_positions: TokenPositions
    mask: Tensor | None
    packed: bool

    @classmethod
    def of(
        cls,
        config: RationalTransductorConfig,
        tokens: Tensor,
        attention_mask: Any,
        position_ids: Tensor | None,
        cache: Cache | None,
        cu_seqlens: Tensor | None,
        dtype: torch.dtype,
    ) -> AttentionInputs:
        """Build them from the arguments of a Hugging Face forward pass."""
        time = tokens.shape[1]
        index = torch.arange(time, device=tokens.device).unsqueeze(0)
        attention_mask = any_mask(attention_mask)
        restarting, packed = None, False  # positions that begin again at zero in every document
        if cu_seqlens is not None:
            if attention_mask is not None:
                raise ValueError("give at most one of attention_mask and cu_seq_lens_q")
            offsets = cu_seqlens.to(tokens.device)
            restarting = index - offsets[torch.bucketize(index, offsets[1:], right=True)]
            packed = True
        elif position_ids is not None and attention_mask is None and cache is None:
            restarting = position_ids
            packed = torch.compiler.is_compiling() or bool((position_ids.diff(dim=1) != 1).any())
        positions = restarting if position_ids is None else position_ids
        if positions is None:  # count the real tokens before each new one; without a mask all tokens are real
            if attention_mask is not None and attention_mask.ndim == 2:
                positions = (attention_mask.long().cumsum(1)[:, -time:] - 1).clamp_min(0)
            else:
                positions = index if cache is None else index + cache.get_seq_length()
        mask = None
        if config.attention != "none":
            create = create_causal_mask if config.attention == "full" else create_sliding_window_causal_mask
            mask = create(
                config=config,
                inputs_embeds=torch.empty(*tokens.shape, 0, dtype=dtype, device=tokens.device),
                attention_mask=attention_mask,
                past_key_values=cache,
                position_ids=restarting,
            )
        return cls(TokenPositions(positions), mask, packed)


class HuggingFaceAttention(nn.Module):
    """One layer's attention through Hugging Face's cache and kernel; it has no weights of its own."""

    is_causal = True
    num_key_value_groups = 1

    def __init__(self, config: RationalTransductorConfig, layer_idx: int) -> None:
        super().__init__()
        self.config, self.layer_idx = config, layer_idx

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        positions: Positions,
        cache: Cache | None,
        scale: float,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the mixed values ``(B, H, T, E)``, and the weights ``(B, H, T, keys)`` if the kernel returns them."""
        if cache is not None:
            keys, values = cache.update(keys, values, self.layer_idx)
        if positions.biases_scores:
            mask = _biased(mask, positions, queries, keys)
        kernel = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        mixed, weights = kernel(self, queries, keys, values, mask, dropout=0.0, scaling=scale)
        return mixed.transpose(1, 2), weights


def _biased(mask: Tensor | None, positions: Positions, queries: Tensor, keys: Tensor) -> Tensor:
    """Add the bias of relative positions to the mask, ``(B, H, T, keys)``.

    The distance of a key is the number of visible keys after it.  This is right under padding, in a window, among
    packed documents, and in a cache that does not know the positions of its keys.
    """
    time, total = queries.shape[2], keys.shape[2]
    if mask is None:  # as the kernel does: a single query sees all keys, several see the keys up to their own
        mask = torch.ones(1, 1, time, total, dtype=torch.bool, device=keys.device)
        mask = mask if time == 1 else mask.tril()
    hidden = torch.finfo(queries.dtype).min / 2
    seen = mask if mask.dtype == torch.bool else mask > hidden
    order = seen[:, 0].long().cumsum(-1)
    bias = positions.score_bias(order[..., -1:], order)
    assert bias is not None
    bias = bias.squeeze(-2).transpose(1, 2).to(queries.dtype)
    return bias.where(seen, hidden) if mask.dtype == torch.bool else bias + mask
