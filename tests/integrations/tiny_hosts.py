"""Builds small host models for the tests, with and without a sidecar."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from transductor import RationalHead
from transductor.integrations.huggingface.sidecar import attach, head_for
from transductor.transitions import CayleyTransitions

VOCABULARY: Final = 64

_COMMON: Final[dict[str, Any]] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LLAMA: Final[dict[str, Any]] = {**_COMMON, "intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8}
_SLIDING: Final[dict[str, Any]] = {**_LLAMA, "sliding_window": 8}  # shorter than the inputs of the tests
_MIXED: Final[dict[str, Any]] = {**_SLIDING, "layer_types": ["sliding_attention", "full_attention"]}

SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "gpt2": _COMMON,
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "mistral": _SLIDING,
    "gemma2": _MIXED,
    "gemma3_text": _MIXED,
    "phi3": _LLAMA,
    "gpt_neox": {**_COMMON, "intermediate_size": 48},
    "opt": {**_COMMON, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "olmo2": _LLAMA,
    "smollm3": _LLAMA,
}


def tiny_host(model_type: str, automodel: Any = AutoModelForCausalLM, **overrides: Any) -> PreTrainedModel:
    """Return a host model with two layers and width 32 in eval mode, without a sidecar."""
    return automodel.from_config(AutoConfig.for_model(model_type, **{**SETTINGS[model_type], **overrides})).eval()


def tiny_head(vocab_size: int = VOCABULARY) -> RationalHead:
    """Return a head over rotations in six dimensions, far from the identity."""
    return RationalHead(CayleyTransitions(state_dim=6, vocab_size=vocab_size, init_scale=1.0))


def enlivened(projections: nn.Linear) -> None:
    """Give projections that change the output, instead of the initial zeros."""
    nn.init.normal_(projections.weight, std=0.3)


def with_sidecar(model_type: str, **overrides: Any) -> PreTrainedModel:
    """Return a tiny host model whose sidecar changes the output."""
    return with_head(tiny_host(model_type, **overrides), tiny_head())


def with_head(model: PreTrainedModel, head: RationalHead, **options: Any) -> PreTrainedModel:
    """Return the host model with a sidecar of that head, which changes the output."""
    enlivened(attach(model, head, **options).injection.projections)
    return model


def by_embeddings(model_type: str) -> PreTrainedModel:
    """Return a tiny host model whose sidecar changes the output and reads its embeddings."""
    model = tiny_host(model_type)
    return with_head(model, head_for(model, state_dim=6))


def some_tokens(rows: int, time: int, vocab_size: int = VOCABULARY) -> torch.Tensor:
    """Return tokens ``(B, T)`` without special ones."""
    return torch.randint(3, vocab_size, (rows, time))


@torch.no_grad()
def logits(model: Any, tokens: torch.Tensor | None, **options: Any) -> torch.Tensor:
    """Return the logits, computed without a cache and without gradients."""
    return model(tokens, use_cache=False, **options).logits


def in_steps(model: Any, tokens: torch.Tensor, **options: Any) -> torch.Tensor:
    cache, parts = None, []
    with torch.no_grad():
        for part in tokens.split([4, 1, 1, tokens.shape[1] - 6], 1):
            out = model(part, past_key_values=cache, use_cache=True, **options)
            cache = out.past_key_values
            parts.append(out.logits)
    return torch.cat(parts, 1)
