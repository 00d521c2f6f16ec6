"""Builds small native models for the tests."""

from __future__ import annotations

from typing import Any

import torch

from transductor.integrations.huggingface import RationalTransductorConfig, RationalTransductorForCausalLM

VOCABULARY = 19


def tiny_config(**overrides: Any) -> RationalTransductorConfig:
    """Return a configuration with two layers, width 32 and D = 6; token 0 is padding, 1 begins a text, 2 ends one."""
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "state_dim": None if "head" in overrides else 6,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return RationalTransductorConfig(**{**settings, **overrides})


def tiny_native(**overrides: Any) -> RationalTransductorForCausalLM:
    """Return a language model in eval mode."""
    return RationalTransductorForCausalLM(tiny_config(**overrides)).eval()


def some_tokens(rows: int, time: int, vocab_size: int = VOCABULARY) -> torch.Tensor:
    """Return tokens ``(B, T)`` without special ones."""
    return torch.randint(3, vocab_size, (rows, time))
