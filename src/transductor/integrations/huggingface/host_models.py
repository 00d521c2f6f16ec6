"""The host models, decoders that a sidecar can be attached to: where their layers are and how wide their stream is."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Final, cast

from torch import nn
from transformers import PreTrainedModel

# By model_type: the attribute of the base model that is called with token ids (empty: the base model itself), and the
# name of its list of layers.
HOSTS: Final[dict[str, tuple[str, str]]] = {
    "gpt2": ("", "h"),
    "llama": ("", "layers"),
    "qwen2": ("", "layers"),
    "qwen3": ("", "layers"),
    "mistral": ("", "layers"),
    "gemma2": ("", "layers"),
    "gemma3_text": ("", "layers"),
    "phi3": ("", "layers"),
    "gpt_neox": ("", "layers"),
    "opt": ("decoder", "layers"),
    "olmo2": ("", "layers"),
    "smollm3": ("", "layers"),
}

_WITHOUT_KEYWORDS: Final = ("bloom", "falcon")  # their layers do not receive the keyword arguments of the model


class UnsupportedHost(ValueError):
    """The error for a model that no sidecar can be attached to; the message says why, and which models work."""


@dataclass(frozen=True)
class Host:
    """The decoder inside a host model, whatever task is on top of it and whatever is wrapped around it.

    Attributes:
        model_type: Its ``model_type`` in transformers.
        base: The module that is called with token ids and passes its keyword arguments on to its layers.
        layers: Its layers, as many as its cache has.
        width: Width of the stream between the layers.
        features: Width of the input embeddings.
        vocab_size: Rows of the input embeddings.
    """

    model_type: str
    base: nn.Module
    layers: nn.ModuleList
    width: int
    features: int
    vocab_size: int

    @property
    def embeddings(self) -> nn.Module:
        """Return the input embeddings."""
        return cast(PreTrainedModel, self.base).get_input_embeddings()  # type: ignore[no-any-return]

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Return the names of the arguments that ``base`` takes by position."""
        parameters = list(inspect.signature(type(self.base).forward).parameters.values())[1:]
        return tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)


def host_of(model: Any) -> Host:
    """Return the decoder inside ``model``: a bare model or one with a task, also inside PEFT, DDP or compile.

    Raises:
        UnsupportedHost: If the model is none of ``HOSTS``.
    """
    plain = _unwrapped(model)
    if not isinstance(plain, PreTrainedModel):
        raise TypeError(f"model must be a transformers model (or PEFT around one); got {type(model).__name__}")
    kind = getattr(plain.config, "model_type", "")
    if kind not in HOSTS:
        why = "is none of the host models that were verified"
        if kind in _WITHOUT_KEYWORDS:
            why = "does not hand keyword arguments on to its layers, so states cannot reach them"
        raise UnsupportedHost(f"model {kind!r} {why}; a sidecar can be attached to {', '.join(HOSTS)}")
    if getattr(plain.config, "add_cross_attention", False):
        raise UnsupportedHost(f"model {kind!r} with add_cross_attention=True is half of a pair: give a plain decoder")
    inside, layers = HOSTS[kind]
    base = getattr(plain.base_model, inside, plain.base_model) if inside else plain.base_model
    vocab_size, features = base.get_input_embeddings().weight.shape
    return Host(kind, base, getattr(base, layers), plain.config.hidden_size, features, vocab_size)


def _unwrapped(model: Any) -> Any:
    """Remove DDP (``module``), compile (``_orig_mod``) and PEFT (``get_base_model``) around a model."""
    while isinstance(model, nn.Module) and not isinstance(model, PreTrainedModel):
        inner = getattr(model, "_orig_mod", getattr(model, "module", None))
        from_peft: Any = getattr(model, "get_base_model", None)
        if inner is None and from_peft is not None:
            inner = from_peft()
        if not isinstance(inner, nn.Module):
            break
        model = inner
    return model
